package yamltree

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	yaml "github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/toolcrib/toolcrib/guard"
)

// Limits bound a file. They limit the time for parsing a hostile one to a fraction of a second, and
// should be far above what a person writes.
type Limits struct {
	Bytes  int // size of the file
	Tokens int // number of words and marks; the time for parsing grows with their square
	Depth  int // nesting of lists and mappings
	// FirstLine is the line of the file in which the text begins; 0 means 1.
	FirstLine int
}

// Parse parses one document; an empty one is null. If the file is not plain YAML, the tree is nil
// and there is one error. Duplicate keys are errors, but the tree is returned with their first
// values.
func Parse(data []byte, limits Limits) (root *Node, errs []Error) {
	p := parsing{limits: limits, offset: max(limits.FirstLine-1, 0), read: map[*token.Token]bool{}}
	// A panic of the YAML library must not end a server that reloads its configuration: the file
	// is refused instead.
	defer func() {
		if r := recover(); r != nil {
			root, errs = nil, []Error{*p.errorf(1, "cannot be read as YAML")}
		}
	}()
	root, err := p.parse(data)
	if err != nil {
		return nil, []Error{*err}
	}
	return root, p.duplicates
}

// parsing converts the tree of the library, and records the words that are in it.
type parsing struct {
	limits     Limits
	offset     int // number of lines of the file before the text
	source     *source
	read       map[*token.Token]bool
	duplicates []Error
}

func (p *parsing) errorf(line int, format string, args ...any) *Error {
	return &Error{Line: line + p.offset, Message: fmt.Sprintf(format, args...)}
}

func (p *parsing) parse(data []byte) (*Node, *Error) {
	if len(data) > p.limits.Bytes {
		return nil, p.errorf(1, "is larger than %d bytes", p.limits.Bytes)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if line := invalidLine(data); line > 0 {
		return nil, p.errorf(line, "is not valid UTF-8 text")
	}
	text := strings.ReplaceAll(string(data), "\r\n", "\n") // the library miscounts such lines inside quotes
	p.source = &source{strings.Split(text, "\n"), p.offset}
	tokens := lexer.Tokenize(text)
	words, err := p.check(tokens)
	if err != nil {
		return nil, err
	}
	// Duplicate keys are found later, with their key path.
	file, parseErr := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if parseErr != nil {
		return nil, p.syntax(parseErr, 1+strings.Count(text, "\n"))
	}
	root := &Node{Kind: Null, Line: 1 + p.offset}
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if root, err = p.convert(doc.Body, "", 1, 0); err != nil {
			return nil, err
		}
		break
	}
	for _, word := range words {
		if !p.read[word] {
			// The parser has dropped a word, which must not happen silently.
			return nil, p.errorf(lineOf(word, 1), "is not valid YAML: something is out of place")
		}
	}
	return root, nil
}

// refused are the errors for marks of YAML that are not plain.
var refused = map[token.Type]string{
	token.TagType:        "tags are not allowed; put a text that begins with ! in quotes",
	token.MergeKeyType:   "merge keys (<<) are not allowed",
	token.DirectiveType:  "directives (%) are not allowed",
	token.MappingKeyType: "keys written with ? are not allowed",
}

// check refuses YAML that is not plain, before a recursive parser reads it: a few bytes of anchors
// or brackets can cost a parser gigabytes. It also refuses a second document, since the parser may
// return either. It returns the words of the file, which are keys and scalars.
func (p *parsing) check(tokens token.Tokens) (words token.Tokens, err *Error) {
	if most := p.limits.Tokens; len(tokens) > most {
		return nil, p.errorf(lineOf(tokens[most], 1), "the file has more than %d words and marks", most)
	}
	flow, run, began, ended := 0, 0, false, false
	for _, t := range tokens {
		line := lineOf(t, 1)
		if what := refused[t.Type]; what != "" {
			return nil, p.errorf(line, "%s", what)
		}
		if t.Type != token.SequenceEntryType {
			run = 0
		}
		switch t.Type {
		case token.CommentType:
			continue
		case token.AnchorType, token.AliasType:
			return nil, p.errorf(line,
				"anchors and aliases (& and *) are not allowed; put a text that begins with %s in quotes", t.Value)
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType:
			run++
		case token.DocumentEndType:
			began, ended = true, true
			continue
		}
		if ended || began && t.Type == token.DocumentHeaderType {
			return nil, p.errorf(line, "only one YAML document is allowed")
		}
		began = true
		if flow+run > p.limits.Depth {
			return nil, p.tooDeep(line)
		}
		switch t.Type {
		case token.StringType, token.SingleQuoteType, token.DoubleQuoteType, token.BoolType, token.NullType,
			token.IntegerType, token.BinaryIntegerType, token.OctetIntegerType, token.HexIntegerType,
			token.FloatType, token.InfinityType, token.NanType:
			words = append(words, t)
		}
	}
	return words, nil
}

