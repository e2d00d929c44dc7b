package celrule

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"

	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
)

// reference is an argument that a condition names.
type reference struct {
	name string
	// test is set if the argument may be missing: has(args.x), args.?x, "x" in args.
	test bool
	at   place
}

// checkExpression finds expressions in a typed condition that the types allow but that must be
// mistakes. It reports whether it found none.
func (c *compiler) checkExpression(r *rule, typed *ast.AST) bool {
	before := len(c.problems)
	var references, raw []reference
	mentioned := map[string]bool{} // variables
	at := func(e ast.Expr) place {
		l := typed.SourceInfo().GetStartLocation(e.ID())
		return place{max(l.Line(), 1), max(l.Column(), 0) + 1}
	}
	ast.PreOrderVisit(typed.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.IdentKind:
			mentioned[e.AsIdent()] = true
		case ast.ComprehensionKind:
			for _, name := range []string{e.AsComprehension().IterVar(), e.AsComprehension().IterVar2()} {
				if _, taken := variables()[name]; taken {
					c.reportAt(at(e), "%s is a variable of every condition; give the one of the loop another name", name)
				}
			}
		case ast.SelectKind:
			if s := e.AsSelect(); isIdent(s.Operand(), varArgs) {
				references = append(references, reference{s.FieldName(), s.IsTestOnly(), at(e)})
			}
		case ast.CallKind:
			if ref, ok := callReference(e.AsCall()); ok {
				ref.at = at(e)
				references = append(references, ref)
			}
			if name, ok := compared(e.AsCall(), r.info.Then); ok {
				raw = append(raw, reference{name: name, at: at(e)})
			}
			c.checkWords(e.AsCall(), at)
			c.checkPattern(e.AsCall(), at)
		}
	}))
	c.checkLoops(typed, at)
	if len(c.problems) == before {
		c.checkReferences(r, references, mentioned[varTool])
		c.checkSpelling(r, raw, mentioned)
		c.checkTypes(r, typed, at)
	}
	return len(c.problems) == before
}

// checkLoops bounds the depth of loops.
func (c *compiler) checkLoops(typed *ast.AST, at func(ast.Expr) place) {
	for _, loop := range ast.MatchDescendants(ast.NavigateAST(typed), ast.KindMatcher(ast.ComprehensionKind)) {
		if loopDepth(loop) > maxLoopDepth {
			c.reportAt(at(loop), "loops may be nested at most %d deep", maxLoopDepth)
			return
		}
	}
}

// loopDepth counts this loop and the loops that run it again each round. A loop that makes the list
// for another one runs once.
func loopDepth(loop ast.NavigableExpr) int {
	depth := 1
	child := loop
	for {
		parent, ok := child.Parent()
		if !ok {
			return depth
		}
		if parent.Kind() == ast.ComprehensionKind && parent.AsComprehension().IterRange().ID() != child.ID() {
			depth++
		}
		child = parent
	}
}

func isIdent(e ast.Expr, name string) bool {
	return e.Kind() == ast.IdentKind && e.AsIdent() == name
}

// literal returns the value of a string literal.
func literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}

// callReference recognizes args["x"], args.?x, args[?"x"] and "x" in args.
func callReference(call ast.CallExpr) (reference, bool) {
	args := call.Args()
	if len(args) != 2 {
		return reference{}, false
	}
	of, key := args[0], args[1]
	if call.FunctionName() == operators.In {
		of, key = key, of
	}
	name, ok := literal(key)
	if !ok || !isIdent(of, varArgs) {
		return reference{}, false
	}
	switch call.FunctionName() {
	case operators.Index:
		return reference{name: name}, true
	case operators.OptIndex, operators.OptSelect, operators.In:
		return reference{name: name, test: true}, true
	}
	return reference{}, false
}

// checkWords reports comparisons of effect or trust with a text that is not one of their values.
func (c *compiler) checkWords(call ast.CallExpr, at func(ast.Expr) place) {
	args := call.Args()
	if len(args) != 2 {
		return
	}
	switch call.FunctionName() {
	case operators.Equals, operators.NotEquals:
		c.checkWord(args[0], args[1], at)
		c.checkWord(args[1], args[0], at)
	case operators.In:
		if args[1].Kind() == ast.ListKind {
			for _, element := range args[1].AsList().Elements() {
				c.checkWord(args[0], element, at)
			}
		}
	}
}

func (c *compiler) checkWord(variable, other ast.Expr, at func(ast.Expr) place) {
	if variable.Kind() != ast.IdentKind {
		return
	}
	name := variable.AsIdent()
	list := words(name)
	if text, ok := literal(other); ok && list != nil && !slices.Contains(list, text) {
		c.reportAt(at(other), "%s is never %s, but one of %s%s", name, quoted(text), strings.Join(list, ", "),
			guard.DidYouMean(text, list))
	}
}

