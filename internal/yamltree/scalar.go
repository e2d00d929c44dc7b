package yamltree

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// Duration is a duration in whole milliseconds, written like 30s, 15m, 72h or 90d (a day has 24
// hours), or as the number 0.
type Duration time.Duration

// DurationPattern matches durations.
const DurationPattern = `^(0|[0-9]+d([0-9]+(\.[0-9]+)?(h|m|s|ms))*|([0-9]+(\.[0-9]+)?(h|m|s|ms))+)$`

var durationText = lazyregexp.New(DurationPattern)

// Std returns the duration as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String returns the duration as it is written in a file.
func (d Duration) String() string {
	if d == 0 {
		return "0"
	}
	text, rest := "", d.Std()
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		n := rest / unit.size
		if n == 0 || unit.name == "d" && n < 4 { // not 3d for 72h
			continue
		}
		text += strconv.FormatInt(int64(n), 10) + unit.name
		rest -= n * unit.size
	}
	return text
}

// orZero ends the error for an invalid duration if 0 is allowed.
const orZero = ", or 0"

func parseDuration(text string) (Duration, error) {
	if text == "0" {
		return 0, nil
	}
	if len(text) > 32 || !durationText.MatchString(text) {
		return 0, errors.New("must be a duration such as 30s, 15m, 72h or 90d" + orZero)
	}
	var total time.Duration
	if days, rest, ok := strings.Cut(text, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 32)
		if err != nil || n > int64(math.MaxInt64/(24*time.Hour)) {
			return 0, errors.New("is too long")
		}
		total, text = time.Duration(n)*24*time.Hour, rest
	}
	if text != "" {
		rest, err := time.ParseDuration(text)
		if err != nil || total+rest < total {
			return 0, errors.New("is too long")
		}
		total += rest
	}
	if total%time.Millisecond != 0 {
		return 0, errors.New("must be whole milliseconds")
	}
	return Duration(total), nil
}

// DecodeYAML decodes a duration.
func (d *Duration) DecodeYAML(dec *Decoder, n *Node, f Field) {
	lo, errLo := parseDuration(f.Min)
	hi, errHi := parseDuration(f.Max)
	span, err := parseDuration(n.Text)
	switch {
	case n.Kind == Number && n.Text != "0":
		dec.Errorf(n, "must be a duration with its unit, such as 30s, 15m, 72h or 90d")
	case n.Kind != Number && n.Kind != Text:
		dec.Errorf(n, "must be a duration such as 30s, 15m, 72h or 90d, not %s", n.Kind)
	case err != nil && errLo == nil && lo > 0:
		dec.Errorf(n, "%s", strings.TrimSuffix(err.Error(), orZero))
	case err != nil:
		dec.Errorf(n, "%s", err)
	case errLo == nil && span < lo:
		dec.Errorf(n, "must be at least %s", f.Min)
	case errHi == nil && span > hi:
		dec.Errorf(n, "must be at most %s", f.Max)
	default:
		*d = span
	}
}

// JSON is a JSON object as it was written, with its keys in order; nil for null.
type JSON json.RawMessage

// DecodeYAML decodes a mapping, and checks its JSON with d.Check.
func (j *JSON) DecodeYAML(d *Decoder, n *Node, f Field) {
	if !d.want(n, Map) || !d.plainNumbers(n) {
		return
	}
	text := n.JSON()
	if d.Check != nil {
		if problem := d.Check(f, string(text)); problem != "" {
			d.Errorf(n, "%s", problem)
			return
		}
	}
	*j = text
}

// plainNumbers reports whether all numbers in n are valid in JSON, and adds an error for each that
// is not.
func (d *Decoder) plainNumbers(n *Node) bool {
	before := len(d.Errors)
	if n.Kind == Number && !PlainNumber.MatchString(n.Text) {
		d.Errorf(n, "must be a plain decimal number; put it in quotes if it is a text")
	}
	for _, item := range n.Items {
		d.plainNumbers(item)
	}
	for _, e := range n.Entries {
		d.plainNumbers(e.Value)
	}
	return len(d.Errors) == before
}

// JSON returns the node as JSON, with keys in order and numbers as they are written. If n is nil, it
// returns null.
func (n *Node) JSON() []byte {
	if n == nil {
		return []byte("null")
	}
	var parts [][]byte
	switch n.Kind {
	case Bool:
		return strconv.AppendBool(nil, n.IsTrue())
	case Text:
		return AppendJSON(nil, n.Text)
	case Number:
		return []byte(strings.TrimPrefix(n.Text, "+"))
	case List:
		for _, item := range n.Items {
			parts = append(parts, item.JSON())
		}
		return slices.Concat([]byte{'['}, bytes.Join(parts, []byte{','}), []byte{']'})
	case Map:
		for _, e := range n.Entries {
			parts = append(parts, append(AppendJSON(nil, e.Key), append([]byte{':'}, e.Value.JSON()...)...))
		}
		return slices.Concat([]byte{'{'}, bytes.Join(parts, []byte{','}), []byte{'}'})
	}
	return []byte("null")
}

// AppendJSON appends v as JSON, without escaping <, > and &. A value that cannot be marshaled is
// null.
func AppendJSON(out []byte, v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return append(out, "null"...)
	}
	return append(out, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
