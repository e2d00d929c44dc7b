package gate

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// holdsSecret refuses a call whose arguments contain a secret or its mark: the mark would be
// written over the secret, and the secret does not belong in arguments.
func (j *judgement) holdsSecret(mark string) *refusal {
	return refuse("%s was not run: its arguments contain %s, or the secret that this mark stands for. "+
		"Leave the secret where it is: change the text around it with edit_file, and do not repeat it in a call.",
		j.name(), mark).because(toolcrib.ReasonToolPolicy, "")
}

// argumentsStep reads and validates the arguments (H4), and makes the call that the later steps
// judge.
func (j *judgement) argumentsStep() *refusal {
	if j.asked.Broken != "" || j.asked.Problem != "" {
		return broken(j.asked.Problem)
	}
	if j.asked.Secret != "" {
		return j.holdsSecret(guard.Mark(j.asked.Secret))
	}
	// They should be canonical already. They are read again so that a caller's mistake cannot give
	// one call two texts.
	canonical, value, err := guard.ReadArguments(j.asked.Arguments)
	if err != nil {
		return broken(err.Error())
	}
	if mark := guard.FindMark(canonical); mark != "" {
		return j.holdsSecret(mark)
	}
	if j.entry.schema == nil {
		return refuse("invalid_arguments: the arguments cannot be checked, so the call was refused. Continue without it.")
	}
	if r := j.entry.schema.checkArguments(value); r != nil {
		if text, ok := strings.CutPrefix(r.message, "invalid_arguments: "); ok && j.scope.Worker != nil { // X19
			r.message = fmt.Sprintf("invalid_arguments: input args failed schema validation for tool '%s': %s", j.name(), text)
		}
		return r
	}
	if r := j.questionStep(canonical); r != nil {
		return r
	}
	if r := j.subtaskStep(canonical); r != nil {
		return r
	}
	j.call = toolcrib.Call{
		ID:        j.asked.ID,
		Name:      j.entry.spec.Name,
		Arguments: canonical,
		Run:       j.facts.Run,
		Session:   j.facts.Session,
		Principal: *j.who,
		Workspace: j.scope.Workspace,
		Depth:     j.scope.Depth,
		Tainted:   len(j.facts.Taint) > 0,
	}
	return nil
}

// broken refuses arguments that are not a JSON object.
func broken(problem string) *refusal {
	if problem == "" {
		problem = "expected one JSON object"
	}
	r := refuse("invalid_arguments: %s", problem)
	r.schemaError = encode(schemaError{Expected: "one JSON object", Got: guard.Cut(problem, maxShownText)})
	return r
}

// policyStep asks the tool's own policy. The text of a [*toolcrib.ToolError] is written for the
// model (C15); any other error is for operators.
func (j *judgement) policyStep() *refusal {
	if j.entry.admitter == nil {
		return nil
	}
	err := j.entry.admitter.Admit(j.judged())
	if err == nil {
		return nil
	}
	if told := forModel(err); told != nil {
		r := refuse("%s", told.Error())
		r.hint = told.Hint
		if told.Err != nil {
			r.detail = told.Err.Error()
		}
		if errors.Is(told, toolcrib.ErrProtected) {
			r.reason = toolcrib.ReasonProtectedPath
		}
		return r
	}
	return refuse("%s refused this call. Continue without it.", j.name()).because("", err.Error())
}

// forModel returns the [*toolcrib.ToolError] in err, or nil.
func forModel(err error) *toolcrib.ToolError {
	var told *toolcrib.ToolError
	if errors.As(err, &told) {
		return told
	}
	return nil
}

// effectStep asks the tool for the effect of this call, and refuses a write in a read-only run.
func (j *judgement) effectStep() *refusal {
	if j.entry.effector != nil {
		j.effect = toolcrib.EffectNonIdempotentWrite // in case the tool panics
		j.effect = j.entry.effector.EffectOf(j.judged()).OrStrictest()
	}
	if !j.scope.ReadOnly || !j.effect.Writes() {
		return nil
	}
	return refuse("%s would change something, and this run may only read. Answer without changing anything.",
		j.name()).at(j.gate.scopePosition(j.scope, "agents.AGENT.read_only"))
}

// judged returns the call for a tool to inspect. The arguments are a copy, so that a tool that
// modifies them does not change the call that is judged or run.
func (j *judgement) judged() toolcrib.Call {
	c := j.call
	c.Arguments = bytes.Clone(c.Arguments)
	return c
}

// Fits reports whether arguments, as they are, are valid for a tool of the run.
func (g *Gate) Fits(scope Scope, tool string, arguments []byte) bool {
	e := g.toolsOf(&scope).byName[tool]
	_, value, err := guard.ReadArguments(arguments)
	return err == nil && e != nil && e.schema != nil && e.schema.checkArguments(value) == nil
}
