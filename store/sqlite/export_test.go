package sqlite

import (
	"context"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// SystemEvents returns the events of the system journal after a number.
func (s *Store) SystemEvents(ctx context.Context, after toolcrib.Seq) (events []store.SystemEvent, err error) {
	err = eachEvent(ctx, s, systemEvents+"WHERE seq > ? ORDER BY seq", []any{int64(after)},
		func(_ int64, e *store.SystemEvent) error {
			events = append(events, *e)
			return nil
		})
	return events, err
}

// Limit sets the number of pages that the database may have.
func (s *Store) Limit(ctx context.Context, pages int) error {
	return s.writer.conn.run(ctx, fmt.Sprintf("PRAGMA max_page_count=%d", pages))
}
