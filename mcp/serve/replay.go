package serve

import (
	"context"
	"errors"
	"iter"
	"sync"
)

// The bounds of what is kept of a session, so that a client whose connection broke in the middle of
// a call reads the rest.
const (
	keptBytes   = 1 << 20
	keptEvents  = 1000
	keptStreams = 4096
)

// replay keeps the events of calls, as an [sdk.EventStore]. What is too old or too large is gone. What
// the server says by itself is not kept: it says no more than that something has changed.
type replay struct {
	mu       sync.Mutex
	sessions map[string]*keptSession
}

// keptSession are the events of a session in their order.
type keptSession struct {
	streams []string
	events  []keptEvent
	bytes   int
	next    map[string]int // the index of the next event, by stream
}

type keptEvent struct {
	stream string
	index  int
	data   []byte
}

var errNotKept = errors.New("the events of this stream are not kept any longer")

// Open implements [sdk.EventStore].
func (r *replay) Open(_ context.Context, session, stream string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions == nil {
		r.sessions = map[string]*keptSession{}
	}
	s := r.sessions[session]
	if s == nil {
		s = &keptSession{next: map[string]int{}}
		r.sessions[session] = s
	}
	s.next[stream] = 0
	if s.streams = append(s.streams, stream); len(s.streams) > keptStreams {
		delete(s.next, s.streams[0])
		s.streams = s.streams[1:]
	}
	return nil
}

// Append implements [sdk.EventStore].
func (r *replay) Append(_ context.Context, session, stream string, data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sessions[session]
	switch {
	case s == nil:
		return errNotKept
	case stream == "":
		return nil
	}
	s.events = append(s.events, keptEvent{stream, s.next[stream], data})
	s.next[stream]++
	for s.bytes += len(data); s.bytes > keptBytes || len(s.events) > keptEvents; s.events = s.events[1:] {
		s.bytes -= len(s.events[0].data)
		s.events[0].data = nil
	}
	return nil
}

// After implements [sdk.EventStore].
func (r *replay) After(_ context.Context, session, stream string, index int) iter.Seq2[[]byte, error] {
	rest, err := r.after(session, stream, index)
	return func(yield func([]byte, error) bool) {
		if err != nil {
			yield(nil, err)
			return
		}
		for _, data := range rest {
			if !yield(data, nil) {
				return
			}
		}
	}
}

func (r *replay) after(session, stream string, index int) (rest [][]byte, err error) {
	if stream == "" {
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sessions[session]
	if s == nil {
		return nil, errNotKept
	}
	for _, e := range s.events {
		if e.stream == stream && e.index > index {
			rest = append(rest, e.data)
		}
	}
	if next, ok := s.next[stream]; !ok || len(rest) != max(next-index-1, 0) {
		return nil, errNotKept
	}
	return rest, nil
}

// SessionClosed implements [sdk.EventStore].
func (r *replay) SessionClosed(_ context.Context, session string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions, session)
	return nil
}
