package store

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// ExportFormat is the version of an exported audit log.
const ExportFormat = 1

// maxExportLine bounds a line of an export in bytes.
const maxExportLine = 256 << 20

// exportPurpose is what the key is derived for that seals an export.
const exportPurpose = "audit export"

// ExportOptions chooses what is exported.
type ExportOptions struct {
	// Since leaves out the runs that ended before; the system journal is always whole.
	Since time.Time
	// Content puts the content of all events into the export, prompts and results too;
	// else only that of what the audit log shows. The chains hold in any case.
	Content bool
}

// ExportBegin is the first line of an export.
type ExportBegin struct {
	Format int       `json:"toolcrib_audit"`
	At     time.Time `json:"exported_at"`
	Since  time.Time `json:"since,omitzero"`
}

// ExportEvent is a line for each event: those of the system journal, then those of each
// run, in order.
type ExportEvent struct {
	Run  toolcrib.RunID `json:"run_id,omitempty"` // "" = the system journal
	Seq  toolcrib.Seq   `json:"seq"`
	Kind toolcrib.Kind  `json:"kind"`
	Time int64          `json:"time"` // Unix microseconds
	// Payload is the JSON of the event as it was hashed, as a string, so that no tool
	// writes it again; nil = it is not in the export, or was pruned. Bytes is the same,
	// in base64, where it is not valid UTF-8.
	Payload     *string `json:"payload,omitempty"`
	Bytes       string  `json:"payload_base64,omitempty"`
	PayloadHash string  `json:"payload_hash"` // hex
	Hash        string  `json:"hash"`         // hex, of the chain up to the event
}

// ExportEnd is the last line of an export.
type ExportEnd struct {
	Lines  int    `json:"lines"`
	Runs   int    `json:"runs"`
	Head   Head   `json:"head"`   // of the system journal
	Digest string `json:"digest"` // hex, SHA-256 of all lines before
	MAC    string `json:"mac"`    // hex, of the digest, by the key of the data folder
}

// exporter writes an export.
type exporter struct {
	w     io.Writer
	hash  hash.Hash
	lines int
	runs  int
	last  toolcrib.RunID
}

func (x *exporter) line(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("audit: export: %w", err)
	}
	raw = append(guard.EscapeJSON(raw), '\n')
	_, _ = x.hash.Write(raw) // a hash never fails to write
	x.lines++
	_, err = x.w.Write(raw)
	return err
}

type exportLast struct {
	End *ExportEnd `json:"end"`
}

func exportMAC(keys *Keys, digest []byte) []byte {
	m := hmac.New(sha256.New, keys.Derive(exportPurpose))
	_, _ = m.Write(digest)
	return m.Sum(nil)
}

// Export writes the audit log of a store, with the hashes of all chains, so that
// [VerifyExport] can check it without the store. A system journal that is not as it was
// sealed is a [*ChainError]; nothing else is verified here.
func Export(ctx context.Context, s Snapshot, w io.Writer, keys *Keys, o ExportOptions, at time.Time) error {
	sealed, err := s.Sealed(ctx)
	if err != nil {
		return err
	}
	head, err := sealed.Export(keys)
	if err != nil {
		return err
	}
	x := &exporter{w: w, hash: sha256.New()}
	if err := x.line(ExportBegin{Format: ExportFormat, At: at, Since: o.Since}); err != nil {
		return err
	}
	err = s.System(ctx, "", func(e *SystemEvent) error { return x.event("", e, true) })
	chosen := make(map[toolcrib.RunID]bool)
	for after := int64(math.MinInt32); err == nil; {
		var rows []*Row
		if rows, err = s.Runs(ctx, after); err != nil || len(rows) == 0 {
			break
		}
		for _, r := range rows {
			rec := &r.Record
			after = r.Num
			// What a run has started goes with it.
			chosen[rec.ID] = rec.EndedAt.IsZero() || !rec.EndedAt.Before(o.Since) || chosen[rec.Parent]
			if err != nil || !chosen[rec.ID] {
				continue
			}
			err = s.Events(ctx, r.Num, r.Num, func(_ int64, e *RawEvent) error {
				// Whom a run acts for and who really asked are in its first event only.
				shown := o.Content || e.Kind == journal.KindRunStarted && rec.Actor != "" || alwaysExported(e.Kind)
				return x.event(rec.ID, e, shown)
			})
		}
	}
	if err != nil {
		return err
	}
	digest := x.hash.Sum(nil)
	return x.line(exportLast{&ExportEnd{
		Lines: x.lines, Runs: x.runs, Head: head, Digest: hex.EncodeToString(digest),
		MAC: hex.EncodeToString(exportMAC(keys, digest)),
	}})
}

