package files

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/transform"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/ignore"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
	"github.com/toolcrib/toolcrib/tool/internal/nolink"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	nameSearchFiles = "search_files"

	defaultMatches = 100
	maxMatches     = 1000
	maxPattern     = 1024      // bytes of a regular expression
	maxGlob        = 256       // bytes
	maxBraces      = 4         // {a,b} groups of a glob; each multiplies the work
	maxVisited     = 100_000   // files and folders
	maxSearched    = 512 << 20 // bytes read in one call
	maxLine        = 64 << 10  // bytes of a line that are matched
	maxShownLine   = 500       // bytes of a line that are returned
	maxSearchDepth = 128       // nested folders

	// maxSearchTime is shorter than the usual timeout of a call, so that a search of a huge folder
	// returns its matches so far instead of an error.
	maxSearchTime = 20 * time.Second
)

const searchFilesParameters = `{
	"type": "object",
	"properties": {
		"pattern": {"type": "string", "minLength": 1, "maxLength": 1024, "description": "RE2"},
		"path": {"type": "string", "minLength": 1, "maxLength": 4096},
		"glob": {"type": "string", "minLength": 1, "maxLength": 256, "description": "such as src/**/*.ts"},
		"case_insensitive": {"type": "boolean"},
		"names_only": {"type": "boolean"},
		"max_results": {"type": "integer", "minimum": 1},
		"ignored": {"type": "boolean", "description": "also what .gitignore hides"}
	},
	"additionalProperties": false
}`

type searchFilesInput struct {
	pathOf
	Pattern         string `json:"pattern"`
	Glob            string `json:"glob"`
	CaseInsensitive bool   `json:"case_insensitive"`
	NamesOnly       bool   `json:"names_only"`
	MaxResults      int    `json:"max_results"`
	Ignored         bool   `json:"ignored"`
}

type searchResult struct {
	Matches   []searchMatch `json:"matches"`
	Searched  int           `json:"files_searched"`
	Ignored   int           `json:"ignored,omitempty"` // files and folders excluded by .gitignore and .ignore
	Truncated bool          `json:"truncated"`
	Reason    string        `json:"reason,omitempty"` // why it is truncated
}

type searchMatch struct {
	Path string `json:"path"`
	Line int    `json:"line,omitempty"` // from 1; 0 for the whole file
	Text string `json:"text,omitempty"` // at most 500 bytes of the line
}

// searchFiles searches until it has max_results or reaches another bound, and says which.
func searchFiles(ctx context.Context, _ toolcrib.Call, w *workspace, p place, in searchFilesInput) (
	toolcrib.Output, error,
) {
	s, err := newSearch(ctx, w, in)
	if err == nil {
		err = s.start(p)
	}
	if err != nil && !errors.Is(err, errEnough) {
		return toolcrib.Output{}, err
	}
	s.result.Truncated = s.result.Reason != ""
	out, err := wire.Output(s.result)
	out.Cut = s.result.Truncated
	return out, err
}

// search is one run of search_files.
type search struct {
	searchFilesInput
	ctx      context.Context
	w        *workspace
	pattern  *regexp.Regexp // if nil, files are searched only by name
	max      int
	deadline time.Time

	visited int
	bytes   int64
	buffer  *bufio.Reader
	result  searchResult
}

// errEnough ends a search that has reached a bound, which s.result.Reason names.
var errEnough = errors.New("the search reached a limit")

