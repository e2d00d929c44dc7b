package service

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/media"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/models"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/service/worker"
	"github.com/toolcrib/toolcrib/store"
)

// StartRequest is a request to start a run.
type StartRequest struct {
	Agent string // name of a configured agent; "" means the default one
	Admin bool   // the run acts with the administrator's rights of a local user; see [Service.Prepare]
	policy.Change

	Session   string             // session to join: an ID, a name (a new session if it is new), or last
	Continue  bool               // the run joins the session of the newest run; Session must be ""
	Begins    bool               // the run begins a session without a name; Session must be ""
	From      toolcrib.RunID     // the run begins a session with the transcript of this one
	Workspace string             // root of the file tools; "" means the configured one
	Approve   agent.Approve      // what happens to calls that need an approval; "" parks the run
	Tools     []string           // restricts the agent's tools; nil does not
	Prompt    string             //
	Files     []Attachment       // attached to the prompt
	Given     *toolcrib.ToolCall // makes a run of this call, without a model
	Taint     []string           // sources of untrusted data in Prompt or Files
	Once      string             // from [Once]; "" means that an identical request starts another run
	Asked     string             // see [journal.RunStarted]
	Replaces  toolcrib.RunID     // run whose conversation Messages continue, with its taint and its effects
	Again     bool               // sends the last message of the session again ([Prepared.Again]); without Prompt
	Compact   bool               // only condenses the session; without Prompt

	// Messages is a transcript before Prompt. Without a Prompt it ends with a message of the user, or with the results of
	// all calls of the model.
	Messages []toolcrib.Message
	// MessageFiles are attached to Messages, by their index.
	MessageFiles map[int][]Attachment
	// ClientTools are executed by the client that starts the run ([Service.GiveResults]). The gate judges their calls like
	// any others.
	ClientTools []toolcrib.Spec

	Team *TeamRequest // asks several agents; the fields for a single agent do not apply
	// Subscription follows the run, for [Pool.Start]. It may be nil.
	Subscription *worker.Subscription

	Notice func(text string) // receives messages for a person; if nil, the Notice of the options does
}

// notice returns the function that receives messages for a person.
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

// task returns the task of the request, with the parts that its client brings.
func (r *StartRequest) task(s *Service) agent.Task {
	t := agent.Task{
		Prompt: r.Prompt, Files: r.Files, History: slices.Clip(r.Messages),
		ClientTools: s.clientTools(r.ClientTools), Taint: slices.Clone(r.Taint),
		Hosted: agent.Hosted{
			Given: r.Given, FromClient: len(r.Messages) > 0, HistoryFiles: r.MessageFiles, Once: r.Once, Asked: r.Asked,
			Compact: r.Compact,
		},
	}
	if n := len(t.History); n > 0 && t.Prompt == "" && len(t.Files) == 0 && t.History[n-1].Role == toolcrib.RoleUser {
		t.Prompt, t.History = t.History[n-1].Text(), t.History[:n-1:n-1]
	}
	return t
}

// Attachment is a file that is attached to a prompt.
type Attachment = toolcrib.OutputFile

// MaxAttachments bounds the files of a prompt.
const MaxAttachments = 16

// Attachments returns the files of a request by a program.
func Attachments(list []api.File) (files []Attachment, err error) {
	if len(list) > MaxAttachments {
		return nil, env.BadRequestf("files: at most %d go with a prompt", MaxAttachments)
	}
	for _, f := range list {
		kind := media.Type(f.Data)
		if kind == "" || len(f.Data) > toolcrib.MaxFileBytes {
			return nil, env.BadRequestf("files: %q must be an image (PNG, JPEG, GIF, WebP), a PDF document or a text of at most %d bytes",
				f.Name, toolcrib.MaxFileBytes)
		}
		files = append(files, Attachment{MediaType: kind, Name: f.Name, Data: f.Data})
	}
	return files, nil
}

// Prepared is a configured agent that is ready for runs. Each belongs to one goroutine.
type Prepared struct {
	Who       toolcrib.Principal // for whom its runs act
	Agent     toolcrib.Agent     // as configured, with the change
	Workspace string             // absolute
	Approve   agent.Approve
	Tools     []string // nil does not restrict them
	Session   *Session // may be nil

	reasoning string       // replaces that of the models; "" does not
	tell      func(string) // receives messages for a person
	reported  bool         // names in its lists that match no tool were reported

	s      *Service
	models *models.Choice // never nil; may have those of several agents
	infos  []journal.ModelInfo
	gate   *gate.Gate // made at the first use; it reads the current policy at each offer and call
}

// Prepare prepares an agent for a request. It starts nothing. A local user is an administrator of the data folder, but
// the model that works for them is not, unless the request says so. Other users keep their rights.
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
	s.reportFourEyes(who, who.User, p.Approve, tell)
	return p, p.enter(ctx, who, &r)
}

