// Package tooltest is the conformance suite of [toolcrib.Tool]: what the loop and
// the gate rely on, tried from outside. Run it against every tool, one's own too.
package tooltest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/toolcrib/toolcrib"
)

// Cases are the calls that [Run] makes.
type Cases struct {
	// Calls are made one by one, each in a workspace of its own. At least one must
	// succeed.
	Calls []Case
	// Long, if set, is a call that takes long: it is cancelled as soon as Started is
	// closed, and must then return.
	Long *Long
	// Prepare, if set, changes each call before it is made (Invoke, Principal, …).
	Prepare func(call *toolcrib.Call)
}

// Case is one call.
type Case struct {
	Name      string
	Arguments string // a JSON object
	// Setup fills the workspace; nil = it is empty.
	Setup func(t *testing.T, workspace string)
	// Err is the kind of error to expect; "" = success.
	Err toolcrib.ToolErrorKind
	// Invalid marks arguments that the gate refuses before the tool sees them. The
	// tool must still cope.
	Invalid bool
	// Check looks at what came back, and at the workspace; nil = nothing more.
	Check func(t *testing.T, workspace string, out toolcrib.Output)
}

// Long is a call to be cancelled.
type Long struct {
	Case
	Started <-chan struct{}
}

// patience is how long a call may take to notice that it was cancelled. It is far
// more than a tool needs: the suite finds tools that never do.
const patience = 30 * time.Second

// Run runs the suite. make returns a fresh tool each time.
func Run(t *testing.T, make func() toolcrib.Tool, cases Cases) {
	t.Helper()
	t.Run("spec", func(t *testing.T) { testSpec(t, make) })
	t.Run("arguments", func(t *testing.T) { testArguments(t, make(), cases) })
	succeeded := false
	for _, c := range cases.Calls {
		succeeded = succeeded || c.Err == ""
		t.Run("call/"+c.Name, func(t *testing.T) { testCall(t, make(), cases, c) })
		t.Run("judged/"+c.Name, func(t *testing.T) { testJudged(t, make(), cases, c) })
		t.Run("cancelled/"+c.Name, func(t *testing.T) { testCancelled(t, make(), cases, c) })
		t.Run("concurrent/"+c.Name, func(t *testing.T) { testConcurrent(t, make(), cases, c) })
	}
	if !succeeded {
		t.Error("no case succeeds: the suite has not seen the tool work")
	}
	if cases.Long != nil {
		t.Run("long", func(t *testing.T) { testLong(t, make(), cases) })
	}
}

// call makes the call of c in a workspace of its own.
func (cases Cases) call(t *testing.T, tool toolcrib.Tool, c Case) toolcrib.Call {
	t.Helper()
	workspace, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if c.Setup != nil {
		c.Setup(t, workspace)
	}
	call := toolcrib.Call{
		ID: "call_1", Name: tool.Spec().Name, Arguments: json.RawMessage(c.Arguments),
		Run: "run_tooltest", Session: "ses_tooltest", Principal: toolcrib.Principal{User: "tester", Admin: true},
		Workspace: workspace, Progress: func(string, float64) {},
	}
	if cases.Prepare != nil {
		cases.Prepare(&call)
	}
	return call
}

func testCall(t *testing.T, tool toolcrib.Tool, cases Cases, c Case) {
	call := cases.call(t, tool, c)
	before := string(call.Arguments)
	out, err := within(t.Context(), t, tool, call)
	if string(call.Arguments) != before {
		t.Error("the call changed its arguments")
	}
	check(t, tool, call, c, out, err)
	if err == nil && c.Check != nil {
		c.Check(t, call.Workspace, out)
	}
	writes := Facts(tool, call).Effect.Writes()
	if err != nil || writes {
		return
	}
	fresh := cases.call(t, tool, c)
	state := snapshot(t, fresh.Workspace)
	if _, err := within(t.Context(), t, tool, fresh); err != nil {
		t.Errorf("the same call again: %v", err)
	}
	if diff := state.compare(snapshot(t, fresh.Workspace)); diff != "" {
		t.Errorf("the call says that it only reads, and changed the workspace: %s", diff)
	}
}

