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

// exportPurpose is the purpose of the key that seals an export; see [Keys.Derive].
const exportPurpose = "audit export"

// ExportOptions selects the data to export.
type ExportOptions struct {
	// Since excludes runs that ended earlier. The system journal is always exported completely.
	Since time.Time
	// Content includes the content of all events, also prompts and results. If false, only
	// events that the audit log shows have their content. The chains can be verified either way.
	Content bool
}

// ExportBegin is the first line of an export.
type ExportBegin struct {
	Format int       `json:"toolcrib_audit"`
	At     time.Time `json:"exported_at"`
	Since  time.Time `json:"since,omitzero"`
}

// ExportEvent is the line of one event. The events of the system journal come first, then those
// of each run, in order.
type ExportEvent struct {
	Run  toolcrib.RunID `json:"run_id,omitempty"` // "" for the system journal
	Seq  toolcrib.Seq   `json:"seq"`
	Kind toolcrib.Kind  `json:"kind"`
	Time int64          `json:"time"` // Unix microseconds
	// Payload is the JSON of the event as it was hashed, in a string, so that no program
	// reformats it; nil if it is not exported or was pruned. If it is not valid UTF-8, Bytes
	// has it instead, in base64.
	Payload     *string `json:"payload,omitempty"`
	Bytes       string  `json:"payload_base64,omitempty"`
	PayloadHash string  `json:"payload_hash"` // hex
	Hash        string  `json:"hash"`         // hash of the chain up to the event, in hex
}

// ExportEnd is the last line of an export.
type ExportEnd struct {
	Lines  int    `json:"lines"`
	Runs   int    `json:"runs"`
	Head   Head   `json:"head"`   // head of the system journal
	Digest string `json:"digest"` // SHA-256 of all lines before, in hex
	MAC    string `json:"mac"`    // HMAC-SHA256 of the digest with a key of the data folder, in hex
}

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

// Export writes the audit log of a store, with the hashes of all chains, so that [VerifyExport]
// can check it without the store. It verifies only the head of the system journal, and returns a
// [*ChainError] if that is not as it was sealed.
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
			// Sub-runs are exported with their parent.
			chosen[rec.ID] = rec.EndedAt.IsZero() || !rec.EndedAt.Before(o.Since) || chosen[rec.Parent]
			if err != nil || !chosen[rec.ID] {
				continue
			}
			err = s.Events(ctx, r.Num, r.Num, func(_ int64, e *RawEvent) error {
				// Only the first event of a run names its user and actor.
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

// VerifiedExport is the result of verifying an export.
type VerifiedExport struct {
	Begin   ExportBegin `json:"begin"`
	Events  int         `json:"events"` // number of events of the system journal
	Runs    int         `json:"runs"`
	Links   int         `json:"run_events"` // number of events of all runs
	Content int         `json:"content"`    // number of events with content
	Head    Head        `json:"head"`       // head of the system journal, as it was exported
	Sealed  bool        `json:"sealed"`     // whether the seals were verified with keys
}

// VerifyExport checks an exported audit log without its database. Each event must have the hash
// of its content and follow from the event before. Events that the audit log shows, except the
// first of a run, must have their content unless the system journal says that it was pruned.
// Where content is present, a run and its sub-runs must name each other. The runs must be those
// of which the system journal has anchors, and the file must be complete. The error for a
// violation is a [*ChainError].
//
// A whole file rewritten with consistent hashes is detected only with keys, those of the data
// folder, or with kept, an earlier head kept elsewhere, which the journal must continue. If keys
// is nil, only hashes are verified. If kept is zero, it is not compared.
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

// exportCheck verifies an export, line by line.
type exportCheck struct {
	*verifier
	in    *bufio.Reader
	hash  hash.Hash
	lines int
	n     VerifiedExport
	run   *runCheck // run whose events are being read; nil in the system journal
	ended bool      // whether all lines were read
}

// at returns the run and the number of the last event that was read.
func (c *exportCheck) at() (toolcrib.RunID, toolcrib.Seq) {
	if c.run == nil {
		return SystemChain, toolcrib.Seq(c.n.Events)
	}
	return c.run.run, toolcrib.Seq(c.run.n.Events)
}

// next returns the next line.
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
		if e.Run == "" || c.tree[e.Run] != nil {
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

// finish verifies the anchors of the run whose last event was read.
func (c *exportCheck) finish() error {
	if c.run == nil {
		return nil
	}
	return c.run.anchored()
}

// raw returns the event as it was stored.
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

// alwaysExported reports whether the content of a run's events of this kind is in every export,
// unless it was pruned. That of the first event is not, because it has the prompt.
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
	whole := c.n.Begin.Since.IsZero() // otherwise older runs are not exported
	for _, run := range slices.Sorted(maps.Keys(c.facts)) {
		if whole && c.tree[run] == nil && c.facts[run].removed == nil {
			return &ChainError{Run: run, What: "it has an anchor in the system journal, and is not in the export"}
		}
	}
	broken := c.tree.check(func(run toolcrib.RunID) (removed, anchored bool) {
		removed, _ = c.absent(run)
		return removed, false
	}, whole)
	if len(broken) > 0 {
		return broken[0]
	}
	return nil
}
