//go:build unix

package postgres_test

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/store/postgres"
)

// A copy of a database with the same keys is another one, also for a role with few rights.
func TestIdentity(t *testing.T) {
	name, address, keys := migrated(t)
	copied := name + "copy"
	admin(t, "postgres", "CREATE DATABASE "+copied+" TEMPLATE "+name, "CREATE ROLE "+name+" LOGIN PASSWORD 'x'")
	admin(t, name, "GRANT USAGE ON SCHEMA toolcrib TO "+name,
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA toolcrib TO "+name)
	least := server.URL(name)
	q := least.Query()
	q.Set("user", name)
	q.Set("password", "x")
	least.User, least.RawQuery = nil, q.Encode()
	var ids []string
	for _, one := range []string{address, least.String(), server.URL(copied).String()} {
		id, err := openAt(t, one, postgres.Options{Keys: keys}).Identity(t.Context())
		if err != nil || id == "" {
			t.Fatalf("%q, %v", id, err)
		}
		ids = append(ids, id)
	}
	if ids[0] != ids[1] || ids[0] == ids[2] {
		t.Errorf("identities %q: the first two are the same database, the third is a copy", ids)
	}
}

// hears returns what a bus receives of a kind, once it listens.
func hears(t *testing.T, b *postgres.Bus, kind string) chan string {
	t.Helper()
	got := make(chan string, 10_000)
	b.Receive(kind, func(body []byte) { got <- string(body) })
	waittest.Until(t, "it listens", b.Listening)
	return got
}

// Hints come to the others, or to the one that they are for, and in any number.
func TestBus(t *testing.T) {
	_, stores := two(t)
	a, b := stores[0].Bus(nil), stores[1].Bus(nil)
	wakes, own := hears(t, a, "wake"), hears(t, b, "wake")
	for range 100 {
		b.Send("wake", "", []byte("run_1"))
	}
	b.Send("wake", a.ID(), []byte("run 2"))
	b.Send("wake", b.ID(), []byte("not for a"))
	b.Send("other", "", []byte("nobody reads it"))
	b.Send("wake", "", []byte(strings.Repeat("x", 10_000)))
	for i := range 3000 {
		b.Send("wake", "", fmt.Append(nil, i))
	}
	for seen, end := map[string]bool{}, time.After(time.Minute); len(seen) < 3002; {
		select {
		case one := <-wakes:
			seen[one] = true
			if strings.HasPrefix(one, "not") || len(one) > 10 {
				t.Errorf("got %.20q", one)
			}
		case <-end:
			t.Fatalf("%d hints have come", len(seen))
		}
	}
	if len(own) > 0 {
		t.Errorf("the sender hears %q", <-own)
	}
}

// However many notifications another role sends, and however slow their reader is, they take little memory, and the
// hints of other servers among and after them arrive.
func TestBus_Flood(t *testing.T) {
	const each, most = 20_000, 40 << 20 // of 280 MB that are sent; other tests run meanwhile
	name, stores := two(t)
	reader, other := stores[0].Bus(nil), stores[1].Bus(nil)
	blocked, going := make(chan struct{}), make(chan struct{})
	var once sync.Once
	wakes, junk := make(chan string, 10), 0
	reader.Receive("wake", func(body []byte) {
		if len(body) > 100 {
			once.Do(func() {
				close(blocked)
				<-going
			})
			junk++
			return
		}
		wakes <- string(body)
	})
	waittest.Until(t, "it listens", reader.Listening)
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	flood := func() {
		t.Helper()
		admin(t, name, fmt.Sprintf(
			"SELECT pg_notify('toolcrib_v1', 'wake x * ' || i || repeat('y', 7000)) FROM generate_series(1, %d) i", each))
	}
	flood()
	<-blocked
	other.Send("wake", "", []byte("run_among"))
	flood()
	if more := heap() - before; more > most {
		t.Errorf("a reader that waits has %d bytes more", more)
	}
	close(going)
	if one := <-wakes; one != "run_among" {
		t.Errorf("got %q", one)
	}
	other.Send("wake", "", []byte("run_after"))
	if one := <-wakes; one != "run_after" {
		t.Errorf("got %q", one)
	}
	if more := heap() - before; more > most || junk != 2*each {
		t.Errorf("%d bytes more after %d notifications", more, junk)
	}
	for i := range 3 * each { // more than may wait to be sent
		other.Send("wake", "", fmt.Append(nil, strings.Repeat("x", 900), i))
	}
	if more := heap() - before; more > most {
		t.Errorf("a sender has %d bytes more", more)
	}
	waittest.Until(t, "a hint after those that were too many arrives", func() bool {
		other.Send("wake", "", []byte("run_last"))
		select {
		case one := <-wakes:
			return one == "run_last"
		case <-time.After(100 * time.Millisecond):
			return false
		}
	})
}

// A server listens again when its connection was cut, also by a database that was away; meanwhile hints are lost. What
// a store was given before it is closed is sent.
func TestBus_ListensAgain(t *testing.T) {
	name, stores := two(t)
	a := stores[0].Bus(nil)
	wakes := hears(t, a, "wake")
	cut := func() {
		admin(t, "postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = '"+name+"'")
	}
	admin(t, "postgres", "ALTER DATABASE "+name+" ALLOW_CONNECTIONS false")
	cut()
	waittest.Until(t, "it has lost its connection", func() bool { return !a.Listening() })
	stores[1].Bus(nil).Send("wake", "", []byte("lost"))
	admin(t, "postgres", "ALTER DATABASE "+name+" ALLOW_CONNECTIONS true")
	waittest.Until(t, "it listens again", a.Listening)
	stores[1].Bus(nil).Send("wake", "", []byte("run_1"))
	for one := <-wakes; one != "run_1"; one = <-wakes {
		if one != "lost" { // it was sent when the database was back
			t.Errorf("got %q", one)
		}
	}
	stores[1].Bus(nil).Send("wake", "", []byte("last"))
	if err := stores[1].Close(); err != nil {
		t.Error(err)
	}
	if one := <-wakes; one != "last" {
		t.Errorf("got %q", one)
	}
}

// Behind PgBouncer in transaction mode nothing can be listened to, which is found out before LISTEN stays on a connection
// of others. Sending works.
func TestBus_Bouncer(t *testing.T) {
	name, address, keys := migrated(t)
	at := bouncer(t, name)
	at.RawQuery = "sslmode=disable&default_query_exec_mode=exec"
	direct := openAt(t, address, postgres.Options{Keys: keys}).Bus(nil)
	wakes := hears(t, direct, "wake")
	log := new(logged)
	pooled := openAt(t, at.String(), postgres.Options{Keys: keys}).Bus(log.logger())
	pooled.Receive("wake", func(body []byte) { t.Errorf("got %q", body) })
	waittest.Until(t, "it gives up", func() bool { return strings.Contains(log.text(), "PgBouncer") })
	for range 3 {
		pooled.Send("wake", "", []byte("run_1"))
		direct.Send("wake", "", []byte("run_2"))
		if one := <-wakes; one != "run_1" {
			t.Errorf("got %q", one)
		}
	}
	if pooled.Listening() {
		t.Error("it listens")
	}
}

// logged keeps what is logged.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
