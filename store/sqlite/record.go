package sqlite

import (
	"context"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// recordColumns are the columns of a projection, in the order of recordArgs and
// of scanRecord.
const recordColumns = `status, stop_reason, agent, model, user, actor, token, session_id, parent_id, driver, workspace,
	content, truncated, iterations, input_tokens, cached_tokens, write_tokens, output_tokens, reason_tokens,
	total_tokens, requests, cost_usd, estimated, pending, error, created_at, ended_at, last_seq`

// recordWidth is how many columns that are.
const recordWidth = 28

// sumColumns are those that each reply of a model moves, in the order of sumArgs.
const (
	sumColumns = `iterations, input_tokens, cached_tokens, write_tokens, output_tokens, reason_tokens,
	total_tokens, requests, cost_usd, estimated, last_seq`
	sumWidth = 11
)

// sumArgs adds the values of sumColumns.
func sumArgs(args []any, rec *store.RunRecord) []any {
	u := &rec.Usage
	return append(args,
		rec.Iterations, u.InputTokens, u.CachedInputTokens, u.CacheWriteTokens,
		u.OutputTokens, u.ReasoningTokens, u.TotalTokens, u.Requests, u.CostUSD, u.Estimated, int64(rec.LastSeq),
	)
}

// recordValues adds the values of recordColumns, for a record whose JSON is known.
func recordValues(args []any, rec *store.RunRecord, docs store.RecordDocs) []any {
	var ended any
	if !rec.EndedAt.IsZero() {
		ended = rec.EndedAt.UnixMicro()
	}
	u := &rec.Usage
	return append(args,
		string(rec.Status), string(rec.StopReason), text(rec.Agent), text(rec.Model), text(rec.User), text(rec.Actor), text(rec.Token),
		text(string(rec.Session)), text(string(rec.Parent)), text(rec.Driver), text(rec.Workspace),
		text(rec.Content), rec.Truncated, rec.Iterations, u.InputTokens, u.CachedInputTokens, u.CacheWriteTokens,
		u.OutputTokens, u.ReasoningTokens, u.TotalTokens, u.Requests, u.CostUSD, u.Estimated,
		optional(docs.Pending), optional(docs.Error), rec.CreatedAt.UnixMicro(), ended, int64(rec.LastSeq),
	)
}

// optional is a value that may be NULL.
func optional(s *string) any {
	if s == nil {
		return nil
	}
	return *s
}

func text(s string) string { return store.Text(s) }

// runColumns are the columns from which a run's row is read, in the order of scanRun.
const runColumns = "num, id, last_hash, kept_seq, seal, pruned_at, " + recordColumns

const selectRow = "SELECT " + runColumns + " FROM runs"

// scanRun reads runColumns into r, and what stands after them into last. Nothing is said
// about the seal.
func scanRun(scan scanFunc, r *store.Row, last ...any) error {
	var created int64
	var ended, pruned *int64
	rec := &r.Record
	u := &rec.Usage
	err := scan(append([]any{
		&r.Num, &rec.ID, &r.Hash, &r.Kept, &r.Sealed, &pruned,
		&rec.Status, &rec.StopReason, &rec.Agent, &rec.Model, &rec.User, &rec.Actor, &rec.Token,
		&rec.Session, &rec.Parent, &rec.Driver, &rec.Workspace,
		&rec.Content, &rec.Truncated, &rec.Iterations, &u.InputTokens, &u.CachedInputTokens, &u.CacheWriteTokens,
		&u.OutputTokens, &u.ReasoningTokens, &u.TotalTokens, &u.Requests, &u.CostUSD, &u.Estimated,
		&r.Docs.Pending, &r.Docs.Error, &created, &ended, &rec.LastSeq,
	}, last...)...)
	if err != nil {
		return err
	}
	rec.CreatedAt = store.Micro(created)
	if ended != nil {
		rec.EndedAt = store.Micro(*ended)
	}
	if pruned != nil {
		rec.PrunedAt = store.Micro(*pruned)
	}
	return r.Docs.Read(rec)
}

// readRun reads the row of a run, if it is as it was sealed; sql.ErrNoRows if there is none.
func readRun(ctx context.Context, from reader, keys *store.Keys, run toolcrib.RunID, h *head) error {
	err := one(ctx, from, selectRow+" WHERE id = ?", []any{string(run)}, func(scan scanFunc) error { return scanRun(scan, &h.Row) })
	if err == nil {
		err = h.Check(keys)
	}
	return err
}

func fromMicro(us int64) time.Time { return store.Micro(us) }

// wholeMicro is a time as it will be read again.
func wholeMicro(t time.Time) time.Time { return store.Micro(t.UnixMicro()) }

// eventKey is the key of an event, or of a piece of content, in its table.
func eventKey(num int64, seq toolcrib.Seq) int64 { return num<<32 | int64(seq) }
