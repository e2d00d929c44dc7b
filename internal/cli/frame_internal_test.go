package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/toolcrib/toolcrib/internal/terminal"
)

// On a terminal that takes no UTF-8 the signs of this program are others; a value is what it is.
func TestPrintJSON_ASCII(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "screen"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := &output{w: terminal.ASCII{File: f}}
	fmt.Fprintln(out, "✓")
	if err := printJSON(out, "✓", false); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(f.Name()); string(got) != "+\n\"✓\"\n" {
		t.Errorf("%q, %v", got, err)
	}
}
