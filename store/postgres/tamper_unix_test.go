//go:build unix

package postgres_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/postgres"
	"github.com/toolcrib/toolcrib/toolcribtest/storetest"
)

// filled returns a database that storetest.Fill has filled and that nothing is connected to, and its key file.
// It has the functions of SQLite that storetest.Edits uses.
func filled(t *testing.T) (name, keys string) {
	t.Helper()
	name, address, keys := migrated(t)
	s, err := postgres.Open(t.Context(), address, postgres.Options{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	storetest.Fill(t, s)
	if _, err := s.VerifyAll(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	const path = "string_to_array(ltrim(path, '$.'), '.')"
	admin(t, name,
		"CREATE FUNCTION zeroblob(n int) RETURNS bytea LANGUAGE sql AS $$ SELECT decode(repeat('00', n), 'hex') $$",
		"CREATE FUNCTION json_set(doc text, path text, v text) RETURNS text LANGUAGE sql AS $$ SELECT jsonb_set(doc::jsonb, "+path+", to_jsonb(v))::text $$",
		"CREATE FUNCTION json_set(doc text, path text, v json) RETURNS text LANGUAGE sql AS $$ SELECT jsonb_set(doc::jsonb, "+path+", v::jsonb)::text $$",
		"CREATE FUNCTION json_remove(doc text, path text) RETURNS text LANGUAGE sql AS $$ SELECT (doc::jsonb #- "+path+")::text $$",
		"CREATE FUNCTION json_remove(doc text, one text, two text) RETURNS text LANGUAGE sql AS $$ SELECT json_remove(json_remove(doc, one), two) $$",
	)
	return name, keys
}

var (
	blob    = regexp.MustCompile(`x'([0-9a-f]*)'`)
	shifted = regexp.MustCompile(`\b(\d+) <<`)
)

// inPostgres returns a statement of storetest.Edits for PostgreSQL.
func inPostgres(edit string) string {
	edit = strings.NewReplacer("0xffffffff", "4294967295", "replace(data, 'whole', 'WHOLE') AS BLOB",
		"replace(convert_from(data, 'UTF8'), 'whole', 'WHOLE') AS bytea").Replace(edit)
	edit = blob.ReplaceAllString(edit, `'\x$1'::bytea`)
	return postgres.Translate(shifted.ReplaceAllString(edit, "CAST($1 AS BIGINT) <<"))
}

// Each change of rows is found by the verifier of all stores, or PostgreSQL refuses it.
func TestTamperedRows(t *testing.T) {
	base, keys := filled(t)
	edits := storetest.Edits()
	names := slices.Sorted(maps.Keys(edits))
	if testing.Short() {
		random := rand.New(rand.NewPCG(5, 6)) // any seed will do, as long as it stays
		random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		names = names[:60]
	}
	refused := 0
	for _, edit := range names {
		if strings.Contains(edits[edit], "AS BLOB)") && edit != "kept: bytes" {
			continue // the columns have types
		}
		t.Run(edit, func(t *testing.T) {
			name := fmt.Sprintf("db%d", databases.Add(1))
			admin(t, "postgres", "CREATE DATABASE "+name+" TEMPLATE "+base)
			defer admin(t, "postgres", "DROP DATABASE "+name+" WITH (FORCE)")
			c, err := pgx.Connect(t.Context(), server.URL(name).String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(t.Context()) //nolint:errcheck // every statement was answered
			results, err := c.PgConn().Exec(t.Context(), inPostgres(edits[edit])).ReadAll()
			var no *pgconn.PgError
			switch {
			case errors.As(err, &no) && (no.Code[:2] == "23" || no.Code == "22P02"): // a constraint, or an index of JSON
				refused++
				return
			case err != nil:
				t.Fatalf("%s: %v", inPostgres(edits[edit]), err)
			}
			if results[0].CommandTag.RowsAffected() == 0 {
				t.Fatal("it has changed nothing")
			}
			s, err := postgres.Open(t.Context(), server.URL(name).String(), postgres.Options{Keys: keys, ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close() //nolint:errcheck // it was only read from
			var broken *store.ChainError
			if _, err := s.VerifyAll(t.Context()); !errors.As(err, &broken) || strings.ContainsAny(err.Error(), "{}") {
				t.Errorf("verified: %v", err)
			}
		})
	}
	t.Logf("%d of %d changes were refused by PostgreSQL", refused, len(names))
}

// Tables and triggers of others are found: they could change what is written.
func TestTamperedSchema(t *testing.T) {
	for name, change := range map[string]string{
		"trigger":   "CREATE TRIGGER x BEFORE UPDATE ON toolcrib.runs FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
		"rule":      "CREATE RULE x AS ON DELETE TO toolcrib.said DO INSTEAD NOTHING",
		"table":     "CREATE TABLE toolcrib.x (a int)",
		"policy":    "CREATE POLICY x ON toolcrib.runs",
		"index":     "DROP INDEX toolcrib.said_hash; CREATE INDEX x ON toolcrib.said (hash)",
		"column":    "ALTER TABLE toolcrib.said ADD COLUMN x bigint",
		"default":   "ALTER TABLE toolcrib.said ALTER num SET DEFAULT 1",
		"type":      "ALTER TABLE toolcrib.token_minute ALTER n TYPE integer",
		"null":      "ALTER TABLE toolcrib.inbox ALTER text DROP NOT NULL",
		"collation": "ALTER TABLE toolcrib.inbox ALTER text TYPE text",
		"check":     "ALTER TABLE toolcrib.system_head DROP CONSTRAINT system_head_one_check",
		"key":       "ALTER TABLE toolcrib.said DROP CONSTRAINT said_pkey",
		"condition": "DROP INDEX toolcrib.runs_taint; CREATE INDEX runs_taint ON toolcrib.runs (\"user\", num) WHERE taint <> 'x'",
		"view":      "CREATE OR REPLACE VIEW toolcrib.sessions AS SELECT id, \"user\", doc OPERATOR(toolcrib.->>) '{name}' AS name, at AS created_at, last FROM toolcrib.docs WHERE kind = 'session' AND id <> 'x'",
		"operator":  "CREATE OPERATOR toolcrib.=== (LEFTARG = text, RIGHTARG = text[], FUNCTION = toolcrib.json_text)",
		"unlogged":  "ALTER TABLE toolcrib.said SET UNLOGGED",
		"secrecy":   "ALTER TABLE toolcrib.said ENABLE ROW LEVEL SECURITY",
		"volatile":  "ALTER FUNCTION toolcrib.json_text(text, text[]) VOLATILE",
		"function":  "CREATE OR REPLACE FUNCTION toolcrib.json_text(doc text, path text[]) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT 'x' $$",
	} {
		db, address, keys := migrated(t)
		s := openAt(t, address, postgres.Options{Keys: keys})
		admin(t, db, strings.Split(change, "; ")...)
		var broken *store.ChainError
		if _, err := s.VerifyAll(t.Context()); !errors.As(err, &broken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A run that was put back to an earlier state, with a valid row, is found before it is continued.
func TestTampered_PutBack(t *testing.T) {
	name, address, keys := migrated(t)
	s := openAt(t, address, postgres.Options{Keys: keys})
	add := func(s store.Store, n int) error {
		return s.Append(t.Context(), "run_a", toolcrib.Seq(n), numbered(n, true)...)
	}
	for n := range 2 {
		if err := add(s, n); err != nil {
			t.Fatal(err)
		}
	}
	admin(t, name, "CREATE TABLE public.earlier AS SELECT * FROM toolcrib.runs")
	for n := 2; n < 4; n++ {
		if err := add(s, n); err != nil {
			t.Fatal(err)
		}
	}
	admin(t, name, "DELETE FROM toolcrib.runs", "INSERT INTO toolcrib.runs SELECT * FROM public.earlier",
		"DELETE FROM toolcrib.events WHERE key & 4294967295 > 2")
	other := openAt(t, address, postgres.Options{Keys: keys})
	var broken *store.ChainError
	if err := add(other, 2); !errors.As(err, &broken) {
		t.Errorf("continued on another server: %v", err)
	}
	if err := add(s, 2); !errors.As(err, &broken) && !errors.Is(err, toolcrib.ErrConflict) {
		t.Errorf("continued on the same server: %v", err)
	}
}

// A run that was removed while servers are at work is found, and no new run starts.
func TestTampered_WhileAtWork(t *testing.T) {
	name, stores := two(t)
	for _, run := range []toolcrib.RunID{"run_a", "run_b"} {
		if err := stores[0].Append(t.Context(), run, 0, numbered(0, true)...); err != nil {
			t.Fatal(err)
		}
	}
	admin(t, name, "DELETE FROM toolcrib.events WHERE key >> 32 = (SELECT num FROM toolcrib.runs WHERE id = 'run_a')",
		"DELETE FROM toolcrib.runs WHERE id = 'run_a'")
	n := 1
	waittest.Until(t, "the damage is found", func() bool {
		var broken *store.ChainError
		err := stores[n%2].Append(t.Context(), "run_b", toolcrib.Seq(n), numbered(n, true)...) // resumed each time
		n++
		return errors.As(err, &broken)
	})
	if err := stores[0].Append(t.Context(), "run_c", 0, numbered(0, true)...); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("a new run: %v", err)
	}
}
