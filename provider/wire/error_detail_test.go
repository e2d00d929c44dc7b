package wire_test

import (
	"net/http"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// Errors of compatible servers, each in its own form.
func TestStatusError_ShapesOfServers(t *testing.T) {
	tests := []struct {
		name, body, message string
		status              int
		class               toolcrib.ErrorClass
		noTools             bool
	}{
		{
			name: "Mistral 422", status: 422, class: toolcrib.ErrBadRequest, message: "HTTP 422: body.messages.0.user.name: Extra inputs are not permitted",
			body: `{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","messages",0,"user","name"],"msg":"Extra inputs are not permitted","input":""}]},"type":"invalid_request_error","param":null,"code":null}`,
		},
		{
			name: "FastAPI list", status: 422, class: toolcrib.ErrBadRequest, message: "HTTP 422: body.model: Field required; body.n: bad",
			body: `{"detail":[{"loc":["body","model"],"msg":"Field required","type":"missing"},{"loc":["body","n"],"msg":"bad","type":"x"}]}`,
		},
		{
			name: "detail in a string", status: 422, class: toolcrib.ErrBadRequest, message: "HTTP 422: body.n: no",
			body: `{"object":"error","message":"{\"detail\":[{\"loc\":[\"body\",\"n\"],\"msg\":\"no\"}]}","type":"internal_error_proxy","code":"1000"}`,
		},
		{name: "detail", status: 400, class: toolcrib.ErrBadRequest, message: "HTTP 400: nope", body: `{"detail":"nope"}`},
		{name: "a message that looks like JSON", status: 400, class: toolcrib.ErrBadRequest, message: "HTTP 400: [1] is bad", body: `{"error":{"message":"[1] is bad"}}`},
		{
			name: "vLLM", status: 400, class: toolcrib.ErrContextLength, message: "HTTP 400: This model's maximum context length is 4096 tokens.",
			body: `{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","param":null,"code":400}`,
		},
		{
			name: "OpenRouter passes on", status: 400, class: toolcrib.ErrBadRequest, message: "HTTP 400: Provider returned error: Mistral: Unexpected role 'user' after role 'tool'",
			body: `{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"object\":\"error\",\"message\":\"Unexpected role 'user' after role 'tool'\"}","provider_name":"Mistral"}}}`,
		},
		{
			name: "OpenRouter no tools", status: 404, class: toolcrib.ErrBadRequest, noTools: true, message: "HTTP 404: No endpoints found that support tool use. (check base_url and the model's name)",
			body: `{"error":{"message":"No endpoints found that support tool use.","code":404}}`,
		},
		{
			name: "Ollama no tools", status: 400, class: toolcrib.ErrBadRequest, noTools: true, message: "HTTP 400: registry.ollama.ai/library/gemma:2b does not support tools",
			body: `{"error":{"message":"registry.ollama.ai/library/gemma:2b does not support tools","type":"api_error","param":null,"code":null}}`,
		},
		{
			name: "Groq no tools", status: 400, class: toolcrib.ErrBadRequest, noTools: true, message: "HTTP 400: `tool calling` is not supported with this model",
			body: "{\"error\":{\"message\":\"`tool calling` is not supported with this model\",\"type\":\"invalid_request_error\"}}",
		},
		{
			name: "tools only beside reasoning", status: 400, class: toolcrib.ErrBadRequest, message: "HTTP 400: Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions.",
			body: `{"error":{"message":"Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions.","type":"invalid_request_error"}}`,
		},
		{
			name: "Azure filter", status: 400, class: toolcrib.ErrRefused, message: "HTTP 400: The response was filtered",
			body: `{"error":{"message":"The response was filtered","type":null,"param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := wire.StatusError(tt.status, http.Header{}, []byte(tt.body))
			if e.Class != tt.class || e.Message != tt.message || e.NoTools != tt.noTools {
				t.Errorf("%s %q, no tools %t; want %s %q, %t", e.Class, e.Message, e.NoTools, tt.class, tt.message, tt.noTools)
			}
		})
	}
}

func TestSaysNoTools(t *testing.T) {
	for message, want := range map[string]bool{
		"": false, "tool_choice 'required' is not supported": false, "tools: too many": false,
		"Tool use is not supported by this model.":                     true,
		"Function calling is not enabled for this model":               true,
		"\"auto\" tool choice requires --enable-auto-tool-choice and…": true,
		"Unsupported parameter: 'tools' is not supported with o1-mini": true,
	} {
		if got := wire.SaysNoTools(message); got != want {
			t.Errorf("%q: %t, want %t", message, got, want)
		}
	}
}

// Some APIs repeat a rejected key; it is masked as in all other texts.
func TestLine_ShowsNoKey(t *testing.T) {
	const key = "sk-abcdefghijklmnop0123"
	for in, want := range map[string]string{
		"Incorrect API key provided: " + key + ".":    "Incorrect API key provided: " + guard.Redacted + ".",
		"Authorization: Bearer " + key + "\nand more": "Authorization: " + guard.Redacted,
		"no\x1bkey   here":                            "no key here",
	} {
		if got := wire.Line(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := wire.Mask("key "+key, key); got != "key "+guard.Redacted {
		t.Errorf("Mask: %q", got)
	}
}
