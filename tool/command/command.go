// Package command makes tools of programs (tools.commands). The words of the command line are fixed, except for those
// that are values of arguments; no shell is involved. The program runs in the sandbox of exec_shell: standard output is
// the result, and any exit status but 0 an error.
package command

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/argv"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// Group is the group of these tools.
const Group = "commands"

// Options describe one tool. The zero value of a field is the strictest reading.
type Options struct {
	Name, Description string
	Parameters        json.RawMessage // JSON Schema of the arguments; if empty, there are none
	Command           []string        // command line, as [argv.Parse] reads it
	Program           shell.Program   // without Args and Input, which a call has
	Input             bool            // whether the program reads the arguments as JSON
	Dashes            bool            // whether values may begin with -

	Effect    toolcrib.Effect // read_only sets ReadOnly of Program
	Timeout   time.Duration   // if 0, limits.tool_timeout
	Untrusted bool
}

type command struct {
	Options
	programs *shell.Programs
	template argv.Template
	spec     toolcrib.Spec
}

// New returns a tool that runs a program.
func New(programs *shell.Programs, o Options) (toolcrib.Tool, error) {
	c := &command{Options: o, programs: programs}
	var problems []argv.Problem
	if c.template, problems = argv.Parse(o.Command, o.Parameters, o.Input); len(problems) > 0 {
		return nil, fmt.Errorf("tool %s: %s", o.Name, problems[0].Message)
	}
	if o.Effect = o.Effect.OrStrictest(); o.Program.Network && !o.Effect.Writes() {
		return nil, fmt.Errorf("tool %s: with the network it is not read_only", o.Name)
	}
	c.Effect, c.Program.ReadOnly = o.Effect, !o.Effect.Writes()
	c.template.Dashes = o.Dashes
	c.spec = toolcrib.Spec{
		Name: o.Name, Description: cmp.Or(o.Description, "Run "+filepath.Base(o.Command[0])+"."),
		Parameters: strict(o.Parameters), Effect: o.Effect,
		Group: Group, Source: c.source(), EnabledByDefault: true, Untrusted: o.Untrusted, Sink: o.Program.Network,
		Timeout: o.Timeout,
		Plans:   toolcrib.PlanFacts{Effect: true, Targets: true, Policy: true, Concerns: true},
	}
	return c, c.spec.Check()
}

// strict returns a schema that refuses unknown arguments, unless it has keywords that may mean others.
func strict(schema json.RawMessage) json.RawMessage {
	if len(schema) == 0 {
		return json.RawMessage(`{"type":"object","additionalProperties":false}`)
	}
	var keys map[string]json.RawMessage
	if json.Unmarshal(schema, &keys) != nil {
		return schema
	}
	for key := range keys {
		switch key {
		case "$schema", "title", "description", "type", "properties", "required":
		default:
			return schema
		}
	}
	keys["additionalProperties"] = json.RawMessage("false")
	if out, err := json.Marshal(keys); err == nil {
		return out
	}
	return schema
}

// source is command: and the beginning of a hash of what the tool runs, so that what a person decided about it does not
// apply to another program of that name.
func (c *command) source() string {
	of, _ := json.Marshal([]any{c.Command, c.Program, c.Input, c.Dashes, c.Effect})
	sum := sha256.Sum256(of)
	return "command:" + hex.EncodeToString(sum[:16])
}

// Spec describes the tool.
func (c *command) Spec() toolcrib.Spec { return c.spec }

// Call plans the call and runs the plan.
func (c *command) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.RunPlan(ctx, c, call)
}

// Plan makes the command line of a call.
func (c *command) Plan(_ context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	words, err := c.template.Words(call.Arguments)
	if err != nil {
		return nil, err
	}
	of := c.Program
	words[0] = filepath.Base(words[0])
	if of.Args = words; c.Input {
		of.Input = call.Arguments
	}
	plan, err := c.programs.Plan(call, of, result)
	if err == nil && plan.Effect.Writes() && c.Effect == toolcrib.EffectIdempotentWrite {
		plan.Effect = c.Effect
	}
	return plan, err
}

// maxTail bounds the end of the output in an error.
const maxTail = 8 << 10

// result returns the output of a program.
func result(e shell.Ended) (toolcrib.Output, error) {
	if e.ExitCode == 0 && e.Warning == "" {
		return toolcrib.Output{Text: e.Stdout, Cut: e.Cut, Untrusted: e.Source != "", Source: e.Source}, nil
	}
	text := fmt.Sprintf("exit status %d", e.ExitCode)
	switch {
	case e.Signal != "":
		text = "ended by a signal (" + e.Signal + ")"
	case e.ExitCode < 0 && e.Warning != "":
		text = e.Warning
	case e.Warning != "":
		text += ". " + e.Warning
	}
	failed := toolcrib.Failf(toolcrib.ExecutionFailed, "%s", text+e.Tail(maxTail))
	failed.Untrusted = e.Source
	return toolcrib.Output{}, failed
}
