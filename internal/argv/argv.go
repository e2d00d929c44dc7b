// Package argv makes the arguments of a program from those of a call of a tool. No value becomes more than one word of
// its own, and no shell is involved.
package argv

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// Bounds of a command line, which are below those of Linux.
const (
	maxWord  = 128<<10 - 1
	maxBytes = 1 << 20
	maxWords = 10_000
)

// Template is the command line of a tool. The zero value has no words.
type Template struct {
	words []word
	// Dashes reports whether values may begin with -, as options do.
	Dashes bool
}

// word is one argument of a template.
type word struct{ text, argument string } // if argument is not "", the value of this argument

// Problem describes an invalid command line or invalid parameters.
type Problem struct {
	Word    int // index of the word; -1 for the parameters
	Message string
}

var placeholder = lazyregexp.New(`^\{args\.([A-Za-z0-9_-]+)\}$`)

// Parse reads a command line. {args.NAME} as a whole word stands for the value of an argument. parameters is the JSON
// Schema of the arguments; if input is set, the program also reads them from its standard input.
func Parse(words []string, parameters json.RawMessage, input bool) (t Template, problems []Problem) {
	wrong := func(at int, format string, args ...any) {
		problems = append(problems, Problem{at, fmt.Sprintf(format, args...)})
	}
	of, problem := propertiesOf(parameters)
	if problem != "" {
		wrong(-1, "%s", problem)
		return t, problems
	}
	unused := maps.Clone(of)
	for i, text := range words {
		m := placeholder.FindStringSubmatch(text)
		switch {
		case strings.ContainsRune(text, 0):
			wrong(i, "must not contain a NUL byte")
		case i == 0 && (text == "" || strings.HasPrefix(text, "-") || strings.Contains(text, "{args.")):
			wrong(i, "must be the program, by its name or its path")
		case m == nil && strings.Contains(text, "{args."):
			wrong(i, "{args.NAME} must be a whole word")
		case m == nil:
			t.words = append(t.words, word{text: text})
		default:
			name := m[1]
			property, known := of[name]
			switch {
			case !known:
				wrong(i, "there is no parameter %s; parameters.properties has %s", name,
					cmp.Or(strings.Join(slices.Sorted(maps.Keys(of)), ", "), "none"))
			case property.objects():
				wrong(i, "the parameter %s is an object, which is not a word; with stdin: json the program reads it", name)
			}
			delete(unused, name)
			t.words = append(t.words, word{argument: name})
		}
	}
	if len(words) == 0 {
		wrong(0, "must be the program and its arguments")
	}
	if !input {
		for _, name := range slices.Sorted(maps.Keys(unused)) {
			wrong(-1, "the parameter %s reaches the program neither as a word {args.%s} nor by stdin: json", name, name)
		}
	}
	return t, problems
}

// property is the schema of an argument, as far as it matters here.
type property struct {
	Type  any       `json:"type"`
	Items *property `json:"items"`
}

// UnmarshalJSON also accepts the schemas true and false.
func (p *property) UnmarshalJSON(data []byte) error {
	type fields property
	if data = bytes.TrimSpace(data); len(data) > 0 && data[0] != '{' {
		return nil
	}
	return json.Unmarshal(data, (*fields)(p))
}

// objects reports whether the schema allows objects by name.
func (p *property) objects() bool {
	if p == nil {
		return false
	}
	list, _ := p.Type.([]any)
	return p.Type == "object" || slices.Contains(list, any("object")) || p.Items.objects()
}

func propertiesOf(parameters json.RawMessage) (of map[string]property, problem string) {
	if len(parameters) == 0 {
		return nil, ""
	}
	var schema struct {
		Type       any                 `json:"type"`
		Properties map[string]property `json:"properties"`
	}
	if json.Unmarshal(parameters, &schema) != nil || schema.Type != nil && schema.Type != "object" {
		return nil, "must be the JSON Schema of an object"
	}
	return schema.Properties, ""
}

// Words returns the words of a call, beginning with the program. An argument that is absent or null has no word, and a
// list has one for each of its values. An error is a [*toolcrib.ToolError].
func (t Template) Words(arguments json.RawMessage) ([]string, error) {
	var values map[string]any
	if len(arguments) > 0 {
		d := json.NewDecoder(bytes.NewReader(arguments))
		d.UseNumber()
		if err := d.Decode(&values); err != nil {
			return nil, &toolcrib.ToolError{Kind: toolcrib.InvalidArguments, Message: "they could not be read", Err: err}
		}
	}
	var words []string
	size := 0
	for _, w := range t.words {
		list := []any{w.text}
		if w.argument != "" {
			switch v := values[w.argument].(type) {
			case nil:
				continue
			case []any:
				list = v
			default:
				list = []any{v}
			}
		}
		for _, value := range list {
			text, problem := textOf(value)
			if w.argument != "" && !t.Dashes && strings.HasPrefix(text, "-") {
				problem = "begins with -, so that a program may take it for an option"
			}
			if problem != "" {
				return nil, toolcrib.Failf(toolcrib.InvalidArguments, "/%s: %s", w.argument, problem)
			}
			words, size = append(words, text), size+len(text)+1
		}
	}
	if len(words) > maxWords || size > maxBytes {
		return nil, toolcrib.Failf(toolcrib.InvalidArguments, "at most %d words with %d bytes fit into one call", maxWords, maxBytes)
	}
	return words, nil
}

// textOf returns a value as a word.
func textOf(value any) (text, problem string) {
	switch v := value.(type) {
	case string:
		text = v
	case json.Number:
		text = v.String()
	case bool:
		text = fmt.Sprint(v)
	default:
		return "", "must be text, a number, true or false, or a list of these"
	}
	switch {
	case strings.ContainsRune(text, 0):
		return "", "contains a NUL byte"
	case len(text) > maxWord:
		return "", fmt.Sprintf("is longer than %d bytes", maxWord)
	}
	return text, ""
}
