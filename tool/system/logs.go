package system

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	nameFetchLogs = "fetch_logs"

	defaultEntries = 20
	maxEntries     = 50
	maxLogBytes    = 48 << 10 // bytes of a result
	maxMessage     = 2000     // bytes
	maxAttributes  = 32       // attributes of an entry
	maxAttribute   = 500      // bytes of a value
)

const logsParameters = `{
	"type": "object",
	"properties": {
		"level": {"type": "string", "enum": ["debug", "info", "warn", "error"], "description": "Only entries of this level or a more serious one. Default: all that is logged."},
		"since": {"type": "string", "minLength": 1, "maxLength": 64, "description": "Only entries from this time on (RFC 3339, such as 2026-01-02T15:04:05Z), or not older than this (such as 15m or 2h30m)."},
		"contains": {"type": "string", "minLength": 1, "maxLength": 256, "description": "Only entries that contain this text, whatever its case, as they are shown."},
		"limit": {"type": "integer", "minimum": 1, "description": "Most entries to return, the newest ones. Default 20, at most 50."}
	},
	"additionalProperties": false
}`

type fetchLogs struct{ options Options }

type logsInput struct {
	Level    string `json:"level"`
	Since    string `json:"since"`
	Contains string `json:"contains"`
	Limit    int    `json:"limit"`
}

type logsResult struct {
	Entries   []shownEntry `json:"entries"` // oldest first
	Count     int          `json:"count"`
	Truncated bool         `json:"truncated,omitempty"` // whether there are older entries that match
}

