package verify_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/verify"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

func TestN1_VerifyConforms(t *testing.T) {
	one := `{"checks": [{"kind": "contains", "target_text": "abc", "value": "b"}]}`
	tooltest.Run(t, func() toolcrib.Tool { return verify.New(verify.Options{Shell: true})[0] }, tooltest.Cases{Calls: []tooltest.Case{
		{Name: "one", Arguments: one},
		{Name: "named", Arguments: `{"checks": [{"id": "abc has b", "kind": "contains", "target_text": "abc", "value": "b"}]}`},
		{Name: "none", Arguments: `{"checks": []}`, Err: toolcrib.InvalidArguments},
		{Name: "nothing", Arguments: `{}`, Invalid: true, Err: toolcrib.InvalidArguments},
		{Name: "an ID that is a number", Arguments: `{"checks": [{"id": 7, "kind": "contains"}]}`, Invalid: true, Err: toolcrib.InvalidArguments},
		{Name: "allow_shell", Arguments: `{"checks": [{"kind": "contains", "allow_shell": true}]}`, Invalid: true},
		{Name: "allow_shell above", Arguments: `{"allow_shell": true, "checks": []}`, Invalid: true, Err: toolcrib.InvalidArguments},
		{Name: "kind", Arguments: `{"checks": [{"kind": "guess"}]}`, Invalid: true},
	}})
	tooltest.Run(t, func() toolcrib.Tool { return verify.New(verify.Options{})[0] }, tooltest.Cases{Calls: []tooltest.Case{
		{Name: "one", Arguments: one},
		{Name: "shell", Arguments: `{"checks": [{"kind": "shell", "cmd": "true"}]}`, Invalid: true},
	}})
}

type results struct {
	ChecksRun int `json:"checks_run"`
	Results   []struct {
		ID, Kind, Reason string
		Passed           bool
	}
	AllPassed bool `json:"all_passed"`
	Summary   string
}

