package tui

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"unicode"

	tea "charm.land/bubbletea/v2"
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

// TestIssue5_8_HostileText puts text that attacks the terminal everywhere that
// text can come from.
func TestIssue5_8_HostileText(t *testing.T) {
	for name, look := range looks() {
		for _, text := range hostile() {
			if len(text) > 1000 && name != "colour" {
				continue // what is long is dear to render, and no other in other colours
			}
			d := newDesk(t, 60, look)
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
			d.screen.Answer(text)
			d.screen.Recall(quoted, journal.ResultView{Name: text, Status: toolcrib.ResultOK, Content: text})
			d.screen.Status([]string{text, text})
			_, _ = d.screen.Write([]byte(text))
			d.drain()
			for n := range 12 {
				d.unfold(n)
			}
			d.queued.clear()
			d.queued.add(text)
			d.history.lines = []string{text}
			d.recall = 1
			d.keys("up")
			live += d.View().Content
			ask := approval(journal.ApprovalItem{ID: text, Name: text, Arguments: quoted, Reason: text, Preview: &toolcrib.Preview{Kind: "diff", Text: text}}, item("b"))
			d.ask(questionItem{Question{Ask: ask}, make(chan Answer, 1)})
			d.keys("s", "o", "e")
			live += d.View().Content
			d.keys("esc")
			ask.Kind, ask.Question = journal.ApprovalInput, text
			d.ask(questionItem{Question{Ask: ask, Choices: text, Problem: text}, make(chan Answer, 1)})
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

// FuzzMarkdown: whatever a model writes, in whatever pieces, is rendered without a
// panic and commands no terminal.
func FuzzMarkdown(f *testing.F) {
	for _, text := range append(hostile(), answerText) {
		f.Add(text, uint8(40), uint8(7))
	}
	f.Fuzz(func(t *testing.T, text string, width, step uint8) {
		m := markdown{look: Look{Color: true, Unicode: true}}
		var b blocks
		var done []block
		for rest := text; rest != ""; {
			n := min(int(step)+1, len(rest))
			done = append(done, b.write(rest[:n])...)
			rest = rest[n:]
		}
		for _, one := range append(done, b.flush()...) {
			for _, l := range m.render(one.text, int(width)) {
				if bad := harmful(l); bad != "" {
					t.Fatalf("%q renders to %q", one.text, l)
				}
			}
		}
	})
}

// TestIssue5_8_Blocks: the pieces in which a text comes change nothing, and no line
// of it is lost.
func TestIssue5_8_Blocks(t *testing.T) {
	words := []string{"a", "word", "\n", "\n\n", "```\n", "```go\n", "~~~\n", "# h\n", "- item\n", "  more\n", "1. one\n", "| a |\n", "> q\n", "    code\n", "\t", " ", "  ```\n", "*b*", "\r\n"}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 0, 200).Draw(t, "words"), "")
		var whole, cut blocks
		want := append(whole.write(text), whole.flush()...)
		var got []block
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			got = append(got, cut.write(rest[:n])...)
			rest = rest[n:]
		}
		got = append(got, cut.flush()...)
		if len(got) != len(want) {
			t.Fatalf("%q in one piece: %+v; in many: %+v", text, want, got)
		}
		all := ""
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("block %d: %+v and %+v", i, want[i], got[i])
			}
			if n := strings.Count(got[i].text, "\n"); n > maxBlockLines+2 {
				t.Fatalf("a block has %d lines", n)
			}
			all += got[i].text + "\n"
		}
		for _, l := range strings.Fields(text) {
			if !strings.Contains(all, l) {
				t.Fatalf("%q is lost of %q: %+v", l, text, got)
			}
		}
	})
}

// TestIssue5_8_BlockKinds shows which blocks stand by themselves.
func TestIssue5_8_BlockKinds(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
		tail string
	}{
		"paragraphs":         {"one\ntwo\n\nthree\n", []string{"one\ntwo"}, "three\n"},
		"heading":            {"# h\ntext", []string{"# h"}, "text"},
		"fence with a gap":   {"a\n```go\nx\n\ny\n```\nz", []string{"a", "```go\nx\n\ny\n```"}, "z"},
		"longer fence":       {"````\n```\n````\n", []string{"````\n```\n````"}, ""},
		"list with gaps":     {"1. a\n\n2. b\n\n   more\n\nend\n", []string{"1. a\n\n2. b\n\n   more"}, "end\n"},
		"list with a fence":  {"- a\n  ```\n  x\n\n  y\n  ```\n- b\n\nend", []string{}, "- a\n  ```\n  x\n\n  y\n  ```\n- b\n\nend"},
		"not in code":        {"```\n# no heading\n", nil, "```\n# no heading\n"},
		"inline is no fence": {"``` a ` b ```\n\nx", []string{"``` a ` b ```"}, "x"},
	} {
		t.Run(name, func(t *testing.T) {
			var b blocks
			var got []string
			for _, one := range b.write(c.text) {
				got = append(got, one.text)
			}
			if strings.Join(got, "|") != strings.Join(c.want, "|") || b.tail() != c.tail {
				t.Errorf("blocks %q, rest %q; want %q and %q", got, b.tail(), c.want, c.tail)
			}
		})
	}
}

// TestIssue5_8_LongBlocks: code without an end is shown in parts, each of which is
// code.
func TestIssue5_8_LongBlocks(t *testing.T) {
	var b blocks
	got := b.write("```go\n" + strings.Repeat("x := 1\n", 500))
	if len(got) < 7 {
		t.Fatalf("500 lines of code are %d blocks", len(got))
	}
	for i, one := range got {
		if !strings.HasPrefix(one.text, "```go\n") || !strings.HasSuffix(one.text, "\n```") || one.joined != (i > 0) {
			t.Fatalf("block %d: %v %q", i, one.joined, one.text)
		}
	}
	if got := b.write(strings.Repeat("word ", 40_000)); len(got) == 0 || len(b.tail()) > 3*maxBlockBytes {
		t.Errorf("a line without an end: %d blocks, %d bytes wait", len(got), len(b.tail()))
	}
}

func TestBroken_AtItsWidth(t *testing.T) {
	for _, line := range []string{"one two three", "one, two"} {
		for width := 3; width < 14; width++ {
			for i, row := range broken(line, width) {
				if i > 0 && strings.HasPrefix(row, " ") || len(row) > width {
					t.Errorf("%q at %d: row %q", line, width, row)
				}
			}
		}
	}
}
