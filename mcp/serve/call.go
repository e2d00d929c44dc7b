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
	"github.com/toolcrib/toolcrib/service/env"
)

// call executes a call.
func (s *Server) call(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	c := service.ServedCall{Client: clientOf(req), Name: req.Params.Name, Arguments: req.Params.Arguments}
	state, rounds := req.Params.RequestState, req.ProtocolVersion() >= multiRound
	said, _ := req.Params.InputResponses[inputName].(*sdk.ElicitResult) // nil if the question has no answer
	watch, stopped := s.progress(ctx, req)
	defer stopped()
	front := service.Front{Watch: watch, Log: s.Log}
	work := func(run context.Context) (*service.Served, error) {
		if state == "" {
			return s.Serving.Call(run, c, front)
		}
		return s.answer(run, c, state, answerOf(said), front)
	}

	var out *service.Served
	var err error
	var run context.Context
	canAsk := s.canAsk(req)
	if again := strings.HasPrefix(state, roundState); rounds && (again || canAsk) {
		var r *round
		q := s.underWay(state, &c)
		switch {
		case !again:
			r = s.round(&c)
			front.Person = &behind{ask: r.puts, name: c.Client, put: map[string]int{}}
			r.goes(work)
		case q != nil && said == nil:
			return q.put, nil
		case q == nil || !s.rounds.questions.CompareAndDelete(state, q):
			return nil, s.rpcError(errNoRound)
		default:
			r = q.round
			r.said <- said
		}
		defer endsWith(ctx, r.end, c.Client)()
		select {
		case ask := <-r.asks:
			return ask, nil
		case <-r.done:
			out, err = r.out, r.err
		}
	} else {
		var stop func()
		run, stop = s.until(ctx, c.Client)
		defer stop()
		if canAsk {
			ask := func(asking context.Context, ask *sdk.ElicitParams) (*sdk.ElicitResult, error) {
				return s.elicit(ctx, asking, req.Session, ask)
			}
			front.Person = &behind{ask: ask, name: c.Client, put: map[string]int{}}
		}
		out, err = work(run)
	}
	for err == nil {
		ask := s.asks(req, out)
		if ask == nil {
			return s.result(out), nil
		}
		if rounds {
			return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{inputName: ask}, RequestState: out.State}, nil
		}
		said, failed := s.elicit(ctx, run, req.Session, ask)
		switch {
		case failed != nil && ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
			return nil, errors.Join(context.Canceled, s.Serving.Cancel(context.WithoutCancel(ctx), out.Run))
		case failed != nil:
			s.Log.WarnContext(ctx, "the client was asked and gave no answer", "run", out.Run, "error", s.Mask(failed.Error()))
			said = &sdk.ElicitResult{}
		}
		a := answerOf(said)
		if out, err = s.answer(run, c, out.State, a, front); a.Decision == "" && err == nil {
			return s.result(out), nil
		}
	}
	if code := toolcrib.CodeOf(err); code == toolcrib.CodeBadRequest || code == toolcrib.CodeTokenExpired {
		return nil, s.rpcError(err)
	}
	return s.failed(err), nil
}

// answer passes on the client's answer. If another person decided first, that decision applies, and the client gets
// the result of the call.
func (s *Server) answer(
	ctx context.Context, call service.ServedCall, state string, a service.ServedAnswer, f service.Front,
) (*service.Served, error) {
	out, err := s.Serving.Answer(ctx, call, state, a, f)
	if toolcrib.CodeOf(err) == toolcrib.CodeConflict {
		return s.Serving.Answer(ctx, call, state, service.ServedAnswer{}, f)
	}
	return out, err
}

// until returns a context for the run of a call. It ends with the call if the client cancels it, so that the run
// ends too, and with the client, which usually leaves the run to be resumed.
func (s *Server) until(call context.Context, client string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	stop := endsWith(call, cancel, client)
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// endsWith makes the run of a call end with the call, until stop is called.
func endsWith(call context.Context, end context.CancelCauseFunc, client string) (stop func() bool) {
	return context.AfterFunc(call, func() {
		if cause := context.Cause(call); !errors.Is(cause, context.Canceled) { // the connection has ended
			end(fmt.Errorf("%w: %w", errGone, cause))
			return
		}
		end(service.Cancelled(client))
	})
}

// beatEvery is how often a client that asked for progress is notified that its call is in flight.
const beatEvery = 5 * time.Second

// progress notifies the client of the progress of its call, if it asked for that, until stop is called. watch never
// blocks.
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
			default: // the next view supersedes it
			}
		}
	}
	return watch, func() {
		close(ended)
		<-done
	}
}

// result returns the result of a call as its client reads it.
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

// waiting returns the answer to a call that has no result yet.
func (s *Server) waiting(out *service.Served) *sdk.CallToolResult {
	view := map[string]any{"status": out.Status, "run_id": out.Run}
	text := fmt.Sprintf("No result yet: run %s is %s.", out.Run, out.Status)
	switch {
	case out.Waits != nil:
		id, resumer := out.Waits.ApprovalID, s.Self
		if s.ByItself {
			resumer = service.Resumer(env.DriverServer, s.Self)
		}
		what, commands := service.NextCommands(s.Self, resumer, out.Run, out.Waits, false)
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
	view["message"] = text // some clients read nothing else
	return &sdk.CallToolResult{
		Content: []sdk.Content{&sdk.TextContent{Text: text}}, StructuredContent: view,
		Meta: sdk.Meta{"toolcrib/run_id": string(out.Run)},
	}
}

// failed returns the answer to a call that failed.
func (s *Server) failed(err error) *sdk.CallToolResult {
	text := guard.Visible(s.Mask(err.Error()))
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}, IsError: true}
}

// collect is the tool that fetches the result of a call that waited.
var collect = &sdk.Tool{
	Name: "collect_result",
	Description: "Fetch what became of a call that waits for a person, by the approval_id in its answer. " +
		"It waits for the decision for up to 20 seconds.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{"approval_id":{"type":"string",` +
		`"description":"as the waiting call gave it"}},"required":["approval_id"],"additionalProperties":false}`),
	Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true},
}

// patience is how long collect_result waits. Clients give up on a call after a minute.
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
	run, stop := s.until(ctx, clientOf(req))
	defer stop()
	_, stopped := s.progress(ctx, req)
	defer stopped()
	out, err := s.Serving.Collect(run, in.ID, patience)
	if err != nil {
		return s.failed(err), nil
	}
	return s.result(out), nil
}
