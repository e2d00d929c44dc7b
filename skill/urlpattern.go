package skill

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

// maxURL bounds a URL that is matched, in bytes.
const maxURL = 4096

var (
	hostPattern = regexp.MustCompile(`^(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

	errURL = errors.New("the skills allow only some addresses: plain http or https URLs of hosts by name, without user, escapes in the host, or dots as folders")
)

// urlPattern is a pattern of a URL.
type urlPattern struct {
	host   string // *.HOST = what is below it
	scheme string // "" = http and https
	rest   string // path and query, * is any text; "" = any
}

func readURLPattern(pattern string) (p urlPattern, problem string) {
	const how = "a pattern of a URL is domain:HOST, domain:*.HOST or https://HOST/PATH"
	if host, ok := strings.CutPrefix(pattern, "domain:"); ok {
		p.host = strings.ToLower(strings.TrimSpace(host))
	} else {
		scheme, rest, ok := strings.Cut(pattern, "://")
		if p.scheme = strings.ToLower(scheme); !ok || p.scheme != "https" && p.scheme != "http" {
			return p, how
		}
		host, tail, _ := strings.Cut(rest, "/")
		p.host, p.rest = strings.ToLower(host), "/"+strings.TrimSuffix(tail, ":*")
		if strings.HasSuffix(tail, ":*") {
			p.rest += "*"
		}
	}
	if !hostPattern.MatchString(p.host) {
		return p, how
	}
	return p, ""
}

func urlProblem(pattern string) string {
	_, problem := readURLPattern(pattern)
	return problem
}

// matchURL reports whether an entry matches the address.
func matchURL(entries []rule, address string) (bool, error) {
	u, err := plainURL(address)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if p, problem := readURLPattern(e.Pattern); problem == "" && p.match(u) {
			return true, nil
		}
	}
	return false, nil
}

// plainURL refuses every spelling of an address that two readers could take for
// two different ones.
func plainURL(address string) (*url.URL, error) {
	if len(address) > maxURL {
		return nil, errURL
	}
	for i := range len(address) {
		if c := address[i]; c <= ' ' || c >= 0x7F || c == '\\' {
			return nil, errURL
		}
	}
	u, err := url.Parse(address)
	if err != nil || u.User != nil || u.Opaque != "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errURL
	}
	host := strings.ToLower(u.Host)
	switch port := u.Port(); {
	case port == "443" && u.Scheme == "https", port == "80" && u.Scheme == "http":
		host = strings.TrimSuffix(host, ":"+port)
	}
	// What is left must be a name: no other port, no brackets, no escapes.
	if !hostPattern.MatchString(host) || strings.HasPrefix(host, "*") {
		return nil, errURL
	}
	u.Host = host
	for _, segment := range strings.FieldsFunc(u.Path, func(r rune) bool { return r == '/' || r == '\\' }) {
		if segment == "." || segment == ".." {
			return nil, errURL
		}
	}
	return u, nil
}

func (p urlPattern) match(u *url.URL) bool {
	if below, ok := strings.CutPrefix(p.host, "*."); ok {
		if !strings.HasSuffix(u.Host, "."+below) {
			return false
		}
	} else if u.Host != p.host {
		return false
	}
	if p.scheme != "" && p.scheme != u.Scheme {
		return false
	}
	if p.rest == "" {
		return true
	}
	rest := u.EscapedPath()
	if rest == "" {
		rest = "/"
	}
	if u.RawQuery != "" || u.ForceQuery {
		rest += "?" + u.RawQuery
	}
	return glob(p.rest, rest, false)
}
