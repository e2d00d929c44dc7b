package remote

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/client"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

// Start starts a run on the server, and watches it until it ends or pauses.
func (r *Service) Start(
	ctx context.Context, _ toolcrib.Principal, q service.StartRequest, f service.Front,
) (service.Run, error) {
	w := r.watched(f)
	switch {
	case q.From != "": // the server finds the conversation itself
		q.Continue = true
	case q.Begins: // the server needs a name for a new session
		q.Session = "chat-" + strings.ToLower(rand.Text()[:8])
	}
	if q.Given != nil {
		return w.watch(ctx, nil, func(ctx context.Context) error {
			out, err := send[api.ToolCalled](ctx, r, http.MethodPost, api.ToolCallRequest{
				Target: q.Given.Name, Body: raw(q.Given), Agent: q.Agent, Skills: q.Skills, ReadOnly: q.ReadOnly,
				Approve: wire(q.Approve), Detach: true, Tools: q.Tools, SessionID: q.Session,
			}, "tools", "call")
			if err != nil {
				return err
			}
			w.begun(out.Run)
			return w.c.Follow(ctx, out.Run, 0, client.UntilPause, w.event)
		})
	}
	return w.watch(ctx, nil, w.begins(client.Path("runs"), r.body(q), "", 0))
}

// Detach starts a run on the server, and does not watch it.
func (r *Service) Detach(ctx context.Context, _ toolcrib.Principal, q service.StartRequest) (service.Run, error) {
	body := r.body(q)
	body.Detach = true
	return send[service.Run](ctx, r, http.MethodPost, body, "runs")
}

// body returns the body of the request for a run.
func (r *Service) body(q service.StartRequest) api.RunRequest {
	body := api.RunRequest{
		Agent: q.Agent, Input: q.Prompt, Tools: q.Tools, Skills: q.Skills, ReadOnly: q.ReadOnly, SessionID: q.Session,
		Model: q.Model, Continue: q.Continue, Approve: wire(q.Approve), ToolChoice: (*api.ToolChoice)(q.ToolChoice),
		Compact: q.Compact, Again: q.Again, Taint: q.Taint,
	}
	if q.MaxIterations > 0 {
		body.Limits = &api.Limits{MaxIterations: &q.MaxIterations}
	}
	for _, file := range q.Files {
		body.Files = append(body.Files, api.File{Name: file.Name, Data: file.Data})
	}
	return body
}

// Resume continues a run and watches it. After a decision the server continues its runs itself; these are only watched.
func (r *Service) Resume(
	ctx context.Context, _ toolcrib.Principal, q service.ResumeRequest, f service.Front,
) (service.Run, error) {
	w := r.watched(f)
	// Runs of a command line do not continue by themselves; the request below returns an error that says so.
	if decided := r.decided; q.Decided && decided != nil && decided.Driver == "server" {
		w.begun(decided.ID)
		return w.watch(ctx, decided, func(ctx context.Context) error {
			return w.c.Follow(ctx, decided.ID, decided.LastSeq, client.UntilPause, w.event)
		})
	}
	named, top, err := r.top(ctx, q.Run)
	if err != nil {
		return service.Run{}, err
	}
	if top.ID != named.ID && !q.Decided {
		r.Notice(fmt.Sprintf("run %s is part of run %s; the run at the top continues", named.ID, named.ParentID))
	}
	path, body := client.Path("runs", string(named.ID), "resume"), api.ResumeRequest{
		Approve: wire(q.Approve), Message: q.Message, Model: q.Model, AddIterations: q.Add.Iterations, AddCost: q.Add.CostUSD,
		AddTokens: q.Add.Tokens, AddRequests: q.Add.Requests,
	}
	if top.Status == toolcrib.StatusFailed { // a failed run continues as a new run
		return w.watch(ctx, nil, w.begins(path, body, "", 0))
	}
	w.begun(top.ID)
	return w.watch(ctx, &top, w.begins(path, body, top.ID, top.LastSeq))
}

// Fork starts a run from a round of another run, and watches it.
func (r *Service) Fork(
	ctx context.Context, _ toolcrib.Principal, q service.ForkRequest, f service.Front,
) (service.Run, error) {
	of, err := r.id(ctx, "runs", "run_", q.Run)
	if err != nil {
		return service.Run{}, err
	}
	body := api.ForkRequest{Input: q.Prompt, Approve: wire(q.Approve)}
	if q.Round > 0 {
		body.Round = &q.Round
	}
	w := r.watched(f)
	return w.watch(ctx, nil, w.begins(client.Path("runs", of, "fork"), body, "", 0))
}

