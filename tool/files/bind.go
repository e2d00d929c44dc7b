package files

import (
	"context"
	"fmt"
	"slices"

	"github.com/toolcrib/toolcrib"
)

// maxBoundBytes is how large a file may be for an approval to be bound to its content.
// A larger one is told by what it is in the file system, its size and when it was
// changed last: reading it would take too long for a question.
const maxBoundBytes = 64 << 20

// Bind tells what the file of the call is now. It refuses nothing: what cannot be
// written fails when it is tried.
func (t *writer) Bind(ctx context.Context, call toolcrib.Call) ([]toolcrib.FileState, error) {
	name, err := t.path(call)
	if err != nil {
		return nil, err
	}
	w, err := t.set.open(call)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	var state toolcrib.FileState
	err = w.at(ctx, name, func(p place) error {
		now := version{info: p.info}
		if p.info != nil && p.info.Mode().IsRegular() && p.info.Size() <= maxBoundBytes {
			if now, err = w.version(ctx, p); err != nil && settled(err) {
				now, err = version{info: p.info}, nil // it cannot be read
			}
		}
		state = toolcrib.FileState{Path: w.Abs(p.real), State: now.state()}
		return err
	})
	return []toolcrib.FileState{state}, err
}

// state is the same for the same content, as far as that is known.
func (v version) state() string {
	switch {
	case v.info == nil:
		return toolcrib.FileAbsent
	case v.hash == "" || v.info.Size() > maxBoundBytes:
		return fmt.Sprintf("%s %s %d %d", v.info.Mode(), fileID(v.info), v.info.Size(), v.info.ModTime().UnixNano())
	}
	return "sha256:" + v.hash
}

// approved refuses to write a file that is not what it was when a person approved the
// call, unless what differs is what this very run has written since: calls of a turn are
// approved together. planned is why the write cannot be made at all; nil = it can.
func (s *settings) approved(call toolcrib.Call, abs, shown string, now version, planned error) error {
	if len(call.Approved) == 0 || planned != nil && now.hash == "" {
		return planned
	}
	was := call.Approved[0]
	if was.Path == abs && (was.State == now.state() || s.followed(call.Run, abs, was.State, now.state())) {
		return planned
	}
	return toolcrib.Failf(toolcrib.ExecutionFailed, "%s was changed by somebody else after the call was approved; nothing was written, read it again", shown)
}

// ownWrite is what a run has made of a file.
type ownWrite struct {
	from []string // the states that the run has replaced, each by the next
	to   string
}

// The bounds of what is known of own writes. What is forgotten is somebody else's.
const (
	maxOwnFiles  = 4096
	maxOwnStates = 64
)

type ownKey struct {
	run toolcrib.RunID
	abs string
}

// wrote notes that a run has replaced a state of a file by another.
func (s *settings) wrote(run toolcrib.RunID, abs, from, to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written == nil {
		s.written = make(map[ownKey]ownWrite)
	}
	key := ownKey{run, abs}
	own := s.written[key]
	if own.to != from || len(own.from) == maxOwnStates {
		own.from = nil
	}
	if len(s.written) >= maxOwnFiles {
		clear(s.written)
	}
	s.written[key] = ownWrite{from: append(own.from, from), to: to}
}

// followed reports whether a run itself has made of one state of a file the other.
func (s *settings) followed(run toolcrib.RunID, abs, from, to string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.written[ownKey{run, abs}]
	return own.to == to && slices.Contains(own.from, from)
}
