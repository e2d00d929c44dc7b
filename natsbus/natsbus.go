// Package natsbus connects the servers of one database through NATS: it hands out runs, carries messages from one
// server to the others, and divides limits between them. It is never the truth. Everything that it carries may be
// lost, doubled, delayed or reordered; and when the bus is gone, each server continues with a queue of its own and
// its share of the limits. Without a cluster, the bus is a queue in this process.
package natsbus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// version is part of the names of all subjects and streams. Servers with another version of them do not
	// disturb each other.
	version = "v1"
	// patience is how long the bus may take to answer.
	patience = 5 * time.Second
	// pingEvery is how often an idle connection is checked; it is given up after two pings without an answer.
	pingEvery = 3 * time.Second
	// repairEvery is the pause between two attempts to declare the streams.
	repairEvery = time.Second
	// tidyEvery is how often queues are looked for that no server needs any longer.
	tidyEvery = time.Hour
	// startWait is how long [Open] waits for the bus to show whether it can be used.
	startWait = 2 * time.Second
)

// Options configure a [Bus].
type Options struct {
	// URL has the addresses of the servers of a cluster, separated by commas. If "", the bus is a NATS server in this
	// process.
	URL string
	// Credentials is a file with a user's JWT and NKEY seed (.creds), or with a seed only. It may be "".
	Credentials string
	// CAFile has the certificates of the authorities that are trusted instead of the system's. It may be "".
	CAFile string
	// CertFile and KeyFile are the certificate of this client. They may be "".
	CertFile, KeyFile string

	// Dir is a folder for the NATS server in this process, which keeps the queue while there is no cluster. If "",
	// there is no queue.
	Dir string
	// Database identifies the database: its servers share it, and no others. It consists of letters and digits.
	Database string
	// Key is secret to the servers of the database. It seals what they send to each other.
	Key []byte
	// Self describes this server to the others.
	Self Server
	// Config returns the hash of the configuration in effect, Self.Config. If nil, that does not change.
	Config func() string
	// Servers returns the number of other servers of the database that may use limits. If nil, there are none.
	Servers func(context.Context) (int, error)
	// Now returns the time of messages. If nil, it is time.Now.
	Now func() time.Time
	// Log receives what happens to the connection. If nil, nothing is logged.
	Log *slog.Logger
}

// Bus is a connection to the other servers of a database. It is safe for concurrent use.
type Bus struct {
	Options
	embedded *server.Server
	near     *jobs // the queue in this process
	far      *jobs // the queue of the cluster; nil without one

	conn    *nats.Conn // of the cluster; nil without one
	js      jetstream.JetStream
	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup
	out     chan *nats.Msg // what waits to be sent
	broken  chan struct{}  // has room for one; signals that the streams are to be declared
	opened  chan error     // has room for one; the result of the first attempt to use the cluster
	seal    sealer
	records atomic.Pointer[jetstream.Stream] // of limits

	mu     sync.Mutex
	state  State
	ready  chan struct{} // closed while the state is Connected
	peers  map[string]peer
	limits int // users of limits

	denied denied // what the node of the server may not do

	settles time.Time // of the records of limits
	dropped atomic.Int64

	counting sync.Mutex
	counted  time.Time
	count    int // servers of the database; 0 if it is not known
}

// State is the state of the connection to a cluster.
type State struct {
	Connected bool      // and the streams of this version exist
	Since     time.Time // when that last changed
	Server    string    // name of the NATS server
	Cluster   string    // name of its cluster, or ""
	Replicas  int       // number of NATS servers that keep its streams
	Problem   string    // why it is not connected
}

