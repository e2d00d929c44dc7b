package celrule

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// Bounds of single operations. CEL counts the cost of an operation after it is
// done, so each must be bounded by itself.
const (
	maxWeight       = 1 << 20 // of a value that is compared or built, see weight
	maxPatternBytes = 1024    // of a regular expression
	maxPatternSteps = 2048    // instructions of a compiled one
	maxMadeSteps    = 256     // of one that is made at the call
	compileUnits    = 5000    // what compiling one then costs
	// bytesPerUnit and stepsPerUnit are what one unit of cost pays for: bytes looked
	// at once, and bytes of a text times instructions of a regular expression.
	bytesPerUnit = 10
	stepsPerUnit = 40
)

// bounds makes the operations of one program safe, and prices them.
type bounds struct {
	sizes *types.SizeCalculator
	// steps are the instructions of the regular expressions that the condition has
	// as literals; only read once the program is made.
	steps map[string]int
	one   uint64
}

func newBounds() *bounds {
	return &bounds{
		sizes: types.NewSizeCalculator(
			types.SizeCalculatorMaxDepth(1<<10),
			types.SizeCalculatorMaxTraversal(maxWeight),
			types.SizeCalculatorStringUnitLength(bytesPerUnit),
		),
		steps: map[string]int{}, one: 1,
	}
}

// weight counts a value and all values in it, a text as one for each
// [bytesPerUnit] bytes. A value that is in it twice counts twice, so a small thing
// in memory can be a heavy one to walk through.
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

// decorate replaces what could be costly out of proportion when a program is made.
func (b *bounds) decorate(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	if constructor, ok := i.(interpreter.InterpretableConstructor); ok {
		return &boundedConstructor{constructor, b}, nil
	}
	call, ok := i.(interpreter.InterpretableCall)
	if !ok {
		return i, nil
	}
	operands := call.Args()
	with := func(impl func(...ref.Val) ref.Val) interpreter.InterpretableCall {
		return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), operands, impl)
	}
	switch name := call.Function(); {
	case name == overloads.Size && len(operands) == 1:
		return with(size), nil
	case len(operands) != 2:
	case name == operators.Equals, name == operators.NotEquals:
		if plain(operands[0]) || plain(operands[1]) {
			return i, nil // comparing with a number or text is as cheap as it looks
		}
		return with(func(args ...ref.Val) ref.Val {
			result := b.equal(args[0], args[1])
			if name == operators.Equals || types.IsUnknownOrError(result) {
				return result
			}
			return types.Bool(result != types.True)
		}), nil
	case name == operators.In:
		return with(func(args ...ref.Val) ref.Val { return b.in(args[0], args[1]) }), nil
	case name == operators.Add:
		return with(func(args ...ref.Val) ref.Val { return b.add(args[0], args[1]) }), nil
	case name == overloads.Matches:
		return b.matches(with, operands[1])
	}
	return i, nil
}

// plain reports whether an operand is a literal that holds no other values.
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

func size(args ...ref.Val) ref.Val {
	sizer, ok := args[0].(traits.Sizer)
	switch {
	case !ok:
		return types.MaybeNoSuchOverloadErr(args[0])
	case open(args[0]):
		return undecided()
	}
	return sizer.Size()
}

func (b *bounds) equal(left, right ref.Val) ref.Val {
	if open(left, right) {
		return undecided()
	}
	if min(b.weight(left), b.weight(right)) > maxWeight {
		return tooHeavy()
	}
	return types.Equal(left, right)
}

func (b *bounds) in(element, list ref.Val) ref.Val {
	container, ok := list.(traits.Container)
	if open(element) {
		return undecided()
	}
	if !ok {
		return types.MaybeNoSuchOverloadErr(list)
	}
	if sizer, ok := list.(traits.Sizer); ok {
		compared := min(b.weight(list), uint64(integer(sizer.Size()))*b.weight(element))
		if _, isList := list.(traits.Lister); isList && compared > maxWeight {
			return tooHeavy()
		}
	}
	return container.Contains(element)
}

