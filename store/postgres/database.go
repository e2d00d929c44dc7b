package postgres

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlstore"
)

// database implements [sqlstore.Database].
type database struct {
	path   string // its address, without a password
	config *pgx.ConnConfig
	pool   *pgxpool.Pool
	busy   time.Duration // how long to wait for the server
	texts  texts
	closed atomic.Bool
}

var _ sqlstore.Database = (*database)(nil)

// readTimeout bounds one list or lookup; a snapshot has no bound but its context.
const readTimeout = time.Minute

// Read implements [sqlstore.Database].
func (d *database) Read(ctx context.Context, do func(sqlstore.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	until, _ := ctx.Deadline()
	return d.with(ctx, func(c *conn) error {
		c.until = until
		return do(c)
	})
}

// with calls do with a connection. If the connection turns out to be broken before a row was read, it tries
// again with another one, as long as a write waits for a server that cannot be reached.
func (d *database) with(ctx context.Context, do func(*conn) error) error {
	for wait := newWait(d.busy); ; {
		read := false
		err := d.pool.AcquireFunc(ctx, func(p *pgxpool.Conn) error {
			c := &conn{Conn: p.Conn(), texts: &d.texts}
			err := do(c)
			read = c.read
			return err
		})
		switch {
		case err != nil && d.closed.Load():
			return &store.Error{Kind: store.ErrClosed}
		case err == nil || read || !transient(err) || !wait.again(ctx):
			return err
		}
		d.pool.Reset() // the other idle connections probably are broken, too
	}
}

// wait is the wait between attempts to reach a server. It doubles, up to maxPause.
type wait struct {
	until time.Time
	pause time.Duration
}

func newWait(most time.Duration) wait { return wait{time.Now().Add(most), minPause} }

// again waits. It returns false if the time is up or ctx has ended.
func (w *wait) again(ctx context.Context) bool {
	if time.Now().Add(w.pause).After(w.until) {
		return false
	}
	select {
	case <-time.After(w.pause):
	case <-ctx.Done():
		return false
	}
	w.pause = min(2*w.pause, maxPause)
	return true
}

// Freeze implements [sqlstore.Database].
func (d *database) Freeze(ctx context.Context, do func(sqlstore.Conn) error) error {
	return d.with(ctx, func(c *conn) error {
		tx, err := c.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
		if err != nil {
			return err
		}
		err = do(c)
		// Even if ctx has ended: the connection returns to the pool, which closes a broken one.
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), idleTimeout)
		defer cancel()
		_ = tx.Rollback(end)
		return err
	})
}

// Mapped implements [sqlstore.Database].
func (d *database) Mapped(err error) error { return mapped(d.path, err) }

// Integrity implements [sqlstore.Database]: PostgreSQL checks its pages itself, if the database has
// checksums.
func (d *database) Integrity(context.Context) error { return nil }

// Compact implements [sqlstore.Database]: PostgreSQL overwrites removed data with time, by autovacuum.
func (d *database) Compact(context.Context, bool) (done bool, err error) { return false, nil }

// Close implements [sqlstore.Database].
func (d *database) Close() error {
	d.closed.Store(true)
	d.pool.Close()
	return nil
}

// Damage implements [sqlstore.Database].
func (d *database) Damage(ctx context.Context) (lines []string, err error) {
	err = d.Read(ctx, func(c sqlstore.Conn) error {
		return c.Each(ctx, "SELECT line FROM toolcrib.damage ORDER BY n", nil, func(scan sqlstore.Scan) error {
			var line string
			err := scan(&line)
			lines = append(lines, line)
			return err
		})
	})
	return lines, mapped(d.path, err)
}

// AddDamage implements [sqlstore.Database].
func (d *database) AddDamage(ctx context.Context, line string) {
	_ = d.change(ctx, func(tx pgx.Tx) error { // otherwise the damage itself is reported anyway
		_, err := tx.Exec(ctx, "INSERT INTO toolcrib.damage (line) VALUES ($1)", escaped(line))
		return err
	})
}

