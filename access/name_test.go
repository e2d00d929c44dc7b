package access_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

// refused checks the code of an error.
func refused(t *testing.T, what string, err error, code toolcrib.Code) {
	t.Helper()
	var e *toolcrib.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%s: got %v, want a refusal with %s", what, err, code)
	}
}

func TestC13_CheckName(t *testing.T) {
	for _, name := range []string{"anna", "Anna", "a", "a1.b_c-d@example.com", "1", "a+b", strings.Repeat("a", 64)} {
		if err := access.CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestC13_CheckName_Refused(t *testing.T) {
	for what, name := range map[string]string{
		"empty": "", "dots": "a..b", "slash": "a/b", "backslash": `a\b`, "NUL": "a\x00b", "newline": "a\n", "DEL": "a\x7f", "C1": "a\u0085",
		"space": "a b", "no-break space": "a\u00a0b", "leading dot": ".a", "trailing dot": "a.", "dash": "-a", "option": "--approve all",
		"colon": "local:root", "star": "*", "reserved": "Anonymous", "local": "LOCAL", "system": "system", "wide": "ａｎｎａ", "umlaut": "Jürgen", "Cyrillic": "анна", "Han": "山田",
		"65 letters": strings.Repeat("a", 65), "long": strings.Repeat("x", 1<<20), "bytes": strings.Repeat("山", 43),
		"bad UTF-8": "a\xff", "replacement": "a\ufffd", "zero width space": "a\u200bb", "zero width joiner": "a\u200db", "soft hyphen": "a\u00adb",
		"right-to-left override": "a\u202eb", "tag": "a\U000e0061", "variation selector": "a\ufe0f", "BOM": "\ufeffa", "hangul filler": "a\u3164",
		"Cyrillic in Latin": "pаypal", "Greek in Latin": "αlpha", "Cyrillic and Greek": "аα", "Latin and Hebrew": "aש",
		"mark on its own": "\u0301a", "mark on a digit": "1\u0301", "i and a dot": "i\u0307x", "stacked marks": "a\u0301\u0301\u0301\u0301", "Lisu": "ꓮꓐ", "Cherokee": "ᎪᏴ",
		"mathematical": "𝐚𝐧𝐧𝐚", "superscript": "a²", "ligature": "ﬁn", "roman numeral": "ⅳ", "script g": "ɡo", "modifier": "aʼb", "click": "aǃ", "emoji": "a😀",
		"Arabic digits": "a١", "circled": "ⓐ", "half-width katakana sound": "ﾞ", "percent": "a%2fb", "quote": "a'b", "pipe": "a|b",
	} {
		err := access.CheckName(name)
		refused(t, what, err, toolcrib.CodeBadRequest)
		if err != nil && len(err.Error()) > 2000 {
			t.Errorf("%s: the error has %d bytes", what, len(err.Error()))
		}
		if err != nil && strings.ContainsAny(err.Error(), "\x00\n\u202e\u200b\x7f\u0085") {
			t.Errorf("%s: the error shows what cannot be seen: %q", what, err)
		}
	}
}

func TestNames_LookAlike(t *testing.T) {
	for _, pair := range [][2]string{
		{"anna", "Anna"},
		{"Ivan", "lvan"},
		{"al", "a1"},
		{"bob", "b0b"},
		{"modern", "modem"},
		{"vvalter", "walter"},
	} {
		refused(t, pair[0]+" and "+pair[1], access.TakenBy(pair[0], pair[1]), toolcrib.CodeConflict)
		if err := access.TakenBy(pair[1], pair[0]); !errors.Is(err, toolcrib.ErrConflict) {
			t.Errorf("%s and %s, the other way round: %v", pair[1], pair[0], err)
		}
	}
	for _, pair := range [][2]string{
		{"anna", "hanna"}, {"kai", "kal"}, {"a.b", "a-b"}, {"anne", "anna"}, {"mia", "mla"},
	} {
		if err := access.TakenBy(pair[0], pair[1]); err != nil {
			t.Errorf("%q: %v", pair, err)
		}
	}
}

func TestNames_Properties(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-zA-Z0-9._@+-]{1,70}`), rapid.StringOf(rapid.RuneFrom([]rune("aAbоаеİıſΣςｱａ.-1\u0301\u200d山ー")))).Draw(r, "text")
		err := access.CheckName(text)
		if err != nil {
			var e *toolcrib.Error
			if !errors.As(err, &e) || e.Code != toolcrib.CodeBadRequest {
				r.Fatalf("%q: %v", text, err)
			}
			return
		}
		if len(text) > access.MaxName || strings.ContainsAny(text, "/\\\x00:*") || strings.Contains(text, "..") {
			r.Fatalf("%q is a name", text)
		}
		for _, other := range []string{text, strings.ToUpper(text), strings.ToLower(text)} {
			if access.CheckName(other) == nil && access.TakenBy(other, text) == nil {
				r.Fatalf("%q may stand beside %q", other, text)
			}
		}
	})
}