// enter finds the session of a request.
func (p *Prepared) enter(ctx context.Context, who toolcrib.Principal, r *StartRequest) (err error) {
	s := p.s
	if r.Session != "" || r.Continue || r.From != "" {
		if err := s.Env.OpenFor(ctx, who); err != nil {
			return err
		}
	}
	switch {
	case len(r.Messages) > 0 && (r.Continue || r.Session != ""):
		return env.BadRequestf("messages: a session has messages of its own; give one of the two")
	case r.Continue && r.Session != "":
		return env.BadRequestf("continue: name no session beside it")
	case r.Continue:
		if p.Session, err = s.LastConversation(ctx, who); err == nil && p.Session.Info.Busy() {
			err = s.sessionBusy(ctx, &p.Session.Info)
		}
	case r.Session != "" && r.Given != nil: // a call does not continue the conversation, so it may run while that waits
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
	return err
}

// prepared prepares a configured agent. If the name is unknown, the error lists the agents.
func (s *Service) prepared(
	who toolcrib.Principal, name string, ch policy.Change, tell func(string),
) (*Prepared, error) {
	def, err := s.Policy.Agent(name, ch)
	if err != nil {
		return nil, err
	}
	return &Prepared{s: s, Who: who, Agent: def, models: &models.Choice{}, reasoning: ch.Reasoning, tell: tell}, nil
}

// openModels resolves and opens the models of the agent. An agent without a model gets the first one that is found;
// Options.Confirm may be asked about it.
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

// fill adds to a task its agent with models, the notes of the project, and the skills as they are now. The caller has
// filled in the rest. A run of one given call has no model. If the user may not use the agent, the run will be refused,
// and its task has nothing of the agent that the user could read.
func (p *Prepared) fill(ctx context.Context, task *agent.Task, tell func(string), seen policy.Paths) error {
	task.Agent, task.Models, task.Principal = p.Agent, p.infos, p.Who
	if task.Given != nil {
		task.Agent.Model, task.Agent.Fallback, task.Models = "", nil, nil
	}
	task.Workspace, task.Driver, task.Approve, task.RunTools = p.Workspace, p.s.Env.Driver, p.Approve,
		withClientTools(p.Tools, task.ClientTools)
	site, err := p.s.Env.Site()
	if err != nil {
		return err
	}
	task.Site = site
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

// theGate returns the gate of the runs.
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
	if err := p.needBus(ctx, task); err != nil {
		task.Notices = append(task.Notices, busNotice(err))
	}
	if !p.s.MCP.TellStartable(p.tell) {
		return
	}
	var tools []string
	if task.Given != nil {
		tools = []string{task.Given.Name}
	} else if offer, err := p.Offer(ctx); err == nil { // an error is reported when the run begins
		tools = append(offer.Record.Names(), p.wouldOffer(ctx, p.s.MCP.Missed())...)
	}
	for _, n := range p.s.MCP.Need(ctx, tools, p.gate) {
		task.Notices = append(task.Notices, n)
		if task.Given != nil {
			p.tell(n.Message) // a run of one call has no reader of its events
		}
	}
}

// needBus connects to the bus if the task may use tools of other nodes.
func (p *Prepared) needBus(ctx context.Context, task *agent.Task) error {
	tools := p.s.Bus.Missed()
	if g := task.Given; g != nil {
		if !slices.ContainsFunc(tools, func(t toolcrib.Tool) bool { return t.Spec().Name == g.Name }) {
			return nil
		}
		return p.s.Bus.Need(ctx, g.Name)
	}
	if len(p.wouldOffer(ctx, tools)) == 0 {
		return nil
	}
	return p.s.Bus.Need(ctx)
}

// noticeNoBus is the code of the notice that the tools of other nodes are missing.
const noticeNoBus = "bus_unreachable"

func busNotice(err error) toolcrib.Notice {
	return toolcrib.Notice{Code: noticeNoBus, Message: "the bus cannot be reached: " + err.Error()}
}

// wouldOffer returns the names of those tools, which are missing, that the run would be offered if they were there.
func (p *Prepared) wouldOffer(ctx context.Context, tools []toolcrib.Tool) []string {
	if len(tools) == 0 {
		return nil
	}
	scope, err := p.s.Policy.Scope(&p.Agent, p.Workspace, p.Approve, p.Tools, p.tell)
	if err != nil {
		return nil
	}
	return p.s.Policy.OfferOf(ctx, p.Who, tools, scope)
}

// Offer returns the tools that the next run would be offered.
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

// subAgent prepares the run of an agent that another run starts. It may be called concurrently. The task has the agent
// as it is configured, its models (m opens them from now on), its skills, and the given principal and workspace; the
// caller adds the rest. No person is asked: skills in a folder that is not trusted are ignored. tell receives notices,
// one at a time and each once per process. An error is for a person; one about the name lists the agents.
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
		once(n.Message) // readers of the run above do not see the events of this one
	}
	return task, nil
}

// reportUnknown reports once the names that match no tool, in the lists of the runs, of the agent, and of the skills
// that they were given.
func (p *Prepared) reportUnknown() {
	if p.reported {
		return
	}
	p.reported = true
	for _, text := range p.s.Policy.UnknownNames(p.gate, &p.Agent, p.Tools) {
		p.tell(text)
	}
}
