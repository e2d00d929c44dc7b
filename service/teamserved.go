package service

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/team"
)

// The tools confer, coordinate and assess are offered to programs next to the agents.

// teamTools returns the specs of these tools, made from the spec of the tool that gives a task to an agent.
func teamTools(of toolcrib.Spec) (specs []toolcrib.Spec) {
	about := map[team.Kind]string{
		team.Confer:     "Ask several agents the same question, side by side, and read all their answers.",
		team.Coordinate: "Have one agent propose an answer, others criticise it, and one write the synthesis.",
		team.Assess:     "Have agents score an answer by a rubric, with evidence.",
	}
	ofAssess := []string{"answer", "run_id", "assessed_session_id", "rubric", "allow_self_assess"}
	others := map[team.Kind][]string{
		team.Confer:     append([]string{"proposer", "synthesizer"}, ofAssess...),
		team.Coordinate: append([]string{"ballot", "stop_at"}, ofAssess...),
		team.Assess:     {"ballot", "stop_at", "proposer", "synthesizer"},
	}
	for _, kind := range team.Kinds() {
		schema, err := jsonschema.For[TeamRequest](nil)
		if err != nil {
			continue // cannot fail for this type
		}
		for _, name := range append(others[kind], "detach") {
			delete(schema.Properties, name)
		}
		schema.PropertyOrder = nil
		of.Name, of.Description = string(kind), about[kind]
		of.Effect = toolcrib.EffectNonIdempotentWrite // as for agents
		if of.Parameters, err = json.Marshal(schema); err == nil {
			specs = append(specs, of)
		}
	}
	return specs
}

// teamKind returns the kind of a call that asks a team. ok is false for another call.
func (v *Serving) teamKind(name string) (kind team.Kind, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	kind = team.Kind(name)
	return kind, slices.Contains(v.teams, kind)
}

// askTeam executes a call that asks a team. taint is what the client has read before; notices are about the call.
func (v *Serving) askTeam(
	ctx context.Context, kind team.Kind, c *ServedCall, taint []string, notices []toolcrib.Notice, f Front,
) (*Served, error) {
	raw, err := guard.Arguments(c.Arguments)
	if err != nil {
		return nil, env.BadRequestf("%s: the arguments: %v", kind, err)
	}
	q := TeamRequest{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&q); err != nil {
		return nil, env.BadRequestf("%s: the arguments do not fit: %v", kind, err)
	}
	q.Kind, q.Detach = kind, false
	leave, err := v.place("")
	if err != nil {
		return nil, err
	}
	defer leave()
	r := StartRequest{Team: &q, Workspace: v.p.Workspace, Approve: agent.ApproveNone}
	d, task, err := v.s.readyTeam(ctx, v.p.Who, r, f)
	if err != nil {
		return nil, err
	}
	// The conductor may do no more than the agent: it has the tools with which it asks, and those that its workers may
	// have.
	task.Agent.Tools, task.RunTools, task.SkillTools = v.p.Agent.Tools, v.p.Tools, v.scope.SkillTools
	task.Agent.Session = v.p.Agent.Session
	if len(taint) > 0 { // the question may come from untrusted data
		task.Taint = append(slices.Clone(task.Taint), taint...)
		task.Agent.TaintWrites = v.p.Agent.TaintWrites
	}
	task.Notices = append(task.Notices, notices...)
	state, err := d.run(ctx, task)
	if err != nil {
		return nil, err
	}
	return v.served(ctx, policy.NewCall(v.s.Env.Mask, c.Name, c.Arguments), state)
}

// teamResult returns the result of a team's run that has ended, for a client.
func (v *Serving) teamResult(ctx context.Context, state *agent.State) (*journal.ToolResult, error) {
	report := struct {
		Run     toolcrib.RunID  `json:"run_id"`
		Status  toolcrib.Status `json:"status"`
		Content string          `json:"content"`
		Error   string          `json:"error,omitempty"`
		*api.Report
	}{Run: state.Run, Status: state.Status, Report: v.s.teamReport(ctx, v.p.Who, state)}
	r := &journal.ToolResult{Name: string(report.Tool), Status: toolcrib.ResultOK}
	if state.Done != nil {
		report.Content = state.Done.Content
	}
	if state.Failed != nil {
		report.Error = state.Failed.Text()
	}
	if state.Failed != nil || !report.Answered() {
		r.Status, r.IsError = toolcrib.ResultError, true
	}
	raw, err := json.Marshal(report)
	if err != nil {
		return nil, err
	}
	r.Untrusted = len(state.Taint) > 0
	r.Content = guard.Fit(toolcrib.Output{JSON: raw}, guard.FitOptions{
		MaxBytes: v.scope.MaxBytes, Wrap: r.Untrusted, Source: string(report.Tool), Masker: v.s.Env.Mask,
		Canary: state.Start.Canary,
	}).Content
	return r, nil
}
