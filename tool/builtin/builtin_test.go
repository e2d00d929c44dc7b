package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/tool/builtin"
	"github.com/toolcrib/toolcrib/tool/directory"
	"github.com/toolcrib/toolcrib/tool/files"
	"github.com/toolcrib/toolcrib/tool/memory"
	"github.com/toolcrib/toolcrib/tool/result"
	"github.com/toolcrib/toolcrib/tool/skillread"
	"github.com/toolcrib/toolcrib/tool/spawn"
	"github.com/toolcrib/toolcrib/tool/system"
	"github.com/toolcrib/toolcrib/tool/tables"
	"github.com/toolcrib/toolcrib/tool/web"
)

type noContents struct{}

func (noContents) Put(context.Context, toolcrib.RunID, string, []byte) error { return nil }

func (noContents) Range(context.Context, toolcrib.RunID, string, int64, int64) ([]byte, int64, error) {
	return nil, 0, toolcrib.ErrNotFound
}

// TestN1_BuiltinTable compares the tools with a table.
func TestN1_BuiltinTable(t *testing.T) {
	want := []string{
		"ask_user people read_only", "describe_tables sql read_only", "edit_file files idempotent_write", "fetch_logs system read_only admin", "find_tools tools read_only",
		"get_env system read_only admin", "get_env_raw system read_only admin off", "get_runtime_info system read_only admin", "get_runtime_info_raw system read_only admin off",
		"get_tree files read_only", "list_directory files read_only", "list_groups directory read_only admin", "list_users directory read_only admin",
		"list_users_raw directory read_only admin off", "memory_read memory read_only", "memory_write memory non_idempotent_write",
		"read_asset_meta files read_only admin", "read_file files read_only", "read_result results read_only", "read_skill skills read_only",
		"search_files files read_only", "spawn agents read_only", "update_plan people read_only", "verify checks read_only",
		"web_fetch web non_idempotent_write", "web_search web read_only", "write_file files idempotent_write",
	}
	var got []string
	for _, tool := range builtin.New(builtin.Options{
		Results: result.Options{Contents: noContents{}}, Skills: skillread.Options{Skills: func(toolcrib.Call) *skill.Set { return nil }},
		System: system.Options{Logs: new(system.LogRing)}, Directory: nobody{},
		Memory: memory.NewFiles(t.TempDir(), memory.Limits{}), Databases: []tables.Database{{Name: "main"}},
		Agents: []spawn.Agent{{Name: "default"}},
		Web:    web.Options{SearchEndpoint: func() (string, error) { return "", nil }},
	}) {
		spec := tool.Spec()
		if spec.Source != "builtin" || spec.Check() != nil {
			t.Errorf("spec %+v", spec)
		}
		if config.BuiltInTool(strings.ToUpper(spec.Name)) != spec.Name {
			t.Errorf("a configuration may take the name %s", spec.Name)
		}
		line := fmt.Sprintf("%s %s %s", spec.Name, spec.Group, spec.Effect)
		if spec.RequiresAdmin {
			line += " admin"
		}
		if !spec.EnabledByDefault {
			line += " off"
		}
		got = append(got, line)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, tool := range builtin.New(builtin.Options{}) {
		switch name := tool.Spec().Name; name {
		case "read_result", "read_skill", "fetch_logs", "list_users", "list_users_raw", "list_groups", "memory_read", "memory_write", "describe_tables", "spawn", "web_search":
			t.Errorf("%s without what it reads", name)
		}
	}
}

// nobody is a directory without users.
type nobody struct{}

func (nobody) Users(context.Context) iter.Seq2[access.User, error] {
	return func(func(access.User, error) bool) {}
}

func (nobody) Groups(context.Context) iter.Seq2[directory.UserGroup, error] {
	return func(func(directory.UserGroup, error) bool) {}
}

// get_tree leaves out what is protected in either way.
func TestN19_TreeWithoutProtectedPaths(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"open", ".mcp.json", "keys"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ends := func(name string) func(string) bool {
		return func(abs string) bool { return filepath.Base(abs) == name }
	}
	for _, tool := range builtin.New(builtin.Options{Files: files.Options{Protected: ends(".mcp.json"), Hidden: ends("keys")}}) {
		call := toolcrib.Call{Arguments: json.RawMessage(`{}`), Workspace: dir, Principal: toolcrib.Principal{User: "ann", Admin: true}}
		switch tool.Spec().Name {
		case "get_tree":
			out, err := tool.Call(t.Context(), call)
			if want := `{"path":".","entries":[{"name":"open","type":"file"}],"folders":0,"files":1}`; err != nil || string(out.JSON) != want {
				t.Errorf("%s, %v", out.JSON, err)
			}
		case "read_asset_meta":
			call.Arguments = json.RawMessage(`{"path":"keys"}`)
			if out, err := tool.Call(t.Context(), call); err == nil {
				t.Errorf("%s", out.JSON)
			}
		}
	}
}

func TestN24_DatabaseByURL(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.db")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const hidden = "hunter2-of-the-test"
	for address, want := range map[string]bool{
		file: true, "sqlite:" + file: true, "sqlite://" + file + "?x=" + hidden: true,
		"mysql://u:" + hidden + "@h/x": false, "": false, "postgres://u:" + hidden + "@127.0.0.1:1/x?connect_timeout=1": false,
		"host=/nowhere user=u password=" + hidden: false, "postgres://u:" + hidden + "@[/x": false, hidden: false,
	} {
		for _, tool := range builtin.New(builtin.Options{Databases: []tables.Database{
			builtin.Database("shop", func(context.Context) (string, error) { return address, nil }),
		}}) {
			if tool.Spec().Name != "describe_tables" {
				continue
			}
			out, err := tool.Call(t.Context(), toolcrib.Call{
				Arguments: json.RawMessage(`{"database":"shop"}`), Principal: toolcrib.Principal{User: "root", Admin: true},
			})
			if (err == nil) != want {
				t.Errorf("%s: %s, %v", address, out.JSON, err)
			}
			for ; err != nil; err = errors.Unwrap(err) {
				if strings.Contains(err.Error(), hidden) || strings.Contains(err.Error(), "@") {
					t.Errorf("%s: %v", address, err)
				}
			}
		}
	}
}
