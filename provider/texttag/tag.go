package texttag

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Tags of the protocol.
const (
	callTag      = "tool_call"
	callOpen     = "<" + callTag + ">"
	callClose    = "</" + callTag + ">"
	resultTag    = "tool_result"
	untrustedTag = "untrusted_input"
)

// tagKind is the meaning of a piece of markup.
type tagKind int

const (
	tagNone  tagKind = iota
	tagOpen          // begins a call
	tagClose         // ends a call
	tagStray         // any other markup of the protocol, including partial tags
)

type verdict int

const (
	isNone    verdict = iota
	isPartial         // depends on the text that follows
	isTag             // the first size bytes are markup
)

// ending says what follows the scanned text.
type ending int

const (
	mayContinue ending = iota // more may come
	ended                     // nothing, because the model stopped
	cutOff                    // nothing, because the reply was cut off by its length limit
)

// tag is the markup that scanTag found.
type tag struct {
	kind  tagKind
	size  int
	exact bool // written exactly as in the protocol
	// meets is, with isNone, the offset of a bracket that kept the text from being a
	// tag, or 0. The markup at that bracket may be removed.
	meets int
}

const (
	maxAttributes = 256 // bytes of a tag after its name
	maxBlank      = 32  // ignored characters at one place of a tag
	tellingName   = 4   // least number of letters by which a partial name at the end is recognized as a partial tag
)

// names are the words of the protocol's tags, before and after the underscore.
var names = [...]struct {
	first, second string
	call          bool
}{{"tool", "call", true}, {"tool", "result", false}, {"untrusted", "input", false}}

// scanTag reports whether s begins with markup of the protocol, read leniently:
// in any letter case, with full-width and look-alike letters, with space and invisible
// characters between the parts, with a hyphen or nothing for the underscore. s must
// begin with a bracket. The result depends on a bounded prefix of s only, so that it is
// the same wherever a stream is split into pieces.
func scanTag(s string, end ending) (tag, verdict) {
	c := cursor{s: s}
	r, _ := c.next()
	if c.short {
		return c.undecided(end, 0)
	}
	if !opensTag(r) {
		return tag{}, isNone
	}
	c.blanks()
	closing := false
	for range 2 {
		if r, size := c.peek(); slash(r) {
			closing = true
			c.i += size
			c.blanks()
		}
	}
	c.separators()
	if c.short {
		return c.undecided(end, 0)
	}
	best := c.bestName()
	switch best.v {
	case isPartial:
		return c.undecided(end, best.letters)
	case isNone:
		return tag{meets: best.meets}, isNone
	}
	t, v := c.rest(best.after, closing, best.call, end)
	t.exact = v == isTag && (s[:t.size] == callOpen || s[:t.size] == callClose)
	return t, v
}

// bestName returns the name that matches best at the cursor.
func (c *cursor) bestName() (best named) {
	for _, n := range names {
		found := c.name(n.first, n.second)
		found.call = n.call
		if found.v > best.v || found.v == best.v && (found.letters > best.letters || found.meets > best.meets) {
			best = found
		}
	}
	return best
}

// undecided returns the result for a text that ends inside a possible tag. At the
// end of a reply it is a partial tag if enough of a name matched, or if the
// reply was cut off.
func (c *cursor) undecided(end ending, letters int) (tag, verdict) {
	switch {
	case end == mayContinue:
		return tag{}, isPartial
	case end == cutOff || letters >= tellingName:
		return tag{kind: tagStray, size: len(c.s)}, isTag
	}
	return tag{}, isNone
}

type named struct {
	v       verdict
	call    bool
	letters int // number of letters that matched
	after   int // offset after the name
	meets   int // offset of the bracket at which it ended
}

// name matches a tag's name at the cursor, which does not move.
func (c cursor) name(first, second string) named {
	n := named{v: isPartial}
	for part, letters := range [...]string{first, second} {
		if part == 1 {
			c.separators()
		}
		for i := 0; i < len(letters); i++ {
			c.unseen()
			at := c.i
			r, ok := c.next()
			if !ok {
				return n
			}
			if !shows(r, letters[i]) {
				n.v = isNone
				if opensTag(r) {
					n.meets = at
				}
				return n
			}
			n.letters++
		}
	}
	n.v, n.after = isTag, c.i
	return n
}

// rest scans a tag after its name.
func (c cursor) rest(from int, closing, call bool, end ending) (tag, verdict) {
	c.i = from
	t := tag{kind: tagStray, size: from}
	if call {
		t.kind = tagOpen
		if closing {
			t.kind = tagClose
		}
	}
	half := tag{kind: tagStray, size: from}
	c.skip(maxBlank, joins)
	if r, _ := c.peek(); letterOrDigit(r) {
		return tag{}, isNone // another, longer name
	}
	from = c.i
	c.blanks()
	r, size := c.peek()
	switch {
	case c.short && end == mayContinue:
		return tag{}, isPartial
	case c.short:
		half.size = len(c.s)
		if call && !closing && end == cutOff {
			half.kind = tagOpen // the reply was cut off in the call
		}
		return half, isTag
	case closesTag(r):
		t.size = c.i + size
		return t, isTag
	case r == '{' && t.kind == tagOpen:
		t.size = c.i
		return t, isTag
	case slash(r):
		c.i += size
		c.blanks()
		if r, size := c.peek(); closesTag(r) {
			return tag{kind: tagStray, size: c.i + size}, isTag
		}
		if c.short && end == mayContinue {
			return tag{}, isPartial
		}
		return half, isTag
	case c.i > from && letterOrDigit(r):
		return c.attributes(t, half, end)
	}
	return half, isTag
}

