// Package postgres implements the store of toolcrib in PostgreSQL, for many servers at once, with the
// statements of store/sqlstore.
//
// All tables are in the schema toolcrib, which [Migrate] creates; a store that is open needs no rights to
// change it. Write transactions of all servers follow one another, by the lock of one row. Each is committed
// with synchronous_commit=on, or remote_apply if that is the setting of the role: clients see an event as
// soon as it is stored, so a crash of the server must not lose it. PgBouncer may be in between, also in
// transaction mode: before version 1.21, with default_query_exec_mode=exec in the address.
//
// It wraps github.com/jackc/pgx.
package postgres

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlstore"
)

//go:embed schema.sql
var schema string

const (
	// DefaultBusyTimeout is used if [Options].BusyTimeout is 0.
	DefaultBusyTimeout = 10 * time.Second
	// oldestServer is the oldest version of PostgreSQL that is supported.
	oldestServer = 14
	// maxClockDifference bounds the difference between the clocks of this machine and of the server.
	maxClockDifference = time.Minute
	// checkShare is the share of time, in percent, for comparing the runs with their record.
	checkShare = 1
)

var _ store.Store = (*Store)(nil)

// Options are the options of [Open]. Keys is required.
type Options struct {
	// BusyTimeout is how long a write waits for other writers, and for a server that cannot be reached. If
	// 0, it is DefaultBusyTimeout.
	BusyTimeout time.Duration
	// ReadOnly opens the database for reading, also on a standby. Writes fail with store.ErrReadOnly.
	ReadOnly bool
	// Keys is the file with the keys that seal the stored data, the same on all servers.
	Keys string
	// AdoptBy is the user who accepts the stored data although its seal is not valid. The system journal
	// records that. If "", such a store is not accepted.
	AdoptBy string
	// Now returns the time for overrides and system events. If nil, it is time.Now.
	Now func() time.Time
	// Owner is the process that takes leases of runs. If it has no ID, there are none.
	Owner store.Owner

	steps sqlstore.Steps // if nil, sqlstore.Known()
}

// Store is an open database. It is safe for use by many goroutines.
type Store struct {
	*sqlstore.Store
	db  *database
	bus *Bus
}

// Open opens the database at an address, as libpq takes it. It changes nothing and returns an error if
// the schema is missing, incomplete, or of another version of toolcrib.
func Open(ctx context.Context, address string, o Options) (*Store, error) {
	if o.BusyTimeout <= 0 {
		o.BusyTimeout = DefaultBusyTimeout
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	config, err := configure(address, o.ReadOnly)
	if err != nil {
		return nil, err
	}
	if o.steps == nil {
		o.steps = sqlstore.Known()
	}
	d := &database{path: pathOf(config.ConnConfig), config: config.ConnConfig, steps: o.steps}
	s, err := d.open(ctx, config, o)
	if err != nil {
		if d.pool != nil {
			d.pool.Close()
		}
		return nil, mapped(d.path, err)
	}
	return s, nil
}

// configure parses an address.
func configure(address string, readOnly bool) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		// The text of err may have a password.
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "the address of the database cannot be read; it is like postgres://user@host/database")
	}
	c := config.ConnConfig
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = 10 * time.Second
	}
	if !readOnly && c.ValidateConnect == nil && len(c.Fallbacks) > 0 {
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	return config, nil
}

// pathOf returns the address of a database without user and password.
func pathOf(c *pgx.ConnConfig) string {
	return fmt.Sprintf("postgres://%s:%d/%s", c.Host, c.Port, c.Database)
}

