package server_test

import (
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

// H19, H20: a capability is called by its name and version as the tool that is bound to it, with the trust of the user.
func TestH20_CapabilityOverHTTP(t *testing.T) {
	h := open(t, `
bus: {offers: {files.list@1.0: {tool: list_directory}}}
tools:
  bound:
    list_far: {capability: files.list@1.0, effect: read_only, untrusted: false, params: {path: "{args.path}"}}
`)
	ann := h.token("ann", access.Scope{})
	type called struct {
		CallID  string `json:"tool_call_id"`
		Content string
		IsError bool `json:"is_error"`
	}
	const envelope = `{"params":{},"input":{"tool_call_id":"c1","target_capability":"files.list@1.0","target_body":{"params":{"path":"."}}}}`
	var out called
	h.want(200, &out, "POST", "/api/tools/call", ann, envelope)
	if !out.IsError || !strings.Contains(out.Content, `"error":"unauthorized"`) {
		t.Errorf("a user without trust: %+v", out)
	}
	trust := toolcrib.TrustMember
	if _, _, err := h.service.People.EditUser(t.Context(), root, "ann", access.Edit{Trust: &trust}); err != nil {
		t.Fatal(err)
	}
	h.want(200, &out, "POST", "/api/tools/call", ann, envelope)
	if out.IsError || out.CallID != "c1" || !strings.Contains(out.Content, "[") {
		t.Errorf("a member: %+v", out)
	}
	h.want(200, &out, "POST", "/api/tools/call", ann, `{"target_capability":"files.list@1.0","target_body":{"params":{"path":"."}}}`)
	if out.IsError {
		t.Errorf("without the envelope: %+v", out)
	}
	for body, status := range map[string]int{
		`{"target_capability":"files.list@1.0","target_body":{"params":{"other":"."}}}`: 400,
		`{"target_capability":"files.list@1.0","target_body":[]}`:                       400,
		`{"target_capability":"files.list@1.0","target_body":{"path":"."}}`:             400,
		`{"target_capability":"files.list@","target_body":{}}`:                          400,
		`{"target_capability":"no.such@1.0","target_body":{}}`:                          404,
	} {
		h.want(status, nil, "POST", "/api/tools/call", ann, body)
	}
}
