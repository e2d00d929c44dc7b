// Package env has the parts of a data folder that every operation needs: the configuration, the store as the
// principal may see it, secrets and their mask, notices, and the audit log. The packages of the service use it
// instead of each other's state.
package env

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/notify"
	"github.com/toolcrib/toolcrib/internal/process"
	"github.com/toolcrib/toolcrib/provider/limit"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/postgres"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/store/sqlstore"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// Env has the configuration of a data folder, its store, its secrets and their mask, and the receivers of notices. It
// may be used by several goroutines once its store is open.
type Env struct {
	Options
	*folder

	recording sync.Mutex
	recorded  bool // the system journal is known to have the configuration; under recording

	findingKeys sync.Once
	modelKeys   []config.Value // keys that the models of the configuration may have
}

// folder is shared by all Envs of one data folder.
type folder struct {
	Store store.Store         // nil until it is opened
	Owner func() *store.Owner // owner of the leases of this process

	noticing sync.Mutex // held while a notice of [Env.Serial] is passed on
	mu       sync.Mutex
	noticed  map[string]bool // the texts that [Env.Once] has passed on; under mu
	site     string          // see [Env.Site]; under mu

	line notify.Line // messages of channels that are still to be sent
}

// Options configure an [Env].
type Options struct {
	// Config is the configuration in effect. If nil, the default one is used.
	Config *config.Config
	// DataDir is the absolute path of the data folder.
	DataDir string
	// Mask learns every secret that is found. If nil, a new one is made.
	Mask *guard.Masker

	// Driver names the kind of process that drives runs (RunRecord.Driver).
	Driver string
	// Self begins the command lines in hints. If empty, it is toolcrib.
	Self string
	// SelfHere begins the command lines in notifications, which say where on this machine the data is.
	// If empty, it is Self.
	SelfHere string
	// Log returns the operator's log. If nil, nothing is logged.
	Log func() (*slog.Logger, error)
	// Notice is called with messages for a person that do not end anything. If nil, they are dropped.
	Notice func(text string)
	// Alert is called with messages that a person must read before they continue. If nil, Notice is called.
	Alert func(text string)
	// Confirm asks a person a yes-or-no question. If nil, there is nobody to ask.
	Confirm func(question string) bool
	// OllamaAt is where to look for an Ollama that is not configured. If empty, at its usual address.
	OllamaAt string
	// Source is where Config was found, and the folder of the project.
	Source config.Source
	// Started is when the process started. If zero, it is the present time.
	Started time.Time
	// Observe wraps the journal that runs are driven with, to see what is appended. If nil, it is used as it is.
	Observe func(toolcrib.Journal) toolcrib.Journal
	// Lease is how long a process keeps its runs without renewing their leases, with the moment in which it can still
	// renew one whose time has passed. If 0, 4 seconds.
	Lease time.Duration
	// Share returns this process's share of the limits of a provider, which several processes have together. If it is
	// nil, or returns nil, they are those of this process alone.
	Share func(provider string, concurrent, perMinute int, of limit.Local) limit.Share
	// Tools are offered in addition to the built-in ones.
	Tools []toolcrib.Tool
	// NoSandbox returns why programs run without a sandbox, or "" if they have one. If nil, it is looked up on this
	// machine.
	NoSandbox func() string
}

// DriverServer is the [Options].Driver of a server.
const DriverServer = "server"

// OverrideAge is how long a gate uses the tool switches and the pins of MCP servers that it has read. A change by
// another process applies after that time at the latest, one by this process at once.
const OverrideAge = 500 * time.Millisecond

// New returns an Env whose store is not open yet; much works without one.
func New(o Options) *Env {
	if o.Config == nil {
		o.Config = config.Default()
	}
	o.Self = cmp.Or(o.Self, "toolcrib")
	o.SelfHere = cmp.Or(o.SelfHere, o.Self)
	o.Lease = cmp.Or(o.Lease, 4*time.Second)
	if o.Started.IsZero() {
		o.Started = time.Now()
	}
	if o.Mask == nil {
		o.Mask = guard.NewMasker()
	}
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	if o.Alert == nil {
		o.Alert = o.Notice
	}
	if o.NoSandbox == nil {
		o.NoSandbox = shell.Problem
	}
	owner := sync.OnceValue(func() *store.Owner {
		host, _ := os.Hostname() // for people
		self := process.Self()
		return &store.Owner{
			ID: rand.Text(), Host: host, Machine: self.Machine, PID: self.PID, Started: self.Started, Lease: o.Lease * 3 / 4,
		}
	})
	return &Env{Options: o, folder: &folder{Owner: owner}}
}

// Under returns an Env of the same data folder under another configuration.
func (e *Env) Under(c *config.Config) *Env {
	other := &Env{Options: e.Options, folder: e.folder}
	other.Config = c
	return other
}

// Close closes the store if it is open.
func (e *Env) Close() error {
	if e.Store == nil {
		return nil
	}
	return e.Store.Close()
}