// checkPattern reports regular expressions that do not compile, and those that are not literals.
func (c *compiler) checkPattern(call ast.CallExpr, at func(ast.Expr) place) {
	if call.FunctionName() != overloads.Matches || len(call.Args()) == 0 {
		return
	}
	pattern := call.Args()[len(call.Args())-1]
	source, ok := literal(pattern)
	if !ok {
		c.reportAt(at(pattern), "a regular expression must be a text that is written in the condition")
	} else if _, err := regexp.Compile(source); err != nil {
		c.reportAt(at(pattern), "invalid regular expression: %s", err)
	}
}

// textFunctions returns the string functions.
func textFunctions() []string {
	return []string{
		"startsWith", "endsWith", "contains", overloads.Matches, "lowerAscii", "upperAscii", "trim", "split", "replace",
		"substring", "indexOf", "lastIndexOf", "charAt",
	}
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

// compared returns the argument whose text a call in a condition examines. In a rule that allows, a
// comparison with the whole text is left out: it is as narrow as it looks.
func compared(call ast.CallExpr, then gate.RuleThen) (name string, ok bool) {
	operands := call.Args()
	switch call.FunctionName() {
	case operators.Equals, operators.NotEquals, operators.In:
		if then == gate.RuleAllow {
			return "", false
		}
	default:
		if call.FunctionName() != "orValue" && !slices.Contains(textFunctions(), call.FunctionName()) {
			return "", false
		}
		if call.IsMemberFunction() {
			operands = append(slices.Clone(operands), call.Target())
		}
	}
	for _, operand := range operands {
		if name, _, ok := argument(operand); ok {
			return name, true
		}
	}
	return "", false
}

// checkSpelling warns if a condition examines the text of an argument that has many spellings,
// without mentioning the variable that has its only form.
func (c *compiler) checkSpelling(r *rule, raw []reference, mentioned map[string]bool) {
	if c.known.Spelled == nil {
		return
	}
	tools, _, _ := c.known.tools(r)
	warned := map[string]bool{}
	for _, ref := range raw {
		for _, t := range tools {
			variable := c.known.Spelled(t.name, ref.name)
			if _, has := t.arguments[ref.name]; !has || variable == "" || mentioned[variable] || warned[ref.name] {
				continue
			}
			warned[ref.name] = true
			why := `the same file has many spellings (./x, a/../x, a link); ` +
				`look at targets, as in targets.exists(t, t.path.startsWith("src/"))`
			if variable == varPrograms {
				why = `the same command has many spellings, and a line may hold several commands; ` +
					`look at programs, as in programs.exists(p, p.name == "git" && "push" in p.args)`
			}
			c.warn("when", ref.at, "%s: args.%s is text: %s", t.name, ref.name, why)
		}
	}
}

// checkReferences compares the arguments that a condition names with those of its tools. byTool
// reports whether the condition checks which tool it is: then it may name arguments that only one
// of them has.
func (c *compiler) checkReferences(r *rule, references []reference, byTool bool) {
	tools, _, _ := c.known.tools(r)
	if len(tools) == 0 {
		return
	}
	tested := map[string]bool{}
	for _, ref := range references {
		tested[ref.name] = tested[ref.name] || ref.test
	}
	seen := map[string]bool{}
	for _, ref := range references {
		if seen[ref.name] {
			continue
		}
		seen[ref.name] = true
		c.checkReference(r, ref, tools, tested[ref.name] || byTool)
	}
}

func (c *compiler) checkReference(r *rule, ref reference, tools []knownTool, guarded bool) {
	var lacking, optional []string
	closed, names := true, []string{}
	for _, t := range tools {
		known, has := t.arguments[ref.name]
		switch {
		case !has:
			lacking = append(lacking, t.name)
			closed = closed && t.closed
			names = append(names, slices.Sorted(maps.Keys(t.arguments))...)
		case !known.required:
			optional = append(optional, t.name)
		}
	}
	named := !r.every && !slices.ContainsFunc(r.tools, wild)
	unguarded := fmt.Sprintf("calls without it will be refused, because the rule cannot be evaluated; "+
		"write has(args.%[1]s) && … or args.?%[1]s.orValue(…)", ref.name)
	if !identifier(ref.name) {
		unguarded = "calls without it will be refused, because the rule cannot be evaluated; test for it first"
	}
	switch {
	case len(lacking) == len(tools) && closed && named && len(tools) == len(r.tools):
		c.reportAt(ref.at, "%s: there is no argument %s%s", some(lacking), quoted(ref.name),
			guard.DidYouMean(ref.name, names))
	case len(lacking) == len(tools):
		c.warn("when", ref.at, "%s: no argument %s is described%s", some(lacking), quoted(ref.name),
			guard.DidYouMean(ref.name, names))
	case len(lacking) > 0 && !guarded:
		c.warn("when", ref.at, "%s: no argument %s is described; %s", some(lacking), quoted(ref.name), unguarded)
	case len(optional) > 0 && !guarded:
		c.warn("when", ref.at, "%s: the argument %s is optional; %s", some(optional), quoted(ref.name), unguarded)
	}
}

// identifier reports whether a name can follow a dot.
func identifier(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// some lists at most three names, and the number of the others.
func some(names []string) string {
	if len(names) <= 3 {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:3], ", ") + " and " + guard.Count(len(names)-3, "more tool")
}
