package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/toolcrib/toolcrib/store"
)

// putDoc keeps a document as an event of the system journal makes it. counts says that the
// event is about it: that is a change of its table, which is sealed again.
func (t *tx) putDoc(d *store.Doc, counts bool) error {
	table, sealed := store.Sealed(d.Kind)
	if sealed = sealed && counts; sealed {
		if err := t.checkTable(table); err != nil {
			return err
		}
	}
	var err error
	if d.Text == "" {
		_, err = t.exec("DELETE FROM docs WHERE kind = ? AND id = ? AND user = ?", d.Kind, d.ID, d.User)
	} else {
		_, err = t.exec(`INSERT INTO docs (kind, id, user, folded, look, at, gone, doc) VALUES (?,?,?,?,?,?,?,?)
			ON CONFLICT (kind, id, user) DO UPDATE SET at = excluded.at, gone = excluded.gone, doc = excluded.doc`,
			d.Kind, d.ID, d.User, d.Keys.Folded, d.Keys.Look, d.At, d.Gone, d.Text)
	}
	if err != nil || !sealed {
		return err
	}
	t.seal.stale[table] = true
	_, err = t.exec("UPDATE counters SET value = value + 1 WHERE name = ?", store.SealedDocs[table].Name)
	return err
}

// docs reads documents. where is made by this package.
func docs[T any](ctx context.Context, r reader, where string, args ...any) (list []T, err error) {
	err = r.each(ctx, "SELECT doc FROM docs WHERE "+where, args, func(scan scanFunc) error {
		var raw json.RawMessage
		if err := scan(&raw); err != nil {
			return err
		}
		// Numbers stay as they are written: the scope of a token names values of parameters,
		// and 9007199254740993 is another one than what a float makes of it.
		var v T
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		list = append(list, v)
		return nil
	})
	return list, err
}

func (sn snapshot) Docs(ctx context.Context, do func(store.Doc) error) error {
	const all = `SELECT kind, id, user, folded, look, at, gone, doc FROM docs
		UNION ALL SELECT 'counter', name, '', '', '', 0, 0, CAST(value AS TEXT) FROM counters`
	return sn.each(ctx, all, nil, func(scan scanFunc) error {
		var d store.Doc
		if err := scan(&d.Kind, &d.ID, &d.User, &d.Keys.Folded, &d.Keys.Look, &d.At, &d.Gone, &d.Text); err != nil {
			return err
		}
		return do(d)
	})
}

// sealed reads documents of a sealed table, and compares it with its seal at the same moment.
type sealed struct {
	s     *Store
	table int
}

func (r sealed) each(ctx context.Context, query string, args []any, do func(scan scanFunc) error) error {
	return r.s.frozen(ctx, func(sn snapshot) error {
		if err := r.s.checkTable(ctx, sn, r.table); err != nil {
			return err
		}
		return sn.each(ctx, query, args, do)
	})
}

func (r sealed) row(ctx context.Context, query string, args []any, dest ...any) error {
	return one(ctx, r, query, args, func(scan scanFunc) error { return scan(dest...) })
}
