package modeltest_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

func post(t *testing.T, s *modeltest.Server, d modeltest.Dialect, body string) int {
	t.Helper()
	path := "/v1/chat/completions"
	if d == modeltest.Anthropic {
		path = "/v1/messages"
	}
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Anthropic-Version", "2023-06-01")
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w.Code
}

func TestServer_Key(t *testing.T) {
	for key, want := range map[string]int{"right": 401, "": 200} {
		s := modeltest.NewServer(modeltest.OpenAI,
			modeltest.ServerOptions{Steps: modeltest.Steps(modeltest.Text("hi")), APIKey: key})
		if got := post(t, s, modeltest.OpenAI, goodOpenAI); got != want {
			t.Errorf("key %q: status %d, want %d", key, got, want)
		}
	}
}

func TestServer_Refuses(t *testing.T) {
	s := modeltest.NewServer(modeltest.OpenAI, modeltest.ServerOptions{Refuses: func(_ string, body []byte) error {
		if strings.Contains(string(body), "num_ctx") {
			return errors.New("num_ctx is unknown")
		}
		return nil
	}})
	if got := post(t, s, modeltest.OpenAI, goodOpenAI); got != 200 {
		t.Errorf("status %d, %v", got, s.Errors())
	}
	if got := post(t, s, modeltest.OpenAI, strings.Replace(goodOpenAI, `"model"`, `"num_ctx":1,"model"`, 1)); got != 400 ||
		s.Errors() == nil {
		t.Errorf("a field that the API refuses: status %d, %v", got, s.Errors())
	}
}

func TestFixtures_AreComplete(t *testing.T) {
	for d, least := range map[modeltest.Dialect]int{
		modeltest.OpenAI: 10, modeltest.Anthropic: 10, modeltest.Gemini: 20,
		modeltest.Ollama: 20, modeltest.LlamaCpp: 5,
	} {
		list, err := modeltest.Fixtures(d)
		if err != nil || len(list) < least {
			t.Errorf("%s: %d recorded replies, error %v", d, len(list), err)
		}
	}
}

func TestGeminiServer(t *testing.T) {
	s := modeltest.NewServer(modeltest.Gemini, modeltest.ServerOptions{Steps: modeltest.Steps(modeltest.Text("hi"),
		modeltest.Text("ho")), APIKey: "right", ByTurn: true})
	ask := func(path, key, body string) (int, string) {
		r := httptest.NewRequest("POST", path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Goog-Api-Key", key)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	const question = `{"contents":[{"role":"user","parts":[{"text":"q"}]}]}`
	for _, tt := range []struct {
		path, key, body string
		status          int
		want            string
	}{
		{"/v1beta/models/m:generateContent", "right", question, 200, `"text":"hi"`},
		{"/v1beta/models/m:streamGenerateContent?alt=sse", "right", question, 200, "data: {"},
		{
			"/v1beta/models/m:generateContent", "right",
			`{"contents":[{"role":"user","parts":[{"text":"q"}]},{"role":"model","parts":[{"text":"a"}]},{"role":"user","parts":[{"text":"q"}]}]}`, 200, `"text":"ho"`,
		},
		{"/v1beta/models/m:generateContent", "wrong", question, 401, "UNAUTHENTICATED"},
		{"/v1beta/models/m:streamGenerateContent", "right", question, 404, "NOT_FOUND"},
		{"/v1beta/models/m:generateContent?alt=sse", "right", question, 404, "NOT_FOUND"},
		{"/v1beta/models/m:embedContent", "right", question, 404, "NOT_FOUND"},
		{"/v1beta/models/m", "right", question, 404, "NOT_FOUND"},
		{"/v1beta/models/m:generateContent", "right", `{"contents":[]}`, 400, "INVALID_ARGUMENT"},
	} {
		status, body := ask(tt.path, tt.key, tt.body)
		if status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s: status %d, want %d; body %s", tt.path, status, tt.status, body)
		}
	}
	if s.Errors() == nil {
		t.Error("the bad request is not kept")
	}
}

func TestServers_LocalRoutes(t *testing.T) {
	for path, d := range map[string]modeltest.Dialect{
		"GET /api/tags":  modeltest.Ollama,
		"POST /api/show": modeltest.Ollama, "GET /props": modeltest.LlamaCpp, "GET /health": modeltest.LlamaCpp,
	} {
		method, path, _ := strings.Cut(path, " ")
		for key, want := range map[string]int{"right": 200, "wrong": 401} {
			s := modeltest.NewServer(d, modeltest.ServerOptions{APIKey: "right"})
			r := httptest.NewRequest(method, path, strings.NewReader("{}"))
			r.Header.Set("Authorization", "Bearer "+key)
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s %s with the %s key: status %d, want %d", method, path, key, w.Code, want)
			}
		}
	}
}

func TestResponsesServer_RefusesWhatTheAPIRefuses(t *testing.T) {
	s := modeltest.NewServer(modeltest.Responses, modeltest.ServerOptions{Steps: modeltest.Steps(modeltest.Text("hi"))})
	for body, want := range map[string]int{
		`{"model":"m","input":[]}`: http.StatusBadRequest,
		goodResponses:              http.StatusOK,
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/responses", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("status %d, want %d: %s", w.Code, want, body)
		}
	}
	if s.Errors() == nil || s.Count() != 2 {
		t.Errorf("errors %v, %d requests", s.Errors(), s.Count())
	}
}
