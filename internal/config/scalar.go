package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Duration is a time span, written like 30s, 15m, 72h or 90d (a day is 24 h), or
// as the number 0.
type Duration time.Duration

// durationPattern is what a duration looks like; the schema has it too.
const durationPattern = `^(0|[0-9]+d([0-9]+(\.[0-9]+)?(h|m|s|ms))*|([0-9]+(\.[0-9]+)?(h|m|s|ms))+)$`

var durationText = regexp.MustCompile(durationPattern)

// Std returns the duration as the standard library has it.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String returns the form that is written in a file.
func (d Duration) String() string {
	if d == 0 {
		return "0"
	}
	day := 24 * time.Hour
	days, rest := d.Std()/day, d.Std()%day
	var text string
	if days >= 4 { // 72h stays 72h
		text = strconv.FormatInt(int64(days), 10) + "d"
	} else {
		rest = d.Std()
	}
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if n := rest / unit.size; n > 0 {
			text += strconv.FormatInt(int64(n), 10) + unit.name
			rest -= n * unit.size
		}
	}
	return text
}

// orZero ends what is said of a bad duration where 0 is a good one.
const orZero = ", or 0"

// parseDuration reads a duration of whole milliseconds.
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

func (d *decoder) duration(path string, n *node, out *Duration, f field) {
	if n.kind == kindNumber && n.text != "0" {
		d.errorf(n.line, path, "must be a duration with its unit, such as 30s, 15m, 72h or 90d")
		return
	}
	if n.kind != kindNumber && n.kind != kindText {
		d.errorf(n.line, path, "must be a duration such as 30s, 15m, 72h or 90d, not %s", n.kind)
		return
	}
	lo, bounded := parseDuration(f.min)
	span, err := parseDuration(n.text)
	if err != nil {
		text := err.Error()
		if bounded == nil && lo > 0 {
			text = strings.TrimSuffix(text, orZero)
		}
		d.errorf(n.line, path, "%s", text)
		return
	}
	if bounded == nil && span < lo {
		d.errorf(n.line, path, "must be at least %s", f.min)
		return
	}
	if hi, err := parseDuration(f.max); err == nil && span > hi {
		d.errorf(n.line, path, "must be at most %s", f.max)
		return
	}
	*out = span
}

// JSON is a JSON object as it was written, keys in their order; nil = null.
// References in it are not filled in.
type JSON json.RawMessage

// jsonNumber is a number as JSON writes it, with a sign for convenience.
var jsonNumber = regexp.MustCompile(`^[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// orderedObject is a JSON object that keeps the order of its keys.
type orderedObject []orderedField

type orderedField struct {
	key   string
	value any
}

// MarshalJSON writes the keys in their order.
func (o orderedObject) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(f.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// tree turns a node into what encoding/json can write.
func (d *decoder) tree(path string, n *node) any {
	if !d.defaults {
		d.positions[path] = max(n.line, 1)
	}
	switch n.kind {
	case kindNull:
		return nil
	case kindBool:
		return strings.EqualFold(n.text, "true")
	case kindText:
		return n.text
	case kindNumber:
		if !jsonNumber.MatchString(n.text) {
			d.errorf(n.line, path, "must be a plain decimal number; put it in quotes if it is a text")
			return nil
		}
		return json.Number(strings.TrimPrefix(n.text, "+"))
	case kindList:
		out := make([]any, len(n.items))
		for i, item := range n.items {
			out[i] = d.tree(joinIndex(path, i), item)
		}
		return out
	}
	out := make(orderedObject, 0, len(n.entries))
	seen := map[string]int{}
	for _, e := range n.entries {
		at := joinKey(path, e.key)
		if !d.duplicate(seen, e, at) {
			out = append(out, orderedField{e.key, d.tree(at, e.at())})
		}
	}
	return out
}

// noLoader refuses to fetch anything: a schema must stand on its own.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is outside of the schema", url)
}

// checkSchema tells what is wrong with a JSON Schema; "" = nothing.
func checkSchema(text []byte) string {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return "is no valid JSON Schema"
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	const url = "config:///output_schema"
	if err := c.AddResource(url, doc); err != nil {
		return "is no valid JSON Schema"
	}
	if _, err := c.Compile(url); err != nil {
		var invalid *jsonschema.SchemaValidationError
		var cause *jsonschema.ValidationError
		if errors.As(err, &invalid) && errors.As(invalid.Err, &cause) {
			return "is no valid JSON Schema, at " + firstLeaf(cause)
		}
		var outside *jsonschema.LoadURLError
		if !errors.As(err, &outside) {
			return "is no valid JSON Schema: a reference or pattern in it is wrong"
		}
		return "is no valid JSON Schema: it refers to what is outside of it"
	}
	return ""
}

// firstLeaf returns the place that a validation error is really about, as a JSON
// pointer.
func firstLeaf(e *jsonschema.ValidationError) string {
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	return "/" + strings.Join(e.InstanceLocation, "/")
}
