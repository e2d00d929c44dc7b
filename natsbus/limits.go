package natsbus

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	limits = "limits"
	// balanceEvery is how often a server shows that it still uses a limit.
	balanceEvery = 2 * time.Second
	// wantEvery is how often it looks whether it gets what it has asked for.
	wantEvery = balanceEvery / 8
	// partLasts is how long a server uses its part of a limit without the bus; then it uses its share.
	partLasts = 3 * balanceEvery
	// placesLast and rateLasts are how long the others leave it its part of the concurrent requests and of the
	// requests per minute after it was last seen.
	placesLast = 2 * partLasts
	rateLasts  = time.Minute + partLasts
	// maxLimits bounds the limits of a server.
	maxLimits = 1000
	attempts  = 16 // to write the division while others write it too
	maxShared = 1 << 20
)

// User uses a limit in this process. Its methods are called from other goroutines.
type User interface {
	// Use returns the concurrent requests, those that wait, and those of the last minute. ok is false if there will
	// be no more.
	Use() (running, waiting, sent int, ok bool)
	// Changed is called when the part of this process may have changed.
	Changed()
	// Hold is called when the provider is not to be asked for some time, because it has asked for a pause or, if it
	// is down, because it has failed. If d is 0, it answers again.
	Hold(down bool, d time.Duration)
}

// Limit is a limit that the servers have together. They divide it in a record of the bus that each of them changes by
// compare-and-set: the parts never add up to more than the limit. A server that needs more than its part asks for
// more there, and the others give it what they do not use, down to their share.
type Limit struct {
	bus  *Bus
	user User
	key  string
	self string // name of the user in the record
	most [2]int // concurrent requests and requests per minute; 0 means no limit
	kick chan struct{}

	mu     sync.Mutex
	part   [2]int    // what the user may use
	has    [2]int    // its part in the record, which is more while requests that were begun have not ended
	asked  bool      // another user asks for more
	wants  bool      // this one does
	shares int       // users of the limit, including this one
	kept   time.Time // when the part was last in the record
	begun  time.Time
	seen   map[string]beat
}

// beat is a number of another user in the record, and when it was first seen.
type beat struct {
	n  uint64
	at time.Time
}

// division is the record of a limit. It is sealed, so that others cannot read or change it.
type division struct {
	Ticket uint64            `json:"ticket"`
	Users  map[string]*share `json:"users"`
}

// share is what a user has of a limit, by concurrent requests and requests per minute.
type share struct {
	Part  [2]int    `json:"part"`
	Wants [2]uint64 `json:"wants"` // ticket with which it asks for more; 0 if it does not
	Beat  uint64    `json:"beat"`
}

// Limit returns a limit that the servers have together, for a new user of it. Those with the same name and
// values are the same limit. perMinute and concurrent are 0 if there is no such limit. It returns nil if there
// are too many limits, or the bus has no cluster.
func (b *Bus) Limit(name string, concurrent, perMinute int, u User) *Limit {
	if b.conn == nil {
		return nil
	}
	h := hmac.New(sha256.New, b.Key)
	fmt.Fprintf(h, "limit %d %d %s", concurrent, perMinute, name)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limits >= maxLimits || b.ctx.Err() != nil {
		return nil
	}
	b.limits++
	l := &Limit{
		bus: b, user: u, key: hex.EncodeToString(h.Sum(nil)[:16]), self: rand.Text(), most: [2]int{concurrent, perMinute},
		kick: make(chan struct{}, 1), shares: 1, begun: time.Now(), seen: map[string]beat{},
	}
	stop := b.receive(divided, l.key, func(string, string, []byte) { l.wake() })
	stopHeld := b.receive(held, l.key, l.hold)
	b.running.Go(func() {
		l.keep()
		stop()
		stopHeld()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.limits--
	})
	return l
}

// Part returns what this process may use of the limit: its part, or, while the bus is gone, its share, at least 1.
// It does not block.
func (l *Limit) Part() (concurrent, perMinute int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	part, now := l.part, time.Now().Round(0) // by the clock of the wall, which does not stop while the machine sleeps
	if kept := l.kept; now.Sub(kept) > partLasts || now.Before(kept.Add(-partLasts)) {
		if kept.IsZero() && now.Sub(l.begun) < balanceEvery {
			return l.none(part)
		}
		for i, most := range l.most {
			part[i] = max(most/l.shares, 1)
		}
	}
	return l.none(part)
}

