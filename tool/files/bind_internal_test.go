package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
)

// Contract §6: an approval of a write binds to the file as it was. What has changed
// since, by whomever, is not written over, unless it was this very run.
func TestH16_WritesWhatWasApproved(t *testing.T) {
	for name, c := range map[string]struct {
		tool, arguments string
		change          func(t *testing.T, dir string)
		refused         bool
	}{
		"write, as it was": {"write_file", `{"path":"a.txt","content":"new"}`, nil, false},
		"edit, as it was":  {"edit_file", `{"path":"a.txt","old_text":"old","new_text":"new"}`, nil, false},
		"new":              {"write_file", `{"path":"b.txt","content":"new"}`, nil, false},
		"changed": {"write_file", `{"path":"a.txt","content":"new"}`, func(t *testing.T, dir string) {
			put(t, dir, "a.txt", "theirs")
		}, true},
		"changed, and the text to replace is gone": {"edit_file", `{"path":"a.txt","old_text":"old","new_text":"new"}`, func(t *testing.T, dir string) {
			put(t, dir, "a.txt", "theirs")
		}, true},
		"made": {"write_file", `{"path":"b.txt","content":"new"}`, func(t *testing.T, dir string) {
			put(t, dir, "b.txt", "theirs")
		}, true},
		"gone": {"write_file", `{"path":"a.txt","content":"new"}`, func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "a.txt")); err != nil {
				t.Fatal(err)
			}
		}, true},
		"a link to the same content": {"write_file", `{"path":"a.txt","content":"new"}`, func(t *testing.T, dir string) {
			put(t, dir, "c.txt", "old")
			if err := os.Remove(filepath.Join(dir, "a.txt")); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("c.txt", filepath.Join(dir, "a.txt")); err != nil {
				t.Skip(err)
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := boundTo(t)
			call := w.approved(c.tool, c.arguments)
			if c.change != nil {
				c.change(t, w.dir)
			}
			before := w.all()
			plan := w.plan(call)
			_, prepared := plan.Prepare(t.Context(), call.WithoutArguments())
			_, err := plan.Run(t.Context(), call.WithoutArguments())
			if (err != nil) != c.refused || (prepared != nil) != c.refused {
				t.Fatalf("prepared: %v, called: %v", prepared, err)
			}
			if !c.refused {
				return
			}
			if !strings.Contains(err.Error(), "after the call was approved") || w.all() != before {
				t.Errorf("%v; files %q", err, w.all())
			}
		})
	}
}

// Calls of a turn are approved together: what the first has made of a file is what the
// next one finds. What somebody else makes of it is not.
func TestH16_WritesAfterItsOwn(t *testing.T) {
	for _, theirs := range []bool{false, true} {
		w := boundTo(t)
		first := w.approved("edit_file", `{"path":"a.txt","old_text":"o","new_text":"O"}`)
		second := w.approved("edit_file", `{"path":"a.txt","old_text":"l","new_text":"L"}`)
		third := w.approved("edit_file", `{"path":"a.txt","old_text":"d","new_text":"D"}`)
		for _, call := range []toolcrib.Call{first, second} {
			if _, err := w.tools["edit_file"].Call(t.Context(), call); err != nil {
				t.Fatal(err)
			}
		}
		if theirs {
			put(t, w.dir, "a.txt", "OLd!")
		}
		if _, err := w.tools["edit_file"].Call(t.Context(), third); (err != nil) != theirs {
			t.Errorf("theirs %v: %v", theirs, err)
		}
		// Another run has approved the file as it was in the beginning.
		other := first
		other.Run = "run_2"
		if _, err := w.tools["edit_file"].Call(t.Context(), other); err == nil {
			t.Error("what one run wrote counts for another")
		}
	}
}

// A file that is too large to be read for a question is told by what it is; one that
// cannot be written is told, too, and fails when it is tried.
func TestH16_BoundStates(t *testing.T) {
	w := boundTo(t)
	large := filepath.Join(w.dir, "large")
	put(t, w.dir, "large", "x")
	if err := os.Truncate(large, maxBoundBytes+1); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(w.dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, prefix := range map[string]string{"a.txt": "sha256:", "large": "-rw", "folder": "d", "none/at/all": toolcrib.FileAbsent} {
		arguments := `{"path":"` + name + `","content":"x"}`
		state := w.approved("write_file", arguments).Approved[0]
		if !strings.HasPrefix(state.State, prefix) || state.Path != filepath.Join(w.dir, filepath.FromSlash(name)) {
			t.Errorf("%s: %+v", name, state)
		}
		if again := w.approved("write_file", arguments).Approved[0]; again != state {
			t.Errorf("%s: %+v, then %+v", name, state, again)
		}
	}
	before := w.approved("write_file", `{"path":"large","content":"x"}`).Approved[0]
	if err := os.Truncate(large, maxBoundBytes+2); err != nil {
		t.Fatal(err)
	}
	if after := w.approved("write_file", `{"path":"large","content":"x"}`).Approved[0]; after == before {
		t.Error("a large file that has changed is told as the same")
	}
}

// bindable is a workspace with a file a.txt and the tools that write.
type bindable struct {
	t     *testing.T
	dir   string
	tools map[string]*writer
	calls int
}

func boundTo(t *testing.T) *bindable {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "a.txt", "old")
	w := &bindable{t: t, dir: dir, tools: map[string]*writer{}}
	for _, tool := range New(Options{}) {
		if tool, writes := tool.(*writer); writes {
			w.tools[tool.Spec().Name] = tool
		}
	}
	return w
}

// approved is a call with what its approval is bound to, as things are now.
func (w *bindable) approved(tool, arguments string) toolcrib.Call {
	w.t.Helper()
	w.calls++
	call := toolcrib.Call{ID: strings.Repeat("c", w.calls), Run: "run_1", Name: tool, Arguments: []byte(arguments), Workspace: w.dir}
	bound, err := w.plan(call).Files(w.t.Context())
	if err != nil || len(bound) != 1 {
		w.t.Fatalf("%+v, %v", bound, err)
	}
	call.Approved = bound
	return call
}

// plan returns the plan of a call, as the gate asks for it.
func (w *bindable) plan(call toolcrib.Call) *toolcrib.Plan {
	w.t.Helper()
	plan, err := w.tools[call.Name].Plan(w.t.Context(), call)
	if err != nil {
		w.t.Fatal(err)
	}
	return plan
}

// all are the names and contents of the files.
func (w *bindable) all() string {
	w.t.Helper()
	var b strings.Builder
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(w.dir, e.Name()))
		if err != nil {
			w.t.Fatal(err)
		}
		b.WriteString(e.Name() + "=" + string(text) + " ")
	}
	return b.String()
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
