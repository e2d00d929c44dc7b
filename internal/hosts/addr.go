package hosts

import (
	"net/netip"
	"strings"

	"code.dny.dev/ssrf"
)

// metadata are addresses of services that give credentials to any program on a machine. They are in
// ranges that would otherwise be allowed, some only with allow_private.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("168.63.129.16/32"),       // Azure
	netip.MustParsePrefix("100.100.100.200/32"),     // Alibaba Cloud
	netip.MustParsePrefix("192.0.0.192/32"),         // Oracle Cloud
	netip.MustParsePrefix("fd00:ec2::/32"),          // AWS
	netip.MustParsePrefix("fd20:ce::254/128"),       // Google Cloud
	netip.MustParsePrefix("fd00:42::42/128"),        // Scaleway
	netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), // Oracle Cloud
}

// private are the ranges that allow_private allows: loopback, private networks, and those of
// carriers.
var private = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("::1/128"),
	netip.MustParsePrefix("fc00::/7"),
}

// nat64 is the prefix of IPv4 addresses in networks with only IPv6 (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// public refuses all addresses that are not globally reachable according to the registries of IANA.
var public = ssrf.New(ssrf.WithAnyPort())

// Reach is the class of an IP address.
type Reach int

const (
	Never   Reach = iota // link-local, metadata, multicast, tunnels, reserved
	Private              // loopback and private networks
	Public
)

// ReachOf returns the class of the address of a connection. An IPv4 address in an IPv6 one (mapped,
// NAT64) is classified as itself, but by NAT64 only public ones are reachable. 6to4, Teredo and
// IPv4-compatible addresses are Never.
func ReachOf(addr netip.Addr) Reach {
	if !addr.IsValid() || addr.Zone() != "" {
		return Never
	}
	addr = addr.Unmap()
	if nat64.Contains(addr) {
		b := addr.As16()
		if ReachOf(netip.AddrFrom4([4]byte(b[12:]))) == Public {
			return Public
		}
		return Never
	}
	if within(metadata, addr) {
		return Never
	}
	if within(private, addr) {
		return Private
	}
	if public.SafeAddr(addr) != nil {
		return Never
	}
	return Public
}

// Loopback reports whether a host, as it is written, is this machine: localhost, or a loopback address without
// brackets.
func Loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.Unmap().IsLoopback()
}

func within(prefixes []netip.Prefix, addr netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
