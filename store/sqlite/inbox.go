package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// PutMessage implements [store.Inbox].
func (s *Store) PutMessage(ctx context.Context, run toolcrib.RunID, m store.Message) error {
	if run == "" || m.ID == "" {
		return errors.New("sqlite: message: a run ID and an ID are needed")
	}
	if len(m.Text) > store.MaxMessageBytes {
		return fmt.Errorf("a message of %d bytes, at most %d: %w", len(m.Text), store.MaxMessageBytes, store.ErrTooLarge)
	}
	m.At = wholeMicro(m.At)
	m.Text, m.By = text(m.Text), text(m.By)
	return s.write(ctx, &job{barrier: true, bytes: len(m.Text), do: func(t *tx) error { return t.putMessage(run, &m) }})
}

func (t *tx) putMessage(run toolcrib.RunID, m *store.Message) error {
	var ended bool
	var unread int
	err := t.row(`SELECT ended_at IS NOT NULL, (SELECT count(*) FROM inbox WHERE run_id = id) FROM runs WHERE id = ?`,
		[]any{string(run)}, &ended, &unread)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return reject(fmt.Errorf("run %s: %w", run, toolcrib.ErrNotFound))
	case err != nil:
		return err
	case ended:
		return reject(fmt.Errorf("run %s has ended: %w", run, toolcrib.ErrConflict))
	case unread >= store.MaxUnread:
		return reject(store.ErrInboxFull)
	}
	seal := t.w.keys.SealMessage(run, m)
	_, err = t.exec("INSERT INTO inbox (run_id, message, text, author, at, seal) VALUES (?,?,?,?,?,?)", string(run), m.ID,
		m.Text, m.By, m.At.UnixMicro(), seal[:])
	return err
}

// Messages implements [store.Inbox].
func (s *Store) Messages(ctx context.Context, run toolcrib.RunID) (all []store.Message, err error) {
	err = s.readers.each(ctx, "SELECT message, text, author, at, seal FROM inbox WHERE run_id = ? ORDER BY num",
		[]any{string(run)}, func(scan scanFunc) error {
			var m store.Message
			var at int64
			var seal []byte
			if err := scan(&m.ID, &m.Text, &m.By, &at, &seal); err != nil {
				return err
			}
			m.At = store.Micro(at)
			all = append(all, m)
			if !s.keys.SealMessage(run, &m).Holds(seal) {
				return &store.Error{
					Kind: store.ErrCorrupt, Path: s.path, Err: fmt.Errorf("a message to run %s was changed from outside", run),
				}
			}
			return nil
		})
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	return all, nil
}

// readMessages takes the messages out of the inbox of a run that rows say were read, and all at
// its end. It rejects the job before it has written anything.
func (t *tx) readMessages(run toolcrib.RunID, rows []row) error {
	var read []string
	end, known := false, 0
	for i := range rows {
		switch b := rows[i].event.Body.(type) {
		case *journal.Said:
			if b.ID != "" {
				read = append(read, b.ID)
			}
		case *journal.Done:
			end, known = true, b.Unread
		case *journal.Error:
			end, known = true, b.Unread
		}
	}
	if end {
		var unread int
		err := t.row("SELECT count(*) FROM inbox WHERE run_id = ?", []any{string(run)}, &unread)
		switch {
		case err != nil:
			return err
		case unread == 0:
			return nil
		case unread > known+len(read):
			return reject(fmt.Errorf("run %s: %w", run, journal.ErrUnread))
		}
		_, err = t.exec("DELETE FROM inbox WHERE run_id = ?", string(run))
		return err
	}
	for _, id := range read {
		if _, err := t.exec("DELETE FROM inbox WHERE run_id = ? AND message = ?", string(run), id); err != nil {
			return err
		}
	}
	return nil
}
