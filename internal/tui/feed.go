package tui

import "sync"

// Bounds of what waits to be shown.
const (
	maxWaiting      = 20_000  // items; more of a run than limits allow
	maxWaitingBytes = 8 << 20 // of text that streams; the whole reply follows as one event anyway
)

// streamItem is text that streams: an answer, or a thought.
type streamItem struct {
	thought bool
	text    []byte
}

// feed is a queue between those who do something and the screen. Putting never
// blocks: text that streams is joined while it waits, and dropped where it would
// outgrow its bounds.
type feed struct {
	mu    sync.Mutex
	items []any
	bytes int
	ready chan struct{} // has one element while there are items
}

func newFeed() *feed { return &feed{ready: make(chan struct{}, 1)} }

func (f *feed) put(item any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one, ok := item.(*streamItem); ok {
		if f.bytes += len(one.text); f.bytes > maxWaitingBytes {
			return
		}
		if last, ok := f.last().(*streamItem); ok && last.thought == one.thought {
			last.text = append(last.text, one.text...)
			return
		}
	} else if _, must := item.(questionItem); !must && len(f.items) >= maxWaiting {
		return
	}
	f.items = append(f.items, item)
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

func (f *feed) last() any {
	if len(f.items) == 0 {
		return nil
	}
	return f.items[len(f.items)-1]
}

// take returns what waits, in its order.
func (f *feed) take() []any {
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
