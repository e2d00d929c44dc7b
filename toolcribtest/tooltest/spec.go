package tooltest

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toolcrib/toolcrib"
)

// maxSchemaBytes is more than any schema that a model should have to read.
const maxSchemaBytes = 64 << 10

// testSpec checks what a tool says of itself (N1).
func testSpec(t *testing.T, make func() toolcrib.Tool) {
	tool := make()
	spec := tool.Spec()
	if err := spec.Check(); err != nil {
		t.Error(err)
	}
	if !equal(spec, tool.Spec()) || !equal(spec, make().Spec()) {
		t.Error("the spec changes from one look to the next")
	}
	if strings.TrimSpace(spec.Description) == "" {
		t.Error("no description: a model would have to guess what the tool does")
	}
	if spec.Effect == "" {
		t.Error("no effect stated")
	}
	if spec.Source == "" {
		t.Error("no source stated")
	}
	if spec.Timeout < 0 || spec.MaxResultBytes < 0 {
		t.Error("negative timeout or max_result_bytes")
	}
	if len(spec.Parameters) > maxSchemaBytes {
		t.Errorf("the schema has %d bytes, more than %d", len(spec.Parameters), maxSchemaBytes)
	}
	compile(t, spec)
	if _, err := json.Marshal(spec); err != nil {
		t.Errorf("the spec is not JSON: %v", err)
	}
}

// compile compiles the schema of the arguments, which is one of an object.
func compile(t *testing.T, spec toolcrib.Spec) *jsonschema.Schema {
	t.Helper()
	parameters := spec.Parameters
	if len(parameters) == 0 {
		parameters = json.RawMessage(`{"type": "object"}`)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(parameters))
	if err != nil {
		t.Fatalf("the schema is not JSON: %v", err)
	}
	object, ok := document.(map[string]any)
	if !ok || object["type"] != "object" {
		t.Fatalf(`the schema does not say "type": "object": %.200s`, parameters)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.UseLoader(jsonschema.SchemeURLLoader{}) // a schema loads nothing
	const name = "urn:tool:parameters"
	if err := compiler.AddResource(name, document); err != nil {
		t.Fatalf("the schema does not compile: %v", err)
	}
	schema, err := compiler.Compile(name)
	if err != nil {
		t.Fatalf("the schema does not compile: %v", err)
	}
	return schema
}

// testArguments checks that the cases are ones that the gate would let through, and
// that it refuses those marked as invalid.
func testArguments(t *testing.T, tool toolcrib.Tool, cases Cases) {
	schema := compile(t, tool.Spec())
	for _, c := range cases.Calls {
		arguments, err := jsonschema.UnmarshalJSON(strings.NewReader(c.Arguments))
		if err != nil {
			t.Errorf("%s: arguments are not JSON: %v", c.Name, err)
			continue
		}
		switch err := schema.Validate(arguments); {
		case err != nil && !c.Invalid:
			t.Errorf("%s: arguments do not fit the schema: %v", c.Name, err)
		case err == nil && c.Invalid:
			t.Errorf("%s: the schema lets arguments through that are marked invalid", c.Name)
		}
	}
}
