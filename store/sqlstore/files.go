package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/store"
)

const (
	maxFiles = 100_000
	// fileTries bounds how often a change of a file is repeated because others have changed its folder.
	fileTries = 1000

	fileColumns = "SELECT name, at, seal, content FROM files "
)

// errFileChanged reports that a file, or another one in its folder, was changed since it was read.
var errFileChanged = errors.New("the file was changed")

// eachFile calls do with stored files. where must not contain user input.
func eachFile(ctx context.Context, r Reader, where string, args []any, do func(*store.StoredFile) error) error {
	return r.Each(ctx, fileColumns+where, args, func(scan Scan) error {
		f := new(store.StoredFile)
		if err := scan(&f.Name, &f.At, &f.Sealed, &f.Content); err != nil {
			return err
		}
		return do(f)
	})
}

// Files implements [store.Snapshot].
func (sn snapshot) Files(ctx context.Context, do func(*store.StoredFile) error) error {
	return eachFile(ctx, sn, "ORDER BY name", nil, do)
}

// File implements [toolcrib.Files].
func (s *Store) File(ctx context.Context, name string) ([]byte, error) {
	if err := safefile.CheckName(name); err != nil {
		return nil, err
	}
	f, err := s.file(ctx, reading{s}, name)
	if err == nil && f == nil {
		err = toolcrib.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return f.Content, nil
}

// file returns a file after checking its seal, or nil.
func (s *Store) file(ctx context.Context, r Reader, name string) (found *store.StoredFile, err error) {
	err = eachFile(ctx, r, "WHERE name = ?", []any{name}, func(f *store.StoredFile) error {
		found = f
		return f.Check(s.keys)
	})
	return found, err
}

// FilesIn implements [toolcrib.Files].
func (s *Store) FilesIn(ctx context.Context, folder string) (map[string][]byte, error) {
	if err := safefile.CheckName(folder); err != nil {
		return nil, err
	}
	files, size := make(map[string][]byte), 0
	err := eachFile(ctx, reading{s}, inFolder+" ORDER BY name", folderArgs(folder), func(f *store.StoredFile) error {
		if size += len(f.Content); size > safefile.MaxFolderBytes {
			return ErrEnough
		}
		if name := strings.TrimPrefix(f.Name, folder+"/"); !strings.Contains(name, "/") {
			files[name] = f.Content
		}
		return f.Check(s.keys)
	})
	return files, err
}

// SomeFiles implements [store.Store].
func (s *Store) SomeFiles(ctx context.Context, name, folder string) (map[string][]byte, error) {
	all := make(map[string][]byte)
	args := append(folderArgs(folder), name)
	err := eachFile(ctx, reading{s}, inFolder+" OR name = ?", args, func(f *store.StoredFile) error {
		all[f.Name] = f.Content
		return f.Check(s.keys)
	})
	return all, err
}

// inFolder chooses the files in a folder, and in folders in it; 0 is the character after the slash.
const inFolder = "WHERE name >= ? AND name < ?"

func folderArgs(folder string) []any { return []any{folder + "/", folder + "0"} }

// fileState returns the seals of a file and of the others in its folder, and their number.
func fileState(ctx context.Context, r Reader, name string) (state string, n int, err error) {
	where, args := "WHERE name = ?", []any{name}
	if folder := path.Dir(name); folder != "." {
		where, args = inFolder, folderArgs(folder)
	}
	var b strings.Builder
	err = r.Each(ctx, "SELECT name, seal FROM files "+where+" ORDER BY name", args, func(scan Scan) error {
		var name string
		var seal []byte
		err := scan(&name, &seal)
		fmt.Fprintf(&b, "%q %x\n", name, seal)
		n++
		return err
	})
	return b.String(), n, err
}

// ChangeFile implements [toolcrib.Files]. change runs outside of the transaction, which then compares the
// folder with its state before.
func (s *Store) ChangeFile(ctx context.Context, name string, change func([]byte) ([]byte, error)) error {
	if err := safefile.CheckName(name); err != nil {
		return err
	}
	for range fileTries {
		if err := ctx.Err(); err != nil {
			return err
		}
		var before *store.StoredFile
		var state string
		err := s.failed(ctx, s.frozen(ctx, func(sn snapshot) (err error) {
			if before, err = s.file(ctx, sn, name); err == nil {
				state, _, err = fileState(ctx, sn, name)
			}
			return err
		}))
		if err != nil {
			return err
		}
		var content []byte
		if before != nil {
			content = append([]byte{}, before.Content...) // not nil
		}
		after, err := change(content)
		switch {
		case err != nil:
			return err
		case len(after) > safefile.MaxBytes:
			return safefile.ErrTooLarge
		case after == nil && before == nil:
			return nil
		}
		err = s.write(ctx, &job{barrier: true, bytes: len(after), do: func(t *tx) error {
			return t.putFile(name, before, after, state)
		}})
		if !errors.Is(err, errFileChanged) {
			return err
		}
	}
	return toolcrib.Errorf(toolcrib.CodeConflict, "other programs change %s all the time; try again later", name)
}

// putFile replaces a file, or removes it if content is nil, unless its folder has another state.
func (t *tx) putFile(name string, before *store.StoredFile, content []byte, state string) error {
	now, inFolder, err := fileState(t.ctx, t.w.db, name)
	switch {
	case err != nil:
		return err
	case now != state:
		return reject(errFileChanged)
	}
	var from, to store.Seal
	at := t.w.now().UnixMicro()
	if before != nil {
		from, at = t.w.keys.FilePlace(name, before.Sealed), max(at, before.At+1)
	} else {
		var all int
		if err := t.row("SELECT count(*) FROM files", nil, &all); err != nil {
			return err
		}
		if all >= maxFiles || inFolder >= safefile.MaxFolder {
			return reject(fmt.Errorf("there are %d stored files, and %d in the folder of %s, and can be no more: %w", all,
				inFolder, name, store.ErrTooLarge))
		}
	}
	if content == nil {
		err = t.later("DELETE FROM files WHERE name = ?", name)
	} else {
		seal := t.w.keys.SealFile(name, at, content)
		to = t.w.keys.FilePlace(name, seal[:])
		err = t.later(`INSERT INTO files (name, at, seal, content) VALUES (?,?,?,?)
			ON CONFLICT (name) DO UPDATE SET at = excluded.at, seal = excluded.seal, content = excluded.content`,
			name, at, seal[:], content)
	}
	if err != nil {
		return err
	}
	return t.move(from, to)
}

// sealFiles seals the current content of each file.
func sealFiles(ctx context.Context, c Execer, keys *store.Keys) error {
	seals := make(map[string]store.Seal)
	err := eachFile(ctx, c, "", nil, func(f *store.StoredFile) error {
		seals[f.Name] = keys.SealFile(f.Name, f.At, f.Content)
		return nil
	})
	for name, seal := range seals {
		if err == nil {
			_, err = c.Exec(ctx, "UPDATE files SET seal = ? WHERE name = ?", seal[:], name)
		}
	}
	return err
}

// ReplaceFiles replaces all stored files by those that change returns. c is in a transaction, which it does not commit.
func ReplaceFiles(
	ctx context.Context, c Execer, keys *store.Keys, at time.Time,
	change func(map[string][]byte) (map[string][]byte, error),
) error {
	found, err := readSealed(ctx, c)
	if err != nil {
		return err
	}
	s := headSeal{system: found.Head}
	if s.record, err = found.Open(keys); err != nil {
		return err
	}
	files := make(map[string][]byte)
	err = eachFile(ctx, c, "", nil, func(f *store.StoredFile) error {
		files[f.Name] = f.Content
		s.record.Runs.Add(keys.FilePlace(f.Name, f.Sealed))
		return f.Check(keys)
	})
	if err == nil {
		files, err = change(files)
	}
	if err != nil {
		return err
	}
	if _, err := c.Exec(ctx, "DELETE FROM files"); err != nil {
		return err
	}
	for name, content := range files {
		if err := safefile.CheckName(name); err != nil {
			return err
		}
		seal := keys.SealFile(name, at.UnixMicro(), content)
		_, err := c.Exec(ctx, "INSERT INTO files (name, at, seal, content) VALUES (?,?,?,?)", name, at.UnixMicro(), seal[:], content)
		if err != nil {
			return err
		}
		s.record.Runs.Add(keys.FilePlace(name, seal[:]))
	}
	s.record.Moves++
	return s.put(ctx, c, keys, [store.SealedTables]bool{})
}

// eachFilePlace calls add with the place of each stored file.
func eachFilePlace(ctx context.Context, r Reader, keys *store.Keys, add func(store.Seal)) error {
	return r.Each(ctx, "SELECT name, seal FROM files", nil, func(scan Scan) error {
		var name string
		var seal []byte
		err := scan(&name, &seal)
		add(keys.FilePlace(name, seal))
		return err
	})
}
