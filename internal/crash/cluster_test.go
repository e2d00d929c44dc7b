//go:build unix

package crash

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolcrib/toolcrib/internal/natstest"
	"github.com/toolcrib/toolcrib/internal/postgrestest"
	"github.com/toolcrib/toolcrib/internal/relaytest"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store/postgres"
)

var trouble = flag.Duration("crash.trouble", 2*time.Minute, "how long the clients of TestServe_Cluster begin runs")

// TestServe_Cluster has three servers on a PostgreSQL with a synchronous standby, and a NATS cluster, while at
// moments that the seed says servers are killed, stopped and ended, nodes of the bus are killed, the bus comes
// back empty, the database crashes or fails over to its standby, and the network between any two of them, or
// to the clients, is cut, stalled in one direction or both, or slow. Each run ends as it does without that, each
// effect happens once, budgets are exact, and each stream is whole. By the seed, there is no bus.
func TestServe_Cluster(t *testing.T) {
	t.Parallel() // beside the others it costs little time: its servers mostly wait
	first := theSeed(t)
	for i := range *towns {
		t.Run(fmt.Sprint("seed=", first+uint64(i)), func(t *testing.T) { newCluster(t, first+uint64(i)).story(3, 4) })
	}
}

// cluster is a town whose servers have machines of their own.
type cluster struct {
	*town
	seed     uint64
	database *replicated
	bus      *natstest.Cluster // nil = none
	trail    trail
}

// The addresses in the configuration of a cluster are variables of the environment, since each server has its own
// relays. Other tests run at the same time, so their names end with the seed.
const (
	databaseEnv = "TOOLCRIB_CRASH_DATABASE_"
	busEnv      = "TOOLCRIB_CRASH_BUS_"
)

// setenv sets a variable of the environment for the cluster, and returns its name.
func (c *cluster) setenv(name, value string) string {
	name += strconv.FormatUint(c.seed, 10)
	if err := os.Setenv(name, value); err != nil {
		c.database.t.Fatal(err)
	}
	return name
}

func newCluster(t *testing.T, seed uint64) *cluster {
	c := &cluster{seed: seed, database: newReplicated(t)}
	dir := t.TempDir()
	keys := filepath.Join(dir, "data", env.KeysName)
	if _, err := postgres.Migrate(t.Context(), c.database.address(), postgres.MigrateOptions{Keys: keys}); err != nil {
		t.Fatal(err)
	}
	name := c.setenv(databaseEnv, c.database.address())
	o := townOptions{database: "${env:" + name + "}", limits: ", max_concurrent: 3", most: *trouble}
	if seed%4 != 0 {
		c.bus = natstest.Start(t, 3, nil)
		o.bus = "${env:" + c.setenv(busEnv, c.bus.URL()) + "}"
	}
	c.town = newTownIn(t, dir, seed, o)
	return c
}

// addSite adds a machine.
func (c *cluster) addSite() {
	s := &site{clients: relaytest.New(c.t, "")}
	for _, at := range c.database.sockets() {
		s.database = append(s.database, relaytest.New(c.t, at))
	}
	c.database.follow(s.database)
	at := url.URL{
		Scheme: "postgres", User: url.UserPassword(postgrestest.User, postgrestest.Password), Path: "/postgres",
		Host: s.database[0].Address() + "," + s.database[1].Address(), RawQuery: "sslmode=disable",
	}
	seed := strconv.FormatUint(c.seed, 10)
	s.env = []string{databaseEnv + seed + "=" + at.String()}
	if c.bus != nil {
		var urls []string
		for i := range 3 {
			r := relaytest.New(c.t, c.bus.Relay(i).Address())
			s.bus, urls = append(s.bus, r), append(urls, "nats://"+r.Address())
		}
		s.env = append(s.env, busEnv+seed+"="+strings.Join(urls, ","))
	}
	c.sites = append(c.sites, s)
}

