package service

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/models"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/store"
)

// StartRequest asks for a run.
type StartRequest struct {
	Agent string // of the configuration; "" = default
	Admin bool   // the run acts with the administrator's rights of a local user; see [Service.Prepare]
	policy.Change

	Session   string             // the run joins it: its ID, a name of its user's (made if it is new), or last; "" = none
	Continue  bool               // the run joins the session of the newest run; Session must be ""
	Begins    bool               // the run begins a session without a name; Session must be ""
	From      toolcrib.RunID     // the run begins a session with the transcript of this one; "" = none
	Workspace string             // root of the file tools; "" = the configuration's
	Approve   agent.Approve      // what becomes of calls that need an approval; "" = the run parks
	Tools     []string           // what the run may use of the agent's tools; null = no restriction
	Prompt    string             //
	Files     []Attachment       // go with the prompt
	Given     *toolcrib.ToolCall // makes a run of this call, without a model
	Taint     []string           // untrusted data that is in Prompt or Files
	Once      string             // of [Once]; "" = a second request like this begins a second run
	Asked     string             // see [journal.RunStarted]
	Instead   toolcrib.RunID     // whose conversation Messages continue: its taint and effects count; "" = none
	Again     bool               // sends the last message of the session once more ([Prepared.Again]); no Prompt
	Compact   bool               // only condenses what was said in the session; no Prompt

	// Messages is a transcript that comes before Prompt. Without a Prompt it ends with a message of
	// the user, or with the results of all calls of the model.
	Messages []toolcrib.Message
	// MessageFiles are attached to Messages, by their index.
	MessageFiles map[int][]Attachment
	// ClientTools are carried out by whoever starts the run ([Service.GiveResults]), and judged by
	// the gate like any other.
	ClientTools []toolcrib.Spec

	Team  *TeamRequest // asks several agents; what is asked of a single one does not count
	Ahead *Ahead       // for [Pool.Start]: who follows the run; may be nil

	Notice func(text string) // hears what a person should know of the request; nil = [Options].Notice does
}

// notice is who hears what a person should know of the request.
func (r *StartRequest) notice(s *Service) func(string) {
	if r.Notice != nil {
		return r.Notice
	}
	return s.Env.Notice
}

// Explain returns the request to explain the tools of the run.
func (r *StartRequest) Explain() policy.ExplainRequest {
	return policy.ExplainRequest{
		Given: r.Given, Agent: r.Agent, Admin: r.Admin, Change: r.Change, Workspace: r.Workspace, Approve: r.Approve,
		Tools: r.Tools, Notice: r.Notice,
	}
}

// task is the task of the request: what its client brings.
func (r *StartRequest) task(s *Service) agent.Task {
	t := agent.Task{
		Prompt: r.Prompt, Files: r.Files, Given: r.Given, History: slices.Clip(r.Messages), FromClient: len(r.Messages) > 0,
		HistoryFiles: r.MessageFiles, ClientTools: s.clientTools(r.ClientTools), Once: r.Once, Asked: r.Asked,
		Compact: r.Compact, Taint: slices.Clone(r.Taint),
	}
	if n := len(t.History); n > 0 && t.Prompt == "" && len(t.Files) == 0 && t.History[n-1].Role == toolcrib.RoleUser {
		t.Prompt, t.History = t.History[n-1].Text(), t.History[:n-1:n-1]
	}
	return t
}

// Attachment is a file that goes with a prompt.
type Attachment = toolcrib.OutputFile

// Prepared is an agent of the configuration on its way to runs: there is no other way from
// one to the other. Several may be made at the same time, each belongs to one goroutine.
type Prepared struct {
	Who       toolcrib.Principal // whom its runs act for
	Agent     toolcrib.Agent     // as the configuration has it, with the change
	Workspace string             // absolute
	Approve   agent.Approve
	Tools     []string // null = no restriction
	Session   *Session // nil = none

	reasoning string       // instead of that of the models; "" = theirs
	tell      func(string) // hears what a person should know
	told      bool         // what of its lists means no tool

	s      *Service
	models *models.Choice // never nil; may be those of several agents
	infos  []journal.ModelInfo
	gate   *gate.Gate // made at the first use; reads what changes at each offer and each call again
}

