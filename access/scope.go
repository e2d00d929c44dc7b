package access

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Bounds of a scope.
const (
	MaxScopeNames  = 256 // agents, tools, capabilities, or values of a parameter
	MaxScopeParams = 32
	maxValueBytes  = 1024
	maxRate        = 1_000_000
	maxCalls       = 1_000_000_000_000
)

// Scope restricts the use of a token, within the rights of its user. A nil list
// restricts nothing, an empty one permits nothing. Tools and Capabilities
// are two ways to name permitted calls: if either is set, one of them must name the call.
// The zero Scope restricts nothing; a token whose scope cannot be
// read is rejected.
type Scope struct {
	Agents       []string `json:"agents"`       // names and globs
	Tools        []string `json:"tools"`        // names and globs; wildcards alone match nothing
	Capabilities []string `json:"capabilities"` // NAME@MAJOR.MINOR: that version and later minors
	// Params are the permitted values of parameters: strings, numbers, booleans. A
	// call without such a parameter is not covered; if its value is an array, each entry
	// must be permitted.
	Params        map[string][]any `json:"params_constraints,omitempty"`
	RatePerMinute int64            `json:"rate_limit_per_minute,omitempty"` // calls in any 60 seconds; if 0, no limit
	MaxCalls      int64            `json:"max_calls_total,omitempty"`       // if 0, no limit
	// SignIn makes the token a proof of its user's identity, with all rights of the user, including
	// administration. No other field of the scope may be set then.
	SignIn bool `json:"sign_in,omitempty"`
}

// Target is the agent, tool and capability of a call.
type Target struct {
	Agent      string // agent that makes the call
	Tool       string // if "", a capability is called by its own name
	Capability string // NAME@MAJOR.MINOR as offered, if the tool is bound to one
}

func uncovered(format string, args ...any) error {
	return toolcrib.Errorf(toolcrib.CodeScopeInsufficient, format, args...)
}

// Runs returns nil if the scope permits runs of an agent, regardless of their calls, and
// otherwise an error with token_scope_insufficient.
func (s *Scope) Runs(agent string) error {
	if s.Agents != nil && !matchesAny(s.Agents, agent) {
		return uncovered("the token does not cover the agent %+q", clip(agent))
	}
	return nil
}

// Offers returns nil if the scope permits the target with some arguments, and otherwise an
// error with token_scope_insufficient.
func (s *Scope) Offers(t Target) error {
	if err := s.Runs(t.Agent); err != nil {
		return err
	}
	covered := func(granted string) bool { return coversCapability(granted, t.Capability) }
	switch {
	case s.Tools == nil && s.Capabilities == nil, matchesAny(s.Tools, t.Tool),
		t.Capability != "" && slices.ContainsFunc(s.Capabilities, covered):
		return nil
	case t.Tool == "":
		return uncovered("the token does not cover the capability %+q", clip(t.Capability))
	}
	return uncovered("the token does not cover the tool %+q", clip(t.Tool))
}

// Covers returns nil if the scope permits a call, and otherwise an
// error with token_scope_insufficient. args is a JSON object: the arguments of a tool,
// or the params of a capability's body.
func (s *Scope) Covers(t Target, args json.RawMessage) error {
	if err := s.Offers(t); err != nil || len(s.Params) == 0 {
		return err
	}
	given, err := guard.JSONLimits{}.Value(args) // strict: rejects duplicate keys
	object, ok := given.(map[string]any)
	if err != nil || !ok {
		return uncovered("the token covers some arguments only, and these are not a JSON object, each key once")
	}
	for name, allowed := range s.Params {
		value, has := object[name]
		switch {
		case !has:
			return uncovered("the token covers calls with a given %+q only, and the call has none", name)
		case !allIn(value, allowed):
			return uncovered("the token does not cover this value of %+q", name)
		}
	}
	return nil
}

// allIn reports whether a value, or each entry of an array, is permitted. Numbers are compared in the
// canonical form of [guard.Arguments]. Objects, arrays in arrays and null are never permitted.
func allIn(value any, allowed []any) bool {
	list, ok := value.([]any)
	if !ok {
		return valueIn(value, allowed)
	}
	return len(list) > 0 && !slices.ContainsFunc(list, func(entry any) bool { return !valueIn(entry, allowed) })
}

