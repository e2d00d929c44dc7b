package store

import (
	"context"
	"time"

	"github.com/toolcrib/toolcrib"
)

// Leases say which process drives which run, so that no other process takes it. They grant nothing:
// the fence of the journal alone decides which of two drivers may append. Leases are not sealed, and a
// backup need not have them.
//
// A lease lasts until it is released or, by the clock of the database, until its time has passed
// without being renewed. Then any process can take it; until one does, its owner can still renew it.
//
// The methods act for the [Owner] with which the store was opened. Without one they fail, and the store
// neither takes nor needs leases. Otherwise the first event of a run also takes its lease, with epoch 1,
// for Owner.Lease. The last event of a run ends its lease.
type Leases interface {
	// TakeLease takes the lease of a run for a duration, in one statement. If another owner has it, it
	// returns that lease and [ErrLeased]. A lease that the owner has already gets a new epoch. If bounded
	// is set, the bounds of SetBounds apply.
	TakeLease(ctx context.Context, run toolcrib.RunID, lasts time.Duration, bounded bool) (Lease, error)
	// SetBounds sets the bounds of the leases that this store takes from now on: of those of new runs,
	// and of those that TakeLease takes with bounded set.
	SetBounds(of LeaseBounds)
	// Active returns the number of leases that count for bounds, of runs with this driver, by the user and
	// the agent of their runs.
	Active(ctx context.Context, driver string) (map[Active]int, error)
	// RenewLeases renews all leases of the owner, each for the duration for which it was taken, and
	// returns them.
	RenewLeases(ctx context.Context) ([]Lease, error)
	// ReleaseLease ends a lease of the owner, unless it was taken again since.
	ReleaseLease(ctx context.Context, l Lease) error
	// EndLeases ends all leases of any owner, such as a process that has died.
	EndLeases(ctx context.Context, owner string) error
	// Leases returns the leases that match, in any order.
	Leases(ctx context.Context, f LeaseFilter) ([]Lease, error)
	// RequestCancel asks the owner of a lease to cancel the run. If by is "", it withdraws the request.
	// A request ends with the lease.
	RequestCancel(ctx context.Context, run toolcrib.RunID, by, token string) error
	// Describe sets About of a lease of the owner, until the lease is taken again.
	Describe(ctx context.Context, run toolcrib.RunID, about string) error
	// Clock returns the time of the database, by which leases end.
	Clock(ctx context.Context) (time.Time, error)
	// Undriven returns runs with this driver that are queued or running according to their records and
	// have no lease, or one that is late (see [Lease.Late]): at most limit, oldest first, and only those that
	// began later than the run after, unless that is "" or gone. If site is not "", it leaves out runs with
	// another one. more reports whether there may be others. The records are not checked against their seals.
	Undriven(ctx context.Context, driver, site string, after toolcrib.RunID, limit int) (
		runs []toolcrib.RunID, more bool, err error)
}

// LeaseBounds returns the bounds for the leases of a user and of an agent. They count the leases of all
// processes whose time has not passed, of runs with the same driver and without a parent, exactly.
type LeaseBounds func(user, agent string) (ofUser, ofAgent LeaseBound)

// LeaseBound is a bound for leases.
type LeaseBound struct {
	Most int   // 0 means no bound
	Err  error // returned if a lease would exceed the bound; nothing is written then
}

// Active is what a bound counts leases by.
type Active struct{ User, Agent string }

// Owner is a process that takes leases.
type Owner struct {
	ID      string // random; "" if there is no owner
	Host    string // name of its machine, for people
	Machine string // identifies processes that can look at each other; "" if unknown
	PID     int
	Started int64         // when the process started, in a unit of the system; 0 if unknown
	Lease   time.Duration // how long the lease of a new run lasts; of an existing lease, how long it lasts
}

// Lease is the lease of a run.
type Lease struct {
	Run     toolcrib.RunID
	Owner   Owner
	Epoch   int64         // differs each time that a process takes the lease of the run
	Left    time.Duration // how long it lasted when it was read
	Expired bool          // its time had passed when it was read

	About string // what its owner says about itself, see Describe; "" if nothing

	// Who asked to cancel the run, with the ID of the access token used, or "".
	CancelBy, CancelToken string
}

// Renewals is how often the owner of a lease renews it before its time has passed.
const Renewals = 3

// Late reports whether the owner has missed a renewal.
func (l *Lease) Late() bool { return l.Left <= l.Owner.Lease/Renewals }

// LeaseFilter chooses leases. Every field that is not zero must match.
type LeaseFilter struct {
	Runs    []toolcrib.RunID // one of these; if empty, any
	Machine string           // only leases of other owners with this Machine
	About   bool             // only leases with About
	Cancel  bool             // only leases of the owner whose runs are to be cancelled
}

// ErrLeased reports that another process has the lease of a run.
var ErrLeased = coded(toolcrib.CodeConflict, "another process is running it")
