package celrule

import (
	"fmt"
	"slices"
	"strings"

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

// The variables that stand for an argument of a type. No condition can name them.
func standIn(of *cel.Type) string    { return "@" + of.String() }
func standInOpt(of *cel.Type) string { return "@?" + of.String() }

// typedEnvironment is the language with the variables that stand for arguments.
func typedEnvironment(language *cel.Env) (*cel.Env, error) {
	candidates := []*cel.Type{cel.NullType}
	for _, k := range []kind{kindText, kindNumber, kindBool, kindList, kindObject} {
		candidates = append(candidates, k.candidates()...)
	}
	var options []cel.EnvOption
	for _, of := range candidates {
		options = append(options, cel.Variable(standIn(of), of), cel.Variable(standInOpt(of), cel.OptionalType(of)))
	}
	made, err := language.Extend(options...)
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return made, nil
}

// occurrence is an expression that is an argument: args.x, args["x"], or, if it is
// optional, args.?x and args[?"x"].
type occurrence struct {
	expr     ast.Expr
	optional bool
}

// checkTypes type-checks a condition once more, with the arguments of which all of
// the rule's tools say the same JSON type. What can be evaluated with no value of
// that type is a mistake that would never show otherwise: a comparison would be
// false for ever. The condition has been found right with arguments of any type.
// It reports whether it found nothing.
func (c *compiler) checkTypes(r *rule) bool {
	before := len(c.problems)
	tools, loose := c.known.toolsOf(r)
	if len(tools) == 0 {
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
	parsed, issues := c.env.Parse(c.rule.When) // anew: the check changes it
	if list := issues.Errors(); len(list) > 0 {
		c.reportIssues(list[:1])
		return false
	}
	whole := parsed.NativeRep()
	places, asked := occurrences(whole)
	names := make([]string, 0, len(places))
	for name := range places {
		if !asked[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	checked := 0
	for _, name := range names {
		of, candidates := agreed(tools, name)
		if len(candidates) == 0 || checked == maxTyped {
			continue
		}
		checked++
		for _, e := range c.mistyped(parsed, places[name], candidates) {
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
	at := c.placeOf(e)
	say := c.reportAt
	if loose {
		say = func(at place, format string, args ...any) { c.warn("when", at, format, args...) }
	}
	say(at, "%s: the argument %s is %s: %s; if it can be anything else, write dyn(%s)",
		some(having), quoted(name), of, explain(e.Message), written)
}

// mistyped checks a condition with an argument of each type that it can have, and
// returns what is wrong with all of them. It leaves the argument as it was.
func (c *compiler) mistyped(parsed *cel.Ast, places []occurrence, candidates []*cel.Type) []*cel.Error {
	factory := ast.NewExprFactory()
	before := make([]ast.Expr, len(places))
	for i, p := range places {
		before[i] = factory.CopyExpr(p.expr)
	}
	defer func() {
		for i, p := range places {
			p.expr.SetKindCase(before[i])
		}
	}()
	excused := excuses(parsed.NativeRep())
	var wrong []*cel.Error
	for i, candidate := range candidates {
		for _, p := range places {
			name := standIn(candidate)
			if p.optional {
				name = standInOpt(candidate)
			}
			p.expr.SetKindCase(factory.NewIdent(p.expr.ID(), name))
		}
		found := c.typeErrors(parsed)
		if i == 0 {
			wrong = slices.DeleteFunc(found, func(e *cel.Error) bool { return excused[e.ExprID] })
		} else {
			wrong = slices.DeleteFunc(wrong, func(e *cel.Error) bool {
				return !slices.ContainsFunc(found, func(o *cel.Error) bool { return o.ExprID == e.ExprID })
			})
		}
		if len(wrong) == 0 {
			return nil
		}
	}
	return wrong[:min(len(wrong), maxIssues)]
}

// typeErrors checks a condition whose arguments are replaced.
func (c *compiler) typeErrors(parsed *cel.Ast) []*cel.Error {
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

// occurrences finds the arguments of a condition by their names, and those whose
// type the condition asks for itself.
func occurrences(whole *ast.AST) (places map[string][]occurrence, asked map[string]bool) {
	places, asked = map[string][]occurrence{}, map[string]bool{}
	ast.PreOrderVisit(whole.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if name, optional, ok := argument(e); ok {
			places[name] = append(places[name], occurrence{e, optional})
		}
		if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == overloads.TypeConvertType && len(e.AsCall().Args()) == 1 {
			if name, _, ok := argument(e.AsCall().Args()[0]); ok {
				asked[name] = true
			}
		}
	}))
	return places, asked
}

// argument tells which argument an expression is.
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

// excuses are the expressions that types are stricter about than values: a choice
// of values of different types, the value of an argument that is not given, a test
// for null, lists of different types that are joined, and an index that is a number
// of another kind.
func excuses(whole *ast.AST) map[int64]bool {
	excused := map[int64]bool{}
	ast.PreOrderVisit(whole.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.CallKind {
			excused[e.ID()] = excusable(e.AsCall())
		}
	}))
	return excused
}

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

// server reports whether a name is of a server's tool. Those come and go.
func server(name string) bool { return strings.Contains(name, "__") }
