package toolcribtest

import (
	"context"
	"sync"
)

// signal lets goroutines wait for a condition under a lock, and for a context too.
type signal struct{ ch chan struct{} }

// all wakes everybody; the lock is held.
func (s *signal) all() {
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

// wait returns nil as soon as met, which is called under lock, says so.
func (s *signal) wait(ctx context.Context, lock sync.Locker, met func() bool) error {
	for {
		lock.Lock()
		if met() {
			lock.Unlock()
			return nil
		}
		if s.ch == nil {
			s.ch = make(chan struct{})
		}
		ch := s.ch
		lock.Unlock()
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// hold waits for ch, if there is one, or for ctx.
func hold(ctx context.Context, ch <-chan struct{}) error {
	if ch == nil {
		return ctx.Err()
	}
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
