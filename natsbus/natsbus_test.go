package natsbus_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/natstest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/natsbus"
)

var sharedKey = []byte("0123456789abcdef0123456789abcdef")

func open(t *testing.T, url, name string) *natsbus.Bus {
	t.Helper()
	b, err := natsbus.Open(t.Context(), options(t, url, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func options(t *testing.T, url, name string) natsbus.Options {
	return natsbus.Options{
		URL: url, Dir: t.TempDir(), Database: "db1", Key: sharedKey, Self: natsbus.Server{Name: name, Version: "1"},
	}
}

func connected(t *testing.T, all ...*natsbus.Bus) {
	t.Helper()
	for _, b := range all {
		waittest.Until(t, "connected", func() bool { return b.State().Connected })
	}
}

// A run is in the queue once, whichever server has queued it, and goes to one of them.
func TestQueue_OnceForAllServers(t *testing.T) {
	c := natstest.Start(t, 3, nil)
	a, b := open(t, c.URL(), "a"), open(t, c.URL(), "b")
	if s := a.State(); !s.Connected || s.Replicas != 3 || s.Cluster != "test" {
		t.Errorf("state %+v", s)
	}
	put(t, a, "run_A", true)
	put(t, b, "run_A", false)
	taken(t, b, "run_A")
	waittest.Until(t, "all nodes know that it was taken", func() bool {
		again, err := a.Put(t.Context(), "run_A")
		return again && err == nil
	})
	taken(t, a, "run_A")
	if run := take(t, b, 300*time.Millisecond); run != "" {
		t.Errorf("took %s, which was taken", run)
	}
}

// While the bus is cut off, dead or empty, a server queues runs for itself; later they go to all again.
func TestQueue_WithoutBus(t *testing.T) {
	c := natstest.Start(t, 3, nil)
	a, b := open(t, c.URL(), "a"), open(t, c.URL(), "b")
	for _, trouble := range []struct {
		name        string
		begin, over func()
	}{
		{"cut", c.Cut, c.Heal},
		{"dead", func() { c.Kill(0); c.Kill(1); c.Kill(2) }, func() { c.Restart(0); c.Restart(1); c.Restart(2); c.Await() }},
		{"empty", c.Empty, func() {}},
	} {
		t.Run(trouble.name, func(t *testing.T) {
			connected(t, a, b)
			trouble.begin()
			put(t, a, "run_A", true)
			taken(t, a, "run_A")
			trouble.over()
			connected(t, a, b)
			waittest.Until(t, "b takes what a queues", func() bool {
				_, err := a.Put(t.Context(), "run_B")
				return err == nil && take(t, b, time.Second) == "run_B"
			})
		})
	}
}

// One of three NATS servers may die at any time.
func TestQueue_OneNodeDies(t *testing.T) {
	c := natstest.Start(t, 3, nil)
	a, b := open(t, c.URL(), "a"), open(t, c.URL(), "b")
	for i := range 3 {
		run := toolcrib.RunID(fmt.Sprint("run_", i))
		put(t, a, run, true)
		c.Kill(i)
		waittest.Until(t, "a server takes it", func() bool {
			return take(t, b, time.Second) == run || take(t, a, time.Second) == run
		})
		c.Restart(i)
		c.Await()
	}
}

// A connection that passes nothing on, and is not closed, is given up after some seconds.
func TestBus_Stalled(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	a := open(t, c.URL(), "a")
	c.Relay(0).Stall()
	for range 10_000 { // more than any buffer has
		a.Send("live", "", make([]byte, 10_000))
	}
	put(t, a, "run_A", true)
	taken(t, a, "run_A")
	waittest.Until(t, "the connection was given up", func() bool { return !a.State().Connected })
	if s := a.State(); s.Problem == "" {
		t.Errorf("state %+v", s)
	}
	c.Relay(0).Heal()
	connected(t, a)
}

// Messages reach the other servers of the database, and no others can send or read them.
func TestMessages_Sealed(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	var users [2]*user
	for i := range users {
		users[i] = &user{held: make(chan string, 100), b: open(t, c.URL(), string(rune('a'+i)))}
		users[i].l = users[i].b.Limit("openai", 0, 0, users[i])
	}
	intruder, err := nats.Connect(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer intruder.Close()
	seen, err := intruder.SubscribeSync("toolcrib.v1.db1.held.*")
	if err == nil {
		err = intruder.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	hear := func(d time.Duration, want string) {
		t.Helper()
		waittest.Until(t, want, func() bool {
			users[0].l.Tell(true, d)
			select {
			case got := <-users[1].held:
				if got != want {
					t.Fatalf("heard %q, want %q", got, want)
				}
				return true
			case <-time.After(100 * time.Millisecond):
				return false
			}
		})
	}
	hear(3*time.Second, "true 3s")
	m, err := seen.NextMsg(waittest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(m.Data), "true") || strings.Contains(m.Subject, "openai") {
		t.Errorf("the bus shows %s %q", m.Subject, m.Data)
	}
	forged := slices.Clone(m.Data)
	forged[len(forged)-1] ^= 1
	for _, data := range [][]byte{[]byte("true 3000"), forged, nil} {
		if err := intruder.Publish(m.Subject, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := intruder.Flush(); err != nil {
		t.Fatal(err)
	}
	other := options(t, c.URL(), "c")
	other.Key = []byte("another key, of another database")
	foreign, err := natsbus.Open(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	foreign.Limit("openai", 0, 0, &user{}).Tell(true, 9*time.Second)
	for len(users[1].held) > 0 {
		<-users[1].held
	}
	hear(5*time.Second, "true 5s")
	waittest.Until(t, "the messages of others were dropped", func() bool { return users[1].b.Dropped() >= 4 })
}

// A message that was recorded cannot be sent again after a minute.
func TestMessages_Replayed(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	var late atomic.Int64
	o := options(t, c.URL(), "b")
	o.Now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) }
	b, err := natsbus.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	got := make(chan string, 100)
	b.Receive("hint", func(body []byte) { got <- string(body) })
	intruder, err := nats.Connect(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer intruder.Close()
	seen, err := intruder.SubscribeSync("toolcrib.v1.db1.hint.*")
	if err == nil {
		err = intruder.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	a := open(t, c.URL(), "a")
	waittest.Until(t, "a message came", func() bool {
		a.Send("hint", "", []byte("x"))
		select {
		case <-got:
			return true
		case <-time.After(100 * time.Millisecond):
			return false
		}
	})
	m, err := seen.NextMsg(waittest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	late.Store(int64(2 * time.Minute))
	before := b.Dropped()
	for range 3 {
		if err := intruder.Publish(m.Subject, m.Data); err != nil {
			t.Fatal(err)
		}
	}
	waittest.Until(t, "the old messages were dropped", func() bool { return b.Dropped() >= before+3 })
}

// A run in the queue is one that a server of this database has put there, however long ago.
func TestQueue_Sealed(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	o := options(t, c.URL(), "a")
	o.Now = func() time.Time { return time.Now().Add(-time.Hour) }
	a, err := natsbus.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	b := open(t, c.URL(), "b")
	nc, err := nats.Connect(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	put(t, a, "run_A", true)
	s, err := js.Stream(t.Context(), "toolcrib_v1_db1_runs")
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := s.GetLastMsgForSubject(t.Context(), "toolcrib.v1.db1.runs.run_A")
	if err != nil {
		t.Fatal(err)
	}
	for run, body := range map[string][]byte{"run_X": nil, "run_Y": []byte("forged, with some length"), "run_Z": sealed.Data} {
		if _, err := js.Publish(t.Context(), "toolcrib.v1.db1.runs."+run, body); err != nil {
			t.Fatal(err)
		}
	}
	put(t, a, "run_B", true)
	taken(t, b, "run_A")
	taken(t, b, "run_B")
	if n := b.Dropped(); n != 3 {
		t.Errorf("%d were dropped, want 3", n)
	}
}

// The queue of a site that no server has had for a day is removed by the servers of other sites. It is made again when
// a server of the site is back. Queues that servers have stay.
func TestQueue_SiteIsGone(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	var late atomic.Int64
	openSite := func(site string) *natsbus.Bus {
		o := options(t, c.URL(), site)
		o.Self.Site = site
		o.Now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) }
		b, err := natsbus.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		connected(t, b)
		return b
	}
	nc, err := nats.Connect(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	has := func(site string) bool {
		t.Helper()
		_, err := js.Stream(t.Context(), "toolcrib_v1_db1_runs_"+site)
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	gone := openSite("gone")
	put(t, gone, "run_A", true)
	gone.Close()
	stays := openSite("stays")
	put(t, stays, "run_B", true)
	worker, err := js.Consumer(t.Context(), "toolcrib_v1_db1_runs_gone", "workers")
	if err != nil {
		t.Fatal(err)
	}
	if lasts := worker.CachedInfo().Config.InactiveThreshold; lasts != 24*time.Hour {
		t.Fatalf("the consumer is removed after %v", lasts)
	}
	tidied := func(after time.Duration, want bool) {
		t.Helper()
		late.Store(int64(after))
		defer late.Store(0)
		if err := stays.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if has("gone") != want || !has("stays") {
			t.Errorf("after %v the queue of a site that is gone exists: %v, want %v; that of one which is there: %v", after,
				has("gone"), want, has("stays"))
		}
	}
	tidied(25*time.Hour, true) // it has its consumer
	// NATS does this after the time.
	if err := js.DeleteConsumer(t.Context(), "toolcrib_v1_db1_runs_gone", "workers"); err != nil {
		t.Fatal(err)
	}
	tidied(0, true) // it was just made
	tidied(25*time.Hour, false)
	taken(t, stays, "run_B")
	back := openSite("gone")
	put(t, back, "run_C", true)
	taken(t, back, "run_C")
}

// The servers of a database know of each other.
func TestServers(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	var config atomic.Value
	config.Store("old")
	o := options(t, c.URL(), "b")
	o.Config = func() string { return config.Load().(string) }
	b, err := natsbus.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	a := open(t, c.URL(), "a")
	for _, one := range []*natsbus.Bus{a, b} {
		waittest.Until(t, "it has heard of the other", func() bool { return len(one.Others()) == 1 })
	}
	if other := a.Others()[0]; other.Name != "b" || other.Version != "1" || other.Config != "old" {
		t.Errorf("%+v", other)
	}
	config.Store("reloaded")
	waittest.Until(t, "its new configuration is known", func() bool { return a.Others()[0].Config == "reloaded" })
	b.Close()
	waittest.Until(t, "b has left", func() bool { return len(a.Others()) == 0 })
}

// A bus that cannot work is refused, with what to do; one that is not there yet is waited for.
func TestOpen_Errors(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.creds")
	if err := os.WriteFile(bad, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	withUser := func(allow ...string) func(*server.Options) {
		return func(o *server.Options) {
			all := &server.SubjectPermission{Allow: allow}
			o.Users = []*server.User{{Username: "u", Password: "p", Permissions: &server.Permissions{Publish: all, Subscribe: all}}}
		}
	}
	type test struct {
		name   string
		server func(*server.Options)
		change func(o *natsbus.Options)
		want   string
	}
	for _, one := range []test{
		{"no JetStream", func(o *server.Options) { o.JetStream = false }, nil, "no JetStream"},
		{"user", withUser(">"), nil, "refuses the credentials"},
		{"password", withUser(">"), func(o *natsbus.Options) { o.URL = strings.Replace(o.URL, "//", "//u:q@", 1) }, "refuses the credentials"},
		{"may not use JetStream", withUser("_INBOX.>", "toolcrib.>"), func(o *natsbus.Options) {
			o.URL = strings.Replace(o.URL, "//", "//u:p@", 1)
		}, `permission denied: the user of the bus may not use Publish to "$JS.API`},
		{"may not send", withUser("_INBOX.>", "$JS.>", "toolcrib.v1.db1.limits.*"), func(o *natsbus.Options) {
			o.URL = strings.Replace(o.URL, "//", "//u:p@", 1)
		}, `let it publish to toolcrib.v1.db1.>`},
		{"credentials are missing", nil, func(o *natsbus.Options) { o.Credentials = bad + "x" }, "bus.credentials: open "},
		{"credentials", nil, func(o *natsbus.Options) { o.Credentials = bad }, "neither a user's JWT"},
		{"TLS", nil, func(o *natsbus.Options) { o.URL = strings.Replace(o.URL, "nats:", "tls:", 1) }, "one side uses TLS"},
	} {
		t.Run(one.name, func(t *testing.T) {
			c := natstest.Start(t, 1, one.server)
			o := options(t, c.URL(), "a")
			o.Dir = "" // it waits for the bus, however slow this machine is
			if one.change != nil {
				one.change(&o)
			}
			b, err := natsbus.Open(t.Context(), o)
			if err == nil {
				b.Close()
			}
			if err == nil || !strings.Contains(err.Error(), one.want) {
				t.Errorf("error %v, want %s", err, one.want)
			}
			if err != nil && strings.Contains(err.Error(), ":q@") {
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
}

// A stream of the same name that toolcrib has not made is left alone.
func TestOpen_ForeignStream(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	nc, err := nats.Connect(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "toolcrib_v1_db1_limits", Subjects: []string{"others.>"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = natsbus.Open(t.Context(), options(t, c.URL(), "a"))
	if err == nil || !strings.Contains(err.Error(), "nats stream rm toolcrib_v1_db1_limits") {
		t.Errorf("error %v", err)
	}
	s, err := js.Stream(t.Context(), "toolcrib_v1_db1_limits")
	if err != nil || s.CachedInfo().Config.Subjects[0] != "others.>" {
		t.Errorf("the stream was changed: %v", err)
	}
}

// A server starts while the bus is not there, and uses it as soon as it is.
func TestOpen_BeforeTheBus(t *testing.T) {
	here := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, here) })
	c := natstest.Start(t, 1, nil)
	c.Kill(0)
	a := open(t, c.URL(), "a")
	if s := a.State(); s.Connected || !strings.Contains(s.Problem, "does not answer") {
		t.Errorf("state %+v", s)
	}
	put(t, a, "run_A", true)
	taken(t, a, "run_A")
	c.Restart(0)
	connected(t, a)
}

// A bus that accepts connections and says nothing does not keep a server from starting.
func TestOpen_SilentBus(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	c.Relay(0).Stall()
	url := strings.Repeat(c.URL()+",", 7) + c.URL()
	began := time.Now()
	a := open(t, url, "a")
	a.Receive("hint", func([]byte) {})
	l := a.Limit("openai", 1, 0, &user{})
	if took := time.Since(began); took > 20*time.Second { // each address is waited for 5 s
		t.Errorf("the start took %s", took)
	}
	if s := a.State(); s.Connected || !strings.Contains(s.Problem, "does not answer") {
		t.Errorf("state %+v", s)
	}
	if l == nil {
		t.Error("there is no limit")
	}
	put(t, a, "run_A", true)
	taken(t, a, "run_A")
	c.Relay(0).Heal()
	connected(t, a)
}

// What keeps a server from the bus for good is known also if it is found after the start.
func TestOpen_WrongAfterTheStart(t *testing.T) {
	c := natstest.Start(t, 1, func(o *server.Options) { o.Users = []*server.User{{Username: "u", Password: "p"}} })
	c.Kill(0)
	a := open(t, c.URL(), "a")
	c.Restart(0)
	waittest.Until(t, "the reason is known", func() bool {
		return strings.Contains(a.State().Problem, "refuses the credentials")
	})
}

// user is a user of a limit that holds as many places as it wants.
type user struct {
	mu                     sync.Mutex
	b                      *natsbus.Bus
	l                      *natsbus.Limit
	running, waiting, sent int
	held                   chan string
}

func (u *user) Use() (running, waiting, sent int, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.running, u.waiting, u.sent, true
}

func (u *user) Changed() {}

func (u *user) Hold(down bool, d time.Duration) { u.held <- fmt.Sprint(down, " ", d) }

// set sets what the user wants: a request ends, and new ones begin if they may.
func (u *user) set(want int) int {
	most, _ := u.l.Part()
	u.mu.Lock()
	u.running = max(min(u.running-1, want), min(want, most), 0)
	u.waiting = want - u.running
	running, waiting, sent := u.running, u.waiting, u.sent
	u.mu.Unlock()
	u.l.Changed(running, waiting, sent)
	return running
}

// The servers together never have more than a limit, and each gets its share or what the others do not use.
func TestLimit_Shared(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	const most = 8
	users := make([]*user, 3)
	for i := range users {
		users[i] = &user{held: make(chan string, 9)}
		b := open(t, c.URL(), string(rune('a'+i)))
		users[i].l = b.Limit("openai", most, 0, users[i])
	}
	reach := func(what string, want [3]int, is func(have [3]int) bool) {
		t.Helper()
		waittest.Until(t, what, func() bool {
			var have [3]int
			sum := 0
			for i, u := range users {
				have[i] = u.set(want[i])
				sum += have[i]
			}
			if sum > most {
				t.Fatalf("%d requests, of at most %d: %v", sum, most, have)
			}
			return is(have)
		})
	}
	reach("one server has all", [3]int{100, 0, 0}, func(have [3]int) bool { return have[0] == most })
	reach("each has its share", [3]int{100, 100, 100}, func(have [3]int) bool { return min(have[0], have[1], have[2]) >= 2 })
	reach("one needs few", [3]int{100, 1, 0}, func(have [3]int) bool { return have[0] == 7 && have[1] == 1 })
	users[0].l.Tell(true, 3*time.Second)
	if got := <-users[1].held; got != "true 3s" {
		t.Errorf("heard %q", got)
	}
}

// With a limit of one, the servers take turns.
func TestLimit_One(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	var users [2]*user
	for i := range users {
		users[i] = &user{}
		users[i].l = open(t, c.URL(), string(rune('a'+i))).Limit("openai", 1, 0, users[i])
	}
	var turns [2]int
	waittest.Until(t, "both had several turns", func() bool {
		for i, u := range users {
			if u.set(1) == 1 {
				if other := users[1-i]; other.running == 1 {
					t.Fatal("both have the only place")
				}
				turns[i]++
				u.mu.Lock()
				u.running, u.waiting = 0, 1 // its request has ended, and the next waits
				u.mu.Unlock()
				u.l.Changed(0, 1, 0)
			}
		}
		return min(turns[0], turns[1]) > 3
	})
}

// Without the bus each server has its share.
func TestLimit_Share(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	var users [2]*user
	for i := range users {
		users[i] = &user{}
		users[i].l = open(t, c.URL(), string(rune('a'+i))).Limit("openai", 9, 60, users[i])
	}
	waittest.Until(t, "they know of each other", func() bool {
		x, _ := users[0].l.Part()
		y, _ := users[1].l.Part()
		return x == 4 && y == 4
	})
	waittest.Until(t, "one takes all", func() bool { return users[0].set(9) > 4 })
	c.Cut()
	waittest.Until(t, "each has its share", func() bool {
		x, perMinute := users[0].l.Part()
		y, _ := users[1].l.Part()
		return x == 4 && y <= 4 && perMinute == 30
	})
	if testing.Short() {
		return // the other one waits for a minute
	}
	waittest.Until(t, "each has all of its share", func() bool {
		x, _ := users[0].l.Part()
		y, _ := users[1].l.Part()
		return x == 4 && y == 4
	})
}

// A server that starts without the bus uses all of a limit only if the database shows no other server.
func TestLimit_StartedWithoutBus(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	c.Cut()
	for others, want := range []int{5, 0} {
		o := options(t, c.URL(), "a")
		asked := make(chan bool, 100)
		o.Servers = func(context.Context) (int, error) {
			asked <- true
			return others, nil
		}
		b, err := natsbus.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		l := b.Limit("openai", 5, 0, &user{})
		if n, _ := l.Part(); n != 0 {
			t.Errorf("it may send %d requests before it knows of other servers", n)
		}
		<-asked
		waittest.Until(t, "it has looked for other servers", func() bool {
			n, _ := l.Part()
			return n == want
		})
	}
}

// A limit that others write over, and a bus that came back empty, lose nothing that is in use.
func TestLimit_Lost(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	u := &user{}
	b := open(t, c.URL(), "a")
	u.l = b.Limit("openai", 4, 0, u)
	waittest.Until(t, "it has all", func() bool { return u.set(4) == 4 })
	nc, err := nats.Connect(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	other := &user{}
	other.l = open(t, c.URL(), "b").Limit("openai", 4, 0, other)
	waittest.Until(t, "the other one knows of the record", func() bool { return u.set(0) == 0 && other.set(1) == 1 })
	waittest.Until(t, "it has all again", func() bool { return other.set(0) == 0 && u.set(4) == 4 })
	js, _ := jetstream.New(nc)
	s, err := js.Stream(t.Context(), "toolcrib_v1_db1_limits")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for subject := range subjects(t, s) {
			if _, err := js.Publish(t.Context(), subject, []byte(rand.Text())); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			if n := u.set(4) + other.set(0); n > 4 {
				t.Fatalf("%d requests", n)
			}
		}
	}
	c.Empty()
	connected(t, b)
	waittest.Until(t, "it has all again", func() bool { return u.set(4) == 4 })
	waittest.Until(t, "they share it again", func() bool {
		x, y := u.set(4), other.set(4)
		if x+y > 4 {
			t.Fatalf("%d and %d requests, of 4", x, y)
		}
		return y >= 2
	})
}

func subjects(t *testing.T, s jetstream.Stream) map[string]uint64 {
	t.Helper()
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(">"))
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Subjects
}

// The example for Compose has a configuration that NATS takes, of a cluster of three with JetStream.
func TestPackaging_Cluster(t *testing.T) {
	text, err := os.ReadFile("../packaging/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, config, _ := strings.Cut(string(text), "\n  nats:\n    content: |\n")
	config, _, _ = strings.Cut(config, "\n  roles:\n")
	path := filepath.Join(t.TempDir(), "nats.conf")
	t.Setenv("HOSTNAME", "nats-0")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(config, "$$", "$")), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := server.ProcessConfigFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if o.ServerName != "nats-0" || !o.JetStream || o.StoreDir != "/data" || o.Cluster.Name != "toolcrib" || o.Cluster.Port != 6222 ||
		len(o.Routes) != 3 {
		t.Errorf("%+v", o)
	}
	for i := range 3 {
		if want := fmt.Sprintf("nats://nats-%d:6222", i); o.Routes[i].String() != want {
			t.Errorf("%s, want %s", o.Routes[i], want)
		}
	}
}
