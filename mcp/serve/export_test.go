package serve

import "time"

// Sweep removes expired sessions, as if the last request had been so much earlier.
func (h *HTTP) Sweep(earlier time.Duration) {
	for _, d := range h.all() {
		h.mu.Lock()
		d.last = d.last.Add(-earlier)
		h.mu.Unlock()
		h.sweep(d, d.service != h.Service())
	}
}

// Endpoints returns how many sessions, and clients without one, are served.
func (h *HTTP) Endpoints() int { return len(h.all()) }

// Requests returns how many requests are under way.
func (h *HTTP) Requests() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.requests {
		n += one
	}
	return n
}

// Calls returns how many calls are under way.
func (h *HTTP) Calls() (n int64) {
	for _, d := range h.all() {
		n += d.calls.Load()
	}
	return n
}

// Patient gives calls whose client has gone so long to end, until back is called.
func Patient(to time.Duration) (back func()) {
	before := ending
	ending = to
	return func() { ending = before }
}
