//go:build unix

package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/egress"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/postgres"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

// two opens two stores in one new database, as two servers do.
func two(t *testing.T) (name string, stores [2]*postgres.Store) {
	t.Helper()
	name, address, keys := migrated(t)
	for i := range stores {
		stores[i] = openAt(t, address, postgres.Options{Keys: keys})
	}
	return name, stores
}

// numbered is an event with a number. If barrier, it must survive a crash of the server.
func numbered(n int, barrier bool) []toolcrib.Event {
	return journaltest.Events(&journal.ToolStarted{ID: fmt.Sprint("call_", n), Name: "write_file", Write: barrier})
}

// checkNumbered tests that a run has the events of numbered, each once and in order.
func checkNumbered(t *testing.T, s store.Store, run toolcrib.RunID, n int) {
	t.Helper()
	at := 0
	for e, err := range s.Read(t.Context(), run, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Body.(*journal.ToolStarted).ID; got != fmt.Sprint("call_", at) {
			t.Fatalf("event %d of %s is %s", at+1, run, got)
		}
		at++
	}
	if at != n {
		t.Errorf("%s has %d events, want %d", run, at, n)
	}
}

// disturbed appends to 8 runs on two servers while disturb is called, about once in 40 appends.
// Nothing may be lost or doubled, and no append may fail.
func disturbed(t *testing.T, stores [2]*postgres.Store, disturb func(n int)) {
	t.Helper()
	const runs, each = 8, 125
	events := make(chan struct{}, runs*each)
	var all sync.WaitGroup
	for i := range runs {
		all.Go(func() {
			run := toolcrib.RunID(fmt.Sprint("run_", i))
			for n := range each {
				if err := stores[i%2].Append(t.Context(), run, toolcrib.Seq(n), numbered(n, false)...); err != nil {
					t.Errorf("%s, event %d: %v", run, n, err)
					break
				}
				events <- struct{}{}
			}
		})
	}
	go func() {
		all.Wait()
		close(events)
	}()
	random, n := rand.New(rand.NewPCG(1, 2)), 0
	for next := range events {
		_ = next
		if random.IntN(40) == 0 {
			disturb(n)
			n++
		}
	}
	for i := range runs {
		checkNumbered(t, stores[(i+1)%2], toolcrib.RunID(fmt.Sprint("run_", i)), each)
	}
	if _, err := stores[0].VerifyAll(t.Context()); err != nil {
		t.Error(err)
	}
}

// Connections that are ended while two servers append change nothing.
func TestServers_ConnectionsEnd(t *testing.T) {
	name, stores := two(t)
	c, err := pgx.Connect(t.Context(), server.URL("postgres").String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context()) //nolint:errcheck // every statement was answered
	disturbed(t, stores, func(int) {
		if _, err := c.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name); err != nil {
			t.Error(err)
		}
	})
}

