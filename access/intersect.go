package access

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// Intersect returns the scope of what both cover, and nothing else: a call is covered
// by it if and only if both cover it, and of limits the smaller ones count. It is how
// a scope is narrowed; nothing widens one. What does not fit into one list of each
// kind stands in [Scope.Within]; too many such parts are an error.
func Intersect(a, b Scope) (Scope, error) {
	out := Scope{RatePerMinute: smaller(a.RatePerMinute, b.RatePerMinute), MaxCalls: smaller(a.MaxCalls, b.MaxCalls)}
	for _, part := range slices.Concat([]Scope{a}, a.Within, []Scope{b}, b.Within) {
		out.RatePerMinute = smaller(out.RatePerMinute, part.RatePerMinute)
		out.MaxCalls = smaller(out.MaxCalls, part.MaxCalls)
		part.RatePerMinute, part.MaxCalls, part.Within = 0, 0, nil
		if rest := out.narrow(part); !rest.empty() && !slices.ContainsFunc(out.Within, func(s Scope) bool { return reflect.DeepEqual(s, rest) }) {
			out.Within = append(out.Within, rest)
		}
	}
	if len(out.Within) > MaxScopeParts {
		return Scope{}, toolcrib.Errorf(toolcrib.CodeBadRequest, "the scope would have more than %d parts; issue a token with a simpler one", MaxScopeParts)
	}
	return out, nil
}

// narrow takes as much of a part into the scope's own lists as they can say, and
// returns what is left.
func (s *Scope) narrow(part Scope) (rest Scope) {
	if list, ok := commonNames(s.Agents, part.Agents); ok {
		s.Agents = list
	} else {
		rest.Agents = part.Agents
	}
	switch list, ok := commonNames(s.Tools, part.Tools); {
	case part.Tools == nil && part.Capabilities == nil:
	case s.Tools == nil && s.Capabilities == nil:
		s.Tools, s.Capabilities = slices.Clone(part.Tools), slices.Clone(part.Capabilities)
	case ok && s.Capabilities == nil && part.Capabilities == nil:
		s.Tools = list
	default:
		rest.Tools, rest.Capabilities = part.Tools, part.Capabilities
	}
	s.Params = commonParams(s.Params, part.Params)
	return rest
}

func (s *Scope) empty() bool {
	return s.Agents == nil && s.Tools == nil && s.Capabilities == nil && len(s.Params) == 0
}

// commonNames returns a list of what both lists mean; false if none can say it.
func commonNames(a, b []string) ([]string, bool) {
	switch {
	case a == nil:
		return slices.Clone(b), true
	case b == nil, slices.Equal(a, b):
		return a, true
	case plainNames(a):
		return namesIn(a, b), true
	case plainNames(b):
		return namesIn(b, a), true
	}
	return nil, false
}

func plainNames(list []string) bool {
	return !slices.ContainsFunc(list, func(name string) bool { return strings.ContainsAny(name, "*?") })
}

func namesIn(names, patterns []string) []string {
	out := make([]string, 0, len(names))
	for _, name := range names {
		if matchesAny(patterns, name) {
			out = append(out, name)
		}
	}
	return out
}

func commonParams(a, b map[string][]any) map[string][]any {
	if len(a) == 0 && len(b) == 0 {
		return nil
	}
	out := maps.Clone(a)
	if out == nil {
		out = map[string][]any{}
	}
	for name, values := range b {
		own, ok := a[name]
		if !ok {
			out[name] = values
			continue
		}
		both := make([]any, 0, len(own))
		for _, value := range own {
			if one, ok := scalar(value); ok && valueIn(one, values) {
				both = append(both, one)
			}
		}
		out[name] = both
	}
	return out
}

// smaller returns the smaller limit; 0 is none.
func smaller(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
