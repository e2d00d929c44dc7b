package store

import (
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// RuleUseKey is what a store keeps the decisions of rules by.
type RuleUseKey struct {
	Rule     string            `json:"rule"`
	Decision toolcrib.Decision `json:"decision"` // "" = refused
	Tool     string            `json:"tool"`
	Day      Day               `json:"day"`
}

// RuleUseSum is how often a rule has decided, and when last.
type RuleUseSum struct {
	Calls int64 `json:"calls"`
	Last  int64 `json:"last"` // Unix microseconds
}

func (s *RuleUseSum) add(o RuleUseSum) {
	s.Calls += o.Calls
	s.Last = max(s.Last, o.Last)
}

// RuleCount is how often a rule has decided about calls of a tool, in all runs, also
// in those that were pruned since. A call counts once, for the rule that decided when
// it was first judged.
type RuleCount struct {
	Rule     string            `json:"rule"`
	Decision toolcrib.Decision `json:"decision"` // "" = refused
	Tool     string            `json:"tool"`
	Calls    int64             `json:"calls"`
	LastUsed time.Time         `json:"last_used"`
}

// maxRuleName bounds the name of a rule in bytes.
const maxRuleName = 256

// decidedByRules adds the calls that rules have decided about to a list.
func decidedByRules(list []Charge, b *journal.Verdicts, at time.Time) []Charge {
	if b.Again {
		return list
	}
	for i := range b.Verdicts {
		v := &b.Verdicts[i]
		if v.Rule == "" || len(v.Rule) > maxRuleName || !toolName(v.Tool) {
			continue
		}
		list = append(list, Charge{
			ruleKey: RuleUseKey{Rule: v.Rule, Decision: v.Decision, Tool: v.Tool, Day: DayOf(at)},
			ruleSum: RuleUseSum{Calls: 1, Last: at.UnixMicro()},
		})
	}
	return list
}
