package ollama_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// serve answers the chat with one error, and counts the requests for it.
func serve(t *testing.T, status int, body string) (url string, count *atomic.Int64) {
	t.Helper()
	count = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/chat" {
			count.Add(1)
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return s.URL, count
}

func failure(t *testing.T, url string, req *toolcrib.Request) *toolcrib.ModelError {
	t.Helper()
	_, err := modeltest.Collect(t.Context(), open(t, modeltest.Target{BaseURL: url}), req)
	var e *toolcrib.ModelError
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want a ModelError", err)
	}
	if strings.ContainsAny(e.Message, "\r\n") || len(e.Message) > 500 {
		t.Errorf("message is no short line: %q", e.Message)
	}
	return e
}

func TestErrors(t *testing.T) {
	tests := []struct {
		name, body string
		status     int
		class      toolcrib.ErrorClass
		says       string
	}{
		{"not pulled", `{"error":"model 'model-a' not found"}`, 404, toolcrib.ErrBadRequest, "ollama pull model-a"},
		{"not pulled, old", `{"error":"model \"model-a\" not found, try pulling it first"}`, 404, toolcrib.ErrBadRequest, "ollama pull model-a"},
		{"no such route", `404 page not found`, 404, toolcrib.ErrBadRequest, "base_url"},
		{"thinking", `{"error":"\"model-a\" does not support thinking"}`, 400, toolcrib.ErrBadRequest, "reasoning"},
		{"too long", `{"error":"the prompt is longer than the context length currently available to the model; shorten the prompt"}`, 400, toolcrib.ErrContextLength, "num_ctx"},
		{"too long, engine", `{"error":"request (9412 tokens) exceeds the available context size (4096 tokens), try increasing it"}`, 400, toolcrib.ErrContextLength, "9412 tokens"},
		{"too long, older", `{"error":"the input length exceeds the context length"}`, 500, toolcrib.ErrContextLength, "OLLAMA_CONTEXT_LENGTH"},
		{"memory", `{"error":"model requires more system memory (12.0 GiB) than is available (7.1 GiB)"}`, 500, toolcrib.ErrOther, "12.0 GiB"},
		{"runner", `{"error":"llama runner process has terminated: exit status 2"}`, 500, toolcrib.ErrOverloaded, "runner"},
		{"busy", `{"error":"server busy, please try again.  maximum pending requests exceeded"}`, 503, toolcrib.ErrOverloaded, "busy"},
		{"cloud login", `{"error":"unauthorized","signin_url":"https://ollama.com/connect?name=x"}`, 401, toolcrib.ErrAuth, "ollama signin"},
		{"cloud limit", `{"StatusCode":429,"Status":"429 Too Many Requests","error":"you have reached your hourly usage limit"}`, 429, toolcrib.ErrRateLimit, "usage limit"},
		{"bad field", `{"error":"json: cannot unmarshal string into Go struct field ChatRequest.options of type map"}`, 400, toolcrib.ErrBadRequest, "options"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url, _ := serve(t, tt.status, tt.body)
			e := failure(t, url, modeltest.Request("q"))
			if e.Class != tt.class || e.Status != tt.status || e.NoTools || !strings.Contains(e.Message, tt.says) {
				t.Errorf("class %s, status %d, no tools %t: %s", e.Class, e.Status, e.NoTools, e.Message)
			}
		})
	}
}

func TestN14_NoTools(t *testing.T) {
	for _, body := range []string{
		`{"error":"registry.ollama.ai/library/model-a:latest does not support tools"}`,
		`{"error":"model-a does not support tools\nthinking"}`,
	} {
		url, count := serve(t, http.StatusBadRequest, body)
		model := open(t, modeltest.Target{BaseURL: url})
		req := modeltest.Request("q")
		req.Tools = []toolcrib.Spec{{Name: "f"}}
		for n := range 2 {
			_, err := modeltest.Collect(t.Context(), model, req)
			var e *toolcrib.ModelError
			if !errors.As(err, &e) || !e.NoTools || e.Class != toolcrib.ErrBadRequest ||
				!strings.Contains(e.Message, "model-a does not support tools") {
				t.Fatalf("error %v", err)
			}
			if e.Unsent != (n == 1) {
				t.Errorf("request %d: unsent %t", n, e.Unsent)
			}
		}
		if count.Load() != 1 {
			t.Errorf("%d requests: the model was asked again", count.Load())
		}
	}
}

