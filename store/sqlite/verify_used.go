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
		models++
		err := scan(&k.Day, &k.Run, &k.Provider, &k.Model, &k.User, &k.Agent, &k.Session, &v.Requests, &v.InputTokens, &v.CachedInputTokens,
			&v.CacheWriteTokens, &v.OutputTokens, &v.ReasoningTokens, &v.NanoUSD, &v.Estimated)
		if w, ok := want.Models[k]; err == nil && (!ok || w != v) {
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
	return p.add(err)
}
