package access

import (
	"context"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
)

// Minute is the window of [Limits.PerMinute].
const Minute = time.Minute

// Limits are what the calls of a token are held to; they stand in its signed claims.
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
	// Left tells how many calls of the token Take would count at that time, and counts
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
		return fmt.Sprintf("%s: the token was good for %d calls, and all are used; ask for a new one", e.Bucket, e.Limit)
	}
	return fmt.Sprintf("%s: the token is good for %d calls a minute; try again in %s", e.Bucket, e.Limit, e.RetryAfter)
}

// Code is that of contract §9.
func (e *QuotaError) Code() toolcrib.Code {
	if e.Bucket == BucketTotal {
		return toolcrib.CodeScopeInsufficient
	}
	return toolcrib.CodeRateLimited
}

// lastYear is the last of which calls are counted: their times are kept in nanoseconds
// since 1970, which end in the next one.
const lastYear = 2261

// CheckTake says what is wrong with the parameters of [Quota.Take].
func CheckTake(token string, l Limits, at time.Time) error {
	if token == "" || len(token) > maxClaimBytes || l.PerMinute < 0 || l.PerMinute > maxRate || l.Total < 0 || l.Total > maxCalls ||
		at.Year() < 1970 || at.Year() > lastYear {
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "the calls of this token cannot be counted: its limits or the time are impossible")
	}
	return nil
}
