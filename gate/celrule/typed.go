package celrule

import (
	"fmt"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
)

// maxTyped bounds the arguments of one condition whose types are checked.
const maxTyped = 32

// kind is a JSON type of a tool's argument; "" = any.
type kind string

const (
	kindText    kind = "string"
	kindNumber  kind = "number"
	kindInteger kind = "integer"
	kindBool    kind = "boolean"
	kindList    kind = "array"
	kindObject  kind = "object"
)

// candidates are the CEL types that a value of a kind can have for a condition.
// Numbers can have three, whichever JSON Schema calls them: 1e300 is an integer.
func (k kind) candidates() []*cel.Type {
	switch k {
	case kindText:
		return []*cel.Type{cel.StringType}
	case kindNumber, kindInteger:
		return []*cel.Type{cel.IntType, cel.UintType, cel.DoubleType}
	case kindBool:
		return []*cel.Type{cel.BoolType}
	case kindList:
		return []*cel.Type{cel.ListType(cel.DynType)}
	case kindObject:
		return []*cel.Type{cel.MapType(cel.StringType, cel.DynType)}
	}
	return nil
}

// same reports whether two kinds mean the same to conditions.
func (k kind) same(other kind) bool {
	number := func(k kind) bool { return k == kindNumber || k == kindInteger }
	return k == other || number(k) && number(other)
}

func (k kind) String() string {
	switch k {
	case kindInteger, kindList, kindObject:
		return "an " + string(k)
	}
	return "a " + string(k)
}

// standIn is the variable that stands for an argument of a type. No condition can name it.
func standIn(of *cel.Type, optional bool) string {
	if optional {
		return "@?" + of.String()
	}
	return "@" + of.String()
}

// typedEnvironment is the language with the variables that stand for arguments.
func typedEnvironment(language *cel.Env) (*cel.Env, error) {
	candidates := []*cel.Type{cel.NullType}
	for _, k := range []kind{kindText, kindNumber, kindBool, kindList, kindObject} {
		candidates = append(candidates, k.candidates()...)
	}
	var options []cel.EnvOption
	for _, of := range candidates {
		options = append(options, cel.Variable(standIn(of, false), of), cel.Variable(standIn(of, true), cel.OptionalType(of)))
	}
	return language.Extend(options...)
}

// checkTypes type-checks a condition once more, with the arguments of which all of
// the rule's tools say the same JSON type. What can be evaluated with no value of
// that type is a mistake that would never show otherwise: a comparison would be
// false forever. The condition has been found right with arguments of any type.
// It reports whether it found nothing.
func (c *compiler) checkTypes(r *rule, whole *ast.AST) bool {
	before := len(c.problems)
	tools, all, loose := c.known.tools(r)
	if !all || len(tools) == 0 {
		return true
	}
	if c.typed == nil {
		made, err := typedEnvironment(c.env)
		if err != nil {
			c.reportAt(place{1, 1}, "%s", readable(err.Error()))
			return false
		}
		c.typed = made
	}
	names, excused := typedArguments(whole)
	checked := 0
	for _, name := range names {
		of, candidates := agreed(tools, name)
		if len(candidates) == 0 || checked == maxTyped {
			continue
		}
		checked++
		for _, e := range c.mistyped(name, candidates, excused) {
			c.reportType(tools, name, of, e, loose)
		}
	}
	return len(c.problems) == before
}

func (c *compiler) reportType(tools []knownTool, name string, of kind, e *cel.Error, loose bool) {
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
	*list = c.add(*list, "when", c.placeOf(e), "%s: the argument %s is %s: %s; if it can be anything else, write dyn(%s)",
		some(having), quoted(name), of, explain(e.Message), written)
}

// mistyped checks the condition with an argument of each type that it can have, and
// returns what is wrong with all of them and is not excused.
func (c *compiler) mistyped(name string, candidates []*cel.Type, excused map[int64]bool) (wrong []*cel.Error) {
	for i, candidate := range candidates {
		found := c.typeErrors(name, candidate)
		if i == 0 {
			wrong = found
		}
		wrong = slices.DeleteFunc(wrong, func(e *cel.Error) bool {
			return excused[e.ExprID] || !slices.ContainsFunc(found, func(o *cel.Error) bool { return o.ExprID == e.ExprID })
		})
	}
	return wrong[:min(len(wrong), maxIssues)]
}

