package remote

import (
	"cmp"
	"context"
	"crypto/rand"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/client"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

// What a conversation needs. Its [service.Prepared] only says what the runs are to be: the server
// makes them ready.

// agentOf is an agent as far as a conversation shows it.
type agentOf struct {
	Name     string   `json:"name"`
	Model    string   `json:"model"`
	Fallback []string `json:"fallback"`
	ReadOnly bool     `json:"read_only"`
}

func (r *Service) agents(ctx context.Context) ([]agentOf, error) {
	var list struct {
		Agents []agentOf `json:"agents"`
	}
	err := r.Get(ctx, client.Path("agents"), nil, &list)
	return list.Agents, err
}

// AgentNames are the names of the agents; nil if they cannot be asked for.
func (r *Service) AgentNames(ctx context.Context) (names []string) {
	list, _ := r.agents(ctx) // without them the list is empty
	for _, a := range list {
		names = append(names, a.Name)
	}
	return names
}

// Agent is the agent of a name.
func (r *Service) Agent(ctx context.Context, name string) (toolcrib.Agent, error) {
	list, err := r.agents(ctx)
	var names []string
	for _, a := range list {
		if a.Name == name {
			r.own[name] = a.Model
			return toolcrib.Agent{Name: a.Name, Model: a.Model, Fallback: a.Fallback, ReadOnly: a.ReadOnly}, nil
		}
		names = append(names, a.Name)
	}
	if err == nil {
		text := "there is " + strings.Join(names, ", ")
		if near := guard.Nearest(name, names); near != "" {
			text = "did you mean " + near + "?"
		}
		err = toolcrib.Errorf(toolcrib.CodeBadRequest, "there is no agent %q; %s", name, text)
	}
	return toolcrib.Agent{}, err
}

// Again is the task that sends the last message of the session once more: the server has it whole.
func (r *Service) Again(ctx context.Context, p *service.Prepared) (task agent.Task, err error) {
	q := service.RunsQuery{Filter: store.Filter{Session: p.Session.Info.ID, TopLevel: true, Limit: 1}, Prompts: true}
	if q.Session == "" {
		return task, toolcrib.Errorf(toolcrib.CodeConflict, "there is no message to send once more")
	}
	runs, _, err := r.Runs(ctx, p.Who, q)
	if len(runs) > 0 {
		task.Session, task.Prompt = q.Session, runs[0].Prompt
	}
	return task, err
}

// RunOf starts a run of a conversation, in its session; a new one without a name gets one.
func (r *Service) RunOf(
	ctx context.Context, p *service.Prepared, task agent.Task, f service.Front,
) (service.Run, error) {
	q := service.StartRequest{
		Agent: p.Agent.Name, Approve: p.Approve, Tools: p.Tools, Prompt: task.Prompt, Files: task.Files, Given: task.Given,
		Compact: task.Compact, Again: task.Session != "",
		Change: service.Change{
			ReadOnly: p.Agent.ReadOnly, Skills: p.Agent.ToldSkills, MaxIterations: p.Agent.Limits.MaxIterations,
		},
	}
	if p.Agent.Model != r.own[p.Agent.Name] {
		q.Model = p.Agent.Model
	}
	if p.Agent.ToolChoice.Mode != "" {
		q.ToolChoice = &p.Agent.ToolChoice
	}
	s := p.Session
	switch q.Session = cmp.Or(string(s.Info.ID), s.Name); {
	case q.Session != "":
	case s.From != "" && q.Given == nil:
		q.Continue = true
	default:
		s.Name = "chat-" + strings.ToLower(rand.Text()[:8])
		q.Session = s.Name
	}
	run, err := r.Start(ctx, p.Who, q, f)
	if name := cmp.Or(string(run.SessionID), q.Session); run.ID != "" && s.Info.ID == "" && name != "" {
		if info, err := r.Session(ctx, p.Who, name); err == nil {
			s.Info = info
		}
	}
	return run, err
}

// Offer is what the server would offer the next run.
func (r *Service) Offer(ctx context.Context, p *service.Prepared) (specs []toolcrib.Spec, err error) {
	x, err := r.Explain(ctx, p.Who, service.ExplainRequest{StartRequest: service.StartRequest{
		Agent: p.Agent.Name, Tools: p.Tools, Change: service.Change{ReadOnly: p.Agent.ReadOnly, Skills: p.Agent.ToldSkills},
	}})
	if err != nil {
		return nil, err
	}
	tools, err := r.Tools(ctx, p.Who)
	for _, one := range x.Tools {
		for _, t := range tools {
			if t.Name == one.Tool && one.Offered {
				specs = append(specs, toolcrib.Spec{Name: t.Name, Description: t.Description, Effect: t.Effect})
			}
		}
	}
	return specs, err
}

// EnterSession finds a session to talk in; one that nobody has is made with its first run.
func (r *Service) EnterSession(ctx context.Context, who toolcrib.Principal, name string) (*service.Session, error) {
	info, err := r.Session(ctx, who, name)
	if toolcrib.CodeOf(err) == toolcrib.CodeNotFound && name != "last" {
		if strings.HasPrefix(name, store.SessionPrefix) {
			return nil, err
		}
		if err := store.CheckSessionName(name); err != nil {
			return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "session: %v", err)
		}
		return &service.Session{Name: name}, nil
	}
	return &service.Session{Name: name, Info: info}, err
}

// LastConversation is that of the newest run.
func (r *Service) LastConversation(ctx context.Context, who toolcrib.Principal) (*service.Session, error) {
	return service.LastConversation(ctx, who, r, "toolcrib")
}
