package store

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// PruneOptions chooses the runs to prune, either by ID or by age. Only runs that have ended are
// pruned, each together with its sub-runs.
type PruneOptions struct {
	// Runs are the runs to prune. They and their sub-runs must have ended. A sub-run may be
	// named if all runs above it have ended; these are kept, and their journals still name it.
	Runs []toolcrib.RunID
	// OlderThan chooses runs without a stored parent that ended longer ago than this, as did all
	// of their sub-runs. If 0, no run is chosen by age.
	OlderThan time.Duration
	// ContentOnly removes only the content of events and kept results. The row of the run, its
	// events and its chain stay. If false, runs are removed, and only their anchors stay.
	ContentOnly bool
	// By is recorded in the system journal as the actor.
	By string
}

// Check returns an error if the options are invalid.
func (o PruneOptions) Check() error {
	switch {
	case o.By == "":
		return errors.New("prune: the actor is missing")
	case o.OlderThan < 0:
		return errors.New("prune: the age of what is pruned must not be negative")
	case len(o.Runs) == 0 && o.OlderThan == 0:
		return errors.New("prune: runs or an age must be given")
	case len(o.Runs) > 0 && o.OlderThan > 0:
		return errors.New("prune: give either runs or an age")
	}
	return nil
}

// OpenRunError reports that a run cannot be pruned because it or a run above it has not ended. A run continues from
// the journals of the runs below it: without them it would repeat work, or never end. It is a conflict.
type OpenRunError struct {
	Run    toolcrib.RunID // run to be pruned
	Open   toolcrib.RunID // run that has not ended: Run, or the topmost one above it
	Status toolcrib.Status
	Driver string // driver of Open: cli or server
}

func (e *OpenRunError) Error() string {
	waits := ""
	switch {
	case e.Status == toolcrib.StatusWaitingForTool:
		waits = ": it waits for the result of a client's tool"
	case e.Status == toolcrib.StatusWaitingForProvider:
		waits = ": it waits for its provider"
	case e.Status.Parked():
		waits = ": it waits for a person"
	}
	if e.Open != e.Run {
		return fmt.Sprintf("run %s is part of run %s, which has not ended%s (%s) and needs it; resume or cancel that "+
			"one first", e.Run, e.Open, waits, e.Status)
	}
	return fmt.Sprintf("run %s has not ended%s (%s); let it end, or cancel it first", e.Run, waits, e.Status)
}

// Unwrap makes the error [toolcrib.ErrConflict].
func (e *OpenRunError) Unwrap() error { return toolcrib.ErrConflict }

// The kinds of system events of pruning.
const (
	SystemContentPruned toolcrib.Kind = "content_pruned" // payload: Pruned
	SystemRunRemoved    toolcrib.Kind = "run_removed"    // payload: Pruned
)

// Pruned is the record of a pruned run in the system journal.
type Pruned struct {
	Run      toolcrib.RunID  `json:"run_id"`
	By       string          `json:"by"`
	Status   toolcrib.Status `json:"status"`
	EndedAt  time.Time       `json:"ended_at"`
	Seq      toolcrib.Seq    `json:"seq"`  // last event
	Hash     string          `json:"hash"` // hash of the run's chain up to Seq, in hex
	Events   int             `json:"events"`
	Contents int             `json:"contents"`
	Bytes    int64           `json:"bytes"`
	Record   string          `json:"record,omitempty"` // hash of the row that stays, in hex
	Used     []UseEntry      `json:"used"`             // usage that no longer follows from events of the run
}

// DefaultRetentionRuns is the default of [Retention.Max].
const DefaultRetentionRuns = 200

// Retention is how long runs are kept after their end, as configured under retention. Runs that
// have not ended, including parked ones, are never pruned. A run is pruned together with its
// sub-runs, once all of them are old enough. The newest run of a session is kept while the
// session itself is younger than the limit, because the session continues from its transcript.
type Retention struct {
	Runs    time.Duration // age at which runs, and sessions left without runs, are removed; 0 means never
	Content time.Duration // age at which the content of runs is removed; 0 means never
	Max     int           // runs pruned in one call, apart from sub-runs of the last; 0 means DefaultRetentionRuns
}