func (b *bounds) add(left, right ref.Val) ref.Val {
	if open(left, right) {
		return undecided()
	}
	adder, ok := left.(traits.Adder)
	if !ok {
		return types.MaybeNoSuchOverloadErr(left)
	}
	switch l := left.(type) {
	case types.String:
		if r, ok := right.(types.String); ok && len(l)+len(r) > maxText {
			return tooLong()
		}
	case types.Bytes:
		if r, ok := right.(types.Bytes); ok && len(l)+len(r) > maxText {
			return tooLong()
		}
	case traits.Lister:
		if r, ok := right.(traits.Lister); ok {
			have, more := integer(l.Size()), integer(r.Size())
			if have+more > maxElements {
				return tooMany()
			}
			// Heavy elements may be few, and many elements must be light.
			if more > 0 && uint64(have+more)*(b.weight(right)/uint64(more)) > 4*maxWeight {
				return tooHeavy()
			}
		}
	}
	return adder.Add(right)
}

// matches compiles a literal pattern once; any other at the call.
func (b *bounds) matches(
	with func(func(...ref.Val) ref.Val) interpreter.InterpretableCall, pattern interpreter.InterpretableV2,
) (interpreter.InterpretableV2, error) {
	literal, ok := pattern.(interpreter.InterpretableConst)
	if !ok {
		return opaque{with(func(args ...ref.Val) ref.Val {
			source, ok := args[1].(types.String)
			if !ok {
				return types.MaybeNoSuchOverloadErr(args[1])
			}
			compiled, steps, err := compilePattern(string(source), maxMadeSteps)
			if err != nil {
				return types.WrapErr(err)
			}
			return run(compiled, steps, args[0])
		})}, nil
	}
	source, ok := literal.Value().(types.String)
	if !ok {
		return nil, errors.New("matches: the pattern is not a string")
	}
	compiled, steps, err := compilePattern(string(source), maxPatternSteps)
	if err != nil {
		return nil, err
	}
	b.steps[string(source)] = steps
	return opaque{with(func(args ...ref.Val) ref.Val { return run(compiled, steps, args[0]) })}, nil
}

// opaque hides from the library that something is a call of matches, because it
// would put its own in place of it.
type opaque struct{ interpreter.InterpretableV2 }

// compilePattern compiles a regular expression (RE2) of at most so many
// instructions, and returns how many it has.
func compilePattern(source string, most int) (*regexp.Regexp, int, error) {
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
	if len(program.Inst) > most {
		return nil, 0, fmt.Errorf("a regular expression is too large: it has %d steps, more than %d", len(program.Inst), most)
	}
	compiled, err := regexp.Compile(source)
	if err != nil {
		return nil, 0, fmt.Errorf("invalid regular expression: %w", err)
	}
	return compiled, len(program.Inst), nil
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

// boundedConstructor is a literal of a list or map.
type boundedConstructor struct {
	interpreter.InterpretableConstructor
	bounds *bounds
}

func (c *boundedConstructor) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := c.InterpretableConstructor.Exec(frame)
	if c.bounds.weight(v) > maxWeight {
		return tooHeavy()
	}
	return v
}

func tooHeavy() ref.Val { return types.NewErr("a value has too many parts") }

// CallCost prices a call where the library would count 1 whatever the operands
// are: nearly everywhere, because arguments have no static types. It is called
// after the operation, so what is bounded above is bounded before that.
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
		units = b.patternCost(args, result)
	case "join", "split", "replace":
		units = b.weight(args[0]) + b.weight(result)
	default: // functions and conversions of a text look at it once
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

func (b *bounds) patternCost(args []ref.Val, result ref.Val) uint64 {
	steps, ok := b.steps[text(args[1])]
	switch {
	case !ok:
		return compileUnits + uint64(len(text(args[0])))*maxMadeSteps/stepsPerUnit
	case types.IsError(result):
		return 1 // nothing was searched
	}
	return 1 + uint64(len(text(args[0])))*uint64(steps)/stepsPerUnit
}
