package sqlite

import (
	"context"
	"fmt"

	"github.com/toolcrib/toolcrib/store"
)

// verifyUsed compares what is counted of what runs have used with what the events
// and the records of pruning give.
func (sn snapshot) verifyUsed(ctx context.Context, want store.Used, p problems) error {
	if len(p.all.Problems) > 0 {
		return nil // it would only say the same again
	}
	models, tools := 0, 0
	err := each(ctx, sn.query, "SELECT "+usageColumns+" FROM usage", nil, func(scan func(...any) error) error {
		var k store.UsageKey
		var v store.UsageSum
		var marks usageMarks
		models++
		err := scan(&k.Day, &k.Run, &k.Provider, &k.Model, &k.User, &k.Agent, &k.Session, &v.Requests, &v.InputTokens, &v.CachedInputTokens,
			&v.CacheWriteTokens, &v.OutputTokens, &v.ReasoningTokens, &v.NanoUSD, &marks)
		v.Estimated, v.Unpriced = marks&markEstimated != 0, marks&markUnpriced != 0
		w, ok := want.Models[k]
		w.Unpriced = w.Unpriced && v.Unpriced // older versions did not note it
		if err == nil && (!ok || w != v || marks&^(markEstimated|markUnpriced) != 0) {
			err = &store.ChainError{Run: k.Run, What: fmt.Sprintf("its usage of %s is kept as %+v, its events give %+v", k.Day, v, w)}
		}
		return err
	})
	if err == nil && models < len(want.Models) {
		err = &store.ChainError{What: "usage that events tell of is kept nowhere"}
	}
	if err != nil {
		return p.add(err)
	}
	err = each(ctx, sn.query, "SELECT "+toolColumns+" FROM tool_usage", nil, func(scan func(...any) error) error {
		var k store.ToolUseKey
		var v store.ToolUseSum
		tools++
		err := scan(&k.Tool, &k.Day, &k.Agent, &k.User, &k.Provider, &k.Model, &v.Calls, &v.Errors, &v.Refused, &v.DurationMS)
		if w, ok := want.Tools[k]; err == nil && (!ok || w != v) {
			err = &store.ChainError{What: fmt.Sprintf("tool %s is counted on %s with %+v, its calls are %+v", k.Tool, k.Day, v, w)}
		}
		return err
	})
	if err == nil && tools < len(want.Tools) {
		err = &store.ChainError{What: "calls of a tool that events tell of are counted nowhere"}
	}
	if err == nil {
		err = sn.verifySpent(ctx, want)
	}
	if err == nil {
		err = sn.verifyRules(ctx, want)
	}
	return p.add(err)
}

// verifySpent compares what budgets are compared with.
func (sn snapshot) verifySpent(ctx context.Context, want store.Used) error {
	n := 0
	err := each(ctx, sn.query, "SELECT "+spentColumns+" FROM spent", nil, func(scan func(...any) error) error {
		var k store.SpentKey
		var v store.SpentSum
		n++
		err := scan(&k.User, &k.Day, &v.Requests, &v.Tokens, &v.NanoUSD)
		if w, ok := want.Spent[k]; err == nil && (!ok || w != v) {
			err = &store.ChainError{What: fmt.Sprintf("%s has spent on %s what is kept as %+v, the events give %+v", k.User, k.Day, v, w)}
		}
		return err
	})
	if err == nil && n < len(want.Spent) {
		err = &store.ChainError{What: "what a user has spent is kept nowhere"}
	}
	return err
}

// verifyRules compares how often rules have decided.
func (sn snapshot) verifyRules(ctx context.Context, want store.Used) error {
	n := 0
	err := each(ctx, sn.query, "SELECT "+ruleColumns+" FROM rule_usage", nil, func(scan func(...any) error) error {
		var k store.RuleUseKey
		var v store.RuleUseSum
		n++
		err := scan(&k.Rule, &k.Decision, &k.Tool, &k.Day, &v.Calls, &v.Last)
		if w, ok := want.Rules[k]; err == nil && (!ok || w != v) {
			err = &store.ChainError{What: fmt.Sprintf("rule %s is counted on %s with %+v, its decisions are %+v", k.Rule, k.Day, v, w)}
		}
		return err
	})
	if err == nil && n < len(want.Rules) {
		err = &store.ChainError{What: "decisions of a rule are counted nowhere"}
	}
	return err
}
