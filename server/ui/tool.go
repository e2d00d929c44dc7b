package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/service/worker"
)

// toolView is the data of the template tool.
type toolView struct {
	toolRow
	Agents []policy.Agent
	Agent  string
	Fields *field       // of the arguments
	Raw    string       // the arguments as JSON
	AsJSON bool         // they are typed as JSON
	Error  string       // why a call was not made
	Called *service.Run // a call that was made
	Result *api.TraceCall
}

// argumentsPrefix begins the names of the fields for arguments.
const argumentsPrefix = "argument"

// argumentFields returns the form for arguments. Without parameters, it has no fields.
func argumentFields(parameters, current json.RawMessage) *field {
	root := fieldsOf(parameters, argumentsPrefix, current)
	s, _, ok := readSchema(parameters)
	forms := len(s.Properties) + len(s.OneOf) + len(s.AnyOf) + len(s.AllOf)
	if root.Kind == fieldJSON && ok && forms == 0 && s.Ref == "" {
		root.Kind = fieldGroup
	}
	return root
}

// typedCall is a call as it was typed, if it was not made.
type typedCall struct {
	agent  string
	fields *field
	raw    string // arguments as JSON, instead of fields
	err    error
}

// showTool shows a tool with a form to call it.
func showTool(p *page, status int, typed typedCall) error {
	name := p.R.PathValue("name")
	rows, err := toolRows(p)
	if err != nil {
		return err
	}
	v := toolView{Agent: typed.agent, Fields: typed.fields, Raw: typed.raw, AsJSON: typed.raw != ""}
	for _, row := range rows {
		if row.Name == name {
			v.toolRow = row
		}
	}
	if v.Name == "" {
		_, err := p.Service.Policy.Tool(p, p.Who, name) // says which name is near
		return err
	}
	v.Next = "/tools/" + name
	if typed.err != nil {
		v.Error = p.Readable(p.Request, typed.err).Message
	}
	if v.Agents, err = p.Service.Policy.Agents(p, p.Who); err != nil {
		return err
	}
	q := p.R.URL.Query()
	v.AsJSON = v.AsJSON || q.Get("as") == "json"
	if id := q.Get("run"); id != "" && typed.err == nil {
		if err := v.called(p, id); err != nil {
			return err
		}
	}
	var arguments json.RawMessage
	if v.Result != nil {
		arguments = v.Result.Arguments
	}
	if v.Fields == nil {
		v.Fields = argumentFields(v.Parameters, arguments)
	}
	if v.Raw == "" {
		v.Raw = cmp.Or(prettyEscaped(arguments), "{}")
	}
	return p.render("tool", status, &v)
}

// called adds a call that was made with the form.
func (v *toolView) called(p *page, id string) error {
	run, err := p.Service.Run(p, p.Who, id)
	if err != nil {
		return err
	}
	if len(run.Trace) > 0 && run.Trace[0].Name == v.Name {
		v.Called, v.Result, v.Agent = &run, &run.Trace[0], run.Agent
	}
	return nil
}

// callPatience is how long the page waits for the result of a call before it leads to the run.
const callPatience = 5 * time.Second

// callTool makes a run of one call.
func callTool(p *page) error {
	sent := p.R.PostForm
	tool, err := p.Service.Policy.Tool(p, p.Who, p.R.PathValue("name"))
	if err != nil {
		return err
	}
	typed := typedCall{agent: sent.Get("agent"), raw: sent.Get("arguments")}
	raw, ok := json.RawMessage(typed.raw), true
	if typed.raw == "" {
		typed.fields = argumentFields(tool.Parameters, nil)
		raw, ok = typed.fields.valueOf(sent)
	}
	switch {
	case !ok && p.enhanced():
		return p.part("tool", "schema-errors", http.StatusBadRequest, typed.fields.wrongs())
	case !ok:
		return showTool(p, http.StatusBadRequest, typed)
	}
	drive, err := startCall(p, sent, raw)
	if err != nil {
		return typed.again(p, err)
	}
	ctx, cancel := context.WithTimeout(p, callPatience)
	defer cancel()
	run, err := p.Pool.Outcome(ctx, p.Who, drive)
	switch {
	case err != nil && ctx.Err() == nil:
		return err
	case err == nil && run.Pending != nil:
		return p.done("/approvals/" + run.Pending.ApprovalID)
	case err != nil || run.Status.Parked() || len(run.Trace) == 0: // it still runs
		return p.done("/runs/" + string(drive.ID()))
	case run.Trace[0].Reason == toolcrib.ReasonInvalidArguments:
		var refusal struct{ Message string }
		_ = json.Unmarshal([]byte(run.Trace[0].Result), &refusal) // without a message, the reason is shown
		return typed.again(p, bad("%s", cmp.Or(refusal.Message, string(run.Trace[0].Reason))))
	}
	return p.done("/tools/" + url.PathEscape(tool.Name) + "?run=" + url.QueryEscape(string(run.ID)) + "#result")
}

// startCall starts the run of a call.
func startCall(p *page, sent url.Values, raw json.RawMessage) (*worker.Drive, error) {
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	r := service.StartRequest{
		Agent: sent.Get("agent"), Given: p.Service.Policy.GivenCall(p.R.PathValue("name"), raw),
		Once: service.Once(p.Who, sent.Get("once"), p.R.URL.Path, sent.Encode()),
	}
	if r.Given.Broken != "" {
		return nil, bad("the arguments: %s", r.Given.Problem)
	}
	var err error
	if r.Workspace, err = p.Service.Policy.OwnWorkspace(p.Who); err != nil {
		return nil, err
	}
	return p.Pool.Start(context.WithoutCancel(p.Context), p.Who, r)
}

// again shows the form once more with the input and an error. A module shows the error in the form itself.
func (c typedCall) again(p *page, err error) error {
	if c.err = err; p.enhanced() {
		return err
	}
	return showTool(p, statusOf(p.Readable(p.Request, err).Code), c)
}
