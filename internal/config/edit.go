package config

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/hosts"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/internal/notify/address"
	"github.com/toolcrib/toolcrib/internal/providers"
	"github.com/toolcrib/toolcrib/internal/yamltree"
)

// MCPEntry is an entry of mcpServers as it is written.
type MCPEntry struct {
	Type     string            `json:"type,omitempty"`
	Command  string            `json:"command,omitempty"`
	Args     []string          `json:"args,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Cwd      string            `json:"cwd,omitempty"`
	URL      string            `json:"url,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
	Tools    []string          `json:"tools,omitempty"`
	Timeout  string            `json:"timeout,omitempty"`
	Start    string            `json:"start_timeout,omitempty"`
	Disabled bool              `json:"disabled,omitempty"`
	OAuth    *MCPEntryOAuth    `json:"oauth,omitempty"`
}

// MCPEntryOAuth configures how to sign in to the server of an [MCPEntry].
type MCPEntryOAuth struct {
	ClientID     string   `json:"client_id,omitempty"`
	ClientSecret string   `json:"client_secret,omitempty"`
	Scopes       []string `json:"scopes,omitempty"`
	CallbackPort int      `json:"callback_port,omitempty"`
}

const mcpKey = "mcpServers"

// AddMCPServer returns the text of a configuration with a server added to mcpServers. Everything
// else, also comments, is unchanged. It returns an error if the server exists already, or if it
// cannot be added without changing anything else.
func AddMCPServer(file string, text []byte, name string, e MCPEntry) ([]byte, error) {
	root, servers, err := mcpServersOf(file, text)
	if err != nil {
		return nil, err
	}
	if servers != nil && entryOf(servers, name) != nil {
		return nil, toolcrib.Errorf(toolcrib.CodeConflict, "%s has a server %s already", file, name)
	}
	// JSON is YAML. Empty fields are left out.
	added, errs := yamltree.Parse(yamltree.AppendJSON(nil, map[string]MCPEntry{name: e}), limits())
	if len(errs) > 0 {
		return nil, toolcrib.Errorf(toolcrib.CodeTooLarge, "the server %s cannot be added: its entry is longer than a configuration may be", name)
	}
	entry, lines := added.Entries[0], linesOf(text)
	switch {
	case servers == nil:
		lines = append(lines, mcpKey+":\n", string(block(added, "  ")))
		servers = &yamltree.Node{Kind: yamltree.Map}
		root.Kind, root.Entries = yamltree.Map, append(root.Entries, yamltree.Entry{Key: mcpKey, Value: servers})
	case len(servers.Entries) == 0:
		at := servers.Line - 1
		lines[at] = emptyServers.ReplaceAllString(lines[at], "$1$3") + string(block(added, "  "))
		servers.Kind = yamltree.Map
	case servers.Entries[0].Value.Line == servers.Line: // on one line with its key
		at := servers.Line - 1
		first := fmt.Sprintf("{%s: %s, ", yamltree.AppendJSON(nil, name), entry.Value.JSON())
		lines[at] = strings.Replace(lines[at], "{", first, 1)
		servers.Entries = append([]yamltree.Entry{entry}, servers.Entries...)
		return edited(file, root, lines)
	default:
		last := servers.Entries[len(servers.Entries)-1].Value
		at := blockEnd(lines, last)
		lines = slices.Insert(lines, at, string(block(added, strings.Repeat(" ", last.Column-1))))
	}
	servers.Entries = append(servers.Entries, entry)
	return edited(file, root, lines)
}