func (d *database) open(ctx context.Context, config *pgxpool.Config, o Options) (*Store, error) {
	var err error
	if d.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	if err := d.with(ctx, func(c *conn) error { return d.check(ctx, c, o.ReadOnly) }); err != nil {
		return nil, err
	}
	d.busy = o.BusyTimeout // opening does not wait
	made := sqlstore.Options{
		Database: d, KeysPath: o.Keys, Path: d.path, Now: o.Now, Owner: o.Owner, Retry: o.BusyTimeout,
		CheckShare: checkShare,
	}
	if made.Keys, err = store.LoadKeys(o.Keys); err != nil && !o.ReadOnly {
		return nil, err
	}
	if o.ReadOnly {
		return &Store{sqlstore.New(made), d, newBus(d, rand.Text())}, nil
	}
	w, err := openWriter(ctx, d)
	if err != nil {
		return nil, err
	}
	if o.AdoptBy != "" {
		err = w.adopt(ctx, made.Keys, o)
	} else {
		err = sqlstore.CheckKeys(ctx, w, o.Keys, made.Keys)
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	made.Writer = w
	s := &Store{sqlstore.New(made), d, newBus(d, rand.Text())}
	if err := s.CheckOpened(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// adopt seals everything again in its current state.
func (w *writer) adopt(ctx context.Context, keys *store.Keys, o Options) error {
	if err := w.Begin(ctx, true); err != nil {
		return err
	}
	err := sqlstore.Adopt(ctx, w, keys, o.AdoptBy, o.Now(), nil)
	if err == nil {
		err = w.Commit(ctx)
	}
	if err != nil {
		w.Rollback(ctx)
	}
	return err
}

// checkServer examines the server, its clock and its encoding.
func checkServer(ctx context.Context, c *pgx.Conn, path string) error {
	var version int
	var encoding string
	var now float64
	before := time.Now()
	err := c.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
		extract(epoch FROM clock_timestamp())::float8`).Scan(&version, &encoding, &now)
	if err != nil {
		return err
	}
	off := before.Add(time.Since(before) / 2).Sub(time.UnixMicro(int64(now * 1e6))).Abs()
	switch {
	case version/10000 < oldestServer:
		err = fmt.Errorf("its PostgreSQL is version %d; at least %d is needed", version/10000, oldestServer)
	case encoding != "UTF8":
		err = fmt.Errorf("its encoding is %s; UTF8 is needed", encoding)
	case off > maxClockDifference:
		err = fmt.Errorf("its clock and that of this machine differ by %s; set both by the network (NTP)", off.Round(time.Second))
	default:
		return nil
	}
	return &store.Error{Kind: store.ErrUnsuitable, Path: path, Err: err}
}

// findSchema reports whether the database has the tables of toolcrib. It returns an error if a program that
// knows these steps may not work on them.
func findSchema(ctx context.Context, c *pgx.Conn, path string, steps sqlstore.Steps) (found bool, err error) {
	var any bool
	err = c.QueryRow(ctx, "SELECT to_regnamespace('toolcrib') IS NOT NULL, to_regclass('toolcrib.state') IS NOT NULL").
		Scan(&any, &found)
	switch {
	case err != nil:
		return false, err
	case any && !found:
		return false, &store.Error{Kind: store.ErrCorrupt, Path: path, Err: errors.New("its schema toolcrib is that of another program")}
	case !found:
		return false, nil
	}
	// An earlier schema has no column oldest.
	var version, oldest int
	err = c.QueryRow(ctx, "SELECT version, coalesce((to_jsonb(state) ->> 'oldest')::bigint, 0) FROM toolcrib.state WHERE one = 1").
		Scan(&version, &oldest)
	switch {
	case err != nil:
		return false, err
	case version < sqlstore.Baseline:
		err = fmt.Errorf("its schema is %d, and this version needs at least %d", version, sqlstore.Baseline)
		return true, &store.Error{Kind: store.ErrOlder, Path: path, Err: err}
	}
	return true, steps.Check(path, version, oldest)
}

// check examines the server and the schema.
func (d *database) check(ctx context.Context, c *conn, readOnly bool) error {
	if err := checkServer(ctx, c.Conn, d.path); err != nil {
		return err
	}
	found, err := findSchema(ctx, c.Conn, d.path, d.steps)
	if err != nil {
		return err
	}
	if !found {
		return &store.Error{Kind: store.ErrUnsuitable, Path: d.path, Err: errors.New("it has no tables yet; run `toolcrib migrate`")}
	}
	var standby bool
	err = c.QueryRow(ctx, "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::bool").Scan(&standby)
	if err == nil && standby && !readOnly {
		err = &store.Error{Kind: store.ErrReadOnly, Path: d.path, Err: errors.New("the server is a standby, or read-only")}
	}
	if err != nil {
		return err
	}
	name, err := missing(ctx, c)
	if err == nil && name != "" {
		err = fmt.Errorf("its schema toolcrib is incomplete: no %s", name)
		err = &store.Error{Kind: store.ErrCorrupt, Path: d.path, Err: err}
	}
	return err
}
