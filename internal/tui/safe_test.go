package tui

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

var colours = regexp.MustCompile(`\x1b\[(?:[0-9;]*)m`)

// harmful returns what in a text would command a terminal or deceive its reader; ""
// = nothing.
func harmful(text string) string {
	for _, sequence := range colours.FindAllString(text, -1) {
		for _, param := range strings.Split(strings.Trim(sequence, "\x1b[m"), ";") {
			if param == "8" && !strings.Contains(sequence, "38;") && !strings.Contains(sequence, "48;") {
				return "it conceals: " + sequence
			}
		}
	}
	for _, r := range colours.ReplaceAllString(text, "") {
		switch {
		case r == '\n':
		case unicode.IsControl(r), unicode.In(r, unicode.Cf) && r != 0x200d && r != 0x200c, r >= 0xE0000 && r <= 0xE0FFF:
			return string(r)
		}
	}
	return ""
}

// hostile are texts that attack a terminal or its reader.
func hostile() []string {
	return []string{
		"\x1b[2J\x1b[H", "\x1b]0;title\x07", "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\", "\x1b]52;c;ZXZpbA==\x07", "\x1bP+q\x1b\\", "\x9b2J", "\x1b[8mhidden\x1b[0m",
		"a\rb", "a\bb", "\x07", "\u202eevil\u202c", "\u2066x\u2069", "\u200b\u200e", "\U000E0041\U000E0042", "\x00", "\xff\xfe", "\x7f", "\u0085", "\u2028",
		"&#27;[2J", "&#x1b;[2J", "&#x202e;evil", "&#155;2J", "&NewLine;&Tab;&lrm;&rlm;&ZeroWidthSpace;", "&#0;", "&amp;#27;[31m", "`&#27;[2J`",
		"[link](javascript:&#27;[2J)", "[x](http://e/\x1b[2J)", "![i](\x1b]0;t\x07)", "<b>&#27;[2J</b>", "<\x1b[2J>", "    code &#27;\x1b[2J", "```\n\x1b[2J&#27;[2J\n```",
		"| \x1b[2J | &#27; |\n|---|---|\n| \x07 | &#8238; |", "- [ ] \x1b[2J", "[^1]: \x1b[2J", "# \x1b[2J &#27;", "> \u202e &#x202e;",
		strings.Repeat("> ", 3000) + "x", strings.Repeat("- ", 3000), strings.Repeat("[", 5000), strings.Repeat("*a_", 3000), strings.Repeat("`", 3001), strings.Repeat("<", 5000),
		strings.Repeat("1. ", 3000), strings.Repeat("[a](", 350), strings.Repeat("a|", 5000) + "\n" + strings.Repeat("-|", 5000), strings.Repeat("http://", 2000), strings.Repeat("\\", 9000),
		strings.Repeat("宽", 300), strings.Repeat("👩‍👩‍👧‍👦", 100), "e" + strings.Repeat("\u0301", 2000),
	}
}

// TestHostileText puts text that attacks the terminal everywhere that
// text can come from.
func TestHostileText(t *testing.T) {
	for name, look := range looks() {
		for _, text := range hostile() {
			if len(text) > 1000 && name != "colour" {
				continue // what is long is dear to render, and no other in other colours
			}
			d := newFixture(t, 60, look)
			d.work()
			quoted, err := json.Marshal(map[string]string{"path": text})
			if err != nil {
				t.Fatal(err)
			}
			d.frames(thinking(text), token(text), token("\n\n"), thinking(text), message(text), call("c", text, string(quoted)), call("b", "x", `"no JSON: \u001b[2J"`),
				frame(string(journal.KindToolStarted), journal.CallStartedView{ID: "c"}),
				frame(journal.FrameToolProgress, journal.ProgressView{ID: "c", Message: text}),
			)
			live := d.View().Content
			d.frames(result("c", text, toolcrib.ResultOK, text), result("b", "x", toolcrib.ResultError, text), result("?", text, toolcrib.ResultStatus(text), text),
				frame(string(journal.KindNotice), toolcrib.Notice{Code: text, Message: text}),
				frame(string(journal.KindConfirmationResolved), journal.ResolvedView{Decision: text, By: text}),
				frame(string(journal.KindError), journal.ErrorView{Message: text, StopReason: toolcrib.StopReason(text)}),
				token(text))
			live += d.View().Content
			d.screen.Note(text)
			d.screen.Warn(text)
			d.screen.Text(text)
			d.screen.Said(text)
			d.screen.Status([]string{text, text})
			_, _ = d.screen.Write([]byte(text))
			for n := range 12 {
				d.unfold(n)
			}
			d.queued = []string{text}
			d.history.lines = []string{text}
			d.recall = 1
			d.keys("up")
			live += d.View().Content
			ask := approval(journal.ApprovalItem{ID: text, Name: text, Arguments: quoted, Reason: text, Preview: &toolcrib.Preview{Kind: "diff", Text: text}}, item("b"))
			d.ask(Question{Ask: ask}, make(chan Answer, 1))
			d.keys("s", "o", "e")
			live += d.View().Content
			d.keys("esc")
			ask.Kind, ask.Question = journal.ApprovalInput, text
			d.ask(Question{Ask: ask, Choices: text, Problem: text}, make(chan Answer, 1))
			d.Update(tea.PasteMsg{Content: text})
			live += d.View().Content
			if bad := harmful(strings.Join(d.prints, "\n")); bad != "" {
				t.Errorf("%.60q is printed with %q", text, bad)
			}
			if bad := harmful(live); bad != "" {
				t.Errorf("%.60q is drawn with %q", text, bad)
			}
		}
	}
}

// rendered are the rows of a text that comes in pieces of so many bytes; 0 = whole.
func rendered(t testing.TB, text string, width int, color bool, piece func(left int) int) []string {
	m := newModel(Options{Talk: &talker{}, Color: color, History: &History{}})
	m.printing = true
	m.Update(tea.WindowSizeMsg{Width: width, Height: 24})
	for rest := text; rest != ""; {
		n := piece(len(rest))
		m.frame(token(rest[:n]))
		held := m.md.Held()
		if line := held[strings.LastIndexByte(held, '\n')+1:]; len(line) > 4<<10+len(rest[:n]) {
			t.Fatalf("%d bytes wait", len(line))
		}
		rest = rest[n:]
	}
	m.endReply()
	return m.prints
}

// FuzzMarkdown: whatever a model writes, in whatever pieces, is rendered without a
// panic and commands no terminal.
func FuzzMarkdown(f *testing.F) {
	for _, text := range append(hostile(), answerText) {
		f.Add(text, uint8(40), uint8(7))
	}
	f.Fuzz(func(t *testing.T, text string, width, step uint8) {
		for _, l := range rendered(t, text, int(width), true, func(left int) int { return min(int(step)+1, left) }) {
			if bad := harmful(l); bad != "" {
				t.Fatalf("%q renders to %q", text, l)
			}
		}
	})
}

// TestPieces: the pieces in which a text comes change nothing, and no word
// of it is lost.
func TestPieces(t *testing.T) {
	words := []string{"a", "word", "\n", "\n\n", "# h\n", "- item\n", "  more\n", "1. one\n", "| a |\n|---|\n", "> q\n", "    code\n", " ", "*b*", "**c", "[l](m)", "\r\n", "~~~\n"}
	rapid.Check(t, func(rt *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 0, 200).Draw(rt, "words"), "")
		want := rendered(t, text, 60, false, func(left int) int { return left })
		got := rendered(t, text, 60, false, func(left int) int { return rapid.IntRange(1, left).Draw(rt, "cut") })
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Fatalf("%q in one piece and in many:\n%s", text, diff)
		}
		all := strings.Join(got, "\n")
		for _, word := range regexp.MustCompile(`[a-z0-9]+`).FindAllString(text, -1) {
			if !strings.Contains(all, word) {
				rt.Fatalf("%q is lost of %q:\n%s", word, text, all)
			}
		}
	})
}