// SetDamage implements [sqlstore.Database].
func (d *database) SetDamage(ctx context.Context, lines []string) error {
	return d.change(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM toolcrib.damage")
		for i := 0; err == nil && i < len(lines); i++ {
			_, err = tx.Exec(ctx, "INSERT INTO toolcrib.damage (line) VALUES ($1)", escaped(lines[i]))
		}
		return err
	})
}

func (d *database) change(ctx context.Context, do func(pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return mapped(d.path, pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT "+durable); err != nil {
			return err
		}
		return do(tx)
	}))
}

// made and functions match what the schema makes.
var (
	made      = regexp.MustCompile(`(?m)^CREATE (?:UNIQUE )?(TABLE|INDEX|VIEW) (?:toolcrib\.)?(\w+)`)
	functions = regexp.MustCompile(`(?s)CREATE (FUNCTION) toolcrib\.(\w+.*?\$\$.*?)\$\$`)
)

// parts lists the relations and functions of the schema and what acts on rows: tables, views, indexes,
// triggers, rules and policies. The indexes of keys and the sequences of numbers belong to their tables.
const parts = `SELECT CASE c.relkind WHEN 'r' THEN 'TABLE' WHEN 'v' THEN 'VIEW' WHEN 'i' THEN 'INDEX' ELSE c.relkind::text END || ' ' || c.relname
	FROM pg_catalog.pg_class c WHERE c.relnamespace = 'toolcrib'::regnamespace AND c.relkind NOT IN ('S', 't')
	AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_constraint k WHERE k.conindid = c.oid)
	UNION ALL SELECT 'TRIGGER ' || t.tgname FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
	WHERE c.relnamespace = 'toolcrib'::regnamespace AND NOT t.tgisinternal
	UNION ALL SELECT 'RULE ' || r.rulename FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_class c ON c.oid = r.ev_class
	WHERE c.relnamespace = 'toolcrib'::regnamespace AND c.relkind <> 'v'
	UNION ALL SELECT 'POLICY ' || p.polname FROM pg_catalog.pg_policy p JOIN pg_catalog.pg_class c ON c.oid = p.polrelid
	WHERE c.relnamespace = 'toolcrib'::regnamespace
	UNION ALL SELECT 'FUNCTION ' || p.proname || ' ' || p.prosrc FROM pg_catalog.pg_proc p
	WHERE p.pronamespace = 'toolcrib'::regnamespace`

// differences returns the parts of the schema that are missing, and others.
func differences(ctx context.Context, r sqlstore.Reader) (missing, others []string, err error) {
	for _, part := range made.FindAllStringSubmatch(schema, -1) {
		missing = append(missing, part[1]+" "+part[2])
	}
	for _, part := range functions.FindAllStringSubmatch(schema, -1) {
		name, _, _ := strings.Cut(part[2], "(")
		_, text, _ := strings.Cut(part[2], "$$")
		missing = append(missing, "FUNCTION "+name+" "+text)
	}
	err = r.Each(ctx, parts, nil, func(scan sqlstore.Scan) error {
		var part string
		err := scan(&part)
		if i := slices.Index(missing, part); i >= 0 {
			missing = slices.Delete(missing, i, i+1)
		} else {
			others = append(others, part)
		}
		return err
	})
	return missing, others, err
}

// SameSchema implements [sqlstore.Conn].
func (c *conn) SameSchema(ctx context.Context) (bool, error) {
	missing, others, err := differences(ctx, c)
	return len(missing)+len(others) == 0, err
}

// Backup implements [store.Store]: PostgreSQL has tools of its own.
func (s *Store) Backup(context.Context, string) (store.Head, error) {
	return store.Head{}, errors.New("a PostgreSQL database is backed up with pg_dump --schema=toolcrib, or with what backs up its server; keep the key file with it")
}
