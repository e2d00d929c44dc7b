package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	yaml "github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a configuration file. They keep a hostile file from costing more
// than a fraction of a second, and are far above what a person writes.
const (
	MaxBytes  = 1 << 20 // size of the file
	maxTokens = 30_000  // pieces of YAML: the parser's time grows with their square
	maxDepth  = 32      // lists and mappings inside one another
)

type kind string

// The kinds of a node, in the words of error messages.
const (
	kindNull   kind = "null"
	kindBool   kind = "true or false"
	kindNumber kind = "a number"
	kindText   kind = "a text"
	kindList   kind = "a list"
	kindDict   kind = "a mapping"
)

// node is a YAML value of the plain kind: no anchors, aliases, tags or merge keys.
type node struct {
	kind    kind
	text    string // of a scalar, as written; of a text, its value
	line    int
	column  int          // from 1; 0 = not known
	start   TextPosition // of a text, where it is known
	items   []*node
	entries []entry
}

type entry struct {
	key    string
	line   int
	column int
	value  *node
}

// syntaxError is a file that is no YAML, or not of the plain kind.
type syntaxError struct {
	line, column int
	message      string
}

func (e *syntaxError) Error() string { return e.message }

func syntaxErrorf(line int, format string, args ...any) error {
	return &syntaxError{line: line, message: fmt.Sprintf(format, args...)}
}

// parseYAML reads one YAML document. An empty one is null.
func parseYAML(data []byte) (n *node, err error) {
	// A fault in the YAML library must not take a server down that reloads its
	// configuration: the file is refused instead.
	defer func() {
		if r := recover(); r != nil {
			n, err = nil, syntaxErrorf(1, "cannot be read as YAML")
		}
	}()
	if len(data) > MaxBytes {
		return nil, syntaxErrorf(1, "is larger than %d bytes", MaxBytes)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if line := invalidLine(data); line > 0 {
		return nil, syntaxErrorf(line, "is not valid UTF-8 text")
	}
	tokens := lexer.Tokenize(string(data))
	if err := checkTokens(tokens); err != nil {
		return nil, err
	}
	words, err := checkDocuments(tokens)
	if err != nil {
		return nil, err
	}
	// Duplicate keys are found by the decoder, with their key path.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, fromParser(err, 1+bytes.Count(data, []byte("\n")))
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if body == nil {
			body = doc.Body
		}
	}
	c := converter{read: make(map[*token.Token]bool, len(words))}
	n, err = c.convert(body, 1, 0)
	if err != nil {
		return nil, err
	}
	for _, word := range words {
		if !c.read[word] {
			// A rule that the parser drops must not become one that is not there.
			return nil, syntaxErrorf(lineOf(word, 1), "is no valid YAML: something is out of place")
		}
	}
	return n, nil
}

// invalidLine returns the line of the first byte that is no valid UTF-8 or a NUL; 0 = none.
func invalidLine(data []byte) int {
	if utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 {
		return 0
	}
	line := 1
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == 0 || r == utf8.RuneError && size == 1 {
			return line
		}
		if r == '\n' {
			line++
		}
		data = data[size:]
	}
	return 0
}

// checkTokens refuses what a configuration never needs before anything recursive
// sees the file: a few bytes of anchors or brackets can cost a parser gigabytes.
func checkTokens(tokens token.Tokens) error {
	if len(tokens) > maxTokens {
		return syntaxErrorf(lineOf(tokens[maxTokens], 1), "the file has more than %d words and marks", maxTokens)
	}
	flow, run := 0, 0
	for _, t := range tokens {
		line := lineOf(t, 1)
		switch t.Type {
		case token.AnchorType, token.AliasType:
			return syntaxErrorf(line, "anchors and aliases (& and *) are not allowed; put a text that begins with %s in quotes", t.Value)
		case token.TagType:
			return syntaxErrorf(line, "tags are not allowed; put a text that begins with ! in quotes")
		case token.MergeKeyType:
			return syntaxErrorf(line, "merge keys (<<) are not allowed")
		case token.DirectiveType:
			return syntaxErrorf(line, "directives (%%) are not allowed")
		case token.MappingKeyType:
			return syntaxErrorf(line, "keys written with ? are not allowed")
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType:
			run++
		default:
			run = 0
		}
		if flow+run > maxDepth {
			return syntaxErrorf(line, "lists and mappings are nested deeper than %d", maxDepth)
		}
	}
	return nil
}

