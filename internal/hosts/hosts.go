// Package hosts says which addresses of the web a program may reach: it reads URLs in one
// way only, compares them with lists, and judges IP addresses. It opens nothing.
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

// names maps a host as browsers do: full-width and circled digits, capitals and other
// dots become what they stand for, before anything is compared.
var names = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(false), idna.Transitional(false))

const digits = "0123456789"

// isName reports whether every label of a host has 1 to 63 small letters, digits, _ and -.
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

// Parse reads a URL of http or https, and refuses every spelling that two readers could
// take for two addresses. The host of the result is a name in ASCII and small letters, or
// a canonical IP address; a default port and the fragment are left out. Errors are in
// words for a model, and hold nothing of the URL.
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
	u, err := url.Parse(scheme + "://host.invalid" + tail) // the host is read above, in one way only
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

// Name is the canonical form of a host: an IP address without brackets, or a name. What
// looks like a number in another form than a.b.c.d is an error.
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

// join writes a host and a port, which is left out if it is the default of the scheme.
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

// List says which URLs it means. The zero value means none.
type List struct {
	entries []entry
	any     bool // *
}

// entry is one line of a list.
type entry struct {
	host   string // "" = none; below is set: what is below it
	below  bool
	scheme string // "" = http and https
	port   string // "" = the default one of the scheme
	path   string // begins and ends with /; "" = any
}

const forms = "must be host, *.host, https://host/prefix/ or *"

// NewList reads a list. Entries are host, *.host (all that is below), https://host/prefix/ or
// *. A host may have a port, without which it means the default ports.
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

// CheckEntry says what is wrong with a line of a list; "" = nothing.
func CheckEntry(text string) string {
	if _, err := NewList([]string{text}); err != nil {
		return forms
	}
	return ""
}

// Allows reports whether the list, taken as one of what is allowed, means a URL of
// [Parse]. named is set if an entry other than * does.
func (l List) Allows(u *url.URL) (allowed, named bool) {
	for i := range l.entries {
		e := &l.entries[i]
		port := e.port
		if port == "" {
			port = defaultPort(u.Scheme)
		}
		if e.means(u) && portOf(u) == port && (e.path == "" || plain(u) && strings.HasPrefix(u.Path+"/", e.path)) {
			return true, true
		}
	}
	return l.any && portOf(u) == defaultPort(u.Scheme), false
}

// Narrow reports whether the list has the host of a URL of [Parse] with a scheme or a path only.
func (l List) Narrow(u *url.URL) bool {
	any := url.URL{Scheme: "http", Host: u.Host}
	return slices.ContainsFunc(l.entries, func(e entry) bool {
		if e.scheme != "" {
			any.Scheme = e.scheme
		}
		return (e.scheme != "" || e.path != "") && e.means(&any)
	})
}

// Denies reports whether the list, taken as one of what is denied, means a URL of [Parse].
// An entry without a port means all of them, and one with a path also every URL of its
// host whose path can be read in two ways.
func (l List) Denies(u *url.URL) bool {
	for i := range l.entries {
		e := &l.entries[i]
		if e.means(u) && (e.port == "" || portOf(u) == e.port) && (e.path == "" || !plain(u) || e.over(u)) {
			return true
		}
	}
	return l.any
}

// means reports whether the entry means the host and scheme.
func (e *entry) means(u *url.URL) bool {
	host := u.Hostname()
	if e.below {
		return strings.HasSuffix(host, "."+e.host) && (e.scheme == "" || e.scheme == u.Scheme)
	}
	return host == e.host && (e.scheme == "" || e.scheme == u.Scheme)
}

// over reports whether the path of the URL is the entry's or below it, for a server that
// does not tell capitals from small letters.
func (e *entry) over(u *url.URL) bool {
	return strings.HasPrefix(strings.ToLower(u.Path)+"/", strings.ToLower(e.path))
}

// plain reports whether every server reads the path as the same one: without . and .. as
// segments, empty segments, and escapes of what separates segments or of escapes.
func plain(u *url.URL) bool {
	escaped := strings.ToLower(u.EscapedPath())
	for _, bad := range []string{"//", "%2f", "%5c", "%25", "%00", ";"} {
		if strings.Contains(escaped, bad) {
			return false
		}
	}
	return path.Clean(u.Path) == strings.TrimSuffix(u.Path, "/") || u.Path == "/"
}

func portOf(u *url.URL) string {
	if port := u.Port(); port != "" {
		return port
	}
	return defaultPort(u.Scheme)
}
