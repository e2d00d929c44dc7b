package guard

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"pgregory.net/rapid"
)

func TestRefusalIsExact(t *testing.T) {
	for _, c := range []struct {
		r    Refusal
		want string
	}{
		{
			Refusal{Tool: "X", Reason: toolcrib.ReasonNotOffered, Message: `tool "X" <was> not offered & more`},
			`{"refused":true,"tool":"X","reason":"not_offered","message":"tool \"X\" <was> not offered & more"}`,
		},
		{Refusal{}, `{"refused":true,"tool":"","reason":"","message":""}`},
		{
			Refusal{
				Tool: "exec_shell", Reason: toolcrib.ReasonRuleDenied, Message: "Ask before you push.\nNow.", OperatorHint: "see rules", Rule: "pushes",
				SchemaError: json.RawMessage(`{ "path" : "/a", "expected": "\u003cstring\u003e" }`),
			},
			`{"refused":true,"tool":"exec_shell","reason":"rule_denied","message":"Ask before you push.\nNow.","operator_hint":"see rules","rule":"pushes","schema_error":{"path":"/a","expected":"<string>"}}`,
		},
		{
			Refusal{Tool: "a\x00b\xff", Reason: toolcrib.ReasonInvalidArguments, Message: "m", SchemaError: json.RawMessage(`no "json`)},
			"{\"refused\":true,\"tool\":\"ab\uFFFD\",\"reason\":\"invalid_arguments\",\"message\":\"m\",\"schema_error\":\"no \\\"json\"}",
		},
	} {
		if got := c.r.JSON(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestErrorJSONIsExact(t *testing.T) {
	for message, want := range map[string]string{
		"not found: notes.txt": `{"error":"not found: notes.txt"}`,
		"say \"<b>\"\n\x00é":   `{"error":"say \"<b>\"\né"}`,
		"":                     `{"error":""}`,
	} {
		if got := ErrorJSON(message, 0); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	got := ErrorJSON(strings.Repeat("x", 1000), 300)
	if len(got) != 300 || !strings.HasPrefix(got, `{"error":"xxx`) || !strings.HasSuffix(got, `x... [truncated, original size: 1002 bytes]"}`) {
		t.Errorf("got %s", got)
	}
	if got := ErrorJSON(strings.Repeat("x", 300), 1); len(got) != MinResultBytes {
		t.Errorf("%d bytes", len(got))
	}
}

func TestN21_FaultJSONIsExact(t *testing.T) {
	if got, want := FaultJSON("web_fetch", "ref_1"), `{"error":"tool \"web_fetch\" failed","ref":"ref_1"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestEnvelopesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Repeat(drawBytes(t, "text"), rapid.SampledFrom([]int{1, 1, 400}).Draw(t, "times"))
		limit := rapid.IntRange(0, 4000).Draw(t, "limit")
		r := Refusal{Tool: text, Reason: toolcrib.Reason(text), Message: text, OperatorHint: text, Rule: text, SchemaError: json.RawMessage(text)}
		for _, got := range []string{r.JSON(), ErrorJSON(text, limit), FaultJSON(text, text)} {
			if !validJSON([]byte(got)) || len(got) > 16<<10 && limit > 0 {
				t.Fatalf("%q became %d bytes: %s", text, len(got), got)
			}
		}
		if got := ErrorJSON(text, limit); limit > 0 && len(got) > max(limit, MinResultBytes) {
			t.Fatalf("%d bytes of %d", len(got), limit)
		}
	})
}
