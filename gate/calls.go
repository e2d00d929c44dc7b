package gate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
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

// argumentsStep makes the call that the later steps judge, of arguments that were read strictly and
// are valid (H4). They are read here if they were not when the reply came.
func (j *judgement) argumentsStep() *refusal {
	if j.asked.Broken != "" || j.asked.Problem != "" {
		return broken(j.asked.Problem)
	}
	if j.asked.Secret != "" {
		return j.holdsSecret(guard.Mark(j.asked.Secret))
	}
	read := j.facts.Read[j.asked.ID]
	if !read.of(j.entry, j.asked.Arguments) {
		read = j.entry.read(j.asked.Arguments, false)
	}
	canonical := read.Canonical
	if read.Err != nil {
		return broken(read.Err.Error())
	}
	if mark := guard.FindMark(canonical); mark != "" {
		return j.holdsSecret(mark)
	}
	if read.schema == nil {
		return refuse("invalid_arguments: the arguments cannot be checked, so the call was refused. Continue without it.")
	}
	if r := read.invalid; r != nil {
		if text, ok := strings.CutPrefix(r.message, "invalid_arguments: "); ok && j.scope.Worker != nil { // X19
			own := *r
			r = &own
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
		Buffers:   j.facts.Buffers,
		Images:    j.facts.Images,
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

// planStep asks the tool for its plan of the call. All later steps judge that plan, and the permit
// holds it. The text of a [*toolcrib.ToolError] is written for the model (C15); any other error is
// for operators.
func (j *judgement) planStep() *refusal {
	err := j.makePlan()
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

// makePlan sets the plan of the call. It is a copy, so that a tool that keeps its plan cannot change
// what was judged.
func (j *judgement) makePlan() error {
	if j.entry.planner == nil {
		j.plan = toolcrib.Plan{Run: j.entry.tool.Call}
		return nil
	}
	call := j.call
	call.Arguments = bytes.Clone(call.Arguments)
	plan, err := j.entry.planner.Plan(j.ctx, call)
	switch {
	case err != nil:
		return err
	case plan == nil || plan.Run == nil:
		return errors.New("the tool has no plan for this call")
	}
	j.setPlan(plan)
	return nil
}

// setPlan sets the plan of the call to a copy.
func (j *judgement) setPlan(plan *toolcrib.Plan) {
	j.plan = *plan
	j.plan.Targets, j.plan.Programs = slices.Clone(plan.Targets), slices.Clone(plan.Programs)
	j.plan.Concerns, j.plan.Content = slices.Clone(plan.Concerns), slices.Clone(plan.Content)
	j.plan.Hidden = slices.Clone(plan.Hidden)
}

// forModel returns the [*toolcrib.ToolError] in err, or nil.
func forModel(err error) *toolcrib.ToolError {
	var told *toolcrib.ToolError
	if errors.As(err, &told) {
		return told
	}
	return nil
}

// effectStep refuses a write in a read-only run.
func (j *judgement) effectStep() *refusal {
	j.effect = cmp.Or(j.plan.Effect, j.entry.spec.Effect).OrStrictest()
	if !j.scope.ReadOnly || !j.effect.Writes() {
		return nil
	}
	return refuse("%s would change something, and this run may only read. Answer without changing anything.",
		j.name()).at(j.gate.scopePosition(j.scope, "agents.AGENT.read_only"))
}
