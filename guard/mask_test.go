package guard

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const secret = `s3cr<t/"p&s'w` + "\n" + `\rd+é`

// newMasker returns a Masker of values that all have the name x.
func newMasker(values ...string) *Masker {
	m := NewMasker()
	for _, v := range values {
		m.Learn(Secret{Name: "x", Value: v})
	}
	return m
}

// marked expands the marks of a wanted text: *** is that of newMasker's secrets, ### that of
// an access token.
func marked(want string) string {
	return strings.NewReplacer("***", "[secret:x]", "###", "[secret:access_token]").Replace(want)
}

// markX is the mark of newMasker's secrets.
const markX = "[secret:x]"

func TestMaskEverySpelling(t *testing.T) {
	m := newMasker(secret)
	html, _ := json.Marshal(secret)
	for name, spelt := range map[string]string{
		"plain":          secret,
		"JSON":           oracle(secret),
		"JSON with HTML": string(html),
		"JSON slashes":   strings.ReplaceAll(oracle(secret), "/", `\/`),
		"JSON in JSON":   oracle(map[string]any{"a": "b " + secret}),
		"query":          url.QueryEscape(secret),
		"path":           url.PathEscape(secret),
		"base64":         base64.StdEncoding.EncodeToString([]byte(secret)),
		"base64 raw":     base64.RawStdEncoding.EncodeToString([]byte(secret)),
		"base64 URL":     base64.URLEncoding.EncodeToString([]byte(secret)),
		"base64 URL raw": base64.RawURLEncoding.EncodeToString([]byte(secret)),
	} {
		got := m.Mask("before " + spelt + " after")
		if want := marked("before *** after"); name != "JSON in JSON" && strings.ReplaceAll(got, `"`, "") != want {
			t.Errorf("%s: %q became %q", name, spelt, got)
		} else if !strings.Contains(got, markX) || strings.Contains(got, "s3cr") {
			t.Errorf("%s: %q became %q", name, spelt, got)
		}
	}
	// Inside longer data that is encoded as a whole, at each alignment.
	for _, before := range []string{"", "u", "us", "use", "user:"} {
		for _, after := range []string{"", "x", "xy", "xyz"} {
			for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
				all := enc.EncodeToString([]byte(before + "correct horse battery" + after))
				got := newMasker("correct horse battery").Mask(all)
				if !strings.Contains(got, markX) || len(got) > len(markX)+4+len(before)*2+len(after)*2 {
					t.Errorf("%q with %q before and %q after became %q", all, before, after, got)
				}
			}
		}
	}
}

