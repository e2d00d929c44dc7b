package access

import (
	"context"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
)

// Bounds of lists.
const (
	MaxPage   = 1000 // of one page; a limit that is 0 or above means this one
	MaxGroups = 1000 // of a directory
)

// Directory keeps users and groups. It is safe for concurrent use, by
// several processes too. Every change is one transaction, is kept in the system
// journal as the [Change] that it returns, and has reached the disk by then. Errors
// are [*toolcrib.Error]s: not_found, conflict, bad_request; anything else is a store that
// could not do its work. accesstest.RunDirectory is the suite for it.
type Directory interface {
	Users
	Groups
}

// Users keeps the users. Names are compared as [TakenBy] says when one is added, and
// exactly when one is looked up.
type Users interface {
	// AddUser adds a user. The name of a removed one is a conflict too, unless
	// Reuse: the new one would find the other's runs, sessions and notes.
	AddUser(ctx context.Context, u NewUser, by string) (Change, error)
	// User returns a user who is not removed.
	User(ctx context.Context, name string) (User, error)
	// Alike returns whom a name means to those who read it: the user of this very
	// name, or else one beside whom nobody of this name could be added ([TakenBy]);
	// one who was removed, too. not_found says that the name is free.
	Alike(ctx context.Context, name string) (User, error)
	// Users returns the users who are not removed, disabled ones too, sorted by name
	// (bytes), from the one after the name after; at most limit of them.
	Users(ctx context.Context, after string, limit int) ([]User, error)
	// EditUser changes a user. Groups that do not exist are not_found. A user whose last
	// grant of an agent would go is a conflict ([CheckAgents]), unless Edit.AllAgents.
	EditUser(ctx context.Context, name string, e Edit, by string) (Change, error)
	// RemoveUser removes a user for good, with all tokens revoked if the store keeps tokens.
	RemoveUser(ctx context.Context, name, by string) (Change, error)
}

// NewUser is a user to add.
type NewUser struct {
	User
	Reuse bool // the name may be that of a removed user
}

// Groups keeps the groups of users.
type Groups interface {
	// PutGroup adds a group, or changes the one of that name. It is a conflict to let members
	// use every agent who could not before ([CheckAgents]), unless GroupEdit.AllAgents.
	PutGroup(ctx context.Context, name string, e GroupEdit, by string) (Change, error)
	// Groups returns all groups, sorted by name (bytes); at most [MaxGroups].
	Groups(ctx context.Context) ([]Group, error)
	// RemoveGroup removes a group. One that has members is a conflict: they could do more without it.
	RemoveGroup(ctx context.Context, name, by string) (Change, error)
}

// Tokens keeps the access tokens that were issued: their claims, never the tokens
// themselves. accesstest.RunTokens is the suite for it.
type Tokens interface {
	// AddToken keeps a token; an ID that is there already is a conflict.
	AddToken(ctx context.Context, t Issued, by string) (Change, error)
	// Token returns one; not_found if it was never issued here.
	Token(ctx context.Context, id string) (Issued, error)
	// Tokens returns those of a user ("" = all users), sorted by ID, from the one after
	// the ID after; at most limit of them.
	Tokens(ctx context.Context, user, after string, limit int) ([]Issued, error)
	// RevokeToken makes a token worthless from now on. A second time changes
	// nothing, and returns the first change again.
	RevokeToken(ctx context.Context, id, by string) (Change, error)
}

// Issued is a token that was issued.
type Issued struct {
	Claims    Claims    `json:"claims"`
	Label     string    `json:"label,omitempty"` // what its owner calls it
	IssuedBy  string    `json:"issued_by"`
	Revoked   time.Time `json:"revoked_at,omitzero"` // zero = it is not revoked
	RevokedBy string    `json:"revoked_by,omitempty"`
}

// Check says what is wrong with a token that is to be kept.
func (t Issued) Check() error {
	if problem := t.Claims.check(); problem != "" {
		return bad("the token cannot be kept: %s", problem)
	}
	if _, err := t.Claims.Scope.Check(); err != nil {
		return err
	}
	return checkText("the label of the token", t.Label)
}

// Change is what was changed, by whom and when; it is the payload of the entry in
// the system journal, and holds no secret.
type Change struct {
	Kind  toolcrib.Kind `json:"-"` // of the entry
	Name  string        `json:"name"`
	By    string        `json:"by"`
	At    time.Time     `json:"at"` // UTC, whole microseconds
	User  *User         `json:"user,omitempty"`
	Group *Group        `json:"group,omitempty"`
	Token *Issued       `json:"token,omitempty"`
	// Members is how many users are in the group that was put, and New that it was not there before.
	Members int  `json:"-"`
	New     bool `json:"-"`
}

