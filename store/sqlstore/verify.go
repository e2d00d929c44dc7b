package sqlstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// Verify verifies a run; see [store.VerifyRun].
func (s *Store) Verify(ctx context.Context, run toolcrib.RunID) (v store.Verified, err error) {
	err = s.frozen(ctx, func(sn snapshot) (err error) {
		v, err = store.VerifyRun(ctx, sn, s.keys, run)
		return err
	})
	return v, s.noteDamage(ctx, err)
}

// VerifySystem verifies the system journal; see [store.VerifySystem]. Without the key file it returns
// store.ErrKeys.
func (s *Store) VerifySystem(ctx context.Context, against *store.Head) (v store.Verified, err error) {
	keys, err := store.LoadKeys(s.keysPath)
	if err != nil {
		return v, err
	}
	err = s.frozen(ctx, func(sn snapshot) (err error) {
		v, err = store.VerifySystem(ctx, sn, keys, against)
		return err
	})
	if against == nil { // otherwise the given head may be wrong
		err = s.noteDamage(ctx, err)
	}
	return v, err
}

// VerifyAll verifies everything; see [store.VerifyAll]. The error joins the Problems of the result. It
// reads one snapshot, and the -wal file is not truncated until it is done.
func (s *Store) VerifyAll(ctx context.Context) (all store.VerifiedAll, err error) {
	keys, err := store.LoadKeys(s.keysPath)
	if err != nil {
		return all, err
	}
	err = s.frozen(ctx, func(sn snapshot) (err error) {
		all, err = store.VerifyAll(ctx, sn, keys)
		return err
	})
	if err != nil {
		return all, err
	}
	if len(all.Problems) == 0 && s.writer != nil {
		return all, s.clearDamage(ctx)
	}
	errs := make([]error, len(all.Problems))
	for i, p := range all.Problems {
		errs[i] = s.noteDamage(ctx, p)
	}
	return all, errors.Join(errs...)
}

// ExportAudit writes a snapshot of the audit log; see [store.Export].
func (s *Store) ExportAudit(ctx context.Context, w io.Writer, o store.ExportOptions) error {
	keys, err := store.LoadKeys(s.keysPath)
	if err != nil {
		return err
	}
	out := &sink{w: w}
	err = s.frozen(ctx, func(sn snapshot) error { return store.Export(ctx, sn, out, keys, o, wholeMicro(s.now())) })
	if out.err != nil {
		return fmt.Errorf("audit: the export cannot be written: %w", out.err)
	}
	return err
}

// sink records a failure to write, which is not an error of the store.
type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	if err != nil {
		s.err = err
	}
	return n, err
}

// ExportKeys returns the keys of the data folder for sealing and verifying exports.
func (s *Store) ExportKeys() (*store.Keys, error) { return store.LoadKeys(s.keysPath) }

// snapshot is the store in a read transaction.
type snapshot struct{ Conn }

var _ store.Snapshot = snapshot{}

// frozen calls do with a snapshot.
func (s *Store) frozen(ctx context.Context, do func(snapshot) error) error {
	err := s.db.Freeze(ctx, func(c Conn) error { return do(snapshot{c}) })
	var broken *store.ChainError
	if err == nil || errors.As(err, &broken) || errors.Is(err, toolcrib.ErrNotFound) {
		return err
	}
	return s.failed(ctx, err)
}

func (sn snapshot) Sealed(ctx context.Context) (store.SealedHead, error) { return readSealed(ctx, sn) }

func (sn snapshot) System(ctx context.Context, run toolcrib.RunID, do func(*store.SystemEvent) error) error {
	where, args := "ORDER BY seq", []any(nil)
	if run != "" {
		where = "WHERE kind IN ('anchor', 'content_pruned', 'run_removed') AND payload ->> 'run_id' = ? ORDER BY seq"
		args = []any{string(run)}
	}
	return eachEvent(ctx, sn, systemEvents+where, args, func(_ int64, e *store.SystemEvent) error { return do(e) })
}

func (sn snapshot) Run(ctx context.Context, run toolcrib.RunID) (*store.Row, error) {
	return rowOf(ctx, sn, run)
}

func (sn snapshot) Runs(ctx context.Context, after int64) (rows []*store.Row, err error) {
	size := 0
	err = eachRow(ctx, sn, " WHERE num > ? ORDER BY num LIMIT ?", []any{after, pageEvents}, func(row *store.Row) error {
		rows = append(rows, row)
		if size += len(row.Record.Content); size >= pageBytes {
			return ErrEnough
		}
		return nil
	})
	return rows, err
}