func run(t *testing.T, call toolcrib.Call, checks ...string) results {
	t.Helper()
	call.Arguments = json.RawMessage(`{"checks": [` + strings.Join(checks, ",") + `]}`)
	out, err := verify.New(verify.Options{Shell: true})[0].Call(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	var got results
	if err := json.Unmarshal(out.JSON, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

// Row 3b: the kinds of verify.
func TestX2_VerifyTextChecks(t *testing.T) {
	for _, c := range []struct{ check, reason string }{
		{`{"kind":"contains","target_text":"Hello","value":"ell"}`, "ok"},
		{`{"kind":"contains","target_text":"Hello","value":"ELL"}`, `failed: target_text does not contain "ELL"`},
		{`{"kind":"contains","target_text":"Hello","value":"ELL","case_insensitive":true}`, "ok"},
		{`{"kind":"contains","target_text":"Hello"}`, "failed: value or values is missing"},
		{`{"kind":"contains","target_text":"Hello","value":5}`, "failed: value must be a string"},
		{`{"kind":"not_contains","target_text":"Hello","value":"x"}`, "ok"},
		{`{"kind":"not_contains","target_text":"Hello","values":["x","H"]}`, `failed: target_text contains "H"`},
		{`{"kind":"regex_match","target_text":"Hello 42","value":"\\d+$"}`, "ok"},
		{`{"kind":"regex_match","target_text":"Hello","value":"^h"}`, `failed: target_text does not match "^h"`},
		{`{"kind":"regex_match","target_text":"Hello","value":"^h","case_insensitive":true}`, "ok"},
		{`{"kind":"regex_match","target_text":"Hello","value":"("}`, "failed: error parsing regexp: missing closing ): `(`"},
		{`{"kind":"regex_match","target_text":"","value":"` + strings.Repeat("a", 1025) + `"}`, "failed: the regular expression is longer than 1024 bytes"},
		{`{"kind":"contains_any","target_text":"Hello","values":["x","llo"]}`, "ok"},
		{`{"kind":"contains_any","target_text":"Hello","values":["x","y"]}`, "failed: target_text contains none of the 2 values"},
		{`{"kind":"contains_all","target_text":"Hello","values":["H","o"]}`, "ok"},
		{`{"kind":"contains_all","target_text":"Hello","values":["H","y"]}`, `failed: target_text does not contain "y"`},
		{`{"kind":"min_length","target_text":"äöü","value":3}`, "ok"},
		{`{"kind":"min_length","target_text":"äöü","value":4}`, "failed: target_text has 3 characters, fewer than 4"},
		{`{"kind":"min_length","target_text":"äöü","value":"4"}`, "failed: value must be a number of characters"},
		{`{"kind":"min_length","target_text":"äöü"}`, "failed: value must be a number of characters"},
		{`{"kind":"other"}`, `failed: unknown kind "other"`},
		{`{"kind":"shell","cmd":"true"}`, "failed: exec_shell cannot be called from here"},
		{`{"kind":"url_head","url":"https://example.org"}`, "failed: web_fetch cannot be called from here"},
		{`{"kind":"shell"}`, "failed: cmd is missing"},
		{`{"kind":"url_head"}`, "failed: url is missing"},
	} {
		got := run(t, toolcrib.Call{}, c.check)
		if r := got.Results[0]; r.Reason != c.reason || r.Passed != (c.reason == "ok") || got.AllPassed != r.Passed {
			t.Errorf("%s:\n got %+v\nwant %s", c.check, got, c.reason)
		}
	}
}

func TestX2_VerifySummary(t *testing.T) {
	got := run(t, toolcrib.Call{}, `{"id":"long enough","kind":"min_length","target_text":"a","value":1}`, `{"kind":"min_length","target_text":"a","value":2}`)
	if got.ChecksRun != 2 || got.AllPassed || got.Summary != "1 of 2 checks passed" ||
		got.Results[0].ID != "long enough" || got.Results[1].ID != "check2" || got.Results[1].Kind != "min_length" {
		t.Errorf("got %+v", got)
	}
}

func TestX2_VerifyMissingChecks(t *testing.T) {
	tool := verify.New(verify.Options{})[0]
	many := `{"checks": [` + strings.Repeat(`{"kind":"x"},`, 50) + `{"kind":"x"}]}`
	for arguments, want := range map[string]string{
		`{}`: "invalid arguments: VERIFY_MISSING_CHECKS", `{"checks":[]}`: "invalid arguments: VERIFY_MISSING_CHECKS", many: "invalid arguments: VERIFY_TOO_MANY_CHECKS",
	} {
		_, err := tool.Call(t.Context(), toolcrib.Call{Arguments: json.RawMessage(arguments)})
		if made := (*toolcrib.ToolError)(nil); !errors.As(err, &made) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40s: %v", arguments, err)
		}
	}
}

func TestX2_VerifyNestedChecks(t *testing.T) {
	var asked []string
	answer := func(invoked toolcrib.Invoked, err error) toolcrib.Call {
		return toolcrib.Call{Invoke: func(_ context.Context, name string, arguments json.RawMessage) (toolcrib.Invoked, error) {
			asked = append(asked, fmt.Sprintf("%s %s", name, arguments))
			return invoked, err
		}}
	}
	ok := func(content string) toolcrib.Call {
		return answer(toolcrib.Invoked{Status: toolcrib.ResultOK, Content: content}, nil)
	}
	wrapped := "<untrusted_input source=\"web:a.example\">\n<canary>CC_CANARY_0123</canary>\n{\"status\":404,\"body\":\"{\\\"status\\\":200}\"}\n</untrusted_input>"
	for _, c := range []struct {
		call          toolcrib.Call
		check, reason string
	}{
		{ok(`{"exit_code":0,"stdout":"fine\n"}`), `{"kind":"shell","cmd":"make <x>","timeout_s":5}`, "ok"},
		{ok(`{"exit_code":1,"stdout":""}`), `{"kind":"shell","cmd":"x"}`, "failed: exit status 1, expected 0"},
		{ok(`{"exit_code":1,"stdout":""}`), `{"kind":"shell","cmd":"x","expect_exit":1}`, "ok"},
		{ok(`{"exit_code":0,"stdout":"a"}`), `{"kind":"shell","cmd":"x","expect_stdout_contains":"b"}`, `failed: the output does not contain "b"`},
		{ok(`{"exit_code":0,"stdout":"a1"}`), `{"kind":"shell","cmd":"x","expect_stdout_regex":"a[0-9]"}`, "ok"},
		{ok(`{"exit_code":0,"stdout":"a1"}`), `{"kind":"shell","cmd":"x","expect_stdout_regex":"["}`, "failed: error parsing regexp: missing closing ]: `[`"},
		{ok(`{"_truncated_json":"{"}`), `{"kind":"shell","cmd":"x"}`, "failed: exec_shell returned no exit status"},
		{ok(`plain`), `{"kind":"shell","cmd":"x"}`, "failed: the result of exec_shell could not be read"},
		{answer(toolcrib.Invoked{Status: toolcrib.ResultError, Content: `{"exit_code":2}`}, nil), `{"kind":"shell","cmd":"x","expect_exit":2}`, "ok"},
		{answer(toolcrib.Invoked{Status: toolcrib.ResultRefused, Reason: toolcrib.ReasonNotRegistered}, nil), `{"kind":"shell","cmd":"x"}`, "failed: exec_shell was refused: not_registered"},
		{answer(toolcrib.Invoked{Status: toolcrib.ResultTimeout}, nil), `{"kind":"shell","cmd":"x"}`, `failed: exec_shell ended with status "timeout"`},
		{answer(toolcrib.Invoked{}, errors.New("password=hunter2")), `{"kind":"shell","cmd":"x"}`, "failed: exec_shell could not be called"},
		{ok(`{"status":200}`), `{"kind":"url_head","url":"https://a.example"}`, "ok"},
		{ok(wrapped), `{"kind":"url_head","url":"https://a.example"}`, "failed: status 404, expected 200"},
		{ok(wrapped), `{"kind":"url_head","url":"https://a.example","expect_status":404}`, "ok"},
		{answer(toolcrib.Invoked{Status: toolcrib.ResultError, Content: `{"error":"permission denied: host"}`}, nil), `{"kind":"url_head","url":"x"}`, "failed: web_fetch: permission denied: host"},
	} {
		if got := run(t, c.call, c.check).Results[0]; got.Reason != c.reason {
			t.Errorf("%s:\n got %s\nwant %s", c.check, got.Reason, c.reason)
		}
	}
	if asked[0] != `exec_shell {"command":"make <x>","timeout":5}` || asked[12] != `web_fetch {"method":"HEAD","url":"https://a.example"}` {
		t.Errorf("asked %q", asked)
	}
}

func TestX2_VerifyIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	call := toolcrib.Call{
		Arguments: json.RawMessage(`{"checks":[{"kind":"shell","cmd":"x"}]}`),
		Invoke: func(context.Context, string, json.RawMessage) (toolcrib.Invoked, error) {
			cancel()
			return toolcrib.Invoked{}, ctx.Err()
		},
	}
	if _, err := verify.New(verify.Options{Shell: true})[0].Call(ctx, call); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestX2_VerifyWithoutShell(t *testing.T) {
	call := toolcrib.Call{
		Arguments: json.RawMessage(`{"checks":[{"kind":"shell","cmd":"x"}]}`),
		Invoke: func(context.Context, string, json.RawMessage) (toolcrib.Invoked, error) {
			t.Error("invoked")
			return toolcrib.Invoked{}, nil
		},
	}
	out, err := verify.New(verify.Options{})[0].Call(t.Context(), call)
	if err != nil || !strings.Contains(string(out.JSON), "failed: checks of kind shell are not available here") {
		t.Errorf("got %s %v", out.JSON, err)
	}
}
