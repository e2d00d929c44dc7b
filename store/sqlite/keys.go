package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/toolcrib/toolcrib/store"
)

// keysName is the key file beside the database, where no other is named.
const keysName = "keys"

// loadKeys reads the key file; what is wrong with it is store.ErrKeys.
func loadKeys(path string) (*store.Keys, error) {
	text, err := readKeys(path)
	if err != nil {
		return nil, keysError(path, err)
	}
	k, err := store.ParseKeys(text)
	if err != nil {
		return nil, keysError(path, err)
	}
	return k, nil
}

func keysError(path string, err error) error {
	return &store.Error{Kind: store.ErrKeys, Path: path, Err: err}
}

func readKeys(path string) (text []byte, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	return io.ReadAll(io.LimitReader(f, store.MaxKeysBytes+1))
}

// makeKeys returns the keys of the file, which it makes if there is none: whole
// or not at all, and never in place of one that another process has made.
func makeKeys(path string) (*store.Keys, error) {
	k, err := loadKeys(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	if err := writeKeys(path, store.NewKeys()); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, keysError(path, err)
	}
	return loadKeys(path)
}

func writeKeys(path string, k *store.Keys) (err error) {
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, ".keys-*") // 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // its other name stays
	if _, err := f.Write(k.Text()); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil {
		return fmt.Errorf("make it: %w", err)
	}
	return syncFolder(folder)
}

// syncFolder makes the names in a folder survive the loss of power, where the
// system can do that.
func syncFolder(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	_ = d.Sync() // not every file system knows it
	return d.Close()
}

// pendingKeys is where the keys of a database lie until it is made.
func pendingKeys(path string) string { return path + "-keys" }

// keysToCreate returns the keys of a database that is being made, in its transaction.
// Keys that belong to it alone get their name when it is there; see [settleKeys].
func keysToCreate(path string, o Options) (*store.Keys, error) {
	if o.Keys != ownKeys(path) {
		return makeKeys(o.Keys)
	}
	if _, err := os.Stat(o.Keys); err == nil {
		return nil, lost(path, o.Keys, "it has no tables")
	}
	k, pending := store.NewKeys(), pendingKeys(path)
	if err := os.Remove(pending); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, keysError(pending, err) // of a process that was killed before the database was there
	}
	if err := writeKeys(pending, k); err != nil {
		return nil, keysError(pending, err)
	}
	return k, nil
}

// settleKeys gives the keys of a database that was just made their name.
func settleKeys(ctx context.Context, c *conn, path string, o Options) error {
	pending := pendingKeys(path)
	if _, err := os.Stat(pending); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	k, err := loadKeys(pending)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another process was first
	}
	if err != nil {
		return err
	}
	found, err := readSealed(ctx, c)
	if err != nil {
		return err
	}
	if bytes.Equal(found.KeyID, k.ID()) {
		if err := writeKeys(ownKeys(path), k); err != nil && !errors.Is(err, fs.ErrExist) {
			return keysError(ownKeys(path), err)
		}
	}
	if err := os.Remove(pending); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return keysError(pending, err)
	}
	return nil
}

// openKeys returns the keys of a database. A key file that is gone is made again only for
// somebody who accepts that nothing vouches for what was there; that is kept in the
// system journal.
func openKeys(ctx context.Context, c *conn, o Options, incomplete error) (*store.Keys, error) {
	keys, err := loadKeys(o.Keys)
	if err == nil && o.AdoptBy == "" {
		return keys, checkKeys(ctx, c, o.Keys, keys)
	}
	if o.AdoptBy == "" || (err != nil && !errors.Is(err, fs.ErrNotExist)) {
		return nil, err
	}
	if keys, err = makeKeys(o.Keys); err != nil {
		return nil, err
	}
	return keys, adopt(ctx, c, keys, o, incomplete)
}

// checkKeys tells a key file of another database, which must not go on sealing this
// one. A seal that does not hold otherwise is no reason not to open it: then nothing can
// be added, but all can be looked at.
func checkKeys(ctx context.Context, c *conn, path string, keys *store.Keys) error {
	found, err := readSealed(ctx, c)
	if err != nil {
		return err
	}
	if len(found.KeyID) > 0 && !bytes.Equal(found.KeyID, keys.ID()) {
		return keysError(path, errors.New("it has other keys than those that have sealed the database"))
	}
	return nil
}
