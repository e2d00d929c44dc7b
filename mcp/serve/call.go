package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

// inputName is the name of what a client is asked.
const inputName = "toolcrib"

// multiRound is the first version of the protocol in which a call ends with what it asks, and
// is made again with the answer. Before, the server asks while the call is under way.
const multiRound = "2026-07-28"

// call carries a call out.
func (s *Server) call(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	c := service.ServedCall{Client: clientOf(req), Name: req.Params.Name, Arguments: req.Params.Arguments}
	me := s.of(req.Session)
	run, stop := me.until(ctx, c.Client)
	defer stop()
	watch, stopped := s.progress(ctx, req)
	defer stopped()
	front := service.Front{Watch: watch, Log: s.Log}
	if req.ProtocolVersion() < multiRound && s.canAsk(req) {
		front.Person = &behind{me: me, ctx: ctx, to: req.Session, name: c.Client, put: map[string]int{}}
	}

	var out *service.Served
	var err error
	if state := req.Params.RequestState; state != "" {
		a := service.ServedAnswer{Again: true} // without an answer to what was asked
		if said, ok := req.Params.InputResponses[inputName].(*sdk.ElicitResult); ok {
			a = answerOf(said)
		}
		out, err = me.answer(run, c, state, a, front)
	} else {
		out, err = me.reads.Call(run, c, front)
	}
	for err == nil {
		ask := s.asks(req, out)
		if ask == nil {
			return s.result(out), nil
		}
		if req.ProtocolVersion() >= multiRound {
			return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{inputName: ask}, RequestState: out.State}, nil
		}
		said, failed := me.elicit(ctx, req.Session, ask)
		switch {
		case failed != nil && ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
			return nil, errors.Join(context.Canceled, me.reads.Cancel(context.WithoutCancel(ctx), out.Run))
		case failed != nil:
			s.Log.WarnContext(ctx, "the client was asked and gave no answer", "run", out.Run, "error", s.Mask(failed.Error()))
			said = &sdk.ElicitResult{}
		}
		a := answerOf(said)
		if out, err = me.answer(run, c, out.State, a, front); a.Decision == "" && err == nil {
			return s.result(out), nil
		}
	}
	if code := toolcrib.CodeOf(err); code == toolcrib.CodeBadRequest || code == toolcrib.CodeTokenExpired {
		return nil, s.rpcError(err)
	}
	return s.failed(err), nil
}

// answer says what the client has said. Where somebody else was first, their word counts, and the client
// learns what became of the call.
func (c *client) answer(
	ctx context.Context, call service.ServedCall, state string, a service.ServedAnswer, f service.Front,
) (*service.Served, error) {
	out, err := c.reads.Answer(ctx, call, state, a, f)
	if toolcrib.CodeOf(err) == toolcrib.CodeConflict {
		return c.reads.Answer(ctx, call, state, service.ServedAnswer{}, f)
	}
	return out, err
}

// until gives a context for the run of a call: it ends with the call if the client cancels
// it, so that the run does, and with the client, which mostly leaves the run to be resumed.
func (c *client) until(call context.Context, client string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(c.ctx)
	stop := context.AfterFunc(call, func() {
		if cause := context.Cause(call); !errors.Is(cause, context.Canceled) { // the connection has ended
			cancel(fmt.Errorf("%w: %w", errGone, cause))
			return
		}
		cancel(service.Cancelled(client))
	})
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// beatEvery is how often a client that wants to hear of a call hears that it is under way.
const beatEvery = 5 * time.Second

// progress tells the client how far its call is, if it wants to hear of it, until stop is
// called. watch never blocks.
func (s *Server) progress(ctx context.Context, req *sdk.CallToolRequest) (watch func(journal.Frame), stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil, func() {}
	}
	views, ended, done := make(chan journal.ProgressView, 16), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		beat := time.NewTicker(beatEvery)
		defer beat.Stop()
		last := -1.0 // progress only rises
		for {
			p := &sdk.ProgressNotificationParams{ProgressToken: token, Progress: max(last, 0) + 1, Message: "still running"}
			select {
			case <-ended:
				return
			case <-beat.C:
			case view := <-views:
				if p.Message = guard.Visible(view.Message); view.Fraction >= 0 {
					p.Progress, p.Total = 100*view.Fraction, 100
				}
			}
			if p.Progress > last && req.Session.NotifyProgress(ctx, p) == nil {
				last = p.Progress
			}
		}
	}()
	watch = func(f journal.Frame) {
		if view, ok := f.Data.(journal.ProgressView); ok && f.Event == journal.FrameToolProgress {
			select {
			case views <- view:
			default: // the next says more
			}
		}
	}
	return watch, func() {
		close(ended)
		<-done
	}
}

// askedFor is how long a client may take to answer; then the call waits for a person at toolcrib.
const askedFor = 15 * time.Minute

// elicit asks the client while the call is under way.
func (c *client) elicit(ctx context.Context, to *sdk.ServerSession, ask *sdk.ElicitParams) (*sdk.ElicitResult, error) {
	ctx, cancel := context.WithTimeout(ctx, askedFor)
	defer cancel()
	defer context.AfterFunc(c.there, cancel)()
	return to.Elicit(ctx, ask)
}

