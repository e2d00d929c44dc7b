package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib/store"
)

// verifyUsed compares what is counted of what runs have used with what the events
// and the records of pruning give.
func (sn snapshot) verifyUsed(ctx context.Context, want store.Used, p problems) error {
	if len(p.all.Problems) > 0 {
		return nil // it would only say the same again
	}
	models, tools := 0, 0
	err := sn.each(ctx, "SELECT "+usageColumns+" FROM usage", nil, func(scan scanFunc) error {
		var k store.UsageKey
		var v store.UsageSum
		var marks usageMarks
		models++
		err := scan(&k.Day, &k.Run, &k.Provider, &k.Model, &k.User, &k.Agent, &k.Session, &v.Requests, &v.InputTokens, &v.CachedInputTokens,
			&v.CacheWriteTokens, &v.OutputTokens, &v.ReasoningTokens, &v.NanoUSD, &marks)
		v.Estimated, v.Unpriced = marks&markEstimated != 0, marks&markUnpriced != 0
		w, ok := want.Models[k]
		if err == nil && (!ok || w != v || marks&^(markEstimated|markUnpriced) != 0) {
			err = &store.ChainError{Run: k.Run, What: fmt.Sprintf("its usage of %s is kept as %s; its events give %s", k.Day, usageText(v), usageText(w))}
		}
		return err
	})
	if err == nil && models < len(want.Models) {
		err = &store.ChainError{What: "usage that events tell of is kept nowhere"}
	}
	if err != nil {
		return p.add(err)
	}
	err = sn.each(ctx, "SELECT "+toolColumns+" FROM tool_usage", nil, func(scan scanFunc) error {
		var k store.ToolUseKey
		var v store.ToolUseSum
		tools++
		err := scan(&k.Tool, &k.Day, &k.Agent, &k.User, &k.Provider, &k.Model, &v.Calls, &v.Errors, &v.Refused, &v.DurationMS)
		if w, ok := want.Tools[k]; err == nil && (!ok || w != v) {
			err = &store.ChainError{What: fmt.Sprintf("tool %s is counted on %s with %s; its calls are %s", k.Tool, k.Day, toolUseText(v), toolUseText(w))}
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
	err := sn.each(ctx, "SELECT "+spentColumns+" FROM spent", nil, func(scan scanFunc) error {
		var k store.SpentKey
		var v store.SpentSum
		n++
		err := scan(&k.User, &k.Day, &v.Requests, &v.Tokens, &v.NanoUSD)
		if w, ok := want.Spent[k]; err == nil && (!ok || w != v) {
			err = &store.ChainError{What: fmt.Sprintf("%s has spent on %s what is kept as %s; the events give %s", k.User, k.Day, spentText(v), spentText(w))}
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
	err := sn.each(ctx, "SELECT "+ruleColumns+" FROM rule_usage", nil, func(scan scanFunc) error {
		var k store.RuleUseKey
		var v store.RuleUseSum
		n++
		err := scan(&k.Rule, &k.Decision, &k.Tool, &k.Day, &v.Calls, &v.Last)
		if w, ok := want.Rules[k]; err == nil && (!ok || w != v) {
			err = &store.ChainError{What: fmt.Sprintf("rule %s is counted on %s with %s; its decisions are %s", k.Rule, k.Day, ruleUseText(v), ruleUseText(w))}
		}
		return err
	})
	if err == nil && n < len(want.Rules) {
		err = &store.ChainError{What: "decisions of a rule are counted nowhere"}
	}
	return err
}

// spentText is what a user has spent, in words.
func spentText(v store.SpentSum) string {
	return fmt.Sprintf("%d requests, %d tokens, %.9f US dollars", v.Requests, v.Tokens, float64(v.NanoUSD)/1e9)
}

// ruleUseText is how often a rule has decided, in words.
func ruleUseText(v store.RuleUseSum) string {
	return fmt.Sprintf("%d calls, the last at %s", v.Calls, time.UnixMicro(v.Last).UTC().Format(time.RFC3339Nano))
}

// usageText is what a run has used, in words.
func usageText(v store.UsageSum) string {
	text := fmt.Sprintf("%d requests, %d input tokens (%d from the cache, %d written to it), %d output tokens (%d of reasoning), %.9f US dollars",
		v.Requests, v.InputTokens, v.CachedInputTokens, v.CacheWriteTokens, v.OutputTokens, v.ReasoningTokens, float64(v.NanoUSD)/1e9)
	if v.Estimated {
		text += ", estimated"
	}
	if v.Unpriced {
		text += ", without a price"
	}
	return text
}

// toolUseText is how a tool was used, in words.
func toolUseText(v store.ToolUseSum) string {
	return fmt.Sprintf("%d calls, %d errors, %d refused, %d ms", v.Calls, v.Errors, v.Refused, v.DurationMS)
}
