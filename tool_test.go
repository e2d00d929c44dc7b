package toolcrib_test

import (
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
)

func TestValidToolName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "read_file": true, "S__tool-2": true, "_": true, "-": true, strings.Repeat("x", 64): true,
		"": false, strings.Repeat("x", 65): false, "rag.query": false, "a b": false, "é": false, "a\n": false, "ａ": false, "a/b": false,
		toolcrib.InvalidName: false,
	} {
		if got := toolcrib.ValidToolName(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}
