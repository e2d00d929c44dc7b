package config_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib/internal/config"
)

func TestOffers(t *testing.T) {
	c, err := config.Parse("toolcrib.yaml", []byte(`
tools: {commands: {count: {command: [wc, -l]}}}
agents: {reader: {}}
bus:
  name: laptop
  offers:
    notes.search@1.2:
      tool: search_files
      description: Searches the notes.
      request: {type: object, required: [input]}
      params: {corpus: [notes, mail], deep: true}
      trust_required: trusted
      max_concurrent: 2
      timeout: 10s
      idempotent: true
    notes.count@1.0: {command: count}
    notes.ask@2.0: {agent: reader, trust_required: self}
`))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.OfferNames(); !cmp.Equal(got, []string{"notes.ask@2.0", "notes.count@1.0", "notes.search@1.2"}) {
		t.Errorf("offers %v", got)
	}
	o := c.Bus.Offers["notes.search@1.2"]
	want := map[string][]any{"corpus": {"notes", "mail"}, "deep": {true}}
	if key, name := o.Target(); key != "tool" || name != "search_files" || o.Trust != "trusted" || o.MaxConcurrent != 2 ||
		o.Timeout.Std() != 10*time.Second || !o.Idempotent || !json.Valid(o.Request) || !cmp.Equal(o.ParamValues(), want) {
		t.Errorf("%s %s: %+v, params %v", key, name, o, o.ParamValues())
	}
	plain := c.Bus.Offers["notes.count@1.0"]
	if key, name := plain.Target(); key != "command" || name != "count" || plain.Trust != "member" || plain.MaxConcurrent != 16 ||
		plain.Timeout.Std() != 30*time.Second || plain.ParamValues() != nil || plain.Request != nil {
		t.Errorf("defaults: %+v", plain)
	}
	if key, name := c.Bus.Offers["notes.ask@2.0"].Target(); key != "agent" || name != "reader" || c.Bus.Name != "laptop" {
		t.Errorf("%s %s", key, name)
	}
	if e := c.OfferError("notes.search@1.2", "tool", "is gone"); e.Line != 8 || !strings.Contains(e.Key, "tool") {
		t.Errorf("%+v", e)
	}
}

// Each fault of an offer has its line and key path.
func TestOffers_Errors(t *testing.T) {
	for _, c := range []struct{ what, offer, want string }{
		{"nothing", "a.b@1.0: {}", `toolcrib.yaml:3: bus.offers["a.b@1.0"]: needs exactly one of tool, command and agent; none is written`},
		{"two", "a.b@1.0: {tool: x, agent: default}", `toolcrib.yaml:3: bus.offers["a.b@1.0"]: needs exactly one of tool, command and agent; agent and tool are written`},
		{"no version", "a.b: {tool: x}", `toolcrib.yaml:3: bus.offers["a.b"]: "a.b" is not a valid name here: use NAME@MAJOR.MINOR with a dot in NAME, such as rag.query@1.0`},
		{"no dot", "ab@1.0: {tool: x}", `toolcrib.yaml:3: bus.offers["ab@1.0"]: "ab@1.0" is not a valid name here: use NAME@MAJOR.MINOR with a dot in NAME, such as rag.query@1.0`},
		{"own", "node.join@1.0: {tool: x}", `toolcrib.yaml:3: bus.offers["node.join@1.0"]: names that begin with llm. or node. are reserved, except llm.chat@2.0`},
		{"own model", "llm.chat@2.0: {tool: x}", `toolcrib.yaml:3: bus.offers["llm.chat@2.0"]: an agent serves llm.chat, not a tool or a command`},
		{"version of a model", "llm.chat@3.0: {agent: default}", `toolcrib.yaml:3: bus.offers["llm.chat@3.0"]: has no such version; valid: llm.chat@1.0, llm.chat@2.0`},
		{"command", "a.b@1.0: {command: x}", `toolcrib.yaml:3: bus.offers["a.b@1.0"].command: unknown command "x" (none is configured)`},
		{"agent", "a.b@1.0: {agent: defualt}", `toolcrib.yaml:3: bus.offers["a.b@1.0"].agent: unknown agent "defualt"; did you mean "default"? (valid: default)`},
		{"trust", "a.b@1.0: {tool: x, trust_required: friend}", `toolcrib.yaml:3: bus.offers["a.b@1.0"].trust_required: must be one of member, trusted, anchor, self, not "friend"`},
		{"schema", "a.b@1.0: {tool: x, request: {type: 7}}", `toolcrib.yaml:3: bus.offers["a.b@1.0"].request:`},
		{"params", "a.b@1.0: {tool: x, params: {corpus: {a: b}}}", `toolcrib.yaml:3: bus.offers["a.b@1.0"].params: "corpus": a value must be a text, a number, true or false, or a list of them`},
		{"bound", "a.b@1.0: {tool: x, max_concurrent: 0}", `toolcrib.yaml:3: bus.offers["a.b@1.0"].max_concurrent: must be at least 1`},
		{"key", "a.b@1.0: {tool: x, trust: member}", `toolcrib.yaml:3: bus.offers["a.b@1.0"].trust: unknown key "trust"`},
	} {
		_, err := config.Parse("toolcrib.yaml", []byte("bus:\n  offers:\n    "+c.offer))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", c.what, err, c.want)
		}
	}
}
