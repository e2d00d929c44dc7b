package texttag

import (
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Bounds of the data that is kept of a reply.
const (
	maxBody    = guard.MaxArgumentsBytes + 64<<10 // bytes of a call
	maxDropped = 4 << 10                          // bytes after the call that are kept
	maxBack    = 512                              // bytes that are scanned again after markup was removed
	maxPiece   = 4 << 10                          // bytes that are processed at a time, because removal copies them
)

type phase int

const (
	inText  phase = iota // before the first call
	inBody               // inside its tag
	inAfter              // after it, where all text is ignored
)

// filter splits the text of one reply into the text to show and at
// most one call. The result depends only on the joined text, not on the
// boundaries of its pieces.
type filter struct {
	phase    phase
	noCalls  bool   // tags begin no calls
	held     string // text that may belong to a tag, or to a fence around one
	body     body
	call     *call
	respelt  bool // the opening tag of the call was not written exactly
	fenced   bool // it was in a code fence
	removed  int  // number of stray tags that were removed
	dropped  []byte
	nDropped int
}

// write adds a piece of text and returns the text that can be shown.
func (f *filter) write(s string) string {
	switch f.phase {
	case inBody:
		return f.inside(s)
	case inAfter:
		f.drop(s)
		return ""
	}
	if f.held == "" && nextBracket(s, 0) < 0 && strings.IndexByte(s, '`') < 0 {
		return s // the usual case
	}
	if len(s) <= maxPiece {
		return f.text(f.held+s, mayContinue)
	}
	var shown strings.Builder
	for len(s) > 0 {
		n := min(len(s), maxPiece)
		shown.WriteString(f.write(s[:n]))
		s = s[n:]
	}
	return shown.String()
}

// text returns s without markup, up to the beginning of a call.
func (f *filter) text(s string, end ending) string {
	chain := -1 // start of a sequence of brackets each of which keeps the one before from being a tag
	for i := nextBracket(s, 0); i >= 0; {
		t, v := scanTag(s[i:], end)
		switch {
		case v == isPartial:
			if chain >= 0 {
				i = chain
			}
			return f.show(s, min(i, fenceStart(s[:i])))
		case v == isNone:
			if t.meets > 0 && (chain < 0 || i-chain < maxBack) {
				if chain < 0 {
					chain = i
				}
				i += t.meets
				continue
			}
			chain = -1
			i = nextBracket(s, i+1)
		case t.kind == tagOpen && !f.noCalls:
			if chain < 0 {
				chain = i
			}
			return f.begin(s, chain, i, t)
		default:
			f.removed++
			s = s[:i] + s[i+t.size:]
			// The text around it may now be a tag.
			chain = -1
			i = nextBracket(s, max(0, i-maxBack))
		}
	}
	if end != mayContinue {
		return f.show(s, len(s))
	}
	return f.show(s, fenceStart(s))
}

func (f *filter) show(s string, n int) string {
	f.held = s[n:]
	return s[:n]
}

// begin starts the call whose tag is at i. Brackets from chain to i are held
// back, because they could be part of a tag if this tag is not a call.
func (f *filter) begin(s string, chain, i int, t tag) string {
	before := s[:chain]
	if at := fenceStart(before); chain == i && strings.HasPrefix(before[at:], "```") {
		before, f.fenced = before[:at], true
	}
	f.held, f.phase, f.respelt = s[chain:i], inBody, !t.exact
	return before + f.inside(s[i+t.size:])
}

func (f *filter) inside(s string) string {
	rest, done := f.body.write(s)
	if !done {
		return ""
	}
	shown := f.complete(parseBody(f.body.text()))
	f.drop(rest)
	return shown
}

// complete stores the call and returns the text before it that was held back.
func (f *filter) complete(c call) string {
	f.call, f.phase = &c, inAfter
	return f.prose(f.held)
}

// drop ignores text after the call, but keeps its beginning.
func (f *filter) drop(s string) {
	f.nDropped += len(s)
	if room := maxDropped - len(f.dropped); room > 0 {
		f.dropped = append(f.dropped, s[:min(room, len(s))]...)
	}
}

// end ends the reply and returns the rest of the text to show.
// After it, call is the call of the reply, or nil. cut reports whether the
// reply was cut off by its length limit.
func (f *filter) end(cut bool) string {
	end := ended
	if cut {
		end = cutOff
	}
	shown := ""
	if f.phase == inText && f.held != "" {
		shown = f.text(f.held, end)
	}
	if f.phase == inBody {
		shown += f.endInside(end)
	}
	return shown
}

// endInside ends a reply that ended inside the tag.
func (f *filter) endInside(end ending) string {
	text, complete := f.body.end(end)
	switch {
	case complete:
		c := parseBody(text)
		c.note("the closing tag was missing")
		return f.complete(c)
	case end == cutOff:
		return f.complete(call{name: nameOf(text), arguments: text, problem: "the reply was cut inside the call", cut: true})
	case !strings.Contains(text, "{") && strings.TrimSpace(text) != "":
		// The text is prose that mentions the tag.
		f.phase = inText
		f.removed++
		return f.prose(f.held + text)
	}
	return f.complete(brokenBody(text))
}

// prose returns the text to show after a tag that is not a call; further tags are not calls either.
func (f *filter) prose(s string) string {
	if nextBracket(s, 0) < 0 {
		return s
	}
	rest := filter{noCalls: true}
	shown := rest.write(s)
	shown += rest.end(false)
	f.removed += rest.removed
	return shown
}

// holdsCall reports whether a call begins in s.
func holdsCall(s string) bool {
	for i := nextBracket(s, 0); i >= 0; i = nextBracket(s, i+1) {
		if t, v := scanTag(s[i:], ended); v == isTag && t.kind == tagOpen {
			return true
		}
	}
	return false
}

// Bounds of the opening line of a code fence.
const (
	maxFence  = 64 // backticks
	maxInfo   = 16 // letters of the language
	maxSpaces = 16 // after them
)

// fenceStart returns the start of the opening line of a code fence, or of a part of one,
// at the end of s, which is removed with the tag; otherwise len(s).
func fenceStart(s string) int {
	i := back(s, len(s), maxSpaces, func(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' })
	i = back(s, i, maxInfo, func(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' })
	if start := back(s, i, maxFence, func(c byte) bool { return c == '`' }); start < i {
		return start
	}
	return len(s)
}

// back returns the position before at most most bytes before i that over accepts.
func back(s string, i, most int, over func(byte) bool) int {
	for n := 0; n < most && i > 0 && over(s[i-1]); n++ {
		i--
	}
	return i
}

// notices returns notices about the ignored parts of the reply.
func (f *filter) notices() []toolcrib.Notice {
	var all []toolcrib.Notice
	note := func(code, format string, args ...any) {
		all = append(all, toolcrib.Notice{Code: code, Message: fmt.Sprintf(format, args...)})
	}
	if f.call != nil {
		if f.respelt {
			f.call.note("the opening tag was spelt in another way")
		}
		if f.fenced {
			f.call.note("the tag stood in a code fence")
		}
		if len(f.call.notes) > 0 && f.call.problem == "" {
			note(toolcrib.NoticeToolCallRepaired, "a call was read although it was not written as asked: %s",
				strings.Join(f.call.notes, "; "))
		}
	}
	if strings.Trim(string(f.dropped), " \t\r\n`") != "" {
		what := "text"
		if holdsCall(string(f.dropped)) {
			what = "with another call"
		}
		note(toolcrib.NoticeToolCallRepaired, "what followed the first call of the reply was dropped: %d bytes, %s",
			f.nDropped, what)
	}
	if f.removed > 0 {
		note(NoticeMarkupRemoved, "tags of the text protocol that belong to no call were taken out of the text: %d",
			f.removed)
	}
	return all
}