func (sn snapshot) Events(ctx context.Context, first, last int64, do func(num int64, e *store.RawEvent) error) error {
	return eachEvent(ctx, sn, runEvents+"WHERE key BETWEEN ? AND ? ORDER BY key",
		[]any{eventKey(first, 0), eventKey(last, maxSeq)}, do)
}

func (sn snapshot) Kept(ctx context.Context, run toolcrib.RunID, do func(toolcrib.RunID, store.Kept) error) error {
	where, args := "", []any(nil)
	if run != "" {
		where, args = "WHERE run_id = ? ", []any{string(run)}
	}
	var k pieces
	err := sn.Each(ctx, `SELECT c.num, c.run_id, c.ref, c.size, c.hash, coalesce(p.key, 0), p.data FROM contents c
		LEFT JOIN content_pieces p ON p.key BETWEEN c.num << 32 AND c.num << 32 | 4294967295 `+where+"ORDER BY c.run_id, c.ref, p.key",
		args, func(scan Scan) error {
			next := pieces{}
			var key int64
			var data []byte
			if err := scan(&next.num, &next.run, &next.Ref, &next.Size, &next.Hash, &key, &data); err != nil {
				return err
			}
			if next.num != k.num {
				if err := k.end(do); err != nil {
					return err
				}
				k = next
				k.sum, k.Whole = sha256.New(), true
			}
			k.Whole = k.Whole && (data == nil || key == eventKey(k.num, 0)+k.at/pieceBytes && k.at%pieceBytes == 0)
			k.at += int64(len(data))
			_, _ = k.sum.Write(data) // a hash never fails to write
			return nil
		})
	if err == nil {
		err = k.end(do)
	}
	return err
}

// pieces is a kept result of which the pieces are being read.
type pieces struct {
	store.Kept
	num int64
	run toolcrib.RunID
	at  int64 // number of bytes so far
	sum hash.Hash
}

// end calls do with the result. Whole reports whether the pieces match its size and hash.
func (k *pieces) end(do func(toolcrib.RunID, store.Kept) error) error {
	if k.sum == nil {
		return nil
	}
	k.Whole = k.Whole && k.at == k.Size && bytes.Equal(k.sum.Sum(nil), k.Hash)
	return do(k.run, k.Kept)
}

func (sn snapshot) Said(ctx context.Context, first, last int64, do func(num int64, key store.SaidKey)) error {
	return sn.Each(ctx, "SELECT num, hash FROM said WHERE num BETWEEN ? AND ?", []any{first, last}, func(scan Scan) error {
		var num int64
		var hash []byte
		err := scan(&num, &hash)
		key := store.SaidKey{}
		copy(key[:], hash) // a hash of another length is not ours
		do(num, key)
		return err
	})
}

func (sn snapshot) Used(ctx context.Context, do func(store.UseEntry) error) error {
	return eachUse(ctx, sn, "", nil, do)
}

func (sn snapshot) TokenCalls(ctx context.Context, do func(token string, calls int64) error) error {
	return sn.Each(ctx, "SELECT token, calls FROM token_calls", nil, func(scan Scan) error {
		var token string
		var calls int64
		if err := scan(&token, &calls); err != nil {
			return err
		}
		return do(token, calls)
	})
}

// Schema implements [store.Snapshot].
func (sn snapshot) Schema(ctx context.Context, keys *store.Keys) error {
	return checkSchema(ctx, sn, keys)
}

