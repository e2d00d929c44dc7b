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
	// writes it anew; nil = it is not in the export, or was pruned. Bytes is the same,
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

// Exporter writes an export.
type Exporter struct {
	w     io.Writer
	hash  hash.Hash
	lines int
	runs  int
	last  toolcrib.RunID
}

// NewExporter begins an export.
func NewExporter(w io.Writer, begin ExportBegin) (*Exporter, error) {
	x := &Exporter{w: w, hash: sha256.New()}
	begin.Format = ExportFormat
	return x, x.line(begin)
}

func (x *Exporter) line(v any) error {
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

// Event writes an event; payload nil = without its content.
func (x *Exporter) Event(e ExportEvent, payload []byte) error {
	switch {
	case payload == nil:
	case utf8.Valid(payload):
		text := string(payload)
		e.Payload = &text
	default:
		e.Bytes = base64.StdEncoding.EncodeToString(payload)
	}
	if e.Run != "" && e.Run != x.last {
		x.runs, x.last = x.runs+1, e.Run
	}
	return x.line(e)
}

// End seals the export with the keys of the data folder.
func (x *Exporter) End(keys *Keys, head Head) error {
	digest := x.hash.Sum(nil)
	return x.line(exportLast{&ExportEnd{
		Lines: x.lines, Runs: x.runs, Head: head, Digest: hex.EncodeToString(digest), MAC: hex.EncodeToString(exportMAC(keys, digest)),
	}})
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
	x, err := NewExporter(w, ExportBegin{At: at, Since: o.Since})
	if err != nil {
		return err
	}
	err = s.System(ctx, func(e *SystemEvent) error { return x.raw("", e.raw(), true) })
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
				// Whom a run acts for and who really asked stand in its first event only.
				shown := o.Content || e.Kind == journal.KindRunStarted && rec.Actor != "" || alwaysExported(e.Kind)
				return x.raw(rec.ID, e, shown)
			})
		}
	}
	if err != nil {
		return err
	}
	return x.End(keys, head)
}

