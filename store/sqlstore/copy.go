package sqlstore

import (
	"context"
	"database/sql/driver"
	"strings"
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

// CopyTo copies a snapshot of the store into the new tables of another database, which is sealed with the
// same keys. All numbers, hashes and seals stay the same. c is in a transaction, which CopyTo does not commit.
func (s *Store) CopyTo(ctx context.Context, c Execer) error {
	return s.frozen(ctx, func(sn snapshot) error {
		if err := sameVersion(ctx, sn, c); err != nil {
			return err
		}
		for _, table := range tables {
			if err := sn.copyTable(ctx, c, table); err != nil {
				return err
			}
		}
		return nil
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
