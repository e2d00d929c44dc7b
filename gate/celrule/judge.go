package celrule

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
)

// Judge returns the rules that apply to the call, in their order. A rule about
// other tools is not evaluated. One that cannot be evaluated (an argument that is
// missing, work beyond the bounds, ctx has ended) has Err set. Arguments are read
// once for all rules, and only if a condition looks at them.
func (s *Set) Judge(ctx context.Context, in gate.RuleInput) []gate.RuleMatch {
	rules := s.about(in.Tool)
	if len(rules) == 0 {
		return nil
	}
	facts := factsPool.Get().(*facts) //nolint:forcetypeassert // the pool holds nothing else
	facts.in, facts.adapter = &in, s.adapter
	defer func() {
		facts.clear()
		factsPool.Put(facts)
	}()
	var matches []gate.RuleMatch
	spent := uint64(0)
	for _, r := range rules {
		answer, err := yes, ctx.Err()
		if err == nil && r.program != nil {
			var cost uint64
			answer, cost, err = r.evaluate(ctx, facts)
			if spent += cost; err == nil && spent > MaxCost {
				err = errTooCostly
			}
		}
		if answer == no && err == nil {
			continue
		}
		m := gate.RuleMatch{
			Name: r.info.Name, Then: r.info.Then, Message: r.info.Message, Position: r.info.Position, Undecided: answer == maybe,
		}
		if err != nil {
			m.Err = fmt.Errorf("rule %s: %w", r.info.Name, err)
		}
		matches = append(matches, m)
	}
	return matches
}

var errTooCostly = errors.New("the conditions of this call's rules cost too much together")

// answer is whether a condition holds.
type answer int

const (
	no answer = iota
	yes
	maybe // it depends on what is not known before the call runs
)

// evaluate reports whether the condition holds, and what that cost. Whatever goes
// wrong is an error of the rule.
func (r *rule) evaluate(ctx context.Context, facts *facts) (holds answer, cost uint64, err error) {
	defer func() {
		if p := recover(); p != nil {
			holds, err = no, errors.New("the condition could not be evaluated")
		}
	}()
	var (
		v       ref.Val
		details *cel.EvalDetails
	)
	if r.loops {
		v, details, err = r.program.ContextEval(ctx, facts)
	} else { // it ends soon by itself; a context costs more than the whole evaluation
		v, details, err = r.program.Eval(facts)
	}
	if spent := details.ActualCost(); spent != nil {
		cost = *spent
	}
	switch {
	case err != nil:
		return no, cost, evaluationError(ctx, err)
	case types.IsUnknown(v):
		return maybe, cost, nil
	case v == types.True:
		return yes, cost, nil
	case v == types.False:
		return no, cost, nil
	}
	return no, cost, fmt.Errorf("the condition is a %s, not true or false", typeName(v))
}

// typeName names the type of a value.
func typeName(v ref.Val) string {
	if v == nil || v.Type() == nil {
		return "nothing"
	}
	return v.Type().TypeName()
}

// evaluationError says shortly why a condition could not be evaluated. The text is
// for operators; it may hold pieces of arguments, and is cut.
func evaluationError(ctx context.Context, err error) error {
	switch {
	case tooCostly(err):
		return fmt.Errorf("the condition costs more than %d units", MaxCost)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return errors.New(oneLine(readable(err.Error())))
}

// tooCostly reports whether an evaluation was ended by its cost.
func tooCostly(err error) bool {
	var cancelled interpreter.EvalCancelledError
	return errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded
}

// facts are the variables of the conditions for one call.
type facts struct {
	in        *gate.RuleInput
	adapter   types.Adapter
	args      ref.Val
	targets   ref.Val
	programs  ref.Val
	workspace ref.Val
}

var factsPool = sync.Pool{New: func() any { return &facts{} }}

func (f *facts) clear() { *f = facts{} }

// Parent implements CEL's activation.
func (f *facts) Parent() interpreter.Activation { return nil }

// ResolveName implements CEL's activation.
func (f *facts) ResolveName(name string) (any, bool) {
	switch name {
	case varArgs:
		return f.arguments(), true
	case varTool:
		return types.String(f.in.Tool), true
	case varEffect:
		return types.String(f.in.Effect.OrStrictest()), true
	case varTargets:
		return f.touched(), true
	case varPrograms:
		return f.started(), true
	case varAgent:
		return types.String(f.in.Agent), true
	case varRun:
		return types.String(f.in.Run), true
	case varSession:
		return types.String(f.in.Session), true
	case varDepth:
		return types.Int(f.in.Depth), true
	case varWorkspace:
		if f.workspace == nil {
			f.workspace = types.String(f.root())
		}
		return f.workspace, true
	case varTainted:
		return types.Bool(len(f.in.Taint) > 0), true
	case varTaint:
		return texts(f.in.Taint), true
	}
	return f.principal(name)
}

// principal has the variables about whom the run acts for; nobody has no rights.
func (f *facts) principal(name string) (any, bool) {
	who := f.in.Who
	if who == nil {
		who = &toolcrib.Principal{}
	}
	switch name {
	case varUser:
		return types.String(who.User), true
	case varAdmin:
		return types.Bool(who.Admin), true
	case varRoles:
		return texts(who.Roles), true
	case varGroups:
		return texts(who.Groups), true
	case varTrust:
		switch who.Trust {
		case toolcrib.TrustMember, toolcrib.TrustTrusted, toolcrib.TrustAnchor:
			return types.String(who.Trust), true
		}
		return types.String(trustUnknown), true
	}
	return nil, false
}

func texts(list []string) ref.Val {
	return types.NewStringList(types.DefaultTypeAdapter, list)
}

func (f *facts) arguments() ref.Val {
	if f.args == nil {
		v, err := arguments(f.in.Arguments)
		if err != nil {
			v = types.WrapErr(err)
		}
		f.args = v
	}
	return f.args
}

// root is the workspace as the names of targets begin: with its links resolved.
func (f *facts) root() string {
	path := f.in.Workspace
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	return path
}

func (f *facts) touched() ref.Val {
	if f.targets == nil {
		root := f.root()
		list := make([]ref.Val, len(f.in.Targets))
		for i, t := range f.in.Targets {
			list[i] = f.adapter.NativeToValue(targetOf(t, root))
		}
		f.targets = types.NewRefValList(types.DefaultTypeAdapter, list)
	}
	return f.targets
}

func (f *facts) started() ref.Val {
	if f.programs == nil {
		var list []ref.Val
		if f.in.Programs != nil {
			for _, p := range f.in.Programs() {
				list = append(list, f.adapter.NativeToValue(programOf(p)))
			}
		}
		f.programs = types.NewRefValList(types.DefaultTypeAdapter, list)
	}
	return f.programs
}
