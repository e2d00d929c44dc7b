// Package remote lets front ends on this machine use a server like the service of a data folder:
// the same operations with the same results, over HTTP. All decisions are made by the server.
package remote

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/client"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/nodes"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/store"
)

// Service is a server. Its methods are those of [service.Service]. They act for the principal of
// the access token and ignore that in their arguments.
type Service struct {
	*client.Client
	Me      api.Me            // principal of the access token
	Notice  func(text string) // shows a message to the person
	ctx     context.Context   // context of operations without a context argument
	decided *service.Run      // run that continues after the last decision, in its state before
}

// Connect returns the service of a server, after asking the server for the principal.
func Connect(ctx context.Context, c *client.Client, notice func(string)) (*Service, error) {
	r := &Service{Client: c, Notice: notice, ctx: ctx}
	return r, r.Get(ctx, client.Path("me"), nil, &r.Me)
}

// get sends a GET request to a path of the API and decodes the response.
func get[T any](ctx context.Context, r *Service, q client.Query, path ...string) (out T, err error) {
	err = r.Get(ctx, client.Path(path...), q, &out)
	return out, err
}

// send sends in as the body of a request, and decodes the response.
func send[T any](ctx context.Context, r *Service, method string, in any, path ...string) (out T, err error) {
	err = r.Send(ctx, method, client.Path(path...), in, &out)
	return out, err
}

// list sends a GET request for a list of the API, and decodes its entries.
func list[T any](ctx context.Context, r *Service, q client.Query, path ...string) ([]T, error) {
	found, err := get[map[string][]T](ctx, r, q, path...)
	return found[path[len(path)-1]], err
}

// ofRun is get for a path below a run, which may be named by a part of its ID.
func ofRun[T any](ctx context.Context, r *Service, name string, rest ...string) (out T, err error) {
	id, err := r.id(ctx, "runs", "run_", name)
	if err == nil {
		out, err = get[T](ctx, r, nil, append([]string{"runs", id}, rest...)...)
	}
	return out, err
}

// Who returns the principal of the access token.
func (r *Service) Who() toolcrib.Principal {
	return toolcrib.Principal{
		User: r.Me.User, Admin: r.Me.Admin, Roles: r.Me.Roles, Groups: r.Me.Groups, Grants: r.Me.Grants, Token: r.Me.Token,
	}
}

// wholeLength is the length of an ID without its prefix.
const wholeLength = 26

// id returns the whole ID for a name or a part of an ID. kind is the list of the API to search.
func (r *Service) id(ctx context.Context, kind, prefix, name string) (string, error) {
	if rest := strings.TrimPrefix(name, prefix); name == "last" || rest != name && len(rest) == wholeLength {
		return name, nil
	}
	found, err := list[struct {
		ID       string `json:"id"`
		Approval string `json:"approval_id"`
	}](ctx, r, client.Query{"id": name}, kind)
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", toolcrib.Errorf(toolcrib.CodeNotFound, "there is no %s %s", strings.TrimSuffix(kind, "s"), name)
	}
	return found[0].ID + found[0].Approval, nil
}

func (r *Service) Run(ctx context.Context, _ toolcrib.Principal, name string) (service.Run, error) {
	return ofRun[service.Run](ctx, r, name)
}

func (r *Service) FindRun(ctx context.Context, who toolcrib.Principal, name string) (service.Run, error) {
	return r.Run(ctx, who, name)
}

func (r *Service) Cancel(ctx context.Context, _ toolcrib.Principal, name string) (run service.Run, err error) {
	id, err := r.id(ctx, "runs", "run_", name)
	if err == nil {
		run, err = send[service.Run](ctx, r, http.MethodPost, nil, "runs", id, "cancel")
	}
	return run, err
}

func (r *Service) KeptApprove(
	ctx context.Context, who toolcrib.Principal, q service.ResumeRequest,
) (agent.Approve, error) {
	run, err := r.Run(ctx, who, q.Run)
	return agent.Approve(run.Approve), err
}

