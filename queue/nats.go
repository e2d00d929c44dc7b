package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolcrib/toolcrib"
)

const (
	stream  = "RUNS"
	subject = "runs."
	workers = "workers"
	// maxBytes bounds the size of the queue; a run takes some 200 bytes.
	maxBytes = 256 << 20
	// patience is how long the server inside this process may take to answer.
	patience = 5 * time.Second
)

// embedded is a NATS server inside this process, without a listener. It keeps the queued runs in memory.
type embedded struct {
	server *server.Server
	conn   *nats.Conn
	js     jetstream.JetStream
	worker jetstream.Consumer
	open   context.Context
	end    context.CancelFunc
}

// Open starts a queue in this process. dir is a folder that the server creates for itself.
func Open(ctx context.Context, dir string) (_ Queue, err error) {
	q := &embedded{}
	q.open, q.end = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			q.Close()
			err = fmt.Errorf("queue: %w", err)
		}
	}()
	q.server, err = server.NewServer(&server.Options{
		ServerName: "toolcrib", DontListen: true, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: dir, JetStreamMaxMemory: maxBytes, JetStreamMaxStore: 1, DisableJetStreamBanner: true,
	})
	if err != nil {
		return nil, err
	}
	q.server.Start() // returns, since it does not listen
	if !q.server.JetStreamEnabled() {
		return nil, fmt.Errorf("cannot start the queue in folder %s", dir)
	}
	if q.conn, err = nats.Connect("", nats.InProcessServer(q.server), nats.Name("toolcrib")); err != nil {
		return nil, err
	}
	if q.js, err = jetstream.New(q.conn, jetstream.WithDefaultTimeout(patience)); err != nil {
		return nil, err
	}
	return q, q.declare(ctx)
}

// declare creates the stream of runs and the one consumer that all workers share. A run is in the
// stream once, until a worker takes it.
func (q *embedded) declare(ctx context.Context) error {
	s, err := q.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: stream, Subjects: []string{subject + "*"}, Storage: jetstream.MemoryStorage, MaxBytes: maxBytes,
		Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew, MaxMsgsPerSubject: 1, DiscardNewPerSubject: true,
	})
	if err != nil {
		return err
	}
	q.worker, err = s.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: workers, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1, MaxDeliver: -1,
	})
	return err
}

// Put implements [Queue].
func (q *embedded) Put(ctx context.Context, run toolcrib.RunID) (bool, error) {
	if !valid(run) {
		return false, toolcrib.Errorf(toolcrib.CodeBadRequest, "cannot queue %q: not a run ID", run)
	}
	_, err := q.js.Publish(ctx, subject+string(run), nil, jetstream.WithExpectLastSequencePerSubject(0))
	var refused *jetstream.APIError
	if errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return false, nil // it is there
	}
	return err == nil, q.closed(err)
}

// valid reports whether an ID can be the last token of a subject.
func valid(run toolcrib.RunID) bool {
	return run != "" && len(run) <= 255 && !strings.ContainsFunc(string(run), func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(".*>", r)
	})
}

// Take implements [Queue]. It fetches one message at a time, so that none waits here while another worker
// is free. An iterator of jetstream with room for one message can fail to ask for it, if it is used again
// right after the last one.
func (q *embedded) Take(ctx context.Context) (toolcrib.RunID, error) {
	until, cancel := context.WithCancel(q.open) // without a deadline, which would end each request before its time
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	for {
		m, err := q.worker.Next(jetstream.FetchContext(until))
		switch {
		case err == nil:
			// It is removed before the caller has it, so that it can be queued again. If that fails, it comes twice.
			if err := m.DoubleAck(until); err != nil && until.Err() != nil {
				return "", q.closed(cmp.Or(ctx.Err(), err))
			}
			return toolcrib.RunID(strings.TrimPrefix(m.Subject(), subject)), nil
		case ctx.Err() != nil:
			return "", q.closed(ctx.Err())
		case !errors.Is(err, nats.ErrTimeout) && !errors.Is(err, jetstream.ErrNoHeartbeat): // the machine may have slept
			return "", q.closed(err)
		}
	}
}

// Depth implements [Queue].
func (q *embedded) Depth(ctx context.Context) (int, error) {
	info, err := q.worker.Info(ctx)
	if err != nil {
		return 0, q.closed(err)
	}
	return int(info.NumPending), nil
}

// closed returns err, or ErrClosed if the queue was closed.
func (q *embedded) closed(err error) error {
	if err != nil && q.open.Err() != nil {
		return ErrClosed
	}
	return err
}

// Close implements [Queue].
func (q *embedded) Close() {
	q.end()
	if q.conn != nil {
		q.conn.Close()
	}
	if q.server != nil {
		q.server.Shutdown()
		q.server.WaitForShutdown()
	}
}
