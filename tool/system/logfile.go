package system

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// maxTail is how much of a log file is read, from its end.
const maxTail = 1 << 20

// LogFile is a log in a file (log.file), as the handlers of log/slog write it, text
// or JSON. Its last MiB is read.
type LogFile struct{ Path string }

// Recent implements [Logs]. A file that is not there yet is an empty log. A line that
// is no entry, such as one of a stack, counts as an entry of the time and level of the
// one before it.
func (l LogFile) Recent(ctx context.Context) iter.Seq2[LogEntry, error] {
	return func(yield func(LogEntry, error) bool) {
		lines, err := l.tail()
		if err != nil {
			yield(LogEntry{}, err)
			return
		}
		entries := make([]LogEntry, 0, len(lines))
		var before LogEntry
		for _, line := range lines {
			if err := ctx.Err(); err != nil {
				yield(LogEntry{}, err)
				return
			}
			e, ok := parse(line)
			if !ok {
				e = LogEntry{Time: before.Time, Level: before.Level, Message: line}
			}
			before = e
			entries = append(entries, e)
		}
		for _, e := range slices.Backward(entries) {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// tail reads the last whole lines of the file.
func (l LogFile) tail() ([]string, error) {
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
		_, data, _ = bytes.Cut(data, []byte("\n")) // the rest of a line
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// parse reads a line of a handler of log/slog.
func parse(line string) (LogEntry, bool) {
	var attributes []LogAttribute
	var ok bool
	if strings.HasPrefix(line, "{") {
		attributes, ok = parseJSON(line)
	} else {
		attributes, ok = parseText(line)
	}
	e, found := LogEntry{}, 0
	for _, a := range attributes {
		switch a.Name {
		case slog.TimeKey:
			at, err := time.Parse(time.RFC3339Nano, a.Value)
			if err != nil {
				return LogEntry{}, false
			}
			e.Time = at
		case slog.LevelKey:
			if e.Level.UnmarshalText([]byte(a.Value)) != nil {
				return LogEntry{}, false
			}
			found++
		case slog.MessageKey:
			e.Message = a.Value
			found++
		default:
			e.Attributes = append(e.Attributes, a)
		}
	}
	return e, ok && found >= 2
}

func parseJSON(line string) ([]LogAttribute, bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(line), &fields) != nil {
		return nil, false
	}
	var attributes []LogAttribute
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := string(fields[name])
		var text string
		if json.Unmarshal(fields[name], &text) == nil {
			value = text
		}
		attributes = append(attributes, LogAttribute{name, value})
	}
	return attributes, true
}

// parseText reads name=value pairs; each side may be in quotes as Go writes them.
func parseText(line string) (attributes []LogAttribute, ok bool) {
	for rest := line; rest != ""; rest = strings.TrimPrefix(rest, " ") {
		var a LogAttribute
		if a.Name, rest, ok = word(rest, "="); !ok || !strings.HasPrefix(rest, "=") {
			return nil, false
		}
		if a.Value, rest, ok = word(rest[1:], " "); !ok || rest != "" && rest[0] != ' ' {
			return nil, false
		}
		attributes = append(attributes, a)
	}
	return attributes, true
}

// word reads a text up to one of the characters of ends, or in quotes.
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
