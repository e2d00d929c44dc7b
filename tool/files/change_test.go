package files_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/files"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

func (k *kit) preview(tool string, arguments args) toolcrib.Preview {
	k.t.Helper()
	got, err := tooltest.Preview(context.Background(), k.tools[tool], k.made(tool, arguments))
	if err != nil {
		k.t.Fatal(err)
	}
	return got
}

func TestC9_Preview(t *testing.T) {
	k := newKit(t, files.Options{})
	k.put("a", "one\ntwo\nthree\n")
	k.put("bin", "a\x00b")
	k.put("latin", "caf\xe9")
	for _, c := range []struct {
		tool      string
		arguments args
		kind      string
		want      string
	}{
		{"write_file", args{"path": "n", "content": "x\ny\n"}, "diff", "--- /dev/null\n+++ b/n\n@@ -0,0 +1,2 @@\n+x\n+y\n"},
		{"write_file", args{"path": "a", "content": "one\n2\nthree\n"}, "diff", "--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"},
		{"edit_file", args{"path": "a", "old_text": "two", "new_text": "2"}, "diff", "--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"},
		{"write_file", args{"path": "a", "content": "one\ntwo\nthree\n"}, "text", "a stays as it is: it has this content already (14 bytes)"},
		{"write_file", args{"path": "n", "content": ""}, "text", "new empty file n"},
		{"write_file", args{"path": "bin", "content": "text"}, "text", "bin: a binary file of 3 bytes is replaced by 4 bytes of text"},
		{"write_file", args{"path": "latin", "content": "text"}, "text", "latin: a text file in ISO-8859-1 of 4 bytes is replaced by 4 bytes of text"},
	} {
		if got := k.preview(c.tool, c.arguments); got.Kind != c.kind || got.Text != c.want {
			t.Errorf("%s %v:\n got %q\nwant %q", c.tool, c.arguments, got, c.want)
		}
	}
	_, err := tooltest.Preview(t.Context(), k.tools["edit_file"], k.made("edit_file", args{"path": "a", "old_text": "four", "new_text": "4"}))
	k.failed("preview", err, "invalid arguments: old_text occurs 0 times in a")
}

func TestC9_NoDiffOfLargeFiles(t *testing.T) {
	k := newKit(t, files.Options{})
	k.put("big", strings.Repeat("x\n", 1<<20))
	if got := k.preview("write_file", args{"path": "big", "content": "x"}); got.Text != "big: 2097152 bytes are replaced by 1 bytes (too large for a diff)" {
		t.Errorf("got %+v", got)
	}
}

func (k *kit) prepare(tool string, arguments args) json.RawMessage {
	k.t.Helper()
	got, err := k.plan(tool, arguments).Prepare(context.Background(), k.made(tool, args{}))
	if err != nil {
		k.t.Fatal(err)
	}
	return got
}

func (k *kit) state(tool string, arguments args, prepared json.RawMessage) toolcrib.ReconciledState {
	k.t.Helper()
	got, err := k.plan(tool, arguments).Reconcile(context.Background(), k.made(tool, args{}), prepared)
	if err != nil {
		k.t.Fatal(err)
	}
	return got.State
}

// plan returns the plan of a call, as the gate asks for it.
func (k *kit) plan(tool string, arguments args) *toolcrib.Plan {
	k.t.Helper()
	plan, err := tooltest.Plan(context.Background(), k.tools[tool], k.made(tool, arguments))
	if err != nil {
		k.t.Fatal(err)
	}
	return plan
}

