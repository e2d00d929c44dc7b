// Package store holds what the stores of runs have in common: the projection of
// a run ([RunRecord], [Project]), filters, overrides, system events and errors.
// It is pure: the databases are in the packages below it.
//
// Whatever is here follows from the journal; a record can be made again from a
// run's events at any time.
package store

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

// Store is everything that is kept, in one database that several processes may use at
// once. store/sqlite is one; toolcribtest/storetest is the suite for it. It is safe for use
// by many goroutines.
//
// What an append says of runs, use, budgets and sessions is in its lists in the same
// transaction. What grants is sealed with keys that are not in the database ([Record]), and
// compared with that before it is acted upon. A store that could not do its work returns an
// [*Error], one whose rows are not as they were sealed a [*ChainError].
type Store interface {
	toolcrib.Journal
	toolcrib.Contents
	Runs
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
	// Writable returns nil if an append could be stored now.
	Writable(ctx context.Context) error
	// Path says where the store is, for messages and files beside it.
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
	// Runs returns a page of the runs that fit, newest first.
	Runs(ctx context.Context, f Filter) (Page, error)
	// OpenRuns returns how many runs have not ended, by status.
	OpenRuns(ctx context.Context) (map[toolcrib.Status]int64, error)
}

// Sessions are the sessions of users. They are also made by the first event of a run that
// names one which nobody has.
type Sessions interface {
	// NewSession makes a session; "" = without a name (C13). A name that another session of the
	// user has is toolcrib.ErrConflict, a bad one ErrSessionName.
	NewSession(ctx context.Context, user, name string) (SessionInfo, error)
	// Session returns the session of a user with this ID or name; toolcrib.ErrNotFound if there is
	// none, also if it is another user's. If user is "", any.
	Session(ctx context.Context, user, idOrName string) (SessionInfo, error)
	// Sessions returns a page of the sessions that fit, those with the newest runs first.
	Sessions(ctx context.Context, f SessionFilter) (SessionPage, error)
	// RemoveSession removes a session that has no run; toolcrib.ErrConflict if it has some. by
	// is recorded in the system journal.
	RemoveSession(ctx context.Context, user string, session toolcrib.SessionID, by string) error
}

// Switches are the overrides of administrators. A change is durable, and in the system journal.
type Switches interface {
	// Overrides returns all of them (A1), by kind and name, as they were at most age ago, and never
	// as they were before a change by this store: at 0, a change by any process is seen by the next
	// call (A2, A9). Within that age nothing is read, so it is cheap enough for every call of a tool.
	// The list is shared between callers, and must not be changed.
	Overrides(ctx context.Context, age time.Duration) ([]Override, error)
	// OverridesVersion rises with every change, whichever process makes it.
	OverridesVersion(ctx context.Context) (uint64, error)
	// SetOverride sets one, for the time it returns (A2, A7), and reports whether that changed anything;
	// if not, By and At stay those of the first.
	SetOverride(ctx context.Context, o Override) (changed bool, err error)
	// ResetOverride removes one, and reports whether there was one.
	ResetOverride(ctx context.Context, kind OverrideKind, name, by string) (changed bool, err error)
}

// Approvals are the remembered ones. A change is durable, and in the system journal.
type Approvals interface {
	// Remember makes an approval hold for later calls, and returns its ID. One that is remembered
	// stays as it is; one that was revoked stays revoked.
	Remember(ctx context.Context, m Remembered) (id string, changed bool, err error)
	// Forget revokes one; toolcrib.ErrNotFound if there is none of that ID, or if it is not of user
	// ("" = of anybody).
	Forget(ctx context.Context, user, id, by string) (changed bool, err error)
	// Remembered returns those that hold for a session of a user, oldest first. It is cheap enough for
	// every call of a tool. The caller owns the slice.
	Remembered(ctx context.Context, user string, session toolcrib.SessionID) ([]Remembered, error)
	// ListRemembered returns a page of those that fit, by ID.
	ListRemembered(ctx context.Context, f RememberedFilter) ([]Remembered, error)
}

// Spendings are what was used, and what may be.
type Spendings interface {
	// Ledger returns what keeps these budgets, over all processes; nil if none sets a ceiling.
	Ledger(budgets []UserBudget) (toolcrib.Ledger, error)
	// Usage sums up what runs have used, also those that were pruned since.
	Usage(ctx context.Context, q UsageQuery) ([]UsageRow, error)
	// RuleCounts returns how often each rule has decided from a day on, by rule, decision and tool.
	RuleCounts(ctx context.Context, since Day) ([]RuleCount, error)
}

