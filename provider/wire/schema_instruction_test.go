package wire_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/provider/wire"
)

func TestSchemaInstruction(t *testing.T) {
	got := wire.WithSchemaInstruction("", json.RawMessage("{\n \"type\": \"object\" }"))
	if !strings.HasSuffix(got, "\n"+`{"type":"object"}`) || !strings.Contains(got, "JSON Schema") {
		t.Errorf("instruction %q", got)
	}
	for _, none := range []string{"", " ", "null", "{"} {
		if got := wire.WithSchemaInstruction("", json.RawMessage(none)); got != "" {
			t.Errorf("schema %q: instruction %q", none, got)
		}
	}
}

func TestWithSchemaInstruction(t *testing.T) {
	schema := json.RawMessage(`{"type":"object"}`)
	instruction := wire.WithSchemaInstruction("", schema)
	for system, want := range map[string]string{"": instruction, " \n": instruction, "Be kind.": "Be kind.\n\n" + instruction} {
		if got := wire.WithSchemaInstruction(system, schema); got != want {
			t.Errorf("system %q: %q, want %q", system, got, want)
		}
	}
	if got := wire.WithSchemaInstruction("Be kind.", nil); got != "Be kind." {
		t.Errorf("no schema: %q", got)
	}
}
