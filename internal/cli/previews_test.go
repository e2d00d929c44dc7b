package cli_test

import (
	"encoding/json"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/toolcrib/toolcrib"
)

// writesOf are calls of each built-in tool that can write, and what a preview must say
// of them. A tool without a call here fails the script: whoever adds one says how it
// is shown to the person who decides.
func writesOf() map[string][]struct{ arguments, says string } {
	return map[string][]struct{ arguments, says string }{
		"write_file": {{`{"path":"new.txt","content":"fresh\n"}`, "+fresh"}, {`{"path":"old.txt","content":"second\n"}`, "-first"}},
		"edit_file":  {{`{"path":"old.txt","old_text":"first","new_text":"second"}`, "+second"}},
		"exec_shell": {{`{"command":"touch made.txt","write":true}`, "touch made.txt"}},
		"web_fetch":  {{`{"url":"https://example.com/x","method":"POST","body":"fresh"}`, "POST https://example.com/x"}},
		"memory_write": {
			{`{"key":"notes","content":"fresh"}`, "+fresh"}, {`{"key":"notes","content":"fresh","mode":"overwrite"}`, "+fresh"},
		},
	}
}

// cmdPreviews calls each built-in tool that can write, and wants that what it would
// change is shown by approvals list and approvals show: previews FLAGS.
func cmdPreviews(ts *testscript.TestScript, _ bool, args []string) {
	toolcribJSON := func(v any, more ...string) {
		ts.Check(ts.Exec("toolcrib", append(args[:len(args):len(args)], more...)...))
		ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), v))
	}
	var tools []struct {
		Name   string          `json:"name"`
		Effect toolcrib.Effect `json:"effect"`
	}
	toolcribJSON(&tools, "tools", "list", "--json")
	samples, shown := writesOf(), 0
	for _, tool := range tools {
		if !tool.Effect.OrStrictest().Writes() {
			continue
		}
		if len(samples[tool.Name]) == 0 {
			ts.Fatalf("%s can write, and there is no call of it to look at the preview of", tool.Name)
		}
		for _, sample := range samples[tool.Name] {
			call := append(args[:len(args):len(args)], "tools", "call", tool.Name, "--args", sample.arguments)
			if code := exitCode(ts.Exec("toolcrib", call...)); code != 3 {
				ts.Fatalf("%s %s: exit code %d, not parked", tool.Name, sample.arguments, code)
			}
			var pending []struct {
				Calls []struct {
					Preview *toolcrib.Preview `json:"preview"`
				} `json:"calls"`
			}
			toolcribJSON(&pending, "approvals", "list", "--json")
			if p := pending[0].Calls[0].Preview; p == nil || !strings.Contains(p.Text, sample.says) {
				ts.Fatalf("%s %s: the list shows %+v", tool.Name, sample.arguments, p)
			}
			ts.Check(ts.Exec("toolcrib", append(args[:len(args):len(args)], "approvals", "show", "last")...))
			if text := ts.ReadFile("stdout"); !strings.Contains(text, sample.says) {
				ts.Fatalf("%s %s: approvals show tells\n%s", tool.Name, sample.arguments, text)
			}
			ts.Check(ts.Exec("toolcrib", append(args[:len(args):len(args)], "runs", "cancel", "last")...))
			shown++
		}
	}
	if shown < 6 {
		ts.Fatalf("only %d previews were looked at", shown)
	}
}
