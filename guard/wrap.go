package guard

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	untrustedTag  = "untrusted_input"
	toolResultTag = "tool_result"
)

// maxAttributeBytes bounds a source or name in a wrapper, before escaping.
const maxAttributeBytes = 256

// WrapUntrusted fences untrusted data:
//
//	<untrusted_input source="…">
//	body
//	</untrusted_input>
//
// Nothing in the body can end the fence or imitate another: see [Neutralize].
func WrapUntrusted(source, body string) string {
	return FenceHead(source) + Neutralize(body) + fenceTail
}

// FenceHead returns the beginning of a fence of [WrapUntrusted].
func FenceHead(source string) string { return fenceHead + attribute(source) + "\">\n" }

const (
	fenceHead = "<" + untrustedTag + ` source="`
	fenceTail = "\n</" + untrustedTag + ">"
)

// Unfence returns the text inside content if that is one fence of [WrapUntrusted], optionally
// after a note, and nothing else. Forged fences are not accepted, because nothing inside a
// genuine one reads as a tag.
func Unfence(content string) (inside string, ok bool) {
	note, rest, ok := strings.Cut(content, fenceHead)
	if !ok {
		return "", false
	}
	source, rest, ok := strings.Cut(rest, "\">\n")
	if !ok || strings.ContainsAny(source, "<>\"\n") {
		return "", false
	}
	inside, ok = strings.CutSuffix(rest, fenceTail)
	if !ok || Neutralize(inside) != inside || Neutralize(note) != note {
		return "", false
	}
	return note + inside, true
}

// WrapToolResult writes a result for a model that uses the text protocol:
//
//	<tool_result name="NAME">
//	<untrusted_input>
//	body
//	</untrusted_input>
//	</tool_result>
func WrapToolResult(name, body string) string {
	return `<` + toolResultTag + ` name="` + attribute(name) + "\">\n<" + untrustedTag + ">\n" +
		Neutralize(body) + "\n</" + untrustedTag + ">\n</" + toolResultTag + ">"
}

// attribute escapes text for a quoted attribute, on one line.
func attribute(s string) string {
	s = strings.NewReplacer("\n", " ", "\r", " ", "\t", " ").Replace(Clean(Clip(s, maxAttributeBytes)))
	return strings.NewReplacer("&", "&amp;", `"`, "&quot;", "<", "&lt;", ">", "&gt;").Replace(s)
}

