package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/yamltree"
)

// MaxBytes is the size that a configuration file may have.
const MaxBytes = 1 << 20

// limits of a configuration file.
func limits() yamltree.Limits { return yamltree.Limits{Bytes: MaxBytes, Tokens: 30_000, Depth: 32} }

// Types that read themselves.
type (
	// Duration is a time span, written like 30s, 15m, 72h or 90d, or as the number 0.
	Duration = yamltree.Duration
	// JSON is a JSON object as it was written, keys in their order; nil = null.
	// References in it are not filled in.
	JSON = yamltree.JSON
	// ToolChoice is written auto, none, required or {name: TOOL}.
	ToolChoice toolcrib.ToolChoice
)

// decoder fills a Config from the tree of a file.
type decoder struct {
	yamltree.Decoder
	nodes map[string]*yamltree.Node // by key path
}

func newDecoder(file, base string) *decoder {
	return &decoder{
		Decoder: yamltree.Decoder{File: file, Folder: base, Check: checkWritten, Keys: keyPattern},
		nodes:   map[string]*yamltree.Node{},
	}
}

// index makes the nodes below n known by their paths.
func (d *decoder) index(n *yamltree.Node) {
	d.nodes[n.Path] = n
	for _, item := range n.Items {
		d.index(item)
	}
	for _, e := range n.Entries {
		d.index(e.Value)
	}
}

// nearest returns the node of a key path, or of the nearest key that it belongs to and
// that is written; nil if the file is empty.
func nearest(nodes map[string]*yamltree.Node, path string) *yamltree.Node {
	for ; path != ""; path = yamltree.Parent(path) {
		if n := nodes[path]; n != nil {
			return n
		}
	}
	return nil
}

// at reports an error at a key path, on the line of the nearest key that is
// written, unless the key or what it belongs to has an error already.
func (d *decoder) at(path, format string, args ...any) {
	for p := path; p != ""; p = yamltree.Parent(p) {
		if d.Failed(p) {
			return
		}
	}
	e := Error{Line: 1, Key: path, Message: fmt.Sprintf(format, args...)}
	if n := nearest(d.nodes, path); n != nil {
		e.Line, e.Column = n.Line, n.Column
	}
	d.Add(e)
}

// checkWritten checks a text that holds no references.
func checkWritten(f yamltree.Field, text string) string {
	switch {
	case f.Format == "schema":
		return checkSchema(text)
	case f.Format != "object" && refPattern.MatchString(text):
		return "cannot hold a reference such as ${env:NAME}; write the value itself"
	}
	return checkFormat(f.Format, text)
}

// DecodeYAML reads a text with references.
func (v *Value) DecodeYAML(d *yamltree.Decoder, n *yamltree.Node, f yamltree.Field) {
	if !d.IsText(n, f) {
		return
	}
	out := Value{raw: n.Text, at: Error{Key: n.Path}, format: f.Format, secret: f.Secret}
	if !n.Default {
		out.at.File, out.at.Line, out.base = d.File, n.Line, d.Folder
	}
	if problem := out.check(); problem != "" {
		d.Errorf(n, "%s", problem)
		return
	}
	if out.raw == "" && (f.Min != "" || f.Required) {
		d.Errorf(n, "must not be empty")
		return
	}
	*v = out
}

var choiceModes = []string{toolcrib.ChoiceAuto, toolcrib.ChoiceNone, toolcrib.ChoiceRequired}

// DecodeYAML reads auto, none, required or {name: TOOL}.
func (c *ToolChoice) DecodeYAML(d *yamltree.Decoder, n *yamltree.Node, _ yamltree.Field) {
	switch {
	case n.Kind == yamltree.Text && slices.Contains(choiceModes, n.Text):
		*c = ToolChoice{Mode: n.Text}
	case n.Kind == yamltree.Map && len(n.Entries) == 1 && n.Entries[0].Key == "name" &&
		n.Entries[0].Value.Kind == yamltree.Text && toolPattern.MatchString(n.Entries[0].Value.Text):
		*c = ToolChoice{Mode: toolcrib.ChoiceName, Name: n.Entries[0].Value.Text}
	default:
		d.Errorf(n, "must be auto, none, required or {name: TOOL}")
	}
}

// noLoader refuses to fetch anything: a schema must stand on its own.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is not part of the schema", url)
}

// checkSchema returns what is wrong with a JSON Schema, or "".
func checkSchema(text string) string {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return "is not a valid JSON Schema"
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	const url = "config:///output_schema"
	if err := c.AddResource(url, doc); err != nil {
		return "is not a valid JSON Schema"
	}
	_, err = c.Compile(url)
	var invalid *jsonschema.SchemaValidationError
	var cause *jsonschema.ValidationError
	var outside *jsonschema.LoadURLError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &invalid) && errors.As(invalid.Err, &cause):
		for len(cause.Causes) > 0 {
			cause = cause.Causes[0]
		}
		return "is not a valid JSON Schema, at /" + strings.Join(cause.InstanceLocation, "/")
	case errors.As(err, &outside):
		return "is not a valid JSON Schema: it refers to what is outside of it"
	}
	return "is not a valid JSON Schema: a reference or pattern in it is wrong"
}

// Error is one thing that is wrong with a configuration.
type Error = yamltree.Error

// About reports whether the error is about a key, something in it, or something that it
// belongs to.
func About(e Error, key string) bool {
	for a, b := range map[string]string{e.Key: key, key: e.Key} {
		if rest, ok := strings.CutPrefix(a, b); ok && (rest == "" || b != "" && strings.ContainsAny(rest[:1], ".[")) {
			return true
		}
	}
	return false
}

// Errors is everything that is wrong with a configuration, by line.
type Errors []Error

// Error returns one line an error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// maxErrors bounds what one bad file can say.
const maxErrors = 200

// Sorted returns the errors by line, each once.
func (e Errors) Sorted() Errors {
	slices.SortStableFunc(e, func(a, b Error) int { return a.Line - b.Line })
	e = slices.Compact(e)
	if len(e) > maxErrors {
		e = append(e[:maxErrors:maxErrors], Error{File: e[0].File, Message: fmt.Sprintf("%d more errors", len(e)-maxErrors)})
	}
	return e
}

// list joins names for a message, at most 20 of them.
func list(names []string) string {
	if len(names) > 20 {
		return strings.Join(names[:20], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}