// RemoveMCPServer returns the text of a configuration without a server of mcpServers. Everything
// else is unchanged.
func RemoveMCPServer(file string, text []byte, name string) ([]byte, error) {
	root, servers, err := mcpServersOf(file, text)
	if err != nil {
		return nil, err
	}
	at := -1
	if servers != nil {
		at = slices.IndexFunc(servers.Entries, func(e yamltree.Entry) bool { return e.Key == name })
	}
	if at < 0 {
		return nil, fmt.Errorf("%s has no server %s", file, name)
	}
	lines, entry := linesOf(text), servers.Entries[at].Value
	if servers.Entries = slices.Delete(servers.Entries, at, at+1); entry.Line != servers.Line {
		lines = slices.Delete(lines, entry.Line-1, blockEnd(lines, entry))
		if at := servers.Line - 1; len(servers.Entries) == 0 {
			lines[at] = emptyServers.ReplaceAllString(lines[at], "$1 {}$3")
		}
	}
	return edited(file, root, lines)
}

func notHere(file string) error {
	return fmt.Errorf("%s is written in a way that cannot be edited here; edit %s yourself", file, mcpKey)
}

// linesOf returns the lines of a text, each with its line break.
func linesOf(text []byte) []string {
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(bytes.Clone(text), '\n')
	}
	return strings.SplitAfter(string(text), "\n")
}

// emptyServers matches the line of mcpServers without servers.
var emptyServers = lazyregexp.New(`(?s)^(["']?mcpServers["']?\s*:)[ \t]*(\{\s*\}|null|~)?(\s*(?:#.*)?)$`)

func mcpServersOf(file string, text []byte) (root, servers *yamltree.Node, err error) {
	root, errs := yamltree.Parse(text, limits())
	if len(errs) > 0 {
		for i := range errs {
			errs[i].File = file
		}
		return nil, nil, Errors(errs).Sorted()
	}
	if bytes.Count(text, []byte("\r")) > bytes.Count(text, []byte("\r\n")) { // a line end for YAML, but not for linesOf
		return nil, nil, notHere(file)
	}
	return root, entryOf(root, mcpKey), nil
}

// entryOf returns the value of a key of a mapping, or nil.
func entryOf(n *yamltree.Node, key string) *yamltree.Node {
	for _, e := range entriesOf(n) {
		if e.Key == key {
			return e.Value
		}
	}
	return nil
}

// blockEnd returns the number of lines up to the end of an entry in block style.
func blockEnd(lines []string, entry *yamltree.Node) int {
	end := entry.Line
	for i := entry.Line; i < len(lines); i++ {
		text := strings.TrimLeft(lines[i], " ")
		if strings.TrimSpace(text) == "" {
			continue
		}
		if len(lines[i])-len(text) < entry.Column {
			break
		}
		end = i + 1
	}
	return end
}

// edited returns the edited text, or an error if its content differs from want.
func edited(file string, want *yamltree.Node, lines []string) ([]byte, error) {
	after := []byte(strings.Join(lines, ""))
	if got, errs := yamltree.Parse(after, limits()); len(errs) > 0 || !bytes.Equal(got.JSON(), want.JSON()) {
		return nil, notHere(file)
	}
	// Other keys may need those of another file, so what is read of this one is checked alone.
	l, d := layer{file: file, data: after}, newDecoder(file)
	if errs := l.parse(d); errs != nil {
		return after, errs
	}
	if l.alone(d); len(d.Errors) > 0 {
		return after, Errors(d.Errors).Sorted()
	}
	return after, nil
}

// HideSecret replaces text that looks like a secret in a value by the reference ${secret:AS}. key
// is the name of the variable or header, or "" for an argument. found is false if the value is
// unchanged.
func HideSecret(key, value, as string) (text string, found bool) {
	ref := "${secret:" + as + "}"
	if key == "" {
		text = assignment.ReplaceAllStringFunc(value, func(part string) string {
			m := assignment.FindStringSubmatch(part)
			if refPattern.MatchString(m[2]) {
				return part
			}
			return m[1] + ref
		})
		return text, text != value
	}
	word := scheme.FindString(value)
	if rest := value[len(word):]; rest == "" || refPattern.MatchString(rest) || !sensitive.MatchString(key) {
		return value, false
	}
	return word + ref, true
}

// form is a form of names, with its description for errors.
type form struct {
	*lazyregexp.Regexp
	about string
}

