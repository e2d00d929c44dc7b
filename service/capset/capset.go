// Package capset keeps the tools of a data folder that call capabilities of the bus: those that are there now. It
// makes their calls, as whom a run acts for.
package capset

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/nodes"
	"github.com/toolcrib/toolcrib/tool/bound"
)

// Set is the tools of a data folder under a configuration. It is safe for use by several goroutines.
type Set struct {
	env   *env.Env
	nodes *nodes.Nodes
	*state
}

// state is shared under all configurations of a data folder.
type state struct {
	renew func() // gives the gates in use the tools of now
	find  time.Duration

	dialing sync.Mutex // one at a time

	mu      sync.Mutex
	current *Set            // whose configuration is in effect
	dialed  *nodes.Instance // of a process that is not a server; nil before it is needed
	closed  bool
	made    map[string]made          // tools, by their names
	serving map[string]*bus.Exchange // calls that are served, by their runs or the keys of these
	watches sync.WaitGroup
	stop    chan struct{}
	watched chan struct{} // closed by the first Watch
	since   time.Time     // of that
}

// made is a tool, and what it was made of. A gate recognizes a tool that has not changed.
type made struct {
	of   []byte
	tool toolcrib.Tool
}

// New returns the tools of a data folder. renew is called when they have changed.
func New(e *env.Env, n *nodes.Nodes, renew func()) *Set {
	s := &Set{e, n, &state{
		renew: renew, find: findTime, made: map[string]made{}, serving: map[string]*bus.Exchange{}, stop: make(chan struct{}),
		watched: make(chan struct{}),
	}}
	s.current = s
	return s
}

// Under returns the tools under another configuration, which [Set.Reload] puts into effect.
func (s *Set) Under(e *env.Env, n *nodes.Nodes) *Set { return &Set{e, n, s.state} }

// Renew gives the gates in use the tools of now, as is done soon after each change.
func (s *Set) Renew() { s.renew() }

// Reload puts the configuration into effect.
func (s *Set) Reload() {
	s.mu.Lock()
	s.current = s
	s.mu.Unlock()
	s.renew()
}

// Close ends the calls of a process that is not a server.
func (s *Set) Close() {
	s.mu.Lock()
	dialed := s.dialed
	if !s.closed {
		close(s.stop)
	}
	s.closed, s.dialed = true, nil
	s.mu.Unlock()
	s.watches.Wait()
	if dialed != nil {
		dialed.Close()
	}
}

