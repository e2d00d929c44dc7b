package gate

import (
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/toolcrib/toolcrib/guard"
)

// Tools from elsewhere (MCP servers, the bus, clients) have schemas of every dialect. A keyword
// that cannot be checked is left out of the check, but is still shown to the model. Leaving it out
// never makes the check stricter.

const (
	maxRelaxRounds = 32   // each compiles the schema once
	maxForeignEnum = 1000 // values of an enum that are checked
)

// relaxed is a schema from which keywords that cannot be checked are left out.
type relaxed struct {
	doc       map[string]any
	left      map[string]bool // JSON Pointers to the parts left out
	localRefs bool            // the references that are left lead to places in the document
	dialects  map[string]bool // whether the library supports them
}

// compileRelaxed compiles a schema of a tool from elsewhere, and returns the places that are not
// checked.
func compileRelaxed(doc any) (*schema, []string, error) {
	root, ok := doc.(map[string]any)
	if !ok {
		root = map[string]any{"": true} // to be left out
	}
	r := &relaxed{doc: root, left: map[string]bool{}, dialects: map[string]bool{}}
	r.prepare()
	for range maxRelaxRounds {
		if ok = ok && checkShape(r.doc) == nil; !ok {
			break
		}
		r.loosen()
		s, err := compileDocument(r.doc, nil)
		if err == nil {
			return s, slices.Sorted(maps.Keys(r.left)), nil
		}
		ok = r.leaveOut(err)
	}
	s, err := compileDocument(map[string]any{"type": "object"}, nil)
	return s, []string{"/"}, err
}

// UncheckedText describes places of a schema. It returns "" if none.
func UncheckedText(places []string) string {
	if len(places) == 0 {
		return ""
	}
	more := ""
	if n := len(places) - maxSchemaErrors; n > 0 {
		places, more = places[:maxSchemaErrors], " and "+guard.Count(n, "other place")
	}
	return "the arguments are not checked against these parts of the schema, which cannot be checked here: " +
		strings.Join(places, ", ") + more
}

// Unchecked lists the parts of a schema of a tool from elsewhere that arguments are not checked against,
// as JSON Pointers.
func Unchecked(raw json.RawMessage) []string {
	_, _, unchecked, _ := compileSchema(raw, true) // a schema that cannot be read makes its tool unusable
	return unchecked
}

// namedParts are the keywords whose values are schemas by name, dataParts those whose values are
// not schemas.
var (
	namedParts = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
	dataParts  = []string{"enum", "const", "default", "examples", "example"}
	// negating are the keywords that become stricter if their schema becomes weaker.
	negating = []string{"not", "if", "contains"}
)

// walk visits every schema of the document in a fixed order.
func (r *relaxed) walk(visit func(schema map[string]any, at []string)) {
	var schema, list func(v any, at []string)
	list = func(v any, at []string) {
		named, _ := v.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(named)) {
			schema(named[name], append(slices.Clip(at), name))
		}
	}
	schema = func(v any, at []string) {
		switch v := v.(type) {
		case map[string]any:
			visit(v, at)
			for _, keyword := range slices.Sorted(maps.Keys(v)) {
				part, next := v[keyword], append(slices.Clip(at), keyword)
				_, isMap := part.(map[string]any)
				switch {
				case slices.Contains(dataParts, keyword):
				case isMap && slices.Contains(namedParts, keyword):
					list(part, next)
				default:
					schema(part, next)
				}
			}
		case []any:
			for i, part := range v {
				schema(part, append(slices.Clip(at), strconv.Itoa(i)))
			}
		}
	}
	schema(r.doc, nil)
}

// objects reports whether the type of a schema allows objects. A type that is not a name or a list
// of names is left to the library.
func objects(of any) bool {
	if name, ok := of.(string); ok {
		return name == "object"
	}
	list, ok := of.([]any)
	allowed := func(name any) bool { _, text := name.(string); return name == "object" || !text }
	return !ok || slices.ContainsFunc(list, allowed)
}

