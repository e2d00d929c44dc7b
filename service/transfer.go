package service

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/journal/inmemory"
	"github.com/toolcrib/toolcrib/secret"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/people"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// exportFormat is the version of the lines below.
const exportFormat = 1

// The lines of an exported run are JSON values: a header, the events in their order, the kept contents in pieces, and
// the end.
type (
	exportHeader struct {
		Export  int            `json:"toolcrib_export"`
		Run     toolcrib.RunID `json:"run_id"`
		Version string         `json:"version"` // version of toolcrib that wrote it
	}
	exportEvent struct {
		Seq         toolcrib.Seq    `json:"seq"`
		Time        time.Time       `json:"time"`
		Kind        toolcrib.Kind   `json:"kind"`
		Payload     json.RawMessage `json:"payload"` // PayloadHash is over these bytes
		PayloadHash string          `json:"payload_hash"`
		Hash        string          `json:"hash"` // hash of the chain up to this event
		// Public means that Payload is the part of the event that users of a server may read, and PayloadHash is the hash of
		// the whole.
		Public bool `json:"public,omitempty"`
	}
	exportContent struct {
		Ref    string `json:"content"`
		Offset int64  `json:"offset"`
		Size   int64  `json:"size"`
		Data   []byte `json:"data"` // base64
	}
	exportEnd struct {
		End    bool `json:"end"`
		Events int  `json:"events"`
		Refs   int  `json:"contents"`
	}
	// importLine is any line after the first.
	importLine struct {
		exportEvent
		exportContent
		exportEnd
	}
)

// Bounds of an exported run.
const (
	maxImport     = 1 << 30
	maxImportLine = store.MaxEventBytes + 1<<20
	exportPiece   = 256 << 10 // bytes of a kept result on one line
)

// writeLine writes a JSON value on one line, without control characters for terminals.
func writeLine(w io.Writer, v any) error {
	text, err := guard.EncodeJSON(v, false)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// ExportRun writes the journal of a run, named as by [Service.FindRun]: every event with its hashes, and the kept
// results. Others than administrators get only what they may read; such an export cannot be imported.
func (s *Service) ExportRun(ctx context.Context, who toolcrib.Principal, name string, w io.Writer) error {
	rec, err := s.Env.Find(ctx, who, name)
	if err != nil {
		return err
	}
	if err := writeLine(w, exportHeader{Export: exportFormat, Run: rec.ID, Version: version.Version()}); err != nil {
		return err
	}
	var refs []string
	end := exportEnd{End: true}
	for e, err := range s.Env.Store.Read(ctx, rec.ID, 0) {
		if err != nil {
			return err
		}
		payload, err := journal.Encode(e.Body)
		if err != nil {
			return err
		}
		if len(e.PayloadHash) > 0 && !bytes.Equal(journal.PayloadHash(payload), e.PayloadHash) {
			return fmt.Errorf("event %d of %s was written by another version of toolcrib and cannot be exported byte for "+
				"byte; use that one", e.Seq, rec.ID)
		}
		line := exportEvent{
			Seq: e.Seq, Time: e.Time, Kind: e.Body.EventKind(), Payload: payload,
			PayloadHash: hex.EncodeToString(e.PayloadHash), Hash: hex.EncodeToString(e.Hash),
		}
		if public := journal.Public(e.Body); public != e.Body && !s.Env.ReadsDetails(who) {
			line.Public = true
			if line.Payload, err = journal.Encode(public); err != nil {
				return err
			}
		}
		if err := writeLine(w, line); err != nil {
			return err
		}
		end.Events++
		if r, ok := e.Body.(*journal.ToolResult); ok && r.Ref != "" {
			refs = append(refs, r.Ref)
		}
	}
	for _, ref := range refs {
		if err := s.exportContent(ctx, w, rec.ID, ref); err != nil {
			return err
		}
		end.Refs++
	}
	return writeLine(w, end)
}

func (s *Service) exportContent(ctx context.Context, w io.Writer, run toolcrib.RunID, ref string) error {
	for offset := int64(0); ; {
		data, size, err := s.Env.Store.Range(ctx, run, ref, offset, exportPiece)
		if err != nil {
			return err
		}
		if err := writeLine(w, exportContent{Ref: ref, Offset: offset, Size: size, Data: data}); err != nil {
			return err
		}
		offset += int64(len(data))
		if offset >= size || len(data) == 0 {
			return nil
		}
	}
}

// ImportRun adds a run that [Service.ExportRun] has written, for administrators, and returns its ID and its number of
// events.
func (s *Service) ImportRun(
	ctx context.Context, who toolcrib.Principal, r io.Reader,
) (run toolcrib.RunID, events int, err error) {
	by, err := env.Administrator(who)
	if err != nil {
		return "", 0, err
	}
	in, err := readExport(r)
	in.By = by
	if err == nil {
		err = in.Check()
	}
	if err != nil {
		return "", 0, toolcrib.Errorf(toolcrib.CodeBadRequest, "%v", err)
	}
	// A run that the loop cannot load could not be shown or forked.
	var kept inmemory.Journal
	if err := kept.Append(ctx, in.Run, 0, in.Events...); err != nil {
		return "", 0, err
	}
	if _, err := agent.Load(ctx, &kept, in.Run); err != nil {
		return "", 0, toolcrib.Errorf(toolcrib.CodeBadRequest, "%v", err)
	}
	return in.Run, len(in.Events), s.Env.Store.Import(ctx, in)
}

// ReadExport returns the events of a run that [Service.ExportRun] has written, if the export is complete.
func ReadExport(r io.Reader) ([]toolcrib.Event, error) {
	in, err := readExport(r)
	return in.Events, err
}

// readExport reads an exported run, and checks that it is complete.
func readExport(r io.Reader) (in store.Imported, err error) {
	lines := bufio.NewScanner(io.LimitReader(r, maxImport))
	lines.Buffer(nil, maxImportLine)
	var header exportHeader
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &header) != nil || header.Export < 1 {
		return in, errors.Join(lines.Err(), errors.New("it is not a run that `toolcrib runs export` wrote"))
	}
	if header.Export > exportFormat {
		return in, fmt.Errorf("a later version of toolcrib wrote it (%s); use that version", header.Version)
	}
	in.Run, in.Contents = header.Run, map[string][]byte{}
	for n := 2; lines.Scan(); n++ {
		var line importLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return in, fmt.Errorf("line %d is not a line of an export", n)
		}
		switch {
		case line.End && (line.Events != len(in.Events) || line.Refs != len(in.Contents)):
			return in, fmt.Errorf("line %d: %d events and %d contents were exported, and there are %d and %d", n, line.Events,
				line.Refs, len(in.Events), len(in.Contents))
		case line.End:
			return in, nil
		case line.Ref != "":
			have := in.Contents[line.Ref]
			if int64(len(have)) != line.Offset || line.Offset+int64(len(line.Data)) > line.Size {
				return in, fmt.Errorf("line %d: a piece of the content %s is missing", n, line.Ref)
			}
			in.Contents[line.Ref] = append(have, line.Data...)
			continue
		}
		e, err := line.event()
		if err != nil {
			return in, fmt.Errorf("line %d: %w", n, err)
		}
		in.Events = append(in.Events, e)
	}
	return in, errors.Join(lines.Err(), errors.New("it has no end: it was cut off"))
}

