package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/hosts"
	"github.com/toolcrib/toolcrib/internal/notify/address"
	"github.com/toolcrib/toolcrib/internal/providers"
	"github.com/toolcrib/toolcrib/internal/yamltree"
)

// What names must look like, by the tag keys or format. A provider's name has no
// slash, so that PROVIDER/MODEL can be told apart.
var (
	namePattern    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
	modelPattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}$`)
	toolPattern    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	headerPattern  = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$") // RFC 9110, token
	envPattern     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	programPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}$`)
)

func keyPattern(keys string) *regexp.Regexp {
	switch keys {
	case "model":
		return modelPattern
	case "tool":
		return toolPattern
	case "header":
		return headerPattern
	case "env":
		return envPattern
	}
	return namePattern
}

// checkFormat returns what is wrong with a text of a format, in the words of an error,
// or "". References in the text have been filled in.
func checkFormat(format, text string) string {
	switch format {
	case "provider":
		return yamltree.OneOf(text, providers.Names(nil))
	case "name":
		return match(namePattern, text)
	case "program":
		if strings.ContainsAny(text, `/\`) {
			return "must be the name of a program, without a path"
		}
		return match(programPattern, text)
	case "word", "glob":
		return checkWord(format, text)
	case "description":
		return checkDescription(text)
	case "web":
		return hosts.CheckEntry(text)
	case "path", "workspace":
		if strings.ContainsRune(text, 0) || len(text) > 4096 {
			return "is not a valid path"
		}
	case "url":
		return checkURL(text, "http", "https")
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

func match(pattern *regexp.Regexp, text string) string {
	if pattern.MatchString(text) {
		return ""
	}
	return yamltree.Quote(text) + " is not a valid name here: it must match " + pattern.String()
}

func checkWord(format, text string) string {
	switch {
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

// maxDescription is the longest description, in characters.
const maxDescription = 500

// checkDescription refuses what a person would not see as it is, since models read it.
func checkDescription(text string) string {
	switch {
	case utf8.RuneCountInString(text) > maxDescription:
		return fmt.Sprintf("must have at most %d characters", maxDescription)
	case guard.Visible(text) != text:
		return "must have no control or hidden characters"
	}
	return ""
}

// checkURL never shows the text: it may hold a password.
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

// isLoopback reports whether only this machine reaches the address HOST:PORT.
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
