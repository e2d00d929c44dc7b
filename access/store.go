package access

import (
	"context"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
)

// Bounds of lists.
const (
	MaxPage   = 1000 // entries of one page; the limit for a page if it is less than 1 or above this
	MaxGroups = 1000 // groups of a directory
)

// Directory stores users and groups. It is safe for concurrent use, also by
// several processes. Every change is one transaction, is recorded in the system
// journal as the [Change] that it returns, and is durable when the method returns. Expected
// errors are [*toolcrib.Error]s: not_found, conflict, bad_request; any other is a failure of
// the store. Package toolcribtest/storetest tests implementations.
type Directory interface {
	Users
	Groups
}

// Users stores the users. A name to add is compared by [TakenBy], a name to look up
// exactly.
type Users interface {
	// AddUser adds a user. The name of a removed user is also a conflict, unless
	// Reuse is set: the new user would find that user's runs, sessions and notes.
	AddUser(ctx context.Context, u NewUser, by string) (Change, error)
	// User returns a user who is not removed.
	User(ctx context.Context, name string) (User, error)
	// Alike returns the user with exactly this name, or otherwise the user whose name conflicts with it
	// ([TakenBy]), even if removed. not_found means that the name is free.
	Alike(ctx context.Context, name string) (User, error)
	// Users returns the users who are not removed, including disabled ones, sorted by name
	// (bytes), starting after the name after; at most limit of them.
	Users(ctx context.Context, after string, limit int) ([]User, error)
	// EditUser changes a user. Groups that do not exist are not_found. Removing the last
	// grant of an agent is a conflict ([CheckAgents]), unless Edit.AllAgents is set.
	EditUser(ctx context.Context, name string, e Edit, by string) (Change, error)
	// RemoveUser removes a user permanently, and revokes all tokens of the user if the store keeps tokens.
	RemoveUser(ctx context.Context, name, by string) (Change, error)
}

// NewUser is a user to add.
type NewUser struct {
	User
	Reuse bool // the name may be that of a removed user
}

// Groups stores the groups of users.
type Groups interface {
	// PutGroup adds a group, or changes the one of that name. It is a conflict if members could
	// then use every agent who could not before ([CheckAgents]), unless GroupEdit.AllAgents is set.
	PutGroup(ctx context.Context, name string, e GroupEdit, by string) (Change, error)
	// Groups returns all groups, sorted by name (bytes); at most [MaxGroups].
	Groups(ctx context.Context) ([]Group, error)
	// RemoveGroup removes a group. A group with members is a conflict: without it they could do more.
	RemoveGroup(ctx context.Context, name, by string) (Change, error)
}

// Tokens stores the claims of the access tokens that were issued, never the tokens
// themselves. Package toolcribtest/storetest tests implementations.
type Tokens interface {
	// AddToken stores a token; an ID that exists already is a conflict.
	AddToken(ctx context.Context, t Issued, by string) (Change, error)
	// Token returns a token; not_found if it was not issued here.
	Token(ctx context.Context, id string) (Issued, error)
	// Tokens returns the tokens of a user (of all users if ""), sorted by ID, starting after
	// the ID after; at most limit of them.
	Tokens(ctx context.Context, user, after string, limit int) ([]Issued, error)
	// RevokeToken revokes a token from now on. Revoking it again changes
	// nothing, and returns the first change again.
	RevokeToken(ctx context.Context, id, by string) (Change, error)
	// RemoveToken removes the record of a token, which then was not issued here.
	RemoveToken(ctx context.Context, id, by string) (Change, error)
}

// Issued is the record of a token that was issued.
type Issued struct {
	Claims    Claims    `json:"claims"`
	Label     string    `json:"label,omitempty"` // chosen by its owner
	IssuedBy  string    `json:"issued_by"`
	Revoked   time.Time `json:"revoked_at,omitzero"` // zero if not revoked
	RevokedBy string    `json:"revoked_by,omitempty"`
}

// Check returns an error if the record is invalid.
func (t Issued) Check() error {
	if problem := t.Claims.check(); problem != "" {
		return bad("the token cannot be kept: %s", problem)
	}
	if _, err := t.Claims.Scope.Check(); err != nil {
		return err
	}
	return checkText("the label of the token", t.Label)
}

// Change records a change, and who made it when; it is the payload of the entry in
// the system journal, and contains no secret.
type Change struct {
	Kind  toolcrib.Kind `json:"-"` // kind of the entry
	Name  string        `json:"name"`
	By    string        `json:"by"`
	At    time.Time     `json:"at"` // UTC, whole microseconds
	User  *User         `json:"user,omitempty"`
	Group *Group        `json:"group,omitempty"`
	Token *Issued       `json:"token,omitempty"`
	// Members is the number of users in the group that was put, and New reports whether the group is new.
	Members int  `json:"-"`
	New     bool `json:"-"`
}

// Kinds of changes.
const (
	UserAdded    toolcrib.Kind = "user_added"
	UserChanged  toolcrib.Kind = "user_changed"
	UserRemoved  toolcrib.Kind = "user_removed"
	GroupPut     toolcrib.Kind = "group_put"
	GroupRemoved toolcrib.Kind = "group_removed"
	TokenIssued  toolcrib.Kind = "token_issued"
	TokenRevoked toolcrib.Kind = "token_revoked"
	TokenRemoved toolcrib.Kind = "token_removed"
)