// Unexpected reports rows that belong to no run, and rows that are never written.
func (sn snapshot) Unexpected(ctx context.Context) (unexpected []string, err error) {
	for _, found := range []struct{ what, query string }{
		{"there are pieces that belong to no kept result", "SELECT count(*) FROM content_pieces WHERE key >> 32 NOT IN (SELECT num FROM contents)"},
		{"there is a session whose newest run is another one", `SELECT count(*) FROM docs
			WHERE last <> CASE kind WHEN 'session' THEN coalesce((` + lastRun + `), 0) ELSE 0 END`},
		{"there is a reservation that cannot be one", `SELECT count(*) FROM reservations WHERE run_id = '' OR request < 0 OR user IS NULL OR day IS NULL
			OR at IS NULL OR tokens < 0 OR nano_usd < 0 OR state NOT IN (0, 1, 2)`},
		{"there is a message to a run that takes none", "SELECT count(*) FROM inbox WHERE run_id NOT IN (SELECT id FROM runs WHERE ended_at IS NULL)"},
		{
			"there is a count of a token's calls that cannot be one",
			`SELECT (SELECT count(*) FROM token_calls WHERE token = '' OR calls < 0 OR expires < 0)
			+ (SELECT count(*) FROM token_minute WHERE token = '' OR n < 1 OR at IS NULL)`,
		},
	} {
		var n int64
		if err := One(ctx, sn, found.query, nil, &n); err != nil {
			return nil, err
		}
		if n > 0 {
			unexpected = append(unexpected, found.what)
		}
	}
	return unexpected, nil
}

// Damage is recorded outside of what is sealed, one line for each place. While the record has a line that
// is not accepted, no process starts a new run. It is removed once no damage is found.

const (
	maxDamage   = 64 << 10 // bytes
	acceptedTag = "accepted "
)

// damageLine formats a problem as a line of the file: its place and its description.
func damageLine(err error) (place, line string) {
	var broken *store.ChainError
	place = "database 0"
	if errors.As(err, &broken) {
		place = strconv.Quote(string(broken.Run)) + " " + strconv.FormatUint(uint64(broken.Seq), 10)
	}
	return place, place + "\t" + strings.ReplaceAll(err.Error(), "\n", " ")
}

// noteDamage records damage, once for each place, if err reports damage and the store is writable. It
// returns err.
func (s *Store) noteDamage(ctx context.Context, err error) error {
	if err == nil || s.writer == nil {
		return err
	}
	var broken *store.ChainError
	if !errors.As(err, &broken) && !errors.Is(err, store.ErrCorrupt) {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	place, line := damageLine(err)
	size := len(line)
	lines, _ := s.db.Damage(ctx) // if it cannot be read, it probably cannot be written either
	for _, known := range lines {
		if size += len(known) + 1; strings.HasPrefix(strings.TrimPrefix(known, acceptedTag), place+"\t") {
			return err
		}
	}
	if size <= maxDamage {
		s.db.AddDamage(ctx, line)
	}
	return err
}

// Damage returns store.ErrDamaged if damage was found that has not been accepted: then no new run
// starts.
func (s *Store) Damage(ctx context.Context) error {
	lines, err := s.db.Damage(ctx)
	for _, line := range lines {
		if !strings.HasPrefix(line, acceptedTag) {
			_, what, _ := strings.Cut(line, "\t")
			return &store.Error{Kind: store.ErrDamaged, Path: s.path, Err: errors.New(what)}
		}
	}
	return err
}

// clearDamage removes the record of damage after everything was verified.
func (s *Store) clearDamage(ctx context.Context) error {
	lines, err := s.db.Damage(ctx)
	if err != nil || lines == nil {
		return err
	}
	if err := s.db.Integrity(ctx); err != nil {
		return s.noteDamage(ctx, err)
	}
	return s.db.SetDamage(ctx, nil)
}

// checkNew returns store.ErrDamaged if no new run may be started. A copy may have been restored since
// the damage was found, so everything is verified first.
func (s *Store) checkNew(ctx context.Context) error {
	found := s.Damage(ctx)
	if found == nil {
		return nil
	}
	if _, err := s.VerifyAll(ctx); err == nil || ctx.Err() != nil {
		return err
	}
	return found
}

// AcceptDamage implements [store.Store].
func (s *Store) AcceptDamage(ctx context.Context, by string) (store.VerifiedAll, error) {
	if by == "" {
		return store.VerifiedAll{}, errors.New("store: accept damage: the actor is missing")
	}
	all, err := s.VerifyAll(ctx)
	if err == nil || len(all.Problems) == 0 || all.More {
		return all, err
	}
	raw, err := journal.EncodeJSON(store.DamageAccepted{By: by, Problems: all.Problems})
	if err != nil {
		return all, err
	}
	if err := s.AppendSystem(ctx, store.SystemEvent{Kind: store.SystemDamageAccepted, Payload: raw}); err != nil {
		return all, err
	}
	lines := make([]string, len(all.Problems))
	for i, p := range all.Problems {
		_, line := damageLine(p)
		lines[i] = acceptedTag + line
	}
	return all, s.db.SetDamage(ctx, lines)
}
