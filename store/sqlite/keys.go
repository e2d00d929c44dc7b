package sqlite

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlstore"
)

// keysName is the name of the key file next to the database, unless another file is named.
const keysName = "keys"

// pendingKeys returns the path of the keys of a database until it is created.
func pendingKeys(path string) string { return path + "-keys" }

// keysToCreate returns the keys of a database that is being created, in its transaction. Keys that
// belong to it alone get their final name afterwards; see [settleKeys].
func keysToCreate(path string, o Options) (*store.Keys, error) {
	k := store.NewKeys()
	if o.From != nil {
		var err error
		if k, err = o.From.ExportKeys(); err != nil {
			return nil, err
		}
	}
	if o.Keys != ownKeys(path) {
		if err := k.Create(o.Keys); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		known, err := store.LoadKeys(o.Keys)
		if err == nil && o.From != nil && !bytes.Equal(known.ID(), k.ID()) {
			err = &store.Error{Kind: store.ErrKeys, Path: o.Keys, Err: errors.New("it has other keys than those of the store that is copied")}
		}
		return known, err
	}
	if _, err := os.Stat(o.Keys); err == nil {
		return nil, lost(path, o.Keys, "it has no tables")
	}
	pending := pendingKeys(path)
	if err := removeKeys(pending); err != nil {
		return nil, err // left by a process that was killed before the database was created
	}
	return k, k.Create(pending)
}

// removeKeys removes a key file, which may be missing.
func removeKeys(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &store.Error{Kind: store.ErrKeys, Path: path, Err: err}
	}
	return nil
}

// settleKeys gives the keys of a new database their final name.
func settleKeys(ctx context.Context, c *conn, path string) error {
	pending := pendingKeys(path)
	k, err := store.LoadKeys(pending)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the usual case, or another process was first
	}
	if err != nil {
		return err
	}
	id, err := sqlstore.KeyID(ctx, c)
	if err != nil {
		return err
	}
	if bytes.Equal(id, k.ID()) {
		if err := k.Create(ownKeys(path)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return removeKeys(pending)
}

// openKeys returns the keys of a database. A missing key file is created again only for a user who
// accepts that the stored data can no longer be verified; the system journal records that.
func openKeys(ctx context.Context, c *conn, o Options, incomplete error) (*store.Keys, error) {
	keys, err := store.LoadKeys(o.Keys)
	if o.AdoptBy != "" && errors.Is(err, fs.ErrNotExist) {
		keys, err = store.MakeKeys(o.Keys)
	}
	switch {
	case err != nil:
		return nil, err
	case o.AdoptBy == "":
		return keys, sqlstore.CheckKeys(ctx, c, o.Keys, keys)
	}
	return keys, adopt(ctx, c, keys, o, incomplete)
}

// adopt calls [sqlstore.Adopt] in a transaction.
func adopt(ctx context.Context, c *conn, keys *store.Keys, o Options, incomplete error) error {
	if err := c.run(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() { _ = c.run(ctx, "ROLLBACK") }() // fails after the commit
	if err := sqlstore.Adopt(ctx, c, keys, o.AdoptBy, o.Now(), incomplete); err != nil {
		return err
	}
	return c.run(ctx, "COMMIT")
}