// story has clients visit n servers.
func (c *cluster) story(n, clients int) {
	for range n {
		c.addSite()
		c.open()
	}
	began := time.Now()
	over, enough := context.WithTimeout(c.t.Context(), *trouble)
	defer enough()
	var all sync.WaitGroup
	for i, disturb := range []func(*rand.Rand){c.disturbServer, c.disturbShared, c.disturbNetwork} {
		all.Go(func() {
			r := rand.New(rand.NewPCG(c.seed, uint64(i)))
			for {
				select {
				case <-over.Done():
					return
				case <-time.After(time.Duration(r.IntN(2500)) * time.Millisecond):
					disturb(r)
				}
			}
		})
	}
	problems := c.visits(clients, *trouble)
	enough()
	all.Wait()
	c.end()
	c.setenv(databaseEnv, c.database.address())
	problems = append(problems, c.verify()...)
	// A third of them is expected; more by three standard deviations is a fault.
	runs := float64(c.visited)
	if float64(c.lost) > runs/3+3*math.Sqrt(runs*2/9) {
		problems = append(problems, fmt.Sprintf("%d of %d runs were given up", c.lost, c.visited))
	}
	if len(problems) > 0 {
		c.fail(fmt.Sprintf("%s\n    %s", &c.trail, strings.Join(problems, "\n    ")))
	}
	c.t.Logf("%d runs, %d given up, %d servers in %s: %s", c.visited, c.lost, c.opened,
		time.Since(began).Round(time.Millisecond), c.trail.count())
}

// disturbServer kills, stops or ends a server.
func (c *cluster) disturbServer(r *rand.Rand) {
	what, long := r.IntN(3), time.Duration(r.IntN(4000))*time.Millisecond
	c.mu.Lock()
	at := slices.DeleteFunc(slices.Clone(c.live), func(h *house) bool { return h.told })
	var h *house
	if len(at) > 0 {
		h = at[r.IntN(len(at))]
		if what == 2 {
			h.end()
		}
	}
	c.mu.Unlock()
	switch {
	case h == nil:
	case what == 0:
		c.trail.add("server killed", 0)
		_ = h.cmd.Process.Kill()
		<-h.ended
	case what == 1:
		c.trail.add("server stopped", long)
		c.sleep(h, long)
	default:
		c.trail.add("server ended", 0)
		<-h.ended
	}
}

// disturbShared does something to the database or to the bus.
func (c *cluster) disturbShared(r *rand.Rand) {
	what, node, long := r.IntN(6), r.IntN(3), time.Duration(100+r.IntN(2000))*time.Millisecond
	switch {
	case what == 0:
		c.trail.add("database failed over", 0)
		c.database.failOver()
	case what == 1:
		c.trail.add("database crashed", long)
		c.database.crash(long)
	case c.bus == nil:
	case what == 2:
		c.trail.add("bus emptied", 0)
		c.bus.Empty()
	case what == 3:
		c.trail.add("bus cut", long)
		c.bus.Cut()
		<-time.After(long)
		c.bus.Heal()
	default:
		c.trail.add("node of the bus killed", long)
		c.bus.Kill(node)
		<-time.After(long)
		c.bus.Restart(node)
		c.bus.Await()
	}
}

// disturbNetwork does something to the network between a server and the database, the bus or its clients.
func (c *cluster) disturbNetwork(r *rand.Rand) {
	s := c.sites[r.IntN(len(c.sites))]
	pair := []string{"database", "bus", "clients"}[r.IntN(3)]
	relays := map[string][]*relaytest.Relay{"database": s.database, "bus": s.bus, "clients": {s.clients}}[pair]
	what := []string{"cut", "stalled", "stalled there", "stalled back", "slow"}[r.IntN(5)]
	long := time.Duration(100+r.IntN(4000)) * time.Millisecond
	if len(relays) == 0 {
		return
	}
	c.trail.add(pair+" "+what, long)
	for _, relay := range relays {
		switch what {
		case "cut":
			relay.Cut()
		case "stalled":
			relay.Stall()
		case "stalled there":
			relay.StallThere()
		case "stalled back":
			relay.StallBack()
		case "slow":
			relay.Delay(50 * time.Millisecond)
		}
	}
	<-time.After(long)
	for _, relay := range relays {
		relay.Heal()
	}
}

