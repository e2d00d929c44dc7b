package skill

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/internal/yamltree"
)

// Parse parses a SKILL.md of at most [MaxSkillBytes]; name is the name of its folder.
//
// The file begins with a line of three hyphens, YAML, and another such line; the rest is the body. name and
// description are required. allowed-tools (or allowed_tools) and enabled have an effect; license, compatibility and
// metadata do not. Other keys are reported as notices, except misspellings of allowed-tools or enabled, which are
// errors: ignoring them would widen what the author meant to restrict. The folder's name is the name of the skill;
// a different name in the file is reported as a notice. allowed-tools is a list, or a text that is split at commas
// and space outside parentheses; if it is present and empty (or null), it allows nothing. Its names are
// converted to this program's tools by aliases, which may be nil.
//
// The error is an [*Error] with the line. Fields that only [Load] knows stay empty.
func Parse(name string, data []byte, aliases map[string]string) (*Skill, error) {
	if !ValidName(name) {
		return nil, lineErrorf(0, "a skill's folder cannot be called %s: %s", quote(name), nameRule)
	}
	if len(data) > MaxSkillBytes {
		return nil, lineErrorf(0,
			"the file has %d bytes, more than the %d that are allowed; move parts of it into files beside "+
				"it", len(data), MaxSkillBytes)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return nil, lineErrorf(0, "the file is not valid UTF-8 text")
	}
	front, body, err := split(string(data))
	if err != nil {
		return nil, err
	}
	v, errs := yamltree.Parse([]byte(front), limits)
	quoted := false
	if len(errs) > 0 {
		if v, quoted = quotedDescription(front); !quoted {
			return nil, lineErrorf(errs[0].Line, "%s", guard.Visible(errs[0].Message))
		}
	}
	if v.Kind != yamltree.Map {
		return nil, lineErrorf(1, "the front matter must be a mapping with name and description, not %s", v.Kind)
	}
	r := reader{skill: &Skill{Name: name, Body: body}, aliases: aliases}
	if err := r.read(v); err != nil {
		return nil, err
	}
	if quoted {
		r.notice("description: it has a colon and needs quotes in YAML; it is read as if it had them")
	}
	r.lookAt(body)
	return r.skill, nil
}

// limits are the bounds of front matter, which begins in the second line.
var limits = yamltree.Limits{Bytes: MaxFrontMatterBytes + 1, Tokens: 6000, Depth: 10, FirstLine: 2}

func lineErrorf(line int, format string, args ...any) *Error {
	return &Error{Line: line, Message: fmt.Sprintf(format, args...)}
}

var plainDescription = lazyregexp.New(`(?m)^description:[ \t]+([A-Za-z0-9][^\r\n]*)\r?\n`)

// quotedDescription parses front matter as if its one-line, unquoted description had quotes. Other
// programs accept a colon in it, and many skills have one. Everything else is parsed as YAML.
func quotedDescription(front string) (*yamltree.Node, bool) {
	at := plainDescription.FindStringSubmatchIndex(front)
	if at == nil || strings.Contains(front[at[2]:at[3]], " #") || strings.HasPrefix(front[at[1]:], " ") {
		return nil, false
	}
	text := "'" + strings.ReplaceAll(front[at[2]:at[3]], "'", "''") + "'"
	v, errs := yamltree.Parse([]byte(front[:at[2]]+text+front[at[3]:]), limits)
	return v, len(errs) == 0
}

const nameRule = "1 to 64 of a-z, 0-9 and -, no hyphen at either end and no two in a row"