// check looks at a result: typed errors, no paths, valid output.
func check(t *testing.T, tool toolcrib.Tool, call toolcrib.Call, c Case, out toolcrib.Output, err error) {
	t.Helper()
	if c.Err != "" {
		made := (*toolcrib.ToolError)(nil)
		switch {
		case err == nil:
			t.Fatalf("succeeded with %s%s, want an error %q", out.JSON, out.Text, c.Err)
		case !errors.As(err, &made):
			t.Fatalf("error %v (%T) is not made for the model, want a ToolError %q", err, err, c.Err)
		case made.Kind != c.Err:
			t.Fatalf("error %q, want kind %q", made.Error(), c.Err)
		case made.Message == "":
			t.Error("the error says nothing")
		case strings.Contains(made.Error(), call.Workspace):
			t.Errorf("error %q reveals where the workspace is", made.Error())
		}
		return
	}
	if err != nil {
		t.Fatalf("failed: %v", err)
	}
	if len(out.JSON) > 0 && !json.Valid(out.JSON) {
		t.Errorf("output is not JSON: %.200s", out.JSON)
	}
	if len(out.JSON) > 0 && out.Text != "" {
		t.Error("output has both a text and a JSON value")
	}
	if strings.Contains(string(out.JSON)+out.Text, call.Workspace) {
		t.Errorf("output reveals where the workspace is: %.200s%.200s", out.JSON, out.Text)
	}
	if out.Source != "" && !out.Untrusted && !tool.Spec().Untrusted {
		t.Error("output names a source and is not marked untrusted")
	}
}

// testCancelled makes the call with a context that has ended: it must fail and
// change nothing.
func testCancelled(t *testing.T, tool toolcrib.Tool, cases Cases, c Case) {
	call := cases.call(t, tool, c)
	before := snapshot(t, call.Workspace)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := within(ctx, t, tool, call); err == nil {
		t.Error("a call whose context has ended succeeded")
	}
	if diff := before.compare(snapshot(t, call.Workspace)); diff != "" {
		t.Errorf("a call whose context has ended changed the workspace: %s", diff)
	}
}

// testConcurrent makes the call several times at once with one tool, each in its
// own workspace, and for reads several times in the same one.
func testConcurrent(t *testing.T, tool toolcrib.Tool, cases Cases, c Case) {
	const times = 4
	shared := cases.call(t, tool, c)
	calls := make([]toolcrib.Call, times)
	for i := range calls {
		calls[i] = shared
		if Facts(tool, shared).Effect.Writes() {
			calls[i] = cases.call(t, tool, c)
		}
		calls[i].ID += string(rune('a' + i))
	}
	outputs, errs := make([]toolcrib.Output, times), make([]error, times)
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() { outputs[i], errs[i] = tool.Call(t.Context(), calls[i]) })
	}
	all.Wait()
	for i := range calls {
		check(t, tool, calls[i], c, outputs[i], errs[i])
	}
}

func testLong(t *testing.T, tool toolcrib.Tool, cases Cases) {
	call := cases.call(t, tool, cases.Long.Case)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-cases.Long.Started:
		case <-ctx.Done():
		}
		cancel()
	})
	_, err := within(ctx, t, tool, call)
	cancel()
	watch.Wait()
	if err == nil {
		t.Error("a cancelled call succeeded")
	}
}

// within makes a call and gives up on it if it does not return in time.
func within(ctx context.Context, t *testing.T, tool toolcrib.Tool, call toolcrib.Call) (toolcrib.Output, error) {
	t.Helper()
	type answer struct {
		out toolcrib.Output
		err error
	}
	done := make(chan answer, 1)
	go func() {
		out, err := tool.Call(ctx, call)
		done <- answer{out, err}
	}()
	select {
	case a := <-done:
		return a.out, a.err
	case <-ctx.Done():
	}
	select {
	case a := <-done:
		return a.out, a.err
	case <-time.After(patience):
		t.Fatalf("the call did not return within %v of being cancelled", patience)
		return toolcrib.Output{}, nil
	}
}

