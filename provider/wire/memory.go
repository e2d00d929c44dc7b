package wire

import (
	"sync"
	"time"
)

// Memory remembers for a while what was learned of models or a server. The zero value is
// ready; it is safe for use by many at once.
type Memory[T any] struct {
	mu    sync.Mutex
	known map[string]remembered[T]
}

type remembered[T any] struct {
	value T
	until time.Time
}

// maxMemory bounds what is remembered.
const maxMemory = 64

// Get returns what is known under a name.
func (m *Memory[T]) Get(name string) (value T, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.known[name]
	return r.value, time.Now().Before(r.until)
}

// Put remembers a value for that long.
func (m *Memory[T]) Put(name string, value T, keep time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= maxMemory {
		m.known = make(map[string]remembered[T])
	}
	m.known[name] = remembered[T]{value, time.Now().Add(keep)}
}
