package serve

import "time"

// Sweep ends what is no longer to be there, as if the last request had been so much earlier.
func (h *HTTP) Sweep(earlier time.Duration) {
	for _, d := range h.all() {
		h.mu.Lock()
		d.last = d.last.Add(-earlier)
		h.mu.Unlock()
		h.sweep(d, d.service != h.Service())
	}
}

// Desks returns how many sessions, and clients without one, are served.
func (h *HTTP) Desks() int { return len(h.all()) }

// Patient gives calls whose client has gone so long to end, until back is called.
func Patient(to time.Duration) (back func()) {
	before := ending
	ending = to
	return func() { ending = before }
}
