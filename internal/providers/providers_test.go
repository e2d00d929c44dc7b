package providers_test

import (
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/providers"
)

// Contract §4 names the types, and which key is looked for first.
func TestTable(t *testing.T) {
	want := "openai anthropic gemini ollama llamacpp bus script offline"
	if got := strings.Join(providers.Names(nil), " "); got != want {
		t.Errorf("types %s, want %s", got, want)
	}
	var keys []string
	for _, one := range providers.ByKey() {
		keys = append(keys, one.KeyVariable)
	}
	if got := strings.Join(keys, " "); got != "ANTHROPIC_API_KEY OPENAI_API_KEY GEMINI_API_KEY" {
		t.Errorf("looked for: %s", got)
	}
	for _, one := range providers.All() {
		if one.OwnMachine != (one.Start != "") || (one.KeyVariable != "") != (one.DefaultModel != "") {
			t.Errorf("%s: a server of one's own is started somehow, and a key is looked for with a model", one.Name)
		}
	}
	if one, ok := providers.Of("opnai"); ok || one.New != nil || one.WithoutEntry() {
		t.Errorf("a type that does not exist: %+v", one)
	}
}

func TestOllamaAddress(t *testing.T) {
	ollama, _ := providers.Of("ollama")
	for text, want := range map[string]string{
		"": "", "0.0.0.0": "http://127.0.0.1:11434", ":1234": "http://127.0.0.1:1234", "box": "http://box:11434",
		"https://box": "https://box:443", "http://box/ollama": "http://box:80/ollama", "[::]:7": "http://[::1]:7",
		"::1": "http://[::1]:11434",
	} {
		if got := ollama.Address(func(string) string { return text }); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
