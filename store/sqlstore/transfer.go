package sqlstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// Import stores a run of another store under the same ID and with the same hashes, and records that in
// the system journal. It stores either the whole run or nothing. If the run is or was in this store, or
// its session has later runs, the error is toolcrib.ErrConflict; if its events do not match their
// hashes, a [*store.ChainError].
func (s *Store) Import(ctx context.Context, in store.Imported) error {
	if err := in.Check(); err != nil {
		return err
	}
	rows, job, err := s.encode(0, in.Events)
	if err != nil {
		return err
	}
	for i := range rows {
		if !bytes.Equal(rows[i].event.PayloadHash, in.Events[i].PayloadHash) {
			return &store.ChainError{Run: in.Run, Seq: rows[i].event.Seq, What: "its content has another hash"}
		}
	}
	if err := s.checkNew(ctx); err != nil {
		return err
	}
	job.barrier = true
	job.do = func(t *tx) error { return t.importRun(&in, rows) }
	return s.write(ctx, job)
}

func (t *tx) importRun(in *store.Imported, rows []row) error {
	if err := t.checkImport(in); err != nil {
		return err
	}
	for _, ref := range slices.Sorted(maps.Keys(in.Contents)) {
		hash := sha256.Sum256(in.Contents[ref])
		if err := t.put(in.Run, ref, in.Contents[ref], hash[:]); err != nil {
			return undone(err)
		}
	}
	if err := t.append(in.Run, 0, rows); err != nil {
		return undone(err)
	}
	if err := t.endLease(in.Run); err != nil { // it is not driven here
		return err
	}
	last := &in.Events[len(in.Events)-1]
	return t.appendSystem(t.w.now(), store.SystemRunImported, store.RunImported{
		Run: in.Run, Seq: last.Seq, Hash: hex.EncodeToString(last.Hash), By: in.By,
	})
}

// checkImport rejects a run that is or was in this store, and one whose session has later runs, because
// the next run of a session begins with the conversation of the last.
func (t *tx) checkImport(in *store.Imported) error {
	var known, later int
	err := t.row(`SELECT (SELECT count(*) FROM runs WHERE id = ?1) + (SELECT count(*) FROM contents WHERE run_id = ?1)
		+ (SELECT count(*) FROM system_events WHERE kind IN ('anchor', 'content_pruned', 'run_removed') AND payload ->> 'run_id' = ?1)`,
		[]any{string(in.Run)}, &known)
	if err != nil {
		return err
	}
	if known > 0 {
		return reject(toolcrib.Errorf(toolcrib.CodeConflict, "run %s exists here, or was removed from here; nothing was imported",
			in.Run))
	}
	start, ok := in.Events[0].Body.(*journal.RunStarted)
	if !ok || start.Session == "" {
		return nil
	}
	err = t.row("SELECT count(*) FROM runs WHERE session_id = ? AND user = ? AND created_at >= ?",
		[]any{string(start.Session), text(start.Principal.User), in.Events[0].Time.UnixMicro()}, &later)
	if err == nil && later > 0 {
		err = reject(toolcrib.Errorf(toolcrib.CodeConflict, "session %s has later runs than %s; nothing was imported",
			start.Session, in.Run))
	}
	return err
}

// undone makes the error of a job that has already written roll back its transaction.
func undone(err error) error {
	if r := (*rejection)(nil); errors.As(err, &r) {
		return r.err
	}
	return err
}
