package system

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Logs is toolcrib's own log. Lines returns its last lines as the handlers of log/slog write them,
// text or JSON, oldest first. The caller must hide secrets in them.
type Logs interface {
	Lines() ([]string, error)
}

// maxTail is the number of bytes at the end of a log that are read.
const maxTail = 1 << 20

// LogFile is a log in a file (log.file), of which the last MiB is read.
type LogFile struct{ Path string }

// Lines implements [Logs]. If the file does not exist, there are no lines.
func (l LogFile) Lines() ([]string, error) {
	file, err := os.OpenFile(l.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("log.file is not a regular file, and cannot be read back")
	}
	from := max(0, info.Size()-maxTail)
	data, err := io.ReadAll(io.NewSectionReader(file, from, maxTail))
	if err != nil {
		return nil, err
	}
	if from > 0 {
		_, data, _ = bytes.Cut(data, []byte("\n")) // drop the rest of a line
	}
	return slices.Collect(strings.Lines(string(data))), nil
}

const maxRing = 1000 // lines

// LogRing keeps the newest lines of a log in memory, at most 1000 lines and 1 MiB, for a process
// without a log file. The zero value is empty. It is safe for concurrent use.
type LogRing struct {
	mu    sync.Mutex
	lines []string
	bytes int
}

// Handler returns a handler that writes records of at least the level to the ring; if level is nil,
// it is info. Use [slog.NewMultiHandler] to combine it with other handlers.
func (r *LogRing) Handler(level slog.Leveler) slog.Handler {
	return slog.NewTextHandler(r, &slog.HandlerOptions{Level: level})
}

// Write keeps a line, unless it is longer than 1 MiB.
func (r *LogRing) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(line) > maxTail {
		return len(line), nil
	}
	r.lines = append(r.lines, string(line))
	for r.bytes += len(line); len(r.lines) > maxRing || r.bytes > maxTail; r.lines = r.lines[1:] {
		r.bytes -= len(r.lines[0])
	}
	return len(line), nil
}

// Lines implements [Logs].
func (r *LogRing) Lines() ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines), nil
}

// entry is one entry of a log.
type entry struct {
	time       time.Time
	level      slog.Level
	message    string
	attributes []attribute
}

type attribute struct{ name, value string }

// entries parses lines. A line that is not an entry, such as one of a stack trace, becomes an entry
// with the time and level of the previous one.
func entries(lines []string) []entry {
	all := make([]entry, 0, len(lines))
	var before entry
	for _, line := range lines {
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			continue
		}
		e, ok := parse(line)
		if !ok {
			e = entry{time: before.time, level: before.level, message: line}
		}
		before = e
		all = append(all, e)
	}
	return all
}

// parse parses a line written by a handler of log/slog.
func parse(line string) (entry, bool) {
	read := parseText
	if strings.HasPrefix(line, "{") {
		read = parseJSON
	}
	attributes, ok := read(line)
	e, found := entry{}, 0
	for _, a := range attributes {
		switch a.name {
		case slog.TimeKey:
			at, err := time.Parse(time.RFC3339Nano, a.value)
			if err != nil {
				return entry{}, false
			}
			e.time = at
		case slog.LevelKey:
			if e.level.UnmarshalText([]byte(a.value)) != nil {
				return entry{}, false
			}
			found++
		case slog.MessageKey:
			e.message = a.value
			found++
		default:
			e.attributes = append(e.attributes, a)
		}
	}
	return e, ok && found >= 2
}

func parseJSON(line string) ([]attribute, bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(line), &fields) != nil {
		return nil, false
	}
	var attributes []attribute
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := string(fields[name])
		var text string
		if json.Unmarshal(fields[name], &text) == nil {
			value = text
		}
		attributes = append(attributes, attribute{name, value})
	}
	return attributes, true
}

// parseText parses name=value pairs, in which both may be quoted as in Go.
func parseText(line string) (attributes []attribute, ok bool) {
	for rest := line; rest != ""; rest = strings.TrimPrefix(rest, " ") {
		var a attribute
		if a.name, rest, ok = word(rest, "="); !ok || !strings.HasPrefix(rest, "=") {
			return nil, false
		}
		if a.value, rest, ok = word(rest[1:], " "); !ok || rest != "" && rest[0] != ' ' {
			return nil, false
		}
		attributes = append(attributes, a)
	}
	return attributes, true
}

// word parses a text that is quoted or ends before one of the characters in ends.
func word(s, ends string) (text, rest string, ok bool) {
	if strings.HasPrefix(s, `"`) {
		quoted, err := strconv.QuotedPrefix(s)
		if err != nil {
			return "", "", false
		}
		text, err = strconv.Unquote(quoted)
		return text, s[len(quoted):], err == nil
	}
	if i := strings.IndexAny(s, ends); i >= 0 {
		return s[:i], s[i:], true
	}
	return s, "", true
}