func (p *parsing) tooDeep(line int) *Error {
	return p.errorf(line, "lists and mappings are nested deeper than %d", p.limits.Depth)
}

// syntax converts an error of the library, without its excerpt of the file, which may contain a
// secret.
func (p *parsing) syntax(err error, lastLine int) *Error {
	var ye yaml.Error
	if !errors.As(err, &ye) {
		return p.errorf(lastLine, "is not valid YAML")
	}
	message := strings.ReplaceAll(ye.GetMessage(), "\t", `\t`)
	if strings.Contains(message, "tab character") || strings.Contains(message, `'\t'`) {
		message = "a tab is used for indentation; use spaces"
	}
	message = guard.Clip(strings.Map(func(r rune) rune { return max(r, ' ') }, message), 200)
	out := p.errorf(lineOf(ye.GetToken(), lastLine), "is not valid YAML: %s", message)
	out.Column = columnOf(ye.GetToken())
	return out
}

func lineOf(t *token.Token, otherwise int) int {
	if t == nil || t.Position == nil || t.Position.Line < 1 {
		return otherwise
	}
	return t.Position.Line
}

// columnOf returns the column at which a token begins, or 0 if unknown.
func columnOf(t *token.Token) int {
	if t == nil || t.Position == nil {
		return 0
	}
	return max(t.Position.Column, 0)
}

// convert converts a value that begins in the given line or after it.
func (p *parsing) convert(n ast.Node, path string, line, depth int) (*Node, *Error) {
	out := &Node{Kind: Null, Path: path, Line: line + p.offset}
	if n == nil {
		return out, nil
	}
	t := n.GetToken()
	line = lineOf(t, line)
	out.Line, out.Column = line+p.offset, columnOf(t)
	if depth > p.limits.Depth {
		return nil, p.tooDeep(line)
	}
	p.read[t] = true
	out.Text = t.Value
	switch x := n.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		out.Kind = Bool
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		out.Kind = Number
	case *ast.StringNode:
		out.Kind, out.Text, out.source, out.at = Text, x.Value, p.source, position{line, out.Column}
		switch {
		case t.Type == token.SingleQuoteType:
			out.style = '\''
		case t.Type == token.DoubleQuoteType:
			out.style = '"'
		case PlainNumber.MatchString(x.Value):
			out.Kind = Number // 1e3 and integers of more than 64 bits
		}
	case *ast.LiteralNode:
		p.read[x.Value.GetToken()] = true // the token of n is the mark before it
		out.Kind, out.Text, out.source = Text, x.Value.Value, p.source
		out.at, out.style = position{line, out.Column}, '|'
	case *ast.SequenceNode:
		out.Kind, out.Items = List, make([]*Node, 0, len(x.Values))
		for i, v := range x.Values {
			item, err := p.convert(v, JoinIndex(path, i), line, depth+1)
			if err != nil {
				return nil, err
			}
			out.Items = append(out.Items, item)
		}
	case *ast.MappingNode:
		return out, p.mapping(out, x.Values, line, depth)
	case *ast.MappingValueNode:
		return out, p.mapping(out, []*ast.MappingValueNode{x}, line, depth)
	default:
		return nil, p.errorf(line, "%s is not allowed here", strings.ToLower(n.Type().String()))
	}
	return out, nil
}

func (p *parsing) mapping(out *Node, values []*ast.MappingValueNode, line, depth int) *Error {
	out.Kind, out.Entries = Map, make([]Entry, 0, len(values))
	first := make(map[string]int, len(values)) // lines
	for i, v := range values {
		key, err := p.convert(v.Key, "", lineOf(v.Key.GetToken(), line), depth+1)
		if err != nil {
			return err
		}
		if !key.IsScalar() {
			return p.errorf(key.Line-p.offset, "a key must be a text")
		}
		path := JoinKey(out.Path, key.Text)
		value, err := p.convert(v.Value, path, key.Line-p.offset, depth+1)
		if err != nil {
			return err
		}
		// Errors about a value have the position of its key.
		value.Line, value.Column = key.Line, key.Column
		if i == 0 {
			out.Line, out.Column = key.Line, key.Column
		}
		if before, ok := first[key.Text]; ok {
			p.duplicates = append(p.duplicates, value.Errorf("duplicate key %s; it is already at line %d",
				Quote(key.Text), before))
			continue
		}
		first[key.Text] = key.Line
		out.Entries = append(out.Entries, Entry{key.Text, value})
	}
	return nil
}
