package sqlite_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/tool/tables"
	"github.com/toolcrib/toolcrib/tool/tables/sqlite"
)

func database(t *testing.T, name string, statements ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // the test reads what it wrote
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	return path
}

func everything(string, string) bool { return true }

func query() tables.Query {
	return tables.Query{Want: everything, Columns: true, MaxTables: 100, MaxColumns: 100}
}

func read(t *testing.T, address string, q tables.Query) string {
	t.Helper()
	s, err := sqlite.Read(t.Context(), address, q)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestN24_SQLiteStructure(t *testing.T) {
	path := database(t, "shop.db",
		`CREATE TABLE Customers (id INTEGER PRIMARY KEY, email VARCHAR(80) NOT NULL DEFAULT 'secret default', note)`,
		`CREATE TABLE orders (shop INT, number INT, customer INTEGER REFERENCES customers, parent_shop INT, parent INT,
			PRIMARY KEY (number, shop), FOREIGN KEY (parent_shop, parent) REFERENCES orders (shop, number)) WITHOUT ROWID`,
		`CREATE TABLE "odd ""name"" [x]" ("a b" TEXT, twice TEXT AS ("a b" || "a b"))`,
		`CREATE VIEW names AS SELECT email FROM Customers`,
		`CREATE VIEW broken AS SELECT x FROM gone`,
		`INSERT INTO Customers (email) VALUES ('ann@example.org')`,
	)
	got := read(t, path, query())
	const key = `,"foreign_keys":[{"columns":["parent_shop","parent"],"schema":"main","table":"orders","references":["shop","number"]},{"columns":["customer"],"schema":"main","table":"Customers"}]`
	want := `{"Kind":"sqlite","Tables":[` +
		`{"schema":"main","name":"Customers","kind":"table","columns":[{"name":"id","type":"INTEGER","nullable":false},{"name":"email","type":"VARCHAR(80)","nullable":false},{"name":"note","type":"","nullable":true}],"primary_key":["id"]},` +
		`{"schema":"main","name":"broken","kind":"view"},` +
		`{"schema":"main","name":"names","kind":"view","columns":[{"name":"email","type":"VARCHAR(80)","nullable":true}]},` +
		`{"schema":"main","name":"odd \"name\" [x]","kind":"table","columns":[{"name":"a b","type":"TEXT","nullable":true},{"name":"twice","type":"TEXT","nullable":true}]},` +
		`{"schema":"main","name":"orders","kind":"table","columns":[{"name":"shop","type":"INT","nullable":false},{"name":"number","type":"INT","nullable":false},{"name":"customer","type":"INTEGER","nullable":true},{"name":"parent_shop","type":"INT","nullable":true},{"name":"parent","type":"INT","nullable":true}],"primary_key":["number","shop"]` + key + `}` +
		`],"More":false}`
	// SQLite says of the columns of the broken view whatever it can; the rest counts.
	if !strings.HasPrefix(got, want[:strings.Index(want, `{"schema":"main","name":"broken"`)]) || !strings.HasSuffix(got, want[strings.Index(want, `{"schema":"main","name":"names"`):]) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if strings.Contains(got, "secret default") || strings.Contains(got, "ann@") {
		t.Errorf("data shows: %s", got)
	}
	q := query()
	q.Columns, q.Want = false, func(_, table string) bool { return table != "broken" }
	if got := read(t, path, q); strings.Contains(got, "columns") || strings.Contains(got, "broken") || !strings.Contains(got, "names") {
		t.Errorf("got %s", got)
	}
	q.Table = "orders"
	if got := read(t, path, q); strings.Count(got, `"name"`) != 1 {
		t.Errorf("got %s", got)
	}
	if q.Schema = "temp"; strings.Contains(read(t, path, q), `"name"`) {
		t.Error("a schema that there is not")
	}
}

func TestN24_SQLiteBounds(t *testing.T) {
	var columns []string
	for i := range 200 {
		columns = append(columns, fmt.Sprintf("c%d", i))
	}
	statements := []string{"CREATE TABLE a (" + strings.Join(columns, ",") + ")"}
	for i := range 20 {
		statements = append(statements, fmt.Sprintf("CREATE TABLE t%02d (x)", i))
	}
	path := database(t, "x.sqlite", statements...)
	q := query()
	q.MaxTables, q.MaxColumns = 10, 7
	s, err := sqlite.Read(t.Context(), path, q)
	if err != nil || len(s.Tables) != 10 || !s.More || len(s.Tables[0].Columns) != 7 || !s.Tables[0].More || s.Tables[1].More {
		t.Errorf("%d tables, more %v, %v", len(s.Tables), s.More, err)
	}
}

// The database is opened for reading: nothing is made, nothing is changed, whatever
// the address asks for.
func TestN24_SQLiteReadsOnly(t *testing.T) {
	plain := database(t, "plain.db", `CREATE TABLE t (x)`)
	path := filepath.Join(filepath.Dir(plain), "a b%20#c?.db")
	if err := os.Rename(plain, path); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	escaped := strings.NewReplacer("%", "%25", "#", "%23", "?", "%3f", " ", "%20").Replace(path)
	for _, address := range []string{path, "sqlite:" + escaped, "sqlite://" + escaped, "file:" + escaped + "?mode=rwc&_pragma=query_only(0)", "SQLITE:" + escaped} {
		if got := read(t, address, query()); !strings.Contains(got, `"name":"t"`) {
			t.Errorf("%s: %s", address, got)
		}
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file was changed, %v", err)
	}
	gone := filepath.Join(t.TempDir(), "gone.db")
	if _, err := sqlite.Read(t.Context(), gone, query()); err == nil || strings.Contains(err.Error(), gone) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(gone); err == nil {
		t.Error("a database was made")
	}
}

func TestN21_SQLiteErrorsHoldNoAddress(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{text, "file:" + text + "?key=hunter2", dir, "sqlite:" + dir, "sqlite:", "mysql://u:hunter2@h/x", "http://h/x.db", ""} {
		_, err := sqlite.Read(t.Context(), address, query())
		if err == nil || strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", address, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sqlite.Read(ctx, database(t, "x.db", `CREATE TABLE t (x)`), query()); err == nil {
		t.Error("read after the end")
	}
}
