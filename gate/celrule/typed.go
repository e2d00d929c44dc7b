package celrule

import (
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
)

// kind is the JSON type of a tool's argument; "" means any.
type kind string

const kindNumber kind = "number" // for conditions this includes integers

// declared returns the type of an argument in a condition. That of a number differs from value to
// value: JSON Schema calls 1e300 an integer.
func (k kind) declared(number *types.Type) *types.Type {
	return map[kind]*types.Type{
		"string": types.StringType, "boolean": types.BoolType, kindNumber: number,
		"array": types.NewListType(types.DynType), "object": types.NewMapType(types.StringType, types.DynType),
	}[k]
}

func (k kind) String() string {
	if k == "array" || k == "object" {
		return "an " + string(k)
	}
	return "a " + string(k)
}

// checkTypes reports operations on an argument that values of its type do not have, if all of the
// rule's tools agree on the type: comparisons that would always be false, and functions that would
// fail. The library finds them: the condition is checked once more, with the arguments declared.
func (c *compiler) checkTypes(r *rule, typed *ast.AST, at func(ast.Expr) place) {
	tools, all, loose := c.known.tools(r)
	if !all || len(tools) == 0 {
		return
	}
	of := map[string]kind{} // of the arguments in the condition
	asked := map[string]bool{}
	ast.PreOrderVisit(typed.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if name, _, ok := argument(e); ok {
			of[name] = agreed(tools, name)
		}
		if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == overloads.TypeConvertType {
			name, _, _ := argument(e.AsCall().Args()[0])
			asked[name] = true
		}
	}))
	for name, kind := range of {
		if kind == "" || asked[name] {
			delete(of, name)
		}
	}
	if len(of) == 0 {
		return
	}
	if name, optional, ok := argument(typed.Expr()); ok && !optional && of[name] != "" && of[name] != "boolean" {
		c.reportType(tools, name, of[name], ", and the condition must be true or false", at(typed.Expr()), loose)
	}
	wrong := c.mistyped(of)
	ast.PreOrderVisit(typed.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		what, operands := operation(e)
		for i, operand := range operands {
			name, ok := given(operand)
			if _, _, itself := argument(operand); !ok || of[name] == "" || !wrong[e.ID()] && !(itself && wrong[operand.ID()]) {
				continue
			}
			if but := mistake(of, what, operands, i, typed); but != "" {
				c.reportType(tools, name, of[name], but, at(e), loose)
			}
			return
		}
	}))
}

// mistyped returns the IDs of the expressions that are wrong if arguments have types. What is right
// for numbers of one type is not wrong.
func (c *compiler) mistyped(of map[string]kind) (wrong map[int64]bool) {
	for _, number := range []*types.Type{types.IntType, types.UintType, types.DoubleType} {
		var variables []cel.EnvOption
		for name, kind := range of {
			variables = append(variables, cel.Variable(varArgs+"."+name, kind.declared(number)))
		}
		env, err := c.env.Extend(variables...)
		if err != nil {
			return nil
		}
		parsed, _ := env.Parse(c.rule.When)
		ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(asSelection))
		_, issues := env.Check(parsed)
		found := map[int64]bool{}
		for _, e := range issues.Errors() {
			found[e.ExprID] = wrong == nil || wrong[e.ExprID]
		}
		if wrong = found; len(wrong) == 0 {
			break
		}
	}
	return wrong
}

// asSelection rewrites a reference to an argument as args.NAME, which is how arguments are
// declared.
func asSelection(e ast.Expr) {
	if e.Kind() != ast.CallKind {
		return
	}
	call, make := e.AsCall(), ast.NewExprFactory()
	if ref, ok := callReference(call); ok && !ref.test {
		e.SetKindCase(make.NewSelect(e.ID(), call.Args()[0], ref.name))
	}
	if otherwise := orValue(e); otherwise != nil {
		if ref, ok := callReference(call.Target().AsCall()); ok { // true ? args.NAME : otherwise
			of, key := call.Target().AsCall().Args()[0], call.Target().AsCall().Args()[1]
			e.SetKindCase(make.NewCall(e.ID(), operators.Conditional, make.NewLiteral(key.ID(), types.True),
				make.NewSelect(call.Target().ID(), of, ref.name), otherwise))
		}
	}
}

// orValue returns the default of an optional value, or nil if e is not one with a default.
func orValue(e ast.Expr) ast.Expr {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != "orValue" || !e.AsCall().IsMemberFunction() ||
		e.AsCall().Target().Kind() != ast.CallKind {
		return nil
	}
	return e.AsCall().Args()[0]
}

// given returns the argument that an operand is, also one with a default.
func given(e ast.Expr) (name string, ok bool) {
	if orValue(e) != nil {
		e = e.AsCall().Target()
	}
	name, _, ok = argument(e)
	return name, ok
}

// operation returns the operation of an expression and its operands.
func operation(e ast.Expr) (what string, operands []ast.Expr) {
	switch e.Kind() {
	case ast.SelectKind:
		return "a field of it", []ast.Expr{e.AsSelect().Operand()}
	case ast.ComprehensionKind:
		return "a loop", []ast.Expr{e.AsComprehension().IterRange()}
	case ast.CallKind:
		if call := e.AsCall(); call.IsMemberFunction() {
			return call.FunctionName(), append([]ast.Expr{call.Target()}, call.Args()...)
		}
		return e.AsCall().FunctionName(), e.AsCall().Args()
	}
	return "", nil
}

// mistake returns the fault of an operation that does not fit the type of operand i, or "" if the
// library accepts it when the condition is evaluated.
func mistake(of map[string]kind, what string, operands []ast.Expr, i int, typed *ast.AST) string {
	name, _ := given(operands[i])
	switch what {
	case operators.Conditional, "orValue": // each branch can have a type of its own
		return ""
	case operators.Index: // 0u and 0.0 are indexes
		if of[name] == "array" || of[name] == "object" {
			return ""
		}
	case operators.Equals, operators.NotEquals, operators.In,
		operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		other := operands[1-i]
		if second, ok := given(other); ok && of[second] != "" && what != operators.In {
			return ", and is compared with the argument " + quoted(second) + ", " + of[second].String()
		}
		t := typed.GetType(other.ID())
		if what == operators.In && i == 0 && t.Kind() == types.ListKind {
			t = t.Parameters()[0]
		}
		if t.Kind() == types.NullTypeKind {
			return ""
		}
		return ", and is compared with a value of type " + cel.FormatCELType(t)
	}
	if !strings.Contains(what, " ") {
		what = readable("'" + what + "'")
	}
	return ", which " + what + " is not for"
}

func (c *compiler) reportType(tools []knownTool, name string, of kind, but string, at place, loose bool) {
	var having []string
	for _, t := range tools {
		if _, has := t.arguments[name]; has {
			having = append(having, t.name)
		}
	}
	written := "args." + name
	if !identifier(name) {
		written = fmt.Sprintf("args[%s]", quoted(name))
	}
	list := &c.problems
	if loose {
		list = &c.warnings
	}
	*list = c.add(*list, "when", at, "%s: the argument %s is %s%s; if it can be anything else, write dyn(%s)",
		some(having), quoted(name), of, but, written)
}

// agreed returns the kind of an argument on which all tools agree, or "". A tool that cannot have
// the argument is ignored.
func agreed(tools []knownTool, name string) (of kind) {
	for _, t := range tools {
		said, has := t.arguments[name]
		switch {
		case !has && t.closed:
		case !has || said.kind == "" || of != "" && of != said.kind:
			return ""
		default:
			of = said.kind
		}
	}
	return of
}
