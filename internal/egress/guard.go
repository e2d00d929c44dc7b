// Package egress makes the connections of tools to hosts that a model names: it checks the hosts and the
// IP addresses, counts what a session transfers, and is an HTTP proxy for the commands of exec_shell.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/hosts"
)

// DialTimeout bounds how long it takes to connect.
const DialTimeout = 10 * time.Second

// Guard decides which hosts can be reached. Regardless of the name, the IP address of the connection
// decides whether it is made. With the zero value nothing can be reached.
type Guard struct {
	// Key is the key of Allow in the configuration, for messages. If "", Allow comes from a call.
	Key         string
	Allow, Deny hosts.List // a host on both lists is denied
	// AllowPrivate also permits connections to loopback and private networks, for hosts that Allow
	// lists other than by *.
	AllowPrivate bool
	Resolver     *net.Resolver // if nil, that of the system
}

// ErrUnnamed is the error for a host that the call, from which the list comes, does not name.
var ErrUnnamed = errors.New("the call does not name the host")

func denied(format string, args ...any) error {
	return toolcrib.Failf(toolcrib.PermissionDenied, format, args...)
}

// Check returns an error if a URL of [hosts.Parse] must not be reached. private reports whether a
// connection to it may go to a private address.
func (g *Guard) Check(u *url.URL) (private bool, err error) {
	allowed, named := g.Allow.Allows(u)
	switch {
	case g.Deny.Denies(u):
		return false, denied("%s is in tools.web.deny", u.Host)
	case !allowed && g.Key == "":
		err := toolcrib.Failf(toolcrib.PermissionDenied, "%s is not in the argument network of the call", u.Host)
		err.Err = ErrUnnamed
		return false, err
	case !allowed && g.Allow.Narrow(u): // the whole host would be more than requested
		return false, denied("%s has %s, but not this address; a person can add %q to the list", g.Key, u.Host,
			(&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String())
	case !allowed && g.Allow.Empty():
		path := strings.Split(g.Key, ".")
		return false, denied("%s is not in %s; a person can add it to the configuration: %s: [%q]%s", u.Host, g.Key,
			strings.Join(path, ": {"), u.Host, strings.Repeat("}", len(path)-1))
	case !allowed:
		return false, denied("%s is not in %s, where a person can add %q to the list", u.Host, g.Key, u.Host)
	}
	private = named && g.AllowPrivate
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		return private, g.reach(u.Host, hosts.ReachOf(addr), private)
	}
	return private, nil
}

// reach returns an error if a host must not be reached at an address of this kind.
func (g *Guard) reach(host string, r hosts.Reach, private bool) error {
	switch {
	case r == hosts.Public, r == hosts.Private && private:
		return nil
	case r == hosts.Private && g.Key == "":
		return denied("%s is at a private address; that needs tools.web.allow_private", host)
	case r == hosts.Private:
		return denied("%s is at a private address; that needs tools.web.allow_private, and the host itself in %s", host, g.Key)
	}
	return denied("%s is at an address that is never connected to", host)
}

// Dialer returns a dialer for one URL. The check, also of Deny, applies to the IP address that the socket
// is about to connect to.
func (g *Guard) Dialer(u *url.URL, private bool) *net.Dialer {
	return &net.Dialer{
		Timeout: DialTimeout, Resolver: g.Resolver,
		ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil || network != "tcp4" && network != "tcp6" {
				return fmt.Errorf("egress: a connection by %s to %q", network, address)
			}
			at := *u
			if at.Host = netip.AddrPortFrom(to.Addr().Unmap(), to.Port()).String(); g.Deny.Denies(&at) {
				return denied("%s is at an address that is in tools.web.deny", u.Host)
			}
			return g.reach(u.Host, hosts.ReachOf(to.Addr()), private)
		},
	}
}
