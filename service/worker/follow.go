package worker

import (
	"context"
	"math"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

const (
	// maxQueued bounds the frames that wait in a subscription, and maxPiece the bytes of text in one of them.
	maxQueued = 256
	maxPiece  = 4 << 10
	// lookEvery is how often the pool looks at a run that another process drives.
	lookEvery = 250 * time.Millisecond
	// idleEvery is how often [Follow.Idle] is called.
	idleEvery = 15 * time.Second
)

// frameLagged is a live frame that reports that live frames were left out, because the reader was too slow. Kept frames
// are never left out.
const frameLagged = "lagged"

// laggedView is the data of a [frameLagged].
type laggedView struct {
	Missed int `json:"missed"`
}

// Subscription receives the frames of a run. With one that is made before the run begins or continues, a reader misses
// no live frame. The zero value is ready for use; Close must be called.
type Subscription struct {
	Attends bool // see [Follow]

	run   toolcrib.RunID // "" if the run had begun before
	close func()
	ready chan struct{} // has room for one; signals that a frame was queued or left out
	read  []queuedFrame // taken from the queue by the reader

	// Guarded by the pool.
	queue  []queuedFrame
	behind bool // nothing more is queued until the queue was read
	missed int  // number of live frames that were left out since then
}

// Close ends the subscription. It does nothing if s is nil.
func (s *Subscription) Close() {
	if s != nil && s.close != nil {
		s.close()
	}
}

// queuedFrame is a frame and, if it is a live one, the number of the last kept frame before it.
type queuedFrame struct {
	journal.Frame
	after  toolcrib.Seq
	remote bool // of a run that another server drives; the kept frames come from the store
}

// put queues a frame, or leaves it out. If the reader is slow, it joins the pieces of a reply into larger ones.
func (s *Subscription) put(f *queuedFrame) {
	n := len(s.queue)
	switch {
	case !s.behind && n > maxQueued/2 && s.queue[n-1].join(f):
	case !s.behind && n < maxQueued:
		s.queue = append(s.queue, *f)
	default:
		s.behind = true
		if f.Seq == 0 && f.Event != "" {
			s.missed++
		}
	}
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// join adds the next frame to this one, if that continues the same piece.
func (q *queuedFrame) join(next *queuedFrame) bool {
	if q.Event != next.Event || q.after != next.after || q.remote != next.remote {
		return false
	}
	switch more := next.Data.(type) {
	case journal.TextView:
		was, ok := q.Data.(journal.TextView)
		if !ok || was.From+len(was.Text) != more.From || len(was.Text)+len(more.Text) > maxPiece {
			return false
		}
		was.Text += more.Text
		q.Data = was
	case journal.CallDeltaView:
		was, ok := q.Data.(journal.CallDeltaView)
		if !ok || was.ID != more.ID || more.Name != "" || len(was.ArgumentsDelta)+len(more.ArgumentsDelta) > maxPiece {
			return false
		}
		was.ArgumentsDelta += more.ArgumentsDelta
		q.Data = was
	default:
		return false
	}
	return true
}

// dequeue returns the next frame of a subscription. ok is false if the queue is empty.
func (p *Pool) dequeue(s *Subscription) (f queuedFrame, ok bool) {
	if len(s.read) == 0 {
		p.mu.Lock()
		s.read, s.queue = s.queue, nil
		p.mu.Unlock()
	}
	if len(s.read) == 0 {
		return f, false
	}
	f, s.read = s.read[0], s.read[1:]
	return f, true
}

// send sends a frame to the subscriptions of a run, without waiting for their readers. A frame without an event marks
// the end of a drive or, if it has a number, the beginning of a drive after that event.
func (p *Pool) send(run toolcrib.RunID, f journal.Frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	queued := queuedFrame{Frame: f, after: f.Seq}
	if d := p.runs[run]; d != nil {
		d.sent = max(d.sent, f.Seq)
		queued.after = d.sent
		p.forward(d, &queued, false, true)
	}
	for s := range p.follow[run] {
		s.put(&queued)
	}
}

// sendAttended reports whether a run has attended subscriptions. If do is set, it sends them a frame.
func (p *Pool) sendAttended(run toolcrib.RunID, f journal.Frame, do bool) (some bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	queued := queuedFrame{Frame: f}
	if d := p.runs[run]; d != nil {
		queued.after = d.sent
		some = p.forward(d, &queued, true, do)
	}
	for s := range p.follow[run] {
		if s.Attends && do {
			s.put(&queued)
		}
		some = some || s.Attends
	}
	return some
}

// subscribe adds a subscription to a run. s may be nil.
func (p *Pool) subscribe(s *Subscription, run toolcrib.RunID) {
	if s == nil {
		return
	}
	s.ready = make(chan struct{}, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.follow[run] == nil {
		p.follow[run] = map[*Subscription]bool{}
	}
	p.follow[run][s] = true
	p.tellFollowed(run)
	s.run, s.close = run, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if delete(p.follow[run], s); len(p.follow[run]) == 0 {
			delete(p.follow, run)
			delete(p.lastSeqs, run)
			delete(p.heard, run)
		}
	}
}

// Follow configures how a run is followed.
type Follow struct {
	// Subscription is the one with which the run was begun, or nil.
	Subscription *Subscription
	Run          string       // ID of the run, or a part of it, or last
	After        toolcrib.Seq // the last event that is known
	// Attends means that a person is there who answers questions that MCP servers ask during a call. They come as a live
	// confirmation_required.
	Attends bool
	// Parks ends it when the run parks, in addition to when it ends.
	Parks bool
	// Idle is called from time to time, and ends it with an error. It may be nil.
	Idle func() error
}

// Follow calls write for the frames of a run: the kept ones from the store, each once and in order, and the live ones
// while the run is driven here. It returns when the run has ended, or an error of write.
func (p *Pool) Follow(ctx context.Context, who toolcrib.Principal, o Follow, write func(journal.Frame) error) error {
	rec, err := p.env.Find(ctx, who, o.Run)
	if err != nil {
		return err
	}
	f := &following{Follow: o, Subscription: o.Subscription, pool: p, who: who, run: rec.ID, write: write}
	stale := o.Subscription == nil || o.Subscription.run != rec.ID
	if stale {
		f.Subscription = &Subscription{Attends: o.Attends}
		p.subscribe(f.Subscription, rec.ID)
		defer f.Close()
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	idle := time.NewTicker(idleEvery)
	defer idle.Stop()
	for {
		if stale {
			if over, err := f.catchUp(ctx); over || err != nil {
				return err
			}
		}
		over, err := false, context.Cause(ctx)
		if frame, queued := p.dequeue(f.Subscription); err == nil && queued {
			stale, err = f.next(ctx, frame)
		} else if err == nil {
			stale, over, err = f.wait(ctx, look.C, idle.C)
		}
		behind, missed := p.lagged(f.Subscription)
		if stale = stale || behind; missed > 0 && err == nil {
			err = write(journal.Frame{Event: frameLagged, Data: laggedView{missed}})
		}
		if over || err != nil {
			return err
		}
	}
}

// following is the state of one reader of a run.
type following struct {
	*Subscription
	Follow
	pool  *Pool
	who   toolcrib.Principal
	run   toolcrib.RunID
	write func(journal.Frame) error
	ended bool
	begun bool         // a drive has begun, and its first kept frame has not been read
	read  toolcrib.Seq // last event that was read from the store; not all are frames
	seen  toolcrib.Seq // last event of the run when the store was read, or an earlier one
	soon  bool         // the run is parked and is about to continue; see [Pool.continues]
}

// wait waits until a frame is queued, or a time has come. stale is set if the rest of the store must be read, and over
// if the reader waits for nothing more.
func (f *following) wait(ctx context.Context, look, idle <-chan time.Time) (stale, over bool, err error) {
	ended := f.pool.ctx.Done()
	if f.pool.driven(f.run) {
		ended = nil // a frame will mark the end of the drive
	}
	select {
	case <-f.ready:
	case <-look:
		stale = !f.pool.driven(f.run) && (f.soon || f.pool.lastSeq(ctx, f.run) != f.seen)
	case <-idle:
		if f.Idle != nil {
			err = f.Idle()
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-ended:
		if over, err = f.catchUp(ctx); !over && err == nil {
			err = f.pool.closing(f.run)
		}
	}
	return stale, over, err
}

// next handles a queued frame. stale is set if the rest of the store must be read, because a drive is over. When a
// drive begins, the store is read up to there only: later frames are queued, with live ones among them.
func (f *following) next(ctx context.Context, frame queuedFrame) (stale bool, err error) {
	switch {
	case frame.Event == "" && frame.Seq == 0:
		return true, nil
	case frame.Seq == 0 && frame.after < f.After:
		return false, nil // the kept frame that it belongs to was read from the store
	case frame.remote:
		if err := f.readTo(ctx, frame.after); err != nil || frame.after > max(f.read, f.After) {
			return false, err // what it belongs to cannot be read yet
		}
	case frame.Event == "":
		f.begun = true
		return false, f.readTo(ctx, frame.Seq)
	case frame.Seq > 0 && f.begun:
		f.begun = false
		err = f.readTo(ctx, frame.Seq-1) // another process may have written before the worker
	}
	if err == nil {
		err = f.pass(frame.Frame)
	}
	return false, err
}

// readTo writes the frames in the store up to a number.
func (f *following) readTo(ctx context.Context, seq toolcrib.Seq) error {
	if max(f.read, f.After) >= seq {
		return nil
	}
	for e, err := range f.pool.env.Store.Read(ctx, f.run, max(f.read, f.After)) {
		if err != nil {
			return err
		}
		if e.Seq > seq {
			break
		}
		if frame, ok := journal.View(f.run, e); ok {
			if err := f.pass(frame); err != nil {
				return err
			}
		}
		f.read = e.Seq
	}
	return nil
}

// pass writes a frame, unless it was written before.
func (f *following) pass(frame journal.Frame) error {
	if frame.Seq > 0 {
		if frame.Seq <= f.After {
			return nil
		}
		f.After = frame.Seq
		f.ended = frame.Event == string(journal.KindDone) || frame.Event == string(journal.KindError)
	}
	return f.write(f.pool.env.Shown(f.who, frame))
}

// catchUp writes the frames in the store. over is set if the reader waits for no others.
func (f *following) catchUp(ctx context.Context) (over bool, err error) {
	driven := f.pool.driven(f.run) // before the store is read: later events come as frames
	f.seen = f.pool.lastSeq(ctx, f.run)
	if _, err := f.pool.env.Find(ctx, f.who, string(f.run)); err != nil {
		return f.ended, err
	}
	if err := f.readTo(ctx, math.MaxUint64); err != nil || f.ended {
		return f.ended, err
	}
	now, err := f.pool.env.Store.Run(ctx, f.run)
	if err != nil {
		return false, err
	}
	if f.Parks && !driven && now.Status.Parked() {
		f.soon = f.pool.continues(ctx, now)
		return !f.soon, nil
	}
	return now.Status.Ended() && now.LastSeq <= f.After, nil
}

// continues reports whether a parked run waits for nothing but a worker, because the approval that a run below it
// waited for was decided.
func (p *Pool) continues(ctx context.Context, rec store.RunRecord) bool {
	top, err := p.env.Top(ctx, rec)
	if err != nil || top.Driver != p.env.Driver || top.Status.Ended() || rec.Decides() {
		return false
	}
	waits, err := p.runner.Waits(ctx, top)
	return err == nil && len(waits) == 0
}

// lagged reports whether frames were left out, and the number of the live ones, once the queue has been read. From then
// on frames are queued again.
func (p *Pool) lagged(s *Subscription) (behind bool, missed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(s.read)+len(s.queue) == 0 {
		behind, missed = s.behind, s.missed
		s.behind, s.missed = false, 0
	}
	return behind, missed
}

// driven reports whether a run is driven here.
func (p *Pool) driven(run toolcrib.RunID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs[run] != nil
}

// knownSeq is the last event of a run at a time.
type knownSeq struct {
	at  time.Time
	seq toolcrib.Seq
}

// lastSeq returns the last event of a run. All readers of the run share one look at the store.
func (p *Pool) lastSeq(ctx context.Context, run toolcrib.RunID) toolcrib.Seq {
	now := time.Now()
	p.mu.Lock()
	known := p.lastSeqs[run]
	if now.Sub(known.at) < lookEvery/2 || p.follow[run] == nil {
		p.mu.Unlock()
		return known.seq
	}
	p.lastSeqs[run] = knownSeq{now, known.seq} // the other readers do not look meanwhile
	p.mu.Unlock()
	rec, err := p.env.Store.Run(ctx, run)
	if err != nil {
		return 0 // reading its events returns the error
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.follow[run] != nil {
		p.lastSeqs[run] = knownSeq{now, rec.LastSeq}
	}
	return rec.LastSeq
}
