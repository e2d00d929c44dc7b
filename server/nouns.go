package server

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/store"
)

// nouns returns the routes of everything but runs.
func nouns() []route {
	group := param{"group", kindText, "only tools of this group"}
	called := send(http.MethodPost, "/api/tools/call", "One call of a tool, without a model (llm.tools.call@1.0)",
		(*call).callTool, onceParam)
	called.also, called.answer = http.StatusAccepted, reflect.TypeFor[api.ToolCalled]()
	return []route{
		get("/api/approvals", "Pending approvals", (*call).listApprovals, idParam, limitParam, cursorParam),
		get("/api/approvals/{id}", "An approval, pending or decided", (*call).approval),
		send(http.MethodPost, "/api/approvals/{id}", "Decide an approval; the run then continues", (*call).decide),
		get("/api/remembered", "Approvals that later calls pass by", func(c *call) (RememberedList, error) {
			list, err := c.Service.Policy.Remembered(c, c.who, c.yes("all"), cmp.Or(c.number("limit"), store.DefaultLimit))
			return RememberedList{list}, err
		}, param{"all", kindSwitch, "also those that were revoked"}, limitParam),
		send(http.MethodDelete, "/api/remembered/{id}", "Revoke a remembered approval",
			func(c *call, _ nothing) (out Revoked, err error) {
				out.Remembered, out.Changed, err = c.Service.Policy.Forget(c, c.who, c.r.PathValue("id"))
				return out, err
			}),
		get("/api/tools", "Tools, and whether they are enabled", (*call).listTools, group),
		get("/api/tools/{name}", "A tool", func(c *call) (policy.Tool, error) {
			return c.Service.Policy.Tool(c, c.who, c.r.PathValue("name"))
		}),
		forAdministrators(send(http.MethodPut, "/api/tools/{name}", "Switch a tool on or off", (*call).switchTool)),
		forAdministrators(send(http.MethodDelete, "/api/tools/{name}/override", "Reset a tool", (*call).resetTool)),
		forAdministrators(send(http.MethodPut, "/api/tool-groups/{name}", "Switch all tools of a group", (*call).switchTool)),
		forAdministrators(send(http.MethodDelete, "/api/tool-groups/{name}/override", "Reset a group", (*call).resetTool)),
		send(http.MethodPost, "/api/tools/explain", "What each layer of the gate answers for each tool", (*call).explain),
		called,
		send(http.MethodPost, "/api/gate/decide", "Decide about a call of another agent", (*call).decideOther),
		get("/api/agents", "The agents of the configuration", func(c *call) (AgentList, error) {
			agents, err := c.Service.Policy.Agents(c, c.who)
			return AgentList{agents}, err
		}),
		get("/api/models", "The models that a run may name", func(c *call) (api.ModelList, error) {
			models, err := c.Service.Models.List(c.who, c.text("provider"), !c.yes("known"))
			return api.ModelList{Models: models}, err
		}, param{"provider", kindText, "only of this provider"},
			param{"known", kindSwitch, "also those that are known of these providers"}),
		get("/api/skills", "Skills, and whether they can be used", (*call).listSkills),
		get("/api/skills/{name}", "A skill with its text", (*call).showSkill),
		get("/api/sessions", "Sessions, those with the newest runs first", (*call).listSessions,
			param{"user", kindText, "only of this user"}, idParam, limitParam, cursorParam),
		forAdministrators(send(http.MethodDelete, "/api/sessions/{id}", "Remove a session with its runs for good",
			(*call).removeSession)),
		get("/api/usage", "Tokens, cost and tool calls", (*call).usage,
			param{"by", kindText, "day, user, agent, model, provider, tool, session or run"},
			param{"user", kindText, "only of this user"}, sinceParam, untilParam, limitParam),
		forAdministrators(get("/api/audit", "The audit log", (*call).audit,
			param{"kind", kindText, "kinds of entries, separated by commas"}, param{"user", kindText, "only about this user"},
			param{"run", kindText, "only about this run"}, sinceParam, untilParam, limitParam, cursorParam)),
		get("/api/me", "The authenticated user and their grants", (*call).me),
	}
}

