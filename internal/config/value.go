package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/internal/yamltree"
)

// Value is a text that may contain references: ${env:NAME}, ${file:PATH} and ${secret:NAME}. They
// are resolved by [Value.Resolve] when the value is used, so that a missing key affects only the
// features that need it. Printing a Value shows its masked form. The zero Value is the empty text.
type Value struct {
	raw    string
	at     Error  // file, line and key path, without a message
	base   string // folder for relative paths; if "", the current folder
	format string
	secret string
}

// SecretStore returns the secrets that `toolcrib secret set` stored. If there is no secret of that
// name, the error wraps [toolcrib.ErrNotFound].
type SecretStore interface {
	Secret(name string) (string, error)
}

// SecretError is an error of a [SecretStore] that says what to do. Its message is shown, so it must
// not contain a secret. Other errors are not shown.
type SecretError struct{ Message string }

func (e *SecretError) Error() string { return e.Message }

// Resolver resolves references. The zero value uses the environment of the process and files, and
// has no stored secrets.
type Resolver struct {
	LookupEnv func(name string) (string, bool) // if nil, os.LookupEnv
	Secrets   SecretStore                      // if nil, there are no stored secrets
	// OnSecret is called with every secret, literal or from a reference, before Resolve returns,
	// so that it can be masked. The value is never empty; the name is that of the reference, or
	// else the key path.
	OnSecret func(guard.Secret)
}

// segment is part of a Value: a literal text or a reference.
type segment struct {
	kind string // "" for a literal text, env, file or secret
	text string
}

var refPattern = lazyregexp.New(`\$\{(env|file|secret):[^}]*\}`)

// anyRef matches text that looks like a reference, and $${, which is a literal ${.
var anyRef = lazyregexp.New(`\$?\$\{([^}]*)\}`)

var secretName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)

// segments splits a Value. problem is the text of an error, or "".
func (v Value) segments() (parts []segment, problem string) {
	if v.raw != "" && !strings.Contains(v.raw, "${") { // for speed: most values, and each run calls this
		return []segment{{text: v.raw}}, ""
	}
	text, rest := "", 0
	for _, m := range anyRef.FindAllStringSubmatchIndex(v.raw, -1) {
		whole, inner := v.raw[m[0]:m[1]], v.raw[m[2]:m[3]]
		text += v.raw[rest:m[0]]
		rest = m[1]
		kind, name, ok := strings.Cut(inner, ":")
		known := ok && (kind == "env" || kind == "file" || kind == "secret")
		switch {
		case strings.HasPrefix(whole, "$$"):
			text += whole[1:]
			continue
		case !known && (v.format == "prompt" || v.format == "text"):
			text += whole // an expression of a shell or a template
			continue
		case !known:
			return nil, "has a reference of no known kind; write ${env:NAME}, ${file:PATH} or ${secret:NAME}, and $${ for " +
				"a literal ${"
		case kind == "env" && !envPattern.MatchString(name), kind == "secret" && !secretName.MatchString(name),
			kind == "file" && name == "":
			return nil, fmt.Sprintf("has a reference ${%s:…} without a valid name", kind)
		case kind == "secret" && v.format == "prompt":
			return nil, "a secret does not belong in a prompt"
		}
		if text != "" {
			parts = append(parts, segment{text: text})
		}
		parts = append(parts, segment{kind: kind, text: name})
		text = ""
	}
	tail := v.raw[rest:]
	if v.format != "prompt" && v.format != "text" && strings.Contains(strings.ReplaceAll(tail, "$${", ""), "${") {
		return nil, "has a reference without its closing brace; write ${env:NAME}, and $${ for a literal ${"
	}
	if text += tail; text != "" {
		parts = append(parts, segment{text: text})
	}
	return parts, ""
}

// check returns the problem with the Value as it was written, or "". The format of a Value with
// references is checked when they are resolved.
func (v Value) check() string {
	parts, problem := v.segments()
	if problem != "" || v.raw == "" {
		return problem
	}
	if v.secret != "" && strings.Contains(v.raw, mask) {
		return "is masked (" + mask + "); write the value itself"
	}
	if problem := v.mistaken(parts); problem != "" {
		return problem
	}
	if text, ok := literal(parts); ok {
		return checkFormat(v.format, text)
	}
	return ""
}

// foreignRef matches references in other notations: $NAME of shells, $env:NAME of PowerShell,
// {env:NAME}.
var foreignRef = lazyregexp.New(`(?:^|[\s=:/])\$(?:(?i:env|file|secret):\w+|[A-Z_][A-Z0-9_]*)(?:$|[\s/;,])|(?:^|[^$])\{(?:env|file|secret):[^{}]*\}`)

// mistaken refuses literal text that is meant as a reference. Prompts and arguments of programs may contain any text.
func (v Value) mistaken(parts []segment) string {
	switch {
	case v.format == "prompt", v.format == "text" && v.secret != "named":
		return ""
	}
	for _, p := range parts {
		if p.kind == "" && foreignRef.MatchString(p.text) {
			return "holds $NAME, $env:NAME or {env:NAME}, which is plain text here; write ${env:NAME}, ${file:PATH} or " +
				"${secret:NAME} " +
				"(if that is what you mean, keep it as a secret: toolcrib secret set NAME)"
		}
	}
	return ""
}

