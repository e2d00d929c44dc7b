// Package store defines the store of runs and the parts that all implementations share: the projection of a run
// ([RunRecord], [Project]), filters, overrides, system events and errors. It performs no input or output: the
// databases are in the packages below it.
//
// All stored state follows from the journal: a record can be rebuilt from the events of its run at any time.
package store

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/journal"
)

// Store is a database of everything that is stored. Several processes may use it at once. It is
// safe for concurrent use by multiple goroutines. Package store/sqlite implements it, and
// toolcribtest/storetest tests implementations.
//
// An append updates the records of runs, usage, budgets and sessions in the same transaction.
// Rows on which permissions depend are sealed with keys that are not in the database ([Record]),
// and checked before use. If a store fails, it returns an [*Error]; if its rows are not as they
// were sealed, a [*ChainError].
type Store interface {
	toolcrib.Journal
	toolcrib.Contents
	toolcrib.Files
	Runs
	Leases
	Origins
	Inbox
	Sessions
	Switches
	Approvals
	Spendings
	SystemJournal
	Keeping
	Verifying

	// Access returns the users, groups and tokens.
	Access() People
	// SomeFiles returns the stored file of a name and those in a folder and below it, by their names.
	SomeFiles(ctx context.Context, name, folder string) (map[string][]byte, error)
	// Writable returns nil if an append could be stored now.
	Writable(ctx context.Context) error
	// Path returns the path of the store, for messages and for files in the same folder.
	Path() string
	// Close waits for the appends that were begun. A second Close does nothing.
	Close() error
}

// Runs are the records of runs.
type Runs interface {
	// Run returns the record of the run with exactly this ID, or toolcrib.ErrNotFound.
	Run(ctx context.Context, id toolcrib.RunID) (RunRecord, error)
	// FindRun returns the run whose ID is prefix, or the only one whose ID begins with it; "run_"
	// may be left out. If several do, the error is an [*AmbiguousError].
	FindRun(ctx context.Context, prefix string) (RunRecord, error)
	// Runs returns a page of the runs that match, newest first.
	Runs(ctx context.Context, f Filter) (Page, error)
	// OpenRuns returns how many runs have not ended, by status.
	OpenRuns(ctx context.Context) (map[toolcrib.Status]int64, error)
	// OpenSites returns how many runs with this driver have not ended, by their Site.
	OpenSites(ctx context.Context, driver string) (map[string]int64, error)
}

// Sessions are the sessions of users. The first event of a run also creates the session that it
// names, if it does not exist.
type Sessions interface {
	// NewSession creates a session, without a name if name is "". It returns toolcrib.ErrConflict
	// if another session of the user has the name, and an error of [CheckSessionName] if it is invalid.
	NewSession(ctx context.Context, user, name string) (SessionInfo, error)
	// Session returns the session of a user with this ID or name, or toolcrib.ErrNotFound, also for a
	// session of another user. If user is "", it finds the sessions of all users.
	Session(ctx context.Context, user, idOrName string) (SessionInfo, error)
	// Sessions returns a page of the sessions that match, those with the newest runs first.
	Sessions(ctx context.Context, f SessionFilter) (SessionPage, error)
	// RemoveSession removes a session, or returns toolcrib.ErrConflict if it has runs. by is recorded
	// in the system journal.
	RemoveSession(ctx context.Context, user string, session toolcrib.SessionID, by string) error
}

// Switches are the overrides of administrators. A change is durable, and recorded in the system
// journal.
type Switches interface {
	// Overrides returns all overrides, by kind and name. The list may be up to age old, but
	// includes all changes by this store; if age is 0, also those by any other process. A
	// list that is not older than age is returned without reading, so that it is cheap enough for
	// every call of a tool. The list is shared between callers, and must not be changed.
	Overrides(ctx context.Context, age time.Duration) ([]Override, error)
	// OverridesVersion returns a number that grows with every change by any process.
	OverridesVersion(ctx context.Context) (uint64, error)
	// SetOverride sets an override; it applies as soon as the call returns. changed reports
	// whether it differs from the one before; if not, By and At of the one before stay.
	SetOverride(ctx context.Context, o Override) (changed bool, err error)
	// ResetOverride removes an override, and reports whether it was set.
	ResetOverride(ctx context.Context, kind OverrideKind, name, by string) (changed bool, err error)
}

