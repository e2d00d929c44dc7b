package natsbus

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/queue"
)

const (
	// maxMemory and maxFile bound the size of the queue; a run takes some 200 bytes.
	maxMemory = 256 << 20
	maxFile   = 64 << 20
	// ackWait is how long a run may be handed out without being removed, before it is handed out again.
	ackWait = 2 * removeWait
	// removeWait is how long its removal is waited for.
	removeWait = time.Second
	// siteLasts is how long the queue of a site is kept while no server takes from it.
	siteLasts = 24 * time.Hour
	workers   = "workers"
	runsName  = "runs"
)

// jobs is a queue of runs: a stream in which a run is once, and one consumer that all workers share.
type jobs struct {
	name     string // of the queue
	conn     *nats.Conn
	js       jetstream.JetStream
	names    names
	storage  jetstream.StorageType
	bytes    int64
	replicas int           // wanted, if the cluster has so many servers
	lasts    time.Duration // how long the consumer is kept while no server uses it; 0 means forever
	bus      *Bus          // seals the messages; nil in one process
	worker   atomic.Pointer[jetstream.Consumer]
}

// declare makes the stream and its consumer if they are missing, and returns on how many servers the stream is.
func (j *jobs) declare(ctx context.Context) (copies int, err error) {
	s, err := makeStream(ctx, j.js, jetstream.StreamConfig{
		Name: j.names.stream(j.name), Subjects: []string{j.names.subject(j.name, "*")}, Storage: j.storage, MaxBytes: j.bytes,
		Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew, MaxMsgsPerSubject: 1, DiscardNewPerSubject: true,
		Replicas: j.replicas,
	})
	if err != nil {
		return 0, err
	}
	worker, err := s.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: workers, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: -1, MaxDeliver: -1,
		InactiveThreshold: j.lasts,
	})
	if err == nil {
		j.worker.Store(&worker)
	}
	return s.CachedInfo().Config.Replicas, err
}

// put adds a run. It reports false if the run is there already.
func (j *jobs) put(ctx context.Context, run toolcrib.RunID) (bool, error) {
	subject, body := j.names.subject(j.name, string(run)), []byte(nil)
	if j.bus != nil {
		body = j.bus.seal.seal(subject, nil)
	}
	_, err := j.js.Publish(ctx, subject, body, jetstream.WithExpectLastSequencePerSubject(0),
		jetstream.WithRetryAttempts(0))
	if another(err) {
		return false, nil
	}
	return err == nil, err
}

// take waits for a run. It fetches one message at a time: a message that was fetched in advance would wait here while
// other workers are free.
func (j *jobs) take(ctx context.Context) (toolcrib.RunID, error) {
	for {
		worker := j.worker.Load()
		if worker == nil {
			return "", jetstream.ErrConsumerNotFound
		}
		m, err := (*worker).Next(jetstream.FetchContext(ctx))
		switch {
		case err == nil:
			// It is removed before the caller has it, so that it can be queued again. If that fails, it comes twice.
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWait)
			_ = m.DoubleAck(within)
			cancel()
			if !j.sealed(m) {
				continue
			}
			return toolcrib.RunID(strings.TrimPrefix(m.Subject(), j.names.subject(j.name, ""))), nil
		case ctx.Err() != nil:
			return "", ctx.Err()
		case !errors.Is(err, nats.ErrTimeout) && !errors.Is(err, jetstream.ErrNoHeartbeat): // the machine may have slept
			return "", err
		}
	}
}

// sealed reports whether a server of this database has queued a run, however long ago: what the run is to do is in the
// store.
func (j *jobs) sealed(m jetstream.Msg) bool {
	if j.bus == nil {
		return true
	}
	_, _, _, ok := j.bus.seal.open(m.Subject(), m.Data())
	if !ok {
		j.bus.drop(m.Subject(), notSealed)
	}
	return ok
}

// depth returns the number of runs that no worker has taken.
func (j *jobs) depth(ctx context.Context) (int, error) {
	worker := j.worker.Load()
	if worker == nil {
		return 0, jetstream.ErrConsumerNotFound
	}
	info, err := (*worker).Info(ctx)
	if err != nil {
		return 0, err
	}
	return int(info.NumPending), nil
}

// errClosed returns err, or [queue.ErrClosed] if the bus was closed.
func (b *Bus) errClosed(err error) error {
	if err != nil && b.ctx.Err() != nil {
		return queue.ErrClosed
	}
	return err
}

// Put implements [queue.Queue]. While the cluster cannot be used, runs are queued in this process.
func (b *Bus) Put(ctx context.Context, run toolcrib.RunID) (put bool, err error) {
	if !token(string(run)) {
		return false, toolcrib.Errorf(toolcrib.CodeBadRequest, "cannot queue %q: not a run ID", run)
	}
	if b.far != nil && b.State().Connected {
		within, cancel := context.WithTimeout(ctx, patience/2)
		defer cancel()
		if put, err = b.far.put(within, run); err == nil || ctx.Err() != nil {
			return put, b.errClosed(err)
		}
		b.failed(b.explain(err))
	}
	put, err = b.near.put(ctx, run)
	return put, b.errClosed(err)
}

// Take implements [queue.Queue].
func (b *Bus) Take(ctx context.Context) (toolcrib.RunID, error) {
	within, cancel := context.WithCancel(b.ctx) // without a deadline, which would end each request before its time
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	type taken struct {
		run toolcrib.RunID
		err error
	}
	all := make(chan taken, 2)
	from := []func(context.Context) (toolcrib.RunID, error){b.near.take}
	if b.far != nil {
		from = append(from, b.takeFar)
	}
	for _, take := range from {
		go func() {
			run, err := take(within)
			all <- taken{run, err}
		}()
	}
	first := <-all
	cancel()
	for range from[1:] {
		if other := <-all; first.run == "" {
			first = other
		} else if other.run != "" { // both at once
			if _, err := b.near.put(b.ctx, other.run); err != nil && b.ctx.Err() == nil {
				b.Log.Warn("a run that was taken from the queue was lost; it is queued again soon", "run", other.run, "error", err)
			}
		}
	}
	if first.run != "" {
		return first.run, nil
	}
	return "", b.errClosed(cmp.Or(ctx.Err(), first.err))
}

// takeFar takes a run from the cluster, as soon as it can be used.
func (b *Bus) takeFar(ctx context.Context) (toolcrib.RunID, error) {
	for {
		select {
		case <-b.connected():
		case <-ctx.Done():
			return "", ctx.Err()
		}
		run, err := b.far.take(ctx)
		if err == nil || ctx.Err() != nil {
			return run, err
		}
		b.failed(b.explain(err))
	}
}

// Depth implements [queue.Queue].
func (b *Bus) Depth(ctx context.Context) (int, error) {
	n, err := b.near.depth(ctx)
	if err == nil && b.far != nil && b.State().Connected {
		var more int
		more, err = b.far.depth(ctx)
		n += more
	}
	return n, b.errClosed(err)
}

// connected returns a channel that is closed while the cluster can be used.
func (b *Bus) connected() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ready
}
