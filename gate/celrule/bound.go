package celrule

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
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

// Bounds of an evaluation. CEL checks the weight of a value and counts the cost of an operation
// only after the operation, so operations that can multiply are bounded before they run.
const (
	maxWeight       = 1 << 20 // of any value, see [bounds.weight]
	maxText         = 4 << 20 // bytes of a text that replace makes, or of the separators that join adds
	maxPatternBytes = 1024    // length of a regular expression
	maxPatternSteps = 2048    // instructions of a compiled regular expression
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
	one   uint64
}

// bounded returns the options of a bounded program. Values that the program makes are weighed only
// if they can be larger than its input, because weighing costs a fifth of an evaluation.
func (c *compiler) bounded(r *rule) ([]cel.ProgramOption, error) {
	b := &bounds{
		functions: map[string]*functions.Overload{}, steps: map[string]int{}, one: 1,
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
	options := []cel.ProgramOption{
		cel.EvalOptions(cel.OptOptimize),
		cel.CustomDecoratorV2(b.decorate),
		cel.CostTracking(b), cel.CostLimit(MaxCost),
		cel.InterruptCheckFrequency(checkEvery),
	}
	if r.makes {
		options = append(options,
			cel.MemoryTracking(types.MemoryTrackerSizeCalculator(b.sizes)), cel.MemoryLimit(maxWeight))
	}
	return options, nil
}

// weight counts a value and all values in it; a text counts one for each [bytesPerUnit] bytes. A
// value that occurs twice counts twice, because weight measures the work of walking through it.
func (b *bounds) weight(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return 1 + uint64(len(v))/bytesPerUnit
	case types.Bytes:
		return 1 + uint64(len(v))/bytesPerUnit
	case traits.Mapper, traits.Lister:
		return uint64(b.sizes.AggregateSize(v))
	}
	return 1
}

// decorate replaces operations that can cost far more than they seem to when a program is made, and
// operations that do not handle unknown words.
func (b *bounds) decorate(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok {
		return i, nil
	}
	operands, name := call.Args(), call.Function()
	with := func(impl func(...ref.Val) ref.Val) interpreter.InterpretableV2 {
		return interpreter.NewCall(call.ID(), name, call.OverloadID(), operands, func(args ...ref.Val) ref.Val {
			if open(args...) {
				return undecided()
			}
			return impl(args...)
		})
	}
	switch {
	case b.functions[name] != nil:
		return with(func(args ...ref.Val) ref.Val { return b.library(name, args) }), nil
	case name == overloads.Size && len(operands) == 1:
		return with(func(args ...ref.Val) ref.Val {
			if sizer, ok := args[0].(traits.Sizer); ok {
				return sizer.Size()
			}
			return types.MaybeNoSuchOverloadErr(args[0])
		}), nil
	case name == operators.In && len(operands) == 2:
		return interpreter.NewCall(call.ID(), name, call.OverloadID(), operands, func(args ...ref.Val) ref.Val {
			container, ok := args[1].(traits.Container)
			switch {
			case open(args[0]):
				return undecided()
			case !ok:
				return types.MaybeNoSuchOverloadErr(args[1])
			}
			return container.Contains(args[0])
		}), nil
	case len(operands) != 2 || plain(operands[0]) || name != overloads.Matches && plain(operands[1]):
	case name == operators.Equals:
		return with(func(args ...ref.Val) ref.Val { return types.Equal(args[0], args[1]) }), nil
	case name == operators.NotEquals:
		return with(func(args ...ref.Val) ref.Val {
			result := types.Equal(args[0], args[1])
			if types.IsUnknownOrError(result) {
				return result
			}
			return types.Bool(result != types.True)
		}), nil
	case name == operators.Add:
		return with(func(args ...ref.Val) ref.Val {
			if adder, ok := args[0].(traits.Adder); ok {
				return adder.Add(args[1])
			}
			return types.MaybeNoSuchOverloadErr(args[0])
		}), nil
	case name == overloads.Matches:
		literal, ok := operands[1].(interpreter.InterpretableConst)
		if !ok {
			return nil, errors.New("matches: the pattern is not a literal")
		}
		compiled, steps, err := compilePattern(text(literal.Value()))
		b.steps[text(literal.Value())] = steps
		return opaque{with(func(args ...ref.Val) ref.Val { return run(compiled, steps, args[0]) })}, err
	}
	return i, nil
}

// plain reports whether an operand is a literal other than a list or map.
func plain(i interpreter.InterpretableV2) bool {
	literal, ok := i.(interpreter.InterpretableConst)
	if !ok {
		return false
	}
	switch literal.Value().(type) {
	case traits.Mapper, traits.Lister:
		return false
	}
	return true
}

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

// opaque hides a call of matches from the library, which would replace it by its own
// implementation.
type opaque struct{ interpreter.InterpretableV2 }

// compilePattern compiles a regular expression (RE2) and returns it with its number of
// instructions.
func compilePattern(source string) (*regexp.Regexp, int, error) {
	if len(source) > maxPatternBytes {
		return nil, 0, fmt.Errorf("a regular expression has more than %d bytes", maxPatternBytes)
	}
	parsed, err := syntax.Parse(source, syntax.Perl)
	if err != nil {
		return nil, 0, fmt.Errorf("invalid regular expression: %w", err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, 0, fmt.Errorf("invalid regular expression: %w", err)
	}
	if n := len(program.Inst); n > maxPatternSteps {
		return nil, 0, fmt.Errorf("a regular expression is too large: it has %d steps, more than %d", n, maxPatternSteps)
	}
	compiled, err := regexp.Compile(source)
	return compiled, len(program.Inst), err
}

func run(compiled *regexp.Regexp, steps int, on ref.Val) ref.Val {
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
	case operators.Add:
		if s, ok := result.(types.String); ok {
			units = b.weight(s)
		}
	case overloads.Matches:
		units = 1 + uint64(len(text(args[0]))*b.steps[text(args[1])]/stepsPerUnit)
	case "indexOf", "lastIndexOf":
		units = 1 + uint64(len(text(args[0]))*len(text(args[1]))/bytesPerUnit)
	case "join", "split", "replace":
		units = b.weight(args[0]) + b.weight(result)
	default: // functions and conversions of a text read it once
		s, ok := types.String(""), false
		if len(args) > 0 {
			s, ok = args[0].(types.String)
		}
		switch {
		case ok:
			units = b.weight(s)
		case function != overloads.Size:
			return nil
		}
	}
	if units == 1 {
		return &b.one
	}
	return &units
}
