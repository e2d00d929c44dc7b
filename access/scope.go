package access

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// Bounds of a scope.
const (
	MaxScopeNames  = 256 // agents, tools, capabilities, values of one parameter
	MaxScopeParams = 32
	MaxScopeParts  = 8 // see [Scope.Within]
	maxValueBytes  = 1024
	maxRate        = 1_000_000
	maxCalls       = 1_000_000_000_000
)

// Scope is what a token may be used for, within the rights of its user (M16). A list
// that is nil restricts nothing, an empty one grants nothing. Tools and Capabilities
// are two ways to name what may be called: where either is set, a call must be named
// by one of them. The zero Scope restricts nothing; a token whose scope cannot be
// read is refused as a whole.
type Scope struct {
	Agents       []string `json:"agents"`       // names and globs
	Tools        []string `json:"tools"`        // names and globs; wildcards alone mean none
	Capabilities []string `json:"capabilities"` // NAME@MAJOR.MINOR: that version and later minors
	// Params are the values that a parameter may have: strings, numbers, booleans. A
	// call without such a parameter is not covered; of an array, each entry must be
	// allowed.
	Params        map[string][]any `json:"params_constraints,omitempty"`
	RatePerMinute int64            `json:"rate_limit_per_minute,omitempty"` // calls in any 60 seconds; 0 = no limit
	MaxCalls      int64            `json:"max_calls_total,omitempty"`       // 0 = no limit
	// Within are further scopes that must cover a call too; [Intersect] makes them.
	// They have none themselves.
	Within []Scope `json:"within,omitempty"`
}

// Target is what a call is about.
type Target struct {
	Agent      string // under which the call is judged
	Tool       string // "" = none: a capability called by its own name
	Capability string // NAME@MAJOR.MINOR as offered, where the tool is bound to one; "" = none
}

// Offers tells whether the scope allows the target with some arguments: nil, or an
// error with token_scope_insufficient.
func (s *Scope) Offers(t Target) error {
	if err := s.offers(t); err != nil {
		return err
	}
	for i := range s.Within {
		if err := s.Within[i].offers(t); err != nil {
			return err
		}
	}
	return nil
}

// Covers is M16's covers(): it tells whether the scope allows a call. args is a JSON
// object: the arguments of a tool, or the params of a capability's body. The error is
// token_scope_insufficient.
func (s *Scope) Covers(t Target, args json.RawMessage) error {
	if err := s.Offers(t); err != nil {
		return err
	}
	if err := coversParams(s.Params, args); err != nil {
		return err
	}
	for i := range s.Within {
		if err := coversParams(s.Within[i].Params, args); err != nil {
			return err
		}
	}
	return nil
}

// Runs tells whether the scope allows runs of an agent, whatever they call: nil, or an
// error with token_scope_insufficient.
func (s *Scope) Runs(agent string) error {
	if err := s.runs(agent); err != nil {
		return err
	}
	for i := range s.Within {
		if err := s.Within[i].runs(agent); err != nil {
			return err
		}
	}
	return nil
}

func (s *Scope) runs(agent string) error {
	if s.Agents != nil && !matchesAny(s.Agents, agent) {
		return toolcrib.Errorf(toolcrib.CodeScopeInsufficient, "the token does not cover the agent %+q", clip(agent))
	}
	return nil
}

func (s *Scope) offers(t Target) error {
	if err := s.runs(t.Agent); err != nil {
		return err
	}
	if s.Tools == nil && s.Capabilities == nil {
		return nil
	}
	if t.Tool != "" && matchesAny(s.Tools, t.Tool) {
		return nil
	}
	if offered, ok := parseCapability(t.Capability); ok {
		for _, text := range s.Capabilities {
			if granted, ok := parseCapability(text); ok && granted.covers(offered) {
				return nil
			}
		}
	}
	if t.Tool == "" {
		return toolcrib.Errorf(toolcrib.CodeScopeInsufficient, "the token does not cover the capability %+q", clip(t.Capability))
	}
	return toolcrib.Errorf(toolcrib.CodeScopeInsufficient, "the token does not cover the tool %+q", clip(t.Tool))
}

// Limits of the calls that a token with this scope may make.
func (s *Scope) Limits() Limits { return Limits{PerMinute: s.RatePerMinute, Total: s.MaxCalls} }

// matchesAny tells whether one of the names and globs means the name.
func matchesAny(patterns []string, name string) bool {
	return name != "" && slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, name) })
}

func matches(pattern, name string) bool {
	if !readablePattern(pattern) {
		return false
	}
	if !strings.ContainsAny(pattern, "*?") {
		return pattern == name
	}
	if strings.Contains(name, "/") { // a star of path.Match ends there
		return false
	}
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// readablePattern tells whether a pattern has only what names have, and wildcards, and
// not only wildcards.
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

// Check returns the scope without repetitions and with its numbers as JSON has them,
// or says what is wrong with it.
func (s Scope) Check() (Scope, error) {
	within := s.Within
	if len(within) > MaxScopeParts {
		return Scope{}, toolcrib.Errorf(toolcrib.CodeBadRequest, "the scope has more than %d parts", MaxScopeParts)
	}
	s, err := s.check()
	if err != nil {
		return Scope{}, err
	}
	s.Within = nil
	for _, part := range within {
		if len(part.Within) > 0 {
			return Scope{}, toolcrib.Errorf(toolcrib.CodeBadRequest, "a part of the scope has parts itself")
		}
		if part, err = part.check(); err != nil {
			return Scope{}, err
		}
		s.Within = append(s.Within, part)
	}
	return s, nil
}

func (s Scope) check() (out Scope, err error) {
	if s.Agents, err = checkPatterns("agents", s.Agents); err != nil {
		return out, err
	}
	if s.Tools, err = checkPatterns("tools", s.Tools); err != nil {
		return out, err
	}
	s.Capabilities, err = checkList("capabilities", s.Capabilities, MaxScopeNames, func(text string) (string, error) {
		if _, ok := parseCapability(text); !ok {
			return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "the capability %+q: write NAME@MAJOR.MINOR, such as rag.query@1.0", clip(text))
		}
		return text, nil
	})
	if err != nil {
		return out, err
	}
	if s.RatePerMinute < 0 || s.RatePerMinute > maxRate {
		return out, toolcrib.Errorf(toolcrib.CodeBadRequest, "rate_limit_per_minute must be 0 (no limit) to %d", maxRate)
	}
	if s.MaxCalls < 0 || s.MaxCalls > maxCalls {
		return out, toolcrib.Errorf(toolcrib.CodeBadRequest, "max_calls_total must be 0 (no limit) to %d", int64(maxCalls))
	}
	if s.Params, err = checkParams(s.Params); err != nil {
		return out, err
	}
	return s, nil
}

func checkPatterns(what string, list []string) ([]string, error) {
	return checkList(what, list, MaxScopeNames, func(text string) (string, error) {
		switch {
		case text != "" && strings.Trim(text, "*?") == "":
			return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "%s: %+q would cover everything; leave %s out to restrict nothing, or name what is covered", what, clip(text), what)
		case !readablePattern(text) || what == "tools" && !strings.ContainsAny(text, "*?") && !toolcrib.ValidToolName(text):
			return "", toolcrib.Errorf(toolcrib.CodeBadRequest, "%s: %+q is neither a name nor a glob", what, clip(text))
		}
		return text, nil
	})
}