// typeErrors checks the condition with an argument of one type.
func (c *compiler) typeErrors(name string, candidate *cel.Type) []*cel.Error {
	parsed, issues := c.env.Parse(c.rule.When) // again: the check changes it
	if list := issues.Errors(); len(list) > 0 {
		return list
	}
	factory := ast.NewExprFactory()
	ast.PreOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if of, optional, ok := argument(e); ok && of == name {
			e.SetKindCase(factory.NewIdent(e.ID(), standIn(candidate, optional)))
		}
	}))
	checked, issues := c.typed.Check(parsed)
	if list := issues.Errors(); len(list) > 0 {
		return list
	}
	if out := checked.OutputType(); !out.IsExactType(cel.BoolType) && !out.IsExactType(cel.DynType) {
		return []*cel.Error{{
			ExprID: parsed.NativeRep().Expr().ID(), Location: common.NewLocation(1, 0),
			Message: "the condition must be true or false, and is a value of type " + cel.FormatCELType(out),
		}}
	}
	return nil
}

// typedArguments returns the arguments of a condition that does not ask for their type
// itself, sorted, and the expressions that types are stricter about than values are.
func typedArguments(whole *ast.AST) (names []string, excused map[int64]bool) {
	excused = map[int64]bool{}
	var asked []string
	ast.PreOrderVisit(whole.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if name, _, ok := argument(e); ok {
			names = append(names, name)
		}
		if e.Kind() != ast.CallKind {
			return
		}
		excused[e.ID()] = excusable(e.AsCall())
		if e.AsCall().FunctionName() == overloads.TypeConvertType && len(e.AsCall().Args()) == 1 {
			name, _, _ := argument(e.AsCall().Args()[0])
			asked = append(asked, name)
		}
	}))
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		return slices.Contains(asked,
			name)
	}), excused
}

// argument reports which argument an expression is.
func argument(e ast.Expr) (name string, optional, ok bool) {
	switch e.Kind() {
	case ast.SelectKind:
		s := e.AsSelect()
		return s.FieldName(), false, isIdent(s.Operand(), varArgs) && !s.IsTestOnly()
	case ast.CallKind:
		ref, found := callReference(e.AsCall())
		return ref.name, ref.test, found && e.AsCall().FunctionName() != operators.In
	}
	return "", false, false
}

// excusable reports whether types are stricter about a call than values are: a choice of
// values of different types, the value of an argument that is not given, a test for null,
// lists of different types that are joined, and an index that is a number of another kind.
func excusable(call ast.CallExpr) bool {
	args := call.Args()
	switch call.FunctionName() {
	case operators.Conditional, "or", "orValue":
		return true
	case operators.Equals, operators.NotEquals:
		return isNull(args[0]) || isNull(args[1])
	case operators.In:
		return args[1].Kind() == ast.ListKind && slices.ContainsFunc(args[1].AsList().Elements(), isNull)
	case operators.Index, operators.OptIndex:
		return args[1].Kind() == ast.LiteralKind &&
			(args[1].AsLiteral().Type() == types.UintType || args[1].AsLiteral().Type() == types.DoubleType)
	case operators.Add:
		return (madeList(args[0]) || madeList(args[1])) && !isArgument(args[0]) && !isArgument(args[1])
	}
	return false
}

func isNull(e ast.Expr) bool {
	return e.Kind() == ast.LiteralKind && e.AsLiteral() == types.NullValue
}

// madeList reports whether the condition itself makes a list.
func madeList(e ast.Expr) bool {
	return e.Kind() == ast.ListKind || e.Kind() == ast.ComprehensionKind
}

func isArgument(e ast.Expr) bool {
	_, _, ok := argument(e)
	return ok
}

// agreed returns the kind that every tool says of an argument and the types that
// it can have, none if they do not agree. A tool that has it not, and no others
// than it says, does not count.
func agreed(tools []knownTool, name string) (of kind, candidates []*cel.Type) {
	null := false
	for _, t := range tools {
		said, has := t.arguments[name]
		switch {
		case !has && t.closed:
			continue
		case !has || said.kind == "" || of != "" && !of.same(said.kind):
			return "", nil
		case of == "" || said.kind == kindNumber:
			of = said.kind
		}
		null = null || said.null
	}
	candidates = of.candidates()
	if null {
		candidates = append(candidates, cel.NullType)
	}
	return of, candidates
}
