package guard

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxNear is the most bytes that a name may have to be compared with others.
const MaxNear = 128

// Nearest returns the first of the names nearest to word, or "" if none is near. A name is near if
// its distance in [Edits] is at most a third of the word's bytes, or 1. Letter case is
// ignored. The word itself and the empty name are never returned.
func Nearest(word string, names []string) string {
	if len(word) > MaxNear {
		return ""
	}
	lower := strings.ToLower(word)
	best, most := "", max(1, len(word)/3)
	for _, name := range names {
		if name == "" || name == word || len(name) > MaxNear {
			continue
		}
		if d := Edits(lower, strings.ToLower(name)); d <= most {
			best, most = name, d-1
		}
	}
	return best
}

// Count returns a number with its noun: 1 round, 2 rounds, 2 properties.
func Count(n int, word string) string {
	if n != 1 {
		if stem, ok := strings.CutSuffix(word, "ty"); ok {
			word = stem + "tie"
		}
		word += "s"
	}
	return strconv.Itoa(n) + " " + word
}

// DidYouMean returns `; did you mean "x"?` for the [Nearest] name, or "" if none is near.
func DidYouMean(word string, names []string) string {
	if near := Nearest(word, names); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// Edits returns the number of bytes to add, drop, change or swap with their neighbour to get
// from a to b (optimal string alignment). If one is longer than [MaxNear], they are not
// compared, and the result is the length of the longer one, or 0 if they are equal. The time
// it takes is proportional to the product of their lengths.
func Edits(a, b string) int {
	switch {
	case a == b:
		return 0
	case len(a) > MaxNear || len(b) > MaxNear:
		return max(len(a), len(b))
	}
	// Three rows of the distances between the prefixes of a and b: the row of the current
	// prefix of a, and the two before it.
	var rows [3][MaxNear + 1]int
	before, last, next := &rows[0], &rows[1], &rows[2]
	for k := range len(b) + 1 {
		last[k] = k
	}
	for i := range len(a) {
		next[0] = i + 1
		for k := range len(b) {
			change := last[k]
			if a[i] != b[k] {
				change++
			}
			next[k+1] = min(change, last[k+1]+1, next[k]+1)
			if i > 0 && k > 0 && a[i] == b[k-1] && a[i-1] == b[k] {
				next[k+1] = min(next[k+1], before[k-1]+1)
			}
		}
		before, last, next = last, next, before
	}
	return last[len(b)]
}

// NearNames returns at most most names that are near to a wrong one, nearest first, equally
// near ones in their order. Letter case and separators are ignored, because models often get
// them wrong.
func NearNames(wrong string, names []string, most int) []string {
	key := squash(wrong)
	if key == "" || len(wrong) > MaxNear {
		return nil
	}
	far := max(1, len(key)/4)
	byDistance := make([][]string, far+1)
	for _, name := range names {
		other := squash(name)
		apart := max(len(key), len(other)) - min(len(key), len(other))
		distance := far + 1
		switch {
		case min(len(key), len(other)) >= 4 && (strings.Contains(other, key) || strings.Contains(key, other)):
			distance = min(1, apart)
		case apart <= far:
			distance = Edits(key, other)
		}
		if distance <= far {
			byDistance[distance] = append(byDistance[distance], name)
		}
	}
	near := slices.Concat(byDistance...)
	return near[:min(len(near), most)]
}

var separators = strings.NewReplacer("_", "", "-", "", ".", "", " ", "")

func squash(name string) string { return separators.Replace(strings.ToLower(name)) }

// Glob reports whether a pattern matches a name: * matches any bytes, also none; if one is set, ? matches one
// byte. It backtracks to the last star only, so its time is at most the product of the two lengths.
// [path.Match] would make an offer of 1,000 tools take half as long again.
func Glob(pattern, name string, one bool) bool {
	p, n := 0, 0
	star, resume := -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, resume = p, n
			p++
		case p < len(pattern) && (pattern[p] == name[n] || one && pattern[p] == '?'):
			p++
			n++
		case star >= 0:
			resume++
			p, n = star+1, resume
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