// event returns the event of a line. Its content must have its hash.
func (l *exportEvent) event() (e toolcrib.Event, err error) {
	if l.Public {
		return e, fmt.Errorf("event %d is not whole: have an administrator export the run", l.Seq)
	}
	body, err := journal.Decode(l.Kind, l.Payload)
	if err != nil {
		return e, err
	}
	e = toolcrib.Event{Seq: l.Seq, Time: l.Time, Body: body}
	var err1, err2 error
	e.PayloadHash, err1 = hex.DecodeString(l.PayloadHash)
	e.Hash, err2 = hex.DecodeString(l.Hash)
	if err1 != nil || err2 != nil || !bytes.Equal(journal.PayloadHash(l.Payload), e.PayloadHash) {
		return e, fmt.Errorf("the content of event %d has another hash", l.Seq)
	}
	return e, nil
}

// notesName is the file of a backup with the notes of users: JSON objects with their contents by the names of their
// files.
const notesName = "notes.json"

// backupFiles writes the files of a backup beside the database and its keys to dir, and returns their names, and those
// of the notes that cannot be read.
func (s *Service) backupFiles(ctx context.Context, dir string) (names, unread []string, err error) {
	f, err := os.OpenFile(filepath.Join(dir, notesName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	names, notes := []string{notesName}, json.NewEncoder(f)
	err = s.Env.FilesToCopy(ctx, func(name string, content []byte) error {
		switch {
		case content == nil:
			unread = append(unread, name)
			return nil
		case name == secret.FileName:
			names = append(names, name)
			return os.WriteFile(filepath.Join(dir, name), content, 0o600)
		}
		return notes.Encode(map[string][]byte{name: content})
	})
	return names, unread, errors.Join(err, f.Close())
}

// restoreNotes writes the notes of a backup to the data folder, if there are any.
func (s *Service) restoreNotes(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // read only
	for all := json.NewDecoder(f); ; {
		var notes map[string][]byte
		err := all.Decode(&notes)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.Env.WriteCopied(ctx, notes)
		}
		if err != nil {
			return err
		}
	}
}

// Backup writes a consistent snapshot of the database, its keys, the stored secrets and the notes of users to a new
// file, for administrators, and returns its size and the notes that it lacks, because they cannot be read.
func (s *Service) Backup(
	ctx context.Context, who toolcrib.Principal, path string,
) (size int64, unread []string, err error) {
	if _, err := env.Administrator(who); err != nil {
		return 0, nil, err
	}
	if _, err := os.Lstat(path); err == nil {
		return 0, nil, toolcrib.Errorf(toolcrib.CodeConflict, "%s exists; name a new file", path)
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".toolcrib-backup-*") // 0700
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := store.Backup{At: time.Now().UTC(), Version: version.Version()}
	if b.Head, err = s.Env.Store.Backup(ctx, dir); err != nil {
		return 0, nil, err
	}
	files, unread, err := s.backupFiles(ctx, dir)
	if err != nil {
		return 0, nil, err
	}
	names := append([]string{env.DatabaseName, env.KeysName}, files...)
	whole := filepath.Join(dir, "backup.tar")
	f, err := os.OpenFile(whole, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, nil, err
	}
	if err := errors.Join(store.WriteBackup(f, b, dir, names...), f.Sync(), f.Close(), ctx.Err()); err != nil {
		return 0, nil, err
	}
	info, err := os.Stat(whole)
	if err != nil {
		return 0, nil, err
	}
	return info.Size(), unread, newName(whole, path)
}

// Restore restores a file that [Service.Backup] has written to the data folder, which must be empty or not exist, and
// returns the time of the backup. It is for the owner of the folder, which has no other users yet. The store must not
// be open.
func (s *Service) Restore(ctx context.Context, path string) (at time.Time, err error) {
	keys, err := s.Env.KeysFile()
	if err != nil {
		return at, err
	}
	if _, err := os.Lstat(keys); err == nil && keys != filepath.Join(s.Env.DataDir, env.KeysName) {
		return at, toolcrib.Errorf(toolcrib.CodeConflict,
			"there is a key file %s, which the configuration names; move it away", keys)
	}
	if err := emptyFolder(s.Env.DataDir); err != nil {
		return at, err
	}
	f, err := os.Open(path)
	if err != nil {
		return at, err
	}
	defer func() { _ = f.Close() }() // read only
	dir, err := os.MkdirTemp(s.Env.DataDir, ".restore-*")
	if err != nil {
		return at, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b, err := store.ReadBackup(f, dir, env.DatabaseName, env.KeysName, secret.FileName, notesName)
	if errors.Is(err, store.ErrBackup) {
		err = toolcrib.Errorf(toolcrib.CodeBadRequest, "%v", err)
	}
	if err != nil {
		return at, err
	}
	if err := checkRestored(ctx, dir, b.Head); err != nil {
		return at, err
	}
	if err := dropSessions(ctx, filepath.Join(dir, env.DatabaseName)); err != nil {
		return at, err
	}
	// The database comes last: until it exists, every command refuses the folder.
	for _, f := range [][2]string{{env.KeysName, keys}, {secret.FileName, filepath.Join(s.Env.DataDir, secret.FileName)}} {
		text, err := os.ReadFile(filepath.Join(dir, f[0]))
		missing := errors.Is(err, fs.ErrNotExist) // missing in the backup
		if err == nil {
			err = safefile.Create(f[1], ".restore-", text)
		}
		if err != nil && !missing {
			return at, err
		}
	}
	if err := s.restoreNotes(ctx, filepath.Join(dir, notesName)); err != nil {
		return at, err
	}
	return b.At, newName(filepath.Join(dir, env.DatabaseName), filepath.Join(s.Env.DataDir, env.DatabaseName))
}

// newName renames a file to a name that must not exist, if the file system can check that.
func newName(from, to string) error {
	err := os.Link(from, to)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Rename(from, to)
}

// emptyFolder creates a data folder. One that is not empty is a conflict.
func emptyFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		err = toolcrib.Errorf(toolcrib.CodeConflict, "the data folder %s is not empty (it holds %s); name another, or "+
			"move it away",
			dir, entries[0].Name())
	}
	return err
}

// dropSessions ends the sessions of browsers in a restored database, the links that set a password, and the invites of
// nodes: those that were used since the backup would be back.
func dropSessions(ctx context.Context, path string) (err error) {
	s, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for folder, change := range map[string]func([]byte) ([]byte, error){
		env.SessionFolder: nil, env.InvitesFolder: nil, env.PasswordFolder: people.WithoutLink,
	} {
		if change == nil {
			change = func([]byte) ([]byte, error) { return nil, nil }
		}
		all, err := s.SomeFiles(ctx, folder, folder)
		if err != nil {
			return err
		}
		for name := range all {
			if err := s.ChangeFile(ctx, name, change); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkRestored opens the content of a backup, and compares it with its head.
func checkRestored(ctx context.Context, dir string, head store.Head) (err error) {
	path := filepath.Join(dir, env.DatabaseName)
	s, err := sqlite.Open(ctx, path, sqlite.Options{ReadOnly: true})
	if errors.Is(err, store.ErrUnmigrated) { // a backup of an earlier version
		s, err = sqlite.Open(ctx, path, sqlite.Options{})
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	_, err = s.VerifySystem(ctx, &head)
	return err
}
