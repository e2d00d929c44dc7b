// Package sqlite reads the structure of SQLite databases for describe_tables.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/toolcrib/toolcrib/tool/tables"
)

const (
	kind = "sqlite"
	// schemaName is the only schema of a database file.
	schemaName = "main"
	// maxNames bounds the tables that are read.
	maxNames = 10_000
)

// Path returns the file of an address: sqlite:PATH, sqlite:///PATH, file:PATH, file:///PATH
// (percent-encoded, without the part after a ?), or a path that ends in .db, .sqlite or .sqlite3.
func Path(address string) (path string, ok bool) {
	scheme, rest, found := strings.Cut(address, ":")
	switch scheme = strings.ToLower(scheme); {
	case found && (scheme == "sqlite" || scheme == "sqlite3" || scheme == "file"):
		rest, _, _ = strings.Cut(rest, "?")
		if after, authority := strings.CutPrefix(rest, "//"); authority {
			rest = after
		}
		path, err := url.PathUnescape(rest)
		return path, err == nil && path != ""
	case slices.Contains([]string{".db", ".sqlite", ".sqlite3"}, strings.ToLower(filepath.Ext(address))):
		return address, !strings.Contains(address, "://")
	}
	return "", false
}

// Read reads the structure of the database in a file, which it opens read-only. Errors do not contain the address.
func Read(ctx context.Context, address string, q tables.Query) (tables.Structure, error) {
	path, ok := Path(address)
	if !ok {
		return tables.Structure{}, errors.New("sqlite: the address names no file")
	}
	db, err := open(path)
	if err != nil {
		return tables.Structure{}, tables.Safe(kind, err, address, path)
	}
	defer db.Close() //nolint:errcheck // only read
	s, err := read(ctx, db, q)
	return s, tables.Safe(kind, err, address, path)
}

func open(path string) (*sql.DB, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	slashed := filepath.ToSlash(abs)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // a drive letter
	}
	options := url.Values{"mode": {"ro"}, "_pragma": {"query_only(1)", "trusted_schema(0)", "busy_timeout(2000)"}}
	db, err := sql.Open("sqlite", "file://"+(&url.URL{Path: slashed}).EscapedPath()+"?"+options.Encode())
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

func read(ctx context.Context, db *sql.DB, q tables.Query) (tables.Structure, error) {
	s := tables.Structure{Kind: kind}
	if q.Schema != "" && q.Schema != schemaName {
		return s, nil
	}
	all, more, err := list(ctx, db)
	if err != nil {
		return s, err
	}
	s.More = more
	spelled := make(map[string]string, len(all))
	for _, table := range all {
		spelled[strings.ToLower(table.Name)] = table.Name
	}
	for _, table := range all {
		if !q.Matches(schemaName, table.Name) {
			continue
		}
		if len(s.Tables) >= q.MaxTables {
			s.More = true
			break
		}
		if q.Columns {
			if err := describe(ctx, db, &table, spelled, q.MaxColumns); err != nil {
				return s, err
			}
		}
		s.Tables = append(s.Tables, table)
	}
	return s, nil
}

// list returns the tables and views, without SQLite's internal ones and those that belong to a virtual table.
func list(ctx context.Context, db *sql.DB) (all []tables.Table, more bool, err error) {
	err = each(ctx, db, func(rows *sql.Rows) error {
		t := tables.Table{Schema: schemaName}
		if err := rows.Scan(&t.Name, &t.Kind); err != nil {
			return err
		}
		if t.Kind == "virtual" {
			t.Kind = "virtual table"
		}
		if more = len(all) == maxNames; !more {
			all = append(all, t)
		}
		return nil
	}, `SELECT name, type FROM pragma_table_list WHERE schema = ? AND type IN ('table', 'view', 'virtual')
		AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name LIMIT ?`, schemaName, maxNames+1)
	return all, more, err
}

// describe adds columns and keys. A view whose tables no longer exist has none.
func describe(ctx context.Context, db *sql.DB, t *tables.Table, spelled map[string]string, most int) error {
	if err := columns(ctx, db, t, most); err != nil {
		if t.Kind == "view" && ctx.Err() == nil {
			t.Columns = nil
			return nil
		}
		return err
	}
	last := -1
	return each(ctx, db, func(rows *sql.Rows) error {
		var id int
		var table, from string
		var to sql.NullString
		if err := rows.Scan(&id, &table, &from, &to); err != nil {
			return err
		}
		if id != last {
			if name, ok := spelled[strings.ToLower(table)]; ok {
				table = name // SQLite ignores case here
			}
			t.ForeignKeys = append(t.ForeignKeys, tables.ForeignKey{Schema: schemaName, Table: table})
			last = id
		}
		key := &t.ForeignKeys[len(t.ForeignKeys)-1]
		key.Columns = append(key.Columns, from)
		if to.Valid {
			key.References = append(key.References, to.String)
		}
		return nil
	}, `SELECT id, "table", "from", "to" FROM pragma_foreign_key_list(?, ?) ORDER BY id, seq`, t.Name, schemaName)
}

func columns(ctx context.Context, db *sql.DB, t *tables.Table, most int) error {
	primary, integer := map[int]string{}, -1
	err := each(ctx, db, func(rows *sql.Rows) error {
		var c tables.Column
		var notNull bool
		var key int
		if err := rows.Scan(&c.Name, &c.Type, &notNull, &key); err != nil {
			return err
		}
		if c.Nullable = !notNull; key > 0 {
			primary[key] = c.Name
			if strings.EqualFold(c.Type, "INTEGER") {
				integer = len(t.Columns)
			}
		}
		if len(t.Columns) == most {
			t.More = true
			return nil
		}
		t.Columns = append(t.Columns, c)
		return nil
	}, `SELECT name, type, "notnull", pk FROM pragma_table_xinfo(?, ?) WHERE hidden <> 1 ORDER BY cid`, t.Name, schemaName)
	for i := 1; i <= len(primary); i++ {
		t.PrimaryKey = append(t.PrimaryKey, primary[i])
	}
	if len(primary) == 1 && integer >= 0 && integer < len(t.Columns) {
		t.Columns[integer].Nullable = false // an alias of the rowid
	}
	return err
}

// each calls do for each row of a query.
func each(ctx context.Context, db *sql.DB, do func(*sql.Rows) error, query string, args ...any) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // Err is asked
	for rows.Next() {
		if err := do(rows); err != nil {
			return fmt.Errorf("read the structure: %w", err)
		}
	}
	return rows.Err()
}
