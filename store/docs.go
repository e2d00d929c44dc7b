package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/journal"
)

// Doc is a document that follows from the system journal and is stored outside it: a switch, a
// remembered approval, a session, a user, group or token.
type Doc struct {
	Kind string // one of the constants below
	ID   string
	User string      // user to whom it belongs, or ""
	Keys access.Keys // keys of the name of a user or group
	At   int64       // time of the last event about it, in Unix microseconds
	Gone bool        // whether it was removed or revoked, but is kept
	Text string      // JSON; "" if it no longer exists
}

// The kinds of documents.
const (
	DocOverride   = "override"
	DocRemembered = "remembered"
	DocSession    = "session"
	DocUser       = "user"
	DocGroup      = "group"
	DocToken      = "token"
	DocCounter    = "counter" // number of changes of a sealed table; the ID is its name
)

// SealedTable is a group of documents under one seal, with a counter of its changes.
type SealedTable struct {
	Name  string
	Kinds []string
}

// SealedDocs are the sealed tables, by their index in [Record.Tables].
var SealedDocs = [SealedTables]SealedTable{
	SealedOverrides:  {"overrides", []string{DocOverride}},
	SealedRemembered: {"remembered", []string{DocRemembered}},
	SealedAccess:     {"access", []string{DocUser, DocGroup, DocToken}},
}

// Sealed returns the index of the sealed table that has documents of a kind; ok is false if none has.
func Sealed(kind string) (table int, ok bool) {
	table = slices.IndexFunc(SealedDocs[:], func(t SealedTable) bool { return slices.Contains(t.Kinds, kind) })
	return table, table >= 0
}

// docEvents are the events of the system journal that change documents.
var docEvents = map[toolcrib.Kind]struct {
	kind  string // kind of the document
	gone  bool   // the event removes or revokes the document, which is kept
	ended bool   // the event deletes the document
}{
	SystemOverrideSet: {kind: DocOverride}, SystemOverrideReset: {kind: DocOverride, ended: true},
	SystemRemembered: {kind: DocRemembered}, SystemForgotten: {kind: DocRemembered, gone: true},
	SystemSessionMade: {kind: DocSession}, SystemSessionRemoved: {kind: DocSession, ended: true},
	access.UserAdded: {kind: DocUser}, access.UserChanged: {kind: DocUser},
	access.UserRemoved: {kind: DocUser, gone: true},
	access.GroupPut:    {kind: DocGroup}, access.GroupRemoved: {kind: DocGroup, ended: true},
	access.TokenIssued: {kind: DocToken}, access.TokenRevoked: {kind: DocToken, gone: true},
	access.TokenRemoved: {kind: DocToken, ended: true},
}

// DocOf returns the document after an event of the system journal; ok is false if the event does
// not change one. A store keeps the returned documents, and verification compares them.
func DocOf(e *SystemEvent) (d Doc, ok bool, err error) {
	about, ok := docEvents[e.Kind]
	if !ok {
		return d, false, nil
	}
	d = Doc{Kind: about.kind, At: e.Time.UnixMicro(), Gone: about.gone}
	var of struct {
		ID      string          `json:"id"`
		Name    string          `json:"name"`
		Kind    OverrideKind    `json:"kind"`
		Session string          `json:"session_id"`
		User    json.RawMessage `json:"user"` // a name or, in events about users, an object
		Group   json.RawMessage `json:"group"`
		Token   json.RawMessage `json:"token"`
	}
	err = json.Unmarshal(e.Payload, &of)
	d.ID, d.Text = of.Name, string(e.Payload)
	switch d.Kind {
	case DocOverride:
		d.ID = string(of.Kind) + " " + of.Name
	case DocRemembered:
		d.ID = of.ID
	case DocSession:
		d.ID = of.Session
	case DocUser:
		d.Text, d.Keys = string(of.User), access.KeysOf(of.Name)
	case DocGroup:
		d.Text, d.Keys = string(of.Group), access.KeysOf(of.Name)
	case DocToken:
		var issued struct {
			Claims struct {
				Subject string `json:"sub"`
			} `json:"claims"`
		}
		if err == nil {
			err = json.Unmarshal(of.Token, &issued)
		}
		d.Text, d.User = string(of.Token), issued.Claims.Subject
	}
	if err == nil && (d.Kind == DocRemembered || d.Kind == DocSession) {
		err = json.Unmarshal(of.User, &d.User)
	}
	if about.ended {
		d.Text = ""
	}
	return d, true, err
}

// docs are the documents that follow from a system journal.
type docs struct {
	all     map[[3]string]Doc // by kind, ID and user
	changes [SealedTables]uint64
}

func (d *docs) put(doc Doc) {
	key := [3]string{doc.Kind, doc.ID, doc.User}
	if d.all[key] = doc; doc.Text == "" {
		delete(d.all, key)
	}
}