// maxAsked bounds what a client is asked, in bytes: what is longer might not be shown whole.
const maxAsked = 16 << 10

// asks is what the client is asked about a call; nil if that is for a person at toolcrib.
func (s *Server) asks(req *sdk.CallToolRequest, out *service.Served) *sdk.ElicitParams {
	if out.State == "" || !s.canAsk(req) {
		return nil
	}
	if out.Waits.Kind == journal.ApprovalInput {
		return asked(guard.Visible(out.Waits.Question), questionSchema(out.Waits.Schema))
	}
	return asked(approvalText(out.Waits), json.RawMessage(approvalSchema))
}

// canAsk reports whether the client's person can be asked.
func (s *Server) canAsk(req *sdk.CallToolRequest) bool {
	caps := req.ClientCapabilities()
	return !s.NoElicit && caps != nil && caps.Elicitation != nil &&
		(caps.Elicitation.Form != nil || caps.Elicitation.URL == nil)
}

// asked is a form; nil if the client cannot show it.
func asked(message string, schema json.RawMessage) *sdk.ElicitParams {
	if schema == nil || len(message) > maxAsked {
		return nil
	}
	return &sdk.ElicitParams{Mode: "form", Message: message, RequestedSchema: schema}
}

// behind asks the client what a call asks while it is under way, such as that of a server behind
// toolcrib. For what the call itself waits for there is [Server.asks].
type behind struct {
	me   *client
	ctx  context.Context // of the client's call
	to   *sdk.ServerSession
	name string
	put  map[string]int // how often, by approval
}

// maxPut is how often a client is asked the same if its answers do not fit.
const maxPut = 3

// Answer implements [service.Person].
func (b *behind) Answer(ctx context.Context, q service.Question) (a service.Answer, ok bool, err error) {
	if b.put[q.Ask.ApprovalID]++; !q.Nested || q.Ask.Kind != journal.ApprovalInput || b.put[q.Ask.ApprovalID] > maxPut {
		return a, false, nil
	}
	schema := questionSchema(q.Ask.Schema)
	if schema == nil {
		schema = questionSchema(nil) // any text, which is read as JSON where it fits
	}
	ask := asked(guard.Visible(strings.TrimSpace(q.Ask.Question+"\n"+q.Problem)), schema)
	if ask == nil {
		return a, false, nil
	}
	until, cancel := context.WithCancel(b.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	said, err := b.me.elicit(until, b.to, ask)
	if err != nil {
		return a, false, ctx.Err() // a client that gives no answer is as nobody
	}
	word := answerOf(said)
	a = service.Answer{Decision: word.Decision, Text: string(word.Value), Client: b.name}
	var text string
	if json.Unmarshal(word.Value, &text) == nil {
		a.Text = text
	}
	return a, word.Decision != "", nil
}

// An approval takes a word, not only that a form was accepted.
const approvalSchema = `{"type":"object","properties":{"decision":{"type":"string","title":"Decision",` +
	`"description":"approve lets it run once","enum":["approve","deny"]},` +
	`"reason":{"type":"string","title":"Reason","description":"for the model, may be empty","maxLength":1000}},` +
	`"required":["decision"]}`

// approvalText is an approval as the person at the client reads it, whole.
func approvalText(ask *journal.ConfirmationRequired) string {
	var b strings.Builder
	b.WriteString("May this run?\n")
	for _, c := range ask.Calls {
		fmt.Fprintf(&b, "\n%s %s\n", c.Name, c.Arguments)
		if c.Reason != "" {
			fmt.Fprintf(&b, "why you are asked: %s\n", c.Reason)
		}
		if c.Changed != "" {
			fmt.Fprintf(&b, "changed since: %s\n", c.Changed)
		}
		if c.Preview != nil && c.Preview.Text != "" {
			fmt.Fprintf(&b, "\n%s\n", c.Preview.Text)
		}
	}
	return guard.Visible(b.String())
}

// questionSchema is the schema of a form with one field, for an answer; nil if clients have
// no such field.
func questionSchema(schema json.RawMessage) json.RawMessage {
	field := map[string]json.RawMessage{"type": json.RawMessage(`"string"`)}
	if len(schema) > 0 {
		if json.Unmarshal(schema, &field) != nil {
			return nil
		}
		switch string(field["type"]) {
		case `"string"`, `"number"`, `"integer"`, `"boolean"`:
		default:
			return nil
		}
	}
	for name := range field {
		switch name {
		case "type", "title", "description", "enum", "minimum", "maximum", "minLength", "maxLength", "default":
		default:
			delete(field, name) // forms do not have it; the answer is held against the whole schema
		}
	}
	field["title"] = json.RawMessage(`"Answer"`)
	form, err := json.Marshal(map[string]any{
		"type": "object", "properties": map[string]any{"answer": field}, "required": []string{"answer"},
	})
	if err != nil {
		return nil
	}
	return form
}

// answerOf is what the client has said. A form that was accepted without the word in it, and
// one that was put away, say nothing.
func answerOf(r *sdk.ElicitResult) service.ServedAnswer {
	switch {
	case r.Action == "decline":
		return service.ServedAnswer{Decision: journal.DecisionDeny}
	case r.Action != "accept":
		return service.ServedAnswer{}
	}
	if value, ok := r.Content["answer"]; ok {
		text, err := json.Marshal(value)
		if err != nil {
			return service.ServedAnswer{}
		}
		return service.ServedAnswer{Decision: journal.DecisionAnswer, Value: text}
	}
	reason, _ := r.Content["reason"].(string) // may be absent
	switch r.Content["decision"] {
	case journal.DecisionApprove, journal.DecisionDeny:
		return service.ServedAnswer{Decision: r.Content["decision"].(string), Reason: reason}
	}
	return service.ServedAnswer{}
}

// result is what became of a call, as its client reads it.
func (s *Server) result(out *service.Served) *sdk.CallToolResult {
	if out.Result == nil {
		return s.waiting(out)
	}
	r := &sdk.CallToolResult{
		Content: []sdk.Content{&sdk.TextContent{Text: out.Result.Content}},
		IsError: out.Result.IsError || out.Result.Status != toolcrib.ResultOK,
	}
	for _, f := range out.Files {
		if strings.HasPrefix(f.MediaType, "image/") {
			r.Content = append(r.Content, &sdk.ImageContent{MIMEType: f.MediaType, Data: f.Data})
			continue
		}
		r.Content = append(r.Content, &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{
			URI: runURI + string(out.Run) + "/" + f.Name, MIMEType: f.MediaType, Blob: f.Data,
		}})
	}
	r.Meta = sdk.Meta{"toolcrib/run_id": string(out.Run)}
	return r
}