func formOf(pattern, about string) form { return form{lazyregexp.New(pattern), about} }

// Forms of names, by the tag keys or format. The name of a provider has no slash, so that PROVIDER/MODEL is
// unambiguous.
var (
	namePattern = formOf(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`,
		"1 to 64 of A-Z, a-z, 0-9, _, . and -, the first a letter or digit")
	modelPattern = formOf(`^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}$`,
		"1 to 128 of A-Z, a-z, 0-9, _, ., :, @ and -, the first a letter or digit")
	toolPattern   = formOf(`^[A-Za-z0-9_-]{1,64}$`, "1 to 64 of A-Z, a-z, 0-9, _ and -")
	headerPattern = formOf("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$", "the name of an HTTP header") // RFC 9110, token
	envPattern    = formOf(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`, "1 to 128 of A-Z, a-z, 0-9 and _, the first not a digit")
	claimPattern  = formOf(`^[^\pC]{1,256}$`, "1 to 256 characters without control characters")
	// The name of a capability is that of [access.ReadCapability], with a dot.
	capabilityPattern = formOf(
		`^[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*)+@(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})$`,
		"NAME@MAJOR.MINOR with a dot in NAME, such as rag.query@1.0")
	programPattern = formOf(`^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}$`,
		"1 to 64 of A-Z, a-z, 0-9, _, ., + and -, the first a letter, a digit or _")
	sumPattern      = lazyregexp.New(`^[0-9a-f]{64}$`)
	busTokenPattern = lazyregexp.New(`^(` + guard.BusTokenPrefix + `[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){2})?$`)
)

// checkKey returns the problem with a key of a mapping, or "".
func checkKey(keys, key string) string { return match(keyPattern(keys), key) }

func keyPattern(keys string) form {
	switch keys {
	case "model":
		return modelPattern
	case "tool":
		return toolPattern
	case "header":
		return headerPattern
	case "env":
		return envPattern
	case "claim":
		return claimPattern
	case "capability":
		return capabilityPattern
	}
	return namePattern
}

