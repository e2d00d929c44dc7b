package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Snapshot is a store at one moment, as what verifies and exports it reads it: rows as
// they lie there, without any judgement of them. A value of a type that is never written
// is a [*ChainError].
type Snapshot interface {
	// Sealed returns the sealed head, and where the system journal ends.
	Sealed(ctx context.Context) (SealedHead, error)
	// System calls do with each event of the system journal, in order, or, of one run, with those
	// for which TellsOfRun holds.
	System(ctx context.Context, run toolcrib.RunID, do func(*SystemEvent) error) error
	// Run returns the row of a run; nil = none.
	Run(ctx context.Context, run toolcrib.RunID) (*Row, error)
	// Runs returns the next rows after a number, in order; none = there are no more.
	Runs(ctx context.Context, after int64) ([]*Row, error)
	// Events calls do with the events under the numbers of runs from first to last, in order,
	// also such as could not be there.
	Events(ctx context.Context, first, last int64, do func(num int64, e *RawEvent) error) error
	// Said calls do with each key of what the runs under these numbers have said.
	Said(ctx context.Context, first, last int64, do func(num int64, key SaidKey)) error
	// Kept calls do with what is kept for a run, by reference, or for all, run by run, if run is "".
	Kept(ctx context.Context, run toolcrib.RunID, do func(toolcrib.RunID, Kept) error) error
	// Places is the sum of the places of all runs.
	Places(ctx context.Context, keys *Keys) (Seal, error)
	// Table is the seal of a sealed table as it is.
	Table(ctx context.Context, keys *Keys, table int) (Seal, error)
	// Docs calls do with what is kept of switches, approvals, sessions, people and tokens.
	Docs(ctx context.Context, do func(Doc) error) error
	// Used calls do with each row of use.
	Used(ctx context.Context, do func(UseEntry) error) error
	// TokenCalls calls do with how many calls of each access token are counted.
	TokenCalls(ctx context.Context, do func(token string, calls int64) error) error
	// Strays reports what else is there that was never written.
	Strays(ctx context.Context) ([]string, error)
}

// Row is the row of a run: its record, and what the chain and the seals need.
type Row struct {
	Num    int64 // short name of the run in its store; rises with time; 0 = there is no such run
	Hash   []byte
	Kept   toolcrib.Seq // where it is in the record of all runs
	Sealed []byte
	Record RunRecord
	Docs   RecordDocs // as they are stored
}

// RowColumns name the values of a row that follow from the events of its run: those that the
// start of the run sets for good, from RowMoves on those that move with its status, and from
// RowSums on those that each reply of a model moves; the last is the number of the last event.
var RowColumns = strings.Fields(`agent user actor token session_id parent_id beside driver workspace once created_at
	status stop_reason model taint content truncated pending error ended_at waits_since
	iterations input_tokens cached_tokens write_tokens output_tokens reason_tokens total_tokens requests cost_usd
	estimated unpriced last_seq`)

// Where parts of [RowColumns] begin.
const (
	RowMoves = 11
	RowSums  = 21
)

// Places adds where the values of [RowColumns] are.
func (r *Row) Places(to []any) []any {
	rec, u := &r.Record, &r.Record.Usage
	return append(to,
		&rec.Agent, &rec.User, &rec.Actor, &rec.Token, &rec.Session, &rec.Parent, &rec.Beside, &rec.Driver, &rec.Workspace,
		&rec.Once, &rec.CreatedAt,
		&rec.Status, &rec.StopReason, &rec.Model, &rec.Taint, &rec.Content, &rec.Truncated, &r.Docs.Pending, &r.Docs.Error,
		&rec.EndedAt, &rec.WaitsSince,
		&rec.Iterations, &u.InputTokens, &u.CachedInputTokens, &u.CacheWriteTokens, &u.OutputTokens, &u.ReasoningTokens,
		&u.TotalTokens, &u.Requests, &u.CostUSD, &u.Estimated, &rec.Unpriced, &rec.LastSeq,
	)
}

// Values adds the values of [RowColumns] as a database has them: nil, int64, float64 and string.
func (r *Row) Values(to []any) []any { return valuesFrom(len(to), r.Places(to)) }

func valuesFrom(n int, list []any) []any {
	for i := n; i < len(list); i++ {
		list[i] = valueAt(list[i])
	}
	return list
}

func valueAt(place any) any {
	switch p := place.(type) {
	case *string:
		return Text(*p)
	case *float64:
		return *p
	case **string:
		if *p == nil {
			return nil
		}
		return **p
	case *time.Time:
		if p.IsZero() {
			return nil
		}
		return p.UnixMicro()
	}
	switch v := reflect.ValueOf(place).Elem(); v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			return int64(1)
		}
		return int64(0)
	case reflect.String:
		return Text(v.String())
	case reflect.Int, reflect.Int64:
		return v.Int()
	default:
		return int64(v.Uint())
	}
}

// RecordDocs are the values of a record that are stored as JSON; nil = none.
type RecordDocs struct{ Pending, Error *string }