// watched is a run of the server that is being watched.
type watched struct {
	r          *Service
	c          *client.Client // follows the run
	front      service.Front
	after      toolcrib.Seq    // number of the last event received
	unanswered map[string]bool // IDs of approvals that the person left open
	asked      sync.Map        // IDs of approvals of running calls that were shown
	asks       sync.WaitGroup  // questions of running calls
	ctx        context.Context // context of these questions
	received   bool            // whether an event was received, so that the run exists
	ended      bool            // whether the last event ended the run
	run        atomic.Value    // ID of the run; nil until it is known
}

func (r *Service) watched(f service.Front) *watched {
	w := &watched{r: r, c: r.Client, front: f, unanswered: map[string]bool{}}
	if f.Person != nil {
		w.c = r.Attending()
	}
	return w
}

func (w *watched) begun(run toolcrib.RunID) { w.run.Store(run) }

func (w *watched) id() toolcrib.RunID {
	run, _ := w.run.Load().(toolcrib.RunID)
	return run
}

// begins returns a function that sends the request to start or continue the run, and follows it.
func (w *watched) begins(
	path string, body any, run toolcrib.RunID, after toolcrib.Seq,
) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := w.c.Begin(ctx, path, body, run, after, w.event)
		return err
	}
}

// event handles an event of the run.
func (w *watched) event(e client.Event) error {
	f, err := e.Frame()
	if err != nil {
		return err
	}
	if started, ok := f.Data.(journal.StartedView); ok {
		w.begun(started.RunID)
	}
	w.received, w.after = true, max(w.after, e.Seq)
	w.ended = e.Name == string(journal.KindDone) || e.Name == string(journal.KindError)
	if ask, ok := f.Data.(journal.ConfirmationView); ok && e.Seq == 0 {
		w.askMeanwhile(&ask)
		return nil
	}
	if w.front.Watch != nil {
		w.front.Watch(f)
	}
	return nil
}

// watch follows the run, and asks the person what it waits for. If ctx ends because the person
// cancels, the run is cancelled and followed to its end. If ctx ends for another reason, the run
// continues on the server.
func (w *watched) watch(
	ctx context.Context, before *service.Run, begin func(context.Context) error,
) (service.Run, error) {
	following, leave := context.WithCancelCause(context.WithoutCancel(ctx))
	cancelled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cancelled)
		w.cancel(ctx, following, leave)
	})
	defer func() {
		if leave(nil); !stop() {
			<-cancelled
		}
	}()
	if w.front.Driving != nil {
		w.front.Driving(before)
	}
	if before != nil {
		w.after = before.LastSeq
	}
	defer w.asks.Wait()
	asking, leaveThem := context.WithCancel(ctx)
	defer leaveThem()
	w.ctx = asking
	defer w.saying(following)()
	err := begin(following)
	for {
		if err != nil && !w.received {
			return service.Run{}, err // no run was started
		} else if err != nil {
			return service.Run{ID: w.id()}, err
		}
		run, err := w.look(following)
		if err != nil {
			return service.Run{ID: w.id()}, err
		}
		continues, err := w.ask(ctx, &run)
		switch {
		case err != nil:
			return run, err
		case ctx.Err() != nil && run.Status.Parked():
			<-cancelled
			why := context.Cause(following)
			if cancel := (*agent.CancelError)(nil); errors.As(why, &cancel) {
				return run, why
			}
			continues = why == nil
		}
		// The run may have continued since it was read; then its other events must be followed.
		all := w.ended || run.Status.Ended() && run.LastSeq <= w.after
		if !continues && (all || run.Status.Parked()) {
			return run, nil
		}
		seen := w.after
		if err = w.c.Follow(following, run.ID, w.after, client.UntilPause, w.event); err != nil {
			return run, err
		}
		if w.after == seen { // the run has not been continued yet
			select {
			case <-time.After(sayEvery):
			case <-following.Done():
			}
		}
	}
}

