package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// Server is a server of a database, as it describes itself to other processes. It is a hint: the description is not
// sealed.
type Server struct {
	Name    string    `json:"name"` // of its machine and process, for people
	Version string    `json:"version"`
	Schema  int       `json:"schema"` // version of the schema that it knows
	Config  string    `json:"config"` // hash of the configuration in effect
	Site    string    `json:"site,omitempty"`
	Started time.Time `json:"started"`
	AheadMS int64     `json:"ahead_ms"` // by which its clock was ahead of the database's
	// Owner is that of its leases.
	Owner store.Owner `json:"-"`
}

// serverRun returns the name under which a server takes a lease of its own.
func serverRun(owner string) toolcrib.RunID { return toolcrib.RunID(env.ServerLease + owner) }

// serverLease is how long such a lease lasts. Within it, an idle server writes three times, and describes itself once.
const serverLease = 30 * time.Second

// Servers returns the running servers of the database, by their names.
func (d *Drivers) Servers(ctx context.Context) (all []Server, err error) {
	leases, err := d.env.Store.Leases(ctx, store.LeaseFilter{About: true})
	for i := range leases {
		var s Server
		if l := &leases[i]; !l.Expired && !d.died(l) && json.Unmarshal([]byte(l.About), &s) == nil {
			s.Owner = l.Owner
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(x, y Server) int { return strings.Compare(x.Name+x.Owner.ID, y.Name+y.Owner.ID) })
	return all, err
}

// Copied returns an error if the folder of the workspaces is a copy of that of a running server, which has the same
// site and does not share the folder. Of two servers, the one that was started later is taken to have the copy.
func (d *Drivers) Copied(ctx context.Context, site string) error {
	if site == "" {
		return nil
	}
	all, err := d.Servers(ctx)
	for _, s := range all {
		if err == nil && s.Site == site && s.Started.Before(d.env.Started) && !d.env.HasMark(s.Owner.ID) {
			err = toolcrib.Errorf(toolcrib.CodeConflict, "%s is a copy of the folder of workspaces of server %s: both have the "+
				"site %s, and the servers do not share one folder; mount that folder here, or remove %s from the copy",
				d.env.Workspaces(), s.Name, site, env.SiteName)
		}
	}
	return err
}

// describe tells the other processes that this server is there, until the pool is closed.
func (p *Pool) describe() {
	if p.env.Driver != env.DriverServer {
		return
	}
	self := Server{
		Name: ServerName(p.env.Owner()), Version: version.Version(), Schema: env.Schema(), Site: p.site,
		Started: p.env.Started,
	}
	run, leave := serverRun(p.env.Owner().ID), func() {}
	defer func() { leave() }()
	for told := ""; ; {
		err := p.describeOnce(run, &self, &leave)
		if text := fmt.Sprint(err); err != nil && p.ctx.Err() == nil && text != told {
			p.log.Warn("other servers do not see this one, or not its workspaces", "error", err)
			told = text
		} else if err == nil {
			told = ""
		}
		if Pause(p.ctx, serverLease) != nil {
			return
		}
	}
}

// describeOnce takes the lease of this server, unless it still has it, and describes it.
func (p *Pool) describeOnce(run toolcrib.RunID, self *Server, leave *func()) error {
	again, err := p.drivers.Take(p.ctx, run, nil)
	if err != nil {
		return err
	}
	(*leave)()
	*leave = again
	marked := error(nil)
	if p.site != "" {
		marked = p.env.KeepMark() // before the others look for it
	}
	ahead, err := p.clockAhead()
	if err != nil {
		return err
	}
	self.AheadMS, self.Config = ahead.Milliseconds(), p.runner.Config().Hash()
	about, err := json.Marshal(self)
	if err == nil {
		err = p.env.Store.Describe(p.ctx, run, string(about))
	}
	if err != nil || p.site == "" {
		return err
	}
	_, err = p.env.Site()
	wrong, copied := errors.Join(err, marked), p.drivers.Copied(p.ctx, p.site)
	if errors.Is(copied, toolcrib.ErrConflict) { // not if the database does not answer
		wrong = errors.Join(wrong, copied)
	}
	p.astray.Store(wrong != nil)
	return errors.Join(wrong, copied)
}

// clockAhead returns by how much the clock is ahead of the database's. A slow answer says little, so it asks again.
func (p *Pool) clockAhead() (ahead time.Duration, err error) {
	const exact, tries = 100 * time.Millisecond, 3
	for range tries {
		var within time.Duration
		if ahead, within, err = p.env.ClockAhead(p.ctx); err != nil || within < exact {
			break
		}
	}
	return ahead, err
}

// Astray reports whether the workspaces are not those with which this server began, or may be a copy.
func (p *Pool) Astray() bool { return p.astray.Load() }

// ServerName returns the name of a process for people.
func ServerName(o *store.Owner) string { return fmt.Sprintf("%s:%d", o.Host, o.PID) }

// here reports whether runs with a site can continue on this server.
func (p *Pool) here(site string) bool {
	return site == "" || p.site == "" || site == p.site && !p.Astray()
}
