package service

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// Journal returns the whole journal of a run.
func (s *Service) Journal(ctx context.Context, who toolcrib.Principal, run toolcrib.RunID) iter.Seq2[toolcrib.Event,
	error] {
	return s.JournalAfter(ctx, who, run, 0)
}

// JournalAfter returns the events of a run after the one with a number.
func (s *Service) JournalAfter(
	ctx context.Context, who toolcrib.Principal, run toolcrib.RunID, after toolcrib.Seq,
) iter.Seq2[toolcrib.Event, error] {
	rec, err := s.Env.Find(ctx, who, string(run))
	if err != nil {
		return func(yield func(toolcrib.Event, error) bool) { yield(toolcrib.Event{}, err) }
	}
	return s.Env.ReadRun(ctx, who, rec.ID, after)
}

// event returns the event of a run with a number.
func (s *Service) event(
	ctx context.Context, who toolcrib.Principal, run toolcrib.RunID, seq toolcrib.Seq,
) (toolcrib.Event, error) {
	if seq > 0 {
		for e, err := range s.JournalAfter(ctx, who, run, seq-1) {
			if errors.Is(err, store.ErrPruned) {
				err = toolcrib.Errorf(toolcrib.CodeNotFound, "the content of run %s was pruned", run)
			}
			return e, err
		}
	}
	return toolcrib.Event{}, toolcrib.Errorf(toolcrib.CodeNotFound, "run %s has no event %d", run, seq)
}

// Event returns the event of a run with a number. If it is a request to a model, it also returns the state of the run
// just before it, which has what the model read; otherwise the state is nil.
func (s *Service) Event(
	ctx context.Context, who toolcrib.Principal, run toolcrib.RunID, seq toolcrib.Seq,
) (e toolcrib.Event, before *core.State, err error) {
	e, err = s.event(ctx, who, run, seq)
	if err != nil || e.Body.EventKind() != journal.KindModelRequest {
		return e, nil, err
	}
	before = core.NewState(run)
	for earlier, err := range s.JournalAfter(ctx, who, run, 0) {
		if err == nil && earlier.Seq < seq {
			err = core.Fold(before, earlier)
		}
		if err != nil {
			return e, nil, err
		}
		if earlier.Seq >= seq {
			break
		}
	}
	return e, before, nil
}

// WriteResult writes the whole result of a call, which may be longer than what the model has read. seq is the number of
// the event with the result. begin is called before the first byte, with the size.
func (s *Service) WriteResult(
	ctx context.Context, who toolcrib.Principal, run toolcrib.RunID, seq toolcrib.Seq, w io.Writer, begin func(size int64),
) error {
	e, err := s.event(ctx, who, run, seq)
	if err != nil {
		return err
	}
	r, _ := e.Body.(*journal.ToolResult)
	switch {
	case r == nil:
		return toolcrib.Errorf(toolcrib.CodeNotFound, "event %d of run %s has no result", seq, run)
	case r.Ref == "":
		begin(int64(len(r.Content)))
		_, err = io.WriteString(w, r.Content)
		return err
	}
	for offset := int64(0); ; {
		data, size, err := s.Env.Store.Range(ctx, run, r.Ref, offset, exportPiece)
		if err != nil {
			return err
		}
		if offset == 0 {
			begin(size)
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
		if offset += int64(len(data)); offset >= size || len(data) == 0 {
			return nil
		}
	}
}