// checkDocuments refuses a second document, of which the parser may keep either,
// and returns the words of the file: keys and scalar values.
func checkDocuments(tokens token.Tokens) (words token.Tokens, err error) {
	content, header, ended := false, false, false
	for _, t := range tokens {
		switch t.Type {
		case token.CommentType:
		case token.DocumentEndType:
			ended = true
		case token.DocumentHeaderType:
			if header || content || ended {
				return nil, syntaxErrorf(lineOf(t, 1), "only one YAML document is allowed")
			}
			header = true
		default:
			if ended {
				return nil, syntaxErrorf(lineOf(t, 1), "only one YAML document is allowed")
			}
			content = true
			if isWord(t) {
				words = append(words, t)
			}
		}
	}
	return words, nil
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

// converter turns the library's tree into ours and remembers the words in it.
type converter struct{ read map[*token.Token]bool }

// fromParser keeps message and line of the library's error, and not its excerpt
// of the file, which may hold a secret.
func fromParser(err error, lastLine int) error {
	var ye yaml.Error
	if !errors.As(err, &ye) {
		return syntaxErrorf(lastLine, "is no valid YAML")
	}
	at := ye.GetToken()
	return &syntaxError{line: lineOf(at, lastLine), column: columnOf(at), message: "is no valid YAML: " + explainSyntax(ye.GetMessage())}
}

// explainSyntax adds to messages of the library that puzzle newcomers what is
// most often behind them.
func explainSyntax(message string) string {
	if strings.Contains(message, "tab character") || strings.Contains(message, `'\t'`) || strings.Contains(message, "'\t'") {
		return "a tab is used for indentation; use spaces"
	}
	// Only words of the library may be shown, never what it read.
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, message)
}

func lineOf(t *token.Token, otherwise int) int {
	if t == nil || t.Position == nil || t.Position.Line < 1 {
		return otherwise
	}
	return t.Position.Line
}

// columnOf is where in its line a token begins; 0 = not known.
func columnOf(t *token.Token) int {
	if t == nil || t.Position == nil {
		return 0
	}
	return max(t.Position.Column, 0)
}

func (c *converter) convert(n ast.Node, line, depth int) (*node, error) {
	out, err := c.value(n, line, depth)
	if err == nil && n != nil {
		out.column = columnOf(n.GetToken())
	}
	return out, err
}

func (c *converter) value(n ast.Node, line, depth int) (*node, error) {
	if n == nil {
		return &node{kind: kindNull, line: line}, nil
	}
	line = lineOf(n.GetToken(), line)
	if depth > maxDepth {
		return nil, syntaxErrorf(line, "lists and mappings are nested deeper than %d", maxDepth)
	}
	c.read[n.GetToken()] = true
	scalar := func(k kind) (*node, error) {
		return &node{kind: k, text: n.GetToken().Value, line: line}, nil
	}
	switch x := n.(type) {
	case *ast.NullNode:
		return scalar(kindNull)
	case *ast.BoolNode:
		return scalar(kindBool)
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return scalar(kindNumber)
	case *ast.StringNode:
		quoted := x.Token.Type == token.SingleQuoteType || x.Token.Type == token.DoubleQuoteType
		if !quoted && jsonNumber.MatchString(x.Value) {
			return scalar(kindNumber) // 1e3 and whole numbers of more than 64 bits
		}
		return &node{kind: kindText, text: x.Value, line: line, start: startOfWord(x)}, nil
	case *ast.LiteralNode:
		c.read[x.Value.GetToken()] = true // n's own is the mark before it
		return &node{kind: kindText, text: x.Value.Value, line: line, start: startOfBlock(x)}, nil
	case *ast.SequenceNode:
		return c.list(x, line, depth)
	case *ast.MappingNode:
		return c.dict(x.Values, line, depth)
	case *ast.MappingValueNode:
		return c.dict([]*ast.MappingValueNode{x}, line, depth)
	}
	return nil, syntaxErrorf(line, "%s is not allowed here", strings.ToLower(n.Type().String()))
}

func (c *converter) list(x *ast.SequenceNode, line, depth int) (*node, error) {
	out := &node{kind: kindList, line: line, items: make([]*node, 0, len(x.Values))}
	for _, v := range x.Values {
		item, err := c.convert(v, line, depth+1)
		if err != nil {
			return nil, err
		}
		out.items = append(out.items, item)
	}
	return out, nil
}

func (c *converter) dict(values []*ast.MappingValueNode, line, depth int) (*node, error) {
	out := &node{kind: kindDict, line: line, entries: make([]entry, 0, len(values))}
	for _, v := range values {
		keyLine := lineOf(v.Key.GetToken(), line)
		key, err := c.convert(v.Key, keyLine, depth+1)
		if err != nil {
			return nil, err
		}
		if key.kind != kindText && key.kind != kindBool && key.kind != kindNumber {
			return nil, syntaxErrorf(keyLine, "a key must be a text")
		}
		value, err := c.convert(v.Value, keyLine, depth+1)
		if err != nil {
			return nil, err
		}
		out.entries = append(out.entries, entry{key: key.text, line: keyLine, column: key.column, value: value})
	}
	if len(out.entries) > 0 {
		out.line, out.column = out.entries[0].line, out.entries[0].column
	}
	return out, nil
}
