// Package telemetry makes traces (OpenTelemetry) and metrics (Prometheus) of the events that
// runs append to their journals. It hears what was written down, and nothing waits for it: what
// it cannot send is lost, never a run.
package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// maxRuns bounds the runs that are remembered; of those beyond, the journal is read again.
const maxRuns = 10_000

// rebuildTimeout bounds how long a journal is read of a run that is not remembered.
const rebuildTimeout = 5 * time.Second

// Observer hears the events of runs. Its zero value hears nothing.
type Observer struct {
	Traces  *Traces  // nil = no spans are made
	Metrics *Metrics // nil = nothing is counted
	Log     *slog.Logger

	mu   sync.Mutex
	runs map[toolcrib.RunID]*run
	// calledBy says which call of which run a child run answers, until it ends.
	calledBy map[toolcrib.RunID]caller
}

type caller struct {
	run  toolcrib.RunID
	call string
}

// Journal returns j, with what is appended to it heard. j must be the journal that runs are
// driven with.
func (o *Observer) Journal(j toolcrib.Journal) toolcrib.Journal {
	if o == nil || o.Traces == nil && o.Metrics == nil {
		return j
	}
	return &observed{Journal: j, o: o}
}

type observed struct {
	toolcrib.Journal
	o *Observer
}

// Append implements [toolcrib.Journal].
func (j *observed) Append(ctx context.Context, id toolcrib.RunID, after toolcrib.Seq,
	events ...toolcrib.Event,
) error {
	if err := j.Journal.Append(ctx, id, after, events...); err != nil {
		if !errors.Is(err, journal.ErrUnread) {
			j.o.forget(id) // somebody else drives it
		}
		return err
	}
	j.o.hear(ctx, j.Journal, id, after, events)
	return nil
}

// hear makes spans and counts of events that were appended. A fault in it costs no run.
func (o *Observer) hear(ctx context.Context, j toolcrib.Journal, id toolcrib.RunID, after toolcrib.Seq,
	events []toolcrib.Event,
) {
	defer func() {
		if fault := recover(); fault != nil {
			o.forget(id)
			if o.Log != nil {
				o.Log.Error("telemetry failed", "run", id, "panic", fault)
			}
		}
	}()
	r := o.known(id, after)
	if r == nil {
		if r = o.rebuilt(ctx, j, id, after); r == nil {
			return
		}
	}
	for _, e := range events {
		r.hear(ctx, j, e)
	}
	r.seq = after + toolcrib.Seq(len(events))
	if len(events) > 0 && leaves(events[len(events)-1].Body) {
		o.forget(id)
	}
}

// leaves reports whether a run has no driver after an event.
func leaves(b toolcrib.Body) bool {
	switch b.(type) {
	case *journal.Paused, *journal.Released, *journal.Done, *journal.Error:
		return true
	}
	return false
}

// known is what is remembered of a run up to an event; nil = nothing.
func (o *Observer) known(id toolcrib.RunID, after toolcrib.Seq) *run {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r := o.runs[id]; r != nil && r.seq == after {
		return r
	}
	return nil
}

// rebuilt reads what happened in a run so far, which is neither sent nor counted; nil = its
// journal cannot be read.
func (o *Observer) rebuilt(ctx context.Context, j toolcrib.Journal, id toolcrib.RunID, after toolcrib.Seq) *run {
	r := &run{o: o, id: id, seq: after, calls: map[string]*call{}}
	if after > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rebuildTimeout)
		defer cancel()
		r.past = true
		for e, err := range j.Read(ctx, id, 0) {
			if err != nil {
				return nil
			}
			if e.Seq > after {
				break
			}
			r.hear(ctx, j, e)
		}
		r.past = false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.runs = with(o.runs, id, r)
	return r
}

// with is a map with one more value. Others make room for it.
func with[V any](m map[toolcrib.RunID]V, id toolcrib.RunID, v V) map[toolcrib.RunID]V {
	if m == nil {
		m = map[toolcrib.RunID]V{}
	}
	for old := range m {
		if len(m) < maxRuns {
			break
		}
		delete(m, old)
	}
	m[id] = v
	return m
}

func (o *Observer) forget(id toolcrib.RunID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.runs, id)
}

// run is what is remembered of a run while it is driven here. Only its driver uses it.
type run struct {
	o    *Observer
	id   toolcrib.RunID
	seq  toolcrib.Seq // of the last event that was heard
	past bool         // what is heard was heard before

	agent   string
	began   time.Time
	models  []journal.ModelInfo
	request *journal.ModelRequest // that has no reply yet; nil = none
	sent    time.Time
	reply   *journal.Message // that is not settled yet; nil = none
	replied time.Time
	calls   map[string]*call // that have no result yet
	asked   *journal.ConfirmationRequired
	askedAt time.Time

	traced traced
}

// call is a call of a tool that has no result yet.
type call struct {
	journal.ToolCall
	began time.Time // zero = it has not begun
	span  trace.Span
}

// hear takes in one event.
func (r *run) hear(ctx context.Context, j toolcrib.Journal, e toolcrib.Event) {
	r.learn(e)
	if m := r.o.Metrics; m != nil && !r.past {
		m.count(r, e)
	}
	if r.o.Traces != nil {
		r.trace(ctx, j, e)
	}
	r.drop(e)
}

// learn notes what an event begins.
func (r *run) learn(e toolcrib.Event) {
	switch b := e.Body.(type) {
	case *journal.RunStarted:
		r.agent, r.began, r.models = b.Agent.Name, e.Time, b.Models
		if b.Given != nil {
			r.calls[b.Given.ID] = &call{ToolCall: journal.ToolCall{ToolCall: *b.Given}}
		}
	case *journal.ModelChosen:
		r.models = append(r.models[:len(r.models):len(r.models)], b.Model)
	case *journal.ModelRequest:
		r.request, r.sent, r.reply = b, e.Time, nil
	case *journal.Message:
		r.reply, r.replied = b, e.Time
	case *journal.ToolCall:
		r.calls[b.ID] = &call{ToolCall: *b}
	case *journal.ToolStarted:
		if c := r.calls[b.ID]; c != nil {
			c.began = e.Time
		}
	case *journal.ConfirmationRequired:
		r.asked, r.askedAt = b, e.Time
	case *journal.ChildStarted:
		r.o.mu.Lock()
		defer r.o.mu.Unlock()
		r.o.calledBy = with(r.o.calledBy, b.Run, caller{r.id, b.ID})
	}
}

// drop forgets what an event ends. What a decision leaves open is asked on.
func (r *run) drop(e toolcrib.Event) {
	switch b := e.Body.(type) {
	case *journal.ModelFailed:
		r.request = nil
	case *journal.Usage:
		r.request, r.reply = nil, nil
	case *journal.ToolResult:
		delete(r.calls, b.ToolCallID)
	case *journal.ConfirmationResolved:
		if r.answers(b) && !b.Open {
			r.asked = nil
		}
	case *journal.ChildEnded:
		r.o.mu.Lock()
		defer r.o.mu.Unlock()
		delete(r.o.calledBy, b.Run)
	}
}

// answers reports whether this decides what was asked last.
func (r *run) answers(b *journal.ConfirmationResolved) bool {
	return r.asked != nil && r.asked.ApprovalID == b.ApprovalID
}

// model is the model of the request that is on its way.
func (r *run) model() journal.ModelInfo {
	if r.request == nil || r.request.Model < 0 || r.request.Model >= len(r.models) {
		return journal.ModelInfo{Ref: other, ID: other, Provider: other}
	}
	return r.models[r.request.Model]
}
