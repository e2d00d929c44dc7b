package service

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/models"
	"github.com/toolcrib/toolcrib/store"
)

// Change is what someone asks of a configured agent for the runs at hand. Fields that are zero say nothing.
type Change struct {
	Model         string // takes the place of the agent's own and of its fallbacks
	ToolChoice    *toolcrib.ToolChoice
	MaxIterations int
	Limits        toolcrib.Limits // of each and the agent's the smaller counts; OnLimit replaces the agent's
	ReadOnly      bool
	Skills        []string // beside the agent's own
	Answering
}

// StartRequest asks for a run.
type StartRequest struct {
	Agent string // of the configuration; "" = default
	Admin bool   // the run acts with the administrator's rights of a local user; see [Service.Prepare]
	Change

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
	return s.prepareSeeing(ctx, who, r, links{})
}

func (s *Service) prepareSeeing(
	ctx context.Context, who toolcrib.Principal, r StartRequest, looked links,
) (*Prepared, error) {
	s.Env.LearnSecrets()
	tell := r.notice(s)
	p, err := s.prepared(forRuns(who, r.Admin), r.Agent, r.Change, tell)
	if err != nil {
		return nil, err
	}
	if p.Workspace, err = s.workspace(r.Workspace, looked); err != nil {
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
		p.Session, err = s.JoinSession(ctx, who, r.Session)
	case r.From != "":
		var rec store.RunRecord
		rec, err = s.Env.Find(ctx, who, string(r.From))
		p.Session = &Session{From: rec.ID}
	case r.Begins:
		p.Session = &Session{}
	}
	return p, err
}

// forRuns is whom the runs of who act for.
func forRuns(who toolcrib.Principal, admin bool) toolcrib.Principal {
	who.Admin = who.Admin && (admin || !standing.Local(who.User))
	return who
}

// prepared finds an agent of the configuration by its name. A name that no agent has is an
// error that says which there are.
func (s *Service) prepared(who toolcrib.Principal, name string, ch Change, tell func(string)) (*Prepared, error) {
	def, err := s.Agent(name, ch)
	if err != nil {
		return nil, err
	}
	if err := s.Env.Supported(); err != nil {
		return nil, err
	}
	s.Env.TellIgnored(s.Env.Once(tell))
	return &Prepared{s: s, Who: who, Agent: def, models: &models.Choice{}, reasoning: ch.Reasoning, tell: tell}, nil
}

// Agent is an agent as the configuration has it, with a change.
func (s *Service) Agent(name string, ch Change) (toolcrib.Agent, error) {
	def, err := s.Env.Config.Agent(name, s.Env.Resolver())
	switch {
	case err == nil:
		err = ch.apply(&def)
	case !models.OfConfig(err) && s.Env.Driver == env.DriverServer: // the error lists agents that others may not know
		err = env.BadRequestf("there is no agent %q that you may use", guard.Cut(name, maxAgentName))
	case !models.OfConfig(err):
		err = env.BadRequestf("%v", err)
	}
	return def, err
}

// maxAgentName bounds how much of an unknown name is repeated.
const maxAgentName = 100

// apply changes an agent.
func (ch *Change) apply(def *toolcrib.Agent) (err error) {
	if ch.Model != "" {
		def.Model, def.Fallback = ch.Model, nil
	}
	for _, n := range []int{ch.MaxIterations, ch.Limits.MaxIterations} {
		if n < 0 || n > toolcrib.MaxIterationsCeiling {
			return env.BadRequestf("max_iterations: must be 1 to %d, not %d", toolcrib.MaxIterationsCeiling, n)
		}
	}
	def.Limits.MaxIterations = cmp.Or(ch.MaxIterations, def.Limits.MaxIterations)
	ch.lower(&def.Limits)
	if ch.ToolChoice != nil {
		def.ToolChoice = *ch.ToolChoice
	}
	def.ReadOnly, def.RunReadOnly = def.ReadOnly || ch.ReadOnly, ch.ReadOnly
	def.RunSkills = ch.Skills
	if def.Skills, err = WithSkills(def.Skills, ch.Skills); err != nil {
		return err
	}
	return ch.Answering.apply(def)
}

