package tui

import (
	"slices"
	"sync"
)

// Bounds of what waits to be shown.
const (
	maxWaiting      = 20_000  // items; more of a run than limits allow
	maxWaitingBytes = 8 << 20 // of text that streams; the whole reply follows as one event anyway
)

// showable is something to show.
type showable interface{ show(m *model) }

type itemFunc func(m *model)

func (f itemFunc) show(m *model) { f(m) }

// streamItem is text that streams: an answer, or a thought.
type streamItem struct {
	thought bool
	text    []byte
}

func (s *streamItem) show(m *model) {
	if s.thought {
		m.think(string(s.text))
	} else {
		m.token(string(s.text))
	}
}

// queue holds messages of the person until they can be sent.
type queue struct {
	mu    sync.Mutex
	lines []string
}

func (q *queue) all() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.lines)
}

// add is false if too many wait already.
func (q *queue) add(line string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines) >= maxQueued {
		return false
	}
	q.lines = append(q.lines, line)
	return true
}

// next takes the oldest message if it is fit; "" if it is not.
func (q *queue) next(fit func(line string) bool) (line string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines) == 0 || !fit(q.lines[0]) {
		return ""
	}
	line, q.lines = q.lines[0], q.lines[1:]
	return line
}

// clear takes all of them.
func (q *queue) clear() (lines []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines, q.lines = q.lines, nil
	return lines
}

// feed is a queue between those who do something and the screen. Putting never
// blocks: text that streams is joined while it waits, and dropped where it would
// outgrow its bounds.
type feed struct {
	mu    sync.Mutex
	items []showable
	bytes int
	queue queue         // of the person, the other way round
	ready chan struct{} // has one element while there are items
}

func newFeed() *feed { return &feed{ready: make(chan struct{}, 1)} }

func (f *feed) put(it showable) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one, ok := it.(*streamItem); ok {
		if f.bytes += len(one.text); f.bytes > maxWaitingBytes {
			return
		}
		if n := len(f.items); n > 0 {
			if last, ok := f.items[n-1].(*streamItem); ok && last.thought == one.thought {
				last.text = append(last.text, one.text...)
				return
			}
		}
	} else if _, must := it.(questionItem); !must && len(f.items) >= maxWaiting {
		return
	}
	f.items = append(f.items, it)
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

// take returns what waits, in its order.
func (f *feed) take() []showable {
	f.mu.Lock()
	defer f.mu.Unlock()
	items := f.items
	f.items, f.bytes = nil, 0
	select {
	case <-f.ready:
	default:
	}
	return items
}