// Lists are JSON objects, so that fields can be added.
type (
	RememberedList struct {
		Remembered []store.Remembered `json:"remembered"`
	}
	ToolList struct {
		Tools []policy.Tool `json:"tools"`
	}
	AgentList struct {
		Agents []policy.Agent `json:"agents"`
	}
)

func skillOf(k *policy.Skill) api.Skill {
	return api.Skill{
		Name: k.Name, Description: k.Description, AllowedTools: k.AllowedTools, State: k.State, Reason: k.Reason,
		Hash: k.Hash,
	}
}

func (c *call) showSkill() (out api.ShownSkill, err error) {
	all, err := c.Service.Policy.Skills(nil)
	if err != nil {
		return out, err
	}
	k, err := all.Find(c.r.PathValue("name"))
	if err != nil {
		return out, err
	}
	out.Skill = skillOf(k)
	if _, none := env.Administrator(c.who); c.who.Token == "" && k.Reason == "" || none == nil {
		out.Text = k.Body
	}
	return out, nil
}

func (c *call) listApprovals() (out api.ApprovalList, err error) {
	var all []*service.Approval
	if name := c.text("id"); name != "" {
		all = make([]*service.Approval, 1)
		all[0], err = c.Service.Approval(c, c.who, name)
	} else if c.query.Has("limit") || c.query.Has("cursor") {
		all, out.Next, err = c.Service.ApprovalPage(c, c.who, c.number("limit"), c.text("cursor"))
	} else {
		all, err = c.Service.Approvals(c, c.who)
	}
	if err != nil {
		return out, err
	}
	out.Approvals = make([]*api.Approval, len(all))
	for i, v := range all {
		out.Approvals[i] = &v.Approval
	}
	return out, nil
}