func (r *Service) Runs(
	ctx context.Context, _ toolcrib.Principal, q service.RunsQuery,
) ([]service.Run, string, error) {
	page, err := get[api.RunList](ctx, r, client.Query{
		"status": strings.Join(q.Statuses, ","), "user": q.User, "agent": q.Agent, "session": q.Session,
		"parent": q.Parent, "top_level": q.TopLevel, "prompts": q.Prompts, "since": q.Since,
		"limit": q.Limit, "cursor": q.Cursor,
	}, "runs")
	if q.Cursor != "" && toolcrib.CodeOf(err) == toolcrib.CodeBadRequest {
		err = store.ErrBadCursor
	}
	return page.Runs, page.Next, err
}

// Journal reads the journal of a run from its export.
func (r *Service) Journal(
	ctx context.Context, who toolcrib.Principal, run toolcrib.RunID,
) iter.Seq2[toolcrib.Event, error] {
	return func(yield func(toolcrib.Event, error) bool) {
		out, in := io.Pipe()
		go func() { in.CloseWithError(r.ExportRun(ctx, who, string(run), in)) }()
		events, err := service.ReadExport(out)
		_ = out.Close() // it was only read
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(toolcrib.Event{}, err)
		}
	}
}

func (r *Service) ExportRun(ctx context.Context, _ toolcrib.Principal, name string, w io.Writer) error {
	id, err := r.id(ctx, "runs", "run_", name)
	if err == nil {
		err = r.Copy(ctx, client.Path("runs", id, "export"), w)
	}
	return err
}

func (r *Service) Verify(
	ctx context.Context, _ toolcrib.Principal, name string, _ *store.Head,
) ([]api.Checked, error) {
	out, err := ofRun[api.CheckedList](ctx, r, name, "verify")
	return out.Checked, err
}

func (r *Service) Replay(ctx context.Context, _ toolcrib.Principal, name string) ([]api.Checked, error) {
	out, err := ofRun[api.CheckedList](ctx, r, name, "replay")
	return out.Checked, err
}

func (r *Service) Events(ctx context.Context, _ toolcrib.Principal, name string, after toolcrib.Seq, follow bool,
	write func(journal.Frame) error,
) error {
	until := client.UntilNow
	if follow {
		until = client.UntilEnd
	}
	id, err := r.id(ctx, "runs", "run_", name)
	if err == nil && id == "last" {
		var run service.Run
		run, err = r.Run(ctx, toolcrib.Principal{}, id)
		id = string(run.ID)
	}
	if err != nil {
		return err
	}
	return r.Follow(ctx, toolcrib.RunID(id), after, until, func(e client.Event) error {
		f, err := e.Frame()
		if err == nil && e.Seq > 0 { // like the service of a data folder, without events that are not stored
			err = write(f)
		}
		return err
	})
}

func (r *Service) Approvals(ctx context.Context, _ toolcrib.Principal) ([]*service.Approval, error) {
	return list[*service.Approval](ctx, r, nil, "approvals")
}

func (r *Service) Approval(
	ctx context.Context, _ toolcrib.Principal, name string,
) (v *service.Approval, err error) {
	id, err := r.id(ctx, "approvals", "apr_", name)
	if err == nil {
		v, err = get[*service.Approval](ctx, r, nil, "approvals", id)
	}
	return v, err
}

// decide sends a decision or, with check, asks whether it would be accepted.
func (r *Service) decide(ctx context.Context, approval string, d *service.Decision, check bool, open []string,
) (out api.Decided, err error) {
	b := api.DecisionRequest{Digest: d.Digest, Reason: d.Reason, Check: check, Calls: map[string]api.CallChoice{}}
	switch {
	case d.Arguments == nil || len(d.Calls) == 1 || len(open) == 1:
	case len(open) == 0: // by someone else, after the approval was read
		return out, toolcrib.Errorf(toolcrib.CodeConflict, "approval %s was decided just now", approval)
	default:
		return out, toolcrib.Errorf(toolcrib.CodeBadRequest, "approval %s has %d open calls; name one of them", approval, len(open))
	}
	if d.Remember != nil {
		b.Remember, b.RememberCalls = d.Remember.Scope, d.Remember.Calls
	}
	each := d.Each
	if w := d.CallDecision; len(each) == 0 && w.Decision == journal.DecisionAnswer {
		b.Answer = w.Result
	} else if len(each) == 0 && len(d.Calls) == 0 && w.Arguments == nil && w.Result == nil {
		b.Decision = w.Decision
	} else if len(each) == 0 {
		named := d.Calls
		if len(named) == 0 {
			named = open
		}
		each = map[string]journal.CallDecision{}
		for _, id := range named {
			each[id] = w
		}
	}
	for id, w := range each {
		b.Calls[id] = api.CallChoice{Decision: w.Decision, Arguments: w.Arguments, Result: w.Result}
	}
	return send[api.Decided](ctx, r, http.MethodPost, b, "approvals", approval)
}