// attributes scans up to the bracket that ends the tag. Without an equals sign the text
// is prose after a partial tag.
func (c cursor) attributes(t, half tag, end ending) (tag, verdict) {
	equals := false
	for from := c.i; c.i-from < maxAttributes; {
		r, ok := c.next()
		switch {
		case !ok && end == mayContinue:
			return tag{}, isPartial
		case !ok && equals:
			half.size = len(c.s)
			return half, isTag
		case !ok, opensTag(r), r == '{', r == '\n':
			return half, isTag
		case r == '=':
			equals = true
		case closesTag(r) && !equals:
			return half, isTag
		case closesTag(r):
			t.size = c.i
			return t, isTag
		}
	}
	return half, isTag
}

// cursor moves over a text by characters. short is set once it has reached the end.
type cursor struct {
	s     string
	i     int
	short bool
}

// peek returns the next character; at the end, and at an incomplete character, it
// returns -1 and sets short.
func (c *cursor) peek() (rune, int) {
	if c.i >= len(c.s) {
		c.short = true
		return -1, 0
	}
	if b := c.s[c.i]; b < utf8.RuneSelf {
		return rune(b), 1
	}
	if !utf8.FullRuneInString(c.s[c.i:]) {
		c.short = true
		return -1, 0
	}
	return utf8.DecodeRuneInString(c.s[c.i:])
}

func (c *cursor) next() (rune, bool) {
	r, size := c.peek()
	c.i += size
	return r, size > 0
}

func (c *cursor) skip(most int, over func(rune) bool) {
	for range most {
		r, size := c.peek()
		if size == 0 || !over(r) {
			return
		}
		c.i += size
	}
}

func (c *cursor) blanks() {
	c.skip(maxBlank, func(r rune) bool { return unicode.IsSpace(r) || unshown(r) })
}

func (c *cursor) unseen() { c.skip(maxBlank, unshown) }

// separators skips characters that may replace the underscore.
func (c *cursor) separators() {
	c.skip(maxBlank, func(r rune) bool { return unicode.IsSpace(r) || slash(r) || joins(r) })
}

// joins reports whether r joins the words of a name.
func joins(r rune) bool {
	return r == '_' || r == '-' || r == '.' || unshown(r) || unicode.In(r, unicode.Pc, unicode.Pd)
}

// unshown reports whether r is invisible.
func unshown(r rune) bool {
	return r >= 0x7F && (unicode.Is(unicode.Cf, r) || unicode.Is(unicode.M, r) || unicode.Is(unicode.Cc, r)) ||
		r >= 0 && r < 0x20 && !unicode.IsSpace(r)
}

func opensTag(r rune) bool  { return r == '<' || r == 0xFF1C || r == 0xFE64 }
func closesTag(r rune) bool { return r == '>' || r == 0xFF1E || r == 0xFE65 }
func slash(r rune) bool     { return r == '/' || r == '\\' || r == 0xFF0F }

func letterOrDigit(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// nextBracket returns the offset of the next character from i on that may begin a
// tag, or -1.
func nextBracket(s string, i int) int {
	for ; i < len(s); i++ {
		switch s[i] {
		case '<':
			return i
		case 0xEF: // the first byte of the wide brackets
			if !utf8.FullRuneInString(s[i:]) {
				return i
			}
			if r, _ := utf8.DecodeRuneInString(s[i:]); opensTag(r) {
				return i
			}
		}
	}
	return -1
}

// lookAlikes lists, after each letter, the letters of other scripts that look like it.
const lookAlikes = "aаα cсϲ dԁ eеε iіιıӏ lӏіⅼ nոп oоοօ pрρ rг sѕꜱ tтτ uυսц"

// shows reports whether r reads as the lower-case ASCII letter want.
func shows(r rune, want byte) bool {
	w := rune(want - 'a')
	switch {
	case r < utf8.RuneSelf:
		return r|0x20 == rune(want)
	case r >= 0xFF21 && r <= 0xFF5A: // full-width
		return r-0xFF21 == w || r-0xFF41 == w
	case r >= 0x1D400 && r <= 0x1D6A3: // mathematical alphabets, 26 capitals and 26 small letters each
		return (r-0x1D400)%26 == w
	}
	_, group, _ := strings.Cut(lookAlikes, string(want))
	group, _, _ = strings.Cut(group, " ")
	return strings.ContainsRune(group, unicode.ToLower(r))
}
