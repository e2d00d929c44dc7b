package files_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/files"
)

// buffers are an editor with these files, which fails if it is asked for any other.
type buffers struct {
	t     *testing.T
	texts map[string]string
	err   error
}

func (b buffers) Buffer(_ context.Context, path string) (string, bool, error) {
	text, ok := b.texts[filepath.Base(path)]
	if !ok {
		b.t.Errorf("the editor was asked for %s", path)
	}
	return text, ok, b.err
}

// What an editor has that is not saved is read, and is not overwritten. The policy on paths comes first (C9, C11).
func TestC11_UnsavedBuffers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"unsaved.txt": "disk\n", "saved.txt": "\ufeffone\r\ntwo\r\n", "hidden.txt": "hidden\n", "protected.txt": "p\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	named := func(name string) func(string) bool {
		return func(abs string) bool { return filepath.Base(abs) == name }
	}
	tools := map[string]toolcrib.Planner{}
	for _, tool := range files.New(files.Options{Hidden: named("hidden.txt"), Protected: named("protected.txt")}) {
		tools[tool.Spec().Name], _ = tool.(toolcrib.Planner) // each of them plans
	}
	open := buffers{t: t, texts: map[string]string{
		"unsaved.txt": "one\nof the editor\n", "saved.txt": "one\ntwo", "protected.txt": "p\n",
	}}
	hangs := open
	hangs.err = errors.New("it hangs")
	for _, tt := range []struct {
		tool, arguments string
		editor          buffers
		want            string // in the result or the error
	}{
		{"read_file", `{"path":"unsaved.txt"}`, open, `of the editor\n","unsaved":true`},
		{"read_file", `{"path":"unsaved.txt","offset":2,"limit":1}`, open, `"content":"of the editor\n","unsaved":true`},
		{"read_file", `{"path":"unsaved.txt"}`, hangs, `"content":"disk\n"`},
		{"read_file", `{"path":"saved.txt"}`, open, `two\r\n"}`},
		{"read_file", `{"path":"hidden.txt"}`, open, "protected path"},
		{"read_file", `{"path":"../x"}`, open, "escapes workspace"},
		{"edit_file", `{"path":"unsaved.txt","old_text":"disk","new_text":"x"}`, open, "save it first"},
		{"write_file", `{"path":"unsaved.txt","content":"x"}`, open, "save it first"},
		{"write_file", `{"path":"unsaved.txt","content":"x"}`, hangs, "did not say"},
		{"write_file", `{"path":"hidden.txt","content":"x"}`, open, "protected path"},
		{"write_file", `{"path":"protected.txt","content":"x"}`, open, "protected path"},
		{"edit_file", `{"path":"saved.txt","old_text":"two","new_text":"three"}`, open, "saved.txt"},
	} {
		call := toolcrib.Call{Arguments: json.RawMessage(tt.arguments), Workspace: dir, Buffers: tt.editor}
		out, err := toolcrib.RunPlan(t.Context(), tools[tt.tool], call)
		got := string(out.JSON)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s %s: %s, want %s", tt.tool, tt.arguments, got, tt.want)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "unsaved.txt")); err != nil || string(text) != "disk\n" {
		t.Errorf("%q, %v", text, err)
	}
}
