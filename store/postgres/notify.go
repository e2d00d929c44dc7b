package postgres

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolcrib/toolcrib/store/sqlstore"
)

const (
	channel   = "toolcrib_v1"
	everyone  = "*"
	maxHint   = 1000 // bytes
	maxHints  = 4096 // that wait to be sent
	sendEvery = 20 * time.Millisecond
	sendWait  = 2 * time.Second
	// A connection that listens is tested when nothing has come for listenTest. The pause before the next one
	// doubles up to listenPause.
	listenTest  = 10 * time.Second
	listenPause = 30 * time.Second
)

// errPooled reports that a connection does not lead to one process of the server.
var errPooled = errors.New("there is a connection pooler, such as PgBouncer, in between")

// Bus carries hints between the processes of a database, by NOTIFY and LISTEN. Hints are sent after the transactions
// that they are about, many at once, and equal ones once. They may be lost. Each role of the database can read and send
// them, so they contain only IDs. Behind a connection pooler, a process can send hints, and gets none.
type Bus struct {
	db      *database
	id      string
	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup
	wake    chan struct{} // has room for one; signals that hints wait

	mu        sync.Mutex
	log       *slog.Logger
	sends     bool
	out       map[string]bool // payloads
	do        map[string]func(body []byte)
	listening bool // hints arrive
}

func newBus(db *database, id string) *Bus {
	b := &Bus{db: db, id: id, wake: make(chan struct{}, 1), out: map[string]bool{}, do: map[string]func([]byte){}}
	b.ctx, b.end = context.WithCancel(context.Background())
	b.log = slog.New(slog.DiscardHandler)
	return b
}

// Bus returns the bus of the database. It ends with the store. log may be nil.
func (s *Store) Bus(log *slog.Logger) *Bus {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	s.bus.log = cmp.Or(log, s.bus.log)
	return s.bus
}

// Close implements [store.Store].
func (s *Store) Close() error {
	s.bus.mu.Lock() // nothing begins to run from now on
	s.bus.end()
	s.bus.mu.Unlock()
	s.bus.running.Wait()
	return s.Store.Close()
}

func (b *Bus) logger() *slog.Logger {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log
}

// ID identifies this process.
func (b *Bus) ID() string { return b.id }

// Alone reports true: no process takes over work because of a hint.
func (b *Bus) Alone() bool { return true }

// Live reports false: the bus does not carry content.
func (b *Bus) Live() bool { return false }

// Listening reports whether hints arrive.
func (b *Bus) Listening() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.listening
}

// Send sends a hint of a kind to all other processes or, if to is not "", to the one with that ID. It does not block.
func (b *Bus) Send(kind, to string, body []byte) {
	payload := strings.Join([]string{kind, b.id, cmp.Or(to, everyone), string(body)}, " ")
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(payload) > maxHint || len(b.out) >= maxHints || b.ctx.Err() != nil {
		return
	}
	if b.out[payload] = true; !b.sends {
		b.sends = true
		b.running.Go(b.send)
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// send sends the hints that wait, until the store is closed.
func (b *Bus) send() {
	said := ""
	for ended := false; !ended; {
		select {
		case <-b.wake:
		case <-b.ctx.Done():
		}
		ended = b.ctx.Err() != nil // before the last hints are taken
		b.mu.Lock()
		all := slices.Sorted(maps.Keys(b.out))
		clear(b.out)
		b.mu.Unlock()
		if len(all) == 0 {
			continue
		}
		pause := sendEvery
		if err := b.notify(all); err != nil {
			pause = time.Second // what they were about is found later
			if text := mapped(b.db.path, err).Error(); text != said && !ended {
				said = text
				b.logger().Warn("cannot notify other servers, which find out later", "error", text)
			}
		}
		select {
		case <-time.After(pause):
		case <-b.ctx.Done():
		}
	}
}

func (b *Bus) notify(hints []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), sendWait)
	defer cancel()
	_, err := b.db.pool.Exec(ctx, "SELECT pg_notify('"+channel+"', hint) FROM unnest($1::text[]) hint", hints)
	return err
}

// Receive calls do for the hints of a kind to all processes, or to this one, one after another.
func (b *Bus) Receive(kind string, do func(body []byte)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.do[kind] = do; len(b.do) == 1 && b.ctx.Err() == nil {
		b.running.Go(b.receive)
	}
}

// receive listens until the store is closed.
func (b *Bus) receive() {
	pause := minPause
	for said := ""; ; {
		err := b.listen()
		b.mu.Lock()
		if b.listening {
			pause = minPause
		}
		b.listening = false
		log := b.log
		b.mu.Unlock()
		switch {
		case b.ctx.Err() != nil:
			return
		case errors.Is(err, errPooled):
			log.Info("other servers' work is found by looking for it from time to time", "because", err)
			return
		}
		if err = mapped(b.db.path, err); said != err.Error() {
			said = err.Error()
			log.Warn("cannot listen to the database; other servers' work is found by looking for it meanwhile", "error", said)
		}
		select {
		case <-time.After(pause + rand.N(pause)):
		case <-b.ctx.Done():
			return
		}
		pause = min(2*pause, listenPause)
	}
}

// listen makes a connection, and listens until it ends.
func (b *Bus) listen() error {
	ctx, cancel := context.WithTimeout(b.ctx, listenTest)
	defer cancel()
	c, err := pgx.ConnectConfig(ctx, b.db.config.Copy())
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx) // it is not used again
	}()
	var pid uint32 // poolers make up that of the protocol
	err = c.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	switch {
	case err != nil:
		return err
	case pid != c.PgConn().PID():
		return errPooled
	}
	if _, err := c.Exec(ctx, "LISTEN "+channel, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	b.mu.Lock()
	b.listening = true
	b.mu.Unlock()
	for {
		if err := b.hear(c); err != nil {
			return err
		}
	}
}

// hear waits for a hint, and passes it on. If none comes, it tests the connection.
func (b *Bus) hear(c *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(b.ctx, listenTest)
	defer cancel()
	n, err := c.WaitForNotification(ctx)
	if err != nil {
		if b.ctx.Err() != nil || ctx.Err() == nil || c.IsClosed() {
			return err
		}
		ctx, cancel := context.WithTimeout(b.ctx, idleTimeout)
		defer cancel()
		return c.Ping(ctx)
	}
	part := strings.SplitN(n.Payload, " ", 4)
	if len(part) < 4 || part[1] == b.id || part[2] != everyone && part[2] != b.id {
		return nil
	}
	b.mu.Lock()
	do := b.do[part[0]]
	b.mu.Unlock()
	if do != nil {
		do([]byte(part[3]))
	}
	return nil
}

// Identity distinguishes the database from others, also from copies that another server or another database has. A
// standby that takes over has the same.
func (s *Store) Identity(ctx context.Context) (id string, err error) {
	for _, query := range []string{
		"SELECT (SELECT system_identifier FROM pg_control_system()) || ' ' || oid FROM pg_database WHERE datname = current_database()",
		"SELECT oid || ' ' || 'toolcrib'::regnamespace::oid FROM pg_database WHERE datname = current_database()",
	} {
		err = s.db.Read(ctx, func(c sqlstore.Conn) error {
			return c.Each(ctx, query, nil, func(scan sqlstore.Scan) error { return scan(&id) })
		})
		if err == nil { // otherwise the role may not use the function
			break
		}
	}
	return id, mapped(s.db.path, err)
}
