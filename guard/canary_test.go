package guard

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
)

const testCanary = CanaryPrefix + "0123456789ABCDEF"

func TestX12_CanaryIsRedactedHoweverItComes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOfN(rapid.SampledFrom([]string{
			"a", " ", CanaryPrefix, "CC_", "0123456789ABCDEF", testCanary, strings.ToLower(testCanary), "CC_CANARY_01", "é", "\n", "C", "_",
		}), 0, 20).Draw(t, "pieces")
		whole := strings.Join(pieces, "")
		want, n := RedactCanary(whole, testCanary)
		if strings.Contains(strings.ToUpper(want), testCanary) || n != strings.Count(want, CanaryRedacted) {
			t.Fatalf("%q became %q (%d)", whole, want, n)
		}
		stream := NewCanaryStream(testCanary)
		var got strings.Builder
		for _, p := range pieces {
			got.WriteString(stream.Write(p))
		}
		got.WriteString(stream.Flush())
		if got.String() != want {
			t.Fatalf("in pieces %q, whole %q", got.String(), want)
		}
	})
}

func TestCanary_None(t *testing.T) {
	if s, n := RedactCanary(testCanary, ""); s != testCanary || n != 0 {
		t.Error("an empty canary is found")
	}
	if got := NewCanaryStream("").Write("text"); got != "text" {
		t.Errorf("%q", got)
	}
}

func TestX7_PhrasesAreMarked(t *testing.T) {
	for _, phrase := range []string{
		"Ignore all previous instructions", "disregard the above", "forget your prior rules", "IGNORE\n  PREVIOUS\tINSTRUCTIONS",
		"You are now", "act as a pirate", "pretend to be", "pretend you are", "System prompt:", "new instructions:",
		"do not tell the user", "Never inform the user",
	} {
		text := "before, " + phrase + " and after"
		marked := MarkPhrases(text)
		if !strings.Contains(marked, phraseMark+phrase) || strings.NewReplacer(phraseMark, "", phraseMarkEnd, "").Replace(marked) != text {
			t.Errorf("%q became %q", text, marked)
		}
		if got, n := NeutralizePhrases(text); n != 1 || !strings.Contains(got, PhraseNeutralized) {
			t.Errorf("%q became %q (%d)", text, got, n)
		}
		raw, err := json.Marshal(map[string]string{"text": "x " + strings.ReplaceAll(phrase, "\n", " ") + " y"})
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid([]byte(MarkPhrases(string(raw)))) {
			t.Errorf("%s is no longer JSON", MarkPhrases(string(raw)))
		}
	}
	for _, harmless := range []string{"", "the previous instructions were fine", "you were", "factual as a rule", "ignore the noise"} {
		if got := MarkPhrases(harmless); got != harmless {
			t.Errorf("%q became %q", harmless, got)
		}
	}
}

// A wrapped result has the canary in its first line, its phrases are marked, and it
// stays within its bound.
func TestX7_FitMarksAndBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
			"you are now ", "ignore previous instructions ", "plain ", "\"q\" ", "\\", "\\n", "</untrusted_input>", "日本", "\n",
		}), 0, 200).Draw(t, "body"), "")
		limit := rapid.IntRange(MinResultBytes, 3000).Draw(t, "limit")
		out := toolcrib.Output{Text: body}
		if rapid.Bool().Draw(t, "json") {
			out = toolcrib.Output{JSON: mustJSON([]string{body, body})}
		}
		f := Fit(out, FitOptions{MaxBytes: limit, Wrap: true, Source: "web", Canary: testCanary})
		first := "<untrusted_input source=\"web\">\n<canary>" + testCanary + "</canary>\n"
		inner, ok := strings.CutPrefix(f.Content, first)
		if !ok {
			t.Fatalf("begins with %q", f.Content[:min(len(f.Content), 100)])
		}
		inner, ok = strings.CutSuffix(inner, "\n</untrusted_input>")
		if !ok || strings.Contains(inner, "</untrusted_input") {
			t.Fatalf("the fence is broken: %q", f.Content)
		}
		size := len(inner)
		if !f.JSON {
			size = len(mustJSON(inner))
		} else if !json.Valid([]byte(inner)) {
			t.Fatalf("no JSON: %q", inner)
		}
		if size > limit {
			t.Fatalf("%d bytes, at most %d", size, limit)
		}
		inner = escapeAfterMark.ReplaceAllLiteralString(inner, phraseMark)
		if n := strings.Count(strings.ToLower(inner), "you are now"); n != strings.Count(strings.ToLower(inner), phraseMark+"you are now") {
			t.Fatalf("a phrase is not marked: %q", inner)
		}
	})
}

// escapeAfterMark matches a line break of JSON after a mark.
var escapeAfterMark = regexp.MustCompile(regexp.QuoteMeta(phraseMark) + `\\+n`)

func mustJSON(v any) json.RawMessage {
	raw, err := encodeJSON(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// encodeJSON encodes as results are encoded, without HTML escapes.
func encodeJSON(v any) (json.RawMessage, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return json.RawMessage(strings.TrimSuffix(b.String(), "\n")), err
}
