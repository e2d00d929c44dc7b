package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/npmtest"
	"github.com/toolcrib/toolcrib/mcp"
)

// inSuite is set in the clients of the conformance suite, which are this program.
const inSuite = "MCP_CONFORMANCE_SCENARIO"

// TestConformance runs the client scenarios of the official suite for 2025-11-25 and
// 2026-07-28; those about signing in are in mcp/signin. All of them pass.
func TestConformance(t *testing.T) {
	node, suite := npmtest.Conformance(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i, one := range []string{
		"initialize 2025-11-25", "tools_call 2025-11-25", "tools_call 2026-07-28", "sse-retry 2025-11-25",
		"elicitation-sep1034-client-defaults 2025-11-25", "request-metadata 2026-07-28",
		"sep-2322-client-request-state 2026-07-28", "http-standard-headers 2026-07-28", "http-custom-headers 2026-07-28",
		"http-invalid-tool-headers 2026-07-28", "json-schema-ref-no-deref 2026-07-28",
		"json-schema-2020-12-preservation 2025-11-25", "json-schema-2020-12-preservation 2026-07-28",
	} {
		if testing.Short() && i%4 != 0 {
			continue
		}
		t.Run(one, func(t *testing.T) {
			t.Parallel()
			scenario, version, _ := strings.Cut(one, " ")
			cmd := exec.CommandContext(t.Context(), node, suite,
				"client", "--command", self, "--scenario", scenario, "--spec-version", version)
			cmd.Dir = t.TempDir()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// conforming is a client of the conformance suite: it calls each tool of the server. A person
// takes the usual answer where there is one.
func conforming(url string) error {
	var about struct {
		ToolCalls []struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"toolCalls"`
	}
	_ = json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &about) // most scenarios have none
	c, err := mcp.New(mcp.Server{Name: "srv", URL: url}, mcp.Options{Version: "1"})
	if err != nil {
		return err
	}
	defer c.Close()
	c.Start()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if !c.Wait(ctx) || !c.State().Running {
		return fmt.Errorf("it does not run: %+v", c.State())
	}
	person := func(_ context.Context, _ string, arguments json.RawMessage) (toolcrib.Invoked, error) {
		var q struct{ Schema struct{ AnyOf []any } }
		if err := json.Unmarshal(arguments, &q); err != nil {
			return toolcrib.Invoked{}, err
		}
		answer := `"-"`
		if q.Schema.AnyOf == nil {
			answer = sample(arguments, "schema")
		}
		return toolcrib.Invoked{Status: toolcrib.ResultOK, Content: `{"answer":` + answer + `}`}, nil
	}
	call := func(name string, arguments json.RawMessage) error {
		tool, err := toolOf(c, name)
		if err == nil {
			_, err = tool.Call(ctx, toolcrib.Call{Arguments: arguments, Run: "run_1", Invoke: person})
		}
		return err
	}
	var all []error
	if len(about.ToolCalls) > 0 {
		for _, one := range about.ToolCalls {
			all = append(all, call("srv__"+one.Name, one.Arguments))
		}
		return errors.Join(all...)
	}
	given, defs := json.RawMessage(nil), c.Definitions()
	for _, d := range defs {
		given = json.RawMessage(arguments(d.Schema))
		if d.Tool == "json_schema_echo" { // it wants to see the schema of the other tool
			for _, other := range defs {
				if other.Tool == "json_schema_2020_12_tool" {
					given = json.RawMessage(`{"schema":` + string(other.Schema) + `}`)
				}
			}
		}
		all = append(all, call(d.Name, given))
	}
	return errors.Join(all...)
}

// arguments makes arguments for a schema.
func arguments(schema json.RawMessage) string {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	_ = json.Unmarshal(schema, &s) // one without properties has no arguments
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		fields = append(fields, fmt.Sprintf("%q:%s", name, sample([]byte(`{"p":`+string(s.Properties[name])+`}`), "p")))
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// sample is a value for the schema under a key.
func sample(text []byte, key string) string {
	var all map[string]struct {
		Type any   `json:"type"`
		Enum []any `json:"enum"`
	}
	_ = json.Unmarshal(text, &all)
	if s := all[key]; len(s.Enum) > 0 {
		value, _ := json.Marshal(s.Enum[0])
		return string(value)
	}
	switch all[key].Type {
	case "number", "integer":
		return "5"
	case "boolean":
		return "true"
	case "array":
		return "[]"
	case "object":
		return "{}"
	}
	return `"text"`
}
