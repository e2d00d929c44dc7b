package texttag

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// body finds the end of a call's tag: the first closing tag that is not in a JSON
// string, so that arguments may contain any text, also a closing tag.
type body struct {
	buf  strings.Builder
	at   int // buf[:at] is scanned
	json wire.Nesting
	// inner is one more than the offset of the first closing tag inside a string. If the string
	// never ends, that tag is the end.
	inner int
	size  int // bytes of the text before the end
}

// write adds a piece. done reports whether the tag has ended; rest is the text after it.
func (b *body) write(s string) (rest string, done bool) {
	room := maxBody - b.buf.Len()
	b.buf.WriteString(s[:min(room, len(s))])
	if end, after := b.scan(); end >= 0 {
		b.size = end
		return b.buf.String()[after:] + s[min(room, len(s)):], true
	}
	if b.buf.Len() >= maxBody {
		b.size = b.buf.Len()
		return s[min(room, len(s)):], true
	}
	return "", false
}

// text returns the text inside the tag.
func (b *body) text() string { return b.buf.String()[:b.size] }

// scan continues scanning. It returns the end of the text inside the tag, and the position
// after the closing tag; both are -1 if the tag has not ended.
func (b *body) scan() (end, after int) {
	s := b.buf.String()
	for b.at < len(s) {
		i := b.at
		if s[i] == '<' || s[i] == 0xEF {
			if nextBracket(s[i:i+min(3, len(s)-i)], 0) == 0 {
				t, v := scanTag(s[i:], mayContinue)
				switch {
				case v == isPartial:
					return -1, -1
				case v == isTag && b.json.InString:
					if b.inner == 0 && t.kind == tagClose {
						b.inner = i + 1
					}
				case v == isTag && t.kind == tagClose:
					return i, i + t.size
				case v == isTag && b.json.Whole():
					return i, i // the closing tag is missing
				}
			}
		}
		b.json.Step(s[i])
		b.at++
	}
	return -1, -1
}

// end ends a reply inside the tag. complete reports whether
// the text is a whole JSON value.
func (b *body) end(end ending) (text string, complete bool) {
	text = b.buf.String()
	if b.at < len(text) && !b.json.InString { // the scan stopped at a partial closing tag
		if _, v := scanTag(text[b.at:], end); v == isTag {
			text = text[:b.at]
		}
	}
	if b.json.InString && b.inner > 0 {
		return text[:b.inner-1], false
	}
	return text, b.json.Whole()
}

type call struct {
	name      string
	arguments string   // as the model wrote them; if there is a problem, the whole text
	problem   string   // why it is not a valid call; "" if it is
	cut       bool     // the reply was cut inside it
	notes     []string // what was ignored to read it
}

func (c *call) note(what string) { c.notes = append(c.notes, what) }

// Keys of a call. The last two are accepted for args, because many models
// were trained on them.
const (
	keyName       = "name"
	keyArgs       = "args"
	keyArguments  = "arguments"
	keyParameters = "parameters"
)

// bodyLimits returns limits that are a little wider than those of a call's arguments, so
// that a text beyond them also violates those.
func bodyLimits() guard.JSONLimits {
	return guard.JSONLimits{MaxBytes: maxBody, MaxDepth: guard.MaxArgumentsDepth + 2}
}

// parseBody parses the text inside a tag strictly, but ignores parts
// that leave no doubt about the meaning.
func parseBody(text string) call {
	s := strings.TrimSpace(text)
	var notes []string
	if _, err := bodyLimits().Canonical([]byte(s)); err != nil {
		inner, ok := onlyValue(s)
		if !ok {
			return brokenBody(text)
		}
		if _, err := bodyLimits().Canonical([]byte(inner)); err != nil {
			return brokenBody(text)
		}
		s, notes = inner, []string{"text or a code fence stood around the JSON"}
	}
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(s), &members) != nil || members == nil {
		return brokenBody(text)
	}
	c := interpret(members)
	if c.problem != "" {
		c.arguments = text
		return c
	}
	c.notes = append(notes, c.notes...)
	return c
}

// member matches text of an object whose beginning is missing.
var member = lazyregexp.New(`"\s*:`)

// onlyValue returns the one JSON object in a text. It must begin with the first brace, and
// no other brace may follow it: a part of a broken value could be
// another call than the intended one.
func onlyValue(s string) (string, bool) {
	from := strings.IndexByte(s, '{')
	if from < 0 {
		return "", false
	}
	d := json.NewDecoder(strings.NewReader(s[from:]))
	var value json.RawMessage
	if d.Decode(&value) != nil {
		return "", false
	}
	to := from + int(d.InputOffset())
	if strings.Contains(s[to:], "{") || member.MatchString(s[:from]) || member.MatchString(s[to:]) {
		return "", false
	}
	return s[from:to], true
}

func interpret(members map[string]json.RawMessage) (c call) {
	raw, ok := members[keyName]
	if !ok {
		c.problem = `"name" is missing: expected {"name": "NAME", "args": {…}}`
		return c
	}
	if json.Unmarshal(raw, &c.name) != nil || c.name == "" {
		c.name, c.problem = "", `"name" must be a text that names a tool`
		return c
	}
	key := ""
	for _, k := range slices.Sorted(maps.Keys(members)) {
		switch k {
		case keyArgs, keyArguments, keyParameters:
			if key != "" {
				c.problem = fmt.Sprintf("%q and %q are both given; give the arguments once, in %q", key, k, keyArgs)
				return c
			}
			key = k
		case keyName:
		case "id", "type":
			c.note(fmt.Sprintf("%q was passed over", k))
		default:
			c.problem = `only "name" and "args" are known here; every argument belongs into "args"`
			return c
		}
	}
	if key == "" {
		c.arguments = "{}"
		return c
	}
	c.readArguments(key, strings.TrimSpace(string(members[key])))
	return c
}

func (c *call) readArguments(key, raw string) {
	if key != keyArgs {
		c.note(fmt.Sprintf("%q stood for %q", key, keyArgs))
	}
	switch raw[0] {
	case '{':
		c.arguments = raw
		return
	case 'n':
		c.arguments = "{}"
		c.note(fmt.Sprintf("%q was null", key))
		return
	case '"':
		var text string
		if json.Unmarshal([]byte(raw), &text) == nil && strings.HasPrefix(strings.TrimSpace(text), "{") {
			if _, err := guard.Arguments([]byte(text)); err == nil {
				c.arguments = text
				c.note(fmt.Sprintf("%q was a text that holds an object", key))
				return
			}
		}
	}
	c.problem = fmt.Sprintf("%q must be a JSON object", key)
}

// brokenBody returns the call of a text that is not a JSON object.
func brokenBody(text string) call {
	c := call{name: nameOf(text), arguments: text}
	_, err := guard.Arguments([]byte(text))
	switch {
	case strings.TrimSpace(text) == "":
		c.problem = "the tag is empty"
	case err != nil:
		c.problem = err.Error()
	default:
		c.problem = `expected one JSON object {"name": "NAME", "args": {…}}`
	}
	return c
}

// nameOf returns the tool that a broken text calls, or "" if it is unknown.
func nameOf(text string) string {
	from := strings.IndexByte(text, '{')
	if from < 0 || member.MatchString(text[:from]) {
		return ""
	}
	d := json.NewDecoder(strings.NewReader(text[from:]))
	if _, err := d.Token(); err != nil {
		return ""
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return ""
		}
		if key == keyName {
			name, err := d.Token()
			if text, ok := name.(string); err == nil && ok && toolcrib.ValidToolName(text) {
				return text
			}
			return ""
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return ""
		}
	}
	return ""
}
