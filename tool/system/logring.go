package system

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

const (
	defaultRing = 1000
	maxRing     = 10_000 // entries
	maxGroups   = 8      // nested groups that an attribute may be in
	maxKept     = 4096   // bytes of an entry that is kept as it is
)

// LogRing keeps the newest entries of a log in memory, for a process that logs to no
// file. It is safe for concurrent use.
type LogRing struct {
	mask func(string) string

	mu      sync.Mutex
	entries []LogEntry // the oldest at next, once all places are taken
	size    int
	next    int
}

// NewLogRing makes a ring of size entries; 0 = 1000, at most 10 000. mask takes
// secrets that are known by value out of a text; nil = none are known. An entry is
// kept as it is, which costs a log next to nothing, but for a long one: that is kept
// without secrets, and cut.
func NewLogRing(size int, mask func(string) string) *LogRing {
	if size <= 0 {
		size = defaultRing
	}
	if mask == nil {
		mask = func(s string) string { return s }
	}
	return &LogRing{mask: mask, size: min(size, maxRing)}
}

// Recent implements [Logs].
func (r *LogRing) Recent(ctx context.Context) iter.Seq2[LogEntry, error] {
	return func(yield func(LogEntry, error) bool) {
		r.mu.Lock()
		entries := slices.Concat(r.entries[r.next:], r.entries[:r.next])
		r.mu.Unlock()
		for _, e := range slices.Backward(entries) {
			if err := ctx.Err(); err != nil {
				yield(LogEntry{}, err)
				return
			}
			if !yield(r.masked(e), nil) {
				return
			}
		}
	}
}

// masked is an entry without secrets that are known by value.
func (r *LogRing) masked(e LogEntry) LogEntry {
	e.Message, e.Attributes = r.mask(e.Message), slices.Clone(e.Attributes)
	for i := range e.Attributes {
		e.Attributes[i].Value = r.mask(e.Attributes[i].Value)
	}
	return e
}

func (r *LogRing) add(e LogEntry) {
	size := len(e.Message)
	for _, a := range e.Attributes {
		size += len(a.Name) + len(a.Value)
	}
	if size > maxKept {
		e = tidy(e, r.mask)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.entries) < r.size {
		r.entries = append(r.entries, e)
		return
	}
	r.entries[r.next] = e
	r.next = (r.next + 1) % r.size
}

// Handler returns a handler that writes into the ring, from a level on (nil = info).
// Put it beside the handler that the log has ([slog.NewMultiHandler]).
func (r *LogRing) Handler(level slog.Leveler) slog.Handler {
	if level == nil {
		level = slog.LevelInfo
	}
	return &ringHandler{ring: r, level: level}
}

type ringHandler struct {
	ring   *LogRing
	level  slog.Leveler
	prefix string // names of groups, each with a dot
	given  []LogAttribute
}

// Enabled implements [slog.Handler].
func (h *ringHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

// Handle implements [slog.Handler].
func (h *ringHandler) Handle(_ context.Context, record slog.Record) error {
	e := LogEntry{Time: record.Time, Level: record.Level, Message: record.Message, Attributes: slices.Clone(h.given)}
	record.Attrs(func(a slog.Attr) bool {
		e.Attributes = flatten(e.Attributes, h.prefix, a, 0)
		return len(e.Attributes) < maxAttributes
	})
	h.ring.add(e)
	return nil
}

// WithAttrs implements [slog.Handler].
func (h *ringHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.given = slices.Clone(h.given)
	for _, a := range attrs {
		with.given = flatten(with.given, h.prefix, a, 0)
	}
	return &with
}

// WithGroup implements [slog.Handler].
func (h *ringHandler) WithGroup(name string) slog.Handler {
	if name == "" || strings.Count(h.prefix, ".") >= maxGroups {
		return h
	}
	with := *h
	with.prefix += name + "."
	return &with
}

// flatten appends an attribute; those of a group have its name and a dot before theirs.
func flatten(into []LogAttribute, prefix string, a slog.Attr, deep int) []LogAttribute {
	if len(into) >= maxAttributes || a.Equal(slog.Attr{}) {
		return into
	}
	value := a.Value.Resolve()
	if value.Kind() != slog.KindGroup || deep == maxGroups {
		return append(into, LogAttribute{prefix + a.Key, value.String()})
	}
	if a.Key != "" {
		prefix += a.Key + "."
	}
	for _, inner := range value.Group() {
		into = flatten(into, prefix, inner, deep+1)
	}
	return into
}
