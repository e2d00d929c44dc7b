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
	maxLevels    = 64   // nested expressions
	maxNodes     = 4096 // nodes of the expanded expression
	maxLoopDepth = 3    // nested loops: all, exists, exists_one, map, filter
	checkEvery   = 64   // rounds of a loop between checks of the context
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

// trustUnknown is the zero level of trust as conditions see it.
const trustUnknown = "unknown"

// variables returns the types of the variables by name.
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

// words returns the possible values of a variable that has only a few, or nil for any other.
// Comparing such a variable with another text is a mistake that would never show otherwise.
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

// environment returns the language of conditions: CEL with optional fields and string functions.
// The calendar functions are left out, because they read the time zone database.
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
