package celrule

import (
	"fmt"
	"slices"
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

// kinds maps a JSON type to the kinds of its values in a condition. A number can have three,
// whether JSON Schema calls it a number or an integer: 1e300 is an integer.
var kinds = map[kind][]types.Kind{
	"string": {types.StringKind}, kindNumber: {types.IntKind, types.UintKind, types.DoubleKind},
	"boolean": {types.BoolKind}, "array": {types.ListKind}, "object": {types.MapKind},
}

// may reports whether a value of the kind can be equal to one of a type.
func (k kind) may(t *types.Type) bool {
	switch t.Kind() {
	case types.DynKind, types.AnyKind, types.NullTypeKind, types.TypeParamKind, types.OpaqueKind, types.ErrorKind:
		return true
	}
	return slices.Contains(kinds[k], t.Kind())
}

func (k kind) String() string {
	if k == "array" || k == "object" {
		return "an " + string(k)
	}
	return "a " + string(k)
}

// takes maps an operation to the JSON types that its operand can have, or that it can look
// something up in.
var takes = func() map[string][]kind {
	text, number, inside := []kind{"string"}, []kind{kindNumber}, []kind{"array", "object"}
	takes := map[string][]kind{
		overloads.Size: {"string", "array", "object"}, operators.Add: {"string", kindNumber, "array"}, "join": {"array"},
		operators.Subtract: number, operators.Multiply: number, operators.Divide: number, operators.Modulo: number,
		operators.LogicalAnd: {"boolean"}, operators.LogicalOr: {"boolean"}, operators.LogicalNot: {"boolean"},
		operators.Negate: number, operators.Index: inside, "a loop": inside, "a field of it": {"object"},
	}
	for _, name := range textFunctions() {
		takes[name] = text
	}
	return takes
}()

// textFunctions returns the string functions.
func textFunctions() []string {
	return []string{
		"startsWith", "endsWith", "contains", overloads.Matches, "lowerAscii", "upperAscii", "trim", "split", "replace",
		"substring", "indexOf", "lastIndexOf", "charAt",
	}
}

// used returns the operation of an expression and its operands, or "" if the operation is not
// known.
func used(e ast.Expr) (what string, operands []ast.Expr) {
	switch e.Kind() {
	case ast.SelectKind:
		return "a field of it", []ast.Expr{e.AsSelect().Operand()}
	case ast.ComprehensionKind:
		return "a loop", []ast.Expr{e.AsComprehension().IterRange()}
	case ast.CallKind:
		switch call := e.AsCall(); {
		case call.IsMemberFunction():
			return call.FunctionName(), []ast.Expr{call.Target()}
		case call.FunctionName() == operators.Index:
			return operators.Index, call.Args()[:1]
		default:
			return call.FunctionName(), call.Args()
		}
	}
	return "", nil
}

// shownUse returns an operation as an error message names it.
func shownUse(what string) string {
	if strings.Contains(what, " ") {
		return what
	}
	return readable("'" + what + "'")
}

// checkTypes reports operations on an argument that values of its type do not have, if all of the
// rule's tools agree on the type: comparisons that would always be false, and functions that would
// fail.
func (c *compiler) checkTypes(r *rule, typed *ast.AST, at func(ast.Expr) place) {
	tools, all, loose := c.known.tools(r)
	if !all || len(tools) == 0 {
		return
	}
	var uses []ast.Expr
	asked := map[string]bool{} // arguments whose type the condition checks
	ast.PreOrderVisit(typed.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		uses = append(uses, e)
		if what, operands := used(e); what == overloads.TypeConvertType {
			name, _, _ := argument(operands[0])
			asked[name] = true
		}
	}))
	if name, optional, ok := argument(typed.Expr()); ok && !optional && !asked[name] {
		if of := agreed(tools, name); of != "" && of != "boolean" {
			c.reportType(tools, name, of, ", and the condition must be true or false", at(typed.Expr()), loose)
		}
	}
	for _, e := range uses {
		what, operands := used(e)
		for _, operand := range operands {
			name, optional, ok := argument(operand)
			of := agreed(tools, name)
			if ok && !optional && of != "" && !asked[name] && takes[what] != nil && !slices.Contains(takes[what], of) {
				c.reportType(tools, name, of, ", which "+shownUse(what)+" is not for", at(e), loose)
			}
		}
		var sides [][2]ast.Expr
		switch what {
		case operators.In:
			if right := operands[1]; right.Kind() == ast.ListKind {
				for _, element := range right.AsList().Elements() {
					sides = append(sides, [2]ast.Expr{operands[0], element})
				}
			}
		case operators.Equals, operators.NotEquals,
			operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
			sides = [][2]ast.Expr{{operands[0], operands[1]}, {operands[1], operands[0]}}
		}
		c.checkSides(what == operators.In, sides, tools, asked, typed, at(e), loose)
	}
}

// checkSides checks one comparison, of an argument with another side or with each element of a list.
func (c *compiler) checkSides(list bool, sides [][2]ast.Expr, tools []knownTool, asked map[string]bool,
	typed *ast.AST, at place, loose bool,
) {
	for i, side := range sides {
		name, otherwise, ok := given(side[0])
		of, other := agreed(tools, name), typed.GetType(side[1].ID())
		wrong := ok && !asked[name] && of != "" && !of.may(other)
		second, optional, both := argument(side[1])
		both = both && ok && !list && !optional && otherwise == nil && !asked[name] && !asked[second]
		if its := agreed(tools, second); both && of != "" && its != "" && its != of {
			c.reportType(tools, name, of, ", and is compared with the argument "+quoted(second)+", "+its.String(), at, loose)
			return
		}
		if wrong && otherwise != nil {
			t := typed.GetType(otherwise.ID())
			wrong = t.Kind() != types.DynKind && of.may(t)
		}
		switch {
		case list && !wrong:
			return
		case list && i < len(sides)-1:
		case wrong:
			c.reportType(tools, name, of, ", and is compared with a value of type "+cel.FormatCELType(other), at, loose)
			return
		}
	}
}

// given returns the argument on one side of a comparison, and the expression that replaces it if
// the call does not have it. otherwise is nil if there is no such expression.
func given(e ast.Expr) (name string, otherwise ast.Expr, ok bool) {
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == "orValue" && e.AsCall().IsMemberFunction() {
		otherwise, e = e.AsCall().Args()[0], e.AsCall().Target()
	}
	name, optional, ok := argument(e)
	return name, otherwise, ok && optional == (otherwise != nil)
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

// argument returns the argument that an expression refers to.
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