func (r *Service) Check(ctx context.Context, _ toolcrib.Principal, v *service.Approval, d service.Decision) error {
	_, err := r.decide(ctx, v.ID, &d, true, v.Open())
	return err
}

// Decide records the state of the run before the decision, so that Resume shows all later events.
func (r *Service) Decide(ctx context.Context, who toolcrib.Principal, v *service.Approval, d service.Decision,
) (api.Decided, error) {
	_, top, err := r.top(ctx, string(v.Run))
	if err != nil && toolcrib.CodeOf(err) != toolcrib.CodeNotFound { // an approver may not see the run
		return api.Decided{}, err
	}
	r.decided = &top
	return r.decide(ctx, v.ID, &d, false, v.Open())
}

// top returns a run, and the run at the top of its tree, which is the one to be resumed.
func (r *Service) top(ctx context.Context, name string) (run, top service.Run, err error) {
	run, err = r.Run(ctx, toolcrib.Principal{}, name)
	if top = run; err == nil && run.Top != "" && run.Top != run.ID {
		top, err = r.Run(ctx, toolcrib.Principal{}, string(run.Top))
	}
	return run, top, err
}

func (r *Service) Edited(ctx context.Context, v *service.Approval, c journal.ApprovalItem, arguments []byte,
) (journal.ApprovalItem, error) {
	x, err := r.Explain(ctx, toolcrib.Principal{}, policy.ExplainRequest{
		Run: string(v.Run), Tool: c.Name, Given: &toolcrib.ToolCall{Name: c.Name, Arguments: arguments},
	})
	if err == nil && x.Call != nil {
		w := &x.Call.Verdict
		c.Arguments, c.Effect, c.Preview, c.Reason = x.Call.Arguments, w.Effect, w.Preview, w.Message
	}
	return c, err
}

// NeedsAnother reports whether a person other than who must approve calls of a run of user.
func (r *Service) NeedsAnother(who toolcrib.Principal, user string) bool {
	return r.Me.FourEyes && who.User == user
}

func (r *Service) Remembered(
	ctx context.Context, _ toolcrib.Principal, revoked bool, limit int,
) ([]store.Remembered, error) {
	return list[store.Remembered](ctx, r, client.Query{"all": revoked, "limit": limit}, "remembered")
}

// Prune first asks the server how many runs are concerned, so that a person can agree.
func (r *Service) Prune(
	ctx context.Context, who toolcrib.Principal, q service.PruneRequest,
) (result api.PruneResult, err error) {
	b := api.PruneRequest{Content: q.ContentOnly, WithLater: q.WithLater}
	if q.OlderThan > 0 {
		b.OlderThan = q.OlderThan.String()
	}
	for _, name := range q.Runs {
		run, err := r.Run(ctx, who, name) // "last" may soon be another run
		if err != nil {
			return result, err
		}
		b.Runs = append(b.Runs, string(run.ID))
	}
	out, err := r.pruned(q.Agrees, func(checked *api.Pruned) (api.Pruned, error) {
		b.Check = checked == nil
		if checked != nil {
			b.Named = &checked.Named
		}
		return send[api.Pruned](ctx, r, http.MethodPost, b, "runs", "prune")
	})
	return out.PruneResult, err
}

