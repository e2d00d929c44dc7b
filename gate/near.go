package gate

import (
	"slices"
	"strings"
)

// Bounds of the search for names that were meant.
const (
	maxNear       = 3
	maxNearLength = 64 // bytes of a name, as of a tool's
)

// nearNames returns at most three offered names that a wrong one may have meant,
// the closest first; "" = none. Only what was offered is ever named.
func nearNames(wrong string, offered map[string]bool) string {
	key := squash(wrong)
	if key == "" || len(wrong) > maxNearLength {
		return ""
	}
	type candidate struct {
		name     string
		distance int
	}
	var found []candidate
	for name, on := range offered {
		if !on {
			continue
		}
		if d := nameDistance(key, squash(name)); d <= max(1, len(key)/4) {
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

// squash takes out what models get wrong in names: letter case and separators.
func squash(name string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "", " ", "").Replace(strings.ToLower(name))
}

// nameDistance is the number of edits between two names; 1 if one is the end or
// beginning of the other; large if the lengths are too far apart.
func nameDistance(a, b string) int {
	if len(a) >= 4 && len(b) >= 4 && (strings.HasSuffix(b, a) || strings.HasSuffix(a, b) ||
		strings.HasPrefix(b, a) || strings.HasPrefix(a, b)) {
		return min(1, max(len(a), len(b))-min(len(a), len(b)))
	}
	if apart := len(a) - len(b); apart > 4 || apart < -4 {
		return len(a) + len(b)
	}
	row := make([]int, len(b)+1)
	for i := range row {
		row[i] = i
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for k := range len(b) {
			cost := diagonal
			if a[i] != b[k] {
				cost++
			}
			diagonal = row[k+1]
			row[k+1] = min(cost, row[k]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