// Open connects to the cluster, or starts a NATS server in this process. If the cluster cannot be reached within two
// seconds, Open returns a bus that connects as soon as possible; without a queue in this process, it waits longer. If
// the cluster refuses the connection, or has no JetStream, Open returns an error that says what to do.
func Open(ctx context.Context, o Options) (_ *Bus, err error) {
	b := &Bus{
		Options: o, out: make(chan *nats.Msg, maxOut), broken: make(chan struct{}, 1),
		opened: make(chan error, 1), peers: map[string]peer{}, ready: make(chan struct{}),
	}
	if b.Log == nil {
		b.Log = slog.New(slog.DiscardHandler)
	}
	b.ctx, b.end = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	if o.Dir != "" {
		if b.near, err = b.embed(ctx); err != nil {
			return nil, err
		}
	}
	if o.URL == "" {
		return b, nil
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := b.seal.init(o.Key, o.Now); err != nil {
		return nil, err
	}
	if err := b.connect(); err != nil {
		return nil, err
	}
	b.running.Go(b.send)
	b.running.Go(b.repair)
	b.present()
	return b, b.await(ctx)
}

// await waits for the first attempt to use the cluster, which continues after that.
func (b *Bus) await(ctx context.Context) error {
	wait := startWait
	if b.Dir == "" {
		wait = 2 * patience
	}
	var err error
	select {
	case err = <-b.opened:
	case <-time.After(wait):
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if s := b.State(); err == nil && !s.Connected && s.Problem == "" {
		b.failed(errUnreachable)
	}
	return err
}

// embed starts a NATS server in this process, without a listener.
func (b *Bus) embed(ctx context.Context) (*jobs, error) {
	failed := func(err error) (*jobs, error) { return nil, fmt.Errorf("queue: %w", err) }
	var err error
	b.embedded, err = server.NewServer(&server.Options{
		ServerName: "toolcrib", DontListen: true, NoSigs: true, NoLog: true, DisableJetStreamBanner: true,
		JetStream: true, StoreDir: b.Dir, JetStreamMaxMemory: maxMemory, JetStreamMaxStore: 1,
	})
	if err != nil {
		return failed(err)
	}
	b.embedded.Start() // returns, since it does not listen
	if !b.embedded.JetStreamEnabled() {
		return failed(fmt.Errorf("cannot start in folder %s", b.Dir))
	}
	conn, err := nats.Connect("", nats.InProcessServer(b.embedded), nats.Name("toolcrib"))
	if err != nil {
		return failed(err)
	}
	near := &jobs{name: runsName, conn: conn, names: names{"local"}, storage: jetstream.MemoryStorage, bytes: maxMemory}
	if near.js, err = jetstream.New(conn, jetstream.WithDefaultTimeout(patience)); err == nil {
		_, err = near.declare(ctx)
	}
	if err != nil {
		return failed(err)
	}
	return near, nil
}

// names are the names of what belongs to one database.
type names struct{ id string }

func (n names) subject(parts ...string) string {
	return "toolcrib." + version + "." + n.id + "." + strings.Join(parts, ".")
}

// queueOf returns the name of the queue of the servers with a site.
func queueOf(site string) string {
	if site == "" {
		return runsName
	}
	return runsName + "_" + site
}

// tidy removes the queues of other sites that no server has taken from for siteLasts: then NATS has removed their
// consumers. What the runs in them wait for is in the store, and a server of the site makes its queue again.
func (b *Bus) tidy(ctx context.Context) error {
	queues := b.js.ListStreams(ctx, jetstream.WithStreamListSubject(b.far.names.subject("*", "*")))
	for q := range queues.Info() {
		name := q.Config.Name
		ofSite := strings.HasPrefix(name, b.far.names.stream(runsName+"_")) && name != b.far.names.stream(b.far.name)
		if !ofSite || q.State.Consumers > 0 || b.Now().Sub(q.Created) < siteLasts {
			continue
		}
		if err := b.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		b.Log.Info("removed the queue of a folder of workspaces that no server has had for a day", "stream", name)
	}
	return queues.Err()
}

func (n names) stream(name string) string { return "toolcrib_" + version + "_" + n.id + "_" + name }

// dialer fails at once for the first attempts, which [nats.Connect] waits for. Others are made in the background.
type dialer struct {
	bus  *Bus
	left atomic.Int64 // attempts that fail
}

// Dial implements [nats.CustomDialer].
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	if d.left.Add(-1) >= 0 {
		return nil, errUnreachable
	}
	c, err := (&net.Dialer{Timeout: patience}).DialContext(d.bus.ctx, network, address)
	if err != nil {
		d.bus.failed(fmt.Errorf("%w: %w", errUnreachable, err))
	}
	return c, err
}

// connect begins to connect to the cluster.
func (b *Bus) connect() error {
	options, err := b.connectOptions()
	if err != nil {
		return err
	}
	dial := &dialer{bus: b}
	dial.left.Store(int64(strings.Count(b.URL, ",")) + 1)
	made := make(chan struct{})
	defer close(made)
	b.conn, err = nats.Connect(b.URL, append(options, nats.SetCustomDialer(dial), nats.SkipHostLookup(),
		nats.RetryOnFailedConnect(true), nats.CustomReconnectDelay(func(attempts int) time.Duration {
			<-made
			return b.again(attempts)
		}))...)
	if err != nil {
		return b.explain(err)
	}
	if b.js, err = jetstream.New(b.conn, jetstream.WithDefaultTimeout(patience)); err != nil {
		return b.explain(err)
	}
	b.far = &jobs{
		name: queueOf(b.Self.Site), conn: b.conn, js: b.js, names: names{b.Database}, storage: jetstream.FileStorage,
		bytes: maxFile, replicas: 3, bus: b,
	}
	if b.Self.Site != "" {
		b.far.lasts = siteLasts
	}
	return nil
}

// again returns the pause before all addresses of the cluster are tried again.
func (b *Bus) again(attempts int) time.Duration {
	if attempts <= 1 {
		return 0
	}
	err := b.explain(b.conn.LastError()) // of the handshake; others are reported
	if err != nil {
		b.failed(err)
	}
	b.first(cmp.Or(err, errUnreachable))
	return repairEvery/4 + rand.N(repairEvery)
}

// first reports the result of the first attempt to use the cluster. If it may pass, it is not an error.
func (b *Bus) first(err error) {
	if errors.Is(err, errUnreachable) {
		err = nil
	}
	select {
	case b.opened <- err:
	default:
	}
}

func (b *Bus) connectOptions() ([]nats.Option, error) {
	options := []nats.Option{
		nats.Name("toolcrib " + b.Self.Name), nats.Timeout(patience), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1),
		nats.PingInterval(pingEvery),
		nats.MaxPingsOutstanding(2), nats.FlusherTimeout(pingEvery), nats.IgnoreAuthErrorAbort(), nats.NoEcho(),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { b.failed(b.explain(err)) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			if !errors.Is(err, errUnreachable) { // of the dialer
				b.failed(b.explain(err))
			}
		}),
		nats.ConnectHandler(func(*nats.Conn) { b.wake() }), nats.ReconnectHandler(func(*nats.Conn) { b.wake() }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { b.refused(err) }),
	}
	secure, err := b.security()
	return append(options, secure...), err
}