// SystemJournal is the journal of what belongs to no run, and the audit log, a view of all.
type SystemJournal interface {
	// AppendSystem adds events, all or none, durably. It sets their Seq, Time (where it is zero) and hashes.
	AppendSystem(ctx context.Context, events ...SystemEvent) error
	// LastChanged returns what the last event of a kind says of a file, by its number and not its time;
	// zero = none.
	LastChanged(ctx context.Context, kind toolcrib.Kind, path string) (FileChanged, error)
	// Audit returns a page of the audit log.
	Audit(ctx context.Context, f AuditFilter) (AuditPage, error)
}

// Keeping removes and copies.
type Keeping interface {
	// Prune removes runs, or their content, with those that they started.
	Prune(ctx context.Context, o PruneOptions) (PruneResult, error)
	// ApplyRetention does a bounded piece of pruning by age.
	ApplyRetention(ctx context.Context, r Retention, now time.Time) (RetentionResult, error)
	// Import stores a run of another store, all of it or nothing.
	Import(ctx context.Context, in Imported) error
	// Backup writes a copy of everything, as it is at one moment, and of the keys into an empty folder,
	// while runs continue. Without the keys it is ErrKeys. The copy contains the head that is returned.
	Backup(ctx context.Context, dir string) (Head, error)
}

// Verifying finds what was changed from outside.
type Verifying interface {
	// Verify is [VerifyRun], VerifySystem is [VerifySystem].
	Verify(ctx context.Context, run toolcrib.RunID) (Verified, error)
	VerifySystem(ctx context.Context, against *Head) (Verified, error)
	// VerifyAll is [VerifyAll]; the error joins the problems.
	VerifyAll(ctx context.Context) (VerifiedAll, error)
	// Check reads the whole database, and returns ErrCorrupt if it is damaged.
	Check(ctx context.Context) error
	// AcceptDamage lets new runs start in spite of what VerifyAll finds, and puts into the system journal
	// by whom. What is no broken chain cannot be accepted, such as a file that cannot be read.
	AcceptDamage(ctx context.Context, by string) (VerifiedAll, error)
	// Head returns where everything stands, sealed, to be kept elsewhere.
	Head(ctx context.Context) (Head, error)
	// ExportAudit is [Export], and ExportKeys returns the keys that seal it.
	ExportAudit(ctx context.Context, w io.Writer, o ExportOptions) error
	ExportKeys() (*Keys, error)
}

// People are users, groups and tokens, and how often tokens were used. A change
// is durable, and in the system journal.
type People interface {
	access.Directory
	access.Tokens
	access.Quota
	// Version rises with every change, whichever process makes it. It is as it was at most age ago,
	// and never as it was before a change by this store; within that age nothing is read.
	Version(ctx context.Context, age time.Duration) (uint64, error)
	// Latest returns the time of the last entry of the system journal; zero if none.
	Latest(ctx context.Context) (time.Time, error)
}

// What [Bound] means.
const (
	DefaultLimit = 50
	MaxLimit     = 1000
)

// Filter chooses runs. Every field that is not zero must match.
type Filter struct {
	Status   []toolcrib.Status // any of these; empty = any
	User     string
	Token    string // started by the access token with this ID
	Agent    string
	Session  toolcrib.SessionID
	Beside   toolcrib.SessionID
	Parent   toolcrib.RunID // children of this run
	TopLevel bool           // only runs without a parent
	Tainted  bool           // only runs that have read untrusted data
	Deciding bool           // only runs that wait themselves, not for a run below them: see RunRecord.Decides
	Approval string         // that wait for the approval with this ID
	Since    time.Time      // created then or later
	Once     string         // begun with the key of this hash
	Waiting  time.Time      // that wait themselves, since then or earlier
	Freed    bool           // that wait for a run below them which has ended, such as one that was cancelled
	Retry    time.Time      // whose provider is to be asked again by then
	Holds    bool           // that have not ended, and for which an approval was remembered
	Limit    int            // at most so many; 0 = DefaultLimit; never more than MaxLimit
	Cursor   string         // Page.Next of the page before; "" = from the newest
}

// Bound returns the limit of a list that holds: DefaultLimit for none, at most MaxLimit.
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

// LastRun returns the newest of them, or toolcrib.ErrNotFound.
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
	Next string      `json:"next,omitempty"` // the cursor of the next page; "" = this is the last
}

// AmbiguousError says that a shortened run ID fits several runs.
type AmbiguousError struct {
	Prefix string
	IDs    []toolcrib.RunID // the first few that fit, at least two
	More   bool             // there are others than IDs
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
