package service_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/service/policy"
)

// An empty answer, an error and the zero value do not allow a call.
func TestDecideOther_Nobody(t *testing.T) {
	s, dir := open(t), t.TempDir()
	for name, c := range map[string]policy.OtherCall{
		"nothing":   {},
		"no folder": {Tool: "Read", Arguments: json.RawMessage(`{"file_path":"a"}`)},
		"another workspace": {
			Tool: "Read", Arguments: json.RawMessage(`{"file_path":"a"}`), Cwd: t.TempDir(),
			Workspace: dir,
		},
		"no such agent": {Tool: "Read", Arguments: json.RawMessage(`{"file_path":"a"}`), Cwd: dir, Agent: "nobody"},
	} {
		if d, err := s.Policy.DecideOther(t.Context(), toolcrib.Principal{User: "local:ann"}, c); err == nil ||
			d.Decision != "" {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	c := policy.OtherCall{Tool: "Write", Arguments: json.RawMessage(`{"file_path":"a","content":""}`), Cwd: dir}
	if d, err := s.Policy.DecideOther(t.Context(), toolcrib.Principal{User: "local:ann", Grants: []string{}},
		c); err != nil ||
		d.Decision != api.OtherDeny {
		t.Errorf("without grants: %+v, %v", d, err)
	}
	if d, err := s.Policy.DecideOther(t.Context(), toolcrib.Principal{User: "local:ann"}, c); err != nil ||
		d.Decision != api.OtherAsk {
		t.Errorf("a write: %+v, %v", d, err)
	}
}

// FuzzDecideOther judges any call: an unknown one is never allowed, nor is one on a file outside of the workspace.
func FuzzDecideOther(f *testing.F) {
	for _, seed := range [][3]string{
		{"Bash", "command", "ls | wc -l"},
		{"Bash", "command", "for i in $(seq 3); do rm $i; done"},
		{"exec_shell", "command", "cat ../../etc/passwd"},
		{"Write", "file_path", "../a\x00"},
		{"Read", "file_path", "/etc/passwd"},
		{"Read", "file_path", "link/passwd"},
		{"Read", "file_path", "~/.ssh/id_rsa"},
		{"Glob", "pattern", "{a,$HOME}/*"},
		{"NotebookEdit", "notebook_path", "file:///etc/passwd"},
		{"read_file", "path", "a/../../b"},
		{"Glob", "pattern", "/../*"},
		{"Glob", "pattern", "{/etc,/usr}/*"},
		{"LS", "path", "\xed\xa0\x80"},
		{"mcp__a__b", "x", "1e999"},
		{"mcp__read_file", "path", "a"},
		{strings.Repeat("mcp__a__", 40), "x", ""},
		{"\u202eRead", "file_path", "a"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	s, dir := open(f), f.TempDir()
	if err := os.Symlink("/etc", filepath.Join(dir, "link")); err != nil {
		f.Fatal(err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, tool, name, value string) {
		arguments, err := json.Marshal(map[string]string{name: value})
		if err != nil {
			t.Fatal(err)
		}
		d, err := s.Policy.DecideOther(t.Context(), toolcrib.Principal{User: "local:ann"}, policy.OtherCall{
			Tool: tool, Arguments: arguments, Cwd: dir, Session: tool,
		})
		switch {
		case err != nil && d.Decision != "", err == nil && !strings.Contains("allow ask deny", d.Decision), err == nil &&
			d.Reason == "":
			t.Errorf("%+v, %v", d, err)
		case d.Decision != api.OtherAllow:
			return
		case strings.HasPrefix(tool, "mcp__") || strings.ContainsAny(tool, " \x00\u202e"):
			t.Errorf("%q is allowed", tool)
		}
		path := value
		if name != "file_path" && name != "path" && name != "notebook_path" || tool == "Bash" {
			return
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(real, path)
		}
		known := map[string]bool{
			"Read": true, "NotebookRead": true, "LS": true, "read_file": true, "list_directory": true,
			"get_tree": true,
		}
		if at, err := filepath.EvalSymlinks(path); err == nil && known[tool] && at != real &&
			!strings.HasPrefix(at, real+"/") {
			t.Errorf("%s of %q is allowed, which is %s", tool, value, at)
		}
	})
}
