package shell

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/egress"
	"github.com/toolcrib/toolcrib/internal/hosts"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/tool/shell/internal/line"
)

// networkKey is the key of the hosts that commands may reach.
const networkKey = "tools.shell.network"

// maxAskedHosts bounds the hosts that one call names.
const maxAskedHosts = 20

// Network is the network of commands that may write the workspace (tools.shell.network). They reach hosts only
// through a proxy, by HTTP and CONNECT, which needs bubblewrap. The zero value is no network.
type Network struct {
	Ask   bool     // calls may name hosts; a person is asked about each, once for a run
	Hosts []string // hosts, host:port, *.host, or * for any public host, which are reached without a question
	Deny  []string // hosts that are never reached
	// AllowPrivate also permits connections to loopback and private networks, for hosts that are named.
	AllowPrivate bool
	Budget       egress.Budget // what all calls of a session may use

	resolver *net.Resolver
}

// on reports whether there is a network.
func (n *Network) on() bool { return n.Ask || len(n.Hosts) > 0 }

func (n *Network) check() error {
	for _, list := range [][]string{n.Hosts, n.Deny} {
		if _, err := hosts.NewList(list); err != nil {
			return fmt.Errorf("shell: network: %w", err)
		}
	}
	return nil
}

// guard returns the guard for the hosts that the configuration lists or, if a person is asked about hosts, for
// those that a call names.
func (n *Network) guard(asked []string) *egress.Guard {
	g := &egress.Guard{Key: networkKey, AllowPrivate: n.AllowPrivate, Resolver: n.resolver}
	list := n.Hosts
	if n.Ask {
		g.Key = ""
	}
	if n.Ask || len(asked) > 0 {
		list = asked
	}
	g.Allow, _ = hosts.NewList(list) // all were checked
	g.Deny, _ = hosts.NewList(n.Deny)
	return g
}

