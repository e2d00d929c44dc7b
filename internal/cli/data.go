package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// databaseName is the database's file in the data folder.
const databaseName = "toolcrib.db"

// database opens the store, once, for a command that does something; it is made at its
// first use.
func (a *app) database(ctx context.Context) (*sqlite.Store, error) {
	s, err := a.openDatabase(ctx, false)
	if err != nil {
		return nil, err
	}
	return s, a.recordConfiguration(ctx, s)
}

// databaseToRead opens the store for a command that only looks: a database that
// cannot be written, was damaged, or lies on a full disk, is no reason not to.
func (a *app) databaseToRead(ctx context.Context) (*sqlite.Store, error) {
	s, err := a.openDatabase(ctx, false)
	if errors.Is(err, store.ErrReadOnly) || errors.Is(err, store.ErrDamaged) || errors.Is(err, store.ErrFull) {
		return a.openDatabase(ctx, true)
	}
	return s, err
}

func (a *app) openDatabase(ctx context.Context, readOnly bool) (*sqlite.Store, error) {
	return a.openWith(ctx, sqlite.Options{ReadOnly: readOnly})
}

// openWith opens the store, with the keys that the configuration names.
func (a *app) openWith(ctx context.Context, o sqlite.Options) (*sqlite.Store, error) {
	if a.store != nil {
		return a.store, nil
	}
	dir, err := a.dataDir()
	if err != nil {
		return nil, err
	}
	if o.Keys, err = a.keysFile(); err != nil {
		return nil, err
	}
	s, err := sqlite.Open(ctx, filepath.Join(dir, databaseName), o)
	if errors.Is(err, store.ErrUnavailable) && readOnlyFolder(dir) {
		err = &store.Error{Kind: store.ErrReadOnly, Path: filepath.Join(dir, databaseName), Err: err}
	}
	if errors.Is(err, store.ErrKeys) {
		return nil, fmt.Errorf("%w\nTo accept it: toolcrib runs verify --adopt", err)
	}
	if err != nil {
		return nil, err
	}
	a.store = s
	a.closers = append(a.closers, s)
	return s, nil
}

// readOnlyFolder tells whether nobody, or not this user, can write in an existing
// folder: SQLite says of it no more than that it cannot open its file.
func readOnlyFolder(dir string) bool {
	probe, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission)
	}
	_ = errors.Join(probe.Close(), os.Remove(probe.Name()))
	return false
}

// keysFile is the absolute path of the key file that is configured; "" = the one
// beside the database.
func (a *app) keysFile() (string, error) {
	c, err := a.configuration()
	if err != nil {
		return "", err
	}
	return c.Keys.Resolve(config.Resolver{}) // stored secrets need the keys
}

// overrideAge is for how long a gate goes on with what it has read of the overrides
// (contract §6: a change by another process holds within 1 s, one by this process at
// once).
const overrideAge = 500 * time.Millisecond

// availability reads what administrators have switched on and off (A9), at each
// offer and each turn. There is one for each gate, and its first answer is always
// read from the store, so that a new run begins with what holds then.
type availability struct {
	store *sqlite.Store

	mu   sync.Mutex
	read *sqlite.OverrideList // what over was made from; nil = nothing yet
	over gate.Overrides
}

func (v *availability) Overrides(ctx context.Context) (gate.Overrides, error) {
	age := overrideAge
	if v.isNew() {
		age = 0
	}
	read, err := v.store.OverridesWithin(ctx, age)
	if err != nil {
		return gate.Overrides{}, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if read != v.read {
		v.read, v.over = read, overridesOf(read.Overrides)
	}
	return v.over, nil
}

func (v *availability) isNew() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.read == nil
}

func overridesOf(list []store.Override) gate.Overrides {
	over := gate.Overrides{Tools: map[string]bool{}, Groups: map[string]bool{}}
	for _, o := range list {
		switch o.Kind {
		case store.OverrideTool:
			over.Tools[o.Name] = o.Enabled
		case store.OverrideGroup:
			over.Groups[o.Name] = o.Enabled
		}
	}
	return over
}

