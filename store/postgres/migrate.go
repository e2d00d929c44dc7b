package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlstore"
)

// MigrateOptions are the options of [Migrate]. Keys is required.
type MigrateOptions struct {
	// Keys is the file with the keys that seal the stored data. It is created if it is missing.
	Keys string
	// From is copied into a new schema, with its keys. If nil, the schema is empty.
	From *sqlstore.Store
	// Files returns the files of a new schema from those of From. If nil, they are the same.
	Files func(copied map[string][]byte) (map[string][]byte, error)
	// For is the address that stores are opened with. If its role is another one, it gets the rights that
	// an open store needs.
	For string

	steps sqlstore.Steps // if nil, sqlstore.Known()
}

// migrateLock is the key of the advisory lock of migrations: "tcrb".
const migrateLock = 0x74637262

// migrateWait is how long a change of the schema waits for those who read, less than servers wait for its end.
const migrateWait = 5 * time.Second

// Migrate creates the schema in the database at an address, or makes the changes that it lacks, each in a
// transaction of its own, and gives the rights. The role of the address must be allowed to create schemas. A schema
// that excludes this version of toolcrib is store.ErrOlder or store.ErrNewer. It returns the address
// without user and password.
func Migrate(ctx context.Context, address string, o MigrateOptions) (path string, err error) {
	config, err := configure(address, false)
	if err != nil {
		return "", err
	}
	path = pathOf(config.ConnConfig)
	if o.steps == nil {
		o.steps = sqlstore.Known()
	}
	role := config.ConnConfig.User
	if o.For != "" {
		opens, err := configure(o.For, false)
		if err != nil {
			return path, err
		}
		if other := pathOf(opens.ConnConfig); other != path {
			return path, toolcrib.Errorf(toolcrib.CodeBadRequest, "%s is another database than %s, which the configuration names", path, other)
		}
		role = opens.ConnConfig.User
	}
	c, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return path, mapped(path, err)
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }() // everything is committed
	if err := checkServer(ctx, c, path); err != nil {
		return path, mapped(path, err)
	}
	for more := true; more && err == nil; { // servers continue between two steps
		err = pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1), "+durable, migrateLock)
			if err == nil {
				more, err = create(ctx, tx, path, o)
			}
			if err != nil || role == config.ConnConfig.User {
				return err
			}
			return grant(ctx, tx, role)
		})
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "42501" {
		err = fmt.Errorf("role %s may not do this, give the address of the owner: toolcrib migrate --database: %w",
			config.ConnConfig.User, err)
	}
	return path, mapped(path, err)
}

// create creates the schema and seals it, or makes the first change that it lacks. more reports whether it may lack
// others.
func create(ctx context.Context, tx pgx.Tx, path string, o MigrateOptions) (more bool, err error) {
	found, err := findSchema(ctx, tx.Conn(), path, o.steps)
	lacks := errors.Is(err, store.ErrUnmigrated)
	if lacks {
		err = nil
	}
	if err == nil && found && o.From != nil {
		err = toolcrib.Errorf(toolcrib.CodeConflict, "%s has the tables of toolcrib already; nothing was copied", path)
	}
	if err != nil || found && !lacks {
		return false, err
	}
	keys, err := keysFor(o, found)
	if err != nil {
		return false, err
	}
	sealing := &conn{Conn: tx.Conn(), texts: new(texts)}
	exec := func(text string) error {
		_, err := tx.Conn().PgConn().Exec(ctx, text).ReadAll()
		return err
	}
	steps := o.steps
	if found { // no server writes meanwhile
		err = exec(fmt.Sprintf("SET LOCAL lock_timeout = %d; UPDATE toolcrib.state SET content = content + 1", migrateWait.Milliseconds()))
	} else if err = exec("CREATE SCHEMA toolcrib;\n" + schema); err == nil {
		err = sqlstore.SealSchema(ctx, sealing, keys, sqlstore.Baseline, sqlstore.Baseline)
	}
	if err == nil && found {
		steps, err = steps.Next(ctx, sealing)
	}
	if err == nil {
		err = steps.Apply(ctx, sealing, keys, func(step sqlstore.Step) error { return exec(step.PostgreSQL) })
	}
	switch {
	case err != nil:
		return false, err
	case !found && o.From == nil:
		err = sqlstore.Create(ctx, sealing, keys)
	case !found:
		if err = o.From.CopyTo(ctx, sealing); err == nil {
			err = exec(copied)
		}
		if err == nil && o.Files != nil {
			err = sqlstore.ReplaceFiles(ctx, sealing, keys, time.Now(), o.Files)
		}
	}
	if err == nil {
		_, err = sealing.Exec(ctx, "SELECT 1") // sends what waits
	}
	return found, err
}

// copied makes the numbers of rows continue after those that were copied.
const copied = `SELECT setval(pg_get_serial_sequence('toolcrib.runs', 'num'), max(num)) FROM toolcrib.runs;
	SELECT setval(pg_get_serial_sequence('toolcrib.contents', 'num'), max(num)) FROM toolcrib.contents;
	SELECT setval(pg_get_serial_sequence('toolcrib.inbox', 'num'), max(num)) FROM toolcrib.inbox`

// keysFor returns the keys of a schema. It creates their file if it is missing and the schema is new.
func keysFor(o MigrateOptions, found bool) (*store.Keys, error) {
	if found {
		return store.LoadKeys(o.Keys)
	}
	if o.From == nil {
		return store.MakeKeys(o.Keys)
	}
	keys, err := o.From.ExportKeys()
	if err != nil {
		return nil, err
	}
	known, err := store.LoadKeys(o.Keys)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return keys, keys.Create(o.Keys)
	case err == nil && !bytes.Equal(known.ID(), keys.ID()):
		err = &store.Error{Kind: store.ErrKeys, Path: o.Keys, Err: errors.New("it has other keys than those of the store that is copied")}
	}
	return keys, err
}

// grant gives a role the rights that an open store needs.
func grant(ctx context.Context, tx pgx.Tx, role string) error {
	name := pgx.Identifier{role}.Sanitize()
	_, err := tx.Conn().PgConn().Exec(ctx, fmt.Sprintf(`GRANT USAGE ON SCHEMA toolcrib TO %[1]s;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA toolcrib TO %[1]s;
		GRANT USAGE ON ALL SEQUENCES IN SCHEMA toolcrib TO %[1]s;
		GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA toolcrib TO %[1]s`, name)).ReadAll()
	return err
}
