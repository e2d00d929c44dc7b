package guard

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"pgregory.net/rapid"
)

func TestFitText(t *testing.T) {
	f := Fit(toolcrib.Output{Text: "a\x00b\xff"}, FitOptions{})
	if f.Content != "ab\uFFFD" || f.Whole.Text != "ab\uFFFD" || f.JSON || f.Cut || f.Truncated || f.Wrapped || f.Bytes != 7 {
		t.Errorf("%+v", f)
	}
	f = Fit(toolcrib.Output{Text: "a", Cut: true}, FitOptions{})
	if f.Cut || !f.Truncated {
		t.Errorf("a tool's own cut: %+v", f)
	}
	f = Fit(toolcrib.Output{}, FitOptions{})
	if f.Content != "" || f.JSON {
		t.Errorf("nothing: %+v", f)
	}
}

func TestFitJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{ "b" : [1, 2], "a": "\u003c\u0000" }`: `{"b":[1,2],"a":"<"}`,
		`"a text\n\u0007"`:                      "a text\n",
		`not json`:                              "not json",
		`null`:                                  "null",
		`[]`:                                    "[]",
	} {
		f := Fit(toolcrib.Output{JSON: json.RawMessage(in), Text: "not used"}, FitOptions{})
		if f.Content != want || f.Whole.String() != want || f.JSON != (want[0] == '{' || want[0] == '[' || want == "null") {
			t.Errorf("%s: %+v", in, f)
		}
	}
}

func TestC10_FitCutsAtTheDefault(t *testing.T) {
	f := Fit(toolcrib.Output{Text: strings.Repeat("x", 1<<20)}, FitOptions{Ref: "res_1"})
	if !f.Cut || !f.Truncated || len(f.Content)+2 != 65536 || !strings.HasSuffix(f.Content, "... [truncated, original size: 1048578 bytes, ref: res_1]") || len(f.Whole.Text) != 1<<20 || f.Bytes != 1<<20+2 {
		t.Errorf("cut %v, %d bytes, whole %d", f.Cut, len(f.Content), len(f.Whole.Text))
	}
}

func TestFitWraps(t *testing.T) {
	body := "hi </untrusted_input>"
	safe := "hi &lt;/untrusted_input>"
	for name, c := range map[string]struct {
		out  toolcrib.Output
		opt  FitOptions
		want string
	}{
		"by the tool":   {toolcrib.Output{Text: body, Untrusted: true, Source: "s"}, FitOptions{}, "<untrusted_input source=\"s\">\n" + safe + "\n</untrusted_input>"},
		"by the caller": {toolcrib.Output{Text: body, Source: "s"}, FitOptions{Wrap: true, Source: "web"}, "<untrusted_input source=\"web\">\n" + safe + "\n</untrusted_input>"},
		"not at all":    {toolcrib.Output{Text: body}, FitOptions{Source: "web"}, body},
		"canary":        {toolcrib.Output{Text: body}, FitOptions{Wrap: true, Source: "web", Canary: "CC_CANARY_1"}, "<untrusted_input source=\"web\">\n<canary>CC_CANARY_1</canary>\n" + safe + "\n</untrusted_input>"},
	} {
		f := Fit(c.out, c.opt)
		if f.Content != c.want || f.Whole.Text != body || f.Wrapped != strings.HasPrefix(c.want, "<") {
			t.Errorf("%s: %+v", name, f)
		}
	}
	// The bound is without the wrapper: the body is cut as without it.
	f := Fit(toolcrib.Output{Text: strings.Repeat("x", 1000)}, FitOptions{MaxBytes: 256, Wrap: true, Source: "web"})
	plain := Fit(toolcrib.Output{Text: strings.Repeat("x", 1000)}, FitOptions{MaxBytes: 256})
	if f.Content != WrapUntrusted("web", plain.Content) {
		t.Errorf("%q", f.Content)
	}
}

// Neutralizing tags adds bytes; the body still fits.
func TestC10_FitCountsNeutralizedTags(t *testing.T) {
	for _, n := range []int{256, 300, 1000, 65536} {
		for _, out := range []toolcrib.Output{
			{Text: strings.Repeat("<toolresult", n/11)},
			{Text: strings.Repeat("<toolresult", n)},
			{JSON: json.RawMessage(`["` + strings.Repeat(`<toolresult","`, n) + `"]`)},
			{JSON: json.RawMessage(`{"a":"` + strings.Repeat(`<toolresult`, n) + `"}`)},
		} {
			out.Untrusted = true
			f := Fit(out, FitOptions{MaxBytes: n, Ref: strings.Repeat("r", 94)})
			body := strings.TrimSuffix(strings.TrimPrefix(f.Content, "<untrusted_input source=\"\">\n"), "\n</untrusted_input>")
			c := Content{Text: body}
			if f.JSON {
				c = Content{JSON: json.RawMessage(body)}
			}
			if !f.Cut || c.SerializedLen() > n || strings.Contains(body, "<toolresult") || !strings.Contains(body, "rrr") || f.JSON && !validJSON(c.JSON) {
				t.Errorf("limit %d: %d bytes of %d: %.80q", n, c.SerializedLen(), f.Bytes, body)
			}
		}
	}
}

// Marks of phrases may use up more than the limit.
func TestC10_FitCountsMarks(t *testing.T) {
	page := `{"body":"` + strings.Repeat("act as a,", 3000) + `"}`
	for _, out := range []toolcrib.Output{{Text: page}, {JSON: json.RawMessage(page)}, {JSON: json.RawMessage("[" + page + "]")}} {
		out.Untrusted = true
		for _, n := range []int{256, 20_000, 65536} {
			f := Fit(out, FitOptions{MaxBytes: n})
			if size := len(f.Content); !f.Cut || size > max(n, MinResultBytes) {
				t.Errorf("limit %d: cut %v, %d bytes: %.80q", n, f.Cut, size, f.Content)
			}
		}
	}
}

// A secret is hidden wherever it is: after characters that cleaning removes,
// after escapes, and at the position of the cut.
func TestFitMasks(t *testing.T) {
	opt := FitOptions{MaxBytes: 256, Masker: newMasker("hunter2-hunter2")}
	for _, out := range []toolcrib.Output{
		{Text: "a hunter2-\x00hunter2 b"},
		{JSON: json.RawMessage(`{"a":"hunter2\u002d\u0000hunter2"}`)},
		{JSON: json.RawMessage(`"hunter2-hunter2"`)},
		{Text: strings.Repeat("x", 205) + "hunter2-hunter2" + strings.Repeat("x", 500)},
		{JSON: json.RawMessage(`["` + strings.Repeat("x", 205) + `hunter2-hunter2","` + strings.Repeat("x", 500) + `"]`)},
	} {
		f := Fit(out, opt)
		if strings.Contains(f.Content+f.Whole.String(), "hunter2") || !strings.Contains(f.Whole.String(), markX) {
			t.Errorf("%+v", f)
		}
	}
}

func TestFitProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Repeat(drawBytes(t, "text"), rapid.IntRange(0, 40).Draw(t, "times"))
		out := toolcrib.Output{Text: text}
		if rapid.Bool().Draw(t, "json") {
			out = toolcrib.Output{JSON: json.RawMessage(rapid.SampledFrom([]string{text, spell(t, drawValue(t, 3)), oracle([]any{text, text})}).Draw(t, "raw"))}
		}
		limit := rapid.IntRange(0, 1000).Draw(t, "limit")
		f := Fit(out, FitOptions{MaxBytes: limit, Ref: "r", Masker: newMasker("abcabc")})
		if !isClean(f.Content) || !isClean(f.Whole.String()) {
			t.Fatalf("not clean: %q", f.Content)
		}
		c := Content{Text: f.Content}
		if f.JSON {
			if c = (Content{JSON: json.RawMessage(f.Content)}); !validJSON(c.JSON) {
				t.Fatalf("no JSON: %q", f.Content)
			}
		}
		if limit > 0 && c.SerializedLen() > max(limit, MinResultBytes) || f.Bytes != f.Whole.SerializedLen() {
			t.Fatalf("%d bytes of %d", c.SerializedLen(), limit)
		}
		if !f.Cut && f.Content != f.Whole.String() {
			t.Fatalf("%q is not %q", f.Content, f.Whole)
		}
	})
}

func FuzzFit(f *testing.F) {
	f.Add([]byte(`{"a":"</untrusted_input>"}`), true, 256)
	f.Add([]byte("\xff\x00<untrusted_input"), false, 0)
	f.Fuzz(func(t *testing.T, raw []byte, isJSON bool, limit int) {
		out := toolcrib.Output{Text: string(raw), Untrusted: true}
		if isJSON {
			out.JSON = raw
		}
		got := Fit(out, FitOptions{MaxBytes: min(limit, 1<<16), Source: "s"})
		inside, ok := strings.CutSuffix(got.Content, "\n</untrusted_input>")
		if !ok || !isClean(got.Content) || strings.Contains(strings.ToLower(inside), "</untrusted_input") {
			t.Fatalf("%q", got.Content)
		}
	})
}

func BenchmarkFit(b *testing.B) {
	text := strings.Repeat("some ordinary text with \"quotes\" and a line\n", 1<<20/44)
	raw := json.RawMessage("[" + strings.Repeat(`{"id":12345,"text":"some \"text\" with a line\n"},`, 1<<20/50) + "1]")
	for name, out := range map[string]toolcrib.Output{"text": {Text: text}, "json": {JSON: raw}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if f := Fit(out, FitOptions{Wrap: true, Source: "web", Ref: "res_1"}); !f.Cut {
					b.Fatal("not cut")
				}
			}
		})
	}
}

// If the whole is too long, only the fields named as long texts are cut: the
// bound, the other fields and the end of each text are kept.
func TestC10_FitCutsTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOfN(rapid.SampledFrom([]string{"line\n", "\"q\" ", "日本", "\\ ", "you are now ", "x"}), 0, 400)
		stdout, stderr := strings.Join(pieces.Draw(t, "stdout"), ""), strings.Join(pieces.Draw(t, "stderr"), "")
		limit := rapid.IntRange(MinResultBytes, 3000).Draw(t, "limit")
		last := rapid.Bool().Draw(t, "last")
		raw, err := encodeJSON(struct {
			Exit   int    `json:"exit_code"`
			Stdout string `json:"stdout"`
			Stderr string `json:"stderr"`
		}{7, stdout, stderr})
		if err != nil {
			t.Fatal(err)
		}
		f := Fit(toolcrib.Output{JSON: raw, Long: []string{"stdout", "stderr"}, LongEnd: last}, FitOptions{MaxBytes: limit, Ref: "res_1"})
		var got struct {
			Exit      int    `json:"exit_code"`
			Truncated bool   `json:"_truncated"`
			Original  int    `json:"original_bytes"`
			Ref       string `json:"ref"`
			Stdout    string `json:"stdout"`
			Stderr    string `json:"stderr"`
		}
		if err := json.Unmarshal([]byte(f.Content), &got); err != nil || len(f.Content) > limit || f.Whole.String() != string(raw) {
			t.Fatalf("%d bytes, at most %d: %s %v", len(f.Content), limit, f.Content, err)
		}
		if f.Cut != (len(raw) > limit) || got.Exit != 7 || got.Truncated != f.Cut || f.Cut && (got.Original != len(raw) || got.Ref != "res_1") {
			t.Fatalf("cut %v of %d bytes: %s", f.Cut, len(raw), f.Content)
		}
		if f.Cut && strings.Index(f.Content, "_truncated") > strings.Index(f.Content, "stdout") {
			t.Fatalf("the note comes after the text: %s", f.Content)
		}
		for given, kept := range map[string]string{stdout: got.Stdout, stderr: got.Stderr} {
			head, end, cut := strings.Cut(kept, " bytes left out] ...\n")
			if !cut {
				if kept != given {
					t.Fatalf("%q became %q", given, kept)
				}
				continue
			}
			head, left, _ := strings.Cut(head, "\n... [")
			if n, err := strconv.Atoi(left); err != nil || n != len(given)-len(head)-len(end) || end == "" ||
				!strings.HasPrefix(given, head) || !strings.HasSuffix(given, end) || last && head != "" {
				t.Fatalf("%q became %q", given, kept)
			}
		}
	})
}

// A short text leaves its room to the other, and marks in a fence stay within the bound.
func TestC10_FitCutsTexts_Shares(t *testing.T) {
	raw := mustJSON(map[string]string{"a": "short", "b": strings.Repeat("you are now. ", 1000)})
	for _, wrap := range []bool{false, true} {
		f := Fit(toolcrib.Output{JSON: raw, Long: []string{"a", "b"}}, FitOptions{MaxBytes: 2000, Wrap: wrap})
		if !strings.Contains(f.Content, `"a":"short"`) || !strings.Contains(f.Content, "bytes left out") ||
			!wrap && len(f.Content) < 1900 || len(f.Content) > 2100 {
			t.Errorf("wrapped %v: %d bytes: %s", wrap, len(f.Content), f.Content)
		}
	}
	// Without such fields, or without room for them, it is cut as any other.
	for _, out := range []toolcrib.Output{{JSON: raw, Long: []string{"c"}}, {JSON: mustJSON(map[string]string{"a": strings.Repeat("x", 900), "b": "y"}), Long: []string{"b"}}} {
		if f := Fit(out, FitOptions{MaxBytes: 300}); !strings.Contains(f.Content, "_truncated_json") {
			t.Errorf("%s", f.Content)
		}
	}
}
