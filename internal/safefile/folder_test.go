package safefile_test

import (
	"path/filepath"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/toolcribtest/storetest"
)

func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	storetest.RunFiles(t, func() toolcrib.Files { return safefile.Folder{Dir: dir} })
}
