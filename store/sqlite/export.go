package sqlite

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// ExportAudit writes the audit log as it is at one moment, one JSON value a line, with
// the hashes of all chains, so that store.VerifyExport can check it without the
// database. A system journal that is not as it was sealed is a [*store.ChainError];
// nothing else is verified here.
func (s *Store) ExportAudit(ctx context.Context, w io.Writer, o store.ExportOptions) error {
	keys, err := loadKeys(s.keysPath)
	if err != nil {
		return err
	}
	out := &sink{w: w}
	err = s.frozen(ctx, func(sn snapshot) error { return sn.export(ctx, out, keys, o, wholeMicro(s.now())) })
	if out.err != nil {
		return fmt.Errorf("audit: the export cannot be written: %w", out.err)
	}
	return err
}

// sink remembers that writing failed, which is no failure of the store.
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

// ExportKeys returns the keys of the data folder, to seal and verify exports.
func (s *Store) ExportKeys() (*store.Keys, error) { return loadKeys(s.keysPath) }

func (sn snapshot) export(ctx context.Context, w io.Writer, keys *store.Keys, o store.ExportOptions, at time.Time) error {
	head, err := sn.sealedHead(ctx, keys)
	if err != nil {
		return err
	}
	x, err := store.NewExporter(w, store.ExportBegin{At: at, Since: o.Since})
	if err != nil {
		return err
	}
	if err := sn.exportSystem(ctx, x); err != nil {
		return err
	}
	type run struct {
		id    toolcrib.RunID
		num   int64
		actor bool
	}
	var runs []run
	since := int64(0)
	if !o.Since.IsZero() {
		since = o.Since.UnixMicro()
	}
	// What a run has started goes with it.
	err = sn.each(ctx, `WITH RECURSIVE chosen(id) AS (SELECT id FROM runs WHERE ended_at IS NULL OR ended_at >= ?
		UNION SELECT c.id FROM runs c JOIN chosen p ON c.parent_id = p.id AND c.parent_id <> '')
		SELECT id, num, actor <> '' FROM runs WHERE id IN (SELECT id FROM chosen) ORDER BY num`, []any{since}, func(scan scanFunc) error {
		runs = append(runs, run{})
		r := &runs[len(runs)-1]
		return scan(&r.id, &r.num, &r.actor)
	})
	for i := 0; err == nil && i < len(runs); i++ {
		r := runs[i]
		err = sn.events(ctx, r.num, func(e *stored) error {
			// Whom a run acts for and who really asked stand in its first event only.
			shown := o.Content || e.kind == journal.KindRunStarted && r.actor || e.kind != journal.KindRunStarted && slices.Contains(store.AuditedEvents(), e.kind)
			return exportEvent(x, r.id, e, shown)
		})
	}
	if err != nil {
		return err
	}
	return x.End(keys, head)
}

func exportEvent(x *store.Exporter, run toolcrib.RunID, e *stored, content bool) error {
	payload := e.payload
	if !content {
		payload = nil
	}
	return x.Event(store.ExportEvent{
		Run: run, Seq: e.seq, Kind: e.kind, Time: e.time, PayloadHash: hex.EncodeToString(e.payloadHash), Hash: hex.EncodeToString(e.hash),
	}, payload)
}

func (sn snapshot) exportSystem(ctx context.Context, x *store.Exporter) error {
	for after := toolcrib.Seq(0); ; {
		page, err := systemPage(ctx, sn, after)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, e := range page {
			r := stored{seq: e.Seq, kind: e.Kind, time: e.Time.UnixMicro(), payload: e.Payload, payloadHash: e.PayloadHash, hash: e.Hash}
			if err := exportEvent(x, "", &r, true); err != nil {
				return err
			}
			after = e.Seq
		}
	}
}

// sealedHead returns the head of the system journal, if it is as it was sealed.
func (sn snapshot) sealedHead(ctx context.Context, keys *store.Keys) (store.Head, error) {
	found, err := readSealed(ctx, sn)
	if err != nil {
		return store.Head{}, err
	}
	return found.exported(keys)
}
