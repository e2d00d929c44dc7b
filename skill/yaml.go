package skill

import (
	"errors"
	"fmt"
	"strings"

	yaml "github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of front matter, far above what a person writes. The parser's time grows
// with the square of the tokens.
const (
	maxTokens = 6000
	maxDepth  = 10 // lists and mappings inside one another
)

type kind string

// The kinds of a value, in the words of error messages.
const (
	kindNull kind = "null"
	kindBool kind = "true or false"
	kindWord kind = "a number"
	kindText kind = "a text"
	kindList kind = "a list"
	kindDict kind = "a mapping"
)

// value is a YAML value of the plain kind: no anchors, aliases, tags or merge keys.
type value struct {
	kind    kind
	text    string // of a scalar
	line    int
	items   []value
	entries []entryOf
}

// entryOf is one key of a mapping with what it holds.
type entryOf struct {
	key   string
	line  int
	value value
}

func lineErrorf(line int, format string, args ...any) *Error {
	return &Error{Line: line, Message: fmt.Sprintf(format, args...)}
}

// parseYAML reads one YAML document whose first line is the given one of the file.
func parseYAML(text string, first int) (v value, err error) {
	// A fault of the library must not take down who loads skills.
	defer func() {
		if r := recover(); r != nil {
			v, err = value{}, lineErrorf(first, "the front matter cannot be read as YAML")
		}
	}()
	tokens := lexer.Tokenize(text)
	words, err := checkTokens(tokens, first)
	if err != nil {
		return value{}, err
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return value{}, fromParser(err, first)
	}
	c := converter{offset: first - 1, read: make(map[*token.Token]bool, len(words))}
	v = value{kind: kindNull, line: first}
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if v, err = c.convert(doc.Body, first, 0); err != nil {
			return value{}, err
		}
		break
	}
	for _, word := range words {
		if !c.read[word] {
			// What the parser drops must not become a list that is not there.
			return value{}, lineErrorf(lineOf(word, c.offset, first), "the front matter is no valid YAML: something is out of place")
		}
	}
	return v, nil
}

// checkTokens refuses what front matter never needs, before anything recursive
// sees it: a few bytes of anchors or brackets can cost a parser gigabytes. It
// returns the keys and scalar values.
func checkTokens(tokens token.Tokens, first int) (words token.Tokens, err error) {
	if len(tokens) > maxTokens {
		return nil, lineErrorf(first, "the front matter has more than %d words and marks", maxTokens)
	}
	flow, run := 0, 0
	for _, t := range tokens {
		line := lineOf(t, first-1, first)
		if t.Type != token.SequenceEntryType {
			run = 0
		}
		switch t.Type {
		case token.AnchorType, token.AliasType:
			return nil, lineErrorf(line, "anchors and aliases (& and *) are not allowed; put a text that begins with %s in quotes", t.Value)
		case token.TagType:
			return nil, lineErrorf(line, "tags are not allowed; put a text that begins with ! in quotes")
		case token.MergeKeyType:
			return nil, lineErrorf(line, "merge keys (<<) are not allowed")
		case token.DirectiveType, token.DocumentHeaderType, token.DocumentEndType:
			return nil, lineErrorf(line, "the front matter must be one YAML document without directives")
		case token.MappingKeyType:
			return nil, lineErrorf(line, "keys written with ? are not allowed")
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType:
			run++
		default:
			if isWord(t) {
				words = append(words, t)
			}
		}
		if flow+run > maxDepth {
			return nil, tooDeep(line)
		}
	}
	return words, nil
}

func tooDeep(line int) error {
	return lineErrorf(line, "lists and mappings are nested deeper than %d", maxDepth)
}

// isWord reports whether a token is a key or a scalar value that is written.
func isWord(t *token.Token) bool {
	switch t.Type {
	case token.StringType, token.SingleQuoteType, token.DoubleQuoteType, token.BoolType, token.NullType,
		token.IntegerType, token.BinaryIntegerType, token.OctetIntegerType, token.HexIntegerType,
		token.FloatType, token.InfinityType, token.NanType:
		return true
	}
	return false
}

// fromParser keeps message and line of the library's error, not its excerpt.
func fromParser(err error, first int) error {
	var ye yaml.Error
	if !errors.As(err, &ye) {
		return lineErrorf(first, "the front matter is no valid YAML")
	}
	message := strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, ye.GetMessage())
	return lineErrorf(lineOf(ye.GetToken(), first-1, first), "the front matter is no valid YAML: %s", short(message))
}

// lineOf is the line of a token in the file, which has offset lines before the YAML.
func lineOf(t *token.Token, offset, otherwise int) int {
	if t == nil || t.Position == nil || t.Position.Line < 1 {
		return otherwise
	}
	return t.Position.Line + offset
}

// converter turns the library's tree into ours and remembers the words in it.
type converter struct {
	offset int
	read   map[*token.Token]bool
}

func (c *converter) convert(n ast.Node, line, depth int) (value, error) {
	if n == nil {
		return value{kind: kindNull, line: line}, nil
	}
	line = lineOf(n.GetToken(), c.offset, line)
	if depth > maxDepth {
		return value{}, tooDeep(line)
	}
	c.read[n.GetToken()] = true
	scalar := func(k kind) (value, error) { return value{kind: k, text: n.GetToken().Value, line: line}, nil }
	switch x := n.(type) {
	case *ast.NullNode:
		return scalar(kindNull)
	case *ast.BoolNode:
		return scalar(kindBool)
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return scalar(kindWord)
	case *ast.StringNode:
		return value{kind: kindText, text: x.Value, line: line}, nil
	case *ast.LiteralNode:
		c.read[x.Value.GetToken()] = true // n's own is the mark before it
		return value{kind: kindText, text: x.Value.Value, line: line}, nil
	case *ast.SequenceNode:
		out := value{kind: kindList, line: line}
		for _, v := range x.Values {
			item, err := c.convert(v, line, depth+1)
			if err != nil {
				return value{}, err
			}
			out.items = append(out.items, item)
		}
		return out, nil
	case *ast.MappingNode:
		return c.dict(x.Values, line, depth)
	case *ast.MappingValueNode:
		return c.dict([]*ast.MappingValueNode{x}, line, depth)
	}
	return value{}, lineErrorf(line, "%s is not allowed here", strings.ToLower(n.Type().String()))
}

func (c *converter) dict(values []*ast.MappingValueNode, line, depth int) (value, error) {
	out := value{kind: kindDict, line: line}
	seen := make(map[string]bool, len(values))
	for _, v := range values {
		key, err := c.convert(v.Key, lineOf(v.Key.GetToken(), c.offset, line), depth+1)
		if err != nil {
			return value{}, err
		}
		if key.kind != kindText && key.kind != kindBool && key.kind != kindWord {
			return value{}, lineErrorf(key.line, "a key must be a text")
		}
		if seen[key.text] {
			return value{}, lineErrorf(key.line, "the key %s stands twice", quote(key.text))
		}
		seen[key.text] = true
		held, err := c.convert(v.Value, key.line, depth+1)
		if err != nil {
			return value{}, err
		}
		out.entries = append(out.entries, entryOf{key: key.text, line: key.line, value: held})
	}
	return out, nil
}
