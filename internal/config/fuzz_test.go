package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib/internal/config"
)

// parseSafely fails the test if the text neither loads whole nor is refused with
// a line.
func parseSafely(t interface {
	Errorf(format string, args ...any)
}, text []byte,
) *config.Config {
	c, err := config.Parse("toolcrib.yaml", text)
	if err == nil {
		return c
	}
	var all config.Errors
	switch {
	case c != nil:
		t.Errorf("a configuration comes with an error, of %q", text)
	case !errors.As(err, &all) || len(all) == 0:
		t.Errorf("no list of errors, but %v, of %q", err, text)
	}
	last := 1 + bytes.Count(text, []byte("\n")) + bytes.Count(text, []byte("\r")) // \r ends a line of YAML too
	for _, e := range all {
		if e.File != "toolcrib.yaml" || e.Message == "" || e.Line > last ||
			e.Line < 1 && !strings.HasSuffix(e.Message, "more errors") {
			t.Errorf("error %q (line %d of %d), of %q", e, e.Line, last, text)
		}
	}
	return nil
}

// A server that reloads may see a file that is only half written.
func TestN5_HalfWrittenFiles(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 17 // prime, so that it falls into step with nothing in the file
	}
	for _, text := range [][]byte{sample(t), []byte(everything)} {
		for n := 0; n < len(text); n += step {
			parseSafely(t, text[:n])
		}
	}
}

// One changed byte must not bring the loader down either.
func TestN5_DamagedFiles(t *testing.T) {
	whole := []byte(everything)
	rapid.Check(t, func(t *rapid.T) {
		text := bytes.Clone(whole)
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
			text[at] = rapid.SampledFrom([]byte("\x00\n\t :-[]{},\"'|>&*!%@`#?a0\xff")).Draw(t, "byte")
		}
		parseSafely(t, text)
	})
}

// Whatever text is in a value, it is shown so that it reads back the same.
func TestN5_TextsSurviveShow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prompt := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ \n\t:#"'\\{}$\[\],&*!|>%@0-9a-z~-]{0,20}`)).Draw(t, "prompt")
		prompt = strings.ReplaceAll(prompt, "\x00", "")
		quoted, err := json.Marshal(prompt)
		if err != nil {
			t.Fatal(err)
		}
		c := parseSafely(t, []byte(`agents: {default: {system: `+string(quoted)+`, output_schema: {default: `+string(quoted)+`}}}`))
		if c == nil {
			if !strings.Contains(prompt, "${") {
				t.Fatalf("refused: %q", prompt)
			}
			return
		}
		if got := c.Agents["default"].System.Raw(); got != prompt {
			t.Fatalf("read as %q, not %q", got, prompt)
		}
		again := parseSafely(t, config.Show(c))
		if again == nil {
			t.Fatalf("what is shown is refused:\n%s", config.Show(c))
		}
		if diff := cmp.Diff(string(config.Show(c)), string(config.Show(again))); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(sample(f))
	f.Add([]byte(everything))
	for _, text := range []string{"", "a", "- a", "{", "agents: {default: {tools: [", "? a\n: b", "%YAML 1.2\n---\n", "a: &a [*a]", "a: |\n  x\n", "\xef\xbb\xbflog: {}", "[]: x", "log: {level: !!str info}"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if c := parseSafely(t, text); c != nil {
			shown := config.Show(c)
			if !bytes.Contains(shown, []byte("***")) && parseSafely(t, shown) == nil {
				_, err := config.Parse("x", shown)
				t.Errorf("what is shown is refused (%v):\n%s", err, shown)
			}
		}
	})
}