func TestC9_PrepareAndReconcile(t *testing.T) {
	k := newKit(t, files.Options{})
	write := args{"path": "d/n", "content": "hello"}
	prepared := k.prepare("write_file", write)
	const hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	if want := `{"path":"d/n","before_sha256":"","after_sha256":"` + hello + `","before_bytes":0,"after_bytes":5}`; string(prepared) != want {
		t.Fatalf("got %s", prepared)
	}
	if got := k.state("write_file", write, prepared); got != toolcrib.NotHappened {
		t.Errorf("before: %q", got)
	}
	k.put("d/n", "stranger")
	if got := k.state("write_file", write, prepared); got != toolcrib.InDoubt {
		t.Errorf("a stranger's file: %q", got)
	}
	k.put("d/n", "hello")
	if got := k.state("write_file", write, prepared); got != toolcrib.Happened {
		t.Errorf("after: %q", got)
	}
	edit := args{"path": "d/n", "old_text": "hello", "new_text": "bye"}
	prepared = k.prepare("edit_file", edit)
	for content, want := range map[string]toolcrib.ReconciledState{"hello": toolcrib.NotHappened, "bye": toolcrib.Happened, "": toolcrib.InDoubt, "hellobye": toolcrib.InDoubt} {
		k.put("d/n", content)
		if got := k.state("edit_file", edit, prepared); got != want {
			t.Errorf("%q: %q, want %q", content, got, want)
		}
	}
	if err := os.Remove(k.path("d/n")); err != nil {
		t.Fatal(err)
	}
	if got := k.state("edit_file", edit, prepared); got != toolcrib.InDoubt {
		t.Errorf("removed: %q", got)
	}
	for _, damaged := range []string{``, `{}`, `{"path":"d/n"}`, `[]`} {
		if got := k.state("edit_file", edit, json.RawMessage(damaged)); got != toolcrib.InDoubt {
			t.Errorf("damaged record %q: %q", damaged, got)
		}
	}
	k.link("d", "elsewhere")
	k.put("d/n", "hello")
	prepared = k.prepare("write_file", args{"path": "elsewhere/n", "content": "x"})
	if err := os.Remove(k.path("elsewhere")); err != nil {
		t.Fatal(err)
	}
	k.put("elsewhere/n", "x")
	if got := k.state("write_file", args{"path": "elsewhere/n", "content": "x"}, prepared); got != toolcrib.InDoubt {
		t.Errorf("the path leads elsewhere: %q", got)
	}
}

func TestC9_ChangeAfterPrepareIsNotOverwritten(t *testing.T) {
	k := newKit(t, files.Options{})
	for tool, arguments := range map[string]args{
		"write_file": {"path": "a", "content": "mine"},
		"edit_file":  {"path": "a", "old_text": "base", "new_text": "mine"},
	} {
		k.put("a", "base")
		plan := k.plan(tool, arguments)
		if _, err := plan.Prepare(t.Context(), k.made(tool, args{})); err != nil {
			t.Fatal(err)
		}
		k.put("a", "base, and a stranger's words")
		_, err := plan.Run(t.Context(), k.made(tool, args{}))
		k.failed(tool, err, "execution failed: a was changed by someone else just now")
		if got := k.get("a"); got != "base, and a stranger's words" {
			t.Errorf("%s: %q", tool, got)
		}
		if _, err := k.call(tool, arguments); err != nil {
			t.Errorf("%s: the next call is another one: %v", tool, err)
		}
	}
	k.clean()
}

// Edits of one file at once: none is lost.
func TestC9_ConcurrentEdits(t *testing.T) {
	k := newKit(t, files.Options{})
	const times = 12
	var content strings.Builder
	for i := range times {
		fmt.Fprintf(&content, "<%d>", i)
	}
	k.put("a", content.String())
	var all sync.WaitGroup
	errs := make([]error, times)
	for i := range times {
		call := k.made("edit_file", args{"path": "a", "old_text": fmt.Sprintf("<%d>", i), "new_text": fmt.Sprintf("[%d]", i)})
		call.ID = fmt.Sprint(i)
		all.Go(func() { _, errs[i] = k.tools["edit_file"].Call(context.Background(), call) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if got := k.get("a"); got != strings.NewReplacer("<", "[", ">", "]").Replace(content.String()) {
		t.Errorf("lost edits: %s", got)
	}
}
