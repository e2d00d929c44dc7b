package spawn

import (
	"cmp"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/guard"
)

// maxNear is how many names an error tells.
const maxNear = 3

// nearNames returns at most three names that a wrong one may have meant, the closest
// first. Letter case and separators count for nothing: that is what models get wrong.
func nearNames(wrong string, names []string) []string {
	key := squash(wrong)
	if key == "" || len(wrong) > maxName {
		return nil
	}
	type candidate struct {
		name     string
		distance int
	}
	var found []candidate
	most := max(1, len(key)/4)
	for _, name := range names {
		other := squash(name)
		apart := len(key) - len(other)
		switch {
		case len(key) >= 4 && len(other) >= 4 && (strings.Contains(other, key) || strings.Contains(key, other)):
			found = append(found, candidate{name, min(1, max(apart, -apart))})
		case apart > most || -apart > most: // at least so many edits
		default:
			if d := guard.Edits(key, other); d <= most {
				found = append(found, candidate{name, d})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Compare(a.distance, b.distance) })
	near := make([]string, 0, maxNear)
	for _, c := range found[:min(len(found), maxNear)] {
		near = append(near, c.name)
	}
	return near
}

func squash(name string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "").Replace(strings.ToLower(name))
}
