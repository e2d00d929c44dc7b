package gate

import (
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/guard"
)

// Bounds of the search for names that were meant.
const (
	maxNear       = 3
	maxNearLength = 64 // bytes of a name, as of a tool's
)

// nearNames returns at most three offered names that a wrong one may have meant,
// the closest first; "" = none. Only what was offered is ever named.
func nearNames(wrong string, offered map[string]bool) string {
	if len(wrong) > maxNearLength {
		return ""
	}
	key := squash(wrong)
	if len(key) == 0 {
		return ""
	}
	type candidate struct {
		name     string
		distance int
	}
	var found []candidate
	for name, on := range offered {
		if !on || len(name) > maxNearLength {
			continue
		}
		most := max(1, len(key)/4)
		if d := nameDistance(key, squash(name), most); d <= most {
			found = append(found, candidate{name, d})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		if a.distance != b.distance {
			return a.distance - b.distance
		}
		return strings.Compare(a.name, b.name)
	})
	names := make([]string, 0, maxNear)
	for _, c := range found[:min(len(found), maxNear)] {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}

// squash is the name without what models get wrong in names: letter case and separators.
func squash(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("_-. ", r) {
			return -1
		}
		return r
	}, strings.ToLower(name))
}

// nameDistance is the number of edits between two names; at most 1 if one is the end or
// beginning of the other; more than most, whatever, if it is more than most.
func nameDistance(a, b string, most int) int {
	apart := max(len(a), len(b)) - min(len(a), len(b))
	switch {
	case min(len(a), len(b)) >= 4 &&
		(strings.HasSuffix(b, a) || strings.HasSuffix(a, b) || strings.HasPrefix(b, a) || strings.HasPrefix(a, b)):
		return min(1, apart)
	case apart > most:
		return apart
	}
	return guard.Edits(a, b)
}
