//go:build unix

package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/postgrestest"
	"github.com/toolcrib/toolcrib/tool/tables"
	"github.com/toolcrib/toolcrib/tool/tables/postgres"
)

const password = postgrestest.Password

// server starts a PostgreSQL of its own and returns the address of its database.
func server(t *testing.T) *url.URL {
	t.Helper()
	s, err := postgrestest.Start(t.Context())
	if errors.Is(err, postgrestest.ErrMissing) {
		t.Skip("SKIPPED: ", err, "; describe_tables was not tried against a real server")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s.URL("postgres")
}

func fill(t *testing.T, address string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context()) //nolint:errcheck // the test reads what it wrote
	for _, s := range []string{
		`CREATE SCHEMA hr`,
		`CREATE TYPE hr.mood AS ENUM ('happy', 'secret label')`,
		`CREATE TABLE hr.people (id bigserial PRIMARY KEY, email varchar(80) NOT NULL DEFAULT 'secret default', mood hr.mood, gone int)`,
		`ALTER TABLE hr.people DROP COLUMN gone`,
		`CREATE TABLE public."Odd ""name" (shop int, number numeric(10,2), person bigint REFERENCES hr.people, parent_shop int, parent numeric(10,2),
			tags text[], PRIMARY KEY (number, shop), FOREIGN KEY (parent_shop, parent) REFERENCES public."Odd ""name" (shop, number))`,
		`CREATE VIEW public.names AS SELECT email FROM hr.people`,
		`CREATE MATERIALIZED VIEW public.counted AS SELECT count(*) AS n FROM hr.people`,
		`CREATE TABLE public.events (at timestamptz NOT NULL, person bigint REFERENCES hr.people) PARTITION BY RANGE (at)`,
		`CREATE TABLE public.events_2026 PARTITION OF public.events FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')`,
		`INSERT INTO hr.people (email) VALUES ('ann@example.org')`,
		// Somebody's functions must not be taken for the server's own.
		`CREATE FUNCTION public.format_type(oid, integer) RETURNS text LANGUAGE sql AS $$ SELECT 'hijacked' $$`,
		`ALTER ROLE reader SET search_path = public, pg_catalog`,
	} {
		if _, err := conn.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func everything(string, string) bool { return true }

func query() tables.Query {
	return tables.Query{Want: everything, Columns: true, MaxTables: 100, MaxColumns: 100}
}

func TestN24_PostgreSQLStructure(t *testing.T) {
	at := server(t)
	address := at.String()
	fill(t, address)
	s, err := postgres.Read(t.Context(), address, query())
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"Kind":"postgresql","Tables":[` +
		`{"schema":"hr","name":"people","kind":"table","columns":[{"name":"id","type":"bigint","nullable":false},{"name":"email","type":"character varying(80)","nullable":false},{"name":"mood","type":"hr.mood","nullable":true}],"primary_key":["id"]},` +
		`{"schema":"public","name":"Odd \"name","kind":"table","columns":[{"name":"shop","type":"integer","nullable":false},{"name":"number","type":"numeric(10,2)","nullable":false},{"name":"person","type":"bigint","nullable":true},` +
		`{"name":"parent_shop","type":"integer","nullable":true},{"name":"parent","type":"numeric(10,2)","nullable":true},{"name":"tags","type":"text[]","nullable":true}],"primary_key":["number","shop"],` +
		`"foreign_keys":[{"columns":["parent_shop","parent"],"schema":"public","table":"Odd \"name","references":["shop","number"]},{"columns":["person"],"schema":"hr","table":"people","references":["id"]}]},` +
		`{"schema":"public","name":"counted","kind":"materialized view","columns":[{"name":"n","type":"bigint","nullable":true}]},` +
		`{"schema":"public","name":"events","kind":"table","columns":[{"name":"at","type":"timestamp with time zone","nullable":false},{"name":"person","type":"bigint","nullable":true}],"foreign_keys":[{"columns":["person"],"schema":"hr","table":"people","references":["id"]}]},` +
		`{"schema":"public","name":"names","kind":"view","columns":[{"name":"email","type":"character varying(80)","nullable":true}]}` +
		`],"More":false}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	t.Run("filters", func(t *testing.T) { testFilters(t, address) })
	t.Run("errors", func(t *testing.T) { testErrors(t, *at) })
	t.Run("tool", func(t *testing.T) { testTool(t, address) })
}

func testFilters(t *testing.T, address string) {
	names := func(q tables.Query) string {
		s, err := postgres.Read(t.Context(), address, q)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, table := range s.Tables {
			all = append(all, table.Schema+"."+table.Name)
		}
		return fmt.Sprint(all, s.More)
	}
	for want, change := range map[string]func(*tables.Query){
		`[public.names] false`:                func(q *tables.Query) { q.Table = "names" },
		`[hr.people] false`:                   func(q *tables.Query) { q.Schema = "hr" },
		`[hr.people public.Odd "name] true`:   func(q *tables.Query) { q.MaxTables = 2 },
		`[public.counted public.names] false`: func(q *tables.Query) { q.Want = func(_, n string) bool { return n == "names" || n == "counted" } },
		`[] false`:                            func(q *tables.Query) { q.Table = `x' OR '1'='1` },
		`[public.counted public.events] true`: func(q *tables.Query) {
			q.MaxTables, q.Want = 2, func(s, n string) bool { return s == "public" && n != `Odd "name` }
		},
	} {
		q := query()
		change(&q)
		if got := names(q); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	q := query()
	if q.Schema = "pg_catalog"; names(q) != "[] false" {
		t.Error("the server's own tables are shown")
	}
	q = query()
	q.MaxColumns, q.Table = 2, "people"
	if s, err := postgres.Read(t.Context(), address, q); err != nil || len(s.Tables) != 1 || len(s.Tables[0].Columns) != 2 || !s.Tables[0].More {
		t.Errorf("%+v, %v", s, err)
	}
}

// What goes wrong is told without password and address.
func testErrors(t *testing.T, at url.URL) {
	host := at.Query().Get("host")
	wrong := at
	wrong.User = url.UserPassword("reader", "wrong-"+password)
	gone := at
	gone.RawQuery = url.Values{"host": {"/nowhere"}}.Encode()
	missing := at
	missing.Path = "/missing"
	for name, address := range map[string]string{
		"password": wrong.String(), "host": gone.String(), "database": missing.String(),
		"no URL": "postgres://reader:" + password + "@[bad", "pairs": "host=" + host + " user=reader password=wrong-" + password + " dbname=postgres",
		"port": "postgres://reader:" + password + "@localhost:99999999/x",
	} {
		_, err := postgres.Read(t.Context(), address, query())
		if err == nil || strings.Contains(err.Error(), password) || strings.Contains(err.Error(), address) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := postgres.Read(ctx, at.String(), query()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// The whole way: a user's grants, a real server.
func testTool(t *testing.T, address string) {
	tool := tables.New(tables.Options{Databases: []tables.Database{{Name: "shop", Read: func(ctx context.Context, q tables.Query) (tables.Structure, error) {
		return postgres.Read(ctx, address, q)
	}}}})[0]
	out, err := tool.Call(t.Context(), toolcrib.Call{
		Arguments: json.RawMessage(`{"database": "shop"}`), Principal: toolcrib.Principal{User: "ann", Grants: []string{"sql:shop/public.Odd*", "sql:shop/public.n?mes"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := string(out.JSON)
	for _, word := range []string{"people", "events", "secret", "ann@", "hr.", "hijacked", password} {
		if strings.Contains(got, word) {
			t.Errorf("%q shows: %s", word, got)
		}
	}
	if !strings.Contains(got, `"name":"names"`) || !strings.Contains(got, `"parent_shop"`) {
		t.Errorf("got %s", got)
	}
}
