package guard

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// aToken has the form of an issued token.
const aToken = TokenPrefix + "eyJhbGciOiJFZERTQSIsImtpZCI6IjQ3In0.eyJpc3MiOiJsb2NhbDptZSIsInN1YiI6ImFubmEifQ.c2lnbmF0-dXJl_Q"

func TestM16_TokensAreMaskedByTheirForm(t *testing.T) {
	token := aToken
	long := TokenPrefix + "a.b." + strings.Repeat("c", MaxTokenBytes)
	for in, want := range map[string]string{
		token:                       "###",
		"Bearer " + token + "\n":    "Bearer ###\n",
		token + token:               "###",
		token + " " + token + ".":   "### ###.",
		"x" + token[1:]:             "x" + token[1:],
		TokenPrefix + "a.b.c":       "###",
		TokenPrefix + "a.b":         TokenPrefix + "a.b",
		TokenPrefix + "a..c":        TokenPrefix + "a..c",
		TokenPrefix + ".b.c":        TokenPrefix + ".b.c",
		TokenPrefix + "a.b.":        TokenPrefix + "a.b.",
		TokenPrefix + "a=.b.c":      TokenPrefix + "a=.b.c",
		TokenPrefix + " " + token:   TokenPrefix + " ###",
		TokenPrefix + "x.y" + token: "###",
		"known" + token:             "***",
		long:                        "###" + strings.Repeat("c", len(TokenPrefix)+len("a.b.")),
	} {
		m := newMasker("known" + token[:6])
		want = marked(want)
		if got := m.Mask(in); got != want {
			t.Errorf("Mask(%q) = %q, want %q", in, got, want)
		}
		if got := string(m.MaskBytes([]byte(in))); got != want {
			t.Errorf("MaskBytes(%q) = %q, want %q", in, got, want)
		}
	}
	none := NewMasker()
	raw, _ := json.Marshal(map[string]any{"a": []string{"see " + token}, token: 1})
	if got := string(none.MaskJSON(raw)); got != marked(`{"a":["see ###"],"###":1}`) {
		t.Errorf("MaskJSON = %s", got)
	}
	escaped := strings.Replace(string(raw), "toolcrib_v1_", `toolcrib\u005fv1_`, 1)
	if got := string(none.MaskJSON([]byte(escaped))); strings.Contains(got, "v1_") {
		t.Errorf("MaskJSON of an escaped token = %s", got)
	}
	if got := string(none.MaskJSON([]byte(`{"a`))); got != `{"a` {
		t.Errorf("what is not JSON and holds no secret became %s", got)
	}
	if got := RedactText("see " + token + "."); got != "see "+Redacted+"." {
		t.Errorf("RedactText = %q", got)
	}
}

func TestM16_BusTokensAndInvitesAreMasked(t *testing.T) {
	m := NewMasker()
	for text, want := range map[string]string{
		BusTokenPrefix + "e30.e30.c2ln":        "a " + Mark("bus_token") + " b",
		BusTokenPrefix + "e30.e30":             "a " + BusTokenPrefix + "e30.e30 b",
		InvitePrefix + "Fh2k-_Z.ABCDEFGHIJKL":  "a " + Mark("invite") + " b",
		InvitePrefix + "Fh2k-_Z.ABCDEFGHIJKL.": "a " + Mark("invite") + ". b",
		InvitePrefix + "Fh2k-_Z.":              "a " + InvitePrefix + "Fh2k-_Z. b",
	} {
		text = "a " + text + " b"
		if got := m.Mask(text); got != want {
			t.Errorf("Mask(%q) = %q, want %q", text, got, want)
		}
		if got := m.Mask(want); got != want {
			t.Errorf("masked twice: %q, want %q", got, want)
		}
		s, out := m.Stream(), ""
		for _, r := range text {
			out += s.Write(string(r))
		}
		if out += s.Flush(); out != want {
			t.Errorf("in pieces %q, want %q", out, want)
		}
		if got := RedactText(text); strings.Contains(want, "[secret:") && !strings.Contains(got, Redacted) {
			t.Errorf("RedactText(%q) = %q", text, got)
		}
	}
}

func TestM16_TokenStream(t *testing.T) {
	token := aToken
	for size := range 40 {
		text := "to " + token + ". toolcrib_v1_ is how they begin, too"
		s, out := NewMasker().Stream(), ""
		for rest := text; rest != ""; rest = rest[min(size+1, len(rest)):] {
			out += s.Write(rest[:min(size+1, len(rest))])
		}
		if out += s.Flush(); out != marked("to ###. toolcrib_v1_ is how they begin, too") {
			t.Fatalf("in pieces of %d: %q", size+1, out)
		}
	}
	s := NewMasker().Stream()
	s.Write(TokenPrefix)
	for range 10_000 {
		if s.Write("a.b"); len(s.held) > MaxTokenBytes {
			t.Fatalf("holds %d bytes", len(s.held))
		}
	}
}

// tokenPieces generates text of pieces of tokens, known secrets and others.
func tokenPieces(t *rapid.T) []string {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{TokenPrefix, TokenPrefix + "a.b", TokenPrefix + "a.b.c", "toolcrib", "_v1_", "t", "to", "secret.tool", "crib"}),
		rapid.StringMatching(`[a.é"_]{0,3}`),
	)
	return rapid.SliceOfN(piece, 0, 16).Draw(t, "pieces")
}

var tokenPattern = regexp.MustCompile(`^` + TokenPrefix + `[\w-]+\.[\w-]+\.[\w-]+`)

func TestM16_TokenMaskProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMasker("secret.toolcrib", "b.ctool")
		pieces := tokenPieces(t)
		text := strings.Join(pieces, "")
		want := bruteMask(m, text, tokenPattern)
		if got := m.Mask(text); got != want {
			t.Fatalf("Mask(%q) = %q, want %q", text, got, want)
		}
		s := m.Stream()
		var out strings.Builder
		for _, p := range pieces {
			if out.WriteString(s.Write(p)); !strings.HasPrefix(want, out.String()) {
				t.Fatalf("%q shows %q, want %q", pieces, out.String(), want)
			}
		}
		if out.WriteString(s.Flush()); out.String() != want {
			t.Fatalf("%q became %q, want %q", pieces, out.String(), want)
		}
	})
}

func BenchmarkMaskBeginnings(b *testing.B) {
	for name, piece := range map[string]string{"prefixes": TokenPrefix, "tokens": TokenPrefix + "a.b.c ", "secrets": "secret ", "open": TokenPrefix + "a.b."} {
		m := newMasker("secret", "another-secret")
		text := strings.Repeat(piece, 1<<20/len(piece))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				m.Mask(text)
			}
		})
	}
}
