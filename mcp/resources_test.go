package mcp_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/mcp"
)

func TestResources_AreListedAndRead(t *testing.T) {
	c := start(t, program("server"), mcp.Options{})
	servers := map[string]*mcp.Client{"srv": c}
	tools := map[string]toolcrib.Tool{}
	for _, tool := range mcp.ResourceTools(func() map[string]*mcp.Client { return servers }) {
		spec := tool.Spec()
		if err := spec.Check(); err != nil || spec.Effect != toolcrib.EffectReadOnly || !spec.Untrusted || !spec.Sink {
			t.Errorf("%+v, %v", spec, err)
		}
		tools[spec.Name] = tool
	}
	read := func(name, arguments string) (toolcrib.Output, error) {
		return tools[name].Call(t.Context(), toolcrib.Call{Arguments: json.RawMessage(arguments)})
	}
	out, err := read(mcp.ListResources, `{}`)
	if err != nil || string(out.JSON) != `{"resources":[{"server":"srv","uri":"doc://one","name":"one"}]}` {
		t.Errorf("listed: %s, %v", out.JSON, err)
	}
	out, err = read(mcp.ReadResource, `{"server":"srv","uri":"doc://one"}`)
	if err != nil || out.Text != "text\n[\"application/zip\" of 3 bytes is left out]" || len(out.Files) != 1 || !out.Untrusted ||
		out.Source != "mcp:srv" {
		t.Errorf("read: %+v, %v", out, err)
	}
	for _, arguments := range []string{
		`{"server":"srv","uri":"doc://two"}`, `{"server":"srv","uri":""}`, `{"server":"other","uri":"doc://one"}`,
		`{"server":"srv","uri":"` + strings.Repeat("x", 5000) + `"}`,
	} {
		out, err := read(mcp.ReadResource, arguments)
		var failure *toolcrib.ToolError
		if !errors.As(err, &failure) {
			t.Errorf("%.50s: %+v, %v", arguments, out, err)
		}
	}
	c.Close()
	out, err = read(mcp.ListResources, `{}`)
	if err != nil || !strings.Contains(string(out.JSON), `"problems":{"srv":`) {
		t.Errorf("of a server that has gone: %s, %v", out.JSON, err)
	}
}

func TestPrompts_AreListedAndMade(t *testing.T) {
	c := start(t, program("server"), mcp.Options{})
	offers := c.Offers()
	if len(offers.Prompts) != 1 || offers.Prompts[0].Name != "talk" || !offers.Prompts[0].Arguments[0].Required ||
		!offers.Resources {
		t.Errorf("offers = %+v", offers)
	}
	out, err := c.Prompt(t.Context(), "talk", map[string]string{"of": "rain"})
	if err != nil || out.Text != "Talk of rain\n\nAssistant:\n\nWell." || out.Source != "mcp:srv" {
		t.Errorf("%+v, %v", out, err)
	}
	if _, err := c.Prompt(t.Context(), "other", nil); err == nil {
		t.Error("a prompt that is not there was made")
	}
}
