package server

import "time"

// SetRetryWindow changes how long a client may take to come back.
func (s *Server) SetRetryWindow(d time.Duration) {
	s.asking.mu.Lock()
	defer s.asking.mu.Unlock()
	s.asking.window = d
}

// KeepRequests changes how many requests are kept for a retry, and Kept counts them.
func (s *Server) KeepRequests(n int) { s.asking.most = n }

func (s *Server) Kept() int {
	s.asking.mu.Lock()
	defer s.asking.mu.Unlock()
	return len(s.asking.by)
}
