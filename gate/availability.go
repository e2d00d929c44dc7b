package gate

import (
	"context"
	"errors"
)

// Availability knows what administrators have switched on and off (A1, A2, A9).
// It is asked once for each offer and each turn, so it must be quick; an error
// refuses everything.
type Availability interface {
	Overrides(ctx context.Context) (Overrides, error)
}

// Overrides is what administrators have decided; what is not in it is as the tool
// itself says. A group that is off takes all its tools away, whatever is said of
// the tools (ADR-043 of nr-llm); a group that is on changes nothing. The maps must
// not be changed after they were handed out. The zero value overrides nothing.
type Overrides struct {
	Tools  map[string]bool `json:"tools"`
	Groups map[string]bool `json:"groups"`
	// Off says that there are no tools at all, whatever is said of them (H22).
	Off bool `json:"off,omitempty"`
}

// Overrides makes o an [Availability] that never changes.
func (o Overrides) Overrides(context.Context) (Overrides, error) { return o, nil }

var errNoAvailability = errors.New("gate: no availability: nothing is available")

// overrides asks the availability; a panic and a context that has ended are
// errors too.
func (g *Gate) overrides(ctx context.Context) (over Overrides, err error) {
	if g.availability == nil {
		return over, errNoAvailability
	}
	if err := ctx.Err(); err != nil {
		return over, err
	}
	err = contain(func() (err error) {
		over, err = g.availability.Overrides(ctx)
		return err
	})
	if err != nil {
		return Overrides{}, err
	}
	return over, nil
}