// none returns the part with the limits that do not exist.
func (l *Limit) none(part [2]int) (concurrent, perMinute int) {
	for i, most := range l.most {
		if most == 0 {
			part[i] = 1 << 30
		}
	}
	return part[0], part[1]
}

// Changed says that the use has changed. It does not block.
func (l *Limit) Changed(running, waiting, sent int) {
	l.mu.Lock()
	need := false
	for i, used := range [2]int{running, sent} {
		need = need || l.most[i] > 0 && (!l.wants && used+waiting > l.part[i] || l.asked && used < l.has[i])
	}
	l.mu.Unlock()
	if need {
		l.wake()
	}
}

func (l *Limit) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// Tell passes a [User.Hold] on to the other servers.
func (l *Limit) Tell(down bool, d time.Duration) {
	l.bus.tell(held, l.key, fmt.Appendf(nil, "%t %d", down, d.Milliseconds()))
}

func (l *Limit) hold(_, _ string, body []byte) {
	var down bool
	var ms int64
	if _, err := fmt.Sscanf(string(body), "%t %d", &down, &ms); err != nil || ms < 0 {
		return
	}
	l.user.Hold(down, time.Duration(ms)*time.Millisecond)
}

// keep keeps the part of the user in line with its use, until there will be none or the bus is closed.
func (l *Limit) keep() {
	for {
		_, _, _, more := l.user.Use()
		more = more && l.bus.ctx.Err() == nil
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.bus.ctx), balanceEvery)
		err := errUnreachable
		if l.bus.State().Connected {
			err = l.balance(ctx, more)
			if errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetstream.ErrStreamNotFound) {
				l.bus.failed(l.bus.explain(err))
			}
		}
		cancel()
		if !more {
			return
		}
		if err != nil {
			l.user.Changed() // the part becomes the share when its time has passed
		}
		l.mu.Lock()
		pause := balanceEvery
		if l.wants {
			pause = wantEvery
		}
		l.mu.Unlock()
		select {
		case <-l.kick:
		case <-time.After(pause):
		case <-l.bus.ctx.Done():
		}
	}
}

// balance writes what the user needs of the limit, and takes what is free. Without more, it gives everything back.
func (l *Limit) balance(ctx context.Context, more bool) error {
	if l.most == [2]int{} { // only what users are told matters
		return nil
	}
	for range attempts {
		d, revision, err := l.read(ctx)
		if err != nil {
			return err
		}
		l.forget(&d, time.Now())
		was, part := share{}, [2]int{}
		if more {
			used, wanted := l.use()
			was, part = d.divide(l.self, l.most, used, wanted)
		} else {
			delete(d.Users, l.self)
		}
		// What is given away is not used from now on, also if the bus does not answer. What was begun before counts.
		l.mu.Lock()
		for i := range l.part {
			l.part[i] = min(l.part[i], part[i])
		}
		l.mu.Unlock()
		if mine := d.Users[l.self]; mine != nil {
			used, _ := l.use()
			for i := range used {
				mine.Part[i] = max(mine.Part[i], used[i])
			}
		}
		body, err := json.Marshal(d)
		if err != nil {
			return err
		}
		subject := names{l.bus.Database}.subject(limits, l.key)
		_, err = l.bus.js.Publish(ctx, subject, l.bus.seal.seal(subject, body),
			jetstream.WithExpectLastSequencePerSubject(revision))
		if another(err) {
			continue // another user was quicker
		}
		if err == nil {
			l.apply(&d, was, part)
		}
		return err
	}
	return errors.New("too many users divide it at once")
}

// use returns the use of the limit in this process.
func (l *Limit) use() (used, wanted [2]int) {
	running, waiting, sent, _ := l.user.Use()
	return [2]int{running, sent}, [2]int{running + waiting, sent + waiting}
}

