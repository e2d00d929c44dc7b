// Package service implements the operations of all front ends, independent of any transport. Each operation takes the
// principal as an argument, and decides what they may see and do. Its errors have a code ([toolcrib.CodeOf]). Flags,
// terminals and HTTP belong to front ends.
package service

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/notify"
	"github.com/toolcrib/toolcrib/service/capset"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/mcpset"
	"github.com/toolcrib/toolcrib/service/models"
	"github.com/toolcrib/toolcrib/service/nodes"
	"github.com/toolcrib/toolcrib/service/people"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/service/worker"
)

// Service has the operations on a data folder under a configuration. It may be used by several goroutines once its
// store is open.
type Service struct {
	Env    *env.Env
	Models *models.Models
	MCP    *mcpset.Set
	People *people.People
	Policy *policy.Policy
	Nodes  *nodes.Nodes
	Bus    *capset.Set
	*folder
}

// folder is shared by all services of one data folder.
type folder struct {
	Drivers *worker.Drivers

	inEffect atomic.Pointer[Service] // set by Reload

	ids ids

	line notify.Line // notifications that are still to be sent

	trials trials
}

// New returns a service. It opens nothing, because many operations need no store.
func New(o env.Options) *Service {
	e := env.New(o)
	f := &folder{Drivers: worker.NewDrivers(e)}
	s := &Service{Env: e, Models: models.New(e), MCP: mcpset.New(e), folder: f}
	s.People = people.New(e, s.endRuns)
	s.Policy = policy.New(e, s.MCP, s.People)
	s.Nodes = nodes.New(e, s.People)
	s.Bus = capset.New(e, s.Nodes, s.MCP.Renew)
	s.MCP.Beside(s.Bus.Tools)
	s.Models.Bus, s.Policy.Absent = s.Bus.Open, s.Bus.Absent
	return s
}

// Under returns a service of the same data folder under another configuration.
func (s *Service) Under(c *config.Config) *Service {
	e := s.Env.Under(c)
	other := &Service{Env: e, Models: s.Models.Under(e), MCP: s.MCP.Under(e), folder: s.folder}
	other.People = s.People.Under(e, other.endRuns)
	other.Policy = s.Policy.Under(e, other.MCP, other.People)
	other.Nodes = s.Nodes.Under(e, other.People)
	other.Bus = s.Bus.Under(e, other.Nodes)
	return other
}

// Beside returns a service of the same data folder for a project in another folder, with MCP servers of its own, which
// the caller closes.
func (s *Service) Beside(c *config.Config, source config.Source) *Service {
	other := s.Under(c)
	other.Env.Source = source
	other.MCP = mcpset.New(other.Env)
	other.MCP.Beside(s.Bus.Tools)
	other.Policy = s.Policy.Under(other.Env, other.MCP, other.People)
	return other
}

// Reload puts a configuration into effect for runs that are started or resumed from now on. Runs in progress keep
// theirs.
func (s *Service) Reload(ctx context.Context, who toolcrib.Principal, c *config.Config) (*Service, error) {
	next := s.Under(c)
	if err := next.Env.OpenFor(ctx, who); err != nil {
		return nil, err
	}
	s.inEffect.Store(next)
	next.MCP.Reload()
	next.Bus.Reload()
	return next, nil
}

// Current returns the service under the configuration in effect.
func (s *Service) Current() *Service { return cmp.Or(s.inEffect.Load(), s) }

// Close releases all runs and closes the store.
func (s *Service) Close() error {
	err := s.Drivers.Close()
	s.Bus.Close()
	s.MCP.Close()
	s.Models.Close()
	return errors.Join(s.Env.Close(), err)
}

// expireAfter returns how long an approval waits, or 0 if it does not expire.
func (s *Service) expireAfter() time.Duration { return s.Env.Config.Approvals.Expire.Std() }