// reaches returns the hosts that a call names, in canonical form. It refuses those that it may not name.
func (s *shell) reaches(named []string) (all []string, err error) {
	n := &s.options.Network
	switch {
	case len(named) == 0:
		return nil, nil
	case !n.on() || s.options.Elsewhere:
		return nil, toolcrib.Failf(toolcrib.PermissionDenied, "commands have no network here; a person can allow hosts by "+
			"tools: {shell: {network: [%s]}}, or network: ask", strings.Join(named, ", "))
	case len(named) > maxAskedHosts:
		return nil, toolcrib.Failf(toolcrib.InvalidArguments, "/network: at most %d hosts", maxAskedHosts)
	case !s.proxies():
		return nil, refuse("commands have no network here: it needs bubblewrap, which is not installed or cannot be used")
	}
	for _, name := range named {
		u, err := parseHost(name)
		if err != nil || u.Path != "/" || u.RawQuery != "" || strings.ContainsAny(name, "/?#") {
			return nil, toolcrib.Failf(toolcrib.InvalidArguments, "/network: %s is not a host or host:port", strconv.Quote(name))
		}
		if !slices.Contains(all, u.Host) {
			all = append(all, u.Host)
		}
	}
	named = nil
	if n.Ask {
		named = all
	}
	guard := n.guard(named)
	for _, name := range all {
		u, _ := parseHost(name) // it was parsed above
		if _, err := guard.Check(u); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func parseHost(name string) (*url.URL, error) {
	if strings.HasSuffix(name, ":80") {
		return hosts.Parse("http://" + name)
	}
	return hosts.Parse("https://" + name)
}

// proxies reports whether commands can have a network that only the proxy reaches.
func (s *shell) proxies() bool { return s.report().Helper && s.report().Bubblewrap != "" }

// connects returns the targets and the concerns of a call that names hosts.
func (s *shell) connects(named []string) (targets []toolcrib.Target, concerns []toolcrib.Concern) {
	for _, name := range named {
		targets = append(targets, toolcrib.Target{Kind: "host", Name: name, Write: true})
		if s.options.Network.Ask {
			concerns = append(concerns, toolcrib.Concern{
				Reason: toolcrib.ReasonNeedsConfirmation, Why: "reaches " + name, Run: true,
				Instead: "A person can allow the host by tools.shell.network.",
			})
		}
	}
	return targets, concerns
}

// reachable returns the hosts that a call can reach: those that it names, or those of the configuration.
func (s *shell) reachable(p *plan) []string {
	switch {
	case !p.writes() || !s.proxies() || s.options.Elsewhere:
		return nil
	case len(p.reach) > 0 || s.options.Network.Ask:
		return p.reach
	}
	return s.options.Network.Hosts
}

// proxy returns the proxy of a call that is about to run, or nil if it has no network.
func (s *shell) proxy(call toolcrib.Call, p *plan) *egress.Proxy {
	if !p.writes() || !s.options.Network.on() || !s.proxies() {
		return nil
	}
	return &egress.Proxy{
		Guard: s.options.Network.guard(p.reach), Budget: &s.options.Network.Budget, Call: call, OnReceived: p.shared.receive,
	}
}

const noNetwork = "No network."

// network says which hosts a call reaches.
func (s *shell) network(p *plan) string {
	list := s.reachable(p)
	switch {
	case s.options.open:
		return "The network is open."
	case len(list) == 0:
		return noNetwork
	case len(list) > maxAskedHosts:
		return fmt.Sprintf("Network: only the %d hosts of %s, through a proxy.", len(list), networkKey)
	}
	return "Network: only " + strings.Join(list, ", ") + ", through a proxy."
}

// maxShownHosts bounds the hosts that a result names.
const maxShownHosts = 10

// ran is the outcome of a call.
type ran struct {
	result
	stopped     bool
	unreachable bool // whether a program tried to reach more than the loopback
	refused     bool // whether one tried to connect to a port of the loopback on which nothing listened
}

var (
	// deniedTransport matches the message of a git that had no network.
	deniedTransport = lazyregexp.New(`transport '[a-z+]+' not allowed`)
	// saysRefused matches output about a connection that failed.
	saysRefused = lazyregexp.New(`(?i)refused|connect`)
)

// connected adds to a result what became of the network of its call.
func (s *shell) connected(call toolcrib.Call, p *plan, r *ran) {
	failed, output := r.ExitCode != 0 || r.stopped, r.Stdout+r.Stderr
	// A program may try ports on purpose, as tests do, and say nothing of it.
	refusedHere := r.refused && (output == "" || saysRefused.MatchString(output))
	var reached, refused, again []string
	why := ""
	if p.proxy != nil {
		for _, one := range p.proxy.Records() {
			if one.Connections > 0 {
				reached = append(reached, fmt.Sprintf("%s (%d bytes sent, %d received)", one.Host, one.Sent, one.Received))
			}
			if one.Refused != nil {
				refused, why = append(refused, one.Host), one.Refused.Message
			}
			if one.Refused != nil && errors.Is(one.Refused, egress.ErrUnnamed) {
				again = append(again, strconv.Quote(strings.TrimSuffix(strings.TrimSuffix(one.Host, ":443"), ":80")))
			}
		}
	}
	if call.Notice != nil && len(reached)+len(refused) > 0 {
		text := "exec_shell"
		if len(reached) > 0 {
			text += " reached " + shorten(reached)
		}
		if len(refused) > 0 {
			text += " was refused " + shorten(refused)
		}
		call.Notice(toolcrib.Notice{Code: "network", Message: text})
	}
	if failed && !r.stopped && p.Sandbox() == line.ReadsWorkspace && r.Warning == "" {
		r.hint(s.report().readOnlyHint(deniedWrite.MatchString(output), refusedHere))
	}
	switch {
	case !failed:
	case len(again) > 0:
		r.hint("The network refused " + shorten(refused) + ". To reach that, call again with network: [" +
			strings.Join(again[:min(len(again), maxShownHosts)], ", ") + "], which a person must approve.")
	case len(refused) > 0:
		r.hint("The network refused " + shorten(refused) + ": " + why + ".")
	case refusedHere && s.sharesLoopback(call, p):
		r.hint("Nothing listens where it tried to connect on the loopback interface, which is that of this run: " +
			"only servers that calls of the run with write: true have started are reached there, none of the machine.")
	case refusedHere && (p.writes() || !s.report().Joins):
		r.hint("Nothing listens where it tried to connect on the loopback interface, which is its own: " +
			"no other server of the machine is reached there.")
	case !r.unreachable && !deniedTransport.MatchString(output):
	case p.proxy != nil:
		r.hint("It tried to reach the network without the proxy that HTTP_PROXY names, which is the only way.")
	case s.options.Network.on() && s.proxies():
		r.hint("It tried to reach the network, which it did not have: call again with network: [HOST, …].")
	default:
		r.hint("It tried to reach the network, which commands do not have here (" + networkKey + ").")
	}
}

func (r *result) hint(text string) { r.Hint = strings.TrimSpace(r.Hint + " " + text) }

// shorten joins names, of many only the first.
func shorten(names []string) string {
	text := strings.Join(names[:min(len(names), maxShownHosts)], ", ")
	if more := len(names) - maxShownHosts; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// sources returns the hosts that the output of a command may have data from: those that its own proxy has received data
// from, or else those of all commands that share its loopback interface.
func (p *plan) sources() string {
	var own []string
	if p.proxy != nil {
		for _, one := range p.proxy.Records() {
			if one.Received > 0 {
				own = append(own, one.Host)
			}
		}
	}
	return cmp.Or(shorten(own), p.shared.sources())
}
