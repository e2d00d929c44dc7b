package files

import (
	"context"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/pattern"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

// about has the properties that all tools of the package have.
type about struct {
	set  *settings
	spec toolcrib.Spec
	tree bool // whether everything below a folder is also read
}

func spec(name, description, parameters string, effect toolcrib.Effect) toolcrib.Spec {
	s := wire.Spec(Group, name, description, parameters, effect)
	s.Plans = toolcrib.PlanFacts{Targets: true, Policy: true}
	return s
}

// Spec describes the tool.
func (a *about) Spec() toolcrib.Spec { return a.spec }

// BadPattern returns why a pattern cannot match any path, or "".
func (a *about) BadPattern(text string) string { return pattern.BadPath(text, a.tree) }

// resolve resolves the path of a call, without opening the file. It refuses a path that is empty,
// invalid, or outside the workspace as text or by its links (C11), and another name of a file of
// toolcrib itself.
func (a *about) resolve(call toolcrib.Call, name string) (p place, abs string, err error) {
	w, err := a.set.open(call)
	if err != nil {
		return p, "", err
	}
	defer w.Close()
	if p, err = w.find(name); err == nil && a.set.own.Is(p.info) {
		err = protectedPath(p.shown)
	}
	return p, w.Abs(p.real), failure(err, p.shown)
}

// plan returns the plan of a call for the file or folder at abs, which the call names name. If abs is
// "", the path of the call could not be resolved.
func (a *about) plan(call toolcrib.Call, name, abs string, write bool) *toolcrib.Plan {
	p := &toolcrib.Plan{}
	if abs != "" {
		p.Targets = []toolcrib.Target{{Kind: toolcrib.TargetFile, Name: abs, Write: write, Tree: a.tree}}
	}
	p.Matches = func(patterns []string) (bool, error) {
		return pattern.Path(patterns, name, call.Workspace, p.Targets, a.tree), nil
	}
	return p
}

// pathOf are arguments with a path.
type pathOf struct {
	Path string `json:"path"`
}

func (p pathOf) path() string { return p.Path }

// readTool is a tool that reads a file or folder. In are its arguments.
type readTool[In interface{ path() string }] struct {
	about
	absent In // arguments that a call leaves out
	read   readFunc[In]
}

type readFunc[In any] func(context.Context, toolcrib.Call, *workspace, place, In) (toolcrib.Output, error)

func newReadTool[In interface{ path() string }](
	s *settings, name, description, parameters string, tree bool, absent In, read readFunc[In],
) toolcrib.Tool {
	about := about{s, spec(name, description, parameters, toolcrib.EffectReadOnly), tree}
	return &readTool[In]{about, absent, read}
}

// Plan decodes the arguments and resolves the path.
func (r *readTool[In]) Plan(_ context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	in := r.absent
	if err := wire.Decode(call.Arguments, &in); err != nil {
		return nil, err
	}
	p, abs, err := r.resolve(call, in.path())
	if err != nil {
		return nil, err
	}
	plan := r.plan(call, in.path(), abs, false)
	plan.Run = func(ctx context.Context, call toolcrib.Call) (out toolcrib.Output, err error) {
		err = r.set.at(ctx, call, p, func(w *workspace, p place) error {
			out, err = r.read(ctx, call, w, p, in)
			return err
		})
		return out, err
	}
	return plan, nil
}

// Call plans the call and runs the plan.
func (r *readTool[In]) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.RunPlan(ctx, r, call)
}
