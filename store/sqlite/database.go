package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlstore"
)

// database implements [sqlstore.Database].
type database struct {
	path    string
	busy    time.Duration
	readers *pool
}

var _ sqlstore.Database = (*database)(nil)

// Read implements [sqlstore.Database].
func (d *database) Read(ctx context.Context, do func(sqlstore.Conn) error) error {
	return d.readers.with(ctx, func(c *conn) error { return do(c) })
}

// Freeze implements [sqlstore.Database].
func (d *database) Freeze(ctx context.Context, do func(sqlstore.Conn) error) error {
	return d.readers.with(ctx, func(c *conn) (err error) {
		if err := c.run(ctx, "BEGIN"); err != nil {
			return err
		}
		defer func() {
			// Even if ctx has ended: the connection returns to the pool.
			if e := c.run(context.WithoutCancel(ctx), "ROLLBACK"); e != nil {
				err = errors.Join(err, errSpoiled, e)
			}
		}()
		return do(c)
	})
}

// Still implements [sqlstore.Database].
func (d *database) Still(ctx context.Context, do func(sqlstore.Conn) error) error {
	c, err := connect(ctx, d.path, d.busy)
	if err != nil {
		return err
	}
	err = c.run(ctx, "BEGIN IMMEDIATE")
	if err == nil {
		err = do(c)
	}
	return errors.Join(err, c.Close()) // rolls back
}

// Mapped implements [sqlstore.Database].
func (d *database) Mapped(err error) error { return mapped(d.path, err) }

// Close implements [sqlstore.Database].
func (d *database) Close() error { return d.readers.close() }

// Integrity runs SQLite's own check of the whole file.
func (d *database) Integrity(ctx context.Context) error {
	var answer string
	err := d.readers.with(ctx, func(c *conn) error {
		return sqlstore.One(ctx, c, "PRAGMA integrity_check(1)", nil, &answer)
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil && answer != "ok":
		err = &store.Error{Kind: store.ErrCorrupt, Path: d.path, Err: errors.New(answer)}
	}
	return mapped(d.path, err)
}

// Definitions implements [sqlstore.Conn].
func (c *conn) Definitions(ctx context.Context) (all []string, err error) {
	const query = `SELECT type || ' ' || name || ' ' || tbl_name || ' ' || ifnull(sql, '') FROM sqlite_schema
		WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY 1`
	err = c.Each(ctx, query, nil, func(scan sqlstore.Scan) error {
		var one string
		err := scan(&one)
		all = append(all, one)
		return err
	})
	return all, err
}

// Damage is recorded in a file next to the database, because a damaged database may not be writable.

const damageEnd = "-damage"

// Damage implements [sqlstore.Database].
func (d *database) Damage(context.Context) ([]string, error) {
	text, err := os.ReadFile(d.path + damageEnd)
	if err != nil || len(text) == 0 {
		return nil, nil //nolint:nilerr // without a file there is no damage
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), nil
}

// AddDamage implements [sqlstore.Database].
func (d *database) AddDamage(_ context.Context, line string) {
	f, failed := os.OpenFile(d.path+damageEnd, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if failed == nil { // otherwise the damage itself is reported anyway
		_, _ = f.WriteString(line + "\n")
		_ = f.Close()
	}
}

// SetDamage implements [sqlstore.Database].
func (d *database) SetDamage(_ context.Context, lines []string) error {
	if lines != nil {
		return mapped(d.path, os.WriteFile(d.path+damageEnd, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	}
	err := os.Remove(d.path + damageEnd)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return mapped(d.path, err)
}

// Compact rewrites the database file without its unused pages, and empties the -wal file, which
// contains old pages. Overwriting removed data is not sufficient: when SQLite moves rows between pages,
// it leaves copies in unused parts of pages.
func (d *database) Compact(ctx context.Context, all bool) (done bool, err error) {
	if all {
		if err := os.Remove(d.path + beforeEnd); err != nil && !errors.Is(err, fs.ErrNotExist) { // it has removed data, too
			return false, err
		}
		return d.checkpoint(ctx, "VACUUM")
	}
	var pages, free, size int64
	err = d.readers.with(ctx, func(c *conn) error {
		return sqlstore.One(ctx, c, "SELECT page_count, freelist_count, page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
			nil, &pages, &free, &size)
	})
	if err != nil {
		return false, err
	}
	first := ""
	if pages*size >= compactFrom && free*2 > pages {
		first = "VACUUM"
	}
	return d.checkpoint(ctx, first)
}

// While the database is rewritten, this file exists next to it, and other writers wait longer than
// usual, up to compactWait.
const (
	compactEnd  = "-compact"
	compactWait = 10 * time.Minute
)

// compacting reports whether the database is being rewritten.
func compacting(path string) bool {
	info, err := os.Stat(path + compactEnd)
	return err == nil && time.Since(info.ModTime()) < compactWait
}

// compactFrom is the size in bytes from which a file is rewritten if more than half of it is unused.
const compactFrom = 4 << 20

// checkpoint executes first unless it is empty, and empties the -wal file.
func (d *database) checkpoint(ctx context.Context, first string) (done bool, err error) {
	c, err := connect(ctx, d.path, d.busy)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if first != "" {
		if err := os.WriteFile(d.path+compactEnd, nil, 0o600); err != nil {
			return false, err
		}
		err = c.run(ctx, first)
		_ = os.Remove(d.path + compactEnd) // a leftover file expires after compactWait
	}
	var busy, pages, moved int
	if err == nil {
		err = setLogged(ctx, c, false)
	}
	if err == nil {
		err = sqlstore.One(ctx, c, "PRAGMA wal_checkpoint(TRUNCATE)", nil, &busy, &pages, &moved)
	}
	switch kind := mapped(d.path, err); {
	case errors.Is(kind, store.ErrLocked), errors.Is(kind, store.ErrFull):
		return false, nil
	case err != nil:
		return false, err
	}
	return busy == 0, nil
}

// Backup implements [store.Store].
func (s *Store) Backup(ctx context.Context, dir string) (head store.Head, err error) {
	keys, err := store.LoadKeys(s.keysPath)
	if err != nil {
		return head, err
	}
	if head, err = s.Head(ctx); err != nil {
		return head, err
	}
	if err := copyInto(ctx, s.db.path, filepath.Join(dir, filepath.Base(s.db.path))); err != nil {
		return head, mapped(s.db.path, err)
	}
	return head, keys.Create(filepath.Join(dir, keysName))
}
