package env

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/secret"
)

// MemoryFolder is the folder of the notes of users among the stored files.
const MemoryFolder = "memory"

// Folders of stored files that are in the database, also if it is in the data folder: passwords, sessions of browsers,
// failed sign-ins, the register of other nodes of the bus, and invites for them.
const (
	PasswordFolder = "passwords"
	SessionFolder  = "browser-sessions"
	AttemptsFolder = "sign-ins"
	NodesFolder    = "nodes"
	InvitesFolder  = "node-invites"
)

// Files returns the stored files: those of the data folder or, if the configuration names a database, those in it. It
// is opened at the first use.
func (e *Env) Files() toolcrib.Files { return files{e} }

type files struct{ *Env }

// opened returns the place of the files.
func (e files) opened(ctx context.Context) (toolcrib.Files, error) {
	if e.inFolder() {
		return safefile.Folder{Dir: e.DataDir}, nil
	}
	if err := e.Open(ctx); err != nil {
		return nil, err
	}
	return e.Store, nil
}

// File implements [toolcrib.Files].
func (e files) File(ctx context.Context, name string) ([]byte, error) {
	of, err := e.opened(ctx)
	if err != nil {
		return nil, err
	}
	return of.File(ctx, name)
}

// FilesIn implements [toolcrib.Files].
func (e files) FilesIn(ctx context.Context, folder string) (map[string][]byte, error) {
	of, err := e.opened(ctx)
	if err != nil {
		return nil, err
	}
	return of.FilesIn(ctx, folder)
}

// ChangeFile implements [toolcrib.Files].
func (e files) ChangeFile(ctx context.Context, name string, change func([]byte) ([]byte, error)) error {
	of, err := e.opened(ctx)
	if err != nil {
		return err
	}
	return of.ChangeFile(ctx, name, change)
}

// inFolder reports whether the database, and so the stored files, are in the data folder.
func (e *Env) inFolder() bool {
	address, err := e.database()
	return err == nil && address == ""
}

// database returns the address of the database, or "" if it is a file in the data folder.
func (e *Env) database() (string, error) {
	if e.Config.Database.IsEmpty() {
		return "", nil
	}
	r := e.Resolver()
	r.Secrets = inDatabase{}
	return e.Config.Database.Resolve(r)
}

// inDatabase are the stored secrets as the address of the database sees them.
type inDatabase struct{}

func (inDatabase) Secret(string) (string, error) {
	return "", &config.SecretError{Message: "with PostgreSQL, stored secrets are in the database, so its address cannot be " +
		"one of them; use ${env:NAME} or ${file:PATH}"}
}

// lockPause is the interval between attempts to take a lock.
const lockPause = 100 * time.Millisecond

// held is the content of the file of a lock.
type held struct {
	Owner string    `json:"owner"` // of leases
	Until time.Time `json:"until"`
}

// Lock keeps the other processes of the data folder and, if the configuration names a database, the other servers from
// taking the same lock until unlock is called, at most for the duration lasts. It waits for them as long.
func (e *Env) Lock(name string, lasts time.Duration) (unlock func(), err error) {
	if err := os.MkdirAll(e.DataDir, 0o700); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(lasts)
	here, err := safefile.Lock(filepath.Join(e.DataDir, name+".lock"), lasts)
	if err != nil || e.inFolder() {
		return here, err
	}
	ctx, file := context.Background(), "locks/"+name
	mine := held{Owner: e.Owner().ID}
	for {
		err = e.Files().ChangeFile(ctx, file, func(before []byte) ([]byte, error) {
			var other held
			now := time.Now()
			if json.Unmarshal(before, &other) == nil && other.Until.After(now) && other.Until.Before(now.Add(2*lasts)) {
				return nil, safefile.ErrBusy
			}
			mine.Until = now.Add(lasts)
			return json.Marshal(mine)
		})
		if !errors.Is(err, toolcrib.ErrConflict) || time.Now().After(deadline) {
			break
		}
		time.Sleep(lockPause)
	}
	if err != nil {
		here()
		return nil, err
	}
	return func() {
		_ = e.Files().ChangeFile(ctx, file, func(before []byte) ([]byte, error) { // otherwise it ends with its time
			var now held
			if json.Unmarshal(before, &now) == nil && (now.Owner != mine.Owner || !now.Until.Equal(mine.Until)) {
				return before, nil
			}
			return nil, nil
		})
		here()
	}, nil
}

// FilesToCopy calls each with every file of the data folder that a database for several servers has, and a backup: the
// notes of users, of one user at a time, and the stored secrets. The content of notes that cannot be read is nil.
func (e *Env) FilesToCopy(ctx context.Context, each func(name string, content []byte) error) error {
	folder := safefile.Folder{Dir: e.DataDir}
	users, err := os.ReadDir(folder.Path(MemoryFolder))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, user := range users {
		of := MemoryFolder + "/" + user.Name()
		info, err := os.Stat(folder.Path(of)) // the folder may be a link
		if err == nil && !info.IsDir() {
			continue
		}
		var notes map[string][]byte
		if err == nil {
			notes, err = folder.FilesIn(ctx, of)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			notes = map[string][]byte{"": nil}
		}
		for _, name := range slices.Sorted(maps.Keys(notes)) {
			if err := each(path.Join(of, name), notes[name]); err != nil {
				return err
			}
		}
	}
	content, err := folder.File(ctx, secret.FileName)
	if errors.Is(err, toolcrib.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return each(secret.FileName, content)
}

// filesToCopy returns the files of [Env.FilesToCopy]. One that cannot be read is an error.
func (e *Env) filesToCopy(ctx context.Context) (map[string][]byte, error) {
	all := map[string][]byte{}
	err := e.FilesToCopy(ctx, func(name string, content []byte) error {
		if content == nil {
			return BadRequestf("%s cannot be read, so nothing was copied; remove it, or make it readable",
				safefile.Folder{Dir: e.DataDir}.Path(name))
		}
		all[name] = content
		return nil
	})
	return all, err
}

// WriteCopied writes files of [Env.FilesToCopy] to the data folder, and nothing else. A file that exists with another
// content is a conflict.
func (e *Env) WriteCopied(ctx context.Context, all map[string][]byte) error {
	folder := safefile.Folder{Dir: e.DataDir}
	for name, content := range all {
		if name != secret.FileName && !strings.HasPrefix(name, MemoryFolder+"/") {
			continue
		}
		err := folder.ChangeFile(ctx, name, func(before []byte) ([]byte, error) {
			if before != nil && string(before) != string(content) {
				return nil, toolcrib.Errorf(toolcrib.CodeConflict, "there is a file %s already; name another data folder",
					folder.Path(name))
			}
			return content, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