// literal returns the text of parts. ok is false if there is a reference.
func literal(parts []segment) (text string, ok bool) {
	for _, p := range parts {
		if p.kind != "" {
			return "", false
		}
		text += p.text
	}
	return text, true
}

// Raw returns the text as it was written, including secrets and references.
func (v Value) Raw() string { return v.raw }

// IsEmpty reports whether the Value is the empty text.
func (v Value) IsEmpty() bool { return v.raw == "" }

// Source returns the origin of the text: the kind (env, file or secret) and the name of the
// reference if it consists of one, or otherwise "" and its position.
func (v Value) Source() (kind, name string) {
	if parts, _ := v.segments(); len(parts) == 1 && parts[0].kind != "" {
		return parts[0].kind, parts[0].text
	}
	return "", v.Position()
}

// Position returns "toolcrib.yaml:4", or "default".
func (v Value) Position() string { return yamltree.Position(v.at.File, v.at.Line) }

// String returns the masked form.
func (v Value) String() string { return v.masked() }

// GoString returns the masked form.
func (v Value) GoString() string { return fmt.Sprintf("%q", v.masked()) }

// LogValue returns the masked form.
func (v Value) LogValue() slog.Value { return slog.StringValue(v.masked()) }

// MarshalText returns the masked form.
func (v Value) MarshalText() ([]byte, error) { return []byte(v.masked()), nil }

// Resolve resolves the references, makes a path absolute, and checks the result. An error has file,
// line and key path, but never a secret.
func (v Value) Resolve(r Resolver) (string, error) {
	parts, problem := v.segments()
	if problem != "" {
		return "", v.errorf("%s", problem)
	}
	var b strings.Builder
	for _, p := range parts {
		text := p.text
		if p.kind != "" {
			filled, err := v.fill(r, p)
			if err != nil {
				return "", err
			}
			text = filled
		}
		b.WriteString(text)
	}
	text := b.String()
	for _, secret := range v.secretsOf(text) {
		r.found(v.secretName(parts), secret)
	}
	if _, plain := literal(parts); !plain {
		if problem := checkFormat(v.format, text); problem != "" {
			return "", v.errorf("%s, once its references are filled in", problem)
		}
	}
	return v.absolute(text)
}

func (r Resolver) found(name, secret string) {
	if r.OnSecret != nil && strings.TrimSpace(secret) != "" {
		r.OnSecret(guard.Secret{Name: name, Value: secret})
	}
}

func (v Value) errorf(format string, args ...any) error {
	e := v.at
	e.Message = fmt.Sprintf(format, args...)
	return e
}

// fill returns the value of a reference.
func (v Value) fill(r Resolver, p segment) (string, error) {
	v.at.Ref = "${" + p.kind + ":" + p.text + "}"
	var text, problem string
	switch p.kind {
	case "env":
		lookup := r.LookupEnv
		if lookup == nil {
			lookup = os.LookupEnv
		}
		found := false
		if text, found = lookup(p.text); !found {
			problem = fmt.Sprintf("the environment variable %s is not set", p.text) + v.hint(p.text)
		} else if text == "" && v.secret != "" {
			problem = fmt.Sprintf("the environment variable %s is empty", p.text) + v.hint(p.text)
		}
	case "file":
		file, err := absolute(p.text, v.base)
		if err != nil {
			return "", v.errorf("the file %s: %s", p.text, err)
		}
		data, err := ReadFile(file)
		if err != nil {
			return "", v.errorf("the file %s %v", p.text, err)
		}
		// A newline at the end of the file is not part of the value.
		text = strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	default:
		text, problem = stored(r, p.text)
	}
	if problem != "" {
		return "", v.errorf("%s", problem)
	}
	if v.isSecret(p, text) {
		r.found(v.secretName([]segment{p}), text)
	}
	return text, nil
}

// hint says how to replace the environment variable of a secret, or returns "" if the value is not a secret.
func (v Value) hint(name string) string {
	if v.secret == "" {
		return ""
	}
	return fmt.Sprintf("; set it, or store the key with `toolcrib secret set %s` and write ${secret:%s} there", name, name)
}

// stored returns a stored secret, or the problem with it.
func stored(r Resolver, name string) (text, problem string) {
	err := error(toolcrib.ErrNotFound)
	if r.Secrets != nil {
		text, err = r.Secrets.Secret(name)
	}
	var explained *SecretError
	switch {
	case err == nil:
		return text, ""
	case errors.Is(err, toolcrib.ErrNotFound):
		const how = "no secret %s is stored; store it with `toolcrib secret set %s`, or use ${env:…} or ${file:…}"
		return "", fmt.Sprintf(how, name, name)
	case errors.As(err, &explained):
		return "", fmt.Sprintf("the secret %s cannot be read: %s", name, explained.Message)
	}
	return "", fmt.Sprintf("the secret %s cannot be read", name)
}

