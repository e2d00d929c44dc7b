package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// svc is the service, made once for the configuration in effect. It opens nothing yet.
func (a *app) svc() (*service.Service, error) {
	c, err := a.configuration()
	if err != nil {
		return nil, err
	}
	if a.service == nil {
		dir, err := a.dataDir()
		if err != nil {
			return nil, err
		}
		a.service = service.New(service.Options{
			Config: c, Source: config.Find(a.configFlag, os.Getenv), DataDir: dir, Mask: &a.masker, Started: a.started,
			Driver: driverName, Runner: a.runnerOf, NoSandbox: a.noSandbox, Notice: a.noteBeside, Alert: a.alert, OllamaAt: a.ollamaAt, Confirm: a.confirmer(),
		})
		a.closers = append(a.closers, a.service)
	}
	if a.service.Config != c {
		a.service = a.service.Under(c)
	}
	return a.service, nil
}

// confirmer asks questions on the terminal; nil = there is none.
func (a *app) confirmer() func(string) bool {
	if !a.inTerminal || !a.errTerminal {
		return nil
	}
	return a.confirm
}

// about is a service for a configuration that is only looked at. Nothing of it takes
// effect.
func (a *app) about(c *config.Config) *service.Service {
	if a.service != nil {
		return a.service.Under(c)
	}
	dir := a.dataFlag
	if dir == "" {
		dir, _ = c.DataDir.Resolve(config.Resolver{}) // what is wrong with it is told by config check
	}
	return service.New(service.Options{
		Config: c, Source: config.Find(a.configFlag, os.Getenv), DataDir: dir, Mask: &a.masker, Notice: a.noteBeside, OllamaAt: a.ollamaAt,
	})
}

// database opens the store, once, for a command that does something; it is made at its
// first use.
func (a *app) database(ctx context.Context) (store.Store, error) {
	who, err := a.principal(ctx)
	if err != nil {
		return nil, err
	}
	kept, err := a.svc()
	if err == nil {
		err = kept.OpenFor(ctx, who, sqlite.Options{})
	}
	return a.opened(err)
}

// databaseToRead opens the store for a command that only looks.
func (a *app) databaseToRead(ctx context.Context) (store.Store, error) {
	kept, err := a.svc()
	if err == nil {
		err = kept.OpenToRead(ctx)
	}
	return a.opened(err)
}

// openWith opens the store as a command wants it.
func (a *app) openWith(ctx context.Context, o sqlite.Options) (store.Store, error) {
	kept, err := a.svc()
	if err == nil {
		err = kept.Open(ctx, o)
	}
	return a.opened(err)
}

func (a *app) opened(err error) (store.Store, error) {
	if errors.Is(err, store.ErrKeys) {
		return nil, fmt.Errorf("%w\nTo accept it: toolcrib runs verify --adopt", err)
	}
	if err != nil {
		return nil, err
	}
	a.store = a.service.Store()
	return a.store, nil
}

// workspace returns the root of the file tools: absolute, an existing folder.
func (a *app) workspace(flag string, given bool) (string, error) {
	if given && flag == "" {
		return "", usagef("--workspace: must name a folder")
	}
	kept, err := a.svc()
	if err != nil {
		return "", err
	}
	if !given {
		return kept.Workspace("")
	}
	dir, err := kept.Workspace(flag)
	if err != nil {
		err = usagef("--%v", err)
	}
	return dir, err
}

// findRun finds a run by its ID, a part of it, or as last.
func (a *app) findRun(ctx context.Context, _ store.Store, name string) (store.RunRecord, error) {
	who, err := a.principal(ctx)
	if err != nil {
		return store.RunRecord{}, err
	}
	rec, err := a.service.FindRun(ctx, who, name)
	return rec, hint(err, name, "`toolcrib runs list` shows what there is")
}

// load rebuilds a run from its journal.
func (a *app) load(ctx context.Context, s store.Store, run toolcrib.RunID) (*agent.State, error) {
	return agent.Load(ctx, s, run)
}
