package tui

import (
	"strings"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// A block that is longer than this is shown in parts: what waits for its end is
// out of sight, and costs more with each piece that comes.
const (
	maxBlockLines = 60
	maxBlockBytes = 16 << 10
)

// block is a piece of Markdown that can be rendered by itself.
type block struct {
	text   string
	joined bool // it continues the block before, without an empty line
}

// blocks finds the whole blocks in Markdown that comes in pieces: paragraphs,
// headings, lists, tables, and code between fences.
type blocks struct {
	lines  []string // of the block that is not whole yet
	bytes  int      // of lines
	rest   string   // the line that has no end yet
	fence  string   // that is open
	opened string   // the line that opened it
	list   bool     // the block is a list
	gap    bool     // an empty line came in a list: it may go on or not
	joined bool     // of the block that is not whole yet
}

var (
	fenceLine   = lazyregexp.New("^( {0,3})(`{3,}|~{3,})([^`]*)$")
	headingLine = lazyregexp.New(`^ {0,3}#{1,6}([ \t]|$)`)
	itemLine    = lazyregexp.New(`^ {0,3}([-*+]|[0-9]{1,9}[.)])([ \t]|$)`)
	innerFence  = lazyregexp.New("^[ \t]*(`{3,}|~{3,})")
)

// write takes a piece of text and returns the blocks that are whole by now.
func (b *blocks) write(text string) []block {
	var done []block
	text = b.rest + text
	for {
		i := strings.IndexByte(text, '\n')
		if i < 0 {
			break
		}
		done = b.line(done, text[:i])
		text = text[i+1:]
	}
	for len(text) > maxBlockBytes {
		n := strings.LastIndexByte(text[:maxBlockBytes], ' ')
		if n < maxBlockBytes/2 {
			for n = maxBlockBytes; n > 0 && !utf8.RuneStart(text[n]); n-- {
				continue
			}
		}
		done = b.line(done, text[:n])
		text = text[n:]
	}
	b.rest = text
	return done
}

// flush returns what is left, as if the text ended here.
func (b *blocks) flush() []block {
	var done []block
	if b.rest != "" {
		rest := b.rest
		b.rest = ""
		done = b.line(done, rest)
	}
	done = b.emit(done)
	*b = blocks{}
	return done
}

// tail is what has come of the block that is not whole.
func (b *blocks) tail() string {
	if len(b.lines) == 0 {
		return b.rest
	}
	return strings.Join(b.lines, "\n") + "\n" + b.rest
}

func (b *blocks) line(done []block, line string) []block {
	if b.fence != "" {
		return b.inFence(done, line)
	}
	if strings.TrimSpace(line) == "" {
		switch {
		case len(b.lines) == 0:
		case b.list:
			b.gap = true
			b.add(line)
		default:
			done = b.emit(done)
		}
		return done
	}
	item := itemLine.MatchString(line)
	inside := b.list && (item || strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "\t"))
	if b.gap && !inside {
		done = b.emit(done)
	}
	b.gap = false
	if m := fenceLine.FindStringSubmatch(line); m != nil && !inside {
		done = b.emit(done)
		b.add(line)
		b.fence, b.opened = m[2], line
		return done
	}
	if m := innerFence.FindStringSubmatch(line); m != nil && inside && !item {
		b.fence = m[1]
	}
	if headingLine.MatchString(line) && !inside {
		done = b.emit(done)
		b.add(line)
		return b.emit(done)
	}
	if len(b.lines) == 0 {
		b.list = item
	}
	b.add(line)
	if b.full() {
		list := b.list
		done = b.emit(done)
		b.joined, b.list = true, list
	}
	return done
}

func (b *blocks) inFence(done []block, line string) []block {
	b.add(line)
	mark := strings.TrimSpace(line)
	if strings.HasPrefix(mark, b.fence) && strings.Trim(mark, b.fence[:1]) == "" {
		top := b.opened != ""
		b.fence, b.opened = "", ""
		if top {
			return b.emit(done)
		}
		return done
	}
	if b.full() && b.opened != "" {
		fence, opened := b.fence, b.opened
		b.add(fence)
		done = b.emit(done)
		b.joined, b.fence, b.opened = true, fence, opened
		b.add(opened)
	}
	return done
}

func (b *blocks) full() bool { return len(b.lines) >= maxBlockLines || b.bytes >= maxBlockBytes }

func (b *blocks) add(line string) {
	b.lines = append(b.lines, line)
	b.bytes += len(line) + 1
}

// emit ends the block.
func (b *blocks) emit(done []block) []block {
	text := strings.TrimRight(strings.Join(b.lines, "\n"), "\n")
	joined := b.joined
	if b.fence != "" {
		text += "\n" + b.fence
	}
	*b = blocks{rest: b.rest}
	if strings.TrimSpace(text) == "" {
		return done
	}
	return append(done, block{text: text, joined: joined})
}
