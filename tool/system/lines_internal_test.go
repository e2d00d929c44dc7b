package system

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"
)

// Whatever is in the file, reading it ends, and what a handler wrote comes back.
func TestN24_LogFileProperty(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		path := filepath.Join(dir, "log")
		file, err := os.Create(path)
		if err != nil {
			r.Fatal(err)
		}
		var handler slog.Handler = slog.NewTextHandler(file, nil)
		if rapid.Bool().Draw(r, "json") {
			handler = slog.NewJSONHandler(file, nil)
		}
		message, name, value := rapid.String().Draw(r, "message"), rapid.StringMatching(`[a-z"= ]{1,9}`).Draw(r, "name"), rapid.String().Draw(r, "value")
		slog.New(handler).Info(message, "n."+name, value)
		if err := errors.Join(file.Close(), nil); err != nil {
			r.Fatal(err)
		}
		count := 0
		lines, err := LogFile{Path: path}.Lines()
		if err != nil {
			r.Fatal(err)
		}
		for _, e := range entries(lines) {
			if count++; e.message != message || len(e.attributes) != 1 || e.attributes[0].name != "n."+name ||
				e.attributes[0].value != value {
				r.Fatalf("got %+v, want %q %q %q", e, message, name, value)
			}
		}
		if count != 1 {
			r.Fatalf("%d entries", count)
		}
		if err := os.WriteFile(path, rapid.SliceOf(rapid.Byte()).Draw(r, "bytes"), 0o600); err != nil {
			r.Fatal(err)
		}
		if lines, err = (LogFile{Path: path}).Lines(); err != nil {
			r.Fatal(err)
		}
		entries(lines)
	})
}