// TestMarkdown shows what is made of lines.
func TestMarkdown(t *testing.T) {
	for name, c := range map[string]struct{ text, plain, colour string }{
		"marks":        {"a **b** *c* ~~d~~ `e` __f__ ***g***", "a **b** *c* ~~d~~ `e` __f__ ***g***", "a [1mb[0m [3mc[0m [9md[0m [36me[0m [1mf[0m [1;3mg[0m"},
		"within":       {"**a `b` *c***", "**a `b` *c***", "[1ma [0m[1;36mb[0m[1m [0m[1;3mc[0m"},
		"nested":       {"*a **b** c* *d **e***", "*a **b** c* *d **e***", "[3ma [0m[3;1mb[0m[3m c[0m [3md [0m[3;1me[0m"},
		"code first":   {"**`**k`** *`*a`* **x `**`", "**`**k`** *`*a`* **x `**`", "[1;36m**k[0m [3;36m*a[0m **x [36m**[0m"},
		"spaces":       {"a\u00a0b\u202f?&nbsp;c `d\u00a0e`", "a b ? c `d e`", "a b ? c [36md e[0m"},
		"no reference": {"[a](http://x?b=1&copy=2&amp;c)", "a http://x?b=1&copy=2&c", "[1ma[0m[4;34m http://x?b=1&copy=2&c[0m"},
		"no marks":     {"snake_case_name 2 * 3 * 4 __init__.py **", "snake_case_name 2 * 3 * 4 __init__.py **", "snake_case_name 2 * 3 * 4 [1minit[0m.py **"},
		"links":        {"[a](http://x) ![b](c.png \"t\") <https://y>", "a http://x Image: b c.png https://y", "[1ma[0m[4;34m http://x[0m [2mImage: [0m[2mb[0m[4;34m c.png[0m [4;34mhttps://y[0m"},
		"escapes":      {"\\*a\\* &amp; &lt;b&gt; &c", "*a* & <b> &c", "*a* & <b> &c"},
		"lists":        {"- a\n  1. b\n     more", "• a\n  1. b\n     more", "• a\n  1. b\n     more"},
		"quotes":       {"> > a", "│ │ a", "[2m│[0m [2m│[0m a"},
		"code":         {"```go\nif x { // y\n\n```\nz", "  if x { // y\n\nz", "  [34mif[0m x { [90m// y[0m\n\nz"},
		"longer fence": {"````\n```\n````\nx", "  ```\nx", "  [32m``[0m`\nx"},
		"no table":     {"| a\n| b", "| a\n| b", "| a\n| b"},
		"table":        {"| a | b |\n|:--|--:|\n| c\\|d | `e` |", " a   │ b\n─────┼─────\n c|d │ `e`", " a   │ b\n─────┼───\n c|d │ [36me[0m"},
		"heading":      {"a\n### b ###", "a\n\n### b", "a\n\n[1;36mb[0m"},
	} {
		for color, want := range map[bool]string{false: c.plain, true: c.colour} {
			rows := rendered(t, c.text, 60, color, func(left int) int { return left })
			for i, row := range rows {
				row = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(row, "\x1b[2m│\x1b[0m"), "│"), " ")
				rows[i] = strings.ReplaceAll(row, "\x1b", "")
			}
			if diff := cmp.Diff(want, strings.Join(rows, "\n")); diff != "" {
				t.Errorf("%s, colour %v: (-want +got):\n%s", name, color, diff)
			}
		}
	}
}

// TestLongLines: a line without an end is shown in parts.
func TestLongLines(t *testing.T) {
	if rows := rendered(t, strings.Repeat("word ", 40_000), 80, false, func(left int) int { return min(left, 1000) }); len(rows) < 2000 {
		t.Errorf("%d rows", len(rows))
	}
}
