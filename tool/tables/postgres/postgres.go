// Package postgres reads the structure of PostgreSQL databases for describe_tables.
package postgres

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolcrib/toolcrib/tool/tables"
)

const (
	kind = "postgresql"
	// maxNames bounds the tables that are read.
	maxNames = 10_000

	connectTimeout   = 5 * time.Second
	statementTimeout = 5 * time.Second
	closeTimeout     = 2 * time.Second
)

// Read reads the structure of a database in one read-only transaction. address is a URL (postgres://…)
// or key=value pairs, as in libpq. Errors contain neither address nor password.
func Read(ctx context.Context, address string, q tables.Query) (tables.Structure, error) {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		// The text of the original error quotes the address.
		return tables.Structure{}, errors.New("postgresql: the address cannot be read; is it a URL (postgres://…) or key=value pairs?")
	}
	if config.ConnectTimeout <= 0 || config.ConnectTimeout > connectTimeout {
		config.ConnectTimeout = connectTimeout
	}
	// No named statements: they do not work through a connection pooler.
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	if _, ok := config.RuntimeParams["application_name"]; !ok {
		config.RuntimeParams["application_name"] = "toolcrib"
	}
	s, err := connected(ctx, config, q)
	return s, tables.Safe(kind, err, address, config.Password)
}

func connected(ctx context.Context, config *pgx.ConnConfig, q tables.Query) (s tables.Structure, err error) {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return s, err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = conn.Close(end) // nothing was written
	}()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return s, err
	}
	// The search path makes type names fully qualified, and excludes functions of other schemas.
	const settings = `SELECT pg_catalog.set_config('search_path', 'pg_catalog', true),
		pg_catalog.set_config('statement_timeout', $1, true), pg_catalog.set_config('lock_timeout', $1, true)`
	if _, err := tx.Exec(ctx, settings, strconv.FormatInt(statementTimeout.Milliseconds(), 10)); err != nil {
		return s, err
	}
	s, err = read(ctx, tx, q)
	if err != nil {
		return s, err
	}
	return s, tx.Rollback(ctx)
}

func read(ctx context.Context, tx pgx.Tx, q tables.Query) (tables.Structure, error) {
	s := tables.Structure{Kind: kind}
	found, err := list(ctx, tx, q, &s)
	if err != nil || !q.Columns || len(found) == 0 {
		return s, err
	}
	at := make(map[string]*tables.Table, len(found))
	for i, id := range found {
		at[id] = &s.Tables[i]
	}
	ids := "{" + strings.Join(found, ",") + "}"
	if err := columns(ctx, tx, ids, at, q.MaxColumns); err != nil {
		return s, err
	}
	return s, keys(ctx, tx, ids, at)
}

// list adds the selected tables, and returns their object identifiers in the same order. Partitions
// belong to their partitioned table and are not listed.
func list(ctx context.Context, tx pgx.Tx, q tables.Query, s *tables.Structure) ([]string, error) {
	const query = `SELECT c.oid::text, n.nspname::text, c.relname::text,
			CASE c.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'f' THEN 'foreign table' ELSE 'table' END
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
			AND n.nspname NOT LIKE 'pg\_%' AND n.nspname <> 'information_schema'
			AND ($1::text = '' OR n.nspname = $1::text) AND ($2::text = '' OR c.relname = $2::text)
		ORDER BY n.nspname::text COLLATE "C", c.relname::text COLLATE "C" LIMIT $3::int`
	rows, err := tx.Query(ctx, query, q.Schema, q.Table, maxNames+1)
	if err != nil {
		return nil, err
	}
	var found []string
	var id string
	var t tables.Table
	seen := 0
	_, err = pgx.ForEachRow(rows, []any{&id, &t.Schema, &t.Name, &t.Kind}, func() error {
		if seen++; seen > maxNames {
			s.More = true
			return nil
		}
		if !q.Matches(t.Schema, t.Name) {
			return nil
		}
		if len(s.Tables) >= q.MaxTables {
			s.More = true
			return nil
		}
		s.Tables, found = append(s.Tables, t), append(found, id)
		return nil
	})
	return found, err
}

func columns(ctx context.Context, tx pgx.Tx, ids string, at map[string]*tables.Table, most int) error {
	const query = `SELECT a.attrelid::text, a.attname::text, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull
		FROM pg_attribute a WHERE a.attrelid = ANY ($1::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
		ORDER BY a.attrelid, a.attnum`
	rows, err := tx.Query(ctx, query, ids)
	if err != nil {
		return err
	}
	var id string
	var c tables.Column
	_, err = pgx.ForEachRow(rows, []any{&id, &c.Name, &c.Type, &c.Nullable}, func() error {
		t := at[id]
		switch {
		case t == nil:
		case len(t.Columns) >= most:
			t.More = true
		default:
			t.Columns = append(t.Columns, c)
		}
		return nil
	})
	return err
}

// keys adds primary and foreign keys, with columns in the order of the key.
func keys(ctx context.Context, tx pgx.Tx, ids string, at map[string]*tables.Table) error {
	const names = `ARRAY(SELECT a.attname::text FROM unnest(k.KEY) WITH ORDINALITY AS u(number, place)
		JOIN pg_attribute a ON a.attrelid = k.TABLE AND a.attnum = u.number ORDER BY u.place)`
	own := strings.NewReplacer("KEY", "conkey", "TABLE", "conrelid").Replace(names)
	others := strings.NewReplacer("KEY", "confkey", "TABLE", "confrelid").Replace(names)
	query := `SELECT k.conrelid::text, k.contype::text, coalesce(n.nspname::text, ''), coalesce(c.relname::text, ''), ` +
		own + `, ` + others + `
		FROM pg_constraint k LEFT JOIN pg_class c ON c.oid = k.confrelid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE k.conrelid = ANY ($1::oid[]) AND k.contype IN ('p', 'f') AND k.conparentid = 0
		ORDER BY k.conrelid, k.conname::text COLLATE "C"`
	rows, err := tx.Query(ctx, query, ids)
	if err != nil {
		return err
	}
	var id, contype, schema, table string
	var mine, theirs []string
	_, err = pgx.ForEachRow(rows, []any{&id, &contype, &schema, &table, &mine, &theirs}, func() error {
		t := at[id]
		switch {
		case t == nil:
		case contype == "p":
			t.PrimaryKey = append([]string(nil), mine...)
		default:
			t.ForeignKeys = append(t.ForeignKeys, tables.ForeignKey{
				Columns: append([]string(nil), mine...), Schema: schema, Table: table, References: append([]string(nil), theirs...),
			})
		}
		return nil
	})
	return err
}
