package texttag

import (
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Bounds of what is kept of a reply while it comes.
const (
	maxBody    = guard.MaxArgumentsBytes + 64<<10 // bytes of a call
	maxDropped = 4 << 10                          // bytes behind the call that are looked at
	maxBack    = 512                              // bytes that are looked at again when markup was taken out
	maxPiece   = 4 << 10                          // bytes that are worked on at a time: taking out copies them
)

// phase is where in a reply the filter is.
type phase int

const (
	inText  phase = iota // before the first call
	inBody               // inside its tag
	inAfter              // behind it: nothing counts from here on
)

// filter turns the text of one reply into the text that a reader may see and at
// most one call. What it gives, joined, hangs on the joined text only, never on
// how that was cut into pieces.
type filter struct {
	phase    phase
	deaf     bool   // no tag begins a call
	held     string // text that may belong to a tag, or to a fence around one
	body     body
	call     *call
	respelt  bool // the opening tag of the call was spelt in another way
	fenced   bool // it was in a code fence
	removed  int  // stray markup that was taken out
	dropped  []byte
	nDropped int
}

// write takes the next piece of text and returns what of it can be shown.
func (f *filter) write(s string) string {
	switch f.phase {
	case inBody:
		return f.inside(s)
	case inAfter:
		f.drop(s)
		return ""
	}
	if f.held == "" && nextBracket(s, 0) < 0 && strings.IndexByte(s, '`') < 0 {
		return s // by far the most
	}
	if len(s) <= maxPiece {
		return f.text(f.held+s, goesOn)
	}
	var shown strings.Builder
	for len(s) > 0 {
		n := min(len(s), maxPiece)
		shown.WriteString(f.write(s[:n]))
		s = s[n:]
	}
	return shown.String()
}

// text shows s but for markup; it ends where a call begins.
func (f *filter) text(s string, end ending) string {
	chain := -1 // where a run of brackets that keep each other from being tags begins
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
		case t.kind == tagOpen && !f.deaf:
			if chain < 0 {
				chain = i
			}
			return f.begin(s, chain, i, t)
		default:
			f.removed++
			s = s[:i] + s[i+t.size:]
			// What was around it may be a tag now.
			chain = -1
			i = nextBracket(s, max(0, i-maxBack))
		}
	}
	if end != goesOn {
		return f.show(s, len(s))
	}
	return f.show(s, fenceStart(s))
}

func (f *filter) show(s string, n int) string {
	f.held = s[n:]
	return s[:n]
}

// begin starts the call whose tag is at i. Brackets from chain to i are held
// back, for they could make a tag with what follows if this is none.
func (f *filter) begin(s string, chain, i int, t tag) string {
	before := s[:chain]
	if at := fenceStart(before); chain == i && strings.HasPrefix(before[at:], "```") {
		before, f.fenced = before[:at], true
	}
	f.held, f.phase, f.respelt = s[chain:i], inBody, !t.exact
	return before + f.inside(s[i+t.size:])
}

// inside takes text inside the tag.
func (f *filter) inside(s string) string {
	rest, done := f.body.write(s)
	if !done {
		return ""
	}
	shown := f.complete(parseBody(f.body.text()))
	f.drop(rest)
	return shown
}

// complete takes the call and returns the text before it that was held back.
func (f *filter) complete(c call) string {
	f.call, f.phase = &c, inAfter
	return f.prose(f.held)
}

// drop passes over what follows the call.
func (f *filter) drop(s string) {
	f.nDropped += len(s)
	if room := maxDropped - len(f.dropped); room > 0 {
		f.dropped = append(f.dropped, s[:min(room, len(s))]...)
	}
}

// end takes the end of the reply and returns the text that is still to be shown.
// After it, call is the call of the reply, if there is one. cut reports whether the
// reply was cut by its length.
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

// endInside takes the end of a reply that ended inside the tag.
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
		// Prose that mentions the tag.
		f.phase = inText
		f.removed++
		return f.prose(f.held + text)
	}
	return f.complete(brokenBody(text))
}

// prose shows what follows a tag that began no call; further tags begin none either.
func (f *filter) prose(s string) string {
	if nextBracket(s, 0) < 0 {
		return s
	}
	rest := filter{deaf: true}
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

// Bounds of the opening line of a code fence that is recognized.
const (
	maxFence  = 64 // backticks
	maxInfo   = 16 // letters of the language
	maxSpaces = 16 // behind them
)

// fenceStart returns where the opening line of a code fence, or a piece of one,
// that ends s begins: what may stand around a tag. len(s) = none.
func fenceStart(s string) int {
	i := back(s, len(s), maxSpaces, func(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' })
	i = back(s, i, maxInfo, func(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' })
	if start := back(s, i, maxFence, func(c byte) bool { return c == '`' }); start < i {
		return start
	}
	return len(s)
}

// back goes back from i over at most most bytes.
func back(s string, i, most int, over func(byte) bool) int {
	for n := 0; n < most && i > 0 && over(s[i-1]); n++ {
		i--
	}
	return i
}

// notices tell what was passed over in the reply.
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
