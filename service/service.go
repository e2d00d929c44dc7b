// Package service is everything that a front end can do, once: operations independent of any
// transport. Each takes who asks as an argument, and decides what they may see and do;
// its errors have a code ([toolcrib.CodeOf]). Flags, terminals and HTTP are for
// front ends.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/notify"
	"github.com/toolcrib/toolcrib/provider/catalog"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/tool/shell"
	"github.com/toolcrib/toolcrib/tool/system"
	"github.com/toolcrib/toolcrib/tool/web"
)

// Options are what a [Service] stands on.
type Options struct {
	// Config is the configuration in effect; nil = the default one.
	Config *config.Config
	// DataDir is the absolute path of the data folder.
	DataDir string
	// Mask learns every secret that comes up; nil = one of the service's own.
	Mask *guard.Masker

	// Driver names the processes that drive runs under Drivers (RunRecord.Driver), and
	// Self begins the command lines that hints show; "" = toolcrib. SelfHere begins those of notifications, which
	// say where on this machine the data is; "" = Self.
	Driver, Self, SelfHere string
	// Log makes the operator's log; nil = none.
	Log func() (*slog.Logger, error)
	// Notice hears what a person should know and what ends nothing, and Alert what they
	// must look at before they go on; nil = nobody, and as Notice.
	Notice, Alert func(text string)
	// Confirm asks a yes-or-no question; nil = nobody is there to be asked.
	Confirm func(question string) bool
	// OllamaAt is where an Ollama is looked for that nobody configured; "" = at its usual address.
	OllamaAt string
	// Source is where Config was found.
	Source config.Source
	// Started is when the process started.
	Started time.Time
	// Observe returns a journal that hears what is appended to the one that runs are driven
	// with; nil = nobody does.
	Observe func(toolcrib.Journal) toolcrib.Journal
	// Lease is how long a worker of a [Pool] that says nothing keeps its run; 0 = 4 seconds.
	Lease time.Duration
	// NoSandbox returns why programs run without a sandbox, "" if they have one; nil = as
	// it is on this machine.
	NoSandbox func() string
}

// Service is a data folder, under a configuration, as front ends see it. It may be used
// by several goroutines once its store is open.
type Service struct {
	Options
	*folder
	// recorded is set once the system journal is known to have the configuration; one at a time finds out.
	recording sync.Mutex
	recorded  bool
	// modelKeys are the keys that the models of the configuration may have.
	findingKeys sync.Once
	modelKeys   []config.Value
}

// folder is what services of one data folder share.
type folder struct {
	Drivers Drivers

	inEffect atomic.Pointer[Service] // under the configuration that was put into effect; nil = the first
	store    store.Store             // nil = not open yet
	people   people

	// preparing: agents are prepared one after another, by runs that start others too. It
	// covers what is opened or read for the first time on the way.
	preparing, telling sync.Mutex // telling: notices of runs that others start come one at a time
	skills             skillState
	ids                ids

	logged system.LogRing // without a log file

	catalogRead sync.Once
	catalog     *catalog.Catalog

	line     notify.Line // of messages to people that are not sent yet
	mcp      mcpState
	pages    web.Cache
	adapters adapters
	ruled    ruled
	lastGate atomic.Pointer[gate.Gate] // whose tools the next one mostly has, too
	gates    gates
}

// DatabaseName is the database's file in the data folder.
const DatabaseName = "toolcrib.db"

// New makes a service. It opens nothing: what needs no store works without one.
func New(o Options) *Service {
	if o.Config == nil {
		o.Config = config.Default()
	}
	o.Self = cmp.Or(o.Self, "toolcrib")
	o.SelfHere = cmp.Or(o.SelfHere, o.Self)
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
	return &Service{Options: o, folder: &folder{Drivers: NewLockFiles(o.DataDir)}}
}

// Under returns the same data folder under another configuration.
func (s *Service) Under(c *config.Config) *Service {
	other := &Service{Options: s.Options, folder: s.folder}
	other.Config = c
	return other
}

// Reload puts a configuration into effect: what begins from now on, runs that are resumed
// among it, has it. Runs in progress keep theirs.
func (s *Service) Reload(ctx context.Context, who toolcrib.Principal, c *config.Config) (*Service, error) {
	next := s.Under(c)
	if err := next.OpenFor(ctx, who); err != nil {
		return nil, err
	}
	s.inEffect.Store(next)
	next.knowMCP()
	return next, nil
}