// A server of PostgreSQL that is stopped, or that crashes, and is started again changes nothing.
func TestServers_Restart(t *testing.T) {
	_, stores := two(t)
	disturbed(t, stores, func(n int) {
		if n%8 != 0 {
			return
		}
		if err := errors.Join(server.Down([]string{"fast", "immediate"}[n/8%2]), server.Up(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// Every event that was stored is there after a crash of PostgreSQL, whatever the setting of the role: clients may have it.
func TestServers_Durable(t *testing.T) {
	name, stores := two(t)
	admin(t, name, "ALTER DATABASE "+name+" SET synchronous_commit = off")
	for n := range 5 {
		err := stores[n%2].Append(t.Context(), "run_a", toolcrib.Seq(n), numbered(n, false)...)
		if err = errors.Join(err, server.Down("immediate"), server.Up(t.Context())); err != nil {
			t.Fatal(err)
		}
		checkNumbered(t, stores[0], "run_a", n+1)
	}
}

// Of appends of the same event on two servers, one wins.
func TestServers_Fence(t *testing.T) {
	_, stores := two(t)
	for n := range 50 {
		var won atomic.Int64
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				err := stores[i%2].Append(t.Context(), "run_a", toolcrib.Seq(n), numbered(n, n%2 == 0)...)
				switch {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, toolcrib.ErrConflict):
					t.Error(err)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Fatalf("event %d was appended %d times", n, won.Load())
		}
	}
	checkNumbered(t, stores[0], "run_a", 50)
}

// proxy stands between a store and the server, and cuts a connection at its next commit.
type proxy struct {
	net.Listener
	cut atomic.Int32 // what happens with the next commit: one of the constants
}

const (
	forward = iota
	loseRequest
	loseAnswer
	stall // neither forward it nor end the connection
)

func newProxy(t *testing.T) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	p := &proxy{Listener: l}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close() //nolint:errcheck // it is cut
	to, err := net.Dial("unix", server.URL("").Query().Get("host")+"/.s.PGSQL.5432")
	if err != nil {
		return
	}
	defer to.Close() //nolint:errcheck // likewise
	var silent atomic.Bool
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, err := to.Read(b)
			if err != nil || silent.Load() { // an answer is there, so the commit is done
				_ = client.Close()
				return
			}
			if _, err := client.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	b := make([]byte, 64<<10)
	for {
		n, err := client.Read(b)
		if err != nil {
			return
		}
		if bytes.Contains(b[:n], []byte("COMMIT\x00")) {
			switch p.cut.Swap(forward) {
			case loseRequest:
				return
			case loseAnswer:
				silent.Store(true)
			case stall:
				continue
			}
		}
		if _, err := io.Copy(to, bytes.NewReader(b[:n])); err != nil {
			return
		}
	}
}

// throughProxy opens a store through a proxy that sees the text of each statement.
func throughProxy(t *testing.T, address, keys string) (*proxy, *postgres.Store) {
	t.Helper()
	p := newProxy(t)
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	at.Host, at.RawQuery = p.Addr().String(), "sslmode=disable&default_query_exec_mode=exec"
	return p, openAt(t, at.String(), postgres.Options{Keys: keys})
}

// A server that is stopped while it has the lock loses it before the others give up, and continues later.
func TestServers_Asleep(t *testing.T) {
	_, address, keys := migrated(t)
	p, asleep := throughProxy(t, address, keys)
	other := openAt(t, address, postgres.Options{Keys: keys})
	p.cut.Store(stall)
	done := make(chan error)
	go func() { done <- asleep.Append(t.Context(), "run_a", 0, numbered(0, true)...) }()
	waittest.Until(t, "the commit is held", func() bool { return p.cut.Load() == forward })
	if err := other.Append(t.Context(), "run_b", 0, numbered(0, true)...); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	checkNumbered(t, other, "run_a", 1)
}

// A commit that was not answered is looked up: it is not repeated if it was done.
func TestCommit_NotAnswered(t *testing.T) {
	_, address, keys := migrated(t)
	p, s := throughProxy(t, address, keys)
	const n = 60
	for i := range n {
		p.cut.Store(int32(i % 3))
		if err := s.Append(t.Context(), "run_a", toolcrib.Seq(i), numbered(i, i%2 == 0)...); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
		if p.cut.Load() != forward {
			t.Fatalf("event %d: the proxy saw no commit", i)
		}
	}
	checkNumbered(t, s, "run_a", n)
	commits := s.Stats().Commits
	if commits != n {
		t.Errorf("%d transactions, want %d", commits, n)
	}
	if _, err := s.VerifyAll(t.Context()); err != nil {
		t.Error(err)
	}
}

// The same key file is needed on all servers.
func TestServers_OtherKeys(t *testing.T) {
	_, address, _ := migrated(t)
	other := t.TempDir() + "/keys"
	if err := store.NewKeys().Create(other); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.Open(t.Context(), address, postgres.Options{Keys: other}); !errors.Is(err, store.ErrKeys) {
		t.Errorf("error %v, want ErrKeys", err)
	}
}

// What a session uses of the web is counted for all servers together.
func TestX11_WebUsageOfAllServers(t *testing.T) {
	_, servers := two(t)
	const most = 1 << 20
	var read atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			b := &egress.Budget{Bytes: most, Hosts: 8, Files: servers[i%2]}
			call := toolcrib.Call{Session: "ses_1"}
			if err := b.Spend(call, fmt.Sprint("host", i), 0, true); err != nil {
				return // the others have used everything
			}
			m := b.Meter(call, 300<<10)
			n, err := io.Copy(io.Discard, m.Reader(zeros{}))
			if !errors.Is(err, egress.ErrSpent) && !errors.Is(err, egress.ErrTooLong) {
				t.Error(err)
			}
			read.Add(n)
			m.Close()
		})
	}
	all.Wait()
	if n := read.Load(); n > most || n < most-8*300<<10/2 {
		t.Errorf("%d bytes were used of %d", n, most)
	}
	for i, session := range []toolcrib.SessionID{"ses_2", "ses_2", "ses_3"} {
		b := &egress.Budget{Hosts: 1, Files: servers[i%2]}
		err := b.Spend(toolcrib.Call{Session: session}, fmt.Sprint("host", i), 0, true)
		if (err == nil) != (i != 1) {
			t.Errorf("host %d of %s: %v", i, session, err)
		}
	}
}

