package sqlite

import (
	"context"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlstore"
)

// SystemEvents returns the events of the system journal after a number.
func (s *Store) SystemEvents(ctx context.Context, after toolcrib.Seq) (events []store.SystemEvent, err error) {
	err = s.db.Read(ctx, func(c sqlstore.Conn) error {
		return c.Each(ctx, "SELECT seq, kind, time, payload, payload_hash, hash FROM system_events WHERE seq > ? ORDER BY seq",
			[]any{int64(after)}, func(scan sqlstore.Scan) error {
				var e store.SystemEvent
				err := scan(&e.Seq, &e.Kind, &e.Time, &e.Payload, &e.PayloadHash, &e.Hash)
				events = append(events, e)
				return err
			})
	})
	return events, err
}

// With returns options of a program that knows other steps of the schema.
func (o Options) With(steps sqlstore.Steps) Options {
	o.steps = steps
	return o
}

// Limit sets the number of pages that the database may have.
func (s *Store) Limit(ctx context.Context, pages int) error {
	return s.writer.run(ctx, fmt.Sprintf("PRAGMA max_page_count=%d", pages))
}
