package sqlite

import (
	"database/sql"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

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

// recordColumn is the name of one of them.
func recordColumn(i int) string {
	return strings.TrimSpace(strings.Split(recordColumns, ",")[i])
}

// recordArgs returns the values of recordColumns.
func recordArgs(rec *store.RunRecord) ([]any, error) {
	docs, err := docsToStore(rec)
	return recordValues(nil, rec, docs), err
}

// recordDocs are the values of a projection that are JSON, as they are stored.
type recordDocs struct{ pending, failure any }

// docsToStore returns the JSON of a record, its arguments byte by byte, as they were digested.
func docsToStore(rec *store.RunRecord) (docs recordDocs, err error) {
	if rec.Pending != nil {
		b, err := encodeJSON(rec.Pending)
		if err != nil {
			return docs, err
		}
		docs.pending = string(b)
	}
	if rec.Error != nil {
		b, err := encodeJSON(rec.Error)
		if err != nil {
			return docs, err
		}
		docs.failure = string(b)
	}
	return docs, nil
}

// sealRecord seals what recordValues returns, value by value.
func sealRecord(s *store.Sealing, rec *store.RunRecord, docs recordDocs) *store.Sealing {
	for _, value := range [...]string{
		string(rec.Status), string(rec.StopReason), rec.Agent, rec.Model, rec.User, rec.Actor, rec.Token,
		string(rec.Session), string(rec.Parent), rec.Driver, rec.Workspace, rec.Content,
	} {
		s.Text(text(value))
	}
	u := &rec.Usage
	s.Bool(rec.Truncated)
	for _, n := range [...]int64{
		int64(rec.Iterations), u.InputTokens, u.CachedInputTokens, u.CacheWriteTokens,
		u.OutputTokens, u.ReasoningTokens, u.TotalTokens, int64(u.Requests),
	} {
		s.Int(n)
	}
	s.Float(u.CostUSD).Bool(u.Estimated).Add(docs.pending, docs.failure).Int(rec.CreatedAt.UnixMicro())
	if rec.EndedAt.IsZero() {
		s.Null()
	} else {
		s.Int(rec.EndedAt.UnixMicro())
	}
	return s.Int(int64(rec.LastSeq))
}

// recordValues adds the values of recordColumns, for a record whose JSON is known.
func recordValues(args []any, rec *store.RunRecord, docs recordDocs) []any {
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
		docs.pending, docs.failure, rec.CreatedAt.UnixMicro(), ended, int64(rec.LastSeq),
	)
}

// text is a string as it is in the journal's JSON, so that a row is exactly what
// the events of its run make of it.
func text(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

// runColumns are the columns from which a run's row is read, in the order of scanRun.
const runColumns = "num, id, last_hash, kept_seq, seal, pruned_at, " + recordColumns

// scanRun reads runColumns into h, and what stands after them into last. A row that is not
// as it was sealed is a [*store.ChainError]; without keys nothing is said about that.
func scanRun(scan scanFunc, keys *store.Keys, h *head, last ...any) error {
	var pending, failure, seal sql.Null[[]byte]
	var created int64
	var ended, pruned sql.NullInt64
	rec := &h.rec
	u := &rec.Usage
	err := scan(append([]any{
		&h.num, &rec.ID, &h.hash, &h.kept, &seal, &pruned,
		&rec.Status, &rec.StopReason, &rec.Agent, &rec.Model, &rec.User, &rec.Actor, &rec.Token,
		&rec.Session, &rec.Parent, &rec.Driver, &rec.Workspace,
		&rec.Content, &rec.Truncated, &rec.Iterations, &u.InputTokens, &u.CachedInputTokens, &u.CacheWriteTokens,
		&u.OutputTokens, &u.ReasoningTokens, &u.TotalTokens, &u.Requests, &u.CostUSD, &u.Estimated,
		&pending, &failure, &created, &ended, &rec.LastSeq,
	}, last...)...)
	if err != nil {
		return err
	}
	rec.CreatedAt = fromMicro(created)
	if ended.Valid {
		rec.EndedAt = fromMicro(ended.Int64)
	}
	if pruned.Valid {
		rec.PrunedAt = fromMicro(pruned.Int64)
	}
	if keys != nil && !h.seal(keys.SealRun(), storedDocs(pending, failure)).Holds(seal.V) {
		return sealError(rec.ID)
	}
	if pending.Valid {
		if err := json.Unmarshal(pending.V, &rec.Pending); err != nil {
			return err
		}
	}
	if failure.Valid {
		return json.Unmarshal(failure.V, &rec.Error)
	}
	return nil
}

func storedDocs(pending, failure sql.Null[[]byte]) (docs recordDocs) {
	if pending.Valid {
		docs.pending = string(pending.V)
	}
	if failure.Valid {
		docs.failure = string(failure.V)
	}
	return docs
}

// fromMicro is the time of a number of microseconds, as events carry it.
func fromMicro(us int64) time.Time { return time.UnixMicro(us).UTC() }

// wholeMicro is a time as it will be read again.
func wholeMicro(t time.Time) time.Time { return fromMicro(t.UnixMicro()) }

// eventKey is the key of an event, or of a piece of content, in its table.
func eventKey(num int64, seq toolcrib.Seq) int64 { return num<<32 | int64(seq) }
