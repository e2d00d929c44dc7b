// Package verify implements the tool verify, by which a model checks its own claims: texts against
// expectations and, through other tools, commands and addresses.
package verify

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	// Group is the group of the tools of this package.
	Group = "checks"

	maxChecks  = 50
	maxValues  = 100
	maxPattern = 1024 // bytes of a regular expression
	maxReason  = 500  // bytes of a reason
)

// The tools that the checks shell and url_head use.
const (
	shellTool = "exec_shell"
	fetchTool = "web_fetch"
)

// Options for [New].
type Options struct {
	// Shell adds the check "shell". It is an option and not an argument, since a model could
	// otherwise give itself a shell. Workers of package team get a verify without it.
	Shell bool
	// Fetch is the tool that the check "url_head" uses. If "", it is web_fetch with the method HEAD.
	Fetch string
}

// New returns verify.
//
// Its Spec is not marked as nested, so that it can be used at max_depth: most checks call no tool. The
// two kinds that do go through the gate like every nested call, with its depth, effect and approval.
// If the gate refuses the call, the check fails with the reason.
func New(options Options) []toolcrib.Tool { return []toolcrib.Tool{&verify{options}} }

type verify struct{ options Options }

// check is a check requested by the model.
type check struct {
	ID              string          `json:"id"`
	Kind            string          `json:"kind"`
	TargetText      string          `json:"target_text"`
	Value           json.RawMessage `json:"value"` // a string, or a number for min_length
	Values          []string        `json:"values"`
	CaseInsensitive bool            `json:"case_insensitive"`

	Command              string  `json:"cmd"`
	TimeoutSeconds       int     `json:"timeout_s"`
	ExpectExit           int     `json:"expect_exit"`
	ExpectStdoutContains *string `json:"expect_stdout_contains"`
	ExpectStdoutRegex    *string `json:"expect_stdout_regex"`

	URL          string `json:"url"`
	ExpectStatus int    `json:"expect_status"`
}

type output struct {
	ChecksRun int      `json:"checks_run"`
	Results   []result `json:"results"`
	AllPassed bool     `json:"all_passed"`
	Summary   string   `json:"summary"`
}

type result struct {
	ID     string `json:"id"`
	Kind   string `json:"kind"`
	Passed bool   `json:"passed"`
	Reason string `json:"reason"`
}

const parameters = `{
	"type": "object",
	"properties": {
		"checks": {
			"type": "array",
			"maxItems": 50,
			"items": {
				"type": "object",
				"properties": {
					"id": {"type": "string", "maxLength": 64},
					"kind": {"type": "string", "enum": ["contains", "not_contains", "regex_match", "contains_any", "contains_all", "min_length", %s"url_head"]},
					"target_text": {"type": "string"},
					"value": {"type": ["string", "integer"], "description": "RE2, or a number"},
					"values": {"type": "array", "items": {"type": "string"}, "maxItems": 100},
					"case_insensitive": {"type": "boolean"},
					%s"url": {"type": "string", "maxLength": 2048},
					"expect_status": {"type": "integer", "minimum": 100, "maximum": 599}
				},
				"required": ["kind"],
				"additionalProperties": false
			}
		}
	},
	"required": ["checks"],
	"additionalProperties": false
}`

const shellParameters = `"cmd": {"type": "string", "maxLength": 8192},
					"timeout_s": {"type": "integer", "minimum": 1, "maximum": 300},
					"expect_exit": {"type": "integer"},
					"expect_stdout_contains": {"type": "string"},
					"expect_stdout_regex": {"type": "string", "maxLength": 1024},
					`

// Spec describes verify.
func (t *verify) Spec() toolcrib.Spec {
	schema := fmt.Sprintf(parameters, "", "")
	if t.options.Shell {
		schema = fmt.Sprintf(parameters, `"shell", `, shellParameters)
	}
	return wire.Spec(Group, "verify", "Check claims about texts, commands and addresses.", schema, toolcrib.EffectReadOnly)
}

// Call makes the checks in order. A check that cannot be made fails.
func (t *verify) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	var in struct {
		Checks []check `json:"checks"`
	}
	if err := wire.Decode(call.Arguments, &in); err != nil {
		return toolcrib.Output{}, err
	}
	switch {
	case len(in.Checks) == 0:
		return toolcrib.Output{}, toolcrib.Failf(toolcrib.InvalidArguments,
			"VERIFY_MISSING_CHECKS: give at least one check in checks")
	case len(in.Checks) > maxChecks:
		return toolcrib.Output{}, toolcrib.Failf(toolcrib.InvalidArguments,
			"VERIFY_TOO_MANY_CHECKS: at most %d checks in one call", maxChecks)
	}
	out := output{ChecksRun: len(in.Checks), Results: make([]result, len(in.Checks)), AllPassed: true}
	passed := 0
	for i := range in.Checks {
		if err := ctx.Err(); err != nil {
			return toolcrib.Output{}, err
		}
		c := &in.Checks[i]
		r := result{ID: cmp.Or(c.ID, fmt.Sprintf("check%d", i+1)), Kind: c.Kind, Passed: true, Reason: "ok"}
		if err := t.make(ctx, call, c); err != nil {
			r.Passed, r.Reason = false, "failed: "+guard.Clip(err.Error(), maxReason)
			out.AllPassed = false
		} else {
			passed++
		}
		out.Results[i] = r
	}
	if err := ctx.Err(); err != nil {
		return toolcrib.Output{}, err
	}
	out.Summary = fmt.Sprintf("%d of %d checks passed", passed, len(in.Checks))
	return wire.Output(out)
}

// make makes one check, and returns an error if it fails.
func (t *verify) make(ctx context.Context, call toolcrib.Call, c *check) error {
	if len(c.Values) > maxValues {
		return fmt.Errorf("at most %d values", maxValues)
	}
	switch c.Kind {
	case "contains", "contains_all", "not_contains", "contains_any", "regex_match":
		values, err := c.values()
		if err != nil {
			return err
		}
		return c.text(values)
	case "min_length":
		return c.minLength()
	case "shell":
		if !t.options.Shell {
			return fmt.Errorf("checks of kind shell are not available here")
		}
		return c.shell(ctx, call)
	case "url_head":
		return c.urlHead(ctx, call, t.options.Fetch)
	}
	return fmt.Errorf("unknown kind %q", guard.Clip(c.Kind, 40))
}