// DatabaseName is the name of the database file in the data folder.
const DatabaseName = "toolcrib.db"

// Schema returns the version of the schema of databases that this program knows.
func Schema() int { return sqlstore.Baseline + len(sqlstore.Known()) }

// Open opens the store if it is not open yet, and creates the database at its first use if it is a file.
func (e *Env) Open(ctx context.Context) error { return e.open(ctx, opening{}) }

// Adopt opens the store even if its keys do not match, and records who accepted that.
func (e *Env) Adopt(ctx context.Context, who toolcrib.Principal) error {
	by, err := Administrator(who)
	if err != nil {
		return err
	}
	return e.open(ctx, opening{adoptBy: by})
}

// opening says how a store is opened.
type opening struct {
	readOnly bool
	adoptBy  string // who accepts that it does not match its seal
}

func (e *Env) open(ctx context.Context, how opening) error {
	if e.Store != nil {
		return nil
	}
	keys, err := e.KeysFile()
	if err != nil {
		return err
	}
	address, err := e.database()
	if err != nil {
		return err
	}
	var opened store.Store
	if address == "" {
		opened, err = e.openFile(ctx, sqlite.Options{
			Keys: keys, ReadOnly: how.readOnly, AdoptBy: how.adoptBy, Owner: *e.Owner(),
		})
	} else {
		opened, err = postgres.Open(ctx, address, postgres.Options{
			Keys: keys, ReadOnly: how.readOnly, AdoptBy: how.adoptBy, Owner: *e.Owner(),
		})
	}
	switch {
	case errors.Is(err, store.ErrKeys) && address != "":
		err = fmt.Errorf("%w\nCopy the file from another server of this database", err)
	case errors.Is(err, store.ErrKeys):
		err = fmt.Errorf("%w\nTo accept it: toolcrib runs verify --adopt", err)
	}
	if err != nil {
		return err
	}
	if e.Store = opened; address != "" {
		e.learnStored()
	}
	return nil
}

// openFile opens the database in the data folder.
func (e *Env) openFile(ctx context.Context, o sqlite.Options) (store.Store, error) {
	path := e.Database()
	opened, err := sqlite.Open(ctx, path, o)
	if errors.Is(err, store.ErrUnavailable) { // SQLite says no more of a folder that cannot be written
		if no := Writable(e.DataDir); errors.Is(no, syscall.EROFS) || errors.Is(no, fs.ErrPermission) {
			err = &store.Error{Kind: store.ErrReadOnly, Path: path, Err: err}
		}
	}
	return opened, err
}

// OpenFor opens the store for an operation of who. A changed configuration is recorded before.
func (e *Env) OpenFor(ctx context.Context, who toolcrib.Principal) error {
	if err := e.Open(ctx); err != nil {
		return err
	}
	return e.recordConfiguration(ctx, who)
}

// OpenToRead opens the store for reading, even if it is read-only, damaged or on a full disk.
func (e *Env) OpenToRead(ctx context.Context) error {
	err := e.Open(ctx)
	if errors.Is(err, store.ErrReadOnly) || errors.Is(err, store.ErrDamaged) || errors.Is(err, store.ErrFull) {
		if again := e.open(ctx, opening{readOnly: true}); !errors.Is(again, store.ErrReadOnly) {
			err = again // a database without tables is no news
		}
	}
	return err
}

// IsOpen reports whether the store is open.
func (e *Env) IsOpen() bool { return e.Store != nil }

// Database returns the path of the database file, which does not exist if the database is in PostgreSQL.
func (e *Env) Database() string { return filepath.Join(e.DataDir, DatabaseName) }

// recordConfiguration records in the system journal that the configuration in effect has changed since the last
// operation.
func (e *Env) recordConfiguration(ctx context.Context, who toolcrib.Principal) error {
	e.recording.Lock()
	defer e.recording.Unlock()
	if e.recorded {
		return nil
	}
	for file, hash := range e.Config.Files() {
		path, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		last, err := e.Store.LastChanged(ctx, store.SystemConfigChanged, path)
		if err != nil {
			return err
		}
		if last.Hash == hash {
			continue
		}
		err = e.RecordChanged(ctx, who, store.SystemConfigChanged, store.FileChanged{Path: path, Hash: hash})
		if errors.Is(err, store.ErrReadOnly) {
			return nil // whatever is to be changed will fail by itself
		}
		if err != nil {
			return fmt.Errorf("the configuration has changed, and this cannot be recorded, so nothing was done: %w", err)
		}
	}
	e.recorded = true
	return nil
}

// BadRequestf returns an error with the code bad_request.
func BadRequestf(format string, args ...any) error {
	return toolcrib.Errorf(toolcrib.CodeBadRequest, format, args...)
}

// Writable returns an error unless this user can write in a folder.
func Writable(dir string) error {
	probe, err := os.CreateTemp(dir, ".toolcrib-doctor-*")
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", dir, errors.Unwrap(err))
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}