// RetentionBy is the actor recorded in the system journal for pruning by age.
const RetentionBy = "retention"

// Check returns an error if it is invalid.
func (r Retention) Check() error {
	if r.Runs < 0 || r.Content < 0 {
		return errors.New("retention: an age must not be negative")
	}
	return nil
}

// RetentionResult reports the removed data. Removed data is overwritten in the database file, but
// copies may stay in unused parts of pages until Prune rewrites the file.
type RetentionResult struct {
	Removed  []toolcrib.RunID     `json:"removed"`
	Emptied  []toolcrib.RunID     `json:"emptied"` // runs whose content was removed
	Sessions []toolcrib.SessionID `json:"sessions"`
	Contents int                  `json:"contents"` // number of kept results removed
	Bytes    int64                `json:"bytes"`    // size of events and kept results removed
	More     bool                 `json:"more"`     // whether other runs are old enough; call again
}

// Imported is a run of another store, as it was exported there.
type Imported struct {
	Run      toolcrib.RunID
	By       string           // user who imports it
	Events   []toolcrib.Event // with their original hashes
	Contents map[string][]byte
}

// SystemRunImported is the kind of system event of an import. Payload: RunImported.
const SystemRunImported toolcrib.Kind = "run_imported"

// RunImported records that a run comes from another store.
type RunImported struct {
	Run  toolcrib.RunID `json:"run_id"`
	Seq  toolcrib.Seq   `json:"seq"`  // last event
	Hash string         `json:"hash"` // hash of its chain, in hex
	By   string         `json:"by"`
}

// Check returns an error if the run cannot be imported. A run that has not ended could continue
// by decisions that were not made here. A run of a run tree is described by the journals of
// other runs. Calls of an access token are counted where they were made.
func (in *Imported) Check() error {
	if in.Run == "" || in.By == "" {
		return errors.New("import: a run ID and who imports it are needed")
	}
	rec, claims, token := RunRecord{ID: in.Run}, []ChildClaim(nil), ""
	var prev []byte
	for i, e := range in.Events {
		prev = journal.ChainHash(prev, in.Run, e.Seq, e.Body.EventKind(), e.Time, e.PayloadHash)
		b, start := e.Body.(*journal.RunStarted)
		if start {
			token = b.Principal.Token
		}
		switch {
		case e.Seq != toolcrib.Seq(i)+1 || start != (i == 0):
			return &ChainError{Run: in.Run, Seq: e.Seq, What: "it is not in its place"}
		case !bytes.Equal(prev, e.Hash):
			return &ChainError{Run: in.Run, Seq: e.Seq, What: "it does not follow from the one before"}
		}
		Project(&rec, e)
		claims = ClaimChildren(claims, e)
	}
	code, why := toolcrib.CodeBadRequest, ""
	switch {
	case !rec.Status.Ended():
		code, why = toolcrib.CodeConflict, "it had not ended when it was exported; only a run that has ended can be imported"
	case len(claims) > 0 || rec.Parent != "":
		why = "it belongs to a run tree, and other runs of that are not in the file"
	case token != "":
		why = "it was started by the access token " + token + ", whose calls are not counted here"
	default:
		return nil
	}
	return toolcrib.Errorf(code, "run %s cannot be imported: %s", in.Run, why)
}

// BackupFormat is the version of a backup.
const BackupFormat = 1

// maxManifest bounds the manifest of a backup in bytes.
const maxManifest = 64 << 10

// Backup is the manifest of a backup, which is a tar archive with the manifest as its first file.
type Backup struct {
	Format  int          `json:"toolcrib_backup"`
	At      time.Time    `json:"at"`
	Version string       `json:"version"` // version of toolcrib that wrote it
	Head    Head         `json:"head"`    // head that the restored store must contain
	Files   []BackupFile `json:"files"`
}