// learn updates the documents with an event.
func (d *docs) learn(e *SystemEvent) error {
	doc, ok, err := DocOf(e)
	if !ok {
		return err
	}
	d.put(doc)
	if table, ok := Sealed(doc.Kind); ok {
		d.changes[table]++
	}
	return err
}

// unlike returns an error if the stored documents, which each passes to do, differ from those of
// the system journal, whose last event is last.
func (d *docs) unlike(last toolcrib.Seq, each func(do func(Doc) error) error) error {
	for table, n := range d.changes {
		d.put(Doc{Kind: DocCounter, ID: SealedDocs[table].Name, Text: strconv.FormatUint(n, 10)})
	}
	n := 0
	err := each(func(doc Doc) error {
		n++
		if want, ok := d.all[[3]string{doc.Kind, doc.ID, doc.User}]; !ok || doc != want {
			return systemError(last, fmt.Sprintf("the %s %s does not match its events", doc.Kind, doc.ID))
		}
		return nil
	})
	if err == nil && n < len(d.all) {
		err = systemError(last, "something that it records is missing: a switch, approval, session, user, group, token or counter")
	}
	return err
}

// OverrideKind is the kind of the subject of an override.
type OverrideKind string

const (
	OverrideTool  OverrideKind = "tool"
	OverrideGroup OverrideKind = "group"
)

// Override is an administrator's decision on a tool or a group of tools. Without an
// override the default of the tool applies.
type Override struct {
	Kind    OverrideKind `json:"kind"`
	Name    string       `json:"name"`
	Enabled bool         `json:"enabled"`
	By      string       `json:"by"`
	At      time.Time    `json:"at"` // set by the store
}

// Check returns an error if the key of an override is invalid.
func (o Override) Check() error {
	if o.Kind != OverrideTool && o.Kind != OverrideGroup {
		return fmt.Errorf("override: unknown kind %q: must be %s or %s", o.Kind, OverrideTool, OverrideGroup)
	}
	if o.Name == "" || len(o.Name) > maxNameBytes {
		return fmt.Errorf("override: the name of a %s must have 1 to %d bytes", o.Kind, maxNameBytes)
	}
	return nil
}

// maxNameBytes bounds the names of overrides; the name of a tool has at most 64 bytes.
const maxNameBytes = 256

// SystemEvent is an event of the system journal, outside all runs. Its chain is that of
// journal.ChainHash for [SystemChain]. A store sets its Seq and hashes, and Time if it is zero.
// The payload is a JSON value, and must not contain secrets.
type SystemEvent = RawEvent

// SystemChain takes the place of the run ID in the chain of the system journal.
const SystemChain toolcrib.RunID = "system"

// The kinds of system events that a store writes itself.
const (
	SystemOverrideSet   toolcrib.Kind = "override_set"   // payload: Override
	SystemOverrideReset toolcrib.Kind = "override_reset" // payload: Override, as it was, with who reset it
	SystemAnchor        toolcrib.Kind = "anchor"         // payload: Anchor
)

// Anchor records the state of a run's chain in the system journal, each time that the run parks
// or ends, so that a removed or rewritten run is detected.
type Anchor struct {
	Run    toolcrib.RunID  `json:"run_id"`
	Seq    toolcrib.Seq    `json:"seq"`
	Hash   string          `json:"hash"` // hash of the run's chain up to Seq, in hex
	Status toolcrib.Status `json:"status"`

	// Num is the number of the run in the database. Contents is the hash of its kept results in
	// hex, or "" if there are none. Both are missing in databases of schema 1.
	Num      int64  `json:"num,omitempty"`
	Contents string `json:"contents,omitempty"`
}

// Remembered is an approval that a person extended to later calls of a session or of a user.
// Approvals for a run follow from its journal, until they are revoked.
type Remembered struct {
	ID      string             `json:"id"`    // set by the store; see [Remembered.MakeID]
	Scope   string             `json:"scope"` // run | session | user
	User    string             `json:"user"`  // user of the run
	Session toolcrib.SessionID `json:"session_id,omitempty"`
	Tool    string             `json:"tool"`
	Source  string             `json:"source,omitempty"` // source of the tool
	// Arguments are the canonical arguments that are approved. If nil, any arguments are.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Path is the file or, with Folder, the folder that a call may write: absolute, links resolved.
	// It is "" if the approval is not bound to files.
	Path   string `json:"path,omitempty"`
	Folder bool   `json:"folder,omitempty"`
	// Program is the program with its subcommand of the command lines that are approved, or "".
	Program string `json:"program,omitempty"`
	// Workspace is the workspace for which the approval is valid, links resolved, and FolderID
	// distinguishes it from another folder at the same path. Both are "" for runs without a workspace.
	Workspace  string          `json:"workspace"`
	FolderID   string          `json:"folder_id,omitempty"`
	Effect     toolcrib.Effect `json:"effect"` // effect of the approved calls
	Run        toolcrib.RunID  `json:"run_id"` // run whose journal has the approval
	ApprovalID string          `json:"approval_id"`
	By         string          `json:"by"`
	At         time.Time       `json:"at"`                  // set by the store
	RevokedAt  time.Time       `json:"revoked_at,omitzero"` // zero if it is valid
	RevokedBy  string          `json:"revoked_by,omitempty"`
}