// workspace returns the root of the file tools: absolute, an existing folder.
func (a *app) workspace(flag string, given bool) (string, error) {
	name, dir := "--workspace", flag
	if !given {
		c, err := a.configuration()
		if err != nil {
			return "", err
		}
		name = "workspace"
		if dir, err = c.Workspace.Resolve(a.resolver()); err != nil {
			return "", err
		}
	} else if flag == "" {
		return "", usagef("--workspace: must name a folder")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", usagef("%s: the current folder is not known", name)
	}
	// Links are resolved once, here, so that every later check sees one name.
	real, err := filepath.EvalSymlinks(abs)
	if err == nil {
		var info os.FileInfo
		if info, err = os.Stat(real); err == nil && !info.IsDir() {
			return "", usagef("%s: %s is no folder", name, dir)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", usagef("%s: %s does not exist; make it first, or name another folder", name, dir)
	case errors.Is(err, fs.ErrPermission):
		return "", usagef("%s: %s cannot be read by this user", name, dir)
	case err != nil:
		return "", usagef("%s: %s cannot be used", name, dir)
	}
	f, err := os.Open(real)
	if err != nil {
		return "", usagef("%s: %s cannot be read by this user", name, dir)
	}
	return real, f.Close()
}

// findRun finds a run by its ID, the beginning of it, or as last: the newest run
// that no other run started.
func (a *app) findRun(ctx context.Context, s *sqlite.Store, name string) (store.RunRecord, error) {
	who, err := a.principal(ctx)
	if err != nil {
		return store.RunRecord{}, err
	}
	if name == "last" {
		rec, err := newestRun(ctx, s, who)
		if errors.Is(err, toolcrib.ErrNotFound) {
			err = failedf("not found: there is no run yet")
		}
		return rec, err
	}
	rec, err := s.Run(ctx, toolcrib.RunID(name))
	if err == nil {
		var mine bool
		if mine, err = own(ctx, s, &rec); err == nil && (!mine || !visibleTo(who, rec.User)) {
			err = toolcrib.ErrNotFound
		}
	}
	if errors.Is(err, toolcrib.ErrNotFound) && len(name) >= minPart {
		rec, err = a.runByPart(ctx, s, name)
	}
	if errors.Is(err, toolcrib.ErrNotFound) {
		return store.RunRecord{}, failedf("not found: there is no run %s; `toolcrib runs list` shows what there is", name)
	}
	return rec, err
}

const (
	minPart     = 2 // characters of an ID that may stand for it
	partsShown  = 5 // runs that an ambiguous part is said to fit
	partsLooked = 1 << 14
)

// runByPart finds the one run whose ID begins or ends with part, among the newest
// of those that the principal may know of.
func (a *app) runByPart(ctx context.Context, s *sqlite.Store, part string) (store.RunRecord, error) {
	start := "run_" + strings.TrimPrefix(part, "run_")
	var begin, end []store.RunRecord
	looked := 0
	err := a.eachRun(ctx, s, store.Filter{}, func(rec store.RunRecord) error {
		if looked++; looked > partsLooked {
			return errFound
		}
		switch id := string(rec.ID); {
		case strings.HasPrefix(id, start):
			begin = append(begin, rec)
		case strings.HasSuffix(id, part):
			end = append(end, rec)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errFound) {
		return store.RunRecord{}, err
	}
	fit := append(begin, end...)
	switch len(fit) {
	case 0:
		return store.RunRecord{}, toolcrib.ErrNotFound
	case 1:
		return fit[0], nil
	}
	text := fmt.Sprintf("run ID %s is ambiguous, give more of it (its end is enough); it fits", part)
	for _, rec := range fit[:min(len(fit), partsShown)] {
		text += "\n  " + string(rec.ID)
	}
	if more := len(fit) - partsShown; more > 0 {
		text += fmt.Sprintf("\n  and %d more", more)
	}
	return store.RunRecord{}, failedf("%s", text)
}

// load rebuilds a run from its journal.
func (a *app) load(ctx context.Context, s *sqlite.Store, run toolcrib.RunID) (*agent.State, error) {
	return agent.Load(ctx, s, run)
}