func (c *call) approval() (*api.Approval, error) {
	v, err := c.approvalOf(c.r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return &v.Approval, nil
}

func (c *call) approvalOf(id string) (*service.Approval, error) {
	id, err := whole("apr_", id)
	if err != nil {
		return nil, err
	}
	return c.Service.Approval(c, c.who, id)
}

// Revoked is the result of revoking a remembered approval.
type Revoked struct {
	store.Remembered
	Changed bool `json:"changed" jsonschema:"false if it was revoked already"`
}

// decide records a decision. Its run continues if nothing else is open.
func (c *call) decide(b api.DecisionRequest) (api.Decided, error) {
	return c.decideOn(c.r.PathValue("id"), b)
}

func (c *call) decideOn(id string, b api.DecisionRequest) (out api.Decided, err error) {
	v, err := c.approvalOf(id)
	if err != nil {
		return out, err
	}
	d := service.Decision{
		CallDecision: journal.CallDecision{Decision: b.Decision}, Digest: b.Digest, Reason: b.Reason,
	}
	if b.Remember != "" || b.RememberCalls != "" {
		d.Remember = &journal.Remember{Scope: b.Remember, Calls: b.RememberCalls}
	}
	if b.Answer != nil && (b.Decision == "" || string(b.Answer) != "null") {
		if d.Decision = cmp.Or(b.Decision, journal.DecisionAnswer); d.Decision != journal.DecisionAnswer {
			return out, bad("answer goes without a decision")
		}
	}
	if d.Decision == journal.DecisionAnswer {
		if len(b.Answer) == 0 || string(b.Answer) == "null" {
			return out, bad("answer is missing; give the answer to the question as a text or another JSON value")
		}
		var text string
		if json.Unmarshal(b.Answer, &text) != nil {
			text = string(b.Answer)
		}
		if d.Result, err = service.AnswerJSON(v.Schema, text); err != nil {
			return out, err
		}
	}
	if len(b.Calls) == 0 && d.Decision == "" {
		return out, bad("give decision, or calls with a decision each")
	}
	if len(b.Calls) > 0 {
		d.Each = map[string]journal.CallDecision{}
		for _, id := range v.Open() {
			if d.Decision != "" {
				d.Each[id] = d.CallDecision
			}
		}
		for id, one := range b.Calls {
			d.Each[id] = journal.CallDecision{
				Decision: cmp.Or(one.Decision, d.Decision), Arguments: one.Arguments, Result: one.Result,
			}
		}
		d.CallDecision = journal.CallDecision{}
	}
	if b.Check {
		return api.Decided{
			ID: v.ID, Run: v.Run, Decision: d.Decision, Calls: []string{}, Open: v.Open(), Status: v.RunStatus(),
		}, c.Service.Check(c, c.who, v, d)
	}
	if out, err = c.Service.Decide(c, c.who, v, d); err != nil || len(out.Open) > 0 {
		return out, err
	}
	_, err = c.pool.Resume(c.staying(), c.who, service.ResumeRequest{Run: string(out.Run), Decided: true})
	if err != nil { // the pool finds it again; a run of a command line continues there
		c.Log.Info("a run was decided on and does not continue yet", "run", out.Run, "error", err)
	}
	return out, nil
}

func (c *call) listTools() (ToolList, error) {
	all, err := c.Service.Policy.Tools(c, c.who)
	list := ToolList{Tools: []policy.Tool{}}
	for _, t := range all {
		if group := c.text("group"); group == "" || t.Group == group {
			list.Tools = append(list.Tools, t)
		}
	}
	return list, err
}

// switchTool switches a tool or group on or off, or resets it.
func (c *call) switchTool(b api.Switch) (policy.Switched, error) {
	q := policy.SwitchRequest{Enabled: b.Enabled, Reset: c.r.Method == http.MethodDelete, Tool: c.r.PathValue("name")}
	if strings.HasPrefix(c.r.URL.Path, "/api/tool-groups/") {
		q.Tool, q.Group = "", q.Tool
	}
	return c.Service.Policy.SwitchTool(c, c.who, q)
}

func (c *call) resetTool(nothing) (policy.Switched, error) { return c.switchTool(api.Switch{}) }

func (c *call) explain(b api.ExplainRequest) (out policy.Explained, err error) {
	who := c.who
	if b.User != "" && b.User != who.User {
		by, err := env.Administrator(who)
		if err == nil {
			who, err = c.Service.People.ActFor(c, by, b.User)
		}
		if err != nil {
			return out, err
		}
	}
	q := policy.ExplainRequest{Tool: b.Tool, Run: b.Run, Tainted: b.Tainted, Agent: b.Agent, Tools: b.Tools}
	q.Change = policy.Change{Skills: b.Skills, ReadOnly: b.ReadOnly}
	if q.Approve, err = approveOf(b.Approve); err != nil {
		return out, err
	}
	if b.Arguments != nil {
		if b.Tool == "" {
			return out, bad("arguments: are of a call of one tool; name it")
		}
		q.Given = c.Service.Policy.GivenCall(b.Tool, b.Arguments)
	}
	if q.Workspace, err = c.Service.Policy.OwnWorkspace(who); err != nil {
		return out, err
	}
	said := notices{call: c}
	q.Notice = said.add
	defer said.log()
	return c.Service.Policy.Explain(c, who, q)
}

// callTool makes a call. Invalid arguments are an error of the request: the tool was not called.
func (c *call) callTool(b api.ToolCallRequest) (any, error) {
	if b.Input != nil { // in the envelope of the capability
		b.CallID, b.Target, b.Body = b.Input.CallID, b.Input.Target, b.Input.Body
	}
	if b.Body == nil {
		b.Body = json.RawMessage("{}")
	}
	if strings.Contains(b.Target, "@") {
		name, err := bus.ParseName(b.Target)
		if err != nil {
			return nil, err
		}
		var body struct{ Params, Input map[string]json.RawMessage }
		d := json.NewDecoder(bytes.NewReader(b.Body))
		d.DisallowUnknownFields()
		if err := d.Decode(&body); err != nil {
			return nil, bad("target_body: must be {params, input}, two objects")
		}
		if b.Target, b.Body, err = c.Service.Bus.ToolOf(name, body.Params, body.Input); err != nil {
			return nil, err
		}
	}
	approve, err := approveOf(b.Approve)
	if err != nil {
		return nil, err
	}
	r := service.StartRequest{
		Agent: b.Agent, Given: c.Service.Policy.GivenCall(b.Target, b.Body), Approve: approve, Tools: b.Tools,
		Session: b.SessionID, Change: policy.Change{Skills: b.Skills, ReadOnly: b.ReadOnly},
	}
	if r.Workspace, err = c.Service.Policy.OwnWorkspace(c.who); err != nil {
		return nil, err
	}
	if r.Once, err = c.once(); err != nil {
		return nil, err
	}
	drive, err := c.startLogged(r)
	if err == nil && b.Detach {
		c.wrote = true
		c.Server.answer(c.w, http.StatusAccepted, api.ToolCalled{CallID: b.CallID, Run: drive.ID()})
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	run, err := c.pool.Outcome(c, c.who, drive)
	if err != nil {
		return nil, err
	}
	out := api.ToolCalled{CallID: b.CallID, Run: run.ID, Pending: run.Pending}
	for _, t := range run.Trace {
		out.Status, out.IsError, out.Content, out.Reason = t.Status, t.IsError, t.Result, t.Reason
	}
	if out.Reason == toolcrib.ReasonNotPermitted {
		if err := c.Service.People.InScope(c, c.who, run.Agent, b.Target, b.Body); err != nil {
			return nil, err
		}
	}
	switch {
	case out.Reason == toolcrib.ReasonInvalidArguments:
		var refusal struct{ Message string }
		_ = json.Unmarshal([]byte(out.Content), &refusal)
		return nil, bad("target_body: %s (run %s)", cmp.Or(refusal.Message, out.Content), run.ID)
	case out.Reason == toolcrib.ReasonNotRegistered:
		return nil, bad("target_capability: unknown tool (run %s)", run.ID)
	case out.Pending != nil:
		c.wrote = true
		c.Server.answer(c.w, http.StatusAccepted, out)
	}
	return out, nil
}

func (c *call) decideOther(b api.OtherCallRequest) (out api.OtherDecided, err error) {
	own, err := c.Service.Policy.OwnWorkspace(c.who)
	if err != nil {
		return out, err
	}
	if b.Cwd == "" {
		b.Cwd = own
	}
	if !policy.Inside(b.Cwd, own) { // otherwise any user could probe which folders exist
		if _, err := env.Administrator(c.who); err != nil {
			return out, err
		}
	}
	return c.Service.Policy.DecideOther(c, c.who, policy.OtherCall{
		Tool: b.Tool, Arguments: b.Arguments, Cwd: b.Cwd, Session: b.Session,
	})
}

func (c *call) listSkills() (api.SkillList, error) {
	all, err := c.Service.Policy.Skills(nil)
	if err != nil {
		return api.SkillList{}, err
	}
	list := api.SkillList{Skills: []api.Skill{}}
	for _, k := range all.All {
		list.Skills = append(list.Skills, skillOf(&k))
	}
	return list, nil
}

func (c *call) listSessions() (store.SessionPage, error) {
	if name := c.text("id"); name != "" {
		info, err := c.Service.Session(c, c.who, name)
		return store.SessionPage{Sessions: []store.SessionInfo{info}}, err
	}
	page, err := c.Service.Sessions(c, c.who, store.SessionFilter{
		User: c.text("user"), Limit: c.number("limit"), Cursor: c.text("cursor"),
	})
	page.Sessions = append([]store.SessionInfo{}, page.Sessions...)
	return page, err
}

func (c *call) usage() (service.Usage, error) {
	return c.Service.Usage(c, c.who, store.UsageQuery{
		By: store.UsageBy(c.text("by")), User: c.text("user"), Since: c.time("since"), Until: c.time("until"),
		Limit: c.number("limit"),
	})
}

func (c *call) audit() (store.AuditPage, error) {
	f := store.AuditFilter{
		User: c.text("user"), Since: c.time("since"), Until: c.time("until"), Limit: c.number("limit"),
		Cursor: c.text("cursor"),
	}
	for _, kind := range c.words("kind") {
		f.Kinds = append(f.Kinds, toolcrib.Kind(kind))
	}
	return c.Service.People.Audit(c, c.who, f, c.text("run"))
}

func (c *call) me() (api.Me, error) {
	w := &c.who
	me := api.Me{
		User: w.User, Admin: w.Admin, Roles: w.Roles, Groups: w.Groups, Grants: w.Grants, Token: w.Token,
		FourEyes: c.Service.Env.Config.Approvals.FourEyes,
	}
	if w.Admin {
		c.Service.Policy.TellNoSandbox(func(text string) { me.NoSandbox = text })
	}
	return me, nil
}