// Prepare finds an agent of the configuration, and what its runs stand on. It starts nothing. Whoever sits at the
// machine is an administrator of its data folder, but the model that works for them is none unless the request says
// so (contract §1); users of toolcrib's own keep their rights.
func (s *Service) Prepare(ctx context.Context, who toolcrib.Principal, r StartRequest) (*Prepared, error) {
	return s.prepareSeeing(ctx, who, r, policy.Paths{})
}

func (s *Service) prepareSeeing(
	ctx context.Context, who toolcrib.Principal, r StartRequest, seen policy.Paths,
) (*Prepared, error) {
	s.Env.LearnSecrets()
	tell := r.notice(s)
	p, err := s.prepared(policy.RunsAs(who, r.Admin), r.Agent, r.Change, tell)
	if err != nil {
		return nil, err
	}
	if p.Workspace, err = s.Policy.Workspace(r.Workspace, seen); err != nil {
		return nil, err
	}
	p.Approve, p.Tools = r.Approve, r.Tools
	s.tellFourEyes(who, who.User, p.Approve, tell)
	if r.Session != "" || r.Continue || r.From != "" {
		if err := s.Env.OpenFor(ctx, who); err != nil {
			return nil, err
		}
	}
	switch {
	case len(r.Messages) > 0 && (r.Continue || r.Session != ""):
		return nil, env.BadRequestf("messages: a session has messages of its own; give one of the two")
	case r.Continue && r.Session != "":
		return nil, env.BadRequestf("continue: name no session beside it")
	case r.Continue:
		if p.Session, err = s.LastConversation(ctx, who); err == nil && p.Session.Info.Busy() {
			err = s.sessionBusy(ctx, &p.Session.Info)
		}
	case r.Session != "" && r.Given != nil: // is made beside what was said, also while that waits
		p.Session, err = s.EnterSession(ctx, who, r.Session)
	case r.Session != "":
		p.Session, err = s.joinSession(ctx, who, r.Session)
	case r.From != "":
		var rec store.RunRecord
		rec, err = s.Env.Find(ctx, who, string(r.From))
		p.Session = &Session{From: rec.ID}
	case r.Begins:
		p.Session = &Session{}
	}
	return p, err
}

// prepared finds an agent of the configuration by its name. A name that no agent has is an
// error that says which there are.
func (s *Service) prepared(
	who toolcrib.Principal, name string, ch policy.Change, tell func(string),
) (*Prepared, error) {
	def, err := s.Policy.Agent(name, ch)
	if err != nil {
		return nil, err
	}
	if err := s.Env.Supported(); err != nil {
		return nil, err
	}
	s.Env.TellIgnored(s.Env.Once(tell))
	return &Prepared{s: s, Who: who, Agent: def, models: &models.Choice{}, reasoning: ch.Reasoning, tell: tell}, nil
}

// openModels resolves and opens the models of the agent. One without a model gets the
// first that is found; Options.Confirm may be asked about it.
func (p *Prepared) openModels() error {
	if p.Agent.Model == "" {
		p.s.Models.DetectFor(p.models)
	}
	p.models.Alone(p.Approve == agent.ApproveNone)
	return p.open(p.tell)
}

func (p *Prepared) open(tell func(string)) (err error) {
	p.infos, err = p.s.Models.Resolve(p.models, &p.Agent, p.s.Env.Once(tell))
	for i := range p.infos {
		p.infos[i].Reasoning = cmp.Or(p.reasoning, p.infos[i].Reasoning)
	}
	return err
}

// fill gives a task the agent with its models, what it has to know of the project, and the
// skills as they are now: what they allow, and their text at the end of the history. What else the task is to be is in
// it before. A run of one given call has no model. One of an agent that its user may not use will be
// refused, and has nothing of the agent that its user could read in it.
func (p *Prepared) fill(ctx context.Context, task *agent.Task, tell func(string), seen policy.Paths) error {
	task.Agent, task.Models, task.Principal = p.Agent, p.infos, p.Who
	if task.Given != nil {
		task.Agent.Model, task.Agent.Fallback, task.Models = "", nil, nil
	}
	task.Workspace, task.Driver, task.Approve, task.RunTools = p.Workspace, p.s.Env.Driver, p.Approve,
		withClientTools(p.Tools, task.ClientTools)
	if refused, err := p.s.Policy.MayRun(ctx, p.Who, p.Agent.Name); err != nil {
		return err
	} else if refused != "" {
		d := &task.Agent
		*d = toolcrib.Agent{Name: d.Name, Model: d.Model, Fallback: d.Fallback, Limits: d.Limits}
		return nil
	}
	p.s.Policy.AddProject(task, tell, seen)
	return p.s.Policy.AddSkills(task, tell, seen)
}

