package models

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/service/env"
)

// ollamaWith serves the two lists of models with these names. Those with a + support tools.
func ollamaWith(t *testing.T, models ...string) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/tags", func(w http.ResponseWriter, _ *http.Request) {
		var list []string
		for _, name := range models {
			list = append(list, fmt.Sprintf(`{"name":%q}`, strings.TrimPrefix(name, "+")))
		}
		fmt.Fprintf(w, `{"models":[%s]}`, strings.Join(list, ","))
	})
	mux.HandleFunc("POST /api/show", func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Model string `json:"model"`
		}
		if json.NewDecoder(r.Body).Decode(&asked) != nil || !slices.Contains(models, asked.Model) &&
			!slices.Contains(models, "+"+asked.Model) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		capabilities := `"completion"`
		if slices.Contains(models, "+"+asked.Model) {
			capabilities += `,"tools"`
		}
		fmt.Fprintf(w, `{"capabilities":[%s]}`, capabilities)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// detecting is a service that looks for an Ollama at an address, without a person.
func detecting(t *testing.T, at string) *Models {
	t.Helper()
	t.Setenv("OLLAMA_HOST", "")
	return New(env.New(env.Options{OllamaAt: at, DataDir: t.TempDir()}))
}

// An Ollama that was not confirmed, or was confirmed at another address, is skipped without a terminal.
func TestDetectOllama_Unconfirmed(t *testing.T) {
	for _, name := range []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"} {
		t.Setenv(name, "")
	}
	a := detecting(t, ollamaWith(t, "+only"))
	if _, err := a.env.Mark(confirmedFolder, "http://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	found := a.Detect(true)
	if found.Model.Name() != "offline/offline" || !strings.Contains(found.Why, "nobody has confirmed it") {
		t.Errorf("got %s (%s)", found.Model.Name(), found.Why)
	}
}

// The first provider that is found is used and reported. Of an Ollama's models, the newest one that supports tools is
// used.
func TestN5_DetectOllama(t *testing.T) {
	for _, name := range []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"} {
		t.Setenv(name, "")
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, k := range []struct{ at, model, why string }{
		{ollamaWith(t, "tiny", "+qwen3:8b", "+llama3.2"), "ollama/qwen3:8b", "it is the newest of its 3 models that takes tools, --model ollama/NAME takes another"},
		{ollamaWith(t, "nomic-embed-text", "gemma3"), "ollama/gemma3", "the newest of its 2 models, --model"},
		{ollamaWith(t, "+only"), "ollama/only", "an Ollama answers at http://127.0.0.1:"},
		{ollamaWith(t), "offline/offline", "no Ollama with a model answers"},
		{gone.URL, "offline/offline", "no Ollama with a model answers"},
	} {
		a := detecting(t, k.at)
		if _, err := a.env.Mark(confirmedFolder, k.at); err != nil {
			t.Fatal(err)
		}
		found := a.Detect(false)
		if found.Model.Name() != k.model || !strings.Contains(found.Why, k.why) {
			t.Errorf("got %s (%s), want %s (%s)", found.Model.Name(), found.Why, k.model, k.why)
		}
	}
	t.Setenv("GEMINI_API_KEY", "x")
	a := detecting(t, ollamaWith(t, "+only"))
	if found := a.Detect(false); found.Model.Name() != "gemini/gemini-2.5-flash" {
		t.Errorf("a key comes first: %s", found.Model.Name())
	}
}