// instance returns the node of this process, or nil.
func (s *Set) instance() *nodes.Instance {
	if i := s.nodes.Server(); i != nil {
		return i
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dialed
}

// dials reports whether this is a process that can still connect to the bus.
func (s *Set) dials() bool {
	return s.env.Driver != env.DriverServer && !s.env.Config.Bus.URL.IsEmpty() && s.instance() == nil
}

// How long a process that is not a server waits for a trusted node, and for the offers of one that it has heard from or
// for the tools that it is to call.
const (
	findTime  = 700 * time.Millisecond
	offerTime = 2 * time.Second
)

// Need connects a process that is not a server to the bus of the configuration, unless it is, and waits until it has
// heard what each trusted node offers. It waits longer for tools, if these are some of the bus. Without bus.url it does
// nothing.
func (s *Set) Need(ctx context.Context, tools ...string) error {
	if !s.dials() {
		return nil
	}
	s.dialing.Lock()
	defer s.dialing.Unlock()
	if s.instance() != nil {
		return nil
	}
	needed := s.named(tools)
	trusted, err := s.nodes.Register(ctx)
	if err != nil {
		return err
	}
	i, err := s.nodes.Dial(ctx)
	if err != nil {
		return err
	}
	for began := time.Now(); ; {
		changed, peers, known := i.Changed(), i.Peers(), i.Known()
		var most time.Duration
		for _, e := range trusted {
			at := slices.IndexFunc(peers, func(p bus.Peer) bool { return p.Node == e.Key })
			switch {
			case e.Trust.Rank() == 0:
			case at < 0:
				most = max(most, s.find)
			case peers[at].Capabilities == 0:
				most = max(most, offerTime)
			}
		}
		if most > 0 && lacks(needed, known) {
			most = offerTime
		}
		left := most - time.Since(began)
		if left <= 0 || ctx.Err() != nil {
			break
		}
		select {
		case <-changed:
		case <-time.After(left):
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		i.Close()
		return errClosed
	}
	s.dialed = i
	s.mu.Unlock()
	s.Watch(i)
	return nil
}

// hearTime bounds how long a server that has just started waits for what other nodes offer.
const hearTime = 2 * time.Second

// NeedTools is [Set.Need] for a run that is resumed and could call these tools. A server that has just started waits
// until it has heard of the nodes that offer them.
func (s *Set) NeedTools(ctx context.Context, names []string) error {
	all := s.named(names)
	if len(all) == 0 || s.env.Config.Bus.URL.IsEmpty() {
		return nil
	}
	if s.env.Driver != env.DriverServer {
		return s.Need(ctx, names...)
	}
	ctx, cancel := context.WithTimeout(ctx, hearTime)
	defer cancel()
	select {
	case <-s.watched:
	case <-ctx.Done():
		return nil
	}
	ctx, cancel = context.WithDeadline(ctx, s.since.Add(hearTime))
	defer cancel()
	for i := s.instance(); i != nil && ctx.Err() == nil; {
		changed, known := i.Changed(), i.Known()
		if !lacks(all, known) {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	s.renew()
	return nil
}

// named returns the tools of the bus with these names.
func (s *Set) named(names []string) []option {
	return slices.DeleteFunc(s.options(), func(o option) bool { return !slices.Contains(names, o.Name) })
}

// lacks reports whether no node offers the capability of one of these tools.
func lacks(tools []option, known []bus.Known) bool {
	return slices.ContainsFunc(tools, func(o option) bool { _, ok := o.Source(known); return !ok })
}

var errClosed = toolcrib.Errorf(toolcrib.CodeOverloaded, "toolcrib is ending")

// Watch has the gates in use follow what an instance knows, until [Set.Close].
func (s *Set) Watch(i *nodes.Instance) {
	if s.since.IsZero() {
		s.since = time.Now()
		close(s.watched)
	}
	s.renew()
	s.watches.Go(func() {
		was := s.names(i)
		for {
			changed := i.Changed()
			if now := s.names(i); !slices.Equal(now, was) {
				was = now
				s.renew()
			}
			select {
			case <-changed:
			case <-s.stop:
				return
			}
		}
	})
}

// names returns the tools that there are, with where their capabilities are.
func (s *Set) names(i *nodes.Instance) (names []string) {
	known := i.Known()
	for _, o := range s.options() {
		if source, ok := o.Source(known); ok {
			names = append(names, o.Name+" "+source)
		}
	}
	return names
}

// option is a tool of the configuration, and why it cannot be used.
type option struct {
	bound.Options
	problem error // may be nil
}

// options returns the tools of the configuration in effect. Those of tools.bound replace predefined ones.
func (s *Set) options() (all []option) {
	s.mu.Lock()
	e := s.current.env
	s.mu.Unlock()
	set := e.Config.Tools.Bound
	for _, o := range bound.Predefined(e.Config.Tools.DefaultSet) {
		if _, replaced := set[o.Name]; !replaced {
			all = append(all, option{Options: o})
		}
	}
	for _, name := range e.Config.BoundNames() {
		o := option{Options: optionsOf(name, set[name])}
		if o.problem = fill(e, &o.Options, set[name]); o.problem != nil {
			o.problem = fmt.Errorf("tools.bound.%s: %w", name, o.problem)
		}
		all = append(all, o)
	}
	return all
}

func optionsOf(name string, b config.Bound) bound.Options {
	o := bound.Options{
		Name: name, Description: cmp.Or(b.Description, "Call "+b.Capability+"."), Parameters: json.RawMessage(b.Parameters),
		Effect: toolcrib.Effect(b.Effect), Enabled: true, Trusted: !b.Untrusted,
	}
	if b.Timeout != nil {
		o.Timeout = b.Timeout.Std()
	}
	return o
}

// fill adds what must be read. The form of most of it was checked with the configuration.
func fill(e *env.Env, o *bound.Options, b config.Bound) (err error) {
	if o.Capability, err = bus.ParseName(b.Capability); err != nil {
		return err
	}
	if len(b.Params) > 0 {
		if err := json.Unmarshal([]byte(b.Params), &o.Params); err != nil {
			return err
		}
	}
	if o.Token, err = b.Token.Resolve(e.Resolver()); err != nil || o.Token == "" {
		return err
	}
	o.Issuer, err = nodes.IssuerOf(o.Token)
	return err
}

// Tools returns the tools whose capabilities can be called now.
func (s *Set) Tools() []toolcrib.Tool {
	i := s.instance()
	if i == nil {
		return nil
	}
	known := i.Known()
	all := s.options()
	var tools []toolcrib.Tool
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range all {
		err := o.problem
		source, ok := o.Source(known)
		if err == nil && !ok {
			continue
		}
		was := s.made[o.Name]
		if err == nil {
			source = s.nodes.TitleOf(bus.Key(source)) + "/" + o.Capability.String()
			was, err = was.remade(s, &o.Options, source)
		}
		if err != nil {
			s.env.Once(s.env.Notice)(err.Error())
			continue
		}
		s.made[o.Name] = was
		tools = append(tools, was.tool)
	}
	return tools
}

// remade returns the tool of these options, which is the same if they are.
func (m made) remade(s *Set, o *bound.Options, source string) (made, error) {
	of, err := json.Marshal([]any{o, source})
	if err != nil || bytes.Equal(m.of, of) {
		return m, err
	}
	tool, err := bound.New(s, *o, source)
	return made{of, tool}, err
}

// Absent returns the tools of the configuration that cannot be called now. Without bus.url those that are predefined
// are not among them.
func (s *Set) Absent() (absent []gate.Absent) {
	known, i := []bus.Known(nil), s.instance()
	if i != nil {
		known = i.Known()
	}
	for _, o := range s.options() {
		why := "no node offers " + o.Capability.String()
		if s.env.Config.Bus.URL.IsEmpty() {
			if _, own := s.env.Config.Tools.Bound[o.Name]; !own {
				continue
			}
			why += ": bus.url is not set"
		}
		if _, ok := o.Source(known); ok && i != nil && o.problem == nil {
			continue
		}
		if o.problem != nil {
			why = "it cannot be used as it is configured; `toolcrib doctor` says why" // the problem may name files
		}
		if tool, err := bound.New(s, o.Options, "*/"+o.Capability.String()); err == nil {
			absent = append(absent, gate.Absent{Tool: tool, Why: why})
		}
	}
	return absent
}

// Missed returns the tools that [Set.Need] could find.
func (s *Set) Missed() (tools []toolcrib.Tool) {
	if !s.dials() {
		return nil
	}
	for _, a := range s.Absent() {
		tools = append(tools, a.Tool)
	}
	return tools
}

// ToolOf returns the tool that makes calls of a capability, and the arguments with which it sends the body of a call.
// The error has the code not_found or bad_request.
func (s *Set) ToolOf(
	name bus.Name, params, input map[string]json.RawMessage,
) (tool string, arguments json.RawMessage, err error) {
	for _, o := range s.options() {
		if !o.Capability.Serves(name) || o.problem != nil {
			continue
		}
		tool = o.Name
		if raw, ok := o.Arguments(params, input); ok {
			return tool, raw, nil
		}
	}
	if tool != "" {
		return "", nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "the tool %s, for %s, does not send such a body", tool, name)
	}
	return "", nil, toolcrib.Errorf(toolcrib.CodeNotFound, "no tool calls %s; define one in tools.bound", name)
}

// Serve records a call that a run serves, until the function that it returns is called. What the run does on the bus is
// done for that call. of is the ID of the run, or its key (Once of its request) before it has begun.
func (s *Set) Serve(of string, x *bus.Exchange) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serving[of] = x
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.serving[of] == x {
			delete(s.serving, of)
		}
	}
}

// served returns the call that a run serves, itself or through the runs above it, nil if it serves none; and the run at
// the top.
func (s *Set) served(ctx context.Context, run toolcrib.RunID) (*bus.Exchange, toolcrib.RunID, error) {
	if run == "" {
		return nil, "", nil
	}
	rec, err := s.env.Store.Run(ctx, run)
	if err == nil {
		rec, err = s.env.Top(ctx, rec)
	}
	if err != nil {
		return nil, "", err
	}
	s.mu.Lock()
	x := s.serving[string(rec.ID)]
	if x == nil && rec.Once != "" {
		x = s.serving[rec.Once]
	}
	s.mu.Unlock()
	if x == nil && standing.Node(rec.User) {
		return nil, "", toolcrib.Errorf(toolcrib.CodeUnauthorized,
			"the call of %s that this run serves is over, so the run can call no other node for it", rec.User)
	}
	return x, rec.ID, nil
}

// open starts a call for a run.
func (s *Set) open(ctx context.Context, run toolcrib.RunID, r bus.Request) (*bus.Exchange, error) {
	if err := s.Need(ctx); err != nil {
		return nil, err
	}
	i := s.instance()
	if i == nil {
		return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "there are no other nodes: bus.url is not set")
	}
	x, top, err := s.served(ctx, run)
	if err != nil {
		return nil, err
	}
	r.From.Run = string(run)
	if r.Token != "" {
		if err := i.ToIssuer(ctx, &r); err != nil {
			return nil, err
		}
	}
	if r.Via = x; x != nil {
		r.From.User, r.From.Trust = "", "" // the way has whom it acts for
	} else if run != "" {
		r.Trace = traceOf(top, run, r.From.Call)
	}
	return i.Open(ctx, r)
}