func valueIn(value any, allowed []any) bool {
	return slices.ContainsFunc(allowed, func(one any) bool {
		one, ok := scalar(one)
		if n, is := one.(json.Number); is { // in canonical form, as value is
			read, err := guard.JSONLimits{}.Value([]byte(n))
			one, ok = read, err == nil
		}
		return ok && one == value
	})
}

// scalar returns a value of a scope with numbers as [json.Number].
func scalar(value any) (any, bool) {
	switch v := value.(type) {
	case string:
		return v, len(v) <= maxValueBytes && utf8.ValidString(v)
	case bool:
		return v, true
	case json.Number:
		return v, len(v) <= maxValueBytes && json.Valid([]byte(v))
	case int, int64, float64:
		text, err := json.Marshal(v)
		return json.Number(text), err == nil
	}
	return nil, false
}

// Within returns nil if a scope permits no more than another one, and otherwise an error that says what it would
// permit. A scope with a limit of calls has none within it: both could be used in full.
func (s *Scope) Within(outer Scope) error {
	if s.SignIn {
		return bad("sign_in is not narrower than who asks for it: it has all of the user's rights")
	}
	if outer.SignIn {
		return nil
	}
	if outer.RatePerMinute > 0 || outer.MaxCalls > 0 {
		return bad("a token with a limit of calls cannot ask for another one")
	}
	names := func(what string, inner, outer []string, covers func(outer, inner string) bool) error {
		for _, name := range inner {
			if !slices.ContainsFunc(outer, func(o string) bool { return o == name || covers(o, name) }) {
				return bad("%s: the token that asks for it does not cover %+q", what, clip(name))
			}
		}
		return nil
	}
	plain := func(pattern, name string) bool { return !strings.ContainsAny(name, "*?") && matches(pattern, name) }
	if outer.Agents != nil {
		if s.Agents == nil {
			return bad("agents: name those that the token covers, as the one that asks for it does")
		}
		if err := names("agents", s.Agents, outer.Agents, plain); err != nil {
			return err
		}
	}
	if outer.Tools != nil || outer.Capabilities != nil {
		if s.Tools == nil && s.Capabilities == nil {
			return bad("tools: name those that the token covers, as the one that asks for it does")
		}
		if err := names("tools", s.Tools, outer.Tools, plain); err != nil {
			return err
		}
		if err := names("capabilities", s.Capabilities, outer.Capabilities, coversCapability); err != nil {
			return err
		}
	}
	for name, allowed := range outer.Params {
		inner, ok := s.Params[name]
		if !ok || slices.ContainsFunc(inner, func(v any) bool { return !valueIn(canonical(v), allowed) }) {
			return bad("params_constraints: the token that asks for it does not cover all values of %+q", name)
		}
	}
	return nil
}

// canonical returns a value of a scope as arguments have it.
func canonical(value any) any {
	one, ok := scalar(value)
	if n, is := one.(json.Number); is {
		read, err := guard.JSONLimits{}.Value([]byte(n))
		one, ok = read, err == nil
	}
	if !ok {
		return nil
	}
	return one
}

const maxCapabilityBytes = 128

// ReadCapability reads the NAME@MAJOR.MINOR of a capability: the name consists of words of a-z, 0-9, _ and -, with dots
// between them, each beginning with a letter; the numbers are 0 to 9999.
func ReadCapability(text string) (name string, major, minor int, ok bool) {
	name, version, _ := strings.Cut(text, "@")
	first, second, _ := strings.Cut(version, ".")
	major, ok1 := versionNumber(first)
	minor, ok2 := versionNumber(second)
	if !ok1 || !ok2 || len(text) > maxCapabilityBytes {
		return "", 0, 0, false
	}
	start := true // of a word
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z'
		switch {
		case start && !letter, !start && !letter && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.':
			return "", 0, 0, false
		}
		start = c == '.'
	}
	return name, major, minor, !start
}

// versionNumber reads a number of up to four digits, without leading zeros.
func versionNumber(text string) (n int, ok bool) {
	if text == "" || len(text) > 4 || len(text) > 1 && text[0] == '0' {
		return 0, false
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
		n = 10*n + int(text[i]-'0')
	}
	return n, true
}