// Docs returns the JSON of a record, its arguments byte by byte, as they were digested.
func (rec *RunRecord) Docs() (docs RecordDocs, err error) {
	if rec.Pending != nil {
		docs.Pending, err = docOf(rec.Pending)
	}
	if err == nil && rec.Error != nil {
		docs.Error, err = docOf(rec.Error)
	}
	return docs, err
}

func docOf(v any) (*string, error) {
	raw, err := journal.EncodeJSON(v)
	doc := string(raw)
	return &doc, err
}

// Read puts the documents into the record.
func (docs RecordDocs) Read(rec *RunRecord) error {
	if docs.Pending != nil {
		if err := json.Unmarshal([]byte(*docs.Pending), &rec.Pending); err != nil {
			return err
		}
	}
	if docs.Error != nil {
		return json.Unmarshal([]byte(*docs.Error), &rec.Error)
	}
	return nil
}

// Seal computes the seal of the row, which has these Values, with s, which is new or was reset.
func (r *Row) Seal(s *Sealing, values []any) Seal {
	s.Add(string(r.Record.ID), r.Hash, int64(r.Kept), valueAt(&r.Record.PrunedAt))
	return s.Add(values...).Sum()
}

// Digest is the hash of the row's values but its place, for the record of pruning.
func (r *Row) Digest() string {
	sum := r.Seal(newSealing(nil).Add(r.Num), r.Values(nil))
	return hex.EncodeToString(sum[:])
}

// Check returns a [*ChainError] if the row is not as it was sealed. Without keys nothing
// is said.
func (r *Row) Check(keys *Keys) error {
	if keys == nil || r.Seal(keys.SealRun(), r.Values(nil)).Holds(r.Sealed) {
		return nil
	}
	return &ChainError{Run: r.Record.ID, What: "its row is not as it was sealed"}
}

// differs names a value in which the row is not what the events make of the run; "" = it is.
func (r *Row) differs(rec RunRecord) (string, error) {
	docs, err := rec.Docs()
	if err != nil {
		return "", err
	}
	have := r.Values(nil)
	for i, want := range (&Row{Record: rec, Docs: docs}).Values(nil) {
		if want != have[i] {
			return RowColumns[i], nil
		}
	}
	return "", nil
}

// Text is a text as it is in the journal's JSON, so that a row is exactly what the
// events of its run make of it.
func Text(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

// Micro is the time of a number of microseconds, as events carry it.
func Micro(us int64) time.Time { return time.UnixMicro(us).UTC() }

// RawEvent is an event as it is stored.
type RawEvent struct {
	Seq         toolcrib.Seq    `json:"seq"`
	Time        time.Time       `json:"time"`
	Kind        toolcrib.Kind   `json:"kind"`
	Payload     json.RawMessage `json:"payload"` // nil = pruned
	PayloadHash []byte          `json:"payload_hash"`
	Hash        []byte          `json:"hash"`
}

// Check reports what is wrong with an event of a run that follows prev; "" = nothing.
func (e *RawEvent) Check(run toolcrib.RunID, prev []byte, want toolcrib.Seq) string {
	switch {
	case e.Seq != want:
		return "its number is not the next"
	case e.Payload != nil && !bytes.Equal(journal.PayloadHash(e.Payload), e.PayloadHash):
		return "its content has another hash"
	case !bytes.Equal(journal.ChainHash(prev, run, e.Seq, e.Kind, e.Time, e.PayloadHash), e.Hash):
		return "it does not follow from the one before"
	}
	return ""
}

// Decode reads the event; without content it is [ErrPruned].
func (e *RawEvent) Decode(run toolcrib.RunID) (toolcrib.Event, error) {
	if e.Payload == nil {
		return toolcrib.Event{}, fmt.Errorf("run %s, event %d: %w", run, e.Seq, ErrPruned)
	}
	body, err := journal.Decode(e.Kind, e.Payload)
	if err != nil {
		return toolcrib.Event{}, fmt.Errorf("run %s, event %d: %w", run, e.Seq, err)
	}
	return toolcrib.Event{Seq: e.Seq, Time: e.Time, Body: body, PayloadHash: e.PayloadHash, Hash: e.Hash}, nil
}

// TellsOfRun reports whether a kind of system events says what a run must be.
func TellsOfRun(kind toolcrib.Kind) bool {
	return kind == SystemAnchor || kind == SystemContentPruned || kind == SystemRunRemoved
}

// Kept is a kept result of a run.
type Kept struct {
	Ref   string
	Size  int64
	Hash  []byte
	Whole bool // what is stored has this size and hash; only a Snapshot looks
}

// KeptDigest is the hash of what is kept for a run: of each its reference, size and
// hash, by reference, each with its length before it. The zero value is that of nothing.
type KeptDigest struct{ h hash.Hash }

// Add adds one.
func (d *KeptDigest) Add(k Kept) {
	if d.h == nil {
		d.h = sha256.New()
	}
	_, _ = fmt.Fprintf(d.h, "%d:%s%d:%d:%s", len(k.Ref), k.Ref, k.Size, len(k.Hash), k.Hash) // a hash never fails to write
}

// String returns it in hex; "" = nothing is kept.
func (d *KeptDigest) String() string {
	if d.h == nil {
		return ""
	}
	return hex.EncodeToString(d.h.Sum(nil))
}
