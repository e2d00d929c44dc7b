package serve

import (
	"context"
	"errors"
	"iter"
	"sync"
)

// Bounds of the events that are kept of a session, so that a client whose connection broke during a call can read
// the rest.
const (
	keptBytes   = 1 << 20
	keptEvents  = 1000
	keptStreams = 4096
)

// replay keeps the newest events of the answers in a session, as an [sdk.EventStore]. Messages that the server sends
// on its own are not kept, because they only say that something has changed.
type replay struct {
	mu      sync.Mutex
	next    map[string]int // the index of the next event, by stream
	streams []string       // in the order in which they were opened
	events  []keptEvent    // in their order
	bytes   int
}

type keptEvent struct {
	stream string
	index  int
	data   []byte
}

var errNotKept = errors.New("the events of this stream are not kept any longer")

// Open implements [sdk.EventStore].
func (r *replay) Open(_ context.Context, _, stream string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if stream == "" {
		return nil
	}
	r.next[stream] = 0
	if r.streams = append(r.streams, stream); len(r.streams) > keptStreams {
		delete(r.next, r.streams[0])
		r.streams = r.streams[1:]
	}
	return nil
}

// Append implements [sdk.EventStore].
func (r *replay) Append(_ context.Context, _, stream string, data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	index, ok := r.next[stream]
	if !ok {
		return nil
	}
	r.next[stream]++
	r.events = append(r.events, keptEvent{stream, index, data})
	for r.bytes += len(data); r.bytes > keptBytes || len(r.events) > keptEvents; r.events = r.events[1:] {
		r.bytes -= len(r.events[0].data)
		r.events[0].data = nil
	}
	return nil
}

// After implements [sdk.EventStore]: all events after one, or an error.
func (r *replay) After(_ context.Context, _, stream string, index int) iter.Seq2[[]byte, error] {
	r.mu.Lock()
	defer r.mu.Unlock()
	var rest [][]byte
	for _, e := range r.events {
		if e.stream == stream && e.index > index {
			rest = append(rest, e.data)
		}
	}
	next, ok := r.next[stream]
	lost := stream != "" && (!ok || len(rest) < next-index-1)
	return func(yield func([]byte, error) bool) {
		if lost {
			yield(nil, errNotKept)
			return
		}
		for _, data := range rest {
			if !yield(data, nil) {
				return
			}
		}
	}
}

// SessionClosed implements [sdk.EventStore]. The store is dropped with its session.
func (*replay) SessionClosed(context.Context, string) error { return nil }