type shownEntry struct {
	Time       string            `json:"time,omitempty"` // RFC 3339, UTC
	Level      string            `json:"level"`
	Message    string            `json:"message"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

// Spec describes fetch_logs.
func (t *fetchLogs) Spec() toolcrib.Spec {
	return spec(nameFetchLogs, "Read the newest entries of toolcrib's own log. Secrets, mail and network addresses are shown as "+guard.Redacted+".", logsParameters, false)
}

// filter chooses entries.
type filter struct {
	level    slog.Level
	since    time.Time
	contains string
	most     int
}

func (t *fetchLogs) filter(call toolcrib.Call) (filter, error) {
	in := logsInput{Limit: defaultEntries}
	if err := wire.Decode(call.Arguments, &in); err != nil {
		return filter{}, err
	}
	f := filter{level: slog.Level(-128), contains: strings.ToLower(in.Contains), most: min(in.Limit, maxEntries)}
	if in.Limit < 1 {
		return f, toolcrib.Failf(toolcrib.InvalidArguments, "limit must be at least 1")
	}
	if in.Level != "" {
		if err := f.level.UnmarshalText([]byte(in.Level)); err != nil {
			return f, toolcrib.Failf(toolcrib.InvalidArguments, "level must be debug, info, warn or error")
		}
	}
	if in.Since == "" {
		return f, nil
	}
	ago, err := time.ParseDuration(in.Since)
	if err == nil && ago >= 0 {
		f.since = t.options.Now().Add(-ago)
	} else if f.since, err = time.Parse(time.RFC3339, in.Since); err != nil {
		return f, toolcrib.Failf(toolcrib.InvalidArguments, "since must be a time (2026-01-02T15:04:05Z) or how long ago (15m)")
	}
	return f, nil
}

// Call returns the newest entries that match the filter. It searches the entries as they are shown:
// otherwise secrets could be guessed piece by piece.
func (t *fetchLogs) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	if err := ctx.Err(); err != nil {
		return toolcrib.Output{}, err
	}
	f, err := t.filter(call)
	if err != nil {
		return toolcrib.Output{}, err
	}
	result, room := logsResult{Entries: []shownEntry{}}, maxLogBytes
	if call.MaxBytes > 0 {
		room = min(room, call.MaxBytes-128)
	}
	lines, err := t.options.Logs.Lines()
	if err != nil {
		return toolcrib.Output{}, err
	}
	for _, e := range slices.Backward(entries(lines)) {
		if err := ctx.Err(); err != nil {
			return toolcrib.Output{}, err
		}
		if e.level < f.level || !f.since.IsZero() && e.time.Before(f.since) {
			continue
		}
		entry := show(e, t.options.Mask)
		if !entry.contains(f.contains) {
			continue
		}
		data, err := wire.Marshal(entry)
		if err != nil {
			return toolcrib.Output{}, err
		}
		if room -= len(data) + 1; room < 0 || len(result.Entries) == f.most {
			result.Truncated = true
			break
		}
		result.Entries = append(result.Entries, entry)
	}
	slices.Reverse(result.Entries)
	result.Count = len(result.Entries)
	out, err := wire.Output(result)
	out.Cut = result.Truncated
	if result.instructs() {
		// Messages about errors may contain untrusted data of a server or a file.
		out.Untrusted, out.Source = true, "log"
	}
	return out, err
}

// instructs reports whether an entry contains phrases that read like instructions to a model.
func (r *logsResult) instructs() bool {
	for _, e := range r.Entries {
		if _, found := guard.NeutralizePhrases(e.Message); found > 0 {
			return true
		}
		for _, value := range e.Attributes {
			if _, found := guard.NeutralizePhrases(value); found > 0 {
				return true
			}
		}
	}
	return false
}

func (e *shownEntry) contains(text string) bool {
	if text == "" || strings.Contains(strings.ToLower(e.Message), text) {
		return true
	}
	for name, value := range e.Attributes {
		if strings.Contains(strings.ToLower(name+"="+value), text) {
			return true
		}
	}
	return false
}

// show returns an entry without secrets and personal data (N24), then cut: if a text were cut first,
// it could end with an unrecognized part of a secret.
func show(e entry, mask func(string) string) shownEntry {
	shown := shownEntry{
		Level: strings.ToLower(e.level.String()), Message: redactPersonal(guard.Clip(hide(e.message, mask), maxMessage)),
	}
	if !e.time.IsZero() {
		shown.Time = e.time.UTC().Format("2006-01-02T15:04:05.000Z")
	}
	for _, a := range e.attributes[:min(len(e.attributes), maxAttributes)] {
		value := hide(a.value, mask)
		if secretAttribute(a.name) && value != "" {
			value = guard.Redacted
		}
		if shown.Attributes == nil {
			shown.Attributes = make(map[string]string, len(e.attributes))
		}
		shown.Attributes[cut(hide(a.name, mask))] = redactPersonal(guard.Clip(value, maxAttribute))
	}
	return shown
}

// maxSearched bounds the bytes of a text in which secrets are searched.
const maxSearched = 16 << 10

// hide removes secrets from a text. A longer text is cut between words before; a single long word is
// not shown at all, because a part of a secret would not be recognized.
func hide(s string, mask func(string) string) string {
	if len(s) > maxSearched {
		end := strings.LastIndexAny(s[:maxSearched], " \t\r\n")
		if end <= 0 {
			return guard.Redacted
		}
		s = s[:end]
	}
	return guard.RedactText(mask(s))
}

// secretAttribute reports whether a value with this name is redacted, like NAME=VALUE in a text: for
// token, but not for input_tokens.
func secretAttribute(name string) bool {
	if len(name) > maxFactBytes {
		name = name[len(name)-maxFactBytes:]
	}
	probe := name + "=x"
	return guard.RedactText(probe) != probe
}

var (
	mailAddress = lazyregexp.New(`[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+`)
	address4    = lazyregexp.New(`\b\d{1,3}(?:\.\d{1,3}){3}\b`)
	address6    = lazyregexp.New(`\b[0-9A-Fa-f]{1,4}:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*`)
)

// redactPersonal removes mail addresses and network addresses, except loopback and unspecified ones.
func redactPersonal(s string) string {
	if strings.Contains(s, "@") {
		s = mailAddress.ReplaceAllString(s, guard.Redacted)
	}
	address := func(text string) string {
		for _, one := range []string{text, strings.TrimRight(text, ":.")} { // "ADDRESS: refused"
			if at, err := netip.ParseAddr(one); err == nil && !at.IsLoopback() && !at.IsUnspecified() {
				return guard.Redacted + text[len(one):]
			}
		}
		return text
	}
	return address6.ReplaceAllStringFunc(address4.ReplaceAllStringFunc(s, address), address)
}
