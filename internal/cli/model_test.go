package cli_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// canaries are the tokens that mark untrusted data.
var canaries = regexp.MustCompile(`CC_CANARY_[0-9A-F]+`)

// cmdModel plays a model of an API: it reads notes.txt, then writes out.txt, then
// answers. URL is its address; at the end of the script every request must have
// been as the API wants it: model openai|responses|anthropic|gemini|ollama|llamacpp.
// With canary behind it, it repeats the canary that it finds, in the call and the
// answer. With azure, every request must carry the version of the API in its address.
func cmdModel(ts *testscript.TestScript, _ bool, args []string) {
	call := func(id, name, arguments string) toolcrib.Reply {
		return modeltest.Calls(toolcrib.ToolCall{ID: id, Name: name, Arguments: []byte(arguments)})
	}
	options := modeltest.ServerOptions{ByTurn: true, Steps: modeltest.Steps(
		call("c1", "read_file", `{"path":"notes.txt"}`),
		call("c2", "write_file", `{"path":"out.txt","content":"hello"}`),
		modeltest.Text("the end"),
	)}
	if len(args) > 1 && args[1] == "canary" {
		options = modeltest.ServerOptions{Next: func(n int, body []byte) modeltest.Step {
			canary := string(canaries.Find(body))
			return modeltest.Steps(
				call("c1", "read_file", `{"path":"notes.txt"}`),
				call("c2", "write_file", `{"path":"out.txt","content":"`+canary+`"}`),
				modeltest.Text("it says "+canary+"!"),
			)[n%3]
		}}
	}
	versions := make(chan string, 16)
	options.OnRequest = func(r *http.Request) {
		select {
		case versions <- r.URL.Query().Get("api-version"):
		default:
		}
	}
	s := modeltest.NewServer(modeltest.Dialect(args[0]), options)
	server := httptest.NewServer(s.Handler())
	ts.Defer(func() {
		server.Close()
		close(versions)
		for v := range versions {
			if len(args) > 1 && args[1] == "azure" && v != "2025-04-01-preview" {
				panic("a request without its api-version")
			}
		}
		if err := s.Errors(); err != nil {
			ts.Logf("%s: %v", args[0], err)
			panic("a request was not as the API wants it: " + err.Error())
		}
	})
	url := server.URL
	if args[0] == "openai" || args[0] == "responses" || args[0] == "anthropic" || args[0] == "llamacpp" {
		url += "/v1"
	}
	ts.Setenv("URL", strings.TrimRight(url, "/"))
}
