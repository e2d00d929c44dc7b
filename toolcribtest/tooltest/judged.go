package tooltest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
)

// testJudged asks the gate's questions about a call, twice: nothing may change, and
// the answers must agree. Then a prepared call is run and reconciled.
func testJudged(t *testing.T, tool toolcrib.Tool, cases Cases, c Case) {
	call := judged(cases.call(t, tool, c))
	before := snapshot(t, call.Workspace)
	admitted := admit(tool, call)
	first := ask(t, tool, call)
	if second := ask(t, tool, call); !equal(first, second) {
		t.Errorf("asked twice, answered differently:\n%+v\n%+v", first, second)
	}
	if diff := before.compare(snapshot(t, call.Workspace)); diff != "" {
		t.Errorf("a question of the gate changed the workspace: %s", diff)
	}
	if admitted != nil && c.Err == "" {
		t.Errorf("Admit refuses a call that is to succeed: %v", admitted)
	}
	if c.Err == "" {
		testPrepared(t, tool, cases, call, before)
	}
}

func admit(tool toolcrib.Tool, call toolcrib.Call) error {
	if a, ok := tool.(toolcrib.Admitter); ok {
		return a.Admit(call)
	}
	return nil
}

// answers is what the optional interfaces say about a call.
type answers struct {
	Admit   string
	Effect  toolcrib.Effect
	Targets []toolcrib.Target
	Preview toolcrib.Preview
}

func ask(t *testing.T, tool toolcrib.Tool, call toolcrib.Call) answers {
	t.Helper()
	a := answers{Effect: effect(tool, call)}
	if err := admit(tool, call); err != nil {
		a.Admit = err.Error()
	}
	if tool.Spec().Effect == toolcrib.EffectReadOnly && a.Effect.Writes() {
		t.Error("EffectOf says that a call writes where the spec, which states the worst, says read_only")
	}
	if targeter, ok := tool.(toolcrib.Targeter); ok {
		a.Targets = targeter.Targets(call)
		for _, target := range a.Targets {
			checkTarget(t, target, a.Effect)
		}
	}
	if p, ok := tool.(toolcrib.Previewer); ok {
		preview, err := p.Preview(t.Context(), call)
		if err == nil && (preview.Kind == "" || preview.Text == "") {
			t.Errorf("an empty preview: %+v", preview)
		}
		a.Preview = preview
	}
	return a
}

func checkTarget(t *testing.T, target toolcrib.Target, effect toolcrib.Effect) {
	t.Helper()
	if target.Kind == "" || target.Name == "" {
		t.Errorf("a target without kind or name: %+v", target)
	}
	if target.Kind == toolcrib.TargetFile && (!filepath.IsAbs(target.Name) || filepath.Clean(target.Name) != target.Name) {
		t.Errorf("a file target must be a clean absolute path: %q", target.Name)
	}
	if target.Write && !effect.Writes() {
		t.Errorf("a call that only reads has a target that is written: %+v", target)
	}
}

// testPrepared plays the two ends of a crash: before the call it did not happen,
// after it it did, with the same output.
func testPrepared(t *testing.T, tool toolcrib.Tool, cases Cases, call toolcrib.Call, before state) {
	p, ok := tool.(toolcrib.Preparer)
	if !ok {
		return
	}
	prepared, err := p.Prepare(t.Context(), call)
	if err != nil {
		t.Fatalf("Prepare: %v", err)
	}
	if !json.Valid(prepared) {
		t.Fatalf("Prepare returned no JSON: %s", prepared)
	}
	if diff := before.compare(snapshot(t, call.Workspace)); diff != "" {
		t.Fatalf("Prepare changed the workspace: %s", diff)
	}
	changes := tool.Spec().Effect.Writes()
	if got := reconcile(t, p, call, prepared); changes && got.State == toolcrib.InDoubt {
		t.Error("Reconcile before the call: in doubt")
	}
	run := call
	run.Progress = func(string, float64) {}
	if cases.Prepare != nil {
		cases.Prepare(&run)
	}
	out, err := within(t.Context(), t, tool, run)
	if err != nil {
		t.Fatalf("the prepared call: %v", err)
	}
	got := reconcile(t, p, call, prepared)
	if got.State != toolcrib.Happened || string(got.Output.JSON) != string(out.JSON) || got.Output.Text != out.Text {
		t.Errorf("Reconcile after the call: %q with %s%s, the call gave %s%s", got.State, got.Output.JSON, got.Output.Text, out.JSON, out.Text)
	}
}

func reconcile(t *testing.T, p toolcrib.Preparer, call toolcrib.Call, prepared json.RawMessage) toolcrib.Reconciled {
	t.Helper()
	before := snapshot(t, call.Workspace)
	got, err := p.Reconcile(t.Context(), call, prepared)
	if err != nil {
		t.Fatalf("Reconcile: %v", err)
	}
	if diff := before.compare(snapshot(t, call.Workspace)); diff != "" {
		t.Errorf("Reconcile changed the workspace: %s", diff)
	}
	return got
}

// state is what a folder holds: by path, the kind, mode and content.
type state map[string]string

func snapshot(t *testing.T, dir string) state {
	t.Helper()
	s := state{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(data)
			content = hex.EncodeToString(sum[:8])
		case info.Mode()&fs.ModeSymlink != 0:
			if content, err = os.Readlink(path); err != nil {
				return err
			}
		}
		s[path] = fmt.Sprint(info.Mode(), " ", content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// compare names what differs; "" = nothing.
func (s state) compare(now state) string {
	var changed []string
	for path := range s {
		if s[path] != now[path] {
			changed = append(changed, filepath.Base(path))
		}
	}
	for path := range now {
		if _, known := s[path]; !known {
			changed = append(changed, filepath.Base(path))
		}
	}
	slices.Sort(changed)
	return strings.Join(changed, ", ")
}