// Current is the service under the configuration in effect.
func (s *Service) Current() *Service { return cmp.Or(s.inEffect.Load(), s) }

// Open opens the store, once; the database is made at its first use. The key file is the
// one that the configuration names.
func (s *Service) Open(ctx context.Context) error { return s.open(ctx, sqlite.Options{}) }

// Adopt opens the store although its keys do not vouch for it, in who's name.
func (s *Service) Adopt(ctx context.Context, who toolcrib.Principal) error {
	by, err := Administrator(who)
	if err != nil {
		return err
	}
	return s.open(ctx, sqlite.Options{AdoptBy: by})
}

func (s *Service) open(ctx context.Context, o sqlite.Options) (err error) {
	if err := s.supported(); err != nil || s.store != nil {
		return err
	}
	if o.Keys, err = s.Config.Keys.Resolve(config.Resolver{}); err != nil { // stored secrets need the keys
		return err
	}
	path := s.Database()
	opened, err := sqlite.Open(ctx, path, o)
	if errors.Is(err, store.ErrUnavailable) { // SQLite says no more of a folder that cannot be written
		if no := writable(s.DataDir); errors.Is(no, syscall.EROFS) || errors.Is(no, fs.ErrPermission) {
			err = &store.Error{Kind: store.ErrReadOnly, Path: path, Err: err}
		}
	}
	if errors.Is(err, store.ErrKeys) {
		err = fmt.Errorf("%w\nTo accept it: toolcrib runs verify --adopt", err)
	}
	if err != nil {
		return err
	}
	s.store = opened
	return nil
}

// OpenFor opens the store for who is about to do something: a changed configuration is written down before.
func (s *Service) OpenFor(ctx context.Context, who toolcrib.Principal) error {
	if err := s.Open(ctx); err != nil {
		return err
	}
	return s.recordConfiguration(ctx, who)
}

// OpenToRead opens the store for those who only look, also if it is read-only, damaged or on a full disk.
func (s *Service) OpenToRead(ctx context.Context) error {
	err := s.Open(ctx)
	if errors.Is(err, store.ErrReadOnly) || errors.Is(err, store.ErrDamaged) || errors.Is(err, store.ErrFull) {
		if again := s.open(ctx, sqlite.Options{ReadOnly: true}); !errors.Is(again, store.ErrReadOnly) {
			err = again // a database without tables is no news
		}
	}
	return err
}

// IsOpen reports whether the store is open.
func (s *Service) IsOpen() bool { return s.store != nil }

// Database is the database's file.
func (s *Service) Database() string { return filepath.Join(s.DataDir, DatabaseName) }

// Close frees all runs, and closes the store.
func (s *Service) Close() error {
	err := s.Drivers.Close()
	s.mcp.close()
	s.adapters.close()
	if s.store == nil {
		return err
	}
	return errors.Join(s.store.Close(), err)
}

// expireAfter is how long an approval waits; 0 = until it is decided.
func (s *Service) expireAfter() time.Duration { return s.Config.Approvals.Expire.Std() }

// recordConfiguration writes down that a configuration counts now with another content than the last time, before
// anything is done under it. Where nothing has changed it costs one look.
func (s *Service) recordConfiguration(ctx context.Context, who toolcrib.Principal) error {
	s.recording.Lock()
	defer s.recording.Unlock()
	if s.recorded || s.Config.Hash() == "" {
		return nil
	}
	path, err := filepath.Abs(s.Config.File())
	if err != nil {
		return err
	}
	last, err := s.store.LastChanged(ctx, store.SystemConfigChanged, path)
	if err != nil {
		return err
	}
	if last.Hash != s.Config.Hash() {
		err := s.RecordChanged(ctx, who, store.SystemConfigChanged, store.FileChanged{Path: path, Hash: s.Config.Hash()})
		if errors.Is(err, store.ErrReadOnly) {
			return nil // whatever is to be changed will fail by itself
		}
		if err != nil {
			return fmt.Errorf("the configuration has changed, and this cannot be recorded, so nothing was done: %w", err)
		}
	}
	s.recorded = true
	return nil
}

func badRequestf(format string, args ...any) error {
	return toolcrib.Errorf(toolcrib.CodeBadRequest, format, args...)
}