// BackupFile is a file of a backup.
type BackupFile struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	Hash  string `json:"sha256"` // hex
}

// ErrBackup is the kind of error for a file that is not a complete backup.
var ErrBackup = errors.New("the file is not a whole backup; use another one")

const manifestName = "backup.json"

// WriteBackup writes a backup of files of a folder. They must not change during the call.
func WriteBackup(w io.Writer, b Backup, dir string, names ...string) error {
	b.Format, b.Files = BackupFormat, nil
	for _, name := range names {
		h := sha256.New()
		n, err := copyFile(h, filepath.Join(dir, name))
		if err != nil {
			return err
		}
		b.Files = append(b.Files, BackupFile{Name: name, Bytes: n, Hash: hex.EncodeToString(h.Sum(nil))})
	}
	manifest, err := json.Marshal(b)
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	if err := t.WriteHeader(backupHeader(manifestName, int64(len(manifest)), b.At)); err != nil {
		return err
	}
	if _, err := t.Write(manifest); err != nil {
		return err
	}
	for _, f := range b.Files {
		if err := t.WriteHeader(backupHeader(f.Name, f.Bytes, b.At)); err != nil {
			return err
		}
		if _, err := copyFile(t, filepath.Join(dir, f.Name)); err != nil {
			return err
		}
	}
	return t.Close()
}

func backupHeader(name string, size int64, at time.Time) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: at, Format: tar.FormatPAX}
}

func copyFile(w io.Writer, path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // read only
	return io.Copy(w, f)
}

// ReadBackup extracts the files of a backup into an empty folder. The backup must have the first
// of these names, and no other files than these. The error is [ErrBackup] if it is damaged.
func ReadBackup(r io.Reader, dir string, names ...string) (b Backup, err error) {
	t := tar.NewReader(r)
	header, err := t.Next()
	if err != nil || header.Name != manifestName || header.Size > maxManifest {
		return b, badBackup(errors.Join(err, errors.New("it does not begin like a backup")))
	}
	manifest, err := io.ReadAll(t)
	if err != nil {
		return b, badBackup(err)
	}
	if err := json.NewDecoder(bytes.NewReader(manifest)).Decode(&b); err != nil || b.Format < 1 {
		return b, badBackup(errors.New("it does not begin like a backup"))
	}
	if b.Format > BackupFormat {
		return b, fmt.Errorf("the backup was written by a later version of toolcrib (%s); use that version", b.Version)
	}
	if !slices.ContainsFunc(b.Files, func(f BackupFile) bool { return f.Name == names[0] }) {
		return b, badBackup(fmt.Errorf("it has no %s", names[0]))
	}
	for _, f := range b.Files {
		if !slices.Contains(names, f.Name) {
			return b, badBackup(fmt.Errorf("it has a file %q, which no backup has", f.Name))
		}
		if header, err = t.Next(); err != nil || header.Name != f.Name || header.Size != f.Bytes {
			return b, badBackup(fmt.Errorf("%s is missing: the file was cut off or changed", f.Name))
		}
		if err := extract(t, filepath.Join(dir, f.Name), f); err != nil {
			return b, err
		}
	}
	return b, nil
}

func badBackup(err error) error { return fmt.Errorf("%w (%w)", ErrBackup, err) }

// extract writes one file durably.
func extract(r io.Reader, path string, want BackupFile) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, h), r)
	err = errors.Join(err, f.Sync(), f.Close())
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return badBackup(fmt.Errorf("%s: %w", want.Name, err))
	case err != nil:
		return err
	case hex.EncodeToString(h.Sum(nil)) != want.Hash:
		return badBackup(fmt.Errorf("%s has another hash: the file was changed or damaged", want.Name))
	}
	return nil
}
