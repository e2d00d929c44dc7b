package access_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

// refused checks the code of a refusal.
func refused(t *testing.T, what string, err error, code toolcrib.Code) {
	t.Helper()
	var e *toolcrib.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%s: got %v, want a refusal with %s", what, err, code)
	}
}

func TestC13_CheckName(t *testing.T) {
	for name, want := range map[string]string{
		"anna": "anna", "Anna": "Anna", "a": "a", "a1.b_c-d@example.com": "", "1": "1", "a+b": "a+b",
		"ａｎｎａ": "anna", "Ju\u0308rgen": "Jürgen", "Łukasz": "Łukasz", "Nguyễn": "Nguyễn", "Straße": "Straße",
		"анна": "анна", "Ёлка": "Ёлка", "Ελένη": "Ελένη", "שרה": "שרה", "محمد": "محمد", "राम": "राम", "สมชาย": "สมชาย",
		"山田": "山田", "たろう": "たろう", "ヤマダー": "ヤマダー", "김철수": "김철수", "abc山田": "abc山田",
		strings.Repeat("a", 64): strings.Repeat("a", 64),
	} {
		if want == "" {
			want = name
		}
		got, err := access.CheckName(name)
		if err != nil || got != want {
			t.Errorf("%+q is %+q, %v; want %+q", name, got, err, want)
		}
		if again, err := access.CheckName(got); err != nil || again != got {
			t.Errorf("%+q is no normal form: %+q, %v", got, again, err)
		}
	}
}

func TestC13_CheckName_Refused(t *testing.T) {
	for what, name := range map[string]string{
		"empty": "", "dots": "a..b", "slash": "a/b", "backslash": `a\b`, "NUL": "a\x00b", "newline": "a\n", "DEL": "a\x7f", "C1": "a\u0085",
		"space": "a b", "no-break space": "a\u00a0b", "leading dot": ".a", "trailing dot": "a.", "dash": "-a", "option": "--approve all",
		"colon": "local:root", "star": "*", "reserved": "Anonymous", "local": "LOCAL", "system": "system", "wide reserved": "ａnonymous",
		"65 letters": strings.Repeat("a", 65), "65 wide letters": strings.Repeat("ａ", 65), "long": strings.Repeat("x", 1<<20), "bytes": strings.Repeat("山", 43),
		"bad UTF-8": "a\xff", "replacement": "a\ufffd", "zero width space": "a\u200bb", "zero width joiner": "a\u200db", "soft hyphen": "a\u00adb",
		"right-to-left override": "a\u202eb", "tag": "a\U000e0061", "variation selector": "a\ufe0f", "BOM": "\ufeffa", "hangul filler": "a\u3164",
		"Cyrillic in Latin": "pаypal", "Greek in Latin": "αlpha", "Cyrillic and Greek": "аα", "Latin and Hebrew": "aש",
		"mark on its own": "\u0301a", "mark on a digit": "1\u0301", "i and a dot": "i\u0307x", "stacked marks": "a\u0301\u0301\u0301\u0301", "Lisu": "ꓮꓐ", "Cherokee": "ᎪᏴ",
		"mathematical": "𝐚𝐧𝐧𝐚", "superscript": "a²", "ligature": "ﬁn", "roman numeral": "ⅳ", "script g": "ɡo", "modifier": "aʼb", "click": "aǃ", "emoji": "a😀",
		"Arabic digits": "a١", "circled": "ⓐ", "half-width katakana sound": "ﾞ", "percent": "a%2fb", "quote": "a'b", "pipe": "a|b",
	} {
		got, err := access.CheckName(name)
		refused(t, what+" as "+got, err, toolcrib.CodeBadRequest)
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
		{"STRASSE", "Straße"},
		{"cope", "соре"},
		{"Ivan", "lvan"},
		{"al", "a1"},
		{"bob", "b0b"},
		{"modern", "modem"},
		{"vvalter", "walter"},
		{"BOPH", "ΒΟΡΗ"},
		{"BOT", "ВОТ"},
		{"bot", "вот"},
		{"oo", "оо"},
		{"oo", "օօ"},
		{"oo", "οο"},
		{"toto", "τοτο"},
		{"hhh", "һһһ"},
		{"ロロ", "口口"},
		{"カ", "力"},
		{"へ", "ヘ"},
		{"ΣΟΦΙΑ", "σοφια"},
		{"σοφιας", "σοφιασ"},
		{"mișu", "mişu"},
		{"ăna", "ǎna"},
		{"ıa", "ia"},
		{"DİLEK", "dİlek"},
		{"kik", "ĸiĸ"},
		{"aero", "æro"},
	} {
		a, errA := access.CheckName(pair[0])
		b, errB := access.CheckName(pair[1])
		if errA != nil || errB != nil {
			t.Errorf("%+q: %v, %v", pair, errA, errB)
			continue
		}
		refused(t, a+" and "+b, access.TakenBy(a, b), toolcrib.CodeConflict)
		if err := access.TakenBy(b, a); !errors.Is(err, toolcrib.ErrConflict) {
			t.Errorf("%s and %s, the other way round: %v", b, a, err)
		}
	}
	for _, pair := range [][2]string{
		{"anna", "hanna"}, {"kai", "kal"}, {"muller", "müller"}, {"a.b", "a-b"}, {"иван", "ivan"}, {"olga", "ольга"}, {"anne", "anna"}, {"lukasz", "łukasz"}, {"mia", "mla"}, {"山田", "山本"},
	} {
		if err := access.TakenBy(pair[0], pair[1]); err != nil {
			t.Errorf("%q: %v", pair, err)
		}
	}
}

func TestNames_Properties(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-zA-Z0-9._@+-]{1,70}`), rapid.StringOf(rapid.RuneFrom([]rune("aAbоаеİıſΣςｱａ.-1\u0301\u200d山ー")))).Draw(r, "text")
		name, err := access.CheckName(text)
		if err != nil {
			var e *toolcrib.Error
			if !errors.As(err, &e) || e.Code != toolcrib.CodeBadRequest {
				r.Fatalf("%q: %v", text, err)
			}
			return
		}
		if again, err := access.CheckName(name); err != nil || again != name {
			r.Fatalf("%q is %q, and that is %q, %v", text, name, again, err)
		}
		if len(name) > access.MaxNameBytes || strings.ContainsAny(name, "/\\\x00:*") || strings.Contains(name, "..") {
			r.Fatalf("%q is a name", name)
		}
		if access.TakenBy(name, name) == nil {
			r.Fatalf("%q may stand beside itself", name)
		}
		for _, other := range []string{strings.ToUpper(name), strings.ToLower(name)} {
			if other, err := access.CheckName(other); err == nil && access.TakenBy(other, name) == nil {
				r.Fatalf("%q may stand beside %q", other, name)
			}
		}
	})
}
