package modeltest_test

import (
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

func TestServer_KeyAndBodies(t *testing.T) {
	s := modeltest.NewServer(modeltest.OpenAI, modeltest.ServerOptions{Steps: modeltest.Steps(modeltest.Text("hi")), APIKey: "right", KeepBodies: -1})
	if got := post(t, s, modeltest.OpenAI, goodOpenAI); got != 401 {
		t.Errorf("without the key: status %d", got)
	}
	s = modeltest.NewServer(modeltest.OpenAI, modeltest.ServerOptions{Steps: modeltest.Steps(modeltest.Text("hi")), KeepBodies: -1})
	if got := post(t, s, modeltest.OpenAI, goodOpenAI); got != 200 || len(s.Requests()) != 0 || s.Count() != 1 {
		t.Errorf("status %d, %d bodies, %d requests", got, len(s.Requests()), s.Count())
	}
	s = modeltest.NewServer(modeltest.OpenAI, modeltest.ServerOptions{AllowFields: []string{"num_ctx"}})
	if got := post(t, s, modeltest.OpenAI, strings.Replace(goodOpenAI, `"model"`, `"num_ctx":1,"model"`, 1)); got != 200 {
		t.Errorf("with an allowed field: status %d, %v", got, s.Errors())
	}
}

func TestFixtures_AreComplete(t *testing.T) {
	for _, d := range []modeltest.Dialect{modeltest.OpenAI, modeltest.Anthropic} {
		list, err := modeltest.Fixtures(d)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) < 10 {
			t.Errorf("%s: %d recorded replies", d, len(list))
		}
	}
}