// read reads the record. It is empty if it is missing, or was not written by a server of this database.
func (l *Limit) read(ctx context.Context) (d division, revision uint64, err error) {
	d.Users = map[string]*share{}
	s := l.bus.records.Load()
	if s == nil {
		return d, 0, jetstream.ErrStreamNotFound
	}
	subject := names{l.bus.Database}.subject(limits, l.key)
	m, err := (*s).GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return d, 0, nil
	}
	if err != nil {
		return d, 0, err
	}
	if _, body, _, ok := l.bus.seal.open(subject, m.Data); !ok || json.Unmarshal(body, &d) != nil || d.Users == nil {
		d = division{Users: map[string]*share{}}
	}
	for id, s := range d.Users {
		if s == nil || s.Part[0] < 0 || s.Part[1] < 0 {
			delete(d.Users, id)
		}
	}
	return d, m.Sequence, nil
}

// forget removes users that have not been seen for long.
func (l *Limit) forget(d *division, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.seen {
		if d.Users[id] == nil {
			delete(l.seen, id)
		}
	}
	for id, s := range d.Users {
		if id == l.self {
			continue
		}
		if b, ok := l.seen[id]; !ok || b.n != s.Beat {
			l.seen[id] = beat{s.Beat, now}
			continue
		}
		switch since := now.Sub(l.seen[id].at); {
		case since > rateLasts:
			delete(d.Users, id)
		case since > placesLast:
			s.Part[0], s.Wants = 0, [2]uint64{}
		}
	}
}

// divide gives a user its part, and returns what it had before and what it may use. A user never has less than it
// uses, never takes more than is free, and while others ask for more it may use no more than its share; the one that
// has asked for the longest time may use one more.
func (d *division) divide(self string, most, used, wanted [2]int) (was share, may [2]int) {
	mine := d.Users[self]
	if mine == nil {
		mine = &share{}
		d.Users[self] = mine
	}
	was = *mine
	mine.Beat++
	d.Ticket++
	for i, most := range most {
		if most == 0 {
			continue
		}
		free, asking, first := most, 0, mine.Wants[i]
		for id, s := range d.Users {
			if id == self {
				continue
			}
			free -= s.Part[i]
			if s.Wants[i] > 0 {
				asking++
				if first == 0 || s.Wants[i] < first {
					first = s.Wants[i]
				}
			}
		}
		part := max(wanted[i], most/len(d.Users)) // a reserve, so that a request need not wait for the others
		if asking > 0 {
			part = min(wanted[i], most/(asking+1))
			if mine.Wants[i] == first && wanted[i] > part {
				part++
			}
		}
		may[i] = max(min(part, free), 0)
		mine.Part[i] = max(used[i], may[i])
		switch {
		case may[i] >= wanted[i]:
			mine.Wants[i] = 0
		case mine.Wants[i] == 0, mine.Part[i] > was.Part[i]:
			mine.Wants[i] = d.Ticket
		}
	}
	return was, may
}

// apply puts a division that was written into effect here.
func (l *Limit) apply(d *division, was share, may [2]int) {
	mine := d.Users[l.self]
	if mine == nil {
		mine = &share{}
	}
	l.mu.Lock()
	grown := may[0] > l.part[0] || may[1] > l.part[1]
	l.part, l.has, l.kept, l.shares = may, mine.Part, time.Now().Round(0), max(len(d.Users), 1)
	l.asked, l.wants = false, mine.Wants != [2]uint64{}
	for id, s := range d.Users {
		l.asked = l.asked || id != l.self && s.Wants != [2]uint64{}
	}
	tell := l.asked && (mine.Part[0] < was.Part[0] || mine.Part[1] < was.Part[1]) || // others may take it
		l.wants && mine.Wants != was.Wants // others should give some
	l.mu.Unlock()
	if tell {
		l.bus.tell(divided, l.key, nil)
	}
	if grown {
		l.user.Changed()
	}
}

// declareLimits makes the stream of the records.
func (b *Bus) declareLimits(ctx context.Context) error {
	s, err := makeStream(ctx, b.js, jetstream.StreamConfig{
		Name: names{b.Database}.stream(limits), Subjects: []string{names{b.Database}.subject(limits, "*")},
		Storage: jetstream.MemoryStorage, MaxBytes: maxShared, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardOld,
		MaxAge: 2 * rateLasts, Replicas: 3,
	})
	if err == nil {
		b.records.Store(&s)
	}
	return err
}