// A model that is known not to support tools, because its capabilities were requested for
// images, gets no request with tools; one without tools is sent.
func TestNoTools_FromCapabilities(t *testing.T) {
	r := &recorder{show: modeltest.OllamaShow("completion", "vision")}
	model := open(t, modeltest.Target{Transport: r})
	if _, err := modeltest.Collect(t.Context(), model, withFiles()); err != nil {
		t.Fatal(err)
	}
	req := modeltest.Request("q")
	if _, err := modeltest.Collect(t.Context(), model, req); err != nil {
		t.Error(err)
	}
	req.Tools = []toolcrib.Spec{{Name: "f"}}
	var e *toolcrib.ModelError
	if _, err := modeltest.Collect(t.Context(), model, req); !errors.As(err, &e) || !e.NoTools || !e.Unsent {
		t.Errorf("error %v", err)
	}
	req.ToolChoice.Mode = toolcrib.ChoiceNone
	if _, err := modeltest.Collect(t.Context(), model, req); err != nil {
		t.Error(err)
	}
}

func TestNotRunning(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	url := s.URL
	s.Close()
	e := failure(t, url, modeltest.Request("q"))
	if !e.Unsent || e.Class != toolcrib.ErrNetwork || !strings.Contains(e.Message, "ollama serve") {
		t.Errorf("%+v", e)
	}
	if err := open(t, modeltest.Target{BaseURL: url}).Check(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "ollama serve") {
		t.Errorf("check: %v", err)
	}
}

func TestShow(t *testing.T) {
	server := modeltest.NewServer(modeltest.Ollama, modeltest.ServerOptions{})
	model := open(t, modeltest.Target{BaseURL: server.Start(t)})
	info, err := model.Show(t.Context(), "model-a")
	if err != nil || !info.Tools || !info.Vision || !info.Capabilities {
		t.Errorf("info %+v, error %v", info, err)
	}
	names, err := model.ListModels(t.Context())
	if err != nil || !slices.Equal(names, []string{"model-a", "model-b"}) {
		t.Errorf("models %v, error %v", names, err)
	}
	if err := model.Check(t.Context()); err != nil {
		t.Error(err)
	}
	url, _ := serve(t, http.StatusNotFound, `{"error":"model 'x' not found"}`)
	if _, err := open(t, modeltest.Target{BaseURL: url}).Show(t.Context(), "x"); err == nil ||
		!strings.Contains(err.Error(), "ollama pull x") {
		t.Errorf("error %v", err)
	}
	for _, body := range []string{"<html>", `[]`, `{"models":7,"capabilities":7}`, ""} {
		url, _ := serve(t, http.StatusOK, body)
		model := open(t, modeltest.Target{BaseURL: url})
		_, showErr := model.Show(t.Context(), "x")
		_, listErr := model.ListModels(t.Context())
		for _, err := range []error{showErr, listErr} {
			var e *toolcrib.ModelError
			if !errors.As(err, &e) || e.Class != toolcrib.ErrOther || !strings.Contains(e.Message, "base_url") {
				t.Errorf("%q: error %v", body, err)
			}
		}
	}
	old, _ := serve(t, http.StatusOK, `{"parameters":"stop \"x y\"\nnum_ctx -1","model_info":{"llama.context_length":"many"}}`)
	if info, err := open(t, modeltest.Target{BaseURL: old}).Show(t.Context(), "x"); err != nil || info.Capabilities {
		t.Errorf("info %+v, error %v", info, err)
	}
}