// theGate is the gate of the runs.
func (p *Prepared) theGate(seen policy.Paths) (*gate.Gate, error) {
	if p.gate != nil {
		return p.gate, nil
	}
	g, err := p.s.Policy.Gate(p.Workspace, seen)
	if err != nil {
		return nil, err
	}
	p.gate = g
	return g, nil
}

// needMCP starts the MCP servers that the task may use, and waits for them.
func (p *Prepared) needMCP(ctx context.Context, task *agent.Task) {
	if !p.s.MCP.TellStartable(p.tell) {
		return
	}
	var tools []string
	if task.Given != nil {
		tools = []string{task.Given.Name}
	} else if offer, err := p.Offer(ctx); err == nil { // an error shows when the run begins
		tools = append(offer.Record.Names(), p.missedMCP(ctx)...)
	}
	for _, n := range p.s.MCP.Need(ctx, tools, p.gate) {
		task.Notices = append(task.Notices, n)
		if task.Given != nil {
			p.tell(n.Message) // of a run of one call nobody sees the events
		}
	}
}

// missedMCP returns the names of the tools that the run would be offered if their servers, which have failed or
// cannot be started, had started.
func (p *Prepared) missedMCP(ctx context.Context) []string {
	tools := p.s.MCP.Missed()
	if len(tools) == 0 {
		return nil
	}
	scope, err := p.s.Policy.Scope(&p.Agent, p.Workspace, p.Approve, p.Tools, p.tell)
	if err != nil {
		return nil
	}
	return p.s.Policy.OfferOf(ctx, p.Who, tools, scope)
}

// Offer is what the gate would offer the next run.
func (p *Prepared) Offer(ctx context.Context) (gate.Offer, error) {
	g, err := p.theGate(nil)
	if err != nil {
		return gate.Offer{}, err
	}
	scope, err := p.s.Policy.Scope(&p.Agent, p.Workspace, p.Approve, p.Tools, p.tell)
	if err != nil {
		return gate.Offer{}, err
	}
	return g.Offer(ctx, p.Who, scope)
}

// subAgent prepares the run of an agent that another run starts in the middle of its work; several may be prepared
// at the same time. The task has the agent as it is configured, its models (m opens them from now on), its skills
// and the principal and workspace that were given; what the run is to do, how deep it is and what its parent leaves
// it is for the caller to add. Nobody is asked anything: a folder of skills that is not trusted is ignored. tell
// hears notices, one at a time and each once in a process. An error is made for a person; one about the name says
// which agents there are.
func (s *Service) subAgent(
	ctx context.Context, m *models.Choice, who toolcrib.Principal, name, workspace string, tell func(string),
) (task agent.Task, err error) {
	if err := context.Cause(ctx); err != nil {
		return task, err
	}
	if name == "" {
		return task, env.BadRequestf("no agent is named; there is %s", strings.Join(s.Env.Config.AgentNames(), ", "))
	}
	told := s.Env.Serial(tell)
	p, err := s.prepared(who, name, policy.Change{}, told)
	if err != nil {
		return task, err
	}
	p.models, p.Workspace = m, workspace
	if err := p.open(told); err != nil {
		return task, err
	}
	if err := p.fill(ctx, &task, told, policy.Paths{}); err != nil {
		return agent.Task{}, err
	}
	once := s.Env.Once(told)
	for _, n := range task.Notices {
		once(n.Message) // whoever watches the run above sees no events of this one
	}
	return task, nil
}

// tellUnknown says once what of the lists of the runs means no tool and is dropped: of their own
// list, of the agent, and of the skills that they were given.
func (p *Prepared) tellUnknown() {
	if p.told {
		return
	}
	p.told = true
	for _, text := range p.s.Policy.UnknownNames(p.gate, &p.Agent, p.Tools) {
		p.tell(text)
	}
}