// prepare leaves out keywords that the library accepts, but that no value would be valid against or
// that would take too long.
func (r *relaxed) prepare() {
	if !objects(r.doc["type"]) {
		r.drop([]string{"type"})
	}
	r.walk(func(s map[string]any, at []string) {
		if enum, ok := s["enum"].([]any); ok && (len(enum) == 0 || len(enum) > maxForeignEnum) {
			r.drop(append(slices.Clip(at), "enum"))
		}
		if s["nullable"] == true { // OpenAPI 3.0
			if t, ok := s["type"].(string); ok {
				s["type"] = []any{t, "null"}
			}
			if enum, ok := s["enum"].([]any); ok && !slices.Contains(enum, nil) {
				s["enum"] = append(slices.Clip(enum), nil)
			}
		}
		for _, keyword := range []string{"$dynamicRef", "$recursiveRef"} {
			if _, ok := s[keyword]; ok {
				r.drop(append(slices.Clip(at), keyword))
			}
		}
		if dialect, ok := s["$schema"]; ok && !r.known(dialect) {
			r.drop(append(slices.Clip(at), "$schema"))
		}
	})
}

// known reports whether the library supports a dialect.
func (r *relaxed) known(dialect any) bool {
	name, ok := dialect.(string)
	if !ok {
		return false
	}
	is, asked := r.dialects[name]
	if !asked && len(r.dialects) < maxDialects {
		_, err := compileDocument(map[string]any{"$schema": name}, nil)
		is = err == nil
		r.dialects[name] = is
	}
	return is
}

// maxDialects bounds the dialects of one schema.
const maxDialects = 64

