package guard

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestEdits(t *testing.T) {
	long := strings.Repeat("x", MaxNear+1)
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"tools", "tools", 0},
		{"tool", "tools", 1},
		{"tols", "tools", 1},
		{"toals", "tools", 1},
		{"rnu", "run", 1},
		{"modle", "model", 1},
		{"kitten", "sitting", 3},
		{"ca", "abc", 3}, // a swapped byte is not changed again
		{"Run", "run", 1},
		{long, long, 0},
		{long, "x", MaxNear + 1},
		{long[1:], long[2:], 1},
		{strings.Repeat("y", MaxNear), long[1:], MaxNear},
	} {
		if got := Edits(c.a, c.b); got != c.want {
			t.Errorf("%q, %q: %d, want %d", c.a, c.b, got, c.want)
		}
		if got := Edits(c.b, c.a); got != c.want {
			t.Errorf("%q, %q: %d, want %d", c.b, c.a, got, c.want)
		}
	}
}

// plainEdits is the definition of [Edits].
func plainEdits(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	x, y := len(a)-1, len(b)-1
	change := plainEdits(a[:x], b[:y])
	if a[x] != b[y] {
		change++
	}
	least := min(change, plainEdits(a[:x], b)+1, plainEdits(a, b[:y])+1)
	if x > 0 && y > 0 && a[x] == b[y-1] && a[x-1] == b[y] {
		least = min(least, plainEdits(a[:x-1], b[:y-1])+1)
	}
	return least
}

func TestEdits_AsDefined(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		word := rapid.StringMatching(`[abc]{0,5}`)
		a, b := word.Draw(rt, "a"), word.Draw(rt, "b")
		if got, want := Edits(a, b), plainEdits(a, b); got != want {
			rt.Fatalf("%q, %q: %d, want %d", a, b, got, want)
		}
	})
}

// Nearest returns one of the names that is near, and the first of the nearest.
func TestNearest_Holds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		word := rapid.OneOf(rapid.StringMatching(`[abAB_]{0,9}`), rapid.String())
		wrong, names := word.Draw(rt, "word"), rapid.SliceOf(word).Draw(rt, "names")
		apart := func(name string) int { return Edits(strings.ToLower(wrong), strings.ToLower(name)) }
		most := max(1, len(wrong)/3)
		var near []string
		for _, name := range names {
			if name != "" && name != wrong && len(name) <= MaxNear && apart(name) <= most {
				near = append(near, name)
			}
		}
		want := ""
		if len(near) > 0 && len(wrong) <= MaxNear {
			want = slices.MinFunc(near, func(a, b string) int { return apart(a) - apart(b) })
		}
		if got := Nearest(wrong, names); got != want {
			rt.Fatalf("%q of %q: %q, want %q", wrong, names, got, want)
		}
	})
}

func TestNearest(t *testing.T) {
	names := []string{"run", "runs", "tools", "list", "model", "max-iterations"}
	for word, want := range map[string]string{
		"rnu": "run", "lst": "list", "modle": "model", "max-iteration": "max-iterations", "MODEL": "model", "run": "runs",
		"elephant": "", "": "", strings.Repeat("x", MaxNear+1): "",
	} {
		if got := Nearest(word, names); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	long := strings.Repeat("x", MaxNear)
	if got := Nearest(long, []string{long + "x", long[1:], ""}); got != long[1:] {
		t.Errorf("a long one: %q", got)
	}
	if got := Nearest("x", []string{""}); got != "" {
		t.Errorf("the empty name: %q", got)
	}
}

func TestNearNames(t *testing.T) {
	names := []string{"read_file", "write_file", "exec_shell", "readfiles", "agent-1"}
	for wrong, want := range map[string]string{
		"ReadFile": "read_file readfiles", "file": "read_file write_file", "exec.shel": "exec_shell", "AGENT 2": "agent-1",
		"": "", "_-": "", "nothing like it": "", strings.Repeat("a", MaxNear+1): "",
	} {
		if near := strings.Join(NearNames(wrong, names, 2), " "); near != want {
			t.Errorf("%q: %q, want %q", wrong, near, want)
		}
	}
}

func TestCount(t *testing.T) {
	for want, got := range map[string]string{
		"0 rounds": Count(0, "round"), "1 round": Count(1, "round"), "1 property": Count(1, "property"),
		"2 properties": Count(2, "property"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
