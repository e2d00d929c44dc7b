package service

import (
	"context"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// followed is how many frames wait for one who follows a run, and maxPiece bounds the bytes of the
// pieces that become one of them.
const (
	followed = 256
	maxPiece = 4 << 10
)

// frameLagged is the frame, live only, that says that live frames were left out: whoever
// reads was too slow. No kept one is.
const frameLagged = "lagged"

// laggedView is the data of a [frameLagged].
type laggedView struct {
	Missed int `json:"missed"`
}

// follower is one who follows a run. The pool guards what is queued.
type follower struct {
	queue  []queuedFrame
	behind bool          // nothing more is queued until all that is was read
	missed int           // live frames that were left out since then
	ready  chan struct{} // with room for one: something was queued, or left out
	taken  []queuedFrame // off the queue, by who reads

	attends bool // for a person, who answers what calls ask
}

// queuedFrame is a frame and, of a live one, the last kept frame before it.
type queuedFrame struct {
	journal.Frame
	after toolcrib.Seq
}

// put queues a frame, or leaves it out. Who reads slowly gets the pieces of a reply in larger ones.
func (one *follower) put(f *queuedFrame) {
	n := len(one.queue)
	switch {
	case !one.behind && n > followed/2 && one.queue[n-1].join(f):
	case !one.behind && n < followed:
		one.queue = append(one.queue, *f)
	default:
		one.behind = true
		if f.Seq == 0 && f.Event != "" {
			one.missed++
		}
	}
	select {
	case one.ready <- struct{}{}:
	default:
	}
}

// join adds the next frame to this one, if that continues the same piece.
func (q *queuedFrame) join(next *queuedFrame) bool {
	if q.Event != next.Event || q.after != next.after {
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

// dequeue takes a frame off the queue; false if it is empty.
func (p *Pool) dequeue(one *follower) (f queuedFrame, ok bool) {
	if len(one.taken) == 0 {
		p.mu.Lock()
		one.taken, one.queue = one.queue, nil
		p.mu.Unlock()
	}
	if len(one.taken) == 0 {
		return f, false
	}
	f, one.taken = one.taken[0], one.taken[1:]
	return f, true
}

// tell passes a frame on to those who follow the run, and waits for none of them. A frame without an
// event says that the drive is over or, with a number, that one begins after that event.
func (p *Pool) tell(run toolcrib.RunID, f journal.Frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	queued := queuedFrame{f, f.Seq}
	if d := p.runs[run]; d != nil {
		d.told = max(d.told, f.Seq)
		queued.after = d.told
	}
	for one := range p.follow[run] {
		one.put(&queued)
	}
}

// hasFollower reports whether anybody follows a run.
func (p *Pool) hasFollower(run toolcrib.RunID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.follow[run]) > 0
}

// Ahead is a place in the stream of a run that is taken before the run begins or continues, so that no
// live frame of its beginning is missed. Leave must be called.
type Ahead struct {
	Attends bool // as of [Follow]
	follower
	run   toolcrib.RunID // "" = it began earlier, and is followed from the store
	leave func()
}

// Leave gives up the place.
func (a *Ahead) Leave() {
	if a != nil && a.leave != nil {
		a.leave()
	}
}

// ahead takes the place, if one is asked for.
func (p *Pool) ahead(a *Ahead, run toolcrib.RunID) {
	if a != nil {
		a.attends = a.Attends
		a.run, a.leave = run, p.join(run, &a.follower)
	}
}

// Follow says how a run is followed.
type Follow struct {
	Ahead *Ahead       // with which the run was begun; nil = none
	Run   string       // as [Service.FindRun] finds it
	After toolcrib.Seq // the last event that is known
	// Attends says that a person is there, who answers what MCP servers ask in the middle of a call: it comes
	// as a live confirmation_required.
	Attends bool
	// Parks ends it when the run parks, too.
	Parks bool
	// Idle is called from time to time, and ends it with an error; may be nil.
	Idle func() error
}

// idleEvery is from time to time.
const idleEvery = 15 * time.Second

// Follow calls write for the frames of a run: the kept ones from the store, each once and in order, and the live
// ones while the run is driven here. It ends with the run; an error of write ends it, too.
func (p *Pool) Follow(ctx context.Context, who toolcrib.Principal, o Follow, write func(journal.Frame) error) error {
	rec, err := p.s.Env.Find(ctx, who, o.Run)
	if err != nil {
		return err
	}
	f := &following{Follow: o, follower: &follower{attends: o.Attends}, pool: p, who: who, run: rec.ID, write: write}
	stale := o.Ahead == nil || o.Ahead.run != rec.ID
	if stale {
		defer p.join(rec.ID, f.follower)()
	} else {
		f.follower = &o.Ahead.follower
	}
	look := time.NewTicker(followEvery)
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
		if frame, queued := p.dequeue(f.follower); err == nil && queued {
			stale, err = f.next(ctx, frame)
		} else if err == nil {
			stale, over, err = f.wait(ctx, look.C, idle.C)
		}
		behind, missed := p.lagged(f.follower)
		if stale = stale || behind; missed > 0 && err == nil {
			err = write(journal.Frame{Event: frameLagged, Data: laggedView{missed}})
		}
		if over || err != nil {
			return err
		}
	}
}

// wait waits until something is queued, or a time has come. stale reports whether the store is to be
// read to its end, over whether nothing more is waited for.
func (f *following) wait(ctx context.Context, look, idle <-chan time.Time) (stale, over bool, err error) {
	ended := f.pool.ctx.Done()
	if f.pool.driven(f.run) {
		ended = nil // it says so itself
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
			err = f.pool.ending(f.run)
		}
	}
	return stale, over, err
}

