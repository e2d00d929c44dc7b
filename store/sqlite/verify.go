package sqlite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
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
	return v, s.noteDamage(err)
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
		err = s.noteDamage(err)
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
		errs[i] = s.noteDamage(p)
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
type snapshot struct{ *conn }

var _ store.Snapshot = snapshot{}

// frozen calls do with a snapshot.
func (s *Store) frozen(ctx context.Context, do func(snapshot) error) error {
	err := s.readers.with(ctx, func(c *conn) (err error) {
		if err := c.run(ctx, "BEGIN"); err != nil {
			return err
		}
		defer func() {
			// Even if ctx has ended: the connection returns to the pool.
			if e := c.run(context.WithoutCancel(ctx), "ROLLBACK"); e != nil {
				err = errors.Join(err, errSpoiled, e)
			}
		}()
		return do(snapshot{c})
	})
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
			return errEnough
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
	query, args := "SELECT num, run_id, ref, size, hash FROM contents ORDER BY run_id, ref", []any(nil)
	if run != "" {
		query, args = "SELECT num, run_id, ref, size, hash FROM contents WHERE run_id = ? ORDER BY ref", []any{string(run)}
	}
	return sn.each(ctx, query, args, func(scan scanFunc) error {
		var num int64
		var k store.Kept
		err := scan(&num, &run, &k.Ref, &k.Size, &k.Hash)
		if err == nil {
			k.Whole, err = sn.whole(ctx, num, k)
		}
		if err != nil {
			return err
		}
		return do(run, k)
	})
}

// whole reports whether the pieces of a stored result match its size and hash.
func (sn snapshot) whole(ctx context.Context, num int64, k store.Kept) (bool, error) {
	h, at, ok := sha256.New(), int64(0), true
	err := sn.each(ctx, "SELECT key & 0xffffffff, data FROM content_pieces WHERE key BETWEEN ? AND ? ORDER BY key",
		[]any{eventKey(num, 0), eventKey(num, maxSeq)}, func(scan scanFunc) error {
			var index int64
			var data []byte
			err := scan(&index, &data)
			ok = ok && index*pieceBytes == at
			at += int64(len(data))
			_, _ = h.Write(data) // a hash never fails to write
			return err
		})
	return ok && at == k.Size && bytes.Equal(h.Sum(nil), k.Hash), err
}

func (sn snapshot) Said(ctx context.Context, first, last int64, do func(num int64, key store.SaidKey)) error {
	return sn.each(ctx, "SELECT num, hash FROM said WHERE num BETWEEN ? AND ?", []any{first, last}, func(scan scanFunc) error {
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
	return sn.each(ctx, "SELECT token, calls FROM token_calls", nil, func(scan scanFunc) error {
		var token string
		var calls int64
		if err := scan(&token, &calls); err != nil {
			return err
		}
		return do(token, calls)
	})
}

// Unexpected reports tables, indexes, views and triggers that are not in the schema, rows that belong to no
// run, and rows that are never written.
func (sn snapshot) Unexpected(ctx context.Context) (unexpected []string, err error) {
	same, err := sn.sameSchema(ctx)
	if err != nil {
		return nil, err
	}
	if !same {
		unexpected = append(unexpected, "a table, view or trigger is not toolcrib's, or one of toolcrib's is missing")
	}
	for _, found := range []struct{ what, query string }{
		{"there are pieces that belong to no kept result", "SELECT count(*) FROM content_pieces WHERE key >> 32 NOT IN (SELECT num FROM contents)"},
		{"there is a session whose newest run is another one", `SELECT count(*) FROM docs
			WHERE last <> CASE kind WHEN 'session' THEN ifnull((` + lastRun + `), 0) ELSE 0 END`},
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
		if err := one(ctx, sn, found.query, nil, &n); err != nil {
			return nil, err
		}
		if n > 0 {
			unexpected = append(unexpected, found.what)
		}
	}
	return unexpected, nil
}

// sameSchema reports whether the file has exactly the tables, indexes, views and triggers of the
// schema.
func (sn snapshot) sameSchema(ctx context.Context) (bool, error) {
	empty, err := connectTo(ctx, ":memory:")
	if err != nil {
		return false, err
	}
	defer func() { _ = empty.Close() }() // it is empty
	if err := empty.run(ctx, schema); err != nil {
		return false, err
	}
	const parts = `SELECT type || ' ' || name || ' ' || tbl_name || ' ' || ifnull(sql, '') FROM sqlite_schema
		WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY 1`
	var texts [2][]string
	for i, r := range []reader{empty, sn} {
		err := r.each(ctx, parts, nil, func(scan scanFunc) error {
			var part string
			err := scan(&part)
			texts[i] = append(texts[i], part)
			return err
		})
		if err != nil {
			return false, err
		}
	}
	return slices.Equal(texts[0], texts[1]), nil
}

// Damage is recorded in a file next to the database, one line for each place, because a damaged
// database may not be writable. While the file has a line that is not accepted, no process starts a new
// run. The file is removed once no damage is found.

const (
	damageEnd   = "-damage"
	maxDamage   = 64 << 10 // bytes
	acceptedTag = "accepted "
)

// damaged returns the lines of the damage file, or nil without damage.
func damaged(path string) []string {
	text, err := os.ReadFile(path + damageEnd)
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

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
func (s *Store) noteDamage(err error) error {
	if err == nil || s.writer == nil {
		return err
	}
	var broken *store.ChainError
	if !errors.As(err, &broken) && !errors.Is(err, store.ErrCorrupt) {
		return err
	}
	place, line := damageLine(err)
	size := len(line)
	for _, known := range damaged(s.path) {
		if size += len(known) + 1; strings.HasPrefix(strings.TrimPrefix(known, acceptedTag), place+"\t") {
			return err
		}
	}
	if size > maxDamage {
		return err // the file has enough lines
	}
	f, failed := os.OpenFile(s.path+damageEnd, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if failed == nil { // otherwise the error itself is reported anyway
		_, _ = f.WriteString(line + "\n")
		_ = f.Close()
	}
	return err
}

// Damage returns store.ErrDamaged if damage was found that has not been accepted: then no new run
// starts.
func (s *Store) Damage() error {
	for _, line := range damaged(s.path) {
		if !strings.HasPrefix(line, acceptedTag) {
			_, what, _ := strings.Cut(line, "\t")
			return &store.Error{Kind: store.ErrDamaged, Path: s.path, Err: errors.New(what)}
		}
	}
	return nil
}

// clearDamage removes the damage file after everything was verified.
func (s *Store) clearDamage(ctx context.Context) error {
	if damaged(s.path) == nil {
		return nil
	}
	if err := s.integrity(ctx); err != nil {
		return err
	}
	err := os.Remove(s.path + damageEnd)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return mapped(s.path, err)
}

// checkNew returns store.ErrDamaged if no new run may be started. A copy may have been restored since
// the damage was found, so everything is verified first.
func (s *Store) checkNew(ctx context.Context) error {
	found := s.Damage()
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
		return store.VerifiedAll{}, errors.New("sqlite: accept damage: the actor is missing")
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
	var text bytes.Buffer
	for _, p := range all.Problems {
		_, line := damageLine(p)
		fmt.Fprintf(&text, "%s%s\n", acceptedTag, line)
	}
	return all, mapped(s.path, os.WriteFile(s.path+damageEnd, text.Bytes(), 0o600))
}