// The kinds of changes.
const (
	UserAdded    toolcrib.Kind = "user_added"
	UserChanged  toolcrib.Kind = "user_changed"
	UserRemoved  toolcrib.Kind = "user_removed"
	GroupPut     toolcrib.Kind = "group_put"
	GroupRemoved toolcrib.Kind = "group_removed"
	TokenIssued  toolcrib.Kind = "token_issued"
	TokenRevoked toolcrib.Kind = "token_revoked"
)

// CheckBy says what is wrong with the name of who makes a change.
func CheckBy(by string) error {
	if by == "" {
		return bad("the user who makes this change is unknown")
	}
	return checkText("the name of the user who makes this change", by)
}

// PageLimit returns the limit that holds for a page.
func PageLimit(limit int) int {
	if limit <= 0 || limit > MaxPage {
		return MaxPage
	}
	return limit
}

// Minute is the window of [Limits.PerMinute].
const Minute = time.Minute

// Limits are what the calls of a token are held to; they are in its signed claims.
type Limits struct {
	PerMinute int64     // calls in any 60 seconds; 0 = no limit
	Total     int64     // calls ever; 0 = no limit
	Expires   time.Time // when the counts may be forgotten
}

// The buckets of a [QuotaError].
const (
	BucketMinute = "rate_limit_per_minute"
	BucketTotal  = "max_calls_total"
)

// Quota counts the calls of tokens, over all processes. accesstest.RunQuota is the
// suite for it.
type Quota interface {
	// Take counts one call of the token, made at that time, before it runs. If it
	// would be one too many, it is not counted, and the error is a [*QuotaError].
	// It is atomic: calls at the same time never take the same place. A time before
	// that of a call that was counted is taken as that call's, so that a clock that
	// is set back frees no place. Another error says that it could not be counted;
	// the call must not run then, either.
	Take(ctx context.Context, token string, l Limits, at time.Time) error
	// Left returns how many calls of the token Take would count at that time, and counts
	// none. What others take meanwhile, it does not know.
	Left(ctx context.Context, token string, l Limits, at time.Time) (Left, error)
}

// Left is how many calls a token may still make.
type Left struct {
	Limits Limits
	Total  int64 // of Limits.Total; without meaning where that is no limit
	Minute int64 // of Limits.PerMinute, now; likewise
	// RetryAfter is when the next place of the minute is free; 0 = there is one.
	RetryAfter time.Duration
}

// Refusal is the [*QuotaError] with which [Quota.Take] would refuse a call now; nil =
// it would not.
func (l Left) Refusal() error {
	switch {
	case l.Limits.Total > 0 && l.Total <= 0:
		return &QuotaError{Bucket: BucketTotal, Limit: l.Limits.Total}
	case l.Limits.PerMinute > 0 && l.Minute <= 0:
		return &QuotaError{Bucket: BucketMinute, Limit: l.Limits.PerMinute, RetryAfter: l.RetryAfter}
	}
	return nil
}

// QuotaError says which of a token's limits was reached.
type QuotaError struct {
	Bucket     string
	Limit      int64
	RetryAfter time.Duration // until a place is free; 0 = never
}

func (e *QuotaError) Error() string {
	if e.Bucket == BucketTotal {
		return fmt.Sprintf("%s: all %d calls of the token are used up; ask for a new one", e.Bucket, e.Limit)
	}
	return fmt.Sprintf("%s: the token allows %d calls a minute; try again in %s", e.Bucket, e.Limit, e.RetryAfter)
}

// Unwrap makes the code known to [toolcrib.CodeOf].
func (e *QuotaError) Unwrap() error {
	code := toolcrib.CodeRateLimited
	if e.Bucket == BucketTotal {
		code = toolcrib.CodeScopeInsufficient
	}
	return &toolcrib.Error{Code: code, Message: e.Error(), RetryAfter: e.RetryAfter}
}

// lastYear is the last of which calls are counted: their times are kept in nanoseconds
// since 1970, which end in the next one.
const lastYear = 2261

// CheckTake says what is wrong with the parameters of [Quota.Take].
func CheckTake(token string, l Limits, at time.Time) error {
	if token == "" || len(token) > maxClaimBytes ||
		l.PerMinute < 0 || l.PerMinute > maxRate || l.Total < 0 || l.Total > maxCalls || at.Year() < 1970 ||
		at.Year() > lastYear {
		return bad("the calls of this token cannot be counted: its limits or the time are impossible")
	}
	return nil
}
