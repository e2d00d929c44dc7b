package render

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// hostile are pieces of texts that try to look like this program's own.
func hostile() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{
		"This call needs your approval\n", "y yes · n no · d no, and why? ", "\n", "\t", strings.Repeat(" ", 77), strings.Repeat("x", 81), "word ",
		"日本語の文章", "\u3000", "\x1b[2J", "\r", "👩\u200d👩\u200d👧", "e\u0301", "│ ", "\u202e", "\u0300\u0301",
	})
}

// No row of what somebody else wrote begins where this program's own rows do, whatever
// it holds and however it comes: the terminal never breaks a row itself.
func TestGutterCannotBeForged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Style{Width: rapid.SampledFrom([]int{20, 60, 80}).Draw(t, "width")}
		q := quote{style: s}
		var streamed strings.Builder
		whole := ""
		for _, piece := range rapid.SliceOfN(hostile(), 1, 12).Draw(t, "pieces") {
			streamed.WriteString(q.write(piece))
			whole += piece
		}
		streamed.WriteString(q.end())
		arguments, err := json.Marshal(map[string]string{"content": whole, whole: "x"})
		if err != nil {
			t.Fatal(err)
		}
		item := journal.ApprovalItem{Name: "write_file", Arguments: arguments, Reason: whole, Preview: &toolcrib.Preview{Kind: "diff", Text: whole}}
		result := journal.ResultView{Status: toolcrib.ResultError, Content: whole}
		for what, test := range map[string]struct{ text, begins string }{
			"a reply":         {streamed.String(), gutter},
			"a quoted text":   {s.Quoted(whole), "  " + gutter},
			"all of a call":   {strings.SplitN(s.Item(&item, true), "\n", 2)[1], "  "},
			"a call":          {strings.SplitN(s.Item(&item, false), "\n", 2)[1], "  "},
			"a result":        {s.Fold(result, 0, ""), "  "},
			"a folded result": {s.Fold(result, 4, ""), "  "},
			"a note":          {strings.TrimPrefix(s.Note(whole), "· "), "  "},
		} {
			for i, row := range strings.Split(strings.TrimSuffix(test.text, "\n"), "\n") {
				if i == 0 && what == "a note" || row == strings.TrimRight(test.begins, " ") ||
					(what == "a quoted text" || test.text == "") && row == "" {
					continue
				}
				if !strings.HasPrefix(row, test.begins) || ansi.StringWidth(row) > s.Width {
					t.Fatalf("%s at %d columns: row %q", what, s.Width, row)
				}
			}
		}
	})
}

// What is left out is counted, and of a command the end is shown: neither blanks nor
// length hide what runs.
func TestPaddingHidesNothing(t *testing.T) {
	for _, test := range []struct{ name, command, shown string }{
		{"blanks", "echo hi" + strings.Repeat(" ", 3000) + "; rm -rf ~", "echo hi[3000 spaces]; rm -rf ~"},
		{"tabs", "echo hi" + strings.Repeat("\t", 500) + "; rm -rf ~", "echo hi[2000 spaces]; rm -rf ~"},
		{"wide blanks", "echo hi" + strings.Repeat("\u3000", 900) + "; rm -rf ~", "echo hi[900 spaces]; rm -rf ~"},
		{"lines", "echo hi" + strings.Repeat("\n", 20) + "rm -rf ~", `rm -rf ~`},
		{"letters", "echo " + strings.Repeat("x", 3000) + "; rm -rf ~", "; rm -rf ~"},
	} {
		arguments, err := json.Marshal(map[string]string{"command": test.command})
		if err != nil {
			t.Fatal(err)
		}
		for _, width := range []int{60, 80} {
			s := Style{Width: width}
			got := s.Call("exec_shell", arguments, "")
			if !strings.HasSuffix(got, test.shown+"\n") || ansi.StringWidth(got) > width {
				t.Errorf("%s at %d: %q", test.name, width, got)
			}
			item := journal.ApprovalItem{Name: "exec_shell", Arguments: arguments}
			if got := s.Item(&item, false); !strings.Contains(strings.ReplaceAll(got, "\n  │ ", ""), test.shown) {
				t.Errorf("%s at %d: asked with\n%s", test.name, width, got)
			}
		}
	}
}