// zeros are bytes without end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// While the server has no connections left, appends wait for one, and then fail with what to do; nothing is doubled, and
// a store continues when there are some again.
func TestServers_TooManyConnections(t *testing.T) {
	name, _, keys := migrated(t)
	admin(t, "postgres", "CREATE ROLE "+name+" LOGIN PASSWORD 'x'")
	admin(t, name, "GRANT USAGE ON SCHEMA toolcrib TO "+name,
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA toolcrib TO "+name,
		"GRANT USAGE ON ALL SEQUENCES IN SCHEMA toolcrib TO "+name)
	at := server.URL(name)
	q := at.Query()
	q.Set("user", name)
	q.Set("password", "x")
	at.User, at.RawQuery = nil, q.Encode()
	hasty := openAt(t, at.String(), postgres.Options{Keys: keys, BusyTimeout: 300 * time.Millisecond})
	patient := openAt(t, at.String(), postgres.Options{Keys: keys, BusyTimeout: 2 * time.Minute})
	for run, s := range map[toolcrib.RunID]*postgres.Store{"run_hasty": hasty, "run_patient": patient} {
		if err := s.Append(t.Context(), run, 0, numbered(0, true)...); err != nil {
			t.Fatal(err)
		}
	}
	admin(t, "postgres", "ALTER ROLE "+name+" CONNECTION LIMIT 0",
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '"+name+"'")
	waits := make(chan error, 1)
	go func() { waits <- patient.Append(t.Context(), "run_patient", 1, numbered(1, true)...) }()
	err := hasty.Append(t.Context(), "run_hasty", 1, numbered(1, true)...)
	if !errors.Is(err, store.ErrUnreachable) || !strings.Contains(err.Error(), "max_connections") {
		t.Errorf("without a connection: %v", err)
	}
	if _, err := hasty.Run(t.Context(), "run_hasty"); !errors.Is(err, store.ErrUnreachable) {
		t.Errorf("without a connection: %v", err)
	}
	select {
	case err := <-waits:
		t.Errorf("it does not wait: %v", err)
	default:
	}
	admin(t, "postgres", "ALTER ROLE "+name+" CONNECTION LIMIT -1")
	if err := <-waits; err != nil {
		t.Errorf("with connections again: %v", err)
	}
	if err := hasty.Append(t.Context(), "run_hasty", 1, numbered(1, true)...); err != nil {
		t.Errorf("with connections again: %v", err)
	}
	checkNumbered(t, hasty, "run_hasty", 2)
	checkNumbered(t, hasty, "run_patient", 2)
}
