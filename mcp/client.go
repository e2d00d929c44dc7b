package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/mcp/signin"
)

// Options are the options that all servers have in common.
type Options struct {
	Version string // version of toolcrib
	// Changed is called when State or Definitions may have changed. It may be nil, and must return soon.
	Changed func()
	// Log is called with each line that a server writes to standard error, and each line on standard output that is
	// not a message. It may be nil.
	Log func(server, line string)
	// SignIn is the sign-in to a server with an address. It may be nil.
	SignIn *signin.Session
}

// State is the state of a server.
type State struct {
	Running  bool
	Error    string // why it does not run; "" if it runs or starts
	Server   string // its own name and version
	Protocol string
	Problems []string // tools that were left out, with the reasons
	Starts   int      // number of starts
}

// Client keeps one server running until it is closed.
type Client struct {
	server  Server
	prefix  string
	options Options
	ctx     context.Context
	cancel  context.CancelFunc
	begin   sync.Once
	ended   chan struct{}
	refusal error // why the address does not have the newer transport
	legacy  bool  // the address is one of the transport of 2024-11-05, as found; used by run only

	calls   chan struct{} // one for each call that the server has not answered
	tokens  atomic.Int64
	network network  // of a server at an address
	flights sync.Map // calls that the server has not answered, by their token: *flight

	mu      sync.Mutex
	state   State
	defs    []Definition
	offers  Offers
	session *sdk.ClientSession
	again   func()        // begins another session
	first   chan struct{} // closed after the first attempt to start
	up      chan struct{} // closed while there is a session
}

// New returns a client of a server. It does not start the server.
func New(server Server, o Options) (*Client, error) {
	prefix, err := CleanName(server.Name)
	if err != nil {
		return nil, err
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Log == nil {
		o.Log = func(string, string) {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{
		server: server, prefix: prefix, options: o, ctx: ctx, cancel: cancel, ended: make(chan struct{}),
		calls: make(chan struct{}, maxCalls), first: make(chan struct{}), up: make(chan struct{}),
	}
	return c, nil
}

// Start starts the server in the background, unless that was done before.
func (c *Client) Start() { c.begin.Do(func() { go c.run(c.ctx) }) }

// Has reports whether a tool of that name would be one of this server's.
func (c *Client) Has(tool string) bool {
	prefix, _, ok := strings.Cut(tool, separator)
	return ok && strings.EqualFold(prefix, c.prefix)
}

// Server returns the server as it was given.
func (c *Client) Server() Server { return c.server }

// Wait waits until the first attempt to start the server has ended, whether it succeeded or not. It reports whether
// that was before ctx ended.
func (c *Client) Wait(ctx context.Context) bool {
	select {
	case <-c.first:
		return true
	case <-ctx.Done():
		return false
	}
}

// Tried reports whether the first attempt to start the server has ended.
func (c *Client) Tried() bool {
	select {
	case <-c.first:
		return true
	default:
		return false
	}
}

// State returns the state of the server.
func (c *Client) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state
	s.Problems = slices.Clone(s.Problems)
	return s
}

// Definitions returns the tools that the server listed last, sorted by name, or nil if it has not listed any yet.
// They are kept when the server ends, because it is started again.
func (c *Client) Definitions() []Definition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.defs)
}

// Close ends the server, with all processes that it has started.
func (c *Client) Close() {
	c.cancel()
	c.begin.Do(func() { close(c.ended) })
	<-c.ended
}