// Open starts a call of this node itself for a run, such as one of a model.
func (s *Set) Open(ctx context.Context, run toolcrib.RunID, r bus.Request) (*bus.Exchange, error) {
	return s.open(ctx, run, r)
}

// traceOf returns the traceparent of a call. All calls of a run tree are one trace, which is that of telemetry.
func traceOf(top, run toolcrib.RunID, call string) string {
	of, one := sha256.Sum256([]byte("trace\x00"+top)), sha256.Sum256([]byte("span\x00"+string(run)+"\x00call\x00"+call))
	return "00-" + hex.EncodeToString(of[:16]) + "-" + hex.EncodeToString(one[:8]) + "-01"
}

// Known implements [bound.Node].
func (s *Set) Known() []bus.Known {
	if i := s.instance(); i != nil {
		return i.Known()
	}
	return nil
}

// maxFrames bounds the frames of a call that become its result, in bytes.
const maxFrames = 1 << 20

// Call implements [bound.Node]. If the capability has no result, that is {frames}, the data of its frames.
func (s *Set) Call(ctx context.Context, call *toolcrib.Call, r bus.Request) (json.RawMessage, error) {
	who := &call.Principal
	r.From = bus.Hop{User: who.User, Trust: who.Trust, Call: call.ID}
	if standing.Local(who.User) || who.Admin { // who could call as the node itself
		r.From.Trust = toolcrib.TrustAnchor
	}
	if until, ok := ctx.Deadline(); ok { // the other node ends first, and says what it waits for
		r.Timeout = min(bus.MaxTimeout, max(time.Until(until)*9/10, time.Millisecond))
	}
	x, err := s.open(ctx, call.Run, r)
	if err != nil {
		return nil, err
	}
	defer x.Cancel()
	var frames []json.RawMessage
	waits, size := "", 0
	for {
		f, err := x.Recv(ctx)
		switch {
		case err == nil && f.Event == "confirmation_required":
			waits = " (it waits for an approval at the other node)"
			if call.Progress != nil {
				call.Progress("waits for an approval at the other node", -1)
			}
		case err == nil && size+len(f.Data) <= maxFrames:
			frames, size = append(frames, f.Data), size+len(f.Data)
		case err == nil:
		case errors.Is(err, io.EOF):
			result, err := x.Result(ctx)
			if err == nil && string(result) == "null" && len(frames) > 0 {
				return json.Marshal(map[string]any{"frames": frames})
			}
			return result, err
		case toolcrib.CodeOf(err) == toolcrib.CodeTimeout:
			return nil, toolcrib.Errorf(toolcrib.CodeTimeout, "%s%s", err, waits)
		default:
			return nil, err
		}
	}
}