func (x *exporter) event(run toolcrib.RunID, raw *RawEvent, content bool) error {
	e := ExportEvent{
		Run: run, Seq: raw.Seq, Kind: raw.Kind, Time: raw.Time.UnixMicro(),
		PayloadHash: hex.EncodeToString(raw.PayloadHash), Hash: hex.EncodeToString(raw.Hash),
	}
	switch {
	case !content || raw.Payload == nil:
	case utf8.Valid(raw.Payload):
		text := string(raw.Payload)
		e.Payload = &text
	default:
		e.Bytes = base64.StdEncoding.EncodeToString(raw.Payload)
	}
	if run != "" && run != x.last {
		x.runs, x.last = x.runs+1, run
	}
	return x.line(e)
}

// VerifiedExport is what an export was found to hold.
type VerifiedExport struct {
	Begin  ExportBegin `json:"begin"`
	Events int         `json:"events"` // of the system journal
	Runs   int         `json:"runs"`
	Links  int         `json:"run_events"` // of all runs
	// Content counts the events whose content is there, and has its hash.
	Content int  `json:"content"`
	Head    Head `json:"head"`   // of the system journal, as it was exported
	Sealed  bool `json:"sealed"` // by the keys that were given
}

// VerifyExport checks an exported audit log without its database: that each event has
// its content's hash and follows from the one before it, that what the audit log shows
// has its content unless the system journal says that it was pruned (of what a run
// began with that cannot be told), that the runs are those that the system journal has
// anchors of, and that the file is whole. Where content is there, runs and those that
// they have started must name each other. What does not hold is a [*ChainError].
//
// Someone who rewrites a whole file, with right hashes, is found with the keys of
// the data folder only, or by a head that was kept elsewhere, from which the export does
// not continue. keys nil = hashes alone; the zero Head is that of an empty journal.
func VerifyExport(r io.Reader, keys *Keys, kept Head) (VerifiedExport, error) {
	c := &exportCheck{verifier: newVerifier(nil, keys), in: bufio.NewReaderSize(r, 64<<10), hash: sha256.New()}
	c.exported = true
	if kept != (Head{}) {
		c.against = &kept
	}
	err := c.all()
	var broken *ChainError
	if errors.As(err, &broken) && !c.ended {
		at := *broken
		at.Run, at.Seq = c.at()
		at.What = fmt.Sprintf("line %d of the export: %s", c.lines, at.What)
		err = &at
	}
	return c.n, err
}

// exportCheck goes through an export, line by line.
type exportCheck struct {
	*verifier
	in    *bufio.Reader
	hash  hash.Hash
	lines int
	n     VerifiedExport
	run   *runCheck // that is being read; nil = the system journal
	ended bool      // all lines were read
}

// at is the last event that was read.
func (c *exportCheck) at() (toolcrib.RunID, toolcrib.Seq) {
	if c.run == nil {
		return SystemChain, toolcrib.Seq(c.n.Events)
	}
	return c.run.run, toolcrib.Seq(c.run.n.Events)
}

// next reads a line.
func (c *exportCheck) next() ([]byte, error) {
	c.lines++
	var line []byte
	for {
		part, err := c.in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxExportLine:
			return nil, &ChainError{What: fmt.Sprintf("it has more than %d bytes", maxExportLine)}
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil, &ChainError{What: "the file ends before its end: it was cut off"}
		default:
			return nil, err
		}
	}
}