// trail records the disturbances of a cluster.
type trail struct {
	mu   sync.Mutex
	all  []string
	what map[string]int
}

func (d *trail) add(what string, long time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.what == nil {
		d.what = map[string]int{}
	}
	d.what[what]++
	d.all = append(d.all, fmt.Sprintf("%s %s (%s)", time.Now().Format("15:04:05.000"), what, long))
}

func (d *trail) count() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprint(d.what)
}

// String is all of it in order.
func (d *trail) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.all, ", ")
}

// replicated is a server of PostgreSQL with a synchronous standby. Commits wait for the standby, also while there is
// none.
type replicated struct {
	t testing.TB

	mu               sync.Mutex
	primary, standby *postgrestest.Server
	relays           [][]*relaytest.Relay // each has one for the primary and one for the standby
}

func newReplicated(t *testing.T) *replicated {
	primary, err := postgrestest.Start(t.Context(), "synchronous_standby_names='*'", "shared_buffers=32MB")
	if errors.Is(err, postgrestest.ErrMissing) {
		t.Skip("SKIPPED: ", err, "; no servers with PostgreSQL were killed")
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &replicated{t: t, primary: primary}
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, s := range []*postgrestest.Server{p.primary, p.standby} {
			if s != nil {
				_ = s.Stop() // it may be down
			}
		}
	})
	if p.standby, err = primary.Standby(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func socket(s *postgrestest.Server) string { return s.Dir() + "/.s.PGSQL.5432" }

func (p *replicated) sockets() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return []string{socket(p.primary), socket(p.standby)}
}

// address returns the address of both.
func (p *replicated) address() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.primary.URL("postgres")
	at.RawQuery = url.Values{"host": {p.primary.Dir() + "," + p.standby.Dir()}, "port": {"5432,5432"}}.Encode()
	return at.String()
}

// follow has relays to the two servers lead to those that replace them.
func (p *replicated) follow(relays []*relaytest.Relay) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.relays = append(p.relays, slices.Clone(relays))
}

// crash crashes the primary, and starts it again after a while.
func (p *replicated) crash(long time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.primary.Down("immediate")
	<-time.After(long)
	if err = errors.Join(err, p.primary.Up(context.Background())); err == nil {
		err = p.synchronous()
	}
	if err != nil {
		p.t.Error(err)
	}
}

// failOver crashes the primary, which is lost, and makes the standby the primary of a new standby.
func (p *replicated) failOver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx := context.Background()
	err := p.primary.Down("immediate")
	if err = errors.Join(err, p.standby.Promote(ctx)); err != nil {
		p.t.Error(err)
		return
	}
	_ = p.primary.Stop() // it is down
	p.primary = p.standby
	if p.standby, err = p.primary.Standby(ctx); err == nil {
		err = p.synchronous()
	}
	if err != nil {
		p.t.Error(err)
		return
	}
	for _, both := range p.relays {
		slices.Reverse(both) // the one to the old primary leads to the new standby
		both[1].To(socket(p.standby))
	}
}

// synchronous waits until the standby has all that the primary has: before, nothing may fail over to it.
func (p *replicated) synchronous() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := pgx.Connect(ctx, p.primary.URL("postgres").String())
	if err != nil {
		return err
	}
	defer c.Close(ctx) //nolint:errcheck // every statement was answered
	for {
		var n int
		err := c.QueryRow(ctx, `SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'sync'`).Scan(&n)
		if err != nil || n > 0 {
			return err
		}
		<-time.After(20 * time.Millisecond)
	}
}
