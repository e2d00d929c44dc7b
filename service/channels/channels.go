// Package channels turns messages of chats into runs, and posts their answers and questions there. It decides who may
// write, and takes each message once. A message passes these steps, each of which is stored before the next begins:
//
//	received → taken (stored, then acknowledged) → begun (a run, by a key of its own) → asked, as often as the run
//	waits for a person → answered, part by part → forgotten
//
// After a crash each message resumes at its last stored step. A part that was being sent may have arrived. If the API
// deduplicates parts by their keys, it is sent again. Otherwise the answer is in doubt: it is not sent again, and the
// operator is told. A question is posted again and says so, since it can be decided only once.
package channels

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/channel"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// Folder is the folder of the stored files of channels, each in a folder of its name.
const Folder = "channels"

// Files are the stored files of a database.
type Files interface {
	toolcrib.Files
	SomeFiles(ctx context.Context, name, folder string) (map[string][]byte, error)
}

// Host is the server that has the channels.
type Host interface {
	// Config returns the configuration in effect.
	Config() *config.Config
	// Files returns the stored files of the database.
	Files() Files
	// Open connects to a configured channel.
	Open(name string) (channel.Channel, error)
	// Hold takes or renews the lease of a channel for a duration, and reports whether this process has it.
	Hold(ctx context.Context, name string, lasts time.Duration) (bool, error)
	// Leave ends the lease of a channel.
	Leave(name string)
	// Notice passes on what an operator should know.
	Notice(text string)
}

// Runs are the runs that messages start. The principal of each operation is a sender; what they may do is up to the
// service.
type Runs interface {
	// Act returns the current principal of a user. If known is set, the user must be in the directory.
	Act(ctx context.Context, user string, known bool) (toolcrib.Principal, error)
	// Begin starts a run, once for each key.
	Begin(ctx context.Context, who toolcrib.Principal, r Request) (toolcrib.RunID, error)
	// Wait waits until a run has ended or parked.
	Wait(ctx context.Context, run toolcrib.RunID) error
	// Look returns the record of a run.
	Look(ctx context.Context, run toolcrib.RunID) (store.RunRecord, error)
	// Approval returns a pending approval about which who may decide.
	Approval(ctx context.Context, who toolcrib.Principal, id string) (*api.Approval, error)
	// Decide decides on an approval, and continues its run.
	Decide(ctx context.Context, who toolcrib.Principal, d Decision) error
	// Cancel ends a run.
	Cancel(ctx context.Context, who toolcrib.Principal, run toolcrib.RunID) error
}

// Request is a request to start a run.
type Request struct {
	Agent, Session, Prompt string
	Taint                  []string // sources of untrusted data in Prompt
	Key                    string   // the same for the same message
}

// Decision is a decision on an approval.
type Decision struct {
	Approval, Digest string // what was shown
	Decision, Reason string
	Answer           string // with [journal.DecisionAnswer]: the text
	Schema           []byte // of the answer
}

// Options configure [Channels].
type Options struct {
	Host Host
	Runs Runs
	Log  *slog.Logger
}

// Channels receives from the channels of the configuration in effect. Of the servers of a database, one receives from
// each.
type Channels struct {
	o   Options
	end context.CancelFunc
	all sync.WaitGroup

	mu    sync.Mutex
	lines map[string]*line // only serve changes it

	unopened map[string]unopened // of serve
}

// unopened is why a channel cannot be opened, which is logged once for each configuration of it.
type unopened struct {
	set config.Channel
	why string
}

const (
	// tend is how often leases are renewed, and runs looked at that wait for a person.
	tend = time.Second
	// leaseLasts is how long a lease lasts.
	leaseLasts = 4 * tend
)

// New begins to receive.
func New(o Options) *Channels {
	ctx, end := context.WithCancel(context.Background())
	c := &Channels{o: o, end: end, lines: map[string]*line{}, unopened: map[string]unopened{}}
	c.all.Go(func() { c.serve(ctx) })
	return c
}

// Close stops receiving, and waits for what is being sent. Messages that are not answered yet continue at the next
// start.
func (c *Channels) Close() {
	c.end()
	c.all.Wait()
}

// serve starts and stops lines as the configuration and the leases change.
func (c *Channels) serve(ctx context.Context) {
	tick := time.NewTicker(tend)
	defer tick.Stop()
	for {
		c.look(ctx)
		select {
		case <-ctx.Done():
			for name, l := range c.lines {
				c.drop(name, l)
			}
			return
		case <-tick.C:
		}
	}
}

// Inbound reports whether messages of a channel start runs.
func Inbound(c config.Channel) bool { return c.Inbound.Agent != "" || len(c.Inbound.Allow) > 0 }

// look starts and stops lines once.
func (c *Channels) look(ctx context.Context) {
	configured := c.o.Host.Config().Channels
	for name, l := range c.lines {
		now := configured[name]
		listens := Inbound(now)
		now.Inbound = l.set.Inbound // a change of it needs no restart
		if l.ctx.Err() != nil || !listens || !reflect.DeepEqual(now, l.set) {
			c.drop(name, l) // after an error of the store, the next look starts it again
			continue
		}
		held, err := c.o.Host.Hold(ctx, name, leaseLasts)
		if held {
			l.held = time.Now()
			l.saveReport(ctx)
		} else if err == nil || time.Since(l.held) > leaseLasts-tend {
			c.drop(name, l)
		}
	}
	for name, set := range configured {
		if !Inbound(set) || c.lines[name] != nil {
			continue
		}
		if held, err := c.o.Host.Hold(ctx, name, leaseLasts); err != nil || !held {
			continue // another server has it, or the store is gone for now
		}
		l, err := c.start(ctx, name, set)
		if err != nil {
			c.o.Host.Leave(name)
			if now := (unopened{set, err.Error()}); !reflect.DeepEqual(c.unopened[name], now) {
				c.unopened[name] = now
				c.o.Log.Warn("a channel cannot be opened", "channel", name, "error", err)
			}
			continue
		}
		delete(c.unopened, name)
		c.mu.Lock()
		c.lines[name] = l
		c.mu.Unlock()
	}
}

// drop ends a line.
func (c *Channels) drop(name string, l *line) {
	c.mu.Lock()
	delete(c.lines, name)
	c.mu.Unlock()
	l.close()
	c.o.Host.Leave(name)
}

// reader reads a request by which a program posts a message, as the adapter of webhooks does.
type reader interface {
	Read(header func(name string) string, body []byte) (channel.Message, error)
}

// Posted takes a message that a program has posted to a channel. again reports whether it was taken before.
func (c *Channels) Posted(
	ctx context.Context, name string, header func(name string) string, body []byte,
) (again bool, err error) {
	c.mu.Lock()
	l := c.lines[name]
	c.mu.Unlock()
	if l == nil && Inbound(c.o.Host.Config().Channels[name]) {
		err := toolcrib.Errorf(toolcrib.CodeOverloaded, "channel %s is not ready here; try again later", name)
		err.RetryAfter = tend
		return false, err
	}
	var from reader
	if l != nil {
		from, _ = l.api.(reader)
	}
	if from == nil {
		return false, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no such channel")
	}
	m, err := from.Read(header, body)
	if err != nil {
		return false, err
	}
	return l.posted(ctx, m)
}

// asks reports whether a person is asked what a run waits for.
func asks(rec *store.RunRecord) bool {
	p := rec.Pending
	return p != nil && p.ApprovalID != "" && p.Kind != journal.PendingProvider && p.Kind != journal.PendingClientTool
}
