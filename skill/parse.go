package skill

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib/guard"
)

// Parse reads a SKILL.md of at most [MaxSkillBytes]; name is that of its folder.
//
// The file begins with a line of three hyphens, YAML, and another such line; the
// rest is the body. name and description are required; license, compatibility,
// metadata, allowed-tools (or allowed_tools) and enabled are known; other keys are
// kept as notices, but for those that read like allowed-tools or enabled and are
// not: taking them for unknown would widen what the author meant to narrow.
// allowed-tools is a list, or a text that is split at commas and space outside
// parentheses; present and empty (or null) allows nothing (N15).
//
// The error is an [*Error] with the line. Fields that only [Load] knows stay empty.
func Parse(name string, data []byte) (*Skill, error) {
	s, err := parse(name, data)
	if err == nil {
		return s, nil
	}
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Message: err.Error()}
	}
	e.Skill = ShownName(name)
	return nil, e
}

func parse(name string, data []byte) (*Skill, error) {
	if !ValidName(name) {
		return nil, lineErrorf(0, "a skill's folder cannot be called %s: %s", quote(name), nameRule)
	}
	if len(data) > MaxSkillBytes {
		return nil, lineErrorf(0, "the file has %d bytes, more than the %d that are allowed; move parts of it into files beside it", len(data), MaxSkillBytes)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return nil, lineErrorf(0, "the file is not valid UTF-8 text")
	}
	front, body, err := split(string(data))
	if err != nil {
		return nil, err
	}
	v, err := parseYAML(front, 2)
	if err != nil {
		return nil, err
	}
	if v.kind != kindDict {
		return nil, lineErrorf(1, "the front matter must be a mapping with name and description, not %s", v.kind)
	}
	r := reader{skill: &Skill{Name: name, Enabled: true, Body: body}}
	if err := r.read(v); err != nil {
		return nil, err
	}
	r.lookAt(body)
	return r.skill, nil
}

const nameRule = "1 to 64 of a-z, 0-9 and -, no hyphen at either end and no two in a row"

// split parts the front matter from the body.
func split(text string) (front, body string, err error) {
	line, rest, more := strings.Cut(text, "\n")
	if strings.TrimRight(line, " \t\r") != "---" {
		return "", "", lineErrorf(1, "the file must begin with front matter: a line ---, then name and description, then a line ---")
	}
	for at := 0; more; {
		var inner string
		inner, _, more = strings.Cut(rest[at:], "\n")
		next := min(at+len(inner)+1, len(rest))
		if strings.TrimRight(inner, " \t\r") == "---" {
			return rest[:at], rest[next:], nil
		}
		if at = next; at > MaxFrontMatterBytes {
			return "", "", lineErrorf(1, "the front matter has more than %d bytes, or no line --- ends it", MaxFrontMatterBytes)
		}
	}
	return "", "", lineErrorf(1, "no line --- ends the front matter")
}

// reader fills a skill from its front matter.
type reader struct {
	skill    *Skill
	has      map[string]int // known key -> line
	declared string         // the spelling of allowed-tools that was met
}

func (r *reader) notice(format string, args ...any) {
	if len(r.skill.Notices) < maxNotices {
		r.skill.Notices = append(r.skill.Notices, fmt.Sprintf(format, args...))
	}
}

var keyPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

func (r *reader) read(v value) error {
	r.has = map[string]int{}
	for _, e := range v.entries {
		if !keyPattern.MatchString(e.key) {
			return lineErrorf(e.line, "the key %s has characters that no key has: letters a-z, digits, . _ and -", quote(e.key))
		}
		r.has[e.key] = e.line
		if err := r.key(e); err != nil {
			return err
		}
	}
	for _, key := range []string{"name", "description"} {
		if r.has[key] == 0 {
			return lineErrorf(1, "%s is missing in the front matter", key)
		}
	}
	return nil
}

func (r *reader) key(e entryOf) (err error) {
	s := r.skill
	switch e.key {
	case "name":
		return r.name(e)
	case "description":
		s.Description, err = text(e, maxDescription, true)
	case "license":
		s.License, err = text(e, maxLicense, false)
	case "compatibility":
		s.Compatibility, err = text(e, maxCompatibility, false)
	case "metadata":
		return r.metadata(e)
	case "allowed-tools", "allowed_tools":
		return r.allowed(e)
	case "enabled":
		if e.value.kind != kindBool {
			return lineErrorf(e.line, "enabled must be true or false, not %s", e.value.kind)
		}
		s.Enabled = strings.EqualFold(e.value.text, "true")
	default:
		return r.unknown(e)
	}
	return err
}

func (r *reader) name(e entryOf) error {
	switch written := e.value.text; {
	case e.value.kind != kindText && e.value.kind != kindWord && e.value.kind != kindBool:
		return lineErrorf(e.line, "name must be a text, not %s", e.value.kind)
	case !ValidName(written):
		return lineErrorf(e.line, "name: %s is no good name: %s", quote(written), nameRule)
	case written != r.skill.Name:
		return lineErrorf(e.line, "name: %s must be the name of the folder, %s", quote(written), quote(r.skill.Name))
	}
	return nil
}

