// Package telemetry derives traces (OpenTelemetry) and metrics (Prometheus) from the events that runs
// append to their journals. It observes events after they are stored, and nothing waits for it: what it
// cannot send is lost, but runs are not affected.
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

// maxRuns bounds the runs whose state is in memory; the state of others is read from their journals again.
const maxRuns = 10_000

// rebuildTimeout bounds the time for reading the journal of such a run.
const rebuildTimeout = 5 * time.Second

// Observer observes the events of runs. Its zero value does nothing.
type Observer struct {
	Traces  *Traces  // if nil, no spans are created
	Metrics *Metrics // if nil, nothing is counted
	Log     *slog.Logger

	mu   sync.Mutex
	runs map[toolcrib.RunID]*run
	// calledBy maps child runs to the calls that they answer, until they end.
	calledBy map[toolcrib.RunID]caller
}

type caller struct {
	run  toolcrib.RunID
	call string
}

// Journal returns j with its appended events observed. Runs must be driven with the result.
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
			j.o.forget(id) // another process drives it
		}
		return err
	}
	j.o.hear(ctx, j.Journal, id, after, events)
	return nil
}

// hear observes events that were appended. A panic in it does not affect the run.
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

// known returns the state of a run after an event, or nil if it is not in memory.
func (o *Observer) known(id toolcrib.RunID, after toolcrib.Seq) *run {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r := o.runs[id]; r != nil && r.seq == after {
		return r
	}
	return nil
}

// rebuilt restores the state of a run from its journal; these events are neither sent nor counted. It
// returns nil if the journal cannot be read.
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

// with adds a value to a map, and removes others if it is full.
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

// run is the state of a run that is driven here. Only its driver uses it.
type run struct {
	o    *Observer
	id   toolcrib.RunID
	seq  toolcrib.Seq // last event
	past bool         // the events were observed before

	agent   string
	began   time.Time
	models  []journal.ModelInfo
	request *journal.ModelRequest // request without a reply yet, or nil
	sent    time.Time
	reply   *journal.Message // reply without usage yet, or nil
	replied time.Time
	calls   map[string]*call // calls without a result yet
	asked   *journal.ConfirmationRequired
	askedAt time.Time

	traced traced
}

// call is a call of a tool without a result yet.
type call struct {
	journal.ToolCall
	began time.Time // zero until it has begun
	span  trace.Span
}

// hear observes one event.
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

// learn records an activity that an event begins.
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

// drop removes an activity that an event ends. A partial decision leaves the question open.
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

// answers reports whether b resolves the last question.
func (r *run) answers(b *journal.ConfirmationResolved) bool {
	return r.asked != nil && r.asked.ApprovalID == b.ApprovalID
}

// model returns the model of the current request.
func (r *run) model() journal.ModelInfo {
	if r.request == nil || r.request.Model < 0 || r.request.Model >= len(r.models) {
		return journal.ModelInfo{Ref: other, ID: other, Provider: other}
	}
	return r.models[r.request.Model]
}