// look reads the run. If the server is unavailable, it retries for lookWait.
func (w *watched) look(ctx context.Context) (run service.Run, err error) {
	for end := time.Now().Add(lookWait); ; time.Sleep(sayEvery) {
		run, err = w.r.Run(ctx, toolcrib.Principal{}, string(w.id()))
		if err == nil || !later(err) || ctx.Err() != nil || time.Now().After(end) {
			return run, err
		}
	}
}

// lookWait is how long reading a run is retried.
const lookWait = 20 * time.Second

// Timeouts of cancelling a run.
const (
	idWait     = 20 * time.Second // for its ID: the server may wait for MCP servers before
	idLook     = 20 * time.Millisecond
	cancelWait = 15 * time.Second // for its end
)

// cancel cancels the run if ctx was cancelled by the person, and otherwise stops following it.
func (w *watched) cancel(ctx, following context.Context, leave func(error)) {
	cause := context.Cause(ctx)
	var cancel *agent.CancelError
	if !errors.As(cause, &cancel) {
		leave(cause)
		return
	}
	for end := time.Now().Add(idWait); w.id() == "" && following.Err() == nil && time.Now().Before(end); {
		time.Sleep(idLook)
	}
	if w.id() == "" {
		leave(cause)
		return
	}
	asking, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), cancelWait, errors.New("it does not answer"))
	defer stop()
	var err error
	for again := true; again && asking.Err() == nil; time.Sleep(sayEvery) {
		if _, err = w.r.Cancel(asking, toolcrib.Principal{}, string(w.id())); err == nil {
			return
		}
		again = later(err)
		if toolcrib.CodeOf(err) == toolcrib.CodeConflict { // the run has just ended, or an approval was just decided
			run, look := w.r.Run(asking, toolcrib.Principal{}, string(w.id()))
			if look == nil && run.Status.Ended() {
				return
			}
			again = look == nil || later(look)
		}
	}
	leave(fmt.Errorf("%w, but the server was not told: %w", cause, err))
}

// later reports whether a failed request can be retried.
func later(err error) bool {
	var away *client.UnreachableError
	switch toolcrib.CodeOf(err) {
	case toolcrib.CodeOverloaded, toolcrib.CodeRateLimited, toolcrib.CodeCapacityExceeded, toolcrib.CodeTimeout:
		return true
	}
	return errors.As(err, &away)
}

// sayEvery is the interval of checks for messages of the person, and of retries.
const sayEvery = 200 * time.Millisecond

// saying sends messages of the person to the run, until stop is called. It retries while the server is unreachable.
func (w *watched) saying(ctx context.Context) (stop func()) {
	if w.front.Said == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	ended.Go(func() {
		tick, text := time.NewTicker(sayEvery), ""
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				if text != "" {
					w.r.Notice(fmt.Sprintf("%q was not sent: the run is no longer watched", text))
				}
				return
			case <-tick.C:
			}
			if text == "" && w.id() != "" {
				text = w.front.Said()
			}
			if text == "" {
				continue
			}
			path := client.Path("runs", string(w.id()), "message")
			err := w.r.Send(ctx, http.MethodPost, path, api.Said{Text: text}, nil)
			var away *client.UnreachableError
			switch {
			case err != nil && (ctx.Err() != nil || errors.As(err, &away) && !away.Sent()):
				continue
			case err != nil:
				w.r.Notice(fmt.Sprintf("%q was not sent: %v", text, err))
			}
			text = ""
		}
	})
	return func() {
		cancel()
		ended.Wait()
	}
}

// ask asks the person what a parked run, or runs below it, wait for, repeating questions whose answers are invalid.
// continues is false if nothing was decided.
func (w *watched) ask(ctx context.Context, run *service.Run) (continues bool, err error) {
	if w.front.Person == nil || run.Pending == nil || run.Pending.Error != nil {
		return false, nil
	}
	all, err := w.waiting(ctx, run)
	if ctx.Err() != nil {
		return false, nil
	}
	for _, at := range all {
		if w.unanswered[at.Pending.ApprovalID] {
			continue
		}
		decided, err := w.askOne(ctx, at)
		if ctx.Err() != nil || err != nil {
			return false, err
		}
		continues, w.unanswered[at.Pending.ApprovalID] = continues || decided, !decided
	}
	return continues || err == nil && len(all) == 0, err // if none waits, it was decided meanwhile
}

