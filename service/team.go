package service

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/internal/yamltree"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/models"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/team"
)

// TeamRequest asks several agents, with the fields of HTTP and MCP. The kind determines which of them apply.
type TeamRequest struct {
	team.Request
	Panel       string   `json:"panel,omitempty" jsonschema:"a panel of the configuration; default: the only one, else all agents"`
	CostCap     *float64 `json:"worker_tool_cost_cap_usd,omitempty" jsonschema:"what a worker may spend before its calls are refused or cause a warning; 0 = no cap"`
	CostCapMode *string  `json:"worker_tool_cost_cap_mode,omitempty" jsonschema:"warn, enforce or off"`

	Run       string `json:"run_id,omitempty" jsonschema:"for assess: the run whose answer to assess"`
	Of        string `json:"assessed_session_id,omitempty" jsonschema:"for assess: the session whose last answer to assess"`
	AllowSelf bool   `json:"allow_self_assess,omitempty" jsonschema:"let agents assess their own answers"`

	MaxSeconds *float64 `json:"max_time_seconds,omitempty" jsonschema:"in total; default: 600"`
	Session    string   `json:"session_id,omitempty" jsonschema:"the session to join: an ID, or a name that you choose"`
	Continue   bool     `json:"continue,omitempty" jsonschema:"join the session of the newest run, instead of session_id"`
	Detach     bool     `json:"detach,omitempty" jsonschema:"answer as soon as the run has started"`

	Attached []api.File `json:"files,omitempty" jsonschema:"go with the question: images, PDF documents and texts"`

	RubricFile string `json:"-"` // if set, replaces Rubric
}

// readyTeam returns the task of a team's request and the drive of its run.
func (s *Service) readyTeam(ctx context.Context, who toolcrib.Principal, r StartRequest, f Front) (_ *drive,
	task agent.Task, err error,
) {
	s.Env.LearnSecrets()
	if err := s.Env.OpenFor(ctx, who); err != nil {
		return nil, task, err
	}
	q, err := s.teamRequest(ctx, who, *r.Team, r.notice(s))
	if err != nil {
		return nil, task, err
	}
	files, err := Attachments(r.Team.Attached)
	if err != nil {
		return nil, task, err
	}
	q.Files, q.Taint = slices.Concat(r.Files, files), slices.Concat(q.Taint, r.Taint)
	plan, notices, err := q.Plan(func(name string) bool { return slices.Contains(s.Env.Config.AgentNames(), name) })
	if err != nil {
		return nil, task, err
	}
	site, err := s.Env.Site()
	if err != nil {
		return nil, task, err
	}
	p := &Prepared{Who: policy.RunsAs(who, r.Admin), Approve: r.Approve, s: s, models: &models.Choice{}, tell: r.notice(s)}
	if p.Workspace, err = s.Policy.Workspace(r.Workspace, nil); err != nil {
		return nil, task, err
	}
	task = agent.Task{
		Principal: p.Who, Workspace: p.Workspace, Approve: p.Approve,
		Hosted: agent.Hosted{Once: r.Once, Driver: s.Env.Driver, Site: site, Notices: notices},
	}
	if err := s.traced(ctx, p.Who, &r, &task); err != nil {
		return nil, task, err
	}
	in := StartRequest{Session: cmp.Or(r.Session, r.Team.Session), Continue: r.Continue || r.Team.Continue}
	if err = p.enter(ctx, who, &in); err == nil && p.Session != nil {
		err = p.into(ctx, &task)
	}
	if err == nil {
		err = q.Fill(plan, &task)
	}
	if err == nil {
		p.gate, err = s.Policy.TeamGate(p.Workspace)
	}
	if err != nil {
		return nil, task, err
	}
	s.reportFourEyes(who, who.User, p.Approve, p.tell)
	d := &drive{s: s, front: f, who: p.Who, approve: p.Approve, models: p.models, workspace: p.Workspace, gate: p.gate}
	return d, task, nil
}

// teamRequest fills in the configured values.
func (s *Service) teamRequest(
	ctx context.Context, who toolcrib.Principal, r TeamRequest, tell func(string),
) (*team.Request, error) {
	caps := &s.Env.Config.Team.WorkerTools
	r.CostCapUSD, r.Request.CostCapMode = caps.CostCapUSD, caps.CostCapMode
	if s := r.MaxSeconds; s != nil {
		if !(*s > 0 && *s <= (24*time.Hour).Seconds()) {
			return nil, env.BadRequestf("max_time_seconds: must be more than 0, and at most 86400")
		}
		r.MaxTime = max(time.Duration(*s*float64(time.Second)), 1)
	}
	if r.CostCap != nil {
		r.CostCapUSD = *r.CostCap
	}
	if r.CostCapMode != nil {
		r.Request.CostCapMode = *r.CostCapMode
	}
	if err := s.panelOf(ctx, who, &r); err != nil {
		return nil, err
	}
	if r.Kind == team.Assess {
		return &r.Request, s.subjectOf(ctx, who, &r, tell)
	}
	return &r.Request, nil
}

// panelOf adds the agents of the panel if the request names none.
func (s *Service) panelOf(ctx context.Context, who toolcrib.Principal, r *TeamRequest) (err error) {
	panels := s.Env.Config.Team.Panels
	name := r.Panel
	if name == "" && len(r.Agents) == 0 && len(panels) == 1 {
		for only := range panels {
			name = only
		}
	}
	panel, ok := panels[name]
	switch {
	case r.Panel != "" && len(r.Agents) > 0:
		return env.BadRequestf("give either panel or agents")
	case r.Panel != "" && !ok:
		return env.BadRequestf("panel: no %q in team.panels", r.Panel)
	case len(r.Agents) > 0:
		if known := s.Env.Config.AgentNames(); !slices.ContainsFunc(r.Agents, func(name string) bool {
			return slices.Contains(known, name)
		}) {
			if _, err = s.Policy.Agent(r.Agents[0], policy.Change{}); err != nil { // the error lists the agents
				err = env.BadRequestf("agents: %v", err)
			}
		}
		return err
	case !ok:
		r.Agents, err = s.Policy.RunnableAgents(ctx, who)
		return err
	}
	r.Agents = panel.Agents
	if r.Kind == team.Coordinate {
		r.Proposer, r.Synthesizer = cmp.Or(r.Proposer, panel.Proposer), cmp.Or(r.Synthesizer, panel.Synthesizer)
	}
	return nil
}