// checkFormat returns the problem with a text of a format, as the text of an error, or "".
// References in the text must have been resolved.
func checkFormat(format, text string) string {
	switch format {
	case "provider":
		return yamltree.OneOf(text, providers.Names(nil))
	case "name":
		return match(namePattern, text)
	case "capability":
		return match(capabilityPattern, text)
	case "program":
		if strings.ContainsAny(text, `/\`) {
			return "must be the name of a program, without a path"
		}
		return match(programPattern, text)
	case "word", "glob", "bustoken":
		return checkWord(format, text)
	case "description":
		return checkDescription(text)
	case "sha256":
		if text != "" && !sumPattern.MatchString(text) {
			return "must be the 64 hexadecimal digits of a SHA-256"
		}
	case "header":
		if strings.ContainsFunc(text, func(r rune) bool { return r != '\t' && unicode.IsControl(r) }) {
			return "must have no line breaks or other control characters: it is sent in a header"
		}
	case "note":
		if problem := checkWord(format, text); problem != "" || filepath.IsLocal(text) {
			return problem
		}
		return "must be the name of a file in a folder, such as AGENTS.md, without .. and not from /"
	case "web":
		return hosts.CheckEntry(text)
	case "path", "workspace":
		if strings.ContainsRune(text, 0) || len(text) > 4096 {
			return "is not a valid path"
		}
	case "url":
		return checkURL(text, "http", "https")
	case "api":
		problem := checkURL(text, "http", "https")
		if u, _ := url.Parse(text); problem == "" && (u.User != nil || u.Fragment != "") {
			return "must not have a user, a password or a fragment; use api_key or headers"
		}
		return problem
	case "origin":
		if u, err := url.Parse(text); err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != text {
			return "must be an origin such as https://example.com"
		}
	case "network":
		if _, err := ProxyNetwork(text); err != nil {
			return err.Error()
		}
	case "dsn":
		return checkDSN(text)
	case "proxy":
		if text == "none" {
			return ""
		}
		return checkURL(text, "http", "https", "socks5", "socks5h")
	case "database":
		return checkURL(text, "postgres", "postgresql")
	case "bus":
		for server := range strings.SplitSeq(text, ",") {
			if problem := checkURL(strings.TrimSpace(server), "nats", "tls", "ws", "wss"); problem != "" {
				return problem
			}
		}
	case "listen":
		return checkListen(text)
	case "notify":
		return address.Check(text)
	case "signing":
		if _, err := address.Key(text); err != nil {
			return err.Error()
		}
	}
	return ""
}

func match(f form, text string) string {
	if f.MatchString(text) {
		return ""
	}
	return yamltree.Quote(text) + " is not a valid name here: use " + f.about
}

func checkWord(format, text string) string {
	switch {
	case format == "bustoken" && !busTokenPattern.MatchString(text): // the error does not repeat it
		return "must be a token of another node, which begins with " + guard.BusTokenPrefix
	case format == "bustoken":
		return ""
	case text == "":
		return "must not be empty"
	case len(text) > 256:
		return "must have at most 256 bytes"
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		return "must have no spaces or control characters"
	}
	if format == "glob" {
		if _, err := path.Match(text, "x"); err != nil {
			return yamltree.Quote(text) + " is not a valid glob"
		}
	}
	return ""
}

// maxDescription is the maximum length of a description, in characters.
const maxDescription = 500

// checkDescription refuses text with invisible characters, since models read it.
func checkDescription(text string) string {
	switch {
	case utf8.RuneCountInString(text) > maxDescription:
		return fmt.Sprintf("must have at most %d characters", maxDescription)
	case guard.Visible(text) != text:
		return "must have no control or hidden characters"
	}
	return ""
}

// checkURL returns the problem with a URL, or "". It never quotes the URL, which may contain a password.
func checkURL(text string, schemes ...string) string {
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "is not a valid address"
	case !slices.Contains(schemes, u.Scheme):
		return "must begin with " + strings.Join(schemes, ":// or ") + "://"
	case u.Hostname() == "" && u.RawQuery == "":
		return "is an address without a host"
	}
	return ""
}

// checkDSN returns the problem with a text that does not name a supported database, or "".
func checkDSN(text string) string {
	scheme, _, isURL := strings.Cut(text, "://")
	kind, _, _ := strings.Cut(text, ":")
	switch {
	case text == "", isURL && (scheme == "postgres" || scheme == "postgresql"), !isURL && strings.Contains(text, "="),
		slices.Contains([]string{"sqlite", "sqlite3", "file"}, strings.ToLower(kind)),
		!isURL && slices.Contains([]string{".db", ".sqlite", ".sqlite3"}, strings.ToLower(path.Ext(text))):
		return ""
	}
	return "must be postgres://… or sqlite:FILE"
}

// checkListen returns the problem with an address to listen on, or "".
func checkListen(text string) string {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return "must be HOST:PORT, such as 127.0.0.1:8420"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > 65535 {
		return "must end in a port from 0 to 65535"
	}
	return ""
}

// CheckListen returns an error if an address to listen on, from outside a configuration, is invalid.
func CheckListen(text string) error {
	if problem := checkListen(text); problem != "" {
		return errors.New(problem)
	}
	return nil
}

// ProxyNetwork returns the network of proxies that an address or a CIDR names. A network of all addresses is refused:
// with it, anybody could name any client.
func ProxyNetwork(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if ip, no := netip.ParseAddr(text); no == nil && ip.Zone() == "" {
		p, err = netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	switch {
	case err != nil || p.Addr().Is4In6():
		return p, errors.New("must be an IP address or a network, such as 192.0.2.1 or 10.0.0.0/8")
	case p.Bits() == 0:
		return p, errors.New("is every address; name those of your proxies")
	}
	return p.Masked(), nil
}

// isLoopback reports whether HOST:PORT can be reached only from this machine.
func isLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
