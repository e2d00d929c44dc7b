// Package hosts decides which web addresses a program may access: it parses URLs strictly, compares
// them with lists, and classifies IP addresses. It opens no connections.
package hosts

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// MaxURL bounds a URL, in bytes.
const MaxURL = 8192

// names maps a host as browsers do: full-width and circled digits, capitals and other dots are
// replaced before anything is compared.
var names = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(false), idna.Transitional(false))

const digits = "0123456789"

// isName reports whether every label of a host has 1 to 63 lowercase letters, digits, _ and -.
func isName(host string) bool {
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz_-"+digits) != "" {
			return false
		}
	}
	return len(host) <= 253
}

// isNumber reports whether a label is a decimal or hexadecimal number.
func isNumber(label string) bool {
	hex, isHex := strings.CutPrefix(label, "0x")
	return strings.Trim(label, digits) == "" || isHex && strings.Trim(hex, "abcdef"+digits) == ""
}

// Parse parses a URL of http or https, and refuses any spelling that programs could interpret
// differently. The host of the result is a name in lowercase ASCII, or a canonical IP address; a
// default port and the fragment are left out. Errors are for models, and do not contain the URL.
func Parse(text string) (*url.URL, error) {
	if len(text) > MaxURL {
		return nil, fmt.Errorf("the URL has more than %d bytes", MaxURL)
	}
	if strings.ContainsFunc(text, func(r rune) bool {
		return r <= ' ' || r == 0x7F || r == '\\' || r == utf8.RuneError
	}) {
		return nil, errors.New("the URL has a space, a control character, a backslash or invalid UTF-8")
	}
	scheme, rest, found := strings.Cut(text, "://")
	scheme = strings.ToLower(scheme)
	if !found || scheme != "http" && scheme != "https" {
		return nil, errors.New("the URL must begin with http:// or https://")
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	if strings.Contains(authority, "@") {
		return nil, errors.New("the URL has a user name or password")
	}
	host, port, err := splitPort(authority)
	if err != nil {
		return nil, err
	}
	if host, err = Name(host); err != nil {
		return nil, err
	}
	u, err := url.Parse(scheme + "://host.invalid" + tail) // the host was parsed above
	if err != nil {
		return nil, errors.New("the URL has a path or query that cannot be read")
	}
	u.Host, u.Fragment, u.RawFragment = join(host, port, scheme), "", ""
	if u.Path == "" {
		u.Path = "/"
	}
	return u, nil
}

// splitPort splits an authority without a user; the port may be "".
func splitPort(authority string) (host, port string, err error) {
	bad := errors.New("the URL has a port that is not a number from 1 to 65535")
	host = authority
	if i := strings.LastIndexByte(authority, ':'); i > strings.LastIndexByte(authority, ']') {
		host, port = authority[:i], authority[i+1:]
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
			return "", "", bad
		}
	}
	return host, port, nil
}

// Name returns the canonical form of a host: an IP address without brackets, or a name. A numeric
// host in another form than a.b.c.d is an error.
func Name(text string) (string, error) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		inner, closed := strings.CutSuffix(inner, "]")
		addr, err := netip.ParseAddr(inner)
		if !closed || err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", errors.New("the host in brackets is not an IPv6 address without a zone")
		}
		return addr.Unmap().String(), nil
	}
	switch {
	case text == "":
		return "", errors.New("the URL has no host")
	case strings.ContainsAny(text, "%[]:"):
		return "", errors.New("the host has an escape, a bracket or a second colon")
	}
	host, err := names.ToASCII(text)
	host = strings.TrimSuffix(host, ".")
	again, unstable := names.ToASCII(host)
	if err != nil || unstable != nil || again != host || !isName(host) {
		return "", errors.New("the host is not a valid name")
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.String(), nil
	}
	if isNumber(host[strings.LastIndexByte(host, '.')+1:]) {
		return "", errors.New("the host is a number, but not an IPv4 address in the form a.b.c.d")
	}
	return host, nil
}

// join returns a host with a port, which is left out if it is the default of the scheme.
func join(host, port, scheme string) string {
	if port == defaultPort(scheme) || port == "" {
		if strings.Contains(host, ":") {
			return "[" + host + "]"
		}
		return host
	}
	return net.JoinHostPort(host, port)
}

func defaultPort(scheme string) string {
	if scheme == "https" {
		return "443"
	}
	return "80"
}

// List is a list of patterns for URLs. The zero value matches none.
type List struct {
	entries []entry
	any     bool // whether it has the entry *
}

// entry is an entry of a list.
type entry struct {
	host   string
	below  bool   // whether it matches the subdomains of host instead of host
	scheme string // if "", http and https
	port   string // if "", the default port of the scheme
	path   string // begins and ends with /; if "", any path
}

const forms = "must be host, *.host, https://host/prefix/ or *"

// NewList parses a list. Entries are host, *.host (all subdomains), https://host/prefix/ or *. A host
// may have a port; without one it has the default ports.
func NewList(texts []string) (l List, err error) {
	for _, text := range texts {
		if text == "*" {
			l.any = true
			continue
		}
		e, err := readEntry(text)
		if err != nil {
			return List{}, fmt.Errorf("%q: %w", text, err)
		}
		l.entries = append(l.entries, e)
	}
	return l, nil
}

