package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
)

// TestLeanOffer measures the tools of the default request: a local run without
// --admin and without a database, as the OpenAI API gets it.
func TestLeanOffer(t *testing.T) {
	t.Parallel()
	const most = 6500
	var body struct {
		Tools json.RawMessage `json:"tools"`
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(data, &body)
		}
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	}))
	defer server.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The tests are the program, too, when they are called so.
	home := t.TempDir()
	if err := os.Symlink(self, home+"/toolcrib"); err != nil {
		t.Skip(err)
	}
	run := exec.Command(home+"/toolcrib", "run", "hello")
	run.Dir = t.TempDir()
	run.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "OPENAI_API_KEY=sk-test-key", "OPENAI_BASE_URL=" + server.URL}
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var tools []struct {
		Function struct {
			Name, Description string
			Parameters        json.RawMessage
		}
	}
	if err := json.Unmarshal(body.Tools, &tools); err != nil || len(tools) < 10 {
		t.Fatalf("%v: %s", err, body.Tools)
	}
	if len(body.Tools) > most {
		t.Errorf("the tools have %d bytes, more than %d:", len(body.Tools), most)
		for _, tool := range tools {
			t.Logf("%5d %s", len(tool.Function.Description)+len(tool.Function.Parameters), tool.Function.Name)
		}
	}
	for _, tool := range tools {
		if tool.Function.Description == "" {
			t.Errorf("%s has no description", tool.Function.Name)
		}
	}
}
