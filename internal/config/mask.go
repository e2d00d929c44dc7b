package config

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// mask replaces a secret wherever a configuration is shown.
const mask = "***"

// sensitive is what the names of secrets have in common.
var sensitive = regexp.MustCompile(`(?i)(key|token|secret|passw|pwd|auth|cookie|credential|signature)`)

// assignment is a secret inside of a longer text: password=…, --api-key=….
var assignment = regexp.MustCompile(`(?i)([a-z0-9_.-]*(?:key|token|secret|passw(?:or)?d|pwd|credential|auth)[a-z0-9_.-]*\s*[=:]\s*)([^\s&;,]+)`)

// userinfo is the password of an address, however broken the rest of it is.
var userinfo = regexp.MustCompile(`(://[^/?#@\s:]*:)([^/?#\s]*)(@)`)

// scheme is the first word of an Authorization header.
var scheme = regexp.MustCompile(`^(?i)(bearer|basic|token|apikey)\s+`)

// tokenUser is the user of a NATS address without a password: a token.
var tokenUser = regexp.MustCompile(`(://)([^/?#@:\s]+)(@)`)

// everydayEnv are variables that hold no secret: masking a home folder wherever
// it shows up would only blind the operator.
var everydayEnv = regexp.MustCompile(`^(HOME|PWD|USER|LOGNAME|HOSTNAME|LANG|LC_.*|PATH|SHELL|TERM|TZ|TMPDIR|XDG_.*)$`)

// isSecret reports whether what a reference stands for must be masked by value. What
// fills a path, an address or a prompt is no secret by itself; the password of a
// whole address is found by [Value.secretsOf].
func (v Value) isSecret(p segment, text string) bool {
	switch {
	case p.kind == "secret" || v.secret == "all":
		return true
	case v.secret == "" || p.kind == "env" && everydayEnv.MatchString(p.text):
		return false
	case v.secret == "url":
		return !strings.Contains(text, "://")
	}
	return true
}

// secretName is the name of a secret that these parts of the Value make: that of the
// only reference to a variable or a stored secret among them, else where it is written.
func (v Value) secretName(parts []segment) string {
	name := ""
	for _, p := range parts {
		switch {
		case p.kind == "":
		case p.kind == "file" || name != "":
			return v.at.Key
		default:
			name = p.text
		}
	}
	return cmp.Or(name, v.at.Key)
}

// inside returns what finds the secrets inside of a longer text; nil if the Value is not
// one that has them there. The second group of each pattern is the secret.
func (v Value) inside() []*regexp.Regexp {
	switch {
	case v.secret == "args":
		return []*regexp.Regexp{assignment}
	case v.secret == "url" && v.format == "bus":
		return []*regexp.Regexp{assignment, userinfo, tokenUser}
	case v.secret == "url":
		return []*regexp.Regexp{assignment, userinfo}
	}
	return nil
}

// secretsOf returns the secrets in text, which is the Value filled in.
func (v Value) secretsOf(text string) (out []string) {
	if v.secret == "all" || v.secret == "notify" || v.secret == "named" && sensitive.MatchString(lastKey(v.at.Key)) {
		out = append(out, text)
		if bare := scheme.ReplaceAllString(text, ""); bare != text {
			out = append(out, bare)
		}
	}
	for _, pattern := range v.inside() {
		for _, m := range pattern.FindAllStringSubmatch(text, -1) {
			out = append(out, m[2])
			for _, unescape := range []func(string) (string, error){url.QueryUnescape, url.PathUnescape} {
				if plain, err := unescape(m[2]); err == nil && !slices.Contains(out, plain) {
					out = append(out, plain)
				}
			}
		}
	}
	return out
}

// lastKey returns the last name of a key path.
func lastKey(path string) string {
	if i := strings.LastIndexAny(path, ".["); i >= 0 {
		return strings.Trim(path[i+1:], `]"`)
	}
	return path
}

// masked returns the Value as it may be shown: references stay, since they are not
// the secret itself; literal secrets do not.
func (v Value) masked() string {
	text := v.raw
	for _, pattern := range v.inside() {
		text = hide(pattern, text)
	}
	if v.secret == "" || v.inside() != nil {
		return text
	}
	parts, _ := v.segments()
	var b strings.Builder
	for _, p := range parts {
		switch {
		case p.kind != "":
			b.WriteString("${" + p.kind + ":" + p.text + "}")
		case v.secret == "notify" && strings.Contains(p.text, "://"):
			before, _, _ := strings.Cut(p.text, "://")
			b.WriteString(before + "://" + mask)
		default:
			b.WriteString(scheme.FindString(p.text))
			if scheme.ReplaceAllString(p.text, "") != "" {
				b.WriteString(mask)
			}
		}
	}
	return b.String()
}

// hide masks the second group of pattern unless it is a reference.
func hide(pattern *regexp.Regexp, text string) string {
	return pattern.ReplaceAllStringFunc(text, func(found string) string {
		m := pattern.FindStringSubmatch(found)
		if whole := refPattern.FindString(m[2]); whole != "" && whole == m[2] {
			return found
		}
		out := m[1] + mask
		if len(m) > 3 {
			out += m[3]
		}
		return out
	})
}