// lower lowers limits.
func (ch *Change) lower(to *toolcrib.Limits) {
	asked := &ch.Limits
	if *asked == (toolcrib.Limits{}) {
		return
	}
	*to = to.WithDefaults()
	to.MaxIterations = smaller(to.MaxIterations, asked.MaxIterations)
	to.MaxParallel = smaller(to.MaxParallel, asked.MaxParallel)
	to.MaxCallsPerTurn = smaller(to.MaxCallsPerTurn, asked.MaxCallsPerTurn)
	if to.MaxIdenticalCalls = smaller(to.MaxIdenticalCalls, asked.MaxIdenticalCalls); to.MaxIdenticalCalls == 0 {
		to.MaxIdenticalCalls = asked.MaxIdenticalCalls // the agent has no bound
	}
	if asked.ToolTimeout > 0 {
		to.ToolTimeout, to.ToolTimeoutSet = smaller(to.ToolTimeout, asked.ToolTimeout), true
	}
	to.MaxResultBytes = smaller(to.MaxResultBytes, asked.MaxResultBytes)
	to.MaxDepth = smaller(to.MaxDepth, asked.MaxDepth)
	to.WallTime = smaller(to.WallTime, asked.WallTime)
	if asked.OnLimit != "" {
		to.OnLimit = asked.OnLimit
	}
}

// smaller returns the smaller of a limit and what is asked; 0 asks for nothing.
func smaller[T int | time.Duration](limit, asked T) T {
	if asked > 0 && asked < limit {
		return asked
	}
	return limit
}