func readEntry(text string) (e entry, err error) {
	bad := errors.New(forms)
	authority := text
	if strings.Contains(text, "://") {
		u, err := Parse(text)
		if err != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#") || !plain(u) {
			return e, bad
		}
		e.scheme, authority = u.Scheme, u.Host
		if e.path = strings.TrimSuffix(u.Path, "/") + "/"; e.path == "/" {
			e.path = ""
		}
	}
	authority, e.below = strings.CutPrefix(authority, "*.")
	if addr, err := netip.ParseAddr(authority); err == nil && addr.Is6() {
		authority = "[" + authority + "]"
	}
	if e.host, e.port, err = splitPort(authority); err != nil {
		return e, bad
	}
	if e.host, err = Name(e.host); err != nil || e.below && e.scheme != "" {
		return e, bad
	}
	return e, nil
}

// CheckEntry returns the problem with an entry of a list, or "".
func CheckEntry(text string) string {
	if _, err := NewList([]string{text}); err != nil {
		return forms
	}
	return ""
}

// Allows reports whether the list, as one of allowed URLs, matches a URL of [Parse]. named reports
// whether an entry other than * does.
func (l List) Allows(u *url.URL) (allowed, named bool) {
	for i := range l.entries {
		e := &l.entries[i]
		port := e.port
		if port == "" {
			port = defaultPort(u.Scheme)
		}
		if e.means(u) && Port(u) == port && (e.path == "" || plain(u) && strings.HasPrefix(u.Path+"/", e.path)) {
			return true, true
		}
	}
	return l.any && Port(u) == defaultPort(u.Scheme), false
}

// Loopback reports whether an entry names this machine ([Loopback]).
func (l List) Loopback() bool {
	return slices.ContainsFunc(l.entries, func(e entry) bool { return Loopback(e.host) })
}

// Both returns the entry for what two entries of a list both match, or "". It takes entries of hosts, with or
// without a port. Of a list with * an entry may name what is at a private address, which * does not match.
func Both(a, b string) string {
	x, errX := readEntry(a)
	y, errY := readEntry(b)
	switch {
	case a == b, errX == nil && errY == nil && y.covers(x):
		return a
	case errX == nil && errY == nil && x.covers(y), a == "*" && errY == nil && y.public():
		return b
	case b == "*" && errX == nil && x.public():
		return a
	}
	return ""
}

// covers reports whether the entry matches everything that another one matches.
func (e *entry) covers(o entry) bool {
	port := e.port == o.port || e.port == "" && (o.port == "80" || o.port == "443")
	host := e.host == o.host && e.below == o.below || e.below && strings.HasSuffix(o.host, "."+e.host)
	return port && host && e.scheme == "" && o.scheme == ""
}

// public reports whether the entry matches only hosts that * matches, unless a name is at a private address.
func (e *entry) public() bool {
	addr, err := netip.ParseAddr(e.host)
	usual := e.port == "" || e.port == "80" || e.port == "443"
	return usual && e.host != "localhost" && (err != nil || ReachOf(addr) == Public)
}

// CheckHost returns the problem with an entry of a list in which entries have no scheme and no path, or "".
func CheckHost(text string) string {
	if CheckEntry(text) != "" || strings.Contains(text, "://") {
		return "must be host, host:port, *.host or *"
	}
	return ""
}

// Empty reports whether the list matches no URL.
func (l List) Empty() bool { return len(l.entries) == 0 && !l.any }

// Narrow reports whether the list has the host of a URL of [Parse] with a scheme or a path.
func (l List) Narrow(u *url.URL) bool {
	any := url.URL{Scheme: "http", Host: u.Host}
	return slices.ContainsFunc(l.entries, func(e entry) bool {
		if e.scheme != "" {
			any.Scheme = e.scheme
		}
		return (e.scheme != "" || e.path != "") && e.means(&any)
	})
}

// Denies reports whether the list, as one of denied URLs, matches a URL of [Parse]. An entry without a
// port matches all ports, and one with a path also every URL of its host whose path is ambiguous.
func (l List) Denies(u *url.URL) bool {
	for i := range l.entries {
		e := &l.entries[i]
		if e.means(u) && (e.port == "" || Port(u) == e.port) && (e.path == "" || !plain(u) || e.over(u)) {
			return true
		}
	}
	return l.any
}

// means reports whether the entry matches the host and scheme of a URL.
func (e *entry) means(u *url.URL) bool {
	host := u.Hostname()
	if e.below {
		return strings.HasSuffix(host, "."+e.host) && (e.scheme == "" || e.scheme == u.Scheme)
	}
	return host == e.host && (e.scheme == "" || e.scheme == u.Scheme)
}

// over reports whether the path of the URL is that of the entry or below it, ignoring case, as some
// servers do.
func (e *entry) over(u *url.URL) bool {
	return strings.HasPrefix(strings.ToLower(u.Path)+"/", strings.ToLower(e.path))
}

// plain reports whether all servers interpret the path in the same way: it has no segments . and ..,
// no empty segments, and no escapes of separators or of %.
func plain(u *url.URL) bool {
	escaped := strings.ToLower(u.EscapedPath())
	for _, bad := range []string{"//", "%2f", "%5c", "%25", "%00", ";"} {
		if strings.Contains(escaped, bad) {
			return false
		}
	}
	return path.Clean(u.Path) == strings.TrimSuffix(u.Path, "/") || u.Path == "/"
}

// Port returns the port of a URL of [Parse], also if it is the default of the scheme.
func Port(u *url.URL) string {
	if port := u.Port(); port != "" {
		return port
	}
	return defaultPort(u.Scheme)
}
