package builtin_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/tool/builtin"
)

type noContents struct{}

func (noContents) Put(context.Context, toolcrib.RunID, string, []byte) error { return nil }

func (noContents) Range(context.Context, toolcrib.RunID, string, int64, int64) ([]byte, int64, error) {
	return nil, 0, toolcrib.ErrNotFound
}

// The table of contract §11, as far as it is built.
func TestN1_BuiltinTable(t *testing.T) {
	want := []string{
		"ask_user people read_only", "edit_file files idempotent_write", "get_runtime_info system read_only admin", "list_directory files read_only",
		"read_file files read_only", "read_result results read_only", "read_skill skills read_only", "search_files files read_only",
		"verify checks read_only", "write_file files idempotent_write",
	}
	var got []string
	for _, tool := range builtin.New(builtin.Options{
		Results: noContents{}, Skills: func(toolcrib.Call) *skill.Set { return nil },
	}) {
		spec := tool.Spec()
		if !spec.EnabledByDefault || spec.Source != "builtin" || spec.Check() != nil {
			t.Errorf("spec %+v", spec)
		}
		line := fmt.Sprintf("%s %s %s", spec.Name, spec.Group, spec.Effect)
		if spec.RequiresAdmin {
			line += " admin"
		}
		got = append(got, line)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, tool := range builtin.New(builtin.Options{}) {
		if name := tool.Spec().Name; name == "read_result" || name == "read_skill" {
			t.Errorf("%s without what it reads", name)
		}
	}
}
