package script

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// fields reads the entries of a mapping, each with the function of its key.
// Unknown keys, and keys that stand twice, are errors; an entry without a value
// counts as not given.
func (d document) fields(n ast.Node, path string, read map[string]func(string, ast.Node) error) error {
	values, ok := entries(n)
	if !ok {
		return d.errorf(n, path, "must be an object, not %s", kind(n))
	}
	seen := make(map[string]bool, len(values))
	for _, v := range values {
		key, ok := text(v.Key)
		if !ok {
			return d.errorf(v.Key, path, "a key must be a name, not %s", kind(v.Key))
		}
		full := path + "." + key
		if path == "reply" {
			full = key // its line says which reply
		}
		field, ok := read[key]
		switch {
		case !ok:
			return d.errorf(v.Key, full, "unknown key")
		case seen[key]:
			return d.errorf(v.Key, full, "stands twice")
		}
		seen[key] = true
		if v.Value == nil || v.Value.Type() == ast.NullType {
			continue
		}
		if err := field(full, v.Value); err != nil {
			return err
		}
	}
	return nil
}

func (d document) text(into *string) func(string, ast.Node) error {
	return func(key string, n ast.Node) error {
		s, ok := text(n)
		if !ok {
			return d.errorf(n, key, "must be a string, not %s%s", kind(n), quoteHint(n))
		}
		*into = s
		return nil
	}
}

func (d document) number(into *int64) func(string, ast.Node) error {
	return func(key string, n ast.Node) error {
		i, ok := n.(*ast.IntegerNode)
		if !ok {
			return d.errorf(n, key, "must be a whole number, not %s", kind(n))
		}
		v, err := strconv.ParseInt(fmt.Sprint(i.Value), 10, 64)
		if err != nil || v < 0 {
			return d.errorf(n, key, "must be a whole number from 0 to %d", int64(1<<63-1))
		}
		*into = v
		return nil
	}
}

func (d document) duration(into *time.Duration) func(string, ast.Node) error {
	return func(key string, n ast.Node) error {
		s, _ := text(n)
		v, err := time.ParseDuration(s)
		if err != nil || v < 0 || v > maxDelay {
			return d.errorf(n, key, "must be a time such as 50ms or 2s, at most %s, not %s", maxDelay, shown(n))
		}
		*into = v
		return nil
	}
}

// json writes n as JSON, the keys of objects in the order in which they stand.
func (d document) json(b *bytes.Buffer, key string, n ast.Node, depth int) error {
	if depth > maxDepth {
		return d.errorf(n, key, "nested deeper than %d levels", maxDepth)
	}
	if s, ok := n.(*ast.StringNode); ok && s.Token.Type == token.StringType && isNumber(s.Value) {
		b.WriteString(s.Value) // a plain number that fits no Go type is a string to the parser
		return nil
	}
	if s, ok := text(n); ok {
		return writeJSON(b, s)
	}
	if values, ok := entries(n); ok {
		return d.object(b, key, values, depth)
	}
	switch v := n.(type) {
	case nil, *ast.NullNode:
		b.WriteString("null")
	case *ast.BoolNode:
		return writeJSON(b, v.Value)
	case *ast.IntegerNode:
		return writeNumber(b, v.Token.Value, v.Value)
	case *ast.FloatNode:
		return writeNumber(b, v.Token.Value, v.Value)
	case *ast.SequenceNode:
		b.WriteByte('[')
		for i, item := range v.Values {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := d.json(b, fmt.Sprintf("%s[%d]", key, i), item, depth+1); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	default:
		return d.errorf(n, key, "%s has no form in JSON", kind(n))
	}
	return nil
}

func (d document) object(b *bytes.Buffer, path string, values []*ast.MappingValueNode, depth int) error {
	seen := make(map[string]bool, len(values))
	b.WriteByte('{')
	for i, v := range values {
		key, ok := text(v.Key)
		if !ok {
			return d.errorf(v.Key, path, "a key must be a string, not %s%s", kind(v.Key), quoteHint(v.Key))
		}
		if seen[key] {
			return d.errorf(v.Key, path+"."+key, "stands twice; to send it twice write arguments as a string")
		}
		seen[key] = true
		if i > 0 {
			b.WriteByte(',')
		}
		if err := writeJSON(b, key); err != nil {
			return err
		}
		b.WriteByte(':')
		if err := d.json(b, path+"."+key, v.Value, depth+1); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

// writeNumber keeps the spelling of a number where JSON has it too.
func writeNumber(b *bytes.Buffer, written string, value any) error {
	if isNumber(written) {
		b.WriteString(written)
		return nil
	}
	return writeJSON(b, value)
}

func isNumber(s string) bool {
	return s != "" && (s[0] == '-' || s[0] >= '0' && s[0] <= '9') && json.Valid([]byte(s))
}

func writeJSON(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the encoder's line break
	return nil
}

// text returns the value of a string node, plain, quoted or block.
func text(n ast.Node) (string, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.LiteralNode:
		return v.Value.Value, true
	case *ast.MappingKeyNode:
		return text(v.Value)
	}
	return "", false
}

// entries returns the entries of an object.
func entries(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch v := n.(type) {
	case *ast.MappingNode:
		return v.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{v}, true
	}
	return nil, false
}

// kind names what a node is, for error messages.
func kind(n ast.Node) string {
	switch n.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.StringNode, *ast.LiteralNode:
		return "a string"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "the number " + n.GetToken().Value
	case *ast.BoolNode:
		return n.GetToken().Value
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "an object"
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return "an anchor or alias (write it out instead)"
	case *ast.TagNode:
		return "a tag"
	}
	return n.Type().YAMLName()
}

// quoteHint helps who wrote a string that YAML reads as something else.
func quoteHint(n ast.Node) string {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return fmt.Sprintf(`; write it in quotes: "%s"`, n.GetToken().Value)
	}
	return ""
}

// shown quotes the text of a node, or names what else it is.
func shown(n ast.Node) string {
	if s, ok := text(n); ok {
		return fmt.Sprintf("%.60q", s)
	}
	return kind(n)
}
