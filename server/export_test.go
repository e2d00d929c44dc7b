package server

import "time"

// Slow changes how long a client of a new WebSocket may take to read an event.
func (s *Server) Slow(d time.Duration) { s.sockets.slow = d }

// SetMaxConnections changes how many connections the server has at a time.
func (s *Server) SetMaxConnections(n int) {
	s.connections.mu.Lock()
	defer s.connections.mu.Unlock()
	s.connections.most = n
}

// Connections returns how many connections the server has.
func (s *Server) Connections() int {
	s.connections.mu.Lock()
	defer s.connections.mu.Unlock()
	return len(s.connections.all)
}

// MaxBodies and MaxOpenBodies bound the bodies of a user and an address that are being read, and Bodies returns their number.
const (
	MaxBodies     = maxBodies
	MaxOpenBodies = maxOpenBodies
)

func (s *Server) Bodies(user string) int {
	s.bodies.mu.Lock()
	defer s.bodies.mu.Unlock()
	return s.bodies.of[user]
}

// SetRetryWindow changes how long a client may take to retry.
func (s *Server) SetRetryWindow(d time.Duration) {
	s.asking.mu.Lock()
	defer s.asking.mu.Unlock()
	s.asking.window = d
}

// KeepRequests changes how many requests are kept for a retry, and Kept returns their number.
func (s *Server) KeepRequests(n int) { s.asking.most = n }

func (s *Server) Kept() int {
	s.asking.mu.Lock()
	defer s.asking.mu.Unlock()
	return s.asking.count
}
