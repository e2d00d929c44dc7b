package bus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
)

// TraceEvent is the end of a call, at the calling or the serving node.
type TraceEvent struct {
	Time       time.Time     `json:"ts"`
	Trace      string        `json:"trace,omitempty"` // traceparent (W3C)
	ID         string        `json:"id"`
	Capability Name          `json:"capability"`
	From       Key           `json:"from"`
	To         Key           `json:"to,omitempty"` // "" if no node was found
	Local      bool          `json:"local,omitempty"`
	Served     bool          `json:"served,omitempty"` // by the serving node; a local call has this event only
	Result     toolcrib.Code `json:"result"`           // [ResultOK] or the code of the error
	Duration   time.Duration `json:"duration_ns"`
	MS         int64         `json:"duration_ms"`
	BytesIn    int           `json:"bytes_in"`  // of the body
	BytesOut   int           `json:"bytes_out"` // of frames and result
	TokensIn   int64         `json:"tokens_in,omitempty"`
	TokensOut  int64         `json:"tokens_out,omitempty"`
	Frames     int           `json:"frames,omitempty"`
}

// ResultOK is the result of a call without an error.
const ResultOK toolcrib.Code = "ok"

// Counter counts the calls of a capability with a result.
type Counter struct {
	Capability string        `json:"capability"` // NAME@MAJOR.MINOR
	Served     bool          `json:"served"`     // by this node; otherwise this node called it
	Result     toolcrib.Code `json:"result"`
	Calls      int64         `json:"calls"`
	Duration   time.Duration `json:"duration_ns"` // of all of them
}

// ResultCanceled is the result of a call that its caller has canceled.
const ResultCanceled toolcrib.Code = "canceled"

const (
	maxCounters = 50_000
	maxUnknown  = 20 // events in a second of nodes without trust
)

// traces are the numbers of calls.
type traces struct {
	counters map[counted]*Counter
	since    time.Time
	unknown  int // events of nodes without trust since then
}

// unread counts messages that cannot be read, and forged calls.
var unread = counted{"other", true, toolcrib.CodeSignature}

type counted struct {
	capability string
	served     bool
	result     toolcrib.Code
}

// event returns the trace event of an exchange that ends.
func (x *Exchange) event(to Key) TraceEvent {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := TraceEvent{
		Trace: x.Trace, ID: x.ID, Capability: x.Name, From: x.node.self.Node, To: to, BytesIn: x.bytesIn,
		BytesOut: x.bytesOut, Frames: x.count,
	}
	if strings.HasPrefix(x.Name.Name, "llm.") {
		var r struct {
			Meta struct {
				In  int64 `json:"tokens_in"`
				Out int64 `json:"tokens_out"`
			} `json:"meta"`
			Out int64 `json:"tokens_out"`
		}
		if json.Unmarshal(x.result, &r) == nil { // others have no tokens
			e.TokensIn, e.TokensOut = r.Meta.In, cmp.Or(r.Meta.Out, r.Out)
		}
	}
	return e
}

// record adds the end of a call.
func (n *Node) record(e TraceEvent, began time.Time, err error) {
	e.Time, e.Duration = n.o.Now().UTC(), time.Since(began)
	e.MS = e.Duration.Milliseconds()
	switch e.Result = toolcrib.CodeOf(err); {
	case err == nil:
		e.Result = ResultOK
	case errors.Is(err, errCanceled):
		e.Result = ResultCanceled
	case errors.Is(err, context.DeadlineExceeded):
		e.Result = toolcrib.CodeTimeout
	}
	n.count(counted{e.Capability.String(), e.Served, e.Result}, e.Duration)
	if n.o.Trace != nil {
		n.o.Trace(e)
	}
}

// count counts a call.
func (n *Node) count(key counted, took time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := &n.traces
	if t.counters[key] == nil {
		if t.counters == nil {
			t.counters = map[counted]*Counter{}
		}
		if key.result == toolcrib.CodeNotFound || len(t.counters) >= maxCounters {
			key.capability = unread.capability // callers choose the name
		}
		if t.counters[key] == nil {
			t.counters[key] = &Counter{Capability: key.capability, Served: key.served, Result: key.result}
		}
	}
	t.counters[key].Calls++
	t.counters[key].Duration += took
}

// noteworthy reports whether the call of a node without trust is traced. Forged calls, and those beyond 20 a second,
// are only counted.
func (n *Node) noteworthy(err error) bool {
	note := toolcrib.CodeOf(err) != toolcrib.CodeSignature
	if now := time.Now(); note {
		n.mu.Lock()
		t := &n.traces
		if now.Sub(t.since) >= time.Second {
			t.since, t.unknown = now, 0
		}
		t.unknown++
		note = t.unknown <= maxUnknown
		n.mu.Unlock()
	}
	if !note {
		key := unread
		key.result = cmp.Or(toolcrib.CodeOf(err), ResultOK)
		n.count(key, 0)
	}
	return note
}

// Counters returns the numbers of calls since the start, sorted. The capability "other" counts calls that are not
// found, are forged or cannot be read, and those beyond 20 a second of nodes without trust.
func (n *Node) Counters() []Counter {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []Counter
	for _, c := range n.traces.counters {
		all = append(all, *c)
	}
	calling := map[bool]int{false: 1} // after serving
	slices.SortFunc(all, func(a, b Counter) int {
		return cmp.Or(strings.Compare(a.Capability, b.Capability), calling[a.Served]-calling[b.Served],
			strings.Compare(string(a.Result), string(b.Result)))
	})
	return all
}