// split separates the front matter from the body.
func split(text string) (front, body string, err error) {
	line, rest, more := strings.Cut(text, "\n")
	if strings.TrimRight(line, " \t\r") != "---" {
		return "", "", lineErrorf(1,
			"the file must begin with front matter: a line ---, then name and description, then a line ---")
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

// reader sets the fields of a skill from its front matter.
type reader struct {
	skill    *Skill
	has      map[string]int // line of each known key
	aliases  map[string]string
	declared string // spelling of allowed-tools in the file
}

func (r *reader) notice(format string, args ...any) {
	if len(r.skill.Notices) < maxNotices {
		r.skill.Notices = append(r.skill.Notices, fmt.Sprintf(format, args...))
	}
}

var keyPattern = lazyregexp.New(`^[A-Za-z0-9_.-]{1,64}$`)

func (r *reader) read(v *yamltree.Node) error {
	r.has = map[string]int{}
	for _, e := range v.Entries {
		if !keyPattern.MatchString(e.Key) {
			return lineErrorf(e.Value.Line, "the key %s has invalid characters; use letters a-z, digits, . _ and -",
				quote(e.Key))
		}
		r.has[e.Key] = e.Value.Line
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

func (r *reader) key(e yamltree.Entry) error {
	s := r.skill
	switch e.Key {
	case "name":
		return r.name(e)
	case "description":
		return r.description(e)
	case "license", "compatibility", "metadata": // for people and other programs
	case "allowed-tools", "allowed_tools":
		return r.allowed(e)
	case "enabled", "disable-model-invocation":
		if e.Value.Kind != yamltree.Bool {
			return lineErrorf(e.Value.Line, "%s must be true or false, not %s", e.Key, e.Value.Kind)
		}
		switch {
		case e.Key != "enabled":
			s.Unlisted = e.Value.IsTrue()
		case !e.Value.IsTrue():
			s.Reason, s.Detail = ReasonDisabled, "enabled: false in its "+FileName
		}
	default:
		return r.unknown(e)
	}
	return nil
}

func (r *reader) name(e yamltree.Entry) error {
	switch written := e.Value.Text; {
	case !e.Value.IsScalar():
		return lineErrorf(e.Value.Line, "name must be a text, not %s", e.Value.Kind)
	case written != r.skill.Name:
		r.notice("name: it says %s; the skill has the name of its folder", quote(written))
	}
	return nil
}

func (r *reader) description(e yamltree.Entry) error {
	if e.Value.Kind != yamltree.Null && !e.Value.IsScalar() {
		return lineErrorf(e.Value.Line, "description must be a text, not %s", e.Value.Kind)
	}
	written := ""
	if e.Value.Kind != yamltree.Null {
		written = strings.TrimSpace(e.Value.Text)
	}
	n := utf8.RuneCountInString(written)
	if n > maxDescription {
		return lineErrorf(e.Value.Line, "description has %d characters, more than the %d that are allowed", n, maxDescription)
	}
	if n > usualDescription {
		r.notice("description has %d characters; the convention allows %d", n, usualDescription)
	}
	if r.skill.Description = strings.TrimSpace(guard.Clean(written)); r.skill.Description == "" {
		return lineErrorf(e.Value.Line, "description must not be empty")
	}
	return nil
}

// allowed parses allowed-tools in either form.
func (r *reader) allowed(e yamltree.Entry) error {
	if r.declared != "" {
		return lineErrorf(e.Value.Line, "%s: %s is already given; keep one of them", e.Key, r.declared)
	}
	r.declared = e.Key
	var words []string
	switch e.Value.Kind {
	case yamltree.Null:
	case yamltree.Text:
		words = splitEntries(e.Value.Text)
	case yamltree.List:
		for _, item := range e.Value.Items {
			if item.Kind != yamltree.Text {
				return lineErrorf(item.Line, "%s: each entry must be a text such as Read or Bash(git:*), not %s", e.Key, item.Kind)
			}
			words = append(words, splitEntries(item.Text)...)
		}
	default:
		return lineErrorf(e.Value.Line, "%s must be a list or a text, not %s; [] means no tools", e.Key, e.Value.Kind)
	}
	if len(words) > maxEntries {
		return lineErrorf(e.Value.Line, "%s has %d entries, more than the %d that are allowed", e.Key, len(words), maxEntries)
	}
	r.skill.AllowedTools = []string{}
	seen := make(map[string]bool, len(words))
	for _, word := range words {
		entry, err := ParseEntry(word, r.aliases)
		if err != nil {
			r.notice("%s: %s allows nothing: %v", e.Key, quote(word), err)
			continue
		}
		canonical := entry.String()
		if seen[canonical] {
			continue
		}
		seen[canonical] = true
		r.skill.AllowedTools = append(r.skill.AllowedTools, canonical)
	}
	return nil
}

// unknown records an unknown key as a notice.
func (r *reader) unknown(e yamltree.Entry) error {
	plain := strings.Map(func(c rune) rune {
		if c == '-' || c == '_' || c == '.' {
			return -1
		}
		return c
	}, strings.ToLower(e.Key))
	switch plain {
	case "allowedtools", "allowedtool", "allowtools", "toolsallowed", "tools", "disallowedtools":
		return lineErrorf(e.Value.Line,
			"the key %s is not known; write allowed-tools, or leave it out to restrict nothing", e.Key)
	case "enabled", "enable", "disabled", "disable":
		return lineErrorf(e.Value.Line, "the key %s is unknown; write enabled: true or enabled: false", e.Key)
	}
	r.notice("the key %s means nothing to toolcrib", e.Key)
	return nil
}

// lookAt adds notices about text that a person may not see.
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
}

// maxShown bounds a part of a skill that is repeated in a message.
const maxShown = 80

func short(s string) string { return guard.Visible(guard.Clip(s, maxShown)) }

func quote(s string) string { return strconv.Quote(short(s)) }

// ShownName returns a folder's name for messages.
func ShownName(name string) string {
	if ValidName(name) {
		return name
	}
	return quote(name)
}
