package server

import "time"

// SetRetryWindow changes how long a client may take to come back.
func (s *Server) SetRetryWindow(d time.Duration) { s.asking.window = d }