// maxRememberedBytes bounds the arguments of a remembered approval.
const maxRememberedBytes = 64 << 10

// Check returns an error if the approval that is to be remembered is invalid.
func (m Remembered) Check() error {
	switch {
	case m.Scope != journal.RememberSession && m.Scope != journal.RememberUser:
		return fmt.Errorf("remember: the scope %q must be %s or %s", m.Scope, journal.RememberSession, journal.RememberUser)
	case m.User == "" || (m.Scope == journal.RememberSession) != (m.Session != ""):
		return errors.New("remember: a user is needed, and a session where it is for one")
	case !toolName(m.Tool):
		return fmt.Errorf("remember: %q is not the name of a tool", m.Tool)
	case m.Effect != toolcrib.EffectReadOnly && m.Effect != toolcrib.EffectIdempotentWrite &&
		m.Effect != toolcrib.EffectNonIdempotentWrite:
		return fmt.Errorf("remember: unknown effect %q", m.Effect)
	case m.Run == "" || m.ApprovalID == "" || m.By == "":
		return errors.New("remember: a run, its approval and who decided are needed")
	case len(m.Arguments) > maxRememberedBytes:
		return fmt.Errorf("remember: arguments of %d bytes, at most %d", len(m.Arguments), maxRememberedBytes)
	case m.Program != "" && (m.Path != "" || m.Arguments != nil || len(m.Program) > maxRememberedPath ||
		!utf8.ValidString(m.Program)):
		return fmt.Errorf("remember: a program has no path or arguments, and at most %d bytes", maxRememberedPath)
	case m.Path == "" && m.Folder, (m.Workspace == "") != (m.FolderID == ""):
		return errors.New("remember: a folder goes with its path, and a workspace with what tells it")
	case !place(m.Path) || !place(m.Workspace):
		return fmt.Errorf("remember: the path and the workspace must be absolute, of valid UTF-8 and at most %d bytes",
			maxRememberedPath)
	case m.Arguments != nil && !compactObject(m.Arguments):
		return errors.New("remember: the arguments must be a canonical JSON object")
	}
	return nil
}

// maxRememberedPath bounds a path of a remembered approval, in bytes.
const maxRememberedPath = 4096

func place(path string) bool {
	return path == "" || filepath.IsAbs(path) && filepath.Clean(path) == path && utf8.ValidString(path) &&
		len(path) <= maxRememberedPath
}

// compactObject reports whether raw is a JSON object without white space between its tokens.
func compactObject(raw json.RawMessage) bool {
	var b bytes.Buffer
	return json.Compact(&b, raw) == nil && bytes.Equal(b.Bytes(), raw) && raw[0] == '{'
}

// MakeID returns the ID of the approval, a hash of its fields: remembering the same approval of
// the same call again gives the same ID.
func (m Remembered) MakeID() string {
	h := sha256.New()
	for _, part := range []string{
		m.Scope, m.User, string(m.Session), m.Tool, string(m.Arguments), m.Path, strconv.FormatBool(m.Folder), m.Workspace,
		m.FolderID, string(m.Effect), string(m.Run), m.ApprovalID,
	} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part) // a hash never fails to write
	}
	if m.Arguments == nil {
		_, _ = h.Write([]byte{0})
	}
	if m.Program != "" {
		_, _ = fmt.Fprintf(h, "program %s", m.Program)
	}
	return "rem_" + hex.EncodeToString(h.Sum(nil)[:10])
}

// RememberedFilter chooses remembered approvals. User, Session, Run and Token must match unless empty.
type RememberedFilter struct {
	User    string
	Session toolcrib.SessionID
	Run     toolcrib.RunID // run in which it was approved
	Token   string         // ID of an access token that started the run, which must be stored
	Revoked bool           // whether to include revoked approvals
	Limit   int            // number of approvals, as [Bound] applies it
	After   string         // ID of the last approval of the page before; if "", the first page
}

// The kinds of system events of remembered approvals.
const (
	SystemRemembered toolcrib.Kind = "approval_remembered" // payload: Remembered
	SystemForgotten  toolcrib.Kind = "approval_forgotten"  // payload: Remembered, as it was, with who revoked it
)