// subjectOf finds the answer to assess, and the agents that may assess it: those that did not take part in it.
func (s *Service) subjectOf(
	ctx context.Context, who toolcrib.Principal, r *TeamRequest, tell func(string),
) (err error) {
	n := 0
	for _, text := range []string{r.Subject, r.Run, r.Of} {
		if text != "" {
			n++
		}
	}
	if n != 1 {
		return env.BadRequestf("assess: give one of answer, run_id and assessed_session_id")
	}
	file := r.RubricFile
	if r.Rubric == nil && file == "" {
		if file, err = s.Env.Config.Team.Rubric.Resolve(s.Env.Resolver()); err != nil {
			return err
		}
	}
	if file != "" {
		if r.Rubric, err = readRubric(file); err != nil {
			return err
		}
	}
	if r.Subject != "" {
		return nil
	}
	run := Run{}
	if r.Run != "" {
		run, err = s.Run(ctx, who, r.Run)
	} else if run, err = s.lastOf(ctx, who, r.Of); err == nil {
		run, err = s.Run(ctx, who, string(run.ID))
	}
	switch {
	case err != nil:
		return err
	case strings.TrimSpace(run.Content) == "":
		return env.BadRequestf("run %s has no answer to assess", run.ID)
	}
	r.Subject, r.Taint = run.Content, run.Taint
	if r.Question == "" {
		if state, err := agent.Load(ctx, s.Env.Store, run.ID); err == nil && len(state.Start.Input) > 0 {
			r.Question = state.Start.Input[len(state.Start.Input)-1].Text()
		}
	}
	if r.AllowSelf {
		return nil
	}
	producers := []string{run.Agent}
	for _, c := range run.Children {
		producers = append(producers, c.Agent)
	}
	asked := r.Agents
	r.Agents = slices.DeleteFunc(slices.Clone(asked), func(name string) bool { return slices.Contains(producers, name) })
	slices.Sort(producers)
	for _, name := range slices.Compact(producers) {
		if slices.Contains(asked, name) {
			tell(fmt.Sprintf("agent %s took part in the answer, so it does not assess it; see --allow-self", name))
		}
	}
	if len(r.Agents) == 0 {
		return env.BadRequestf("agents: all of them took part in the answer; name others, or allow it (allow_self_assess)")
	}
	return nil
}

// lastOf returns the last run of a session.
func (s *Service) lastOf(ctx context.Context, who toolcrib.Principal, session string) (Run, error) {
	info, err := s.Session(ctx, who, session)
	if err != nil {
		return Run{}, err
	}
	return s.LastRun(ctx, who, info.ID)
}

// maxRubric is the most bytes of a rubric's file.
const maxRubric = 256 << 10

// readRubric reads a rubric: a list of items with id, description and severity.
func readRubric(file string) ([]team.Item, error) {
	text, err := safefile.Read(file, maxRubric)
	if err != nil {
		return nil, env.BadRequestf("rubric: %s %v", file, err)
	}
	root, errs := yamltree.Parse(text, yamltree.Limits{Bytes: maxRubric, Tokens: 20_000, Depth: 6})
	d := &yamltree.Decoder{File: file}
	d.Add(errs...)
	var items struct {
		Items []struct {
			ID          string `yaml:"id" required:"true"`
			Description string `yaml:"description" required:"true"`
			Severity    string `yaml:"severity" default:"medium" enum:"low|medium|high"`
		} `yaml:"items" required:"true" max:"100"`
	}
	if len(d.Errors) == 0 {
		d.Decode(root, &items)
	}
	if len(d.Errors) > 0 {
		return nil, env.BadRequestf("rubric: %v", d.Errors[0])
	}
	list := make([]team.Item, len(items.Items))
	for i, item := range items.Items {
		list[i] = team.Item{ID: item.ID, Description: item.Description, Severity: item.Severity}
	}
	return list, nil
}

// gateOfRun returns the gate of a stored run. A run that cannot be read is not a team's.
func (s *Service) gateOfRun(ctx context.Context, rec store.RunRecord) (*gate.Gate, error) {
	start, _ := s.startOf(ctx, rec.ID)
	return s.Policy.GateFor(rec.Workspace, start)
}

// teamReport returns the report of a team's run, or nil for another run.
func (s *Service) teamReport(ctx context.Context, who toolcrib.Principal, state *agent.State) *api.Report {
	return team.ReportOf(ctx, state, func(ctx context.Context, run toolcrib.RunID) (*agent.State, error) {
		of, err := agent.Load(ctx, s.Env.Store, run)
		if err == nil {
			of = s.Env.StateFor(who, of)
		}
		return of, err
	})
}

// AskPanel returns the request that asks a panel a question, or a not found error for an unknown panel.
func (s *Service) AskPanel(name, question string) (StartRequest, error) {
	if _, ok := s.Env.Config.Team.Panels[name]; !ok {
		return StartRequest{}, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no panel %q", name)
	}
	return StartRequest{Team: &TeamRequest{Request: team.Request{Kind: team.Confer, Question: question}, Panel: name}}, nil
}
