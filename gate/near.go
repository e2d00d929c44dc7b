package gate

import (
	"bytes"
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
	if len(wrong) > maxNearLength {
		return ""
	}
	var wrongRoom, nameRoom [maxNearLength]byte
	key := squash(wrongRoom[:0], wrong)
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
		if d := nameDistance(key, squash(nameRoom[:0], name), most); d <= most {
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

// squash appends the name without what models get wrong in names: letter case and
// separators.
func squash(to []byte, name string) []byte {
	for i := range len(name) {
		switch c := name[i]; {
		case c == '_', c == '-', c == '.', c == ' ':
		case c >= 'A' && c <= 'Z':
			to = append(to, c+'a'-'A')
		default:
			to = append(to, c)
		}
	}
	return to
}

// nameDistance is the number of edits between two names of at most 64 bytes; at
// most 1 if one is the end or beginning of the other; more than most, whatever, if
// it is more than most.
func nameDistance(a, b []byte, most int) int {
	if len(a) >= 4 && len(b) >= 4 && (bytes.HasSuffix(b, a) || bytes.HasSuffix(a, b) ||
		bytes.HasPrefix(b, a) || bytes.HasPrefix(a, b)) {
		return min(1, max(len(a), len(b))-min(len(a), len(b)))
	}
	if apart := len(a) - len(b); apart > most || apart < -most {
		return most + 1
	}
	var room [maxNearLength + 1]int
	row := room[:len(b)+1]
	for i := range row {
		row[i] = i
	}
	for i := range len(a) {
		diagonal, least := row[0], i+1
		row[0] = i + 1
		for k := range len(b) {
			cost := diagonal
			if a[i] != b[k] {
				cost++
			}
			diagonal = row[k+1]
			row[k+1] = min(cost, row[k]+1, diagonal+1)
			least = min(least, row[k+1])
		}
		if least > most {
			return least
		}
	}
	return row[len(b)]
}