// Neutralize writes the "<" of everything in body that a reader could take for an
// opening or closing tag of a wrapper as "&lt;": "&lt;/untrusted_input>". The rest
// is unchanged. Such a tag is an angle bracket of any script and then untrusted_input or
// tool_result, in any letter case, full-width, mathematical or look-alike letters, with or
// without its underscore, and with any slashes, space and invisible characters before and
// between the letters. A body without one is returned unchanged.
func Neutralize(body string) string {
	var out []byte
	from := 0
	for i := 0; i < len(body); {
		c := body[i]
		if c < utf8.RuneSelf && c != '<' {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(body[i:])
		if opensTag(r) && namesWrapper(body[i+size:]) {
			out = append(out, body[from:i]...)
			out = append(out, "&lt;"...)
			from = i + size
		}
		i += size
	}
	if out == nil {
		return body
	}
	return string(append(out, body[from:]...))
}

// opensTag reports whether r is or looks like "<".
func opensTag(r rune) bool {
	switch r {
	case '<', 0xFF1C, 0xFE64, 0x2039, 0x3008, 0x2329, 0x27E8, 0x276C, 0x276E, 0x2770,
		0x1438, 0x02C2, 0x227A, 0x29FC, 0x1D236, 0x16B2, 0xFE3F, 0x300A, 0x00AB, 0x226A, 0x29FD:
		return true
	}
	return false
}

// namesWrapper reports whether s reads like the inside of a wrapper's tag.
func namesWrapper(s string) bool {
	return spells(s, untrustedTag) || spells(s, toolResultTag)
}

// unseen reports whether a reader may skip r inside a tag.
func unseen(r rune) bool {
	return r <= 0x20 || unicode.IsSpace(r) || unicode.Is(unicode.M, r) || hidden(r)
}

// spells reports whether s begins with the name, read leniently.
func spells(s, name string) bool {
	for i := 0; i < len(name); i++ {
		if name[i] == '_' {
			continue // optional; dashes are skipped below
		}
		s = strings.TrimLeftFunc(s, func(r rune) bool { return unseen(r) || dash(r) || slash(r) })
		r, size := utf8.DecodeRuneInString(s)
		if size == 0 || !shows(r, name[i]) {
			return false
		}
		s = s[size:]
	}
	return true
}

// slash reports whether r is or looks like a slash, which comes before the name in
// a closing tag and which some readers skip within it.
func slash(r rune) bool {
	switch r {
	case '/', '\\', 0x2215, 0x2044, 0x29F8, 0x29F9, 0xFF0F, 0xFF3C, 0x2571, 0x338, 0x337:
		return true
	}
	return false
}

func dash(r rune) bool {
	return r == '_' || r == '-' || r == '.' || unicode.In(r, unicode.Pc, unicode.Pd)
}

// lookAlikes lists, after each ASCII letter of the wrappers' names, the letters of other
// scripts that look like it.
const lookAlikes = "" +
	"dԁⅾɗđ" +
	"eеёєεеҽ℮ɛ" +
	"iіїιıɪⅰḭïíìî|1ӏǀ" +
	"lⅼӏǀ|1ıІ" +
	"nոռпηñɴ" +
	"oоοσօөøöóòôº0" +
	"pрρ" +
	"rгɾʀ" +
	"sѕꜱʂ$" +
	"tтτţᴛ†" +
	"uսυцüúùûᴜ" +
	"_"

// shows reports whether r reads as the lower-case ASCII letter want.
func shows(r rune, want byte) bool {
	switch w := rune(want); {
	case r < utf8.RuneSelf && r|0x20 == w:
		return true
	case r >= 0xFF21 && r <= 0xFF5A: // full-width
		return r-0xFF21 == w-'a' || r-0xFF41 == w-'a'
	case r >= 0x24B6 && r <= 0x24E9: // circled
		return (r-0x24B6)%26 == w-'a'
	case r >= 0x1D400 && r <= 0x1D6A3: // mathematical alphabets, 26 capitals and 26 small letters each
		return (r-0x1D400)%26 == w-'a'
	}
	group := lookAlikes[strings.IndexByte(lookAlikes, want)+1:]
	for _, l := range group {
		switch {
		case l >= 'a' && l <= 'z':
			return false
		case l == r || l == unicode.ToLower(r):
			return true
		}
	}
	return false
}

// Instruction-like phrases in untrusted data. The list is short on purpose:
// a mark is a hint to the model, not a defence; the gate limits what a tainted run may
// do.
var phrases = lazily(strings.NewReplacer(
	// A phrase may follow an escape of JSON, and its words may be separated by one.
	// All backslashes are matched, because nested JSON has several.
	"^", `(?:\b|\\+[nrtfb])`, " ", `(?:\s|\\+[nrtfb])+`, "~", `(?:\s|\\+[nrtfb])*`,
).Replace(`(?i)^(?:ignore|disregard|forget) (?:all )?(?:of )?(?:the |my |your |any )?(?:previous|prior|above|earlier|preceding)(?: (?:instructions?|directions?|prompts?|rules?|context|messages?))?` +
	`|^you are now\b` +
	`|^act as (?:an? )?\w+` +
	`|^pretend (?:to be|you are)\b` +
	`|^system prompt~:` +
	`|^new instructions?~:` +
	`|^(?:do not|don't|never) (?:tell|inform|mention (?:this |it )?to) the user\b`))

// The mark around an instruction-like phrase.
const (
	phraseMark    = "[instruction-like text in data: "
	phraseMarkEnd = "]"
)

// PhraseNeutralized replaces a phrase if the text need not be kept.
const PhraseNeutralized = "[neutralized]"

// MarkPhrases puts a mark around instruction-like phrases and keeps
// the text. The marks contain no quotes, so that JSON stays valid.
func MarkPhrases(s string) string {
	return phrases().ReplaceAllStringFunc(s, func(phrase string) string { return phraseMark + phrase + phraseMarkEnd })
}

// NeutralizePhrases replaces instruction-like phrases by
// [PhraseNeutralized], and returns their number.
func NeutralizePhrases(s string) (string, int) {
	n := len(phrases().FindAllStringIndex(s, -1))
	return phrases().ReplaceAllLiteralString(s, PhraseNeutralized), n
}

// CanaryPrefix begins every canary: a token that occurs only inside untrusted
// data, so that text with it repeats that data.
const CanaryPrefix = "CC_CANARY_"

// CanaryRedacted replaces a canary that leaked.
const CanaryRedacted = "[CANARY_REDACTED]"

// RedactCanary replaces the canary wherever it occurs in s, in any letter case, and
// returns how often. If canary is empty or does not occur, s itself is returned.
func RedactCanary(s, canary string) (redacted string, count int) {
	if canary == "" || len(s) < len(canary) {
		return s, 0
	}
	var b strings.Builder
	done := 0
	for i := 0; i+len(canary) <= len(s); {
		if !strings.EqualFold(s[i:i+len(canary)], canary) {
			i++
			continue
		}
		b.WriteString(s[done:i])
		b.WriteString(CanaryRedacted)
		i += len(canary)
		done = i
		count++
	}
	if count == 0 {
		return s, 0
	}
	b.WriteString(s[done:])
	return b.String(), count
}

// CanaryStream redacts a canary in text that comes in pieces. The zero value, with an
// empty canary, passes everything through.
type CanaryStream struct {
	canary string
	held   string // text that may be the beginning of the canary
}

// NewCanaryStream returns a stream for one canary.
func NewCanaryStream(canary string) *CanaryStream { return &CanaryStream{canary: canary} }

// Write returns the text that can be shown.
func (c *CanaryStream) Write(piece string) string {
	if c.canary == "" {
		return piece
	}
	text, _ := RedactCanary(c.held+piece, c.canary)
	keep := 0
	for n := min(len(text), len(c.canary)-1); n > 0; n-- {
		if strings.EqualFold(text[len(text)-n:], c.canary[:n]) {
			keep = n
			break
		}
	}
	c.held = text[len(text)-keep:]
	return text[:len(text)-keep]
}

// Flush ends the text and returns the text held back.
func (c *CanaryStream) Flush() string {
	rest := c.held
	c.held = ""
	return rest
}