func (r *Service) RemoveSession(
	ctx context.Context, who toolcrib.Principal, name string, q service.PruneRequest,
) (info store.SessionInfo, result api.PruneResult, err error) {
	info, err = r.Session(ctx, who, name)
	if err != nil {
		return info, result, err
	}
	out, err := r.pruned(q.Agrees, func(checked *api.Pruned) (api.Pruned, error) {
		b := api.RemoveSessionRequest{WithLater: q.WithLater, Check: checked == nil}
		if checked != nil {
			b.Named = &checked.Named
		}
		return send[api.Pruned](ctx, r, http.MethodDelete, b, "sessions", string(info.ID))
	})
	return store.SessionInfo{ID: out.Session, Name: out.Name}, out.PruneResult, err
}

// pruned removes runs if agrees returns nil. It calls do with nil to check what would be removed, then with the result
// of the check to remove exactly that.
func (r *Service) pruned(
	agrees func(int) error, do func(checked *api.Pruned) (api.Pruned, error),
) (api.Pruned, error) {
	out, err := do(nil)
	for _, text := range out.Notices {
		r.Notice(text)
	}
	if err == nil && agrees != nil {
		err = agrees(out.Named)
	}
	if err != nil {
		return out, err
	}
	return do(&out)
}

func (r *Service) ImportRun(
	ctx context.Context, _ toolcrib.Principal, in io.Reader,
) (run toolcrib.RunID, events int, err error) {
	data, err := io.ReadAll(io.LimitReader(in, maxImport+1))
	if err == nil && len(data) > maxImport {
		err = toolcrib.Errorf(toolcrib.CodeTooLarge, "an export of more than %d bytes is imported where the server runs", maxImport)
	}
	var out api.Imported
	if err == nil {
		body := api.ImportRequest{Export: string(data)}
		out, err = send[api.Imported](ctx, r, http.MethodPost, body, "runs", "import")
	}
	return out.Run, out.Events, err
}

// maxImport bounds an export that is sent, in bytes. The server has its own bound.
const maxImport = 64 << 20

// Skills returns the skills of the server.
func (r *Service) Skills(ctx context.Context) (all []policy.Skill, err error) {
	found, err := list[api.Skill](ctx, r, nil, "skills")
	for i := range found {
		all = append(all, skillOf(&found[i], ""))
	}
	return all, err
}

// Skill returns a skill with its text.
func (r *Service) Skill(ctx context.Context, name string) (*policy.Skill, error) {
	one, err := get[api.ShownSkill](ctx, r, nil, "skills", name)
	k := skillOf(&one.Skill, one.Text)
	return &k, err
}

func skillOf(k *api.Skill, text string) policy.Skill {
	return policy.Skill{State: k.State, Skill: &skill.Skill{
		Reason: k.Reason, Name: k.Name, Description: k.Description, AllowedTools: k.AllowedTools, Hash: k.Hash, Body: text,
	}}
}

func (r *Service) Forget(ctx context.Context, _ toolcrib.Principal, id string) (store.Remembered, bool, error) {
	out, err := send[struct {
		store.Remembered
		Changed bool `json:"changed"`
	}](ctx, r, http.MethodDelete, nil, "remembered", id)
	return out.Remembered, out.Changed, err
}

func (r *Service) Tools(ctx context.Context, _ toolcrib.Principal) ([]policy.Tool, error) {
	return list[policy.Tool](ctx, r, nil, "tools")
}

func (r *Service) Tool(ctx context.Context, _ toolcrib.Principal, name string) (policy.Tool, error) {
	return get[policy.Tool](ctx, r, nil, "tools", name)
}

func (r *Service) SwitchTool(
	ctx context.Context, _ toolcrib.Principal, q policy.SwitchRequest,
) (policy.Switched, error) {
	path, method, body := []string{"tools", q.Tool}, http.MethodPut, any(api.Switch{Enabled: q.Enabled})
	if q.Group != "" {
		path = []string{"tool-groups", q.Group}
	}
	if q.Reset {
		path, method, body = append(path, "override"), http.MethodDelete, nil
	}
	return send[policy.Switched](ctx, r, method, body, path...)
}