func strictly(line []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

func (c *exportCheck) all() error {
	line, err := c.next()
	if err != nil {
		return err
	}
	if err := strictly(line, &c.n.Begin); err != nil || c.n.Begin.Format != ExportFormat {
		return &ChainError{What: "it is not the beginning of an audit log in a format of this version"}
	}
	endMark := []byte(`{"end":`)
	for {
		_, _ = c.hash.Write(line)
		if line, err = c.next(); err != nil {
			return err
		}
		if bytes.HasPrefix(line, endMark) {
			return c.end(line)
		}
		if err := c.event(line); err != nil {
			return err
		}
	}
}

func (c *exportCheck) event(line []byte) error {
	var e ExportEvent
	if err := strictly(line, &e); err != nil {
		return &ChainError{What: fmt.Sprintf("it cannot be read: %v", err)}
	}
	raw, err := e.raw()
	if err != nil {
		return &ChainError{What: "its hashes or its content cannot be read"}
	}
	if raw.Payload != nil {
		c.n.Content++
	}
	if e.Run == "" && c.run == nil {
		c.n.Events++
		if raw.Payload == nil {
			return systemError(e.Seq, "it has no content")
		}
		c.n.Head.Time = raw.Time
		return c.systemEvent(raw)
	}
	if c.run == nil || e.Run != c.run.run {
		if err := c.finish(); err != nil {
			return err
		}
		if e.Run == "" || c.kin[e.Run] != nil {
			return &ChainError{Run: e.Run, Seq: e.Seq, What: "its events are not stored together"}
		}
		c.n.Runs++
		if c.run = c.begin(&Row{Record: RunRecord{ID: e.Run}}); c.run.err != nil {
			return c.run.err
		}
	}
	c.n.Links++
	return c.run.event(raw)
}

// finish looks at the run whose events are over.
func (c *exportCheck) finish() error {
	if c.run == nil {
		return nil
	}
	return c.run.anchored()
}

// raw is the event as it was stored.
func (e *ExportEvent) raw() (*RawEvent, error) {
	payloadHash, err1 := hex.DecodeString(e.PayloadHash)
	hash, err2 := hex.DecodeString(e.Hash)
	payload, err3 := base64.StdEncoding.DecodeString(e.Bytes)
	switch {
	case e.Payload != nil:
		payload = []byte(*e.Payload)
	case e.Bytes == "":
		payload = nil
	}
	return &RawEvent{
		Seq: e.Seq, Kind: e.Kind, Time: Micro(e.Time), Payload: payload, PayloadHash: payloadHash, Hash: hash,
	}, errors.Join(err1, err2, err3)
}

// alwaysExported reports whether the content of a run's events of this kind is in every
// export, if there is any. What a run begins with is not: it has the prompt.
func alwaysExported(kind toolcrib.Kind) bool {
	return kind != journal.KindRunStarted && auditEvents[kind] != nil
}

func sameMAC(text string, mac []byte) bool {
	return hmac.Equal([]byte(text), []byte(hex.EncodeToString(mac)))
}

func (c *exportCheck) end(line []byte) error {
	if err := c.finish(); err != nil {
		return err
	}
	var last exportLast
	if err := strictly(line, &last); err != nil || last.End == nil {
		return &ChainError{What: "it cannot be read"}
	}
	if same, err := json.Marshal(last); err != nil || !bytes.Equal(append(same, '\n'), line) {
		return &ChainError{What: "it is not as it is written"}
	}
	c.ended = true
	digest, end, seq := c.hash.Sum(nil), last.End, toolcrib.Seq(c.n.Events)
	what := ""
	switch {
	case end.Head.Seq != seq || end.Head.Hash != hex.EncodeToString(c.prev) || !end.Head.Time.Equal(c.n.Head.Time):
		what = fmt.Sprintf("the export ends not where its head says, at event %d", end.Head.Seq)
	case end.Digest != hex.EncodeToString(digest) || end.Lines != c.lines-1 || end.Runs != c.n.Runs:
		what = "the export is not the one that it has the digest of"
	case c.keys != nil && !sameMAC(end.MAC, exportMAC(c.keys, digest)):
		what = "the export was not sealed with these keys"
	case c.keys != nil && !sameMAC(end.Head.MAC, c.keys.HeadMAC(seq, end.Head.Moves, c.prev)):
		what = "the head was not sealed with these keys"
	case c.against != nil && seq < c.against.Seq:
		what = fmt.Sprintf("the system journal ends there, and the kept head is at event %d: "+
			"the export is older, or of an older copy", c.against.Seq)
	}
	if what != "" {
		return systemError(seq, what)
	}
	if _, err := c.in.ReadByte(); !errors.Is(err, io.EOF) {
		return &ChainError{What: "there is data after the end of the export"}
	}
	c.n.Head, c.n.Sealed = end.Head, c.keys != nil
	whole := c.n.Begin.Since.IsZero() // else without the older ones
	for _, run := range slices.Sorted(maps.Keys(c.facts)) {
		if whole && c.kin[run] == nil && c.facts[run].removed == nil {
			return &ChainError{Run: run, What: "it has an anchor in the system journal, and is not in the export"}
		}
	}
	broken := c.kin.check(func(run toolcrib.RunID) (removed, anchored bool) {
		removed, _ = c.absent(run)
		return removed, false
	}, whole)
	if len(broken) > 0 {
		return broken[0]
	}
	return nil
}
