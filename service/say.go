package service

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// Say keeps a message to a run durably. The model reads it before its next reply, whichever
// process drives the run; a parked run keeps it until it continues.
func (s *Service) Say(ctx context.Context, who toolcrib.Principal, run, text string) error {
	rec, err := s.find(ctx, who, run)
	if err != nil {
		return err
	}
	s.LearnSecrets()
	text = s.Mask.Clean(text)
	switch {
	case strings.TrimSpace(text) == "":
		return badRequestf("the message is empty")
	case len(text) > store.MaxMessageBytes:
		return toolcrib.Errorf(toolcrib.CodeTooLarge, "the message has more than %d bytes", store.MaxMessageBytes)
	case rec.Model == "":
		return toolcrib.Errorf(toolcrib.CodeConflict, "run %s is a single call without a model and reads no messages", rec.ID)
	}
	err = s.store.PutMessage(ctx, rec.ID, store.Message{
		ID: s.ids.next("msg_"), Text: text, By: agent.NameOf(who), At: time.Now(),
	})
	if errors.Is(err, toolcrib.ErrConflict) {
		err = toolcrib.Errorf(toolcrib.CodeConflict, "run %s has ended; start a run in its session, or fork it", rec.ID)
	}
	return err
}

// inbox returns the messages that a run has not read.
func (s *Service) inbox(ctx context.Context, run toolcrib.RunID) ([]journal.Said, error) {
	all, err := s.store.Messages(ctx, run)
	said := make([]journal.Said, len(all))
	for i, m := range all {
		said[i] = journal.Said{ID: m.ID, Text: m.Text, By: m.By}
	}
	return said, err
}