// OpenModels resolves and opens the models of the agent. One without a model gets the
// first that is found; Options.Confirm may be asked about it.
func (p *Prepared) OpenModels() error {
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
func (p *Prepared) fill(ctx context.Context, task *agent.Task, tell func(string), looked links) error {
	task.Agent, task.Models, task.Principal = p.Agent, p.infos, p.Who
	if task.Given != nil {
		task.Agent.Model, task.Agent.Fallback, task.Models = "", nil, nil
	}
	task.Workspace, task.Driver, task.Approve, task.RunTools = p.Workspace, p.s.Env.Driver, p.Approve,
		withClientTools(p.Tools, task.ClientTools)
	if refused, err := p.s.mayRun(ctx, p.Who, p.Agent.Name); err != nil {
		return err
	} else if refused != "" {
		d := &task.Agent
		*d = toolcrib.Agent{Name: d.Name, Model: d.Model, Fallback: d.Fallback, Limits: d.Limits}
		return nil
	}
	p.s.giveProject(task, tell, looked)
	return p.s.giveSkills(task, tell, looked)
}

// theGate is the gate of the runs.
func (p *Prepared) theGate(looked links) (*gate.Gate, error) {
	if p.gate != nil {
		return p.gate, nil
	}
	g, err := p.s.gate(p.Workspace, looked)
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

// missedMCP are the tools that the run would be offered if their servers, which have failed or cannot be started, had
// started.
func (p *Prepared) missedMCP(ctx context.Context) []string {
	tools := p.s.MCP.Missed()
	if len(tools) == 0 {
		return nil
	}
	switches := &availability{store: p.s.Env.Store}
	g, err := gate.New(gate.Options{Tools: tools, Availability: switches, People: p.s.People.Standing()})
	if err != nil {
		return nil
	}
	scope, err := p.s.scope(&p.Agent, p.Workspace, p.Approve, p.Tools, p.tell)
	if err != nil {
		return nil
	}
	offer, err := g.Offer(ctx, p.Who, scope)
	if err != nil {
		return nil
	}
	return offer.Record.Names()
}

// Offer is what the gate would offer the next run.
func (p *Prepared) Offer(ctx context.Context) (gate.Offer, error) {
	g, err := p.theGate(links{})
	if err != nil {
		return gate.Offer{}, err
	}
	scope, err := p.s.scope(&p.Agent, p.Workspace, p.Approve, p.Tools, p.tell)
	if err != nil {
		return gate.Offer{}, err
	}
	return g.Offer(ctx, p.Who, scope)
}

// scope is what a run of an agent would be judged under.
func (s *Service) scope(
	def *toolcrib.Agent, workspace string, approve agent.Approve, tools []string, tell func(string),
) (gate.Scope, error) {
	limits := def.Limits.WithDefaults()
	k, err := s.ChooseSkills(def.Skills)
	if err != nil {
		return gate.Scope{}, err
	}
	k.Tell(s.Env.Once(tell))
	return gate.Scope{
		Agent: def.Name, AgentTools: def.Tools, RunTools: tools, SkillTools: k.Tools, HasSkills: k.Any(),
		ReadOnly: def.ReadOnly, TaintWrites: def.TaintWrites, Workspace: workspace, MaxDepth: limits.MaxDepth,
		Unattended:  approve == agent.ApproveDeny,
		AllApproved: approve == agent.ApproveAll && !s.Env.Config.Approvals.FourEyes,
		MaxCalls:    limits.MaxCallsPerTurn, MaxRepeats: limits.MaxIdenticalCalls, Timeout: limits.ToolTimeout,
		TimeoutSet: limits.ToolTimeoutSet, MaxBytes: limits.MaxResultBytes, FindAbove: def.FindAbove,
	}, nil
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
	p, err := s.prepared(who, name, Change{}, told)
	if err != nil {
		return task, err
	}
	p.models, p.Workspace = m, workspace
	if err := p.open(told); err != nil {
		return task, err
	}
	if err := p.fill(ctx, &task, told, links{}); err != nil {
		return agent.Task{}, err
	}
	once := s.Env.Once(told)
	for _, n := range task.Notices {
		once(n.Message) // whoever watches the run above sees no events of this one
	}
	return task, nil
}

// Agent is an agent in the words of the configuration, with defaults filled in and secrets
// masked. Who is not to read the configuration has no position and of the keys only some.
type Agent struct {
	Name     string
	Position string // where it is configured; default = nowhere
	config.Agent
}

// MarshalJSON writes the name and the position before the keys of the configuration.
func (a Agent) MarshalJSON() ([]byte, error) {
	if a.Position == "" {
		return json.Marshal(struct {
			Name        string   `json:"name"`
			Description string   `json:"description"`
			Model       string   `json:"model"`
			Tools       []string `json:"tools"`
		}{a.Name, a.Description, a.Model, a.Tools})
	}
	head, err := json.Marshal(map[string]string{"name": a.Name, "position": a.Position})
	if err != nil {
		return nil, err
	}
	return slices.Concat(head[:len(head)-1], []byte{','}, config.ShowJSON(a.Agent)[1:]), nil
}

// Agents returns the agents of the configuration, by their names, to administrators as they are
// configured. Others see of those that they may use what they are for, the model and the tools.
func (s *Service) Agents(ctx context.Context, who toolcrib.Principal) (list []Agent, err error) {
	if err := env.RequireUser(who); err != nil {
		return nil, err
	}
	names := s.Env.Config.AgentNames()
	if !env.ReadsConfig(who) {
		if names, err = s.RunnableAgents(ctx, who); err != nil {
			return nil, err
		}
	}
	list = make([]Agent, len(names))
	for i, name := range names {
		list[i] = Agent{Name: name, Agent: s.Env.Config.Agents[name]}
		if env.ReadsConfig(who) {
			list[i].Position = s.Env.Config.Position(config.JoinKey("agents", name))
		}
		if list[i].Model == "" {
			list[i].Model = s.Env.Config.Agents[config.DefaultAgent].Model
		}
	}
	return list, nil
}

// Answering is how a run is to answer, as far as that differs from its agent.
type Answering struct {
	System          string   // is added to the agent's own
	Temperature     *float64 // nil = the agent's
	MaxOutputTokens int      // of the agent's and this the smaller counts; 0 = the agent's
	Reasoning       string   // low | medium | high | off; "" = as the model is configured
	// Schema of the answer, for an agent that has none; nil = any text.
	Schema json.RawMessage
}

func (a *Answering) apply(def *toolcrib.Agent) error {
	if def.System != "" && a.System != "" {
		def.System += "\n\n"
	}
	def.System += a.System
	if a.Temperature != nil {
		def.Temperature = a.Temperature
	}
	if n := a.MaxOutputTokens; n > 0 {
		def.MaxOutputTokens = min(cmp.Or(def.MaxOutputTokens, math.MaxInt), n)
	}
	if len(a.Schema) > 0 && len(def.OutputSchema) > 0 {
		return env.BadRequestf("the agent %s has a schema for its answers, and takes no other", def.Name)
	}
	if len(a.Schema) > 0 {
		def.OutputSchema = a.Schema
	}
	return nil
}

// mayRun reports whether who may have a run of an agent today, as [gate.Gate.MayRun].
func (s *Service) mayRun(ctx context.Context, who toolcrib.Principal, agent string) (refused string, err error) {
	g, err := gate.New(gate.Options{People: s.People.Standing(), Availability: gate.Overrides{Off: true}})
	if err != nil {
		return "", err
	}
	return g.MayRun(ctx, who, agent)
}

// RunnableAgents returns the names of the agents of which who may have a run today.
func (s *Service) RunnableAgents(ctx context.Context, who toolcrib.Principal) ([]string, error) {
	names := []string{}
	for _, name := range s.Env.Config.AgentNames() {
		refused, err := s.mayRun(ctx, who, name)
		if err != nil {
			return nil, err
		}
		if refused == "" {
			names = append(names, name)
		}
	}
	return names, nil
}