// at returns the value that a reference of the form #/… leads to, or nil.
func (r *relaxed) at(ref string) any {
	tokens, ok := pointerOf(ref)
	if !ok {
		return nil
	}
	var v any = r.doc
	for _, token := range tokens {
		switch in := v.(type) {
		case map[string]any:
			v = in[token]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(in) {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}

// pointerOf reads the JSON Pointer after # of a reference within the document.
func pointerOf(ref string) (tokens []string, ok bool) {
	_, fragment, ok := strings.Cut(ref, "#")
	text, err := url.PathUnescape(fragment)
	if !ok || err != nil || text == "" {
		return nil, ok && err == nil
	}
	tokens = strings.Split(text, "/")
	for i := range tokens {
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(tokens[i])
	}
	return tokens[1:], tokens[0] == ""
}

// leaveOut leaves out the keywords that an error of the library is about. It reports whether there
// were any.
func (r *relaxed) leaveOut(err error) bool {
	var invalid *jsonschema.SchemaValidationError
	var cause *jsonschema.ValidationError
	var loop *loopError
	before := len(r.left)
	if errors.As(err, &loop) {
		for _, url := range loop.at {
			at, _ := pointerOf(url)
			r.drop(append(at, "$ref"))
		}
		if len(r.left) > before {
			return true
		}
	}
	if errors.As(err, &invalid) && errors.As(invalid.Err, &cause) {
		at, _ := pointerOf(invalid.URL)
		for _, leaf := range leaves(cause) {
			r.drop(slices.Concat(at, leaf))
		}
		return len(r.left) > before
	}
	all := r.localRefs // the references that are left are wrong in another way
	r.localRefs = true
	r.walk(func(s map[string]any, at []string) {
		for _, keyword := range []string{"$id", "id", "$anchor", "$dynamicAnchor"} {
			if _, text := s[keyword].(string); text {
				delete(s, keyword)
			}
		}
		if ref, ok := s["$ref"]; ok {
			text, _ := ref.(string)
			target := r.at(text)
			_, isSchema := target.(map[string]any)
			_, isBool := target.(bool)
			if all || !strings.HasPrefix(text, "#") || !isSchema && !isBool {
				r.drop(append(slices.Clip(at), "$ref"))
			}
		}
	})
	return !all || len(r.left) > before
}

// leaves returns the places of the faults in a schema. Of several alternatives it returns those of
// the one that matched deepest.
func leaves(e *jsonschema.ValidationError) (places [][]string) {
	if len(e.Causes) == 0 {
		return [][]string{e.InstanceLocation}
	}
	if _, ok := e.ErrorKind.(*kind.PropertyNames); ok {
		return [][]string{e.InstanceLocation}
	}
	for _, cause := range e.Causes {
		next := leaves(cause)
		switch e.ErrorKind.(type) {
		case *kind.AnyOf, *kind.OneOf:
			if len(places) == 0 || len(next[0]) > len(places[0]) {
				places = next
			}
		default:
			places = append(places, next...)
		}
	}
	return places
}

// drop leaves out the keyword at a place, or the schema if the place is that of a named one.
func (r *relaxed) drop(place []string) { r.dropBelow(r.doc, place, 0, false) }

// dropBelow drops what place[n:] refers to in v, and reports whether it could. If named is set, v
// has schemas by name.
func (r *relaxed) dropBelow(v any, place []string, n int, named bool) bool {
	last := n == len(place)-1
	switch v := v.(type) {
	case map[string]any:
		if n == len(place) {
			return false
		}
		key := place[n]
		if _, there := v[key]; !there {
			return true // already left out with a larger part
		}
		_, isMap := v[key].(map[string]any)
		// A weaker schema inside of these makes the schema outside stricter.
		whole := last || !named && slices.Contains(negating, key)
		if !whole && r.dropBelow(v[key], place, n+1, isMap && !named && slices.Contains(namedParts, key)) {
			return true
		}
		if r.note(place[:n+1]); named {
			v[key] = true
			return true
		}
		r.remove(v, place[:n+1])
		return true
	case []any:
		i, err := strconv.Atoi(place[min(n, len(place)-1)])
		return err == nil && !last && n < len(place) && i >= 0 && i < len(v) && r.dropBelow(v[i], place, n+1, false)
	}
	return false
}

// remove removes a keyword, and a keyword that would apply to more values without it.
func (r *relaxed) remove(from map[string]any, place []string) {
	key := place[len(place)-1]
	list, _ := from[key].([]any)
	empty := from[key] == nil || list != nil && len(list) == 0 // some languages write an empty object so
	delete(from, key)
	also := map[string]string{
		"properties": "additionalProperties", "patternProperties": "additionalProperties", "prefixItems": "items",
	}[key]
	if _, ok := from[also]; ok && !empty {
		delete(from, also)
		r.note(append(slices.Clone(place[:len(place)-1]), also))
	}
}

func (r *relaxed) note(place []string) { r.left[pointer(place)] = true }

// loosen weakens or drops keywords that could become stricter once any part is left out.
func (r *relaxed) loosen() {
	if len(r.left) == 0 {
		return
	}
	r.walk(func(s map[string]any, at []string) {
		inside := negated(at)
		for keyword, drop := range map[string]bool{
			"unevaluatedProperties": true, "unevaluatedItems": true,
			"oneOf": inside, "$ref": inside, // what it leads to may be weaker
		} {
			if _, ok := s[keyword]; ok && drop {
				r.drop(append(slices.Clip(at), keyword))
			}
		}
		if one, ok := s["oneOf"]; ok && !inside {
			if _, both := s["anyOf"]; !both {
				s["anyOf"] = one
			}
			delete(s, "oneOf")
		}
	})
}

// negated reports whether a place is inside of a keyword that becomes stricter if its schema
// becomes weaker.
func negated(at []string) bool {
	named := false
	return slices.ContainsFunc(at, func(key string) bool {
		is := !named && slices.Contains(negating, key)
		named = !named && slices.Contains(namedParts, key)
		return is
	})
}
