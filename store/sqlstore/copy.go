package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// tables are the tables of the schema, except that of leases.
var tables = []string{
	"runs", "events", "said", "contents", "content_pieces", "docs", "counters", "inbox", "system_events", "system_head",
	"usage", "reservations", "token_calls", "token_minute", "files",
}

// The bounds of one statement that copies rows.
const (
	copyRows  = 16
	copyBytes = 4 << 20
)

// CopyTo copies the store into the new tables of another database, which is sealed with the same keys. All
// numbers, hashes and seals stay the same. Nothing is written to the store meanwhile, unless it is on a
// standby. c is in a transaction, which CopyTo does not commit.
func (s *Store) CopyTo(ctx context.Context, c Execer) error {
	copies := func(from Conn) error {
		sn := snapshot{from}
		if err := checkIdle(ctx, sn); err != nil {
			return err
		}
		if err := sameVersion(ctx, sn, c); err != nil {
			return err
		}
		for _, table := range tables {
			if err := sn.copyTable(ctx, c, table); err != nil {
				return err
			}
		}
		return nil
	}
	err := s.db.Mapped(s.db.Still(ctx, copies))
	if errors.Is(err, store.ErrReadOnly) {
		err = s.db.Freeze(ctx, copies)
	}
	return s.failed(ctx, err)
}

// CheckIdle returns a conflict if a process drives runs of the store, or is a server: it would write what is
// not copied.
func (s *Store) CheckIdle(ctx context.Context) error { return checkIdle(ctx, reading{s}) }

func checkIdle(ctx context.Context, r Reader) error {
	const query = "SELECT " + leaseColumns + " FROM leases WHERE expires > " + Clock + " LIMIT 1"
	return r.Each(ctx, query, nil, func(scan Scan) error {
		l, err := readLease(scan)
		if err == nil {
			err = toolcrib.Errorf(toolcrib.CodeConflict, "process %d on %q works on these runs; end it first, so that "+
				"nothing is left behind", l.Owner.PID, l.Owner.Host)
		}
		return err
	})
}

func (sn snapshot) copyTable(ctx context.Context, c Execer, table string) error {
	if _, err := c.Exec(ctx, "DELETE FROM "+table); err != nil { // a new database has counters
		return err
	}
	var args []any
	rows, size := 0, 0
	flush := func() error {
		if rows == 0 {
			return nil
		}
		row := "(?" + strings.Repeat(",?", len(args)/rows-1) + ")"
		_, err := c.Exec(ctx, "INSERT INTO "+table+" VALUES "+row+strings.Repeat(","+row, rows-1), args...)
		args, rows, size = args[:0], 0, 0
		return err
	}
	err := sn.Each(ctx, "SELECT * FROM "+table, nil, func(scan Scan) error {
		var row []driver.Value
		if err := scan(&row); err != nil {
			return err
		}
		for _, v := range row {
			if b, ok := v.([]byte); ok && b == nil { // an empty value, which is not NULL
				v = []byte{}
			}
			args = append(args, v)
			switch v := v.(type) {
			case string:
				size += len(v)
			case []byte:
				size += len(v)
			}
		}
		if rows++; rows == copyRows || size >= copyBytes {
			return flush()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}
