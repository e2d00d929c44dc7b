package celrule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
)

// Judge returns the rules that apply to the call, in their order. Rules about other tools are not
// evaluated. If a rule cannot be evaluated (a missing argument, work beyond the bounds, ctx has
// ended), its Err is set. The arguments are read once for all rules, and only if a condition uses
// them.
func (s *Set) Judge(ctx context.Context, in gate.RuleInput) []gate.RuleMatch {
	rules := s.about(in.Tool)
	if len(rules) == 0 {
		return nil
	}
	var folders []string
	facts, wrong := s.facts(&in, &folders)
	var matches []gate.RuleMatch
	spent := uint64(0)
	for _, r := range rules {
		answer, err := yes, errors.Join(wrong, ctx.Err())
		folders = nil
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
		m := gate.RuleMatch{RuleInfo: r.info, Undecided: answer == maybe, Folders: folders}
		if err != nil {
			m.Err = fmt.Errorf("rule %s: %w", r.info.Name, err)
		}
		matches = append(matches, m)
	}
	return matches
}

var errTooCostly = errors.New("the conditions of this call's rules cost too much together")

// answer is the result of a condition.
type answer int

const (
	no answer = iota
	yes
	maybe // it depends on something that is unknown until the call runs
)

// evaluate returns the result of the condition and its cost. Every failure, including a panic, is
// an error of the rule.
func (r *rule) evaluate(ctx context.Context, facts cel.Activation) (result answer, cost uint64, err error) {
	defer func() {
		if p := recover(); p != nil {
			result, err = no, errors.New("the condition could not be evaluated")
		}
	}()
	v, details, err := r.program.ContextEval(ctx, facts)
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

// evaluationError returns a short error that says why a condition could not be evaluated. The text
// is for operators. It may contain parts of arguments, and is cut.
func evaluationError(ctx context.Context, err error) error {
	var cancelled interpreter.EvalCancelledError
	switch ended := errors.As(err, &cancelled); {
	case ended && cancelled.Cause == interpreter.CostLimitExceeded:
		return fmt.Errorf("the condition costs more than %d units", MaxCost)
	case ended && cancelled.Cause == interpreter.MemoryLimitExceeded:
		return errors.New("a value has too many parts, or is too long")
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return errors.New(oneLine(readable(err.Error())))
}

// facts returns the variables of the conditions for one call. Costly ones are computed when a
// condition uses them. Folders for which it is unknown whether the call touches them are added to asked.
func (s *Set) facts(in *gate.RuleInput, asked *[]string) (cel.Activation, error) {
	who := in.Who
	if who == nil { // without a principal there are no rights
		who = &toolcrib.Principal{}
	}
	trust := trustUnknown
	switch who.Trust {
	case toolcrib.TrustMember, toolcrib.TrustTrusted, toolcrib.TrustAnchor:
		trust = string(who.Trust)
	}
	return cel.NewActivation(map[string]any{
		varArgs: func() ref.Val {
			v, err := arguments(in.Arguments)
			if err != nil {
				return types.WrapErr(err)
			}
			return v
		},
		varTargets: func() ref.Val {
			root := resolved(in.Workspace)
			return s.list(len(in.Targets), func(i int) any { return targetOf(in.Targets[i], root, in.Hidden, asked) })
		},
		varPrograms: func() ref.Val {
			return s.list(len(in.Programs), func(i int) any { return programOf(in.Programs[i]) })
		},
		varWorkspace: func() ref.Val { return types.String(resolved(in.Workspace)) },
		varTool:      types.String(in.Tool), varEffect: types.String(in.Effect.OrStrictest()),
		varAgent: types.String(in.Agent), varRun: types.String(in.Run), varSession: types.String(in.Session),
		varDepth: types.Int(in.Depth), varTainted: types.Bool(len(in.Taint) > 0), varTaint: in.Taint,
		varUser: types.String(who.User), varAdmin: types.Bool(who.Admin), varRoles: who.Roles, varGroups: who.Groups,
		varTrust: types.String(trust),
	})
}

func (s *Set) list(n int, element func(i int) any) ref.Val {
	list := make([]ref.Val, n)
	for i := range list {
		list[i] = s.adapter.NativeToValue(element(i))
	}
	return types.NewRefValList(types.DefaultTypeAdapter, list)
}

// resolved returns the workspace with its symbolic links resolved, as in the names of targets.
func resolved(workspace string) string {
	if real, err := filepath.EvalSymlinks(workspace); err == nil {
		return real
	}
	return workspace
}

// Bounds of the arguments that rules read, far above those of the gate.
const (
	maxArguments      = 4 << 20 // bytes
	maxArgumentsDepth = 1000
)

// arguments reads canonical arguments as a CEL map.
func arguments(raw json.RawMessage) (ref.Val, error) {
	v, err := guard.JSONLimits{MaxBytes: maxArguments, MaxDepth: maxArgumentsDepth}.Value(raw)
	if err != nil {
		return nil, fmt.Errorf("the arguments: %w", err)
	}
	members, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("the arguments are not a JSON object")
	}
	return value(members), nil
}

// value converts a decoded JSON value to a CEL value.
func value(v any) ref.Val {
	switch v := v.(type) {
	case string:
		return types.String(v)
	case bool:
		return types.Bool(v)
	case json.Number:
		return number(v.String())
	case []any:
		list := make([]ref.Val, len(v))
		for i := range v {
			list[i] = value(v[i])
		}
		return types.NewRefValList(types.DefaultTypeAdapter, list)
	case map[string]any:
		members := make(map[string]ref.Val, len(v))
		for name, member := range v {
			members[name] = value(member)
		}
		return types.NewMap(types.DefaultTypeAdapter, members)
	}
	return types.NullValue
}

// number converts a number. An integer becomes an int, or a uint if only that can hold it; any
// other number becomes a double. A number that rules cannot represent (an integer beyond 64 bits, a
// number beyond all doubles) is an error only in a condition that uses it.
func number(text string) ref.Val {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return types.Int(i)
	}
	if u, err := strconv.ParseUint(text, 10, 64); err == nil {
		return types.Uint(u)
	}
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || !strings.ContainsAny(text, ".eE"):
		return types.NewErr("a number of the arguments is too large for rules")
	case f == math.Trunc(f) && math.Abs(f) < 1<<53:
		return types.Int(f) // 1.0 is an integer in JSON Schema
	}
	return types.Double(f)
}