// run starts the server again whenever it ends.
func (c *Client) run(ctx context.Context) {
	defer close(c.ended)
	old := false // the server does not answer server/discover
	for wait := time.Duration(0); ; {
		began := time.Now()
		opened, err := c.serve(ctx, old)
		if ctx.Err() != nil {
			return
		}
		if !opened {
			// A server from before server/discover may end at it, or hold its answer back. It is started again at
			// once, and begun with initialize (MCP 2026-07-28, backward compatibility).
			var no *refused
			if c.server.Command == "" && !c.server.SSE {
				// An address without a type (MCP, Streamable HTTP: Backwards Compatibility).
				was := c.legacy
				if c.legacy = !was && errors.As(err, &no) && no.legacy(); c.legacy {
					c.refusal, old = err, true
					continue
				}
				if was && c.refusal != nil { // the first error says more
					err, c.refusal, old = c.refusal, nil, false
				}
			}
			late := errors.Is(err, context.DeadlineExceeded)
			var ended *gone
			program := c.server.Command != "" && errors.As(err, &ended)
			old = old != (program || late)
			if old && !c.Tried() && program != late {
				continue
			}
		}
		c.down(err)
		if time.Since(began) > backAfter || errors.Is(err, errAgain) {
			wait = 0
		}
		wait = min(max(2*wait, minBackoff), maxBackoff)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// errAgain ends a session so that another begins.
var errAgain = errors.New("it is started again")

// down records that the server does not run.
func (c *Client) down(err error) {
	c.mu.Lock()
	if c.session != nil {
		c.up = make(chan struct{})
	}
	c.session, c.again = nil, nil
	c.state.Running, c.state.Error = false, oneLine(err)
	c.started()
	c.mu.Unlock()
	c.options.Changed()
}

// started records that the first attempt has ended; c.mu is held.
func (c *Client) started() {
	if !c.Tried() {
		close(c.first)
	}
}

// serve starts the server and returns when it has ended. It reports whether a session was begun.
func (c *Client) serve(ctx context.Context, old bool) (opened bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	c.state.Starts++
	c.mu.Unlock()

	patience := cmp.Or(c.server.Start, startTimeout)
	if c.server.Command == "" && !old { // a program gets both requests on one connection
		patience = min(patience, 2*discoverPatience)
	}
	starting, stop := context.WithTimeout(ctx, patience)
	defer stop()
	changed := make(chan struct{}, 1)
	connect := c.dial
	if c.server.Command != "" {
		connect = c.startProcess
	}
	link, err := connect()
	if err != nil {
		return false, err
	}
	defer link.Close()
	// The SDK stops waiting for anything once the other end is closed.
	defer context.AfterFunc(starting, func() {
		if errors.Is(context.Cause(starting), context.DeadlineExceeded) || ctx.Err() != nil {
			link.Close()
		}
	})()
	live, end := context.WithCancel(c.ctx)
	session, err := c.open(live, starting, link, changed, old)
	if err != nil {
		end()
		return false, link.why(cmp.Or(context.Cause(starting), err))
	}
	defer func() {
		go func() { // this waits for the calls that are in flight; the link is closed at once
			_ = session.Close()
			end()
		}()
	}()
	again := make(chan struct{})
	begin := sync.OnceFunc(func() { close(again) })
	for {
		if err := c.list(ctx, session); err != nil {
			return true, link.why(err)
		}
		c.publish(session, begin)
		stop() // it has started
		gone := make(chan error, 1)
		go func() { gone <- session.Wait() }()
		select {
		case <-ctx.Done():
			return true, context.Cause(ctx)
		case err := <-gone:
			return true, link.why(err)
		case <-again:
			return true, errAgain
		case <-changed:
		}
		select { // a server that changes its list all the time is listed now and then
		case <-ctx.Done():
			return true, context.Cause(ctx)
		case <-time.After(relistEvery):
		}
		select {
		case <-changed:
		default:
		}
	}
}

// open begins a session with the server. The connection lasts as long as ctx.
func (c *Client) open(ctx, starting context.Context, link *link, changed chan struct{}, old bool) (
	*sdk.ClientSession, error,
) {
	self := &sdk.Implementation{Name: "toolcrib", Version: cmp.Or(c.options.Version, "0")}
	listed := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	client := sdk.NewClient(self, &sdk.ClientOptions{
		Logger: slog.New(slog.DiscardHandler),
		Capabilities: &sdk.ClientCapabilities{Elicitation: &sdk.ElicitationCapabilities{
			Form: &sdk.FormElicitationCapabilities{}, URL: &sdk.URLElicitationCapabilities{},
		}},
		ToolListChangedHandler:   func(context.Context, *sdk.ToolListChangedRequest) { listed() },
		PromptListChangedHandler: func(context.Context, *sdk.PromptListChangedRequest) { listed() },
		ProgressNotificationHandler: func(_ context.Context, q *sdk.ProgressNotificationClientRequest) {
			token, _ := q.Params.ProgressToken.(string)
			if f, ok := c.flights.Load(token); ok {
				f.(*flight).tell(q.Params)
			}
		},
		ElicitationHandler: c.elicitation,
		MultiRoundTrip:     &sdk.MultiRoundTripOptions{Disabled: true}, // see [asker.rounds]
	})
	options := &sdk.ClientSessionOptions{}
	if old {
		options.ProtocolVersion = oldProtocol
	}
	session, err := within(starting, func() (*sdk.ClientSession, error) {
		return client.Connect(ctx, link.transport, options)
	})
	if starting.Err() != nil {
		link.Close()
	}
	return session, err
}

// list asks the server for its tools.
func (c *Client) list(ctx context.Context, session *sdk.ClientSession) error {
	ctx, cancel := context.WithTimeout(ctx, max(listTimeout, c.server.Start))
	defer cancel()
	var all []*sdk.Tool
	var more string
	can := &sdk.ServerCapabilities{}
	if about := session.InitializeResult(); about != nil && about.Capabilities != nil {
		can = about.Capabilities
	}
	if can.Tools != nil {
		params, size := &sdk.ListToolsParams{}, 0
		for range maxPages {
			page, err := within(ctx, func() (*sdk.ListToolsResult, error) { return session.ListTools(ctx, params) })
			if err != nil {
				return fmt.Errorf("its tools cannot be listed: %w", err)
			}
			all = append(all, page.Tools...)
			if page.NextCursor == "" || len(all) > maxTools {
				break
			}
			if size += sizeOf(page.Tools); size > maxMessage {
				more = fmt.Sprintf("it lists more than %d MiB of tools; the others are left out", maxMessage>>20)
				break
			}
			params = &sdk.ListToolsParams{Cursor: page.NextCursor}
		}
	}
	if len(all) > maxTools {
		more = fmt.Sprintf("it lists more than %d tools; the others are left out", maxTools)
		all = all[:maxTools]
	}
	defs, problems := c.server.definitions(c.prefix, all)
	offers, others := c.other(ctx, session, can)
	problems = append(problems, others...)
	if more != "" {
		problems = append(problems, more)
	}
	c.mu.Lock()
	c.defs, c.offers, c.state.Problems = defs, offers, problems
	c.mu.Unlock()
	return nil
}

// within returns the result of do, or returns when ctx ends, because a server that reads nothing can block writes to
// it.
func within[T any](ctx context.Context, do func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := do()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// publish records that the server runs, with the tools that it has listed.
func (c *Client) publish(session *sdk.ClientSession, again func()) {
	c.mu.Lock()
	if c.session == nil {
		close(c.up)
	}
	c.session, c.again = session, again
	c.state.Running, c.state.Error = true, ""
	if about := session.InitializeResult(); about != nil {
		c.state.Protocol = about.ProtocolVersion
		if about.ServerInfo != nil {
			c.state.Server = oneLine(errors.New(about.ServerInfo.Name + " " + about.ServerInfo.Version))
		}
	}
	c.started()
	c.mu.Unlock()
	c.options.Changed()
}

// current returns the current session. It waits a little for a server that is being started.
func (c *Client) current(ctx context.Context) (*sdk.ClientSession, error) {
	c.mu.Lock()
	session, up := c.session, c.up
	c.mu.Unlock()
	if session != nil {
		return session, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	select {
	case <-up:
	case <-c.ended:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil {
		return nil, errors.New(cmp.Or(c.state.Error, "it has not started yet"))
	}
	return c.session, nil
}

// link is the connection to a running server.
type link struct {
	transport sdk.Transport
	close     func()
	// explain returns details about why the server has ended. It may be nil.
	explain func() string
	once    sync.Once
}

// Close ends the connection, and the server if it is a program.
func (l *link) Close() { l.once.Do(l.close) }

// why returns an error that says why a server has ended.
func (l *link) why(err error) error {
	if err == nil {
		err = io.EOF
	}
	text := "it has ended the connection"
	var dial *net.OpError
	var no *refused
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		text = "it cannot be reached: " + dial.Err.Error()
		if dial.Addr != nil { // it may be another server, which issues tokens
			text = fmt.Sprintf("%v cannot be reached: %v", dial.Addr, dial.Err)
		}
	case errors.Is(err, context.DeadlineExceeded):
		text = "it does not answer"
	case errors.As(err, &no):
		text = no.Error()
	case !errors.Is(err, io.EOF) && !errors.Is(err, sdk.ErrConnectionClosed):
		text = err.Error()
	}
	if l.explain != nil {
		l.Close()
		if more := l.explain(); more != "" {
			text += ": " + more
		}
	}
	return &gone{text, err}
}

// gone is the reason why a server no longer runs, in words for people.
type gone struct {
	text  string
	cause error
}

func (g *gone) Error() string { return g.text }
func (g *gone) Unwrap() error { return g.cause }

// oneLine returns an error's text, short enough for a line.
func oneLine(err error) string {
	if err == nil {
		return ""
	}
	return guard.Clip(guard.Clean(strings.Join(strings.Fields(err.Error()), " ")), maxProblemLength)
}