// coversCapability reports whether the granted version covers the offered one: the same name
// and major, and at least the granted minor. Names that are not NAME@MAJOR.MINOR, including
// wildcards, neither cover nor are covered.
func coversCapability(granted, offered string) bool {
	name, major, least, ok1 := ReadCapability(granted)
	name2, major2, minor, ok2 := ReadCapability(offered)
	return ok1 && ok2 && name == name2 && major == major2 && minor >= least
}

// matchesAny reports whether one of the names and globs matches the name.
func matchesAny(patterns []string, name string) bool {
	return name != "" && slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, name) })
}

func matches(pattern, name string) bool {
	return readablePattern(pattern) && guard.Glob(pattern, name, true)
}

// readablePattern reports whether a pattern consists of characters of names and
// wildcards, and not only of wildcards.
func readablePattern(pattern string) bool {
	if pattern == "" || len(pattern) > maxGrantBytes || strings.Trim(pattern, "*?") == "" {
		return false
	}
	for i := range len(pattern) {
		if !isLetterOrDigit(pattern[i]) && strings.IndexByte("_-.*?", pattern[i]) < 0 {
			return false
		}
	}
	return true
}

// Check returns the scope without duplicates and with its numbers as [json.Number],
// or an error if it is invalid.
func (s Scope) Check() (out Scope, err error) {
	if s.Agents, err = checkPatterns("agents", s.Agents); err != nil {
		return out, err
	}
	if s.Tools, err = checkPatterns("tools", s.Tools); err != nil {
		return out, err
	}
	s.Capabilities, err = checkList("capabilities", s.Capabilities, MaxScopeNames, func(text string) error {
		if _, _, _, ok := ReadCapability(text); !ok {
			return bad("the capability %+q: write NAME@MAJOR.MINOR, such as rag.query@1.0", clip(text))
		}
		return nil
	})
	switch {
	case err != nil:
		return out, err
	case s.RatePerMinute < 0 || s.RatePerMinute > maxRate:
		return out, bad("rate_limit_per_minute must be 0 (no limit) to %d", maxRate)
	case s.MaxCalls < 0 || s.MaxCalls > maxCalls:
		return out, bad("max_calls_total must be 0 (no limit) to %d", int64(maxCalls))
	}
	if s.Params, err = checkParams(s.Params); err != nil {
		return out, err
	}
	narrowed := s.Agents != nil || s.Tools != nil || s.Capabilities != nil || s.Params != nil ||
		s.RatePerMinute+s.MaxCalls > 0
	if s.SignIn && narrowed {
		return out, bad("sign_in cannot be narrowed: a token either signs its user in, or has a scope")
	}
	return s, nil
}

func checkPatterns(what string, list []string) ([]string, error) {
	return checkList(what, list, MaxScopeNames, func(text string) error {
		plain := !strings.ContainsAny(text, "*?")
		switch {
		case text != "" && strings.Trim(text, "*?") == "":
			return bad("%s: %+q would cover everything; leave %s out to restrict nothing, or name what is covered",
				what, clip(text), what)
		case !readablePattern(text) || what == "tools" && plain && !toolcrib.ValidToolName(text):
			return bad("%s: %+q is neither a name nor a glob", what, clip(text))
		}
		return nil
	})
}

func checkParams(params map[string][]any) (map[string][]any, error) {
	if len(params) == 0 {
		return nil, nil
	}
	if len(params) > MaxScopeParams {
		return nil, bad("params_constraints has more than %d parameters", MaxScopeParams)
	}
	out := map[string][]any{}
	for name, values := range params {
		if name == "" || len(name) > maxGrantBytes || !utf8.ValidString(name) {
			return nil, bad("params_constraints: the name of a parameter has 1 to %d bytes", maxGrantBytes)
		}
		if len(values) > MaxScopeNames {
			return nil, bad("params_constraints: %+q has more than %d values", name, MaxScopeNames)
		}
		out[name] = []any{}
		for _, value := range values {
			one, ok := scalar(value)
			if !ok {
				return nil, bad("params_constraints: a value of %+q is not a string (of at most %d bytes), number or boolean",
					name, maxValueBytes)
			}
			if !slices.Contains(out[name], one) {
				out[name] = append(out[name], one)
			}
		}
	}
	return out, nil
}
