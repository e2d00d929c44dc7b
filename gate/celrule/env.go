package celrule

import (
	"fmt"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/ext"

	"github.com/toolcrib/toolcrib"
)

// Bounds of the shape of a condition.
const (
	maxLevels    = 64   // expressions inside each other
	maxNodes     = 4096 // of the expanded expression
	maxLoopDepth = 3    // all, exists, exists_one, map, filter inside each other
	maxLoops     = 12   // of them in one condition
	checkEvery   = 64   // rounds of a loop until the next look at the context
	maxRecovered = 8    // syntax errors that the parser continues after
)

// The variables of a condition.
const (
	varArgs      = "args"
	varTool      = "tool"
	varEffect    = "effect"
	varTargets   = "targets"
	varPrograms  = "programs"
	varUser      = "user"
	varAdmin     = "admin"
	varRoles     = "roles"
	varGroups    = "groups"
	varTrust     = "trust"
	varAgent     = "agent"
	varRun       = "run"
	varSession   = "session"
	varDepth     = "depth"
	varWorkspace = "workspace"
	varTainted   = "tainted"
	varTaint     = "taint"
)

// trustUnknown is how conditions see the zero level of trust.
const trustUnknown = "unknown"

// variables are the variables with their types.
func variables() map[string]*cel.Type {
	texts := cel.ListType(cel.StringType)
	return map[string]*cel.Type{
		varArgs: cel.MapType(cel.StringType, cel.DynType), varTool: cel.StringType, varEffect: cel.StringType,
		varTargets:  cel.ListType(cel.ObjectType(targetType)),
		varPrograms: cel.ListType(cel.ObjectType(programType)),
		varUser:     cel.StringType, varAdmin: cel.BoolType,
		varRoles: texts, varGroups: texts, varTrust: cel.StringType, varAgent: cel.StringType, varRun: cel.StringType,
		varSession: cel.StringType, varDepth: cel.IntType, varWorkspace: cel.StringType, varTainted: cel.BoolType,
		varTaint: texts,
	}
}

// words are the values that a variable of few values can have. Comparing it with
// another text is a mistake that would never show otherwise.
func words(variable string) []string {
	switch variable {
	case varEffect:
		return []string{
			string(toolcrib.EffectReadOnly), string(toolcrib.EffectIdempotentWrite),
			string(toolcrib.EffectNonIdempotentWrite),
		}
	case varTrust:
		return []string{
			trustUnknown, string(toolcrib.TrustMember), string(toolcrib.TrustTrusted),
			string(toolcrib.TrustAnchor),
		}
	}
	return nil
}

// environment makes the language of conditions: CEL with optional fields and the
// functions on texts. Left out are the functions of the calendar, because they
// read the database of time zones.
func environment() (*cel.Env, error) {
	calendar := []string{
		"getFullYear", "getMonth", "getDayOfYear", "getDayOfMonth", "getDate", "getDayOfWeek",
		"getHours", "getMinutes", "getSeconds", "getMilliseconds",
	}
	without := &env.LibrarySubset{}
	for _, name := range calendar {
		without.ExcludeFunctions = append(without.ExcludeFunctions, env.NewFunction(name))
	}
	options := []cel.EnvOption{
		cel.StdLib(cel.StdLibSubset(without)),
		cel.OptionalTypes(cel.OptionalTypesVersion(1)),
		ext.Strings(ext.StringsVersion(0)), // without format and quote
		cel.CrossTypeNumericComparisons(true),
		cel.Types(
			cel.NativeTypeFor[target](types.ParseStructTags(true), cel.NativeTypeAlias(targetType)),
			cel.NativeTypeFor[program](types.ParseStructTags(true), cel.NativeTypeAlias(programType)),
		),
		cel.Function("within", cel.MemberOverload("target_within_string",
			[]*cel.Type{cel.ObjectType(targetType), cel.StringType}, cel.BoolType, cel.BinaryBinding(within))),
		cel.ParserRecursionLimit(maxLevels),
		cel.ParserExpressionSizeLimit(MaxExpression),
		cel.ParserErrorRecoveryLimit(maxRecovered),
		cel.ExpressionNodeLimit(maxNodes),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals()),
	}
	for name, of := range variables() {
		options = append(options, cel.Variable(name, of))
	}
	made, err := cel.NewCustomEnv(options...)
	if err == nil {
		made, err = made.Extend(cel.CustomTypeProvider(openFields{made.CELTypeProvider()}))
	}
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return made, nil
}
