package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/store"
)

// explained is what an explanation is about: a run that could begin now, or one
// that is stored.
type explained struct {
	gate  *gate.Gate
	who   toolcrib.Principal
	scope gate.Scope
	facts gate.Facts // of a stored run, as its journal ends
	run   toolcrib.RunID
}

// explainedAgent is a run that could begin now under an agent.
func (a *app) explainedAgent(cmd *cobra.Command, f *explainFlags) (*explained, error) {
	c, err := a.configuration()
	if err != nil {
		return nil, err
	}
	who, err := a.principal(cmd.Context())
	if err != nil {
		return nil, err
	}
	def, err := a.agent(c, &f.runFlags, cmd)
	if err != nil {
		return nil, err
	}
	approve, err := a.approval(&f.runFlags)
	if err != nil {
		return nil, err
	}
	g, workspace, err := a.toolGateAt(cmd.Context(), f.workspace, cmd.Flags().Changed("workspace"))
	if err != nil {
		return nil, err
	}
	limits := def.Limits.WithDefaults()
	scope := gate.Scope{
		Agent: def.Name, AgentTools: def.Tools, ReadOnly: def.ReadOnly, MaxDepth: limits.MaxDepth,
		TaintWrites: def.TaintWrites, NobodyAsks: approve == agent.ApproveDeny, Workspace: workspace,
		AllApproved: approve == agent.ApproveAll && !c.Approvals.FourEyes,
		MaxCalls:    limits.MaxCallsPerTurn, MaxRepeats: limits.MaxIdenticalCalls,
		Timeout: limits.ToolTimeout, TimeoutSet: limits.ToolTimeoutSet, MaxBytes: limits.MaxResultBytes,
	}
	k, err := a.service.ChooseSkills(def.Skills)
	if err != nil {
		return nil, err
	}
	k.Tell(a.service.Once(a.note))
	scope.SkillTools, scope.HasSkills = k.Tools, k.Any()
	if cmd.Flags().Changed("tools") {
		scope.RunTools = splitList(f.tools)
	}
	return &explained{gate: g, who: who, scope: scope}, nil
}

// explainedRun is a stored run at its end, under the policy of today.
func (a *app) explainedRun(ctx context.Context, name string) (*explained, error) {
	s, err := a.databaseToRead(ctx)
	if err != nil {
		return nil, err
	}
	rec, err := a.findRun(ctx, s, name)
	if err != nil {
		return nil, err
	}
	state, err := a.load(ctx, s, rec.ID)
	if errors.Is(err, store.ErrPruned) {
		return nil, fmt.Errorf("run %s: what it was told was pruned, so nothing can be explained by it", rec.ID)
	}
	if err != nil {
		return nil, err
	}
	scope := state.Scope()
	g, _, err := a.toolGateAt(ctx, scope.Workspace, true)
	if err != nil {
		return nil, err
	}
	facts := state.Facts()
	if c, err := a.configuration(); err != nil || c.Approvals.FourEyes {
		facts.Remembered = agent.OfOthers(state.Start.Principal.User, facts.Remembered)
	}
	return &explained{gate: g, who: state.Start.Principal, scope: scope, facts: facts, run: rec.ID}, nil
}

// note tells what the journal of a stored run adds to the answers.
func (x *explained) note(answers []gate.Explanation) {
	if x.run == "" {
		return
	}
	for i := range answers {
		if taint := x.facts.Taint; len(taint) > 0 {
			answers[i].Notes = append(answers[i].Notes, fmt.Sprintf("run %s has read untrusted data: %s", x.run, strings.Join(taint, ", ")))
		}
		for _, m := range x.facts.Remembered {
			if m.Tool == answers[i].Tool && m.Scope == "run" {
				answers[i].Notes = append(answers[i].Notes, fmt.Sprintf(
					"remembered for the run: %s needs no approval by tools.confirm; approved by %s (%s)", render.RememberedText(m), m.By, m.ApprovalID))
			}
		}
	}
}