// security returns the options for TLS and credentials.
func (b *Bus) security() (options []nats.Option, err error) {
	if b.CAFile != "" {
		options = append(options, nats.RootCAs(b.CAFile))
	}
	if b.CertFile != "" {
		options = append(options, nats.ClientCert(b.CertFile, b.KeyFile))
	}
	if b.Credentials == "" {
		return options, nil
	}
	o, err := credentials(b.Credentials)
	return append(options, o), err
}

// declare makes the streams, and updates the state.
func (b *Bus) declare(ctx context.Context) error {
	copies, err := b.far.declare(ctx)
	if err == nil {
		err = b.declareLimits(ctx)
	}
	if err == nil {
		err = b.probe()
	}
	if err != nil {
		err = b.explain(err)
		b.failed(err)
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.state
	b.state = State{
		Connected: true, Since: time.Now(), Server: b.conn.ConnectedServerName(), Cluster: b.conn.ConnectedClusterName(),
		Replicas: copies,
	}
	if !was.Connected {
		close(b.ready)
		b.Log.Info("connected to the bus", "server", b.state.Server, "cluster", b.state.Cluster, "replicas", b.state.Replicas)
	}
	return nil
}

// failed records that the cluster cannot be used. err may be nil.
func (b *Bus) failed(err error) {
	if b.ctx.Err() != nil {
		return
	}
	problem := "the connection was lost"
	if err != nil {
		problem = err.Error()
	}
	b.mu.Lock()
	was := b.state
	if was.Connected || was.Since.IsZero() {
		b.state.Since = time.Now()
	}
	if was.Connected {
		b.ready = make(chan struct{})
	}
	b.state.Connected, b.state.Problem = false, problem
	b.mu.Unlock()
	again := errors.Is(err, errUnreachable) && strings.HasPrefix(was.Problem, errUnreachable.Error()) // of another address
	if was.Connected || was.Problem != problem && !again {
		b.Log.Warn("the bus cannot be used; this server finds its work in the database meanwhile", "error", problem)
	}
	b.wake()
}

// wake has the streams declared again.
func (b *Bus) wake() {
	select {
	case b.broken <- struct{}{}:
	default:
	}
}

// repair declares the streams when the connection was made again, or the cluster has lost them.
func (b *Bus) repair() {
	for {
		select {
		case <-b.broken:
		case <-time.After(tidyEvery):
		case <-b.ctx.Done():
			return
		}
		if !b.conn.IsConnected() {
			continue // it wakes this goroutine
		}
		err := b.declare(b.ctx)
		b.first(err)
		if err == nil {
			if err := b.tidy(b.ctx); err != nil {
				b.Log.Debug("cannot look for queues that no server needs", "error", err)
			}
			continue
		}
		select {
		case <-time.After(repairEvery):
			b.wake()
		case <-b.ctx.Done():
			return
		}
	}
}

// State returns the state of the connection to the cluster. Without one, it is always connected.
func (b *Bus) State() State {
	if b.conn == nil && b.URL == "" {
		return State{Connected: true}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// Close implements [queue.Queue]. It ends the connection.
func (b *Bus) Close() {
	b.leave()
	b.end()
	b.running.Wait()
	if b.conn != nil {
		b.conn.Close()
	}
	if b.near != nil {
		b.near.conn.Close()
	}
	if b.embedded != nil {
		b.embedded.Shutdown()
		b.embedded.WaitForShutdown()
	}
}