// Kinds of events of the system journal about signing in. They have names and addresses, and no secret.
const (
	SignedIn        toolcrib.Kind = "signed_in"
	SignInFailed    toolcrib.Kind = "sign_in_failed"
	SignedOut       toolcrib.Kind = "signed_out"
	PasswordSet     toolcrib.Kind = "password_set"
	PasswordRemoved toolcrib.Kind = "password_removed"
	PasswordLinked  toolcrib.Kind = "password_link"
)

// Kinds of events of the system journal about other nodes of the bus. They have keys and names, and no secret.
const (
	NodeTrusted   toolcrib.Kind = "node_trusted" // also if it is no longer
	NodeInvited   toolcrib.Kind = "node_invited"
	InviteRevoked toolcrib.Kind = "node_invite_revoked"
)

// CheckBy returns an error if the name of the user who makes a change is invalid.
func CheckBy(by string) error {
	if by == "" {
		return bad("the user who makes this change is unknown")
	}
	return checkText("the name of the user who makes this change", by)
}

// PageLimit returns the limit that applies to a page.
func PageLimit(limit int) int {
	if limit <= 0 || limit > MaxPage {
		return MaxPage
	}
	return limit
}

// Minute is the window of [Limits.PerMinute].
const Minute = time.Minute

// Limits bound the calls of a token; they are in its signed claims.
type Limits struct {
	PerMinute int64     // calls in any 60 seconds; if 0, no limit
	Total     int64     // calls in all; if 0, no limit
	Expires   time.Time // time after which the counts may be dropped
}

// Buckets of a [QuotaError].
const (
	BucketMinute = "rate_limit_per_minute"
	BucketTotal  = "max_calls_total"
)

// Quota counts the calls of tokens, over all processes. Package toolcribtest/storetest tests
// implementations.
type Quota interface {
	// Take counts one call of the token, made at that time, before it runs. If the call
	// would exceed a limit, it is not counted, and the error is a [*QuotaError].
	// Take is atomic: concurrent calls cannot exceed a limit together. If at is before
	// the time of the last counted call, that time is used, so that setting back a clock
	// permits no more calls. With any other error, the call could not be counted and must
	// not run either.
	Take(ctx context.Context, token string, l Limits, at time.Time) error
	// Left returns how many more calls of the token Take would permit at that time, and counts
	// none. Concurrent calls may use them before the caller does.
	Left(ctx context.Context, token string, l Limits, at time.Time) (Left, error)
}

// Left is the number of calls that a token may still make.
type Left struct {
	Limits Limits
	Total  int64 // calls left of Limits.Total; undefined if there is no such limit
	Minute int64 // calls left of Limits.PerMinute; undefined if there is no such limit
	// RetryAfter is the time until the minute permits another call; 0 if it does now.
	RetryAfter time.Duration
}

// Refusal returns the [*QuotaError] with which [Quota.Take] would refuse a call now, or nil
// if it would not.
func (l Left) Refusal() error {
	switch {
	case l.Limits.Total > 0 && l.Total <= 0:
		return &QuotaError{Bucket: BucketTotal, Limit: l.Limits.Total}
	case l.Limits.PerMinute > 0 && l.Minute <= 0:
		return &QuotaError{Bucket: BucketMinute, Limit: l.Limits.PerMinute, RetryAfter: l.RetryAfter}
	}
	return nil
}

// QuotaError reports which limit of a token was reached.
type QuotaError struct {
	Bucket     string
	Limit      int64
	RetryAfter time.Duration // until another call is permitted; if 0, never
}

func (e *QuotaError) Error() string {
	if e.Bucket == BucketTotal {
		return fmt.Sprintf("%s: the calls of the token are used up (max_calls: %d); ask for a new one", e.Bucket, e.Limit)
	}
	return fmt.Sprintf("%s: the token has used up its calls of this minute (%d); try again in %s", e.Bucket, e.Limit,
		e.RetryAfter.Truncate(time.Second)+time.Second)
}

// Unwrap lets [toolcrib.CodeOf] find the code.
func (e *QuotaError) Unwrap() error {
	code := toolcrib.CodeRateLimited
	if e.Bucket == BucketTotal {
		code = toolcrib.CodeScopeInsufficient
	}
	return &toolcrib.Error{Code: code, Message: e.Error(), RetryAfter: e.RetryAfter}
}

// lastYear is the last year in which calls are counted: their times are stored in
// nanoseconds since 1970, which overflow in the year after.
const lastYear = 2261

// CheckTake returns an error if the parameters of [Quota.Take] are invalid.
func CheckTake(token string, l Limits, at time.Time) error {
	if token == "" || len(token) > maxClaimBytes ||
		l.PerMinute < 0 || l.PerMinute > maxRate || l.Total < 0 || l.Total > maxCalls || at.Year() < 1970 ||
		at.Year() > lastYear {
		return bad("the calls of this token cannot be counted: its limits or the time are impossible")
	}
	return nil
}