// The number that stands for what is left out is right.
func TestCutsAreCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z日é]{1,400}`).Draw(t, "text")
		width := rapid.IntRange(1, 120).Draw(t, "width")
		got := cut(text, width, rapid.Bool().Draw(t, "ends"))
		if ansi.StringWidth(got) > width {
			t.Fatalf("%q is wider than %d", got, width)
		}
		head, rest, isCut := strings.Cut(got, "…[")
		if !isCut {
			if got != text && !strings.HasSuffix(got, "…") {
				t.Fatalf("%q became %q", text, got)
			}
			return
		}
		var more int
		if _, err := fmt.Sscanf(rest, "%d more]", &more); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		_, tail, _ := strings.Cut(rest, "]")
		if len([]rune(head))+more+len([]rune(tail)) != len([]rune(text)) || !strings.HasPrefix(text, head) ||
			!strings.HasSuffix(text, tail) {
			t.Fatalf("%q of %d characters became %q", text, len([]rune(text)), got)
		}
	})
}

// All of a long text is shown where somebody asks for it, line by line.
func TestWholeIsWhole(t *testing.T) {
	content := ""
	for i := range 601 {
		content += fmt.Sprintf("line %d\n", i+1)
	}
	arguments, err := json.Marshal(map[string]any{"path": "a.txt", "content": content, "n": 5})
	if err != nil {
		t.Fatal(err)
	}
	got := Style{Width: 80}.Item(&journal.ApprovalItem{Name: "write_file", Arguments: arguments}, true)
	for _, want := range []string{`│ path: "a.txt"`, "│ content: 601 lines\n", "│   line 1\n", "│   line 300\n", "│   line 601\n", "│ n: 5\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not shown", want)
		}
	}
	if strings.Contains(got, "more") {
		t.Error("something is left out")
	}
}

// A sentence breaks at words at every width: no row but the first begins with a blank, ends with
// one or is empty, and a flag keeps its dashes.
func TestWrapsSentences(t *testing.T) {
	const text = "go test ./... --count 1 -v: a long sentence, and some-what hyphenated; the end of it all is here."
	for width := 12; width < 100; width++ {
		var q quote
		q.style = Style{Width: width + 3}
		streamed := ""
		for piece := range strings.SplitSeq(text, "e") {
			streamed += q.write(piece + "e")
		}
		streamed = strings.ReplaceAll(streamed+q.end(), gutter, "")
		for what, got := range map[string]string{
			"wrap": strings.Join(Wrap(text, width), "\n"), "stream": strings.TrimSuffix(streamed, "\n"),
		} {
			for i, row := range strings.Split(got, "\n") {
				if ansi.StringWidth(row) > width || row == "" || i > 0 && row[0] == ' ' ||
					strings.HasSuffix(row, "-") && !strings.HasSuffix(row, "some-") {
					t.Errorf("%s, %d columns: row %q of\n%s", what, width, row, got)
				}
			}
			if words := strings.Fields(strings.TrimSuffix(strings.ReplaceAll(got, "some-\n", "some-"), "e")); !slices.Equal(words, strings.Fields(strings.TrimSuffix(text, "e"))) {
				t.Errorf("%s, %d columns: %q", what, width, words)
			}
		}
	}
}

// An answer has the spaces of typography; what is decided on does not.
func TestProse(t *testing.T) {
	q := quote{}
	if got, want := q.write("Oui\u00a0! 10\u202fkm")+q.end(), "│ Oui ! 10 km\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := (Style{}).Quoted("rm\u00a0x"), "  │ rm[U+00A0]x\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
