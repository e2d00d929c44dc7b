package service

import (
	"context"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
)

// DriverServer is the [Options.Driver] of servers.
const DriverServer = "server"

// serverLock is the name under which a server holds a lock, as drivers do with runs, so that
// others see that there is one.
const serverLock toolcrib.RunID = "server"

// Detach writes a run down for the server of the data folder, which continues it. Where no server
// runs, the run stays queued until one starts.
func (p *Prepared) Detach(ctx context.Context, task agent.Task) (Run, error) {
	task.Driver = DriverServer
	d, err := p.ready(ctx, &task, Front{})
	if err != nil {
		return Run{}, err
	}
	state, err := d.carry(ctx, nil, func(ctx context.Context, r *agent.Runner) (*agent.State, error) {
		return r.Start(ctx, task)
	})
	return p.s.outcome(ctx, state, err)
}

// Server names the process of a server that runs on the data folder; "" = none does.
func (s *Service) Server() string {
	if !s.Drivers.Driven(serverLock) {
		return ""
	}
	return s.Drivers.Process(serverLock)
}

// mark shows other processes that a server runs here, unless another one does already.
func (p *Pool) mark() (unmark func()) {
	if p.s.Driver != DriverServer || p.s.Drivers.Driven(serverLock) {
		return nil
	}
	unmark, _ = p.s.Drivers.Take(serverLock) // with an error another server was quicker
	return unmark
}