// Plan returns the plan of a call, as the gate asks for it, with its effect. The plan of a tool that
// makes none has the effect of the spec.
func Plan(ctx context.Context, tool toolcrib.Tool, call toolcrib.Call) (*toolcrib.Plan, error) {
	plan := &toolcrib.Plan{Run: tool.Call}
	if p, ok := tool.(toolcrib.Planner); ok {
		var err error
		if plan, err = p.Plan(ctx, call); err != nil {
			return nil, err
		}
	}
	plan.Effect = cmp.Or(plan.Effect, tool.Spec().Effect).OrStrictest()
	return plan, nil
}

// Refused returns the error with which the plan of a tool refuses a call, or nil.
func Refused(tool toolcrib.Tool, call toolcrib.Call) error {
	_, err := Plan(context.Background(), tool, call)
	return err
}

// Facts returns the plan of a call for its facts. A call that the tool refuses has none, and the
// effect of the spec.
func Facts(tool toolcrib.Tool, call toolcrib.Call) *toolcrib.Plan {
	if plan, err := Plan(context.Background(), tool, call); err == nil {
		return plan
	}
	return &toolcrib.Plan{Effect: tool.Spec().Effect.OrStrictest()}
}

// Preview returns the preview of a call.
func Preview(ctx context.Context, tool toolcrib.Tool, call toolcrib.Call) (toolcrib.Preview, error) {
	plan, err := Plan(ctx, tool, call)
	if err != nil {
		return toolcrib.Preview{}, err
	}
	return plan.Preview(ctx)
}

func equal(a, b any) bool { return reflect.DeepEqual(a, b) }

// maxSchemaBytes is more than any schema that a model should have to read.
const maxSchemaBytes = 64 << 10

// testSpec checks what a tool says of itself (N1).
func testSpec(t *testing.T, make func() toolcrib.Tool) {
	tool := make()
	spec := tool.Spec()
	if err := spec.Check(); err != nil {
		t.Error(err)
	}
	if !equal(spec, tool.Spec()) || !equal(spec, make().Spec()) {
		t.Error("the spec changes from one look to the next")
	}
	if strings.TrimSpace(spec.Description) == "" {
		t.Error("no description: a model would have to guess what the tool does")
	}
	if spec.Effect == "" {
		t.Error("no effect stated")
	}
	if spec.Source == "" {
		t.Error("no source stated")
	}
	if spec.Timeout < 0 || spec.MaxResultBytes < 0 {
		t.Error("negative timeout or max_result_bytes")
	}
	if len(spec.Parameters) > maxSchemaBytes {
		t.Errorf("the schema has %d bytes, more than %d", len(spec.Parameters), maxSchemaBytes)
	}
	compile(t, spec)
	if _, err := json.Marshal(spec); err != nil {
		t.Errorf("the spec is not JSON: %v", err)
	}
}

