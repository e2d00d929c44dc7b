package system

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	maxVariables = 500
	maxNames     = 100  // names in a call
	maxValue     = 1000 // bytes of a value
	maxRawValue  = 4096 // the same in the raw variants
)

const envParameters = `{
	"type": "object",
	"properties": {
		"names": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 256}, "maxItems": 100, "description": "Names of variables whose values are needed. Default: the names of all, and the values of harmless ones."}
	},
	"additionalProperties": false
}`

// getEnv is get_env or, with raw, get_env_raw.
type getEnv struct {
	options Options
	raw     bool
}

type envInput struct {
	Names []string `json:"names"`
}

type envResult struct {
	Variables map[string]string `json:"variables"`          // value by name
	Withheld  []string          `json:"withheld,omitempty"` // variables whose values must be requested by name
	NotSet    []string          `json:"not_set,omitempty"`
	Truncated bool              `json:"truncated,omitempty"` // whether there are more variables
}

// Spec describes get_env or get_env_raw.
func (t *getEnv) Spec() toolcrib.Spec {
	name, description := "get_env_raw", "Read the environment variables of the running toolcrib as they are, secrets too."
	if !t.raw {
		name, description = "get_env", "Read the environment variables of the running toolcrib: their names, and the values of harmless ones such as PATH and LANG. A person is asked before any other value that you name is shown. Values that could be secrets are shown as "+guard.Redacted+"."
	}
	s := spec(name, description, envParameters, t.raw)
	s.Plans.Concerns = true
	return s
}

// harmless reports whether the value of a variable may be shown without asking: it describes the
// environment and is never a credential.
func harmless(name string) bool {
	switch strings.ToUpper(name) {
	case "PATH", "PATHEXT", "HOME", "USER", "USERNAME", "LOGNAME", "SHELL", "COMSPEC", "LANG", "LANGUAGE", "TZ", "TERM",
		"COLORTERM",
		"COLUMNS", "LINES", "NO_COLOR", "TMPDIR", "TMP", "TEMP", "HOSTNAME", "COMPUTERNAME", "SHLVL", "EDITOR", "VISUAL",
		"PAGER", "OS",
		"NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE", "SYSTEMROOT", "WINDIR", "USERPROFILE":
		return true
	}
	return strings.HasPrefix(name, "LC_")
}

// Plan decodes the arguments. Its concern has the variables whose values a person must release.
func (t *getEnv) Plan(_ context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	plan, in, err := wire.Plan(call, envInput{}, t.read)
	plan.Concerns = t.concerns(in.Names)
	return plan, err
}

// Call plans the call and runs the plan.
func (t *getEnv) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.RunPlan(ctx, t, call)
}

// concerns returns a concern with those of the named variables that are set, and that are neither
// harmless nor redacted because of their names.
func (t *getEnv) concerns(named []string) []toolcrib.Concern {
	show := func(_, value string) string { return value }
	set, _ := environment(t.options.Environ(), named, show)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if len(named) > 0 && !harmless(name) && !guard.IsSecretName(name) {
			names = append(names, guard.Visible(cut(name)))
		}
	}
	if t.raw || len(names) == 0 {
		return nil
	}
	why := "shows the values of environment variables: " + cut(strings.Join(names, ", "))
	return []toolcrib.Concern{{Reason: toolcrib.ReasonNeedsConfirmation, Why: why}}
}

// read returns at most 500 variables. Without names, only harmless values are shown.
func (t *getEnv) read(_ context.Context, _ toolcrib.Call, in envInput) (toolcrib.Output, error) {
	if len(in.Names) > maxNames {
		return toolcrib.Output{}, toolcrib.Failf(toolcrib.InvalidArguments, "at most %d names", maxNames)
	}
	show := t.redacted
	if t.raw {
		show = rawValue
	}
	var result envResult
	result.Variables, result.Truncated = environment(t.options.Environ(), in.Names, show)
	if !t.raw && len(in.Names) == 0 {
		for _, name := range slices.Sorted(maps.Keys(result.Variables)) {
			if !harmless(name) {
				delete(result.Variables, name)
				result.Withheld = append(result.Withheld, name)
			}
		}
	}
	for _, name := range in.Names {
		if _, ok := result.Variables[name]; !ok && !slices.Contains(result.NotSet, name) {
			result.NotSet = append(result.NotSet, name)
		}
	}
	out, err := wire.Output(result)
	out.Cut = result.Truncated
	return out, err
}

// redacted returns a value without anything that is or could be a secret (N24).
func (t *getEnv) redacted(name, value string) string {
	if guard.IsSecretName(name) {
		return guard.RedactEnv(name, value)
	}
	return guard.Clip(hide(value, t.options.Mask), maxValue)
}

func rawValue(_, value string) string { return guard.Clip(value, maxRawValue) }

// environment returns the variables of NAME=value lines that have one of the names, or all if names is
// empty, at most the first maxVariables by name. more reports whether there are others.
func environment(lines, names []string, show func(name, value string) string) (variables map[string]string, more bool) {
	all := make(map[string]string, len(lines))
	for _, line := range lines {
		name, value, ok := strings.Cut(line, "=")
		if _, twice := all[name]; !ok || name == "" || twice || len(names) > 0 && !slices.Contains(names, name) {
			continue // on Windows some lines have no name
		}
		all[name] = value
	}
	variables = make(map[string]string, min(len(all), maxVariables))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if len(variables) == maxVariables {
			return variables, true
		}
		variables[guard.Clip(name, maxValue)] = show(name, all[name])
	}
	return variables, false
}