// text reads a scalar as a text of bounded length, in characters.
func text(e entryOf, limit int, required bool) (string, error) {
	switch e.value.kind {
	case kindText, kindWord, kindBool:
	case kindNull:
		if !required {
			return "", nil
		}
		return "", lineErrorf(e.line, "%s must not be empty", e.key)
	default:
		return "", lineErrorf(e.line, "%s must be a text, not %s", e.key, e.value.kind)
	}
	written := strings.TrimSpace(e.value.text)
	if n := utf8.RuneCountInString(written); n > limit {
		return "", lineErrorf(e.line, "%s has %d characters, more than the %d that are allowed", e.key, n, limit)
	}
	cleaned := strings.TrimSpace(guard.Clean(written))
	if cleaned == "" && required {
		return "", lineErrorf(e.line, "%s must not be empty", e.key)
	}
	return cleaned, nil
}

func (r *reader) metadata(e entryOf) error {
	switch e.value.kind {
	case kindDict:
	case kindNull:
		return nil
	default:
		return lineErrorf(e.line, "metadata must be a mapping, not %s", e.value.kind)
	}
	if len(e.value.entries) > maxMetadata {
		return lineErrorf(e.line, "metadata has %d keys, more than the %d that are allowed", len(e.value.entries), maxMetadata)
	}
	r.skill.Metadata = make(map[string]string, len(e.value.entries))
	for _, m := range e.value.entries {
		switch m.value.kind {
		case kindText, kindWord, kindBool:
		default:
			r.notice("metadata.%s is %s, not a text, and is passed over", short(m.key), m.value.kind)
			continue
		}
		if len(m.value.text) > maxMetadataBytes || len(m.key) > maxNameBytes {
			return lineErrorf(m.line, "metadata: %s is longer than %d bytes, or its key than %d", quote(m.key), maxMetadataBytes, maxNameBytes)
		}
		r.skill.Metadata[guard.Clean(m.key)] = guard.Clean(m.value.text)
	}
	return nil
}

// allowed reads allowed-tools in either form.
func (r *reader) allowed(e entryOf) error {
	if r.declared != "" {
		return lineErrorf(e.line, "%s: %s stands there already; keep one of them", e.key, r.declared)
	}
	r.declared = e.key
	var words []string
	switch e.value.kind {
	case kindNull:
	case kindText:
		words = splitEntries(e.value.text)
	case kindList:
		for _, item := range e.value.items {
			if item.kind != kindText {
				return lineErrorf(item.line, "%s: each entry must be a text such as Read or Bash(git:*), not %s", e.key, item.kind)
			}
			words = append(words, splitEntries(item.text)...)
		}
	default:
		return lineErrorf(e.line, "%s must be a list or a text, not %s; [] means no tools", e.key, e.value.kind)
	}
	if len(words) > maxEntries {
		return lineErrorf(e.line, "%s has %d entries, more than the %d that are allowed", e.key, len(words), maxEntries)
	}
	r.skill.AllowedTools = []string{}
	seen := make(map[string]bool, len(words))
	for _, word := range words {
		entry, err := ParseEntry(word)
		if err != nil {
			r.notice("%s: %s allows nothing: %v", e.key, quote(word), err)
			continue
		}
		canonical := entry.String()
		if seen[canonical] {
			continue
		}
		seen[canonical] = true
		r.skill.AllowedTools = append(r.skill.AllowedTools, canonical)
		if problem := entry.problem(); problem != "" {
			r.notice("%s: %s allows nothing: %s", e.key, quote(word), problem)
		}
	}
	return nil
}

// unknown keeps a key that means nothing here as a notice.
func (r *reader) unknown(e entryOf) error {
	plain := strings.Map(func(c rune) rune {
		if c == '-' || c == '_' || c == '.' {
			return -1
		}
		return c
	}, strings.ToLower(e.key))
	switch plain {
	case "allowedtools", "allowedtool", "allowtools", "toolsallowed", "tools", "disallowedtools":
		return lineErrorf(e.line, "the key %s is not known; write allowed-tools, or leave it out if it is to restrict nothing", e.key)
	case "enabled", "enable", "disabled", "disable":
		return lineErrorf(e.line, "the key %s is not known; write enabled: true or enabled: false", e.key)
	}
	r.notice("the key %s means nothing to toolcrib", e.key)
	return nil
}

// lookAt tells of things in the text that a person who looks at it may not see.
func (r *reader) lookAt(body string) {
	if strings.TrimSpace(body) == "" {
		r.notice("there is no text after the front matter")
	}
	if guard.Clean(body) != body {
		r.notice("the text has hidden characters; they are removed or shown to the model")
	}
	if guard.Neutralize(body) != body || breakTokens(body) != body {
		r.notice("the text has marks that pass for toolcrib's or a chat's own; the model reads them as plain text")
	}
	for _, p := range r.variables() {
		r.notice("the text has the variable ${%s}", p)
	}
}

func (r *reader) variables() []string {
	names := r.skill.Variables()
	return names[:min(len(names), 8)]
}

// maxShown bounds a piece of a skill that is repeated in a message.
const maxShown = 80

func short(s string) string {
	if len(s) > maxShown {
		s = strings.ToValidUTF8(s[:maxShown], "") + "…"
	}
	return guard.Visible(s)
}

func quote(s string) string { return strconv.Quote(short(s)) }

// ShownName is a folder's name as messages show it.
func ShownName(name string) string {
	if ValidName(name) {
		return name
	}
	return quote(name)
}
