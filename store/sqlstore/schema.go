package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// Baseline is the version of the schema in schema.sql of store/sqlite and store/postgres. Earlier versions
// cannot be changed to it.
const Baseline = 24

// Step is a change of the schema. One that leaves older programs at work only adds tables, columns with a
// default, and indexes.
type Step struct {
	// Oldest is the oldest version of the schema whose programs may work on the result.
	Oldest int
	// Statements that make the same change in each database.
	SQLite, PostgreSQL string
}

// Steps are the changes of the schema since Baseline that a program knows. Each raises the version by one.
type Steps []Step

// Known returns the steps of this version of toolcrib.
func Known() Steps { return Steps{sites, acts} }

// sites is step 25: where the workspace of a run is, and what a server tells others about itself. Neither is
// sealed: the journal of a run says where it may continue.
var sites = Step{
	Oldest: 24,
	SQLite: `ALTER TABLE runs ADD COLUMN site TEXT NOT NULL DEFAULT '';
		ALTER TABLE leases ADD COLUMN about TEXT NOT NULL DEFAULT '';`,
	PostgreSQL: `ALTER TABLE toolcrib.runs ADD COLUMN site text COLLATE "C" NOT NULL DEFAULT '';
		ALTER TABLE toolcrib.leases ADD COLUMN about text COLLATE "C" NOT NULL DEFAULT ''`,
}

// acts is step 26: indexes with which the audit log finds what a user did. A damaged payload has no user: an error here
// would prevent that the database is opened, and that the payload is removed.
var acts = Step{
	Oldest: 24,
	SQLite: `CREATE INDEX events_by ON events
			(substr(CASE WHEN json_valid(payload) THEN payload ->> 'by' END, 1, 200), time, key)
			WHERE kind = 'confirmation_resolved' OR kind = 'granted' OR kind = 'stopping';
		CREATE INDEX runs_actor ON runs (actor, num) WHERE actor <> '';`,
	PostgreSQL: `CREATE INDEX events_by ON toolcrib.events (substr(CASE WHEN toolcrib.json_valid(payload)
				THEN payload OPERATOR(toolcrib.->>) '{by}' END, 1, 200), time, key)
			WHERE kind = 'confirmation_resolved' OR kind = 'granted' OR kind = 'stopping';
		CREATE INDEX runs_actor ON toolcrib.runs (actor, num) WHERE actor <> ''`,
}

func (s Steps) version() int { return Baseline + len(s) }

// Check returns an error unless a program that knows s may work on a schema: store.ErrNewer if the schema
// excludes it, and store.ErrUnmigrated if the schema lacks steps.
func (s Steps) Check(path string, version, oldest int) error {
	var kind error
	switch {
	case version < s.version():
		kind = store.ErrUnmigrated
	case oldest > s.version():
		kind = store.ErrNewer
	default:
		return nil
	}
	return &store.Error{Kind: kind, Path: path, Err: fmt.Errorf("its schema is %d, for programs that know %d; this one knows %d",
		version, oldest, s.version())}
}

// CheckSchema is Check for the schema of a database.
func (s Steps) CheckSchema(ctx context.Context, r Reader, path string) error {
	found, err := readSchema(ctx, r)
	if err != nil {
		return err
	}
	return s.Check(path, found.version, found.oldest)
}

// schemaState is the row of the table state.
type schemaState struct {
	version, oldest int
	seal            []byte // of these, and of the definitions of all tables
}

func readSchema(ctx context.Context, r Reader) (s schemaState, err error) {
	err = One(ctx, r, "SELECT version, oldest, seal FROM state WHERE one = 1", nil, &s.version, &s.oldest, &s.seal)
	if errors.Is(err, sql.ErrNoRows) {
		err = &store.ChainError{What: "the row of the table state is gone"}
	}
	return s, err
}

// current returns the seal of the current definitions.
func (s *schemaState) current(ctx context.Context, c Conn, keys *store.Keys) (store.Seal, error) {
	definitions, err := c.Definitions(ctx)
	return keys.SealSchema(s.version, s.oldest, definitions), err
}

// SealSchema seals the schema as it is, as that of a version. c is in a transaction.
func SealSchema(ctx context.Context, c Execer, keys *store.Keys, version, oldest int) error {
	s := schemaState{version: version, oldest: oldest}
	seal, err := s.current(ctx, c, keys)
	if err != nil {
		return err
	}
	return c.Later(ctx, "UPDATE state SET version = ?, oldest = ?, seal = ?", version, oldest, seal[:])
}

// Apply makes the changes that a schema lacks, with the function exec, and seals the result. c is in a
// transaction that excludes other writers. A schema that was changed by other programs is refused.
func (s Steps) Apply(ctx context.Context, c Execer, keys *store.Keys, exec func(Step) error) error {
	found, err := readSchema(ctx, c)
	if err != nil || found.version >= s.version() {
		return err
	}
	if err := checkSchema(ctx, c, keys); err != nil {
		return err
	}
	for _, step := range s[found.version-Baseline:] {
		if err := exec(step); err != nil {
			return err
		}
		found.oldest = step.Oldest
	}
	return SealSchema(ctx, c, keys, s.version(), found.oldest)
}

// Next returns the steps up to the first that a schema lacks.
func (s Steps) Next(ctx context.Context, r Reader) (Steps, error) {
	found, err := readSchema(ctx, r)
	return s[:min(len(s), max(0, found.version-Baseline+1))], err
}

// checkSchema compares the definitions of a database with their seal.
func checkSchema(ctx context.Context, c Conn, keys *store.Keys) error {
	found, err := readSchema(ctx, c)
	if err != nil {
		return err
	}
	seal, err := found.current(ctx, c, keys)
	if err == nil && !seal.Equal(found.seal) {
		err = &store.ChainError{What: "the definition of a table, index, view, function or trigger is not the one that toolcrib made"}
	}
	return err
}

// sameVersion returns an error unless two databases have the same version of the schema.
func sameVersion(ctx context.Context, from, to Reader) error {
	a, err := readSchema(ctx, from)
	if err != nil {
		return err
	}
	b, err := readSchema(ctx, to)
	if err == nil && a.version != b.version {
		err = toolcrib.Errorf(toolcrib.CodeConflict, "the database that is copied has schema %d, and this version of toolcrib makes %d; "+
			"copy it with the version that has changed it last", a.version, b.version)
	}
	return err
}
