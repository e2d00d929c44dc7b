package crash

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/tool"
)

// Files in a scenario's folder, outside its workspace.
const (
	effectsFile  = "effects.log"  // a line for each effect: CALL KEY
	executedFile = "executed.log" // a line for each execution: CALL
	askedFile    = "asked.log"    // a line for each request that reached a model: MODEL
	offFile      = "off"          // names the tool that switch_off has switched off
	workspace    = "workspace"
	database     = "toolcrib.db"
	postgresFile = "postgres" // address and key file, a line each, if the store is not SQLite
)

// appendLine adds a line to a file, and syncs it if it is an effect.
func appendLine(path, line string) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteString(line + "\n"); err != nil || filepath.Base(path) != effectsFile {
		return err
	}
	return f.Sync()
}

type keyed struct {
	Key string `json:"key"`
}

type appended struct {
	Appended string `json:"appended"`
}

type named struct {
	Name string `json:"name,omitempty"`
}

type nothing struct{}

// functions are tools made of Go functions. Their effects are lines of effectsFile.
func functions(dir string, cancel func(), settled func(ctx context.Context, agent string) error) []toolcrib.Tool {
	read := func(name string) toolcrib.Spec {
		return toolcrib.Spec{Name: name, Effect: toolcrib.EffectReadOnly}
	}
	brief := func(spec toolcrib.Spec) toolcrib.Spec {
		spec.Timeout = 400 * time.Millisecond
		return spec
	}
	write := func(name string) toolcrib.Spec { return toolcrib.Spec{Name: name} }
	stranger := read("read_stranger")
	stranger.Untrusted = true
	effect := func(call toolcrib.Call, key string) (appended, error) {
		return appended{key}, appendLine(filepath.Join(dir, effectsFile), call.ID+" "+key)
	}
	wait := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	return []toolcrib.Tool{
		tool.MustFunc(read("read_thing"), func(_ context.Context, _ toolcrib.Call, in named) (string, error) {
			return "the thing " + in.Name, nil
		}),
		tool.MustFunc(read("fail"), func(context.Context, toolcrib.Call, nothing) (string, error) {
			return "", toolcrib.Failf(toolcrib.NotFound, "the thing")
		}),
		tool.MustFunc(read("faulty"), func(context.Context, toolcrib.Call, nothing) (string, error) {
			return "", errors.New("something that no model should read")
		}),
		tool.MustFunc(read("panics"), func(context.Context, toolcrib.Call, nothing) (string, error) {
			panic("something that no model should read")
		}),
		tool.MustFunc(read("big"), func(context.Context, toolcrib.Call, nothing) (string, error) {
			return strings.Repeat("0123456789abcdef", 8<<10), nil
		}),
		tool.MustFunc(brief(read("slow")), func(ctx context.Context, _ toolcrib.Call, _ nothing) (string, error) {
			return "", wait(ctx)
		}),
		tool.MustFunc(brief(write("slow_append")), func(ctx context.Context, call toolcrib.Call, in keyed) (appended, error) {
			out, err := effect(call, in.Key)
			return out, errors.Join(err, wait(ctx))
		}),
		tool.MustFunc(write("append_line"), func(_ context.Context, call toolcrib.Call, in keyed) (appended, error) {
			return effect(call, in.Key)
		}),
		tool.MustFunc(read("cancel_run"), func(ctx context.Context, _ toolcrib.Call, _ nothing) (string, error) {
			cancel()
			return "", wait(ctx)
		}),
		tool.MustFunc(write("cancel_and_append"), func(ctx context.Context, call toolcrib.Call, in keyed) (appended, error) {
			cancel()
			out, err := effect(call, in.Key)
			return out, errors.Join(err, wait(ctx))
		}),
		tool.MustFunc(read("switch_off"), func(_ context.Context, _ toolcrib.Call, in named) (string, error) {
			return in.Name + " is off", os.WriteFile(filepath.Join(dir, offFile), []byte(in.Name), 0o600)
		}),
		tool.MustFunc(stranger, func(context.Context, toolcrib.Call, nothing) (string, error) {
			return "the words of a stranger", nil
		}),
		tool.MustFunc(read("await"), func(ctx context.Context, _ toolcrib.Call, in named) (string, error) {
			return in.Name + " is done or waits", settled(ctx, in.Name)
		}),
	}
}

// availability switches search_files off, and what switch_off has named.
type availability struct{ dir string }

func (a availability) Overrides(context.Context) (gate.Overrides, error) {
	over := gate.Overrides{Tools: map[string]bool{"search_files": false}}
	name, err := os.ReadFile(filepath.Join(a.dir, offFile))
	if err == nil && len(name) > 0 {
		over.Tools[string(name)] = false
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return over, err
}

// dying is a tool that notes each execution, and whose process can die around its effect.
type dying struct {
	toolcrib.Tool
	*dead
	dir string
}

// planner is a dying tool that plans its calls.
type planner struct {
	*dying
	plans toolcrib.Planner
}

// deadlyTool makes the process able to die around the effects of t.
func deadlyTool(t toolcrib.Tool, d *dead, dir string) toolcrib.Tool {
	inner := &dying{Tool: t, dead: d, dir: dir}
	if p, ok := t.(toolcrib.Planner); ok {
		return &planner{inner, p}
	}
	return inner
}

func (t *dying) Call(ctx context.Context, call toolcrib.Call) (out toolcrib.Output, err error) {
	return t.run(ctx, call, t.Tool.Call)
}

func (t *planner) Plan(ctx context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	plan, err := t.plans.Plan(ctx, call)
	if err != nil {
		return nil, err
	}
	run := plan.Run
	plan.Run = func(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) { return t.run(ctx, call, run) }
	return plan, nil
}

func (t *dying) run(ctx context.Context, call toolcrib.Call,
	run func(context.Context, toolcrib.Call) (toolcrib.Output, error),
) (out toolcrib.Output, err error) {
	label := t.label("effect/" + call.ID)
	t.pass(label + "/before")
	if err := appendLine(filepath.Join(t.dir, executedFile), call.ID); err != nil {
		return out, err
	}
	t.pass(label + "/during")
	out, err = run(ctx, call)
	t.pass(label + "/after")
	return out, err
}
