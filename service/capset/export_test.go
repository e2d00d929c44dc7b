package capset

import "time"

// WaitFor has [Set.Need] wait for longer, however slow the machine is.
func (s *Set) WaitFor(d time.Duration) { s.find = d }