func TestMaskSeveral(t *testing.T) {
	m := newMasker("abcdef", "abcdefghij", "fghijklm", "", "short", "  padded-secret\n")
	for in, want := range map[string]string{
		"":                            "",
		"nothing here":                "nothing here",
		"x abcdef y":                  "x *** y",
		"x abcdefghij y":              "x *** y",
		"x abcdefg y":                 "x ***g y",
		"x abcdefghijklm y":           "x *** y",
		"abcdefabcdef":                "******",
		"abcdef abcdef":               "*** ***",
		"short stays":                 "short stays",
		"=padded-secret=":             "=***=",
		"abcde":                       "abcde",
		"ababcdefx":                   "ab***x",
		"日abcdef本":                    "日***本",
		strings.Repeat("abcdef", 500): strings.Repeat("***", 500),
		"[secret:x]abcdef]":           "[secret:x]***]",
		"[secret:abcdef]":             "[secret:***]",
	} {
		want = marked(want)
		if got := m.Mask(in); got != want {
			t.Errorf("Mask(%q) = %q, want %q", in, got, want)
		}
		if got := m.MaskBytes([]byte(in)); string(got) != want {
			t.Errorf("MaskBytes(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestMaskNothing(t *testing.T) {
	var none *Masker
	text := strings.Repeat("ordinary text\n", 1000)
	raw := json.RawMessage(`{ "a": "ordinary" }`)
	for name, m := range map[string]*Masker{"nil": none, "zero": {}, "empty": NewMasker(), "short": newMasker("abc", ""), "other": newMasker("first-secret", "ordinary secret")} {
		if m.Mask(text) != text || string(m.MaskBytes([]byte(text))) != text || string(m.MaskJSON(raw)) != string(raw) {
			t.Errorf("%s: something was masked", name)
		}
		s := m.Stream()
		if got := s.Write(text) + s.Flush(); got != text {
			t.Errorf("%s: the stream changed the text", name)
		}
		if n := allocations(func() { m.Mask(text); m.MaskJSON(raw) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if m.Empty() != (name == "nil") {
			t.Errorf("%s: Empty = %v", name, m.Empty())
		}
	}
}

func TestMaskJSON(t *testing.T) {
	m := newMasker("first-secret", "12345678", `a":"bc`)
	for in, want := range map[string]string{
		`{"k":"a first-secret b"}`:                    `{"k":"a *** b"}`,
		`{"first-secret": 1}`:                         `{"***":1}`,
		`["\u0066irst\u002dsecret","\/"]`:             `["***","/"]`,
		`[112345678.5, 12345678, -12345678, 1234567]`: `["***","***","***",1234567]`,
		`["12345678"]`:                                `["***"]`,
		`{"a":"bc"}`:                                  `"{\"***\"}"`,
		`{"a": "bc"}`:                                 `{"a": "bc"}`,
		`{"first-secret" oops`:                        `"{\"***\" oops"`,
		`oops`:                                        `"oops"`,
		` "first-secret" `:                            `"***"`,
		`["{\"k\":\"first-secret\"}"]`:                `["{\"k\":\"***\"}"]`,
	} {
		got := m.MaskJSON([]byte(in))
		if want = marked(want); string(got) != want || !validJSON(got) {
			t.Errorf("MaskJSON(%s) = %s, want %s", in, got, want)
		}
	}
}

func TestMaskStream(t *testing.T) {
	m := newMasker("abcdef", "abcdefghij", "fghijklm")
	s := m.Stream()
	for _, step := range [][2]string{
		{"hello abc", "hello "}, {"d", ""}, {"x", "abcdx"}, {" abcdef", " "}, {"!", "***!"}, {"abcdefghij", "***"}, {"klm", ""}, {"no", "no"}, {"", ""}, {"ab", ""},
	} {
		if got := s.Write(step[0]); got != marked(step[1]) {
			t.Fatalf("Write(%q) = %q, want %q", step[0], got, step[1])
		}
	}
	if got := s.Flush(); got != "ab" {
		t.Fatalf("Flush = %q", got)
	}
	if got := s.Flush(); got != "" {
		t.Fatalf("second Flush = %q", got)
	}
	if got := s.Write("abcdef.") + s.Flush(); got != marked("***.") {
		t.Fatalf("after Flush: %q", got)
	}
}

// A sequence of adjacent secrets must not accumulate in a stream.
func TestMaskStreamIsBounded(t *testing.T) {
	m := newMasker("aaaaaa", "aaaaaaaaab")
	s := m.Stream()
	var out strings.Builder
	for range 10_000 {
		out.WriteString(s.Write("aaa"))
		if len(s.held) > m.now().longest {
			t.Fatalf("holds %d bytes", len(s.held))
		}
	}
	out.WriteString(s.Flush())
	if out.String() != markX {
		t.Errorf("got %.60q", out.String())
	}
}

// secretsAndText generates secrets over few letters, so that they overlap, and text of
// their pieces.
func secretsAndText(t *rapid.T) (secrets []string, pieces []string) {
	letters := rapid.StringMatching(`[ab/é"]{3,12}`)
	secrets = rapid.SliceOfN(letters, 0, 4).Draw(t, "secrets")
	piece := rapid.Custom(func(t *rapid.T) string {
		if len(secrets) > 0 && rapid.Bool().Draw(t, "of a secret") {
			s := rapid.SampledFrom(secrets).Draw(t, "secret")
			from := rapid.IntRange(0, len(s)).Draw(t, "from")
			return s[from:rapid.IntRange(from, len(s)).Draw(t, "to")]
		}
		return rapid.StringMatching(`[abx/é"]{0,4}`).Draw(t, "text")
	})
	return secrets, rapid.SliceOfN(piece, 0, 20).Draw(t, "pieces")
}

// bruteMask is the reference: from left to right, each form or token, with all that
// overlap it, becomes one mark, that of the longest at the first position.
func bruteMask(m *Masker, s string, tokens *regexp.Regexp) string {
	at := func(i int) (n int, name string) {
		for _, f := range m.now().forms {
			if len(f.text) > n && strings.HasPrefix(s[i:], f.text) {
				n, name = len(f.text), f.name
			}
		}
		if tokens != nil {
			if t := len(tokens.FindString(s[i:])); t > n {
				return t, tokenName
			}
		}
		return n, name
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		n, name := at(i)
		if n == 0 {
			b.WriteByte(s[i])
			i++
			continue
		}
		to := i + n
		for i++; i < to; i++ {
			n, _ = at(i)
			to = max(to, i+n)
		}
		b.WriteString(Mark(name))
	}
	return b.String()
}

func TestMaskProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secrets, pieces := secretsAndText(t)
		m := newMasker(secrets...)
		text := strings.Join(pieces, "")
		want := bruteMask(m, text, nil)
		if got := m.Mask(text); got != want {
			t.Fatalf("Mask(%q) = %q, want %q", text, got, want)
		}
		for _, s := range secrets {
			if len(s) >= MinSecretBytes && strings.Contains(want, s) {
				t.Fatalf("%q shows %q", want, s)
			}
		}
	})
}

// Wherever a text is split, the stream shows the result of Mask, and never
// more of it in between.
func TestMaskStreamProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secrets, pieces := secretsAndText(t)
		m := newMasker(secrets...)
		want := m.Mask(strings.Join(pieces, ""))
		s := m.Stream()
		var out strings.Builder
		for _, p := range pieces {
			out.WriteString(s.Write(p))
			if !strings.HasPrefix(want, out.String()) || len(s.held) > m.now().longest {
				t.Fatalf("%q shows %q, want %q; holds %q", pieces, out.String(), want, s.held)
			}
		}
		out.WriteString(s.Flush())
		if out.String() != want {
			t.Fatalf("%q became %q, want %q", pieces, out.String(), want)
		}
	})
}

func TestMaskJSONProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secrets, pieces := secretsAndText(t)
		m := newMasker(secrets...)
		list := make([]any, len(pieces))
		for i, p := range pieces {
			list[i] = p
		}
		raw := spell(t, map[string]any{strings.Join(pieces, ""): list, "n": json.Number("12")})
		got := m.MaskJSON([]byte(raw))
		if !validJSON(got) {
			t.Fatalf("%q became %q", raw, got)
		}
		if !exposes(m.now(), got).none() {
			t.Fatalf("%q still holds a secret: %q", raw, got)
		}
	})
}

func FuzzMaskStream(f *testing.F) {
	f.Add("aaaaaa", "ab\xc3\xa9ab\"", "aaaaaaab\xc3\xa9ab\"x", 3)
	f.Fuzz(func(t *testing.T, one, two, text string, size int) {
		m := newMasker(one, two)
		want := bruteMask(m, text, nil)
		if got := m.Mask(text); got != want {
			t.Fatalf("Mask(%q) = %q, want %q", text, got, want)
		}
		size = max(1, min(size, 64))
		s := m.Stream()
		var out strings.Builder
		for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
			out.WriteString(s.Write(rest[:min(size, len(rest))]))
		}
		if out.WriteString(s.Flush()); out.String() != want {
			t.Fatalf("%q in pieces of %d became %q, want %q", text, size, out.String(), want)
		}
		if got := m.MaskJSON([]byte(text)); text != "" && len(m.now().secrets) > 0 && !json.Valid(got) {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

func BenchmarkMask(b *testing.B) {
	secrets := make([]string, 20)
	for i := range secrets {
		secrets[i] = "sk-live-" + strings.Repeat(string(rune('a'+i)), 30)
	}
	m := newMasker(secrets...)
	text := strings.Repeat("some ordinary text with \"quotes\" and a line\n", 1<<20/44)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		m.Mask(text)
	}
}