// waiting answers a call that has no result yet.
func (s *Server) waiting(out *service.Served) *sdk.CallToolResult {
	view := map[string]any{"status": out.Status, "run_id": out.Run}
	text := fmt.Sprintf("No result yet: run %s is %s.", out.Run, out.Status)
	switch {
	case out.Waits != nil:
		id := out.Waits.ApprovalID
		what, commands := service.WayOn(s.Self, out.Run, out.Waits, false)
		for i := range commands {
			if s.ByItself {
				commands[i] = strings.TrimSuffix(commands[i], " --resume")
			}
		}
		view["approval_id"], view["commands"] = id, commands
		text = fmt.Sprintf("No result yet: this call waits for %s. A person can look at it with `%s approvals show %s`, and "+
			"decides with:\n%s\nTell them. Then call collect_result with the approval_id %s; do not repeat this call.", what,
			s.Self, id, strings.Join(commands, "\n"), id)
	case out.Status.Parked():
		command := fmt.Sprintf("%s runs resume %s", s.Self, out.Run)
		view["commands"] = []string{command}
		text += " A person continues it with:\n" + command
	case out.Status.Ended():
		return s.failed(fmt.Errorf("run %s has ended without a result (%s)", out.Run, out.Status))
	default:
		text += " Call collect_result again."
		if out.Asked != "" {
			view["approval_id"], text = out.Asked, text+" Its approval_id is "+out.Asked+"."
		}
	}
	return &sdk.CallToolResult{
		Content: []sdk.Content{&sdk.TextContent{Text: text}}, StructuredContent: view,
		Meta: sdk.Meta{"toolcrib/run_id": string(out.Run)},
	}
}

// failed is a call that came to nothing.
func (s *Server) failed(err error) *sdk.CallToolResult {
	text := guard.Visible(s.Mask(err.Error()))
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}, IsError: true}
}

// collect is the tool that fetches what a call that waited came to.
var collect = &sdk.Tool{
	Name: "collect_result",
	Description: "Fetch what became of a call that waits for a person, by the approval_id in its answer. " +
		"It waits for the decision for up to 20 seconds.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{"approval_id":{"type":"string",` +
		`"description":"as the waiting call gave it"}},"required":["approval_id"],"additionalProperties":false}`),
	Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true},
}

// patience is how long collect_result waits; clients give up on a call after a minute.
const patience = 20 * time.Second

func (s *Server) collect(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	var in struct {
		ID string `json:"approval_id"`
	}
	raw, err := guard.Arguments(req.Params.Arguments)
	if err == nil {
		err = json.Unmarshal(raw, &in)
	}
	if err == nil && !strings.HasPrefix(in.ID, "apr_") {
		err = errors.New("must begin with apr_")
	}
	if err != nil {
		return s.failed(fmt.Errorf("invalid_arguments: approval_id: %w", err)), nil
	}
	me := s.of(req.Session)
	run, stop := me.until(ctx, clientOf(req))
	defer stop()
	_, stopped := s.progress(ctx, req)
	defer stopped()
	out, err := me.reads.Collect(run, in.ID, patience)
	if err != nil {
		return s.failed(err), nil
	}
	return s.result(out), nil
}
