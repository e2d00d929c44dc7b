package wire

import (
	"sync"
	"time"
)

// Memory caches for a while what was learned about models or a server. The zero value is
// ready to use. It is safe for concurrent use.
type Memory[T any] struct {
	mu    sync.Mutex
	known map[string]remembered[T]
}

type remembered[T any] struct {
	value T
	until time.Time
}

const maxMemory = 64

// Get returns the value of a name, if it has not expired.
func (m *Memory[T]) Get(name string) (value T, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.known[name]
	return r.value, time.Now().Before(r.until)
}

// Put stores a value for the duration keep.
func (m *Memory[T]) Put(name string, value T, keep time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= maxMemory {
		m.known = make(map[string]remembered[T])
	}
	m.known[name] = remembered[T]{value, time.Now().Add(keep)}
}