func newSearch(ctx context.Context, w *workspace, in searchFilesInput) (*search, error) {
	s := &search{
		searchFilesInput: in, ctx: ctx, w: w, max: defaultMatches, deadline: w.set.now().Add(maxSearchTime),
		buffer: bufio.NewReaderSize(nil, maxLine), result: searchResult{Matches: []searchMatch{}},
	}
	if in.MaxResults > 0 {
		s.max = min(in.MaxResults, maxMatches)
	}
	switch {
	case in.Pattern == "" && in.Glob == "":
		return nil, toolcrib.Failf(toolcrib.InvalidArguments, "give a pattern, a glob, or both")
	case len(in.Pattern) > maxPattern:
		return nil, toolcrib.Failf(toolcrib.InvalidArguments, "pattern is longer than %d bytes", maxPattern)
	case len(in.Glob) > maxGlob || strings.Count(in.Glob, "{") > maxBraces:
		return nil, toolcrib.Failf(toolcrib.InvalidArguments, "glob is longer than %d bytes or has more than %d groups {a,b}",
			maxGlob, maxBraces)
	case in.Glob != "" && !doublestar.ValidatePattern(in.Glob):
		return nil, toolcrib.Failf(toolcrib.InvalidArguments, "glob %q is not well formed", in.Glob)
	}
	if in.Pattern != "" {
		text := in.Pattern
		if in.CaseInsensitive {
			text = "(?i)" + text
		}
		pattern, err := regexp.Compile(text)
		if err != nil {
			return nil, &toolcrib.ToolError{Kind: toolcrib.InvalidArguments, Message: "pattern: " + err.Error(), Err: err}
		}
		s.pattern = pattern
	}
	return s, nil
}

func (s *search) stop(reason string) error {
	s.result.Reason = reason
	return errEnough
}

// start searches the file or folder at p.
func (s *search) start(p place) error {
	if p.info != nil && !p.info.IsDir() {
		f, _, err := s.w.openRead(p)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // only read
		if name := path.Base(p.real); !s.selected(name, name) {
			return nil
		}
		return s.file(f, p.shown)
	}
	dir, err := s.w.openFolder(p)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // only read
	var list *ignore.List
	if !s.Ignored {
		list = ignore.For(s.w.Root, s.w.Dir, p.real)
	}
	return s.folder(dir, list, p.real, p.shown, "", 0)
}

func (s *search) selected(name, below string) bool {
	switch {
	case s.Glob == "":
		return true
	case strings.Contains(s.Glob, "/"):
		return doublestar.MatchUnvalidated(strings.TrimPrefix(s.Glob, "./"), below)
	}
	return doublestar.MatchUnvalidated(s.Glob, name)
}

// folder searches the folder dir. list has the ignore rules above it, or is nil; real is the resolved
// path of dir, shown its path for the model, and below its path relative to the start of the search.
func (s *search) folder(dir *os.Root, list *ignore.List, real, shown, below string, depth int) error {
	if depth > maxSearchDepth {
		return s.stop("folders are nested too deeply")
	}
	found, more, err := beneath.Entries(s.ctx, dir, maxDirectory)
	if err != nil {
		return s.passed(err)
	}
	if list != nil {
		list = list.Enter(dir, s.w.Abs(real))
	}
	for _, entry := range found {
		if err := s.visit(); err != nil {
			return err
		}
		name := entry.Name()
		at := path.Join(real, name)
		if s.w.set.hidden(s.w.Abs(at)) {
			continue
		}
		switch {
		case entry.IsDir() && strings.EqualFold(name, ".git"):
		case list.Ignores(s.w.Abs(at), entry.IsDir()):
			s.result.Ignored++
		case entry.IsDir():
			err = s.subfolder(dir, list, name, at, path.Join(shown, name), path.Join(below, name), depth+1)
		case entry.Type().IsRegular() && s.selected(name, path.Join(below, name)):
			err = s.entry(dir, name, path.Join(shown, name))
		}
		if err != nil {
			return err
		}
	}
	if more {
		return s.stop("a folder has too many entries")
	}
	return nil
}

func (s *search) subfolder(parent *os.Root, list *ignore.List, name, real, shown, below string, depth int) error {
	dir, err := nolink.Step(parent, name)
	if err != nil {
		return s.passed(err)
	}
	defer dir.Close() //nolint:errcheck // only read
	return s.folder(dir, list, real, shown, below, depth)
}

func (s *search) entry(dir *os.Root, name, shown string) error {
	if s.pattern == nil {
		s.result.Searched++
		return s.add(searchMatch{Path: shown})
	}
	f, _, err := s.w.openFile(dir, name, shown)
	if err != nil {
		return s.passed(err)
	}
	defer f.Close() //nolint:errcheck // only read
	return s.file(f, shown)
}

