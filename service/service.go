// Package service is everything that a front end can do, once: operations that know no
// transport. Each takes who asks as an argument, and decides what they may see and do;
// its errors have a code ([toolcrib.CodeOf]). Flags, terminals and HTTP are for
// front ends.
package service

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// Options are what a [Service] stands on.
type Options struct {
	DataDir string         // absolute; its database is made at the first use
	Store   sqlite.Options // how the database is opened

	// Driver names the processes that drive runs under Drivers (RunRecord.Driver).
	Driver  string
	Drivers Drivers
	// Runner makes what a stored run is decided, cancelled and continued with.
	Runner func(context.Context, store.RunRecord) (*agent.Runner, error)
	// Expire is how long an approval waits; 0 = until it is decided.
	Expire time.Duration
	// Notice hears what a person should know and what ends nothing.
	Notice func(text string)
}

// Service is a data folder as front ends see it. It may be used by several goroutines.
type Service struct {
	Options
	store *sqlite.Store
}

// DatabaseName is the database's file in the data folder.
const DatabaseName = "toolcrib.db"

// Open opens the data folder.
func Open(ctx context.Context, o Options) (*Service, error) {
	path := filepath.Join(o.DataDir, DatabaseName)
	s, err := sqlite.Open(ctx, path, o.Store)
	if errors.Is(err, store.ErrUnavailable) && readOnlyFolder(o.DataDir) {
		err = &store.Error{Kind: store.ErrReadOnly, Path: path, Err: err}
	}
	if err != nil {
		return nil, err
	}
	return &Service{Options: o, store: s}, nil
}

// Store returns the open store, which shows everything to everybody.
func (s *Service) Store() *sqlite.Store { return s.store }

// Close closes the store.
func (s *Service) Close() error { return s.store.Close() }

// readOnlyFolder reports whether nobody, or not this user, can write in an existing
// folder: SQLite says of it no more than that it cannot open its file.
func readOnlyFolder(dir string) bool {
	probe, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission)
	}
	_ = errors.Join(probe.Close(), os.Remove(probe.Name()))
	return false
}

// IsConflict reports whether somebody else changed the run in the meantime.
func IsConflict(err error) bool {
	var state *agent.StateError
	return errors.As(err, &state) || errors.Is(err, toolcrib.ErrConflict)
}
