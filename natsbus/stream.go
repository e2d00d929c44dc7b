package natsbus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// errForeign is the error for a stream with a name of toolcrib that something else has made.
var errForeign = errors.New("a stream of the bus has another form than toolcrib gives it")

// makeStream makes a stream, on as many servers as the cluster has and c wants, unless it exists. If it was made
// while the cluster had fewer servers, it gets more.
func makeStream(ctx context.Context, js jetstream.JetStream, c jetstream.StreamConfig) (jetstream.Stream, error) {
	s, err := js.Stream(ctx, c.Name)
	if err == nil {
		have := s.CachedInfo().Config
		if fmt.Sprint(have.Subjects) != fmt.Sprint(c.Subjects) || have.Retention != c.Retention ||
			have.MaxMsgsPerSubject != c.MaxMsgsPerSubject || have.Storage != c.Storage {
			return nil, fmt.Errorf("bus.url: %w: %s; remove it with `nats stream rm %s`, it holds nothing that is needed",
				errForeign, c.Name, c.Name)
		}
		if have.Replicas < c.Replicas {
			if more, err := js.UpdateStream(ctx, c); err == nil { // otherwise the cluster has no more servers
				return more, nil
			}
		}
		return s, nil
	}
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, err
	}
	s, err = js.CreateStream(ctx, c)
	var refused *jetstream.APIError
	if c.Replicas > 1 && errors.As(err, &refused) { // one server, or two
		c.Replicas = 1
		s, err = js.CreateStream(ctx, c)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another server was quicker
		return js.Stream(ctx, c.Name)
	}
	return s, err
}

// another reports whether an error means that another message has the subject by now.
func another(err error) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && (refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}
