package ui

import (
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// functions are those of the templates, for one language.
func functions(language string, t texts, a *assets) template.FuncMap {
	md := newMarkdown()
	return template.FuncMap{
		"t":         func(key string, args ...any) string { return t.text(language, key, args...) },
		"tn":        func(key string, n int) string { return t.count(language, key, n) },
		"asset":     a.address,
		"icon":      func(name string) template.HTML { return icon(a, name) },
		"markdown":  md.render,
		"visible":   guard.Visible,
		"clip":      func(most int, text string) string { return guard.Clip(guard.Visible(guard.Clip(text, most)), most) },
		"json":      prettyJSON,
		"time":      func(at any) template.HTML { return timeElement(language, at) },
		"duration":  func(d any) string { return duration(language, d) },
		"number":    func(n any) string { return number(language, toInt(n)) },
		"money":     func(usd float64) string { return money(language, usd) },
		"size":      func(n int64) string { return bytesText(language, n) },
		"examples":  func() []string { return []string{"1", "2", "3"} },
		"whole":     func(n float64) int64 { return int64(math.Round(n)) },
		"short":     shortID,
		"excerpt":   excerptOf,
		"long":      func(text string) bool { return len(text) > maxProse },
		"bytes":     func(r *journal.ToolResult) string { return size(language, max(r.Bytes, int64(len(r.Content)))) },
		"diff":      diffLines,
		"dict":      dict,
		"lower":     strings.ToLower,
		"languages": func() []string { return languages },
		"join":      strings.Join,

		"decisionSign": decisionSign,
	}
}

// dict makes a map of names and values, so that a part can be given several.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict: %d values, which are no pairs", len(pairs))
	}
	all := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: %v is not a name", pairs[i])
		}
		all[name] = pairs[i+1]
	}
	return all, nil
}

// icon returns an icon of icons.svg. It says nothing that a text beside it does not say.
func icon(a *assets, name string) template.HTML {
	return template.HTML(`<svg class="icon" aria-hidden="true"><use href="` + //nolint:gosec // both are constants
		template.HTMLEscapeString(a.address("icons.svg")+"#"+name) + `"></use></svg>`)
}

// prettyJSON returns a JSON value in lines, with hidden characters shown. A text that is not JSON stays as it is.
func prettyJSON(v any) string {
	var raw []byte
	switch v := v.(type) {
	case json.RawMessage:
		raw = v
	case string:
		raw = []byte(v)
	default:
		var err error
		if raw, err = guard.EncodeJSON(v, false); err != nil {
			return err.Error()
		}
	}
	var out strings.Builder
	var value any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if d.Decode(&value) != nil {
		return guard.Visible(string(raw))
	}
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if e.Encode(value) != nil {
		return guard.Visible(string(raw))
	}
	return guard.Visible(strings.TrimSuffix(out.String(), "\n"))
}

// timeElement returns a time in UTC, which js/time.js shows in the time zone of the browser.
func timeElement(language string, at any) template.HTML {
	var when time.Time
	switch at := at.(type) {
	case time.Time:
		when = at
	case *time.Time:
		if at != nil {
			when = *at
		}
	}
	if when.IsZero() {
		return "–"
	}
	when = when.UTC()
	layout := "2 Jan 2006, 15:04:05 UTC"
	if language == "de" {
		layout = "02.01.2006, 15:04:05 UTC"
	}
	return template.HTML(`<time datetime="` + when.Format(time.RFC3339Nano) + `">` + //nolint:gosec // digits and constants
		when.Format(layout) + `</time>`)
}

// duration returns a duration, or a number of milliseconds, with a unit that fits.
func duration(language string, v any) string {
	d, ok := v.(time.Duration)
	if !ok {
		d = time.Duration(toInt(v)) * time.Millisecond
	}
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return decimal(language, strconv.FormatFloat(d.Seconds(), 'f', 1, 64)) + " s"
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}

func toInt(n any) int64 {
	if v := reflect.ValueOf(n); v.CanInt() {
		return v.Int()
	}
	return 0
}

// number returns a number with separators of thousands.
func number(language string, n int64) string {
	text := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, text = "−", text[1:]
	}
	separator := ","
	if language == "de" {
		separator = "."
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + separator + text[i:]
	}
	return sign + text
}

// money returns an amount in US dollars, with more digits the smaller it is.
func money(language string, usd float64) string {
	digits := 2
	switch {
	case usd == 0:
		return "$0"
	case usd < 0.01:
		digits = 5
	case usd < 1:
		digits = 4
	}
	return "$" + decimal(language, strconv.FormatFloat(usd, 'f', digits, 64))
}

// size returns a number of bytes with a unit that fits.
func size(language string, n int64) string {
	switch {
	case n < 1000:
		return strconv.FormatInt(n, 10) + " B"
	case n < 1000*1000:
		return decimal(language, strconv.FormatFloat(float64(n)/1000, 'f', 1, 64)) + " kB"
	}
	return decimal(language, strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64)) + " MB"
}

func decimal(language, text string) string {
	if language == "de" {
		return strings.ReplaceAll(text, ".", ",")
	}
	return text
}

// shortID returns the end of an ID, which differs from that of others made at the same time.
func shortID(id any) string {
	text := fmt.Sprint(id)
	_, rest, ok := strings.Cut(text, "_")
	if !ok || len(rest) < 8 {
		return text
	}
	return rest[len(rest)-6:]
}