// join adds one who follows a run; leave must be called.
func (p *Pool) join(run toolcrib.RunID, one *follower) (leave func()) {
	one.ready = make(chan struct{}, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.follow[run] == nil {
		p.follow[run] = map[*follower]bool{}
	}
	p.follow[run][one] = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if delete(p.follow[run], one); len(p.follow[run]) == 0 {
			delete(p.follow, run)
			delete(p.looks, run)
		}
	}
}

// look is when a run was looked at, and what its last event was.
type look struct {
	at  time.Time
	seq toolcrib.Seq
}

// lastSeq is the last event of a run. All who follow it look once together.
func (p *Pool) lastSeq(ctx context.Context, run toolcrib.RunID) toolcrib.Seq {
	now := time.Now()
	p.mu.Lock()
	known := p.looks[run]
	if now.Sub(known.at) < followEvery/2 || p.follow[run] == nil {
		p.mu.Unlock()
		return known.seq
	}
	if p.looks == nil {
		p.looks = map[toolcrib.RunID]look{}
	}
	p.looks[run] = look{now, known.seq} // others do not look meanwhile
	p.mu.Unlock()
	rec, err := p.s.Env.Store.Run(ctx, run)
	if err != nil {
		return 0 // what is wrong shows when its events are read
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.follow[run] != nil {
		p.looks[run] = look{now, rec.LastSeq}
	}
	return rec.LastSeq
}

// following is a run as one who follows it has seen it.
type following struct {
	*follower
	Follow
	pool  *Pool
	who   toolcrib.Principal
	run   toolcrib.RunID
	write func(journal.Frame) error
	ended bool
	begun bool         // a worker has begun, and its first kept frame has not come yet
	seen  toolcrib.Seq // the last event of the run when the store was read, or before that
	soon  bool         // it is parked, but continues; see [Pool.continues]
}

// next takes a frame that was queued. stale reports whether the store is to be read to its end: a drive is over.
// Where one begins, it is read only up to there, since the frames that follow it are queued, live ones among them.
func (f *following) next(ctx context.Context, frame queuedFrame) (stale bool, err error) {
	switch {
	case frame.Event == "" && frame.Seq == 0:
		return true, nil
	case frame.Seq == 0 && frame.after < f.After:
		return false, nil // what is kept of it was read from the store
	case frame.Event == "":
		f.begun = true
		return false, f.readTo(ctx, frame.Seq)
	case frame.Seq > 0 && f.begun:
		f.begun = false
		err = f.readTo(ctx, frame.Seq-1) // somebody may have written before the worker did
	}
	if err == nil {
		err = f.pass(frame.Frame)
	}
	return false, err
}

// readTo writes the frames that the store has up to the one of this number.
func (f *following) readTo(ctx context.Context, seq toolcrib.Seq) error {
	if f.After >= seq {
		return nil
	}
	for e, err := range f.pool.s.Env.Store.Read(ctx, f.run, f.After) {
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
	}
	return nil
}

// pass writes a frame, unless it was written.
func (f *following) pass(frame journal.Frame) error {
	if frame.Seq > 0 {
		if frame.Seq <= f.After {
			return nil
		}
		f.After = frame.Seq
		f.ended = frame.Event == string(journal.KindDone) || frame.Event == string(journal.KindError)
	}
	return f.write(f.pool.s.Env.Shown(f.who, frame))
}

// catchUp writes the frames that the store has, and reports whether there will be no others that are waited for.
func (f *following) catchUp(ctx context.Context) (over bool, err error) {
	driven := f.pool.driven(f.run) // before the store is read: what comes later is a frame
	f.seen = f.pool.lastSeq(ctx, f.run)
	if err := f.pool.s.Events(ctx, f.who, string(f.run), f.After, false, f.pass); err != nil || f.ended {
		return f.ended, err
	}
	now, err := f.pool.s.Env.Store.Run(ctx, f.run)
	if err != nil {
		return false, err
	}
	if f.Parks && !driven && now.Status.Parked() {
		f.soon = f.pool.continues(ctx, now)
		return !f.soon, nil
	}
	return now.Status.Ended() && now.LastSeq <= f.After, nil
}

// continues reports whether a parked run waits for a worker only, because what a run below it waited for was decided.
func (p *Pool) continues(ctx context.Context, rec store.RunRecord) bool {
	top, err := p.s.Env.Top(ctx, rec)
	if err != nil || top.Driver != p.s.Env.Driver || top.Status.Ended() || rec.Decides() {
		return false
	}
	r, err := p.s.runner(top)
	if err != nil {
		return false
	}
	waits, err := r.WaitsFor(ctx, top.ID)
	return err == nil && waits == nil
}

// lagged reports whether frames were left out, and how many live ones, once all that were queued
// before were read; from then on they are queued again.
func (p *Pool) lagged(me *follower) (behind bool, missed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(me.taken)+len(me.queue) == 0 {
		behind, missed = me.behind, me.missed
		me.behind, me.missed = false, 0
	}
	return behind, missed
}

// driven reports whether a run is driven here.
func (p *Pool) driven(run toolcrib.RunID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs[run] != nil
}

// sincePause passes on the events before one of them, or all if that is 0, that are in no stream: those which
// another process has written since this one last read or wrote the run, such as the decision. Of a run that is
// resumed they begin after its last pause: what it kept before, or without one, was in the stream of its driver.
func (d *drive) sincePause(ctx context.Context, before toolcrib.Seq) {
	var since []toolcrib.Event
	known := d.seen
	passes := known > 0
	for e, err := range d.s.Env.Store.Read(ctx, d.top, known) {
		if err != nil {
			d.front.SincePause = false
			d.s.Env.Notice(fmt.Sprintf("the events since the pause cannot be written: %v; %s runs events %s --json has it", err,
				d.s.Env.Self, d.top))
			return
		}
		if before > 0 && e.Seq >= before {
			break
		}
		d.seen = e.Seq
		if _, ok := e.Body.(*journal.Paused); ok && known == 0 {
			since, passes = since[:0], true
		} else if passes {
			since = append(since, e)
		}
	}
	for _, e := range since {
		if f, ok := journal.View(d.top, e); ok {
			d.front.Watch(f)
		}
	}
}