// Approvals are the remembered approvals. A change is durable, and recorded in the system journal.
type Approvals interface {
	// Remember makes an approval valid for later calls, and returns its ID. It does not change an
	// approval that is already remembered or that was revoked.
	Remember(ctx context.Context, m Remembered) (id string, changed bool, err error)
	// Forget revokes an approval. It returns toolcrib.ErrNotFound if none has this ID, or if user is
	// not "" and the approval belongs to another user.
	Forget(ctx context.Context, user, id, by string) (changed bool, err error)
	// Remembered returns the valid approvals for a session of a user, oldest first. It is cheap
	// enough for every call of a tool. The caller owns the slice.
	Remembered(ctx context.Context, user string, session toolcrib.SessionID) ([]Remembered, error)
	// ListRemembered returns a page of the approvals that match, by ID.
	ListRemembered(ctx context.Context, f RememberedFilter) ([]Remembered, error)
}

// Spendings are recorded usage and budgets.
type Spendings interface {
	// Ledger returns a ledger that enforces these budgets across all processes, or nil if none sets a
	// ceiling.
	Ledger(budgets []UserBudget) (toolcrib.Ledger, error)
	// Usage sums up the usage of runs, including pruned ones.
	Usage(ctx context.Context, q UsageQuery) ([]UsageRow, error)
	// TreeUse returns the cost and tokens of a run tree so far, given any run of it.
	TreeUse(ctx context.Context, run toolcrib.RunID) (journal.SessionUse, error)
	// RuleCounts returns how often each rule has decided since a day, by rule, decision and tool.
	RuleCounts(ctx context.Context, since Day) ([]RuleCount, error)
}

// SystemJournal is the journal of events outside runs, and the audit log, which shows events of all
// journals.
type SystemJournal interface {
	// AppendSystem adds events, all or none, durably. It sets their Seq and hashes, and Time if it is zero.
	AppendSystem(ctx context.Context, events ...SystemEvent) error
	// LastChanged returns the payload of the last event of a kind about a file, by number and not
	// by time, or the zero FileChanged.
	LastChanged(ctx context.Context, kind toolcrib.Kind, path string) (FileChanged, error)
	// Audit returns a page of the audit log.
	Audit(ctx context.Context, f AuditFilter) (AuditPage, error)
}

// Keeping is the part of a store for pruning, import and backup.
type Keeping interface {
	// Prune removes runs, or their content, together with their sub-runs.
	Prune(ctx context.Context, o PruneOptions) (api.PruneResult, error)
	// ApplyRetention prunes a bounded number of runs by age.
	ApplyRetention(ctx context.Context, r Retention, now time.Time) (RetentionResult, error)
	// Import stores a run of another store, all of it or nothing.
	Import(ctx context.Context, in Imported) error
	// Backup writes a snapshot of everything, with the keys, into an empty folder while runs
	// continue, and returns its head. Without keys it returns [ErrKeys].
	Backup(ctx context.Context, dir string) (Head, error)
}

// Verifying detects changes from outside.
type Verifying interface {
	// Verify is [VerifyRun], VerifySystem is [VerifySystem].
	Verify(ctx context.Context, run toolcrib.RunID) (Verified, error)
	VerifySystem(ctx context.Context, against *Head) (Verified, error)
	// VerifyAll is [VerifyAll]; the error joins the problems.
	VerifyAll(ctx context.Context) (VerifiedAll, error)
	// Check reads the whole database, and returns ErrCorrupt if it is damaged.
	Check(ctx context.Context) error
	// AcceptDamage lets new runs start in spite of the problems that VerifyAll finds, and records by
	// in the system journal. Only broken chains can be accepted, not, for example, an unreadable file.
	AcceptDamage(ctx context.Context, by string) (VerifiedAll, error)
	// Head returns the sealed head of the system journal, to be kept elsewhere.
	Head(ctx context.Context) (Head, error)
	// ExportAudit is [Export]; ExportKeys returns the keys that seal the export.
	ExportAudit(ctx context.Context, w io.Writer, o ExportOptions) error
	ExportKeys() (*Keys, error)
}

