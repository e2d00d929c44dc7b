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

// Snapshot is a store at one point in time, as verification and export read it: rows as they are
// stored, without any check. A value of a type that no store writes is a [*ChainError].
type Snapshot interface {
	// Sealed returns the sealed head and the last event of the system journal.
	Sealed(ctx context.Context) (SealedHead, error)
	// System calls do with each event of the system journal, in order, or, if run is not "", with the
	// events about that run whose kind [TellsOfRun] reports.
	System(ctx context.Context, run toolcrib.RunID, do func(*SystemEvent) error) error
	// Run returns the row of a run, or nil.
	Run(ctx context.Context, run toolcrib.RunID) (*Row, error)
	// Runs returns the next rows after a number, in order, or none after the last.
	Runs(ctx context.Context, after int64) ([]*Row, error)
	// Events calls do with the events of the run numbers from first to last, in order, including
	// events without a run.
	Events(ctx context.Context, first, last int64, do func(num int64, e *RawEvent) error) error
	// Said calls do with each text key of the runs with these numbers.
	Said(ctx context.Context, first, last int64, do func(num int64, key SaidKey)) error
	// Kept calls do with the kept results of a run, by reference, or of all runs, run by run, if run is "".
	Kept(ctx context.Context, run toolcrib.RunID, do func(toolcrib.RunID, Kept) error) error
	// Places returns the sum of the places of all runs and stored files.
	Places(ctx context.Context, keys *Keys) (Seal, error)
	// Table computes the seal of the current rows of a sealed table.
	Table(ctx context.Context, keys *Keys, table int) (Seal, error)
	// Docs calls do with the documents of switches, approvals, sessions, people and tokens.
	Docs(ctx context.Context, do func(Doc) error) error
	// Used calls do with each row of usage.
	Used(ctx context.Context, do func(UseEntry) error) error
	// TokenCalls calls do with the number of calls counted for each access token.
	TokenCalls(ctx context.Context, do func(token string, calls int64) error) error
	// Files calls do with each stored file.
	Files(ctx context.Context, do func(*StoredFile) error) error
	// Schema returns a [*ChainError] if the tables are not those that were sealed.
	Schema(ctx context.Context, keys *Keys) error
	// Unexpected describes rows that the store never writes, such as rows of missing runs.
	Unexpected(ctx context.Context) ([]string, error)
}

// StoredFile is the row of a file; see [toolcrib.Files].
type StoredFile struct {
	Name    string
	At      int64 // time of its change in Unix microseconds
	Sealed  []byte
	Content []byte
}

// Check returns a [*ChainError] if the file is not as it was sealed.
func (f *StoredFile) Check(keys *Keys) error {
	if keys == nil || keys.SealFile(f.Name, f.At, f.Content).Equal(f.Sealed) {
		return nil
	}
	return &ChainError{What: fmt.Sprintf("the stored file %.100q was changed", f.Name)}
}

// Row is the row of a run: its record, and the values that chain and seals need.
type Row struct {
	Num    int64 // number of the run in its store, which grows with time; 0 if there is no such run
	Hash   []byte
	Kept   toolcrib.Seq // event of its place in [Record.Runs]
	Sealed []byte
	Record RunRecord
	Docs   RecordDocs // as they are stored
}

// RowColumns name the values of a row that follow from the events of its run: first those that
// never change, then, from RowMoves on, those that change with its status, then, from RowSums
// on, those that each reply of a model changes. The number of the last event comes last.
var RowColumns = strings.Fields(`agent user actor token session_id parent_id beside driver workspace once created_at
	status stop_reason model taint content truncated pending error ended_at waits_since
	iterations input_tokens cached_tokens write_tokens output_tokens reason_tokens total_tokens requests cost_usd
	estimated unpriced last_seq`)

// The beginnings of parts of [RowColumns].
const (
	RowMoves = 11
	RowSums  = 21
)

// Places appends pointers to the values of [RowColumns].
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

// Values appends the values of [RowColumns] as a database has them: nil, int64, float64 and string.
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

// RecordDocs are the values of a record that are stored as JSON; they are nil if not set.
type RecordDocs struct{ Pending, Error *string }

// Docs returns the JSON of these values. Arguments of calls keep the bytes that were digested.
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

// Read decodes the documents into the record.
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

// Seal computes the seal of the row with s, which must be new or reset. values are its Values.
func (r *Row) Seal(s *Sealing, values []any) Seal {
	s.Add(string(r.Record.ID), r.Hash, int64(r.Kept), valueAt(&r.Record.PrunedAt))
	return s.Add(values...).Sum()
}

// Digest returns a hash of the row without its seal, in hex, for the record of pruning.
func (r *Row) Digest() string {
	sum := r.Seal(newSealing(nil).Add(r.Num), r.Values(nil))
	return hex.EncodeToString(sum[:])
}

// Check returns a [*ChainError] if the row is not as it was sealed. If keys is nil, it returns nil.
func (r *Row) Check(keys *Keys) error {
	if keys == nil || r.Seal(keys.SealRun(), r.Values(nil)).Equal(r.Sealed) {
		return nil
	}
	return &ChainError{Run: r.Record.ID, What: "its row is not as it was sealed"}
}

// differs returns the name of a column in which the row differs from the record made from the
// events of the run, or "".
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
	if r.Record.Site != "" && Text(rec.Site) != r.Record.Site { // an earlier version imports it without
		return "site", nil
	}
	return "", nil
}

// Text returns s as it is in the JSON of the journal, where invalid UTF-8 is replaced, so that
// rows can be compared with events.
func Text(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

// Micro returns the time for Unix microseconds, in UTC, as events have it.
func Micro(us int64) time.Time { return time.UnixMicro(us).UTC() }

// RawEvent is an event as it is stored.
type RawEvent struct {
	Seq         toolcrib.Seq    `json:"seq"`
	Time        time.Time       `json:"time"`
	Kind        toolcrib.Kind   `json:"kind"`
	Payload     json.RawMessage `json:"payload"` // nil if pruned
	PayloadHash []byte          `json:"payload_hash"`
	Hash        []byte          `json:"hash"`
}

// Check returns the problem with an event of a run, or "". prev is the hash of the event before
// and want the expected number.
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

// Decode decodes the event. It returns [ErrPruned] if the event has no content.
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

// TellsOfRun reports whether system events of a kind record the state of a run.
func TellsOfRun(kind toolcrib.Kind) bool {
	return kind == SystemAnchor || kind == SystemContentPruned || kind == SystemRunRemoved
}

// Kept is a kept result of a run.
type Kept struct {
	Ref   string
	Size  int64
	Hash  []byte
	Whole bool // whether the stored bytes have this size and hash; set only by a Snapshot
}

// KeptDigest is a hash over the kept results of a run, in order of reference: the length and
// bytes of the reference, the size, and the length and bytes of the hash. The zero value is for
// no results.
type KeptDigest struct{ h hash.Hash }

// Add adds a kept result.
func (d *KeptDigest) Add(k Kept) {
	if d.h == nil {
		d.h = sha256.New()
	}
	_, _ = fmt.Fprintf(d.h, "%d:%s%d:%d:%s", len(k.Ref), k.Ref, k.Size, len(k.Hash), k.Hash) // a hash never fails to write
}

// String returns the hash in hex, or "" if nothing was added.
func (d *KeptDigest) String() string {
	if d.h == nil {
		return ""
	}
	return hex.EncodeToString(d.h.Sum(nil))
}