func (r *Service) Explain(
	ctx context.Context, _ toolcrib.Principal, q policy.ExplainRequest,
) (policy.Explained, error) {
	b := api.ExplainRequest{
		Tool: q.Tool, Agent: q.Agent, Tools: q.Tools, Skills: q.Change.Skills, ReadOnly: q.Change.ReadOnly,
		Approve: wire(q.Approve), Run: q.Run, Tainted: q.Tainted,
	}
	if q.Given != nil {
		b.Arguments = raw(q.Given)
	}
	if q.Run != "" {
		run, err := r.id(ctx, "runs", "run_", q.Run)
		if err != nil {
			return policy.Explained{}, err
		}
		b.Run = run
	}
	return send[policy.Explained](ctx, r, http.MethodPost, b, "tools", "explain")
}

// GivenCall returns a call with unchanged arguments. The server decodes them strictly.
func (r *Service) GivenCall(name string, text []byte) *toolcrib.ToolCall {
	return &toolcrib.ToolCall{ID: "call_1", Name: name, Arguments: text}
}

// raw returns the arguments of a call as JSON. Invalid JSON becomes a string, which the gate refuses.
func raw(c *toolcrib.ToolCall) json.RawMessage {
	if json.Valid(c.Arguments) {
		return c.Arguments
	}
	text, _ := json.Marshal(string(c.Arguments)) // a string can always be marshaled
	return text
}

// wire returns the value of approve for the server. Asking at the terminal is done by this program.
func wire(how agent.Approve) string {
	if how == agent.ApproveAsk {
		how = agent.ApproveNone
	}
	return string(how)
}

func (r *Service) Usage(
	ctx context.Context, _ toolcrib.Principal, q store.UsageQuery,
) (service.Usage, error) {
	return get[service.Usage](ctx, r, client.Query{
		"by": q.By, "user": q.User, "since": q.Since, "until": q.Until, "limit": q.Limit,
	}, "usage")
}

func (r *Service) Sessions(
	ctx context.Context, _ toolcrib.Principal, f store.SessionFilter,
) (store.SessionPage, error) {
	return get[store.SessionPage](ctx, r, client.Query{"user": f.User, "limit": f.Limit, "cursor": f.Cursor}, "sessions")
}

func (r *Service) Session(
	ctx context.Context, _ toolcrib.Principal, name string,
) (info store.SessionInfo, err error) {
	p, err := get[store.SessionPage](ctx, r, client.Query{"id": name}, "sessions")
	if err == nil && len(p.Sessions) == 1 {
		info = p.Sessions[0]
	}
	return info, err
}

func (r *Service) SessionRuns(
	ctx context.Context, who toolcrib.Principal, id toolcrib.SessionID,
) ([]service.Run, error) {
	q := service.RunsQuery{Filter: store.Filter{Session: id, TopLevel: true, Limit: store.MaxLimit}}
	runs, _, err := r.Runs(ctx, who, q)
	slices.Reverse(runs)
	return runs, err
}

func (r *Service) LastRun(ctx context.Context, who toolcrib.Principal, id toolcrib.SessionID) (service.Run, error) {
	info, err := r.Session(ctx, who, string(id))
	if err == nil && info.LastRun == "" {
		err = toolcrib.Errorf(toolcrib.CodeNotFound, "session %s has no run yet", id)
	}
	if err != nil {
		return service.Run{}, err
	}
	return r.Run(ctx, who, string(info.LastRun))
}

func (r *Service) Models(_ toolcrib.Principal, provider string, configured bool) ([]api.Model, error) {
	return list[api.Model](r.ctx, r, client.Query{"provider": provider, "known": !configured}, "models")
}

// Known always returns false: it is not recorded here which notices a person has read.
func (r *Service) Known(toolcrib.Notice) bool { return false }

func (r *Service) BusStatus(ctx context.Context, _ toolcrib.Principal) (nodes.Status, error) {
	return get[nodes.Status](ctx, r, nil, "bus")
}

func (r *Service) BusCapabilities(ctx context.Context, _ toolcrib.Principal, node string) ([]nodes.Capability, error) {
	q := client.Query{}
	if node != "" {
		q["node"] = node
	}
	return list[nodes.Capability](ctx, r, q, "bus", "capabilities")
}

func (r *Service) BusTrace(ctx context.Context, _ toolcrib.Principal, after int64) (nodes.Trace, error) {
	return get[nodes.Trace](ctx, r, client.Query{"after": after}, "bus", "trace")
}