// People are users, groups and tokens, and the number of uses of tokens. A change is durable,
// and recorded in the system journal.
type People interface {
	access.Directory
	access.Tokens
	access.Quota
	// Version returns a number that grows with every change by any process. The number may be up to age
	// old, but includes all changes by this store; within that age nothing is read.
	Version(ctx context.Context, age time.Duration) (uint64, error)
	// Latest returns the time of the last entry of the system journal; zero if none.
	Latest(ctx context.Context) (time.Time, error)
}

// The bounds of the JSON of one event, and of the content of one reference.
const (
	MaxEventBytes   = 64 << 20
	MaxContentBytes = 64 << 20
)

// The limits of [Bound].
const (
	DefaultLimit = 50
	MaxLimit     = 1000
)

// Filter chooses runs. Every field that is not zero must match.
type Filter struct {
	Status   []toolcrib.Status // one of these; if empty, any
	User     string
	Token    string // ID of the access token that started the run
	Agent    string
	Session  toolcrib.SessionID
	Beside   toolcrib.SessionID
	Parent   toolcrib.RunID
	TopLevel bool      // only runs without a parent
	Tainted  bool      // only runs that have read untrusted data
	Deciding bool      // only runs for which [RunRecord.Decides] reports true
	Approval string    // only runs that wait for the approval with this ID
	Site     string    // only runs with this Site, or without one
	Since    time.Time // only runs created at this time or later
	Once     string    // only runs begun with the key that has this hash
	Waiting  time.Time // only runs with Decides that have waited since this time or longer
	Freed    bool      // only runs that wait for a run below them that has ended, for example by cancellation
	Retry    time.Time // only runs whose provider is to be asked again by this time
	Holds    bool      // only runs that have not ended and for which an approval was remembered
	Limit    int       // number of runs, as [Bound] applies it
	Cursor   string    // Page.Next of the page before; if "", the list starts with the newest
}

// Bound returns the limit that applies to a list: DefaultLimit if limit is 0 or less, at most MaxLimit.
func Bound(limit int) int {
	if limit <= 0 {
		return DefaultLimit
	}
	return min(limit, MaxLimit)
}

// SessionRuns returns the runs of a session, oldest first, without sub-runs.
func SessionRuns(ctx context.Context, s Runs, user string, session toolcrib.SessionID) ([]RunRecord, error) {
	if session == "" {
		return nil, nil
	}
	page, err := s.Runs(ctx, Filter{User: user, Session: session, TopLevel: true, Limit: MaxLimit})
	slices.Reverse(page.Runs)
	return page.Runs, err
}

// LastRun returns the newest of the runs that SessionRuns lists, or toolcrib.ErrNotFound.
func LastRun(ctx context.Context, s Runs, user string, session toolcrib.SessionID) (rec RunRecord, err error) {
	page, err := s.Runs(ctx, Filter{User: user, Session: session, TopLevel: true, Limit: 1})
	if err == nil && (session == "" || len(page.Runs) == 0) {
		err = fmt.Errorf("session %s has no run: %w", session, toolcrib.ErrNotFound)
	}
	if err != nil {
		return rec, err
	}
	return page.Runs[0], nil
}

// Page is part of a list of runs, newest first.
type Page struct {
	Runs []RunRecord `json:"runs"`
	Next string      `json:"next,omitempty"` // cursor of the next page; "" on the last page
}

// AmbiguousError is the error for a shortened run ID that matches several runs.
type AmbiguousError struct {
	Prefix string
	IDs    []toolcrib.RunID // the first matches, at least two
	More   bool             // whether there are other matches
}

func (e *AmbiguousError) Error() string {
	text := fmt.Sprintf("run ID %s is ambiguous, give more of it; it fits", e.Prefix)
	for i, id := range e.IDs {
		if i > 0 {
			text += ","
		}
		text += " " + string(id)
	}
	if e.More {
		text += " and others"
	}
	return text
}
