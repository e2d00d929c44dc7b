package tui

import (
	"os"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
)

// What is pasted is sent as it was copied, shown safely, and the same when it is taken from the history.
func TestPaste_IsSentAsCopied(t *testing.T) {
	for _, text := range []string{
		"build:\n\tgo build ./...", "a\tb\n1\t2", "10\u00a0km", "שלום\u200f!", "Donau\u00addampf", "می\u200cخواهم",
		"🏴\U000E0067\U000E0062\U000E0065\U000E006E\U000E0067\U000E007F", "\ufeffBOM", "a\u202eb", "\U00040000\U00040001\t", "bad \uFFFD", "\x1b[31m\x07",
	} {
		d := newFixture(t, 80, false)
		d.keys("ab", "ctrl+c") // the input was used before
		d.Update(tea.PasteMsg{Content: text})
		if bad := harmful(d.View().Content); bad != "" {
			t.Errorf("%q is drawn with %q: %q", text, bad, d.View().Content)
		}
		d.keys("x", "enter")
		if got := d.history.Lines(); len(got) != 1 || got[0] != text+"x" {
			t.Errorf("%q is sent as %q", text+"x", got)
		}
		d.working = false
		d.keys("up")
		if got := d.value(); got != text+"x" {
			t.Errorf("%q is taken from the history as %q", text+"x", got)
		}
	}
}

func TestPaste_Shown(t *testing.T) {
	d := newFixture(t, 80, false)
	d.Update(tea.PasteMsg{Content: "a\tb\u00a0c\u200fd"})
	if got := d.View().Content; !strings.Contains(got, "❯ a⇥b␣c◌d") {
		t.Errorf("%q", got)
	}
}

// The bytes of a character may come in two pieces.
func TestKeyboard_WholeCharacters(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	k := &keyboard{File: in}
	buf := make([]byte, 64)
	for _, piece := range []struct{ write, read string }{
		{"ab\xe6", "ab"}, {"\x97\xa5c", "日c"}, {"\x1b[A\xf0\x9f", "\x1b[A"}, {"\x98\x80", "😀"}, {"x\xff", "x\xff"}, {"\xc3\n", "\xc3\n"},
	} {
		if _, err := out.WriteString(piece.write); err != nil {
			t.Fatal(err)
		}
		n, err := k.Read(buf)
		if got := string(buf[:n]); got != piece.read || err != nil {
			t.Errorf("%q: %q %v, want %q", piece.write, got, err, piece.read)
		}
	}
	if _, err := out.WriteString("\xe6"); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if n, err := k.Read(buf); string(buf[:n]) != "\xe6" || err == nil {
		t.Errorf("at the end: %q %v", buf[:n], err)
	}
}
