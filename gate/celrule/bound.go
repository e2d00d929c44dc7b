package celrule

import (
	"errors"
	"regexp"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// Bounds of an evaluation over the arguments of a call. The cel-go library checks the weight of a
// value and counts the cost of an operation only after the operation, so operations that can
// multiply two lengths are bounded before they run.
const (
	maxWeight = 1 << 20 // of any value, see [bounds.weight]
	maxText   = 4 << 20 // bytes of a text that replace makes, or of the separators that join adds
	// bytesPerUnit and stepsPerUnit are the work that one unit of cost pays for: bytes that are
	// read, and bytes of a text times instructions of a regular expression.
	bytesPerUnit = 10
	stepsPerUnit = 40
)

// bounds bounds the operations of one program and computes their cost.
type bounds struct {
	functions map[string]*functions.Overload // functions of the library, by name
	sizes     *types.SizeCalculator
	// steps has the number of instructions of each regular expression of the condition. It is only
	// read once the program is made.
	steps map[string]int
}

// bounded returns the options of a bounded program.
func (c *compiler) bounded() ([]cel.ProgramOption, error) {
	b := &bounds{
		functions: map[string]*functions.Overload{}, steps: map[string]int{},
		sizes: types.NewSizeCalculator(
			types.SizeCalculatorMaxDepth(1<<10),
			types.SizeCalculatorMaxTraversal(maxWeight),
			types.SizeCalculatorStringUnitLength(bytesPerUnit),
		),
	}
	for _, name := range []string{"indexOf", "lastIndexOf", "replace", "join"} {
		all, err := c.env.Functions()[name].Bindings()
		if err != nil {
			return nil, err
		}
		b.functions[name] = all[len(all)-1] // finds the overload by the arguments
	}
	return []cel.ProgramOption{
		cel.EvalOptions(cel.OptOptimize),
		cel.CustomDecoratorV2(b.decorate),
		cel.CostTracking(b), cel.CostLimit(MaxCost),
		cel.MemoryTracking(types.MemoryTrackerSizeCalculator(b.sizes)), cel.MemoryLimit(maxWeight),
		cel.InterruptCheckFrequency(checkEvery),
	}, nil
}

// weight counts a value and all values in it; a text counts one for each [bytesPerUnit] bytes. A
// value that occurs twice counts twice, because weight measures the work of walking through it.
func (b *bounds) weight(v ref.Val) uint64 { return uint64(b.sizes.AggregateSize(v)) }

// decorate replaces operations when a program is made: those that can cost far more than they seem
// to, and those that do not handle unknown words.
func (b *bounds) decorate(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok {
		return i, nil
	}
	name, operands := call.Function(), call.Args()
	do := onWords(name, len(operands))
	switch {
	case b.functions[name] != nil:
		do = func(args ...ref.Val) ref.Val { return b.library(name, args) }
	case name == overloads.Matches && len(operands) == 2:
		literal, ok := operands[1].(interpreter.InterpretableConst)
		if !ok {
			return nil, errors.New("matches: the pattern is not a literal")
		}
		source := text(literal.Value())
		steps, err := types.RegexProgramSize(source)
		if err != nil {
			return nil, err
		}
		compiled, err := regexp.Compile(source)
		if err != nil {
			return nil, err
		}
		b.steps[source] = steps
		do = func(args ...ref.Val) ref.Val { return match(compiled, steps, args[0]) }
	case do == nil:
		return i, nil
	}
	made := interpreter.NewCall(call.ID(), name, call.OverloadID(), operands, func(args ...ref.Val) ref.Val {
		if open(args[0]) || name != operators.In && open(args...) {
			return undecided()
		}
		return do(args...)
	})
	if name == overloads.Matches {
		return opaque{made}, nil
	}
	return made, nil
}

// opaque hides a call of matches from the library, which would replace it by its own
// implementation.
type opaque struct{ interpreter.InterpretableV2 }

// library calls a function of the library unless that would take too long or make too much.
// Searching takes time proportional to the product of two lengths, and the texts made can have any
// length.
func (b *bounds) library(name string, args []ref.Val) ref.Val {
	switch first, second := text(args[0]), text(args[min(1, len(args)-1)]); name {
	case "replace":
		if len(first)+strings.Count(first, second)*len(text(args[2])) > maxText {
			return types.NewErr("a text would be longer than %d bytes", maxText)
		}
	case "join":
		if list, ok := args[0].(traits.Lister); ok && len(args) > 1 && integer(list.Size())*int64(len(second)) > maxText {
			return types.NewErr("a text would be longer than %d bytes", maxText)
		}
	default:
		if len(first)*len(second)/bytesPerUnit > MaxCost {
			return types.NewErr("texts of %d and %d bytes are too long to find one in the other", len(first), len(second))
		}
	}
	f := b.functions[name]
	switch {
	case len(args) == 1 && f.Unary != nil:
		return f.Unary(args[0])
	case len(args) == 2 && f.Binary != nil:
		return f.Binary(args[0], args[1])
	}
	return f.Function(args...)
}

// text and integer read an argument whose type CEL has checked.
func text(v ref.Val) string {
	s, _ := v.(types.String)
	return string(s)
}

func integer(v ref.Val) int64 {
	i, _ := v.(types.Int)
	return int64(i)
}

// match matches a text unless that would take too long.
func match(compiled *regexp.Regexp, steps int, on ref.Val) ref.Val {
	s, ok := on.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(on)
	}
	if len(s)*steps/stepsPerUnit > MaxCost {
		return types.NewErr("a text of %d bytes is too long for a regular expression of %d steps", len(s), steps)
	}
	return types.Bool(compiled.MatchString(string(s)))
}

// CallCost returns the cost of a call where the library would count 1 whatever the operands are.
// That is nearly everywhere, because arguments have no static types. CallCost is called after the
// operation; operations that could be too costly are bounded before, see [bounds.decorate].
func (b *bounds) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	units := uint64(1)
	switch function {
	case operators.Equals, operators.NotEquals,
		operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		units = min(b.weight(args[0]), b.weight(args[1]))
	case operators.In:
		if _, ok := args[1].(traits.Lister); ok {
			units = b.weight(args[1])
		}
	case overloads.Matches:
		units += uint64(len(text(args[0])) * b.steps[text(args[1])] / stepsPerUnit)
	case "indexOf", "lastIndexOf":
		units += uint64(len(text(args[0])) * len(text(args[1])) / bytesPerUnit)
	case "join", "split", "replace":
		units = b.weight(args[0]) + b.weight(result)
	case operators.Add: // lists are not copied
		units = b.weight(types.String(text(result)))
	default: // functions and conversions of a text read it once
		if len(args) == 0 || args[0].Type() != types.StringType {
			return nil
		}
		units = b.weight(args[0])
	}
	return &units
}