// compile compiles the schema of the arguments, which is one of an object.
func compile(t *testing.T, spec toolcrib.Spec) *jsonschema.Schema {
	t.Helper()
	parameters := spec.Parameters
	if len(parameters) == 0 {
		parameters = json.RawMessage(`{"type": "object"}`)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(parameters))
	if err != nil {
		t.Fatalf("the schema is not JSON: %v", err)
	}
	object, ok := document.(map[string]any)
	if !ok || object["type"] != "object" {
		t.Fatalf(`the schema does not say "type": "object": %.200s`, parameters)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.UseLoader(jsonschema.SchemeURLLoader{}) // a schema loads nothing
	const name = "urn:tool:parameters"
	if err := compiler.AddResource(name, document); err != nil {
		t.Fatalf("the schema does not compile: %v", err)
	}
	schema, err := compiler.Compile(name)
	if err != nil {
		t.Fatalf("the schema does not compile: %v", err)
	}
	return schema
}

// testArguments checks that the cases are ones that the gate would let through, and
// that it refuses those marked as invalid.
func testArguments(t *testing.T, tool toolcrib.Tool, cases Cases) {
	schema := compile(t, tool.Spec())
	for _, c := range cases.Calls {
		arguments, err := jsonschema.UnmarshalJSON(strings.NewReader(c.Arguments))
		if err != nil {
			t.Errorf("%s: arguments are not JSON: %v", c.Name, err)
			continue
		}
		switch err := schema.Validate(arguments); {
		case err != nil && !c.Invalid:
			t.Errorf("%s: arguments do not fit the schema: %v", c.Name, err)
		case err == nil && c.Invalid:
			t.Errorf("%s: the schema lets arguments through that are marked invalid", c.Name)
		}
	}
}

// testJudged asks for the plan of a call twice: nothing may change, and the plans must agree. Then a
// prepared call is run and reconciled.
func testJudged(t *testing.T, tool toolcrib.Tool, cases Cases, c Case) {
	call := cases.call(t, tool, c)
	before := snapshot(t, call.Workspace)
	first, refused := ask(t, tool, call)
	if second, _ := ask(t, tool, call); !equal(first, second) {
		t.Errorf("planned twice, with different results:\n%+v\n%+v", first, second)
	}
	if diff := before.compare(snapshot(t, call.Workspace)); diff != "" {
		t.Errorf("planning the call changed the workspace: %s", diff)
	}
	if refused != nil && c.Err == "" {
		t.Errorf("Plan refuses a call that is to succeed: %v", refused)
	}
	if c.Err == "" && refused == nil {
		testPrepared(t, tool, cases, call, before)
	}
}

// ask returns the facts of the plan of a call: the plan without its functions.
func ask(t *testing.T, tool toolcrib.Tool, call toolcrib.Call) (facts toolcrib.Plan, err error) {
	t.Helper()
	plan, err := Plan(t.Context(), tool, call)
	if err != nil {
		return facts, err
	}
	facts, spec := *plan, tool.Spec()
	facts.Matches, facts.Files, facts.Preview, facts.Prepare, facts.Reconcile, facts.Run = nil, nil, nil, nil, nil, nil
	switch {
	case plan.Run == nil:
		t.Error("the plan has nothing to run")
	case spec.Effect == toolcrib.EffectReadOnly && plan.Effect.Writes():
		t.Error("the plan says that a call writes, and the spec, which states the worst, says read_only")
	case !spec.Plans.Effect && plan.Effect != spec.Effect.OrStrictest(), !spec.Plans.Targets && len(plan.Targets) > 0,
		!spec.Plans.Concerns && len(plan.Concerns) > 0:
		t.Errorf("the plan has facts that Spec.Plans does not name: %+v", facts)
	}
	for _, target := range plan.Targets {
		checkTarget(t, target, plan.Effect)
	}
	if plan.Preview != nil {
		preview, err := plan.Preview(t.Context())
		if err == nil && (preview.Kind == "" || preview.Text == "") {
			t.Errorf("an empty preview: %+v", preview)
		}
	}
	return facts, nil
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

// testPrepared plays the two ends of a crash: before the call it did not happen, after it it did, with
// the same output. After a crash a call is planned again.
func testPrepared(t *testing.T, tool toolcrib.Tool, cases Cases, call toolcrib.Call, before state) {
	plan, err := Plan(t.Context(), tool, call)
	if err != nil {
		t.Fatalf("Plan: %v", err)
	}
	if plan.Prepare == nil {
		return
	}
	run := call.WithoutArguments()
	prepared, err := plan.Prepare(t.Context(), run)
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
	if got := reconcile(t, tool, call, prepared); changes && got.State == toolcrib.InDoubt {
		t.Error("Reconcile before the call: in doubt")
	}
	run.Progress = func(string, float64) {}
	if cases.Prepare != nil {
		cases.Prepare(&run)
	}
	out, err := plan.Run(t.Context(), run)
	if err != nil {
		t.Fatalf("the prepared call: %v", err)
	}
	got := reconcile(t, tool, call, prepared)
	if got.State != toolcrib.Happened || string(got.Output.JSON) != string(out.JSON) || got.Output.Text != out.Text {
		t.Errorf("Reconcile after the call: %q with %s%s, the call gave %s%s", got.State, got.Output.JSON, got.Output.Text,
			out.JSON, out.Text)
	}
}

func reconcile(t *testing.T, tool toolcrib.Tool, call toolcrib.Call, prepared json.RawMessage) toolcrib.Reconciled {
	t.Helper()
	before := snapshot(t, call.Workspace)
	plan, err := Plan(t.Context(), tool, call)
	if err != nil {
		t.Fatalf("Plan after a crash: %v", err)
	}
	got, err := plan.Reconcile(t.Context(), call.WithoutArguments(), prepared)
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
