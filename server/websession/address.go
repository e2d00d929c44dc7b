package websession

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/internal/config"
)

// maxForwarded bounds what is read of X-Forwarded-For, from its end, in bytes.
const maxForwarded = 2048

// Address returns the address of a request's client, without the port: the peer of the connection or, if that is one of
// server.trusted_proxies, the last address of X-Forwarded-For that is none of them. For IPv6 it is the network, because
// one customer has a whole /64.
func (s *Sessions) Address(r *http.Request) string {
	peer, ok := hop(r.RemoteAddr)
	if !ok {
		return r.RemoteAddr
	}
	if proxies := s.service().Env.Config.Server.TrustedProxies; len(proxies) > 0 {
		trusted := make([]netip.Prefix, len(proxies))
		for i, text := range proxies {
			trusted[i], _ = config.ProxyNetwork(text) // checked with the configuration
		}
		forwarded := strings.Join(r.Header.Values("X-Forwarded-For"), ",")
		if more := len(forwarded) - maxForwarded; more > 0 {
			_, forwarded, _ = strings.Cut(forwarded[more:], ",")
		}
		peer = clientOf(peer, forwarded, trusted)
	}
	if peer.Is6() {
		network, _ := peer.Prefix(64) // valid for any IPv6 address
		return network.String()
	}
	return peer.String()
}

// clientOf follows the proxies from a peer to the client that they name. Each proxy adds the address that it was
// reached from at the end, so that what is before the first address that is not trusted is the client's own word. What
// is not an address ends the way at the proxy that passed it on.
func clientOf(at netip.Addr, forwarded string, trusted []netip.Prefix) netip.Addr {
	through := func(p netip.Prefix) bool { return p.Contains(at) }
	for i := len(forwarded); i >= 0 && slices.ContainsFunc(trusted, through); {
		forwarded = forwarded[:i]
		i = strings.LastIndexByte(forwarded, ',')
		before, ok := hop(forwarded[i+1:])
		if !ok {
			break
		}
		at = before
	}
	return at
}

// hop returns an address that may have a port, brackets and a zone.
func hop(text string) (netip.Addr, bool) {
	text = strings.Trim(text, " \t")
	ip, err := netip.ParseAddr(text)
	if inner, ok := strings.CutPrefix(text, "["); ok && err != nil {
		if inner, ok = strings.CutSuffix(inner, "]"); ok {
			ip, err = netip.ParseAddr(inner)
		}
	}
	if err != nil {
		var withPort netip.AddrPort
		withPort, err = netip.ParseAddrPort(text)
		ip = withPort.Addr()
	}
	return ip.Unmap().WithZone(""), err == nil
}