func (x *Exporter) raw(run toolcrib.RunID, e *RawEvent, content bool) error {
	payload := e.Payload
	if !content {
		payload = nil
	}
	return x.Event(ExportEvent{
		Run: run, Seq: e.Seq, Kind: e.Kind, Time: e.Time, PayloadHash: hex.EncodeToString(e.PayloadHash), Hash: hex.EncodeToString(e.Hash),
	}, payload)
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
// Somebody who writes a whole file anew, with right hashes, is found with the keys of
// the data folder only, or by a head that was kept elsewhere. keys nil = hashes alone.
func VerifyExport(r io.Reader, keys *Keys) (VerifiedExport, error) {
	return VerifyExportAgainst(r, keys, Head{})
}

// VerifyExportAgainst is VerifyExport, and finds too that the export does not go on from
// a head that was kept elsewhere: it was made of an older copy of the data folder, or of
// a history that was written anew. The zero Head is that of an empty journal.
func VerifyExportAgainst(r io.Reader, keys *Keys, kept Head) (VerifiedExport, error) {
	v := &exportCheck{
		kept: kept,
		in:   bufio.NewReaderSize(r, 64<<10), hash: sha256.New(), anchors: map[toolcrib.RunID][]Anchor{}, gone: map[toolcrib.RunID]bool{},
		pruned: map[toolcrib.RunID]toolcrib.Seq{}, seen: map[toolcrib.RunID]bool{}, kin: kin{},
	}
	err := v.run(keys, &v.v)
	return v.v, err
}

// exportCheck goes through an export.
type exportCheck struct {
	in    *bufio.Reader
	hash  hash.Hash
	lines int
	v     VerifiedExport

	anchors map[toolcrib.RunID][]Anchor     // those that are still to come, in order
	gone    map[toolcrib.RunID]bool         // removed
	pruned  map[toolcrib.RunID]toolcrib.Seq // whose content was removed, up to this event
	seen    map[toolcrib.RunID]bool

	kept  Head // that the system journal must go on from
	kin   kin
	chain toolcrib.RunID // that is being read; "" = the system journal
	seq   toolcrib.Seq
	prev  []byte
	head  struct {
		seq  toolcrib.Seq
		hash []byte
		time int64
	}
}

func (c *exportCheck) broken(format string, args ...any) error {
	run := c.chain
	if run == "" {
		run = SystemChain
	}
	return &ChainError{Run: run, Seq: c.seq, What: fmt.Sprintf("line %d of the export: ", c.lines) + fmt.Sprintf(format, args...)}
}

// next reads a line, without its end.
func (c *exportCheck) next() ([]byte, error) {
	c.lines++
	var line []byte
	for {
		part, err := c.in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxExportLine:
			return nil, c.broken("it has more than %d bytes", maxExportLine)
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil, c.broken("the file ends before its end: it was cut off")
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

func (c *exportCheck) run(keys *Keys, v *VerifiedExport) error {
	line, err := c.next()
	if err != nil {
		return err
	}
	if err := strictly(line, &v.Begin); err != nil || v.Begin.Format != ExportFormat {
		return c.broken("it is not the beginning of an audit log in a format of this version")
	}
	endMark := []byte(`{"end":`)
	for {
		_, _ = c.hash.Write(line)
		if line, err = c.next(); err != nil {
			return err
		}
		if bytes.HasPrefix(line, endMark) {
			return c.end(line, keys, v)
		}
		if err := c.event(line, v); err != nil {
			return err
		}
	}
}

func (c *exportCheck) event(line []byte, v *VerifiedExport) error {
	var e ExportEvent
	if err := strictly(line, &e); err != nil {
		return c.broken("it cannot be read: %v", err)
	}
	if e.Run != c.chain {
		if err := c.turn(e.Run, v); err != nil {
			return err
		}
	}
	c.seq++
	payloadHash, err1 := hex.DecodeString(e.PayloadHash)
	hash, err2 := hex.DecodeString(e.Hash)
	payload, has, err3 := e.content()
	name := e.Run
	if name == "" {
		name = SystemChain
	}
	switch {
	case err1 != nil || err2 != nil || err3 != nil:
		return c.broken("its hashes or its content cannot be read")
	case e.Seq != c.seq:
		return c.broken("event %d stands where event %d should be", e.Seq, c.seq)
	case has && !bytes.Equal(journal.PayloadHash(payload), payloadHash):
		return c.broken("the content of event %d has another hash", e.Seq)
	case !bytes.Equal(journal.ChainHash(c.prev, name, e.Seq, e.Kind, time.UnixMicro(e.Time), payloadHash), hash):
		return c.broken("event %d does not follow from the one before", e.Seq)
	}
	c.prev = hash
	if has {
		v.Content++
	}
	if e.Run != "" {
		v.Links++
		if !has && e.Seq > c.pruned[e.Run] && alwaysExported(e.Kind) {
			return c.broken("event %d, %s, has no content, and nobody pruned it", e.Seq, e.Kind)
		}
		c.kinOf(&e, has, payload)
		return c.anchored(hash)
	}
	v.Events++
	c.head.seq, c.head.hash, c.head.time = e.Seq, hash, e.Time
	if e.Seq == c.kept.Seq && e.Hash != c.kept.Hash {
		return c.broken("event %d is another one than that of the kept head: the history was written anew", e.Seq)
	}
	if !has {
		return c.broken("event %d of the system journal has no content", e.Seq)
	}
	return c.learn(e.Kind, payload)
}

// alwaysExported reports whether the content of a run's events of this kind is in every
// export, if there is any. What a run begins with is not: it has the prompt.
func alwaysExported(kind toolcrib.Kind) bool {
	return kind != journal.KindRunStarted && slices.Contains(AuditedEvents(), kind)
}

// content is the payload of an event, as it was hashed.
func (e *ExportEvent) content() (payload []byte, has bool, err error) {
	switch {
	case e.Payload != nil:
		return []byte(*e.Payload), true, nil
	case e.Bytes != "":
		payload, err = base64.StdEncoding.DecodeString(e.Bytes)
		return payload, true, err
	}
	return nil, false, nil
}

// turn goes on to the next run.
func (c *exportCheck) turn(run toolcrib.RunID, v *VerifiedExport) error {
	if err := c.finish(); err != nil {
		return err
	}
	if c.chain, c.seq, c.prev = run, 0, nil; run == "" || c.seen[run] {
		return c.broken("its events do not stand together")
	}
	c.seen[run] = true
	v.Runs++
	return nil
}

// finish looks at the run whose events are over.
func (c *exportCheck) finish() error {
	if left := c.anchors[c.chain]; c.chain != "" && len(left) > 0 {
		return c.broken("the run ends at event %d, and the system journal has an anchor of event %d", c.seq, left[0].Seq)
	}
	delete(c.anchors, c.chain)
	return nil
}

// learn takes what the system journal tells of runs.
func (c *exportCheck) learn(kind toolcrib.Kind, payload []byte) error {
	switch kind {
	case SystemAnchor:
		var a Anchor
		if err := json.Unmarshal(payload, &a); err != nil {
			return c.broken("the anchor cannot be read")
		}
		c.anchors[a.Run] = append(c.anchors[a.Run], a)
	case SystemRunRemoved, SystemContentPruned:
		var p Pruned
		if err := json.Unmarshal(payload, &p); err != nil {
			return c.broken("the record of pruning cannot be read")
		}
		if kind == SystemRunRemoved {
			c.gone[p.Run] = true
		} else {
			c.pruned[p.Run] = p.Seq
		}
	}
	return nil
}

// anchored compares the event that was read last with its anchor, if there is one.
func (c *exportCheck) anchored(hash []byte) error {
	for left := c.anchors[c.chain]; len(left) > 0 && left[0].Seq == c.seq; left = c.anchors[c.chain] {
		if left[0].Hash != hex.EncodeToString(hash) {
			return c.broken("the anchor of event %d in the system journal has another hash", c.seq)
		}
		c.anchors[c.chain] = left[1:]
	}
	return nil
}

func (c *exportCheck) end(line []byte, keys *Keys, v *VerifiedExport) error {
	if err := c.finish(); err != nil {
		return err
	}
	var last exportLast
	if err := strictly(line, &last); err != nil || last.End == nil {
		return c.broken("its last line cannot be read")
	}
	if same, err := json.Marshal(last); err != nil || !bytes.Equal(append(same, '\n'), line) {
		return c.broken("its last line is not as it is written")
	}
	digest, end := c.hash.Sum(nil), last.End
	switch {
	case end.Head.Seq != c.head.seq || end.Head.Hash != hex.EncodeToString(c.head.hash) || c.head.seq > 0 && end.Head.Time.UnixMicro() != c.head.time:
		return &ChainError{Run: SystemChain, Seq: c.head.seq, What: fmt.Sprintf("the export ends not where its head says, at event %d", end.Head.Seq)}
	case end.Digest != hex.EncodeToString(digest) || end.Lines != c.lines-1 || end.Runs != v.Runs:
		return &ChainError{What: "the export is not the one that its last line has the digest of"}
	case keys != nil && !hmac.Equal([]byte(end.MAC), []byte(hex.EncodeToString(exportMAC(keys, digest)))):
		return &ChainError{What: "the export was not sealed with these keys"}
	case keys != nil && !hmac.Equal([]byte(end.Head.MAC), []byte(hex.EncodeToString(keys.HeadMAC(c.head.seq, end.Head.Moves, c.head.hash)))):
		return &ChainError{Run: SystemChain, Seq: c.head.seq, What: "the head was not sealed with these keys"}
	}
	if _, err := c.in.ReadByte(); !errors.Is(err, io.EOF) {
		return &ChainError{What: "something stands behind the end of the export"}
	}
	if c.head.seq < c.kept.Seq {
		return &ChainError{Run: SystemChain, Seq: c.head.seq, What: fmt.Sprintf("the system journal ends there, and the kept head is at event %d: the export is older, or of an older copy", c.kept.Seq)}
	}
	v.Head, v.Sealed = end.Head, keys != nil
	if err := c.missing(v); err != nil {
		return err
	}
	broken := c.kin.check(func(run toolcrib.RunID) (removed, anchored bool) { return c.gone[run], false }, v.Begin.Since.IsZero())
	if len(broken) > 0 {
		return broken[0]
	}
	return nil
}

// kinOf takes what an event says of other runs.
func (c *exportCheck) kinOf(e *ExportEvent, has bool, payload []byte) {
	of := c.kin.of(e.Run)
	switch e.Kind {
	case journal.KindRunStarted, journal.KindChildStarted, journal.KindChildParked, journal.KindChildResumed, journal.KindChildEnded, journal.KindDone, journal.KindError:
	default:
		return
	}
	var body toolcrib.Body
	if has {
		var err error
		if body, err = journal.Decode(e.Kind, payload); err != nil {
			return // a later version wrote it
		}
	}
	of.learn(e.Seq, e.Kind, body)
}

// missing finds the runs that have an anchor, were not removed, and are not there.
func (c *exportCheck) missing(v *VerifiedExport) error {
	var runs []toolcrib.RunID
	for run := range c.anchors {
		if !c.gone[run] && !c.seen[run] {
			runs = append(runs, run)
		}
	}
	if len(runs) == 0 || !v.Begin.Since.IsZero() {
		return nil // without the older ones
	}
	return &ChainError{Run: slices.Min(runs), What: "it has an anchor in the system journal, and is not in the export"}
}