// passed ignores errors of files that cannot be opened or have changed. Only the end of the context
// ends the search.
func (s *search) passed(error) error { return s.ctx.Err() }

// visit counts an entry, and checks the bounds on entries and time.
func (s *search) visit() error {
	if s.visited++; s.visited > maxVisited {
		return s.stop("too many files; narrow path or glob")
	}
	return s.alive()
}

func (s *search) alive() error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if s.w.set.now().After(s.deadline) {
		return s.stop("the search took too long; narrow path or glob")
	}
	return nil
}

func (s *search) add(m searchMatch) error {
	if len(s.result.Matches) >= s.max {
		return s.stop("there are more matches than max_results")
	}
	s.result.Matches = append(s.result.Matches, m)
	return nil
}

// file searches the lines of an open file.
func (s *search) file(f *os.File, shown string) error {
	s.result.Searched++
	if s.pattern == nil {
		return s.add(searchMatch{Path: shown})
	}
	s.buffer.Reset(counted{s, f})
	head, err := s.buffer.Peek(sniffBytes)
	if errors.Is(err, errEnough) {
		return err
	}
	if err != nil && err != io.EOF {
		return s.passed(err)
	}
	lines, latin := s.buffer, isText(head, len(head) == sniffBytes) || latinOf(head) != ""
	switch encoding := utf16Of(head); {
	case encoding != "":
		lines = bufio.NewReaderSize(transform.NewReader(s.buffer, fromUTF16(encoding)), maxLine)
	case bytes.IndexByte(head, 0) >= 0:
		return nil // binary
	}
	for number := 1; ; number++ {
		line, err := s.line(lines)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if latin && !isText(line, len(line) == maxLine) && latinOf(line) != "" {
			if line, err = charmap.Windows1252.NewDecoder().Bytes(line); err != nil {
				return err
			}
		}
		at := s.pattern.FindIndex(line)
		if at == nil {
			continue
		}
		if s.NamesOnly {
			return s.add(searchMatch{Path: shown})
		}
		if err := s.add(searchMatch{Path: shown, Line: number, Text: excerpt(line, at[0])}); err != nil {
			return err
		}
	}
}

// line returns the next line without its line break, at most maxLine bytes of it. The result is valid
// until the next call.
func (s *search) line(from *bufio.Reader) ([]byte, error) {
	line, err := from.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		line = bytes.Clone(line)
		_, err = nextLine(from, nil, skipped)
	}
	switch {
	case errors.Is(err, errEnough), s.ctx.Err() != nil:
		return nil, errors.Join(err, s.ctx.Err())
	case len(line) == 0 && err != nil:
		return nil, io.EOF // the rest of a file that cannot be read is skipped
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

// counted counts the bytes that are read, and checks the bounds on bytes and time.
type counted struct {
	s *search
	f *os.File
}

func (c counted) Read(into []byte) (int, error) {
	if err := c.s.alive(); err != nil {
		return 0, err
	}
	n, err := c.f.Read(into)
	if c.s.bytes += int64(n); c.s.bytes > maxSearched {
		return 0, c.s.stop("too many bytes; narrow path or glob")
	}
	return n, err
}

// excerpt cuts a long line around the match, between characters.
func excerpt(line []byte, match int) string {
	if len(line) <= maxShownLine {
		return strings.ToValidUTF8(string(line), "\uFFFD")
	}
	from := max(0, min(match-maxShownLine/4, len(line)-maxShownLine))
	to := from + maxShownLine
	for from > 0 && from < to && !utf8.RuneStart(line[from]) {
		from++
	}
	for to < len(line) && to > from && !utf8.RuneStart(line[to]) {
		to--
	}
	text := strings.ToValidUTF8(string(line[from:to]), "\uFFFD")
	if from > 0 {
		text = "…" + text
	}
	if to < len(line) {
		text += "…"
	}
	return text
}