// askMeanwhile asks a question of a running call, while the run continues. Without an answer it declines, because the
// call waits as long as a person is watching.
func (w *watched) askMeanwhile(v *journal.ConfirmationView) {
	if _, shown := w.asked.LoadOrStore(v.ApprovalID, true); shown {
		return
	}
	at := &service.Run{ID: v.RunID, User: w.r.Me.User, Pending: &api.Pending{
		Pending: journal.Pending{
			ApprovalID: v.ApprovalID, Digest: v.Digest, Kind: string(v.Kind), Question: v.Question, Schema: v.Schema,
		},
		Reason: v.Reason,
	}}
	for _, c := range v.Calls {
		at.Pending.Calls = append(at.Pending.Calls, api.PendingCall{ApprovalItem: c})
	}
	w.asks.Go(func() {
		decided, err := w.askOne(w.ctx, at)
		if !decided && err == nil && w.ctx.Err() == nil {
			no := &service.Decision{Digest: v.Digest, CallDecision: journal.CallDecision{Decision: journal.DecisionDeny}}
			_, err = w.r.decide(w.ctx, v.ApprovalID, no, false, nil)
		}
		if err != nil && w.ctx.Err() == nil {
			if later(err) {
				w.asked.Delete(v.ApprovalID) // the server repeats the question
			}
			w.r.Notice(err.Error())
		}
	})
}

// waiting returns the run and the runs below it that wait themselves, not for a run below them.
func (w *watched) waiting(ctx context.Context, run *service.Run) (all []*service.Run, err error) {
	if run.Pending != nil && run.Pending.Run == "" {
		return []*service.Run{run}, nil
	}
	for _, c := range run.Children {
		if !c.Status.Parked() {
			continue
		}
		below, err := w.r.Run(ctx, toolcrib.Principal{}, string(c.RunID))
		if err != nil {
			return nil, err
		}
		more, err := w.waiting(ctx, &below)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// askOne asks what one run waits for. decided is false if it still waits.
func (w *watched) askOne(ctx context.Context, at *service.Run) (decided bool, err error) {
	ask := at.Pending.Ask()
	q := service.Question{
		Run: at.ID, Ask: *ask, Another: w.r.NeedsAnother(w.r.Who(), at.User), Session: at.SessionID != "",
	}
	if ask.ApprovalID == "" || ask.Kind == journal.ApprovalCall && q.Another {
		return false, nil
	}
	switch {
	case ask.Kind != journal.ApprovalInput:
		q.Ask.Calls = at.Pending.Open()
	case len(ask.Calls) == 0:
		limit := service.LimitOf(ask.Reason)
		q.Limit = &limit
	}
	for {
		a, ok, err := w.front.Person.Answer(ctx, q)
		if err == nil && ok {
			err = w.answer(ctx, &q, a)
		}
		switch code := toolcrib.CodeOf(err); {
		case ctx.Err() != nil:
			return false, nil
		case err == nil && ok, code == toolcrib.CodeConflict: // someone else has decided first
			return true, nil
		case code == toolcrib.CodeBadRequest || code == toolcrib.CodeSchemaMismatch:
			q.Problem = err.Error()
			continue
		case code == toolcrib.CodeForbidden:
			w.r.Notice(err.Error())
		case err != nil:
			return false, err
		}
		return false, nil
	}
}

// answer sends an answer of the person.
func (w *watched) answer(ctx context.Context, q *service.Question, a service.Answer) error {
	if q.Limit != nil && a.Decision == "" {
		add, err := q.Limit.More(a.Text)
		if err != nil {
			return err
		}
		return w.r.Send(ctx, http.MethodPost, client.Path("runs", string(q.Run), "resume"), api.ResumeRequest{
			AddIterations: add.Iterations, AddCost: add.CostUSD, AddTokens: add.Tokens, AddRequests: add.Requests,
			Detach: true,
		}, nil)
	}
	d := service.Decision{Digest: q.Ask.Digest, Reason: a.Reason, Remember: a.Remember, Each: a.Calls}
	if len(a.Calls) == 0 {
		d.Decision = a.Decision
	}
	if a.Decision == journal.DecisionAnswer {
		text, err := json.Marshal(a.Text)
		if err != nil {
			return err
		}
		d.Result = text
	}
	_, err := w.r.decide(ctx, q.Ask.ApprovalID, &d, false, nil)
	return err
}