// absolute makes a path absolute; other values stay as they are.
func (v Value) absolute(text string) (string, error) {
	if text == "" || v.format != "path" && v.format != "workspace" {
		return text, nil
	}
	if v.at.Line == 0 {
		text = ofXDG(text)
	}
	base := v.base
	if v.format == "workspace" && filepath.Clean(text) == "." {
		base = "" // the default and a written "." are the same folder
	}
	out, err := absolute(text, base)
	if err != nil {
		return "", v.errorf("%s", err)
	}
	return out, nil
}

// ofXDG returns a default path in the folder that a variable of the XDG Base Directory Specification names. As the
// specification says, variables with relative paths are ignored.
func ofXDG(path string) string {
	for usual, variable := range map[string]string{"~/.local/share/": "XDG_DATA_HOME", "~/.config/": "XDG_CONFIG_HOME"} {
		if rest, ok := strings.CutPrefix(path, usual); ok && filepath.IsAbs(os.Getenv(variable)) {
			return filepath.Join(os.Getenv(variable), rest)
		}
	}
	return path
}

// Absolute makes the path of a folder absolute, as in a configuration: from the current folder, and with ~ for the home
// folder, also where a shell does not expand that (--data-dir=~/x).
func Absolute(name string) (string, error) { return absolute(name, "") }

// absolute expands ~ and makes name absolute, from base or the current folder.
func absolute(name, base string) (string, error) {
	if name == "~" || strings.HasPrefix(name, "~/") {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", errors.New("the home folder is unknown; set HOME, or write an absolute path")
		}
		return filepath.Join(home, name[1:]), nil
	}
	if !filepath.IsAbs(name) && base != "" {
		return filepath.Join(base, name), nil
	}
	out, err := filepath.Abs(name)
	if err != nil {
		return "", errors.New("the current folder is unknown")
	}
	return out, nil
}

// mask replaces secrets when a configuration is shown.
const mask = "***"

// sensitive matches names of variables and headers that contain secrets.
var sensitive = lazyregexp.New(`(?i)(key|token|secret|passw|pwd|auth|cookie|credential|signature)`)

// assignment matches a secret in a longer text: password=…, --api-key=….
var assignment = lazyregexp.New(`(?i)([a-z0-9_.-]*(?:key|token|secret|passw(?:or)?d|pwd|credential|auth)[a-z0-9_.-]*\s*[=:]\s*)([^\s&;,]+)`)

// mayAssign reports whether [assignment] may match. It is faster, and each run checks addresses.
func mayAssign(text string) bool {
	text = strings.ToLower(text)
	for _, word := range []string{"key", "token", "secret", "passw", "pwd", "credential", "auth"} {
		if strings.Contains(text, word) {
			return true
		}
	}
	return strings.ContainsFunc(text, func(r rune) bool { return r > '~' }) // case folding may match it with a letter
}

// userinfo matches the password in an address, even if the address is not a valid URL.
var userinfo = lazyregexp.New(`(://[^/?#@\s:]*:)([^/?#\s]*)(@)`)

// scheme matches the scheme at the beginning of an Authorization header.
var scheme = lazyregexp.New(`^(?i)(bearer|basic|token|apikey)\s+`)

// tokenUser matches the user of a NATS address without a password, which is a token.
var tokenUser = lazyregexp.New(`(://)([^/?#@:\s]+)(@)`)

// everydayEnv matches variables without secrets. Masking, for example, the home folder everywhere
// would make messages unreadable.
var everydayEnv = lazyregexp.New(`^(HOME|PWD|USER|LOGNAME|HOSTNAME|LANG|LC_.*|PATH|SHELL|TERM|TZ|TMPDIR|XDG_.*)$`)

// isSecret reports whether the value of a reference must be masked. References in paths, addresses
// and prompts are not secrets as a whole; [Value.secretsOf] finds the password in an address.
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

// secretName returns the name of the secret that these parts give: that of the only reference to a
// variable or a stored secret among them, or otherwise the key path.
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

// inside returns the patterns of secrets within a longer text, or nil if the Value has none there.
// The second group of each pattern is the secret.
func (v Value) inside() []*lazyregexp.Regexp {
	switch {
	case v.secret == "args":
		return []*lazyregexp.Regexp{assignment}
	case v.secret == "url" && v.format == "bus":
		return []*lazyregexp.Regexp{assignment, userinfo, tokenUser}
	case v.secret == "url":
		return []*lazyregexp.Regexp{assignment, userinfo}
	}
	return nil
}

// secretsOf returns the secrets in text, which is the resolved Value.
func (v Value) secretsOf(text string) (out []string) {
	if v.secret == "all" || v.secret == "notify" || v.secret == "named" && sensitive.MatchString(lastKey(v.at.Key)) {
		out = append(out, text)
		if bare := scheme.ReplaceAllString(text, ""); bare != text {
			out = append(out, bare)
		}
	}
	for _, pattern := range v.inside() {
		if pattern == assignment && !mayAssign(text) || pattern != assignment && !strings.Contains(text, "@") {
			continue
		}
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

// masked returns the Value for display: literal secrets are replaced, references stay.
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
func hide(pattern *lazyregexp.Regexp, text string) string {
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
