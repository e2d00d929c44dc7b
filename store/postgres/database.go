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
	steps  sqlstore.Steps
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
	return d.snapshot(ctx, pgx.ReadOnly, "", do)
}

// Still implements [sqlstore.Database]. The lock comes before the snapshot.
func (d *database) Still(ctx context.Context, do func(sqlstore.Conn) error) error {
	return d.snapshot(ctx, pgx.ReadOnly, "LOCK TABLE toolcrib.state IN EXCLUSIVE MODE", do)
}

// snapshot calls do with a connection in a transaction that reads a snapshot, after a first statement.
func (d *database) snapshot(
	ctx context.Context, mode pgx.TxAccessMode, first string, do func(sqlstore.Conn) error,
) error {
	return d.with(ctx, func(c *conn) error {
		tx, err := c.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: mode})
		if err != nil {
			return err
		}
		if first != "" {
			_, err = tx.Exec(ctx, first)
		}
		if err == nil {
			err = do(c)
		}
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

// definitions lists everything in the schema: columns, constraints, indexes, views, functions, operators and what
// acts on rows. Versions of PostgreSQL differ in the names of views' columns, and in whether NOT NULL is a constraint.
const definitions = `SELECT line COLLATE "C" FROM (
	SELECT 'relation ' || c.relname || ' ' || c.relkind::text || c.relpersistence::text || c.relrowsecurity::text
		|| c.relispartition::text FROM ours c
	UNION ALL SELECT 'column ' || c.relname || '.' || a.attname || ' ' || a.attnum || ' ' || pg_catalog.format_type(a.atttypid, a.atttypmod)
		|| ' ' || a.attnotnull::text || a.attidentity::text || a.attgenerated::text || ' ' || coalesce(k.collname, '')
		|| ' ' || coalesce(pg_catalog.pg_get_expr(d.adbin, d.adrelid), '')
		FROM ours c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		LEFT JOIN pg_catalog.pg_collation k ON k.oid = a.attcollation WHERE c.relkind = 'r'
	UNION ALL SELECT 'constraint ' || c.relname || ' ' || k.conname || ' ' || pg_catalog.pg_get_constraintdef(k.oid)
		FROM ours c JOIN pg_catalog.pg_constraint k ON k.conrelid = c.oid AND k.contype <> 'n'
	UNION ALL SELECT pg_catalog.pg_get_indexdef(c.oid) FROM ours c WHERE c.relkind = 'i'
	UNION ALL SELECT 'view ' || c.relname || pg_catalog.regexp_replace(pg_catalog.pg_get_viewdef(c.oid), '\m(docs|runs|events)\.', '', 'g')
		FROM ours c WHERE c.relkind = 'v'
	UNION ALL SELECT pg_catalog.pg_get_triggerdef(t.oid) FROM ours c JOIN pg_catalog.pg_trigger t ON t.tgrelid = c.oid AND NOT t.tgisinternal
	UNION ALL SELECT pg_catalog.pg_get_ruledef(r.oid) FROM ours c JOIN pg_catalog.pg_rewrite r ON r.ev_class = c.oid WHERE c.relkind <> 'v'
	UNION ALL SELECT 'policy ' || c.relname || ' ' || p.polname FROM ours c JOIN pg_catalog.pg_policy p ON p.polrelid = c.oid
	UNION ALL SELECT pg_catalog.pg_get_functiondef(p.oid) FROM pg_catalog.pg_proc p
		WHERE p.pronamespace = 'toolcrib'::pg_catalog.regnamespace AND p.prokind IN ('f', 'p')
	UNION ALL SELECT 'operator ' || o.oprname || ' ' || o.oprleft::pg_catalog.regtype || ' ' || o.oprright::pg_catalog.regtype
		|| ' ' || o.oprcode FROM pg_catalog.pg_operator o WHERE o.oprnamespace = 'toolcrib'::pg_catalog.regnamespace
) lines (line) ORDER BY 1`

// ours are the relations of the schema. The sequences of numbers belong to their tables.
const ours = `WITH ours AS MATERIALIZED (SELECT c.*, pg_catalog.set_config('search_path', 'pg_catalog', true) FROM pg_catalog.pg_class c
	WHERE c.relnamespace = 'toolcrib'::pg_catalog.regnamespace AND c.relkind NOT IN ('S', 't')) `

// Definitions implements [sqlstore.Conn].
func (c *conn) Definitions(ctx context.Context) (all []string, err error) {
	err = c.Each(ctx, ours+definitions, nil, func(scan sqlstore.Scan) error {
		var one string
		err := scan(&one)
		all = append(all, one)
		return err
	})
	return all, err
}

// made matches what the schema makes.
var made = regexp.MustCompile(`(?m)^CREATE (?:UNIQUE )?(?:TABLE|INDEX|VIEW|FUNCTION) (?:toolcrib\.)?(\w+)`)

// missing returns the name of a table, view, index or function that a database lacks, or "".
func missing(ctx context.Context, r sqlstore.Reader) (name string, err error) {
	var names []string
	for _, part := range made.FindAllStringSubmatch(schema, -1) {
		names = append(names, part[1])
	}
	err = r.Each(ctx, `SELECT relname FROM pg_catalog.pg_class WHERE relnamespace = 'toolcrib'::regnamespace
		UNION ALL SELECT proname FROM pg_catalog.pg_proc WHERE pronamespace = 'toolcrib'::regnamespace`, nil, func(scan sqlstore.Scan) error {
		var name string
		err := scan(&name)
		names = slices.DeleteFunc(names, func(other string) bool { return other == name })
		return err
	})
	return strings.Join(names[:min(1, len(names))], ""), err
}

// Backup implements [store.Store]: PostgreSQL has tools of its own.
func (s *Store) Backup(context.Context, string) (store.Head, error) {
	return store.Head{}, errors.New("a PostgreSQL database is backed up with pg_dump --schema=toolcrib, or with what backs up its server; keep the key file with it")
}
