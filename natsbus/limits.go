package natsbus

import (
	"context"
	"crypto/hmac"
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
	key  string
	most [2]int // concurrent requests and requests per minute; 0 means no limit
	kick chan struct{}

	mu     sync.Mutex
	users  []User
	part   [2]int    // what this server may use
	has    [2]int    // its part in the record, which is more while requests that were begun have not ended
	asked  bool      // another server asks for more
	wants  bool      // this one does
	shares int       // servers that use the limit, including this one
	kept   time.Time // when the part was last in the record
	begun  time.Time
	seen   map[string]beat
}

// beat is a number of another server in the record, and when it was first seen.
type beat struct {
	n  uint64
	at time.Time
}

// division is the record of a limit. It is sealed, so that others cannot read or change it.
type division struct {
	Ticket  uint64            `json:"ticket"`
	Servers map[string]*share `json:"servers"`
}

// share is what a server has of a limit, by concurrent requests and requests per minute.
type share struct {
	Part  [2]int    `json:"part"`
	Wants [2]uint64 `json:"wants"` // ticket with which it asks for more; 0 if it does not
	Beat  uint64    `json:"beat"`
}

// Limit returns a limit that the servers have together, for a user of it in this process. Those with the same name
// and values are the same limit. perMinute and concurrent are 0 if there is no such limit. It returns nil if there
// are too many limits, or the bus is closed.
func (b *Bus) Limit(name string, concurrent, perMinute int, u User) *Limit {
	h := hmac.New(sha256.New, b.Key)
	fmt.Fprintf(h, "limit %d %d %s", concurrent, perMinute, name)
	key := hex.EncodeToString(h.Sum(nil)[:16])
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.limits[key]
	if l == nil {
		if len(b.limits) >= maxLimits || b.ctx.Err() != nil {
			return nil
		}
		l = &Limit{
			bus: b, key: key, most: [2]int{concurrent, perMinute}, kick: make(chan struct{}, 1), shares: 1,
			begun: time.Now(), seen: map[string]beat{},
		}
		b.limits[key] = l
		stop := b.receive(divided, key, func(string, string, []byte) { l.wake() })
		stopHeld := b.receive(held, key, l.hold)
		b.running.Go(func() {
			l.keep()
			stop()
			stopHeld()
		})
	}
	l.mu.Lock()
	l.users = append(l.users, u)
	l.mu.Unlock()
	l.wake()
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
	l.mu.Lock()
	users := l.users
	l.mu.Unlock()
	for _, u := range users {
		u.Hold(down, time.Duration(ms)*time.Millisecond)
	}
}

// keep keeps the part of this server in line with its use, until the bus is closed.
func (l *Limit) keep() {
	for {
		ctx, cancel := context.WithTimeout(l.bus.ctx, balanceEvery)
		err := errUnreachable
		if l.bus.State().Connected {
			err = l.balance(ctx)
			if errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetstream.ErrStreamNotFound) {
				l.bus.failed(l.bus.explain(err))
			}
		}
		if err != nil {
			l.changed() // the part becomes the share when its time has passed
		}
		cancel()
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
			return
		}
	}
}

// use returns the use of all users in this process.
func (l *Limit) use() (used, wanted [2]int) {
	l.mu.Lock()
	users := l.users
	l.mu.Unlock()
	var left []User
	for _, u := range users {
		running, waiting, sent, ok := u.Use()
		if !ok {
			continue
		}
		left = append(left, u)
		used[0] += running
		used[1] += sent
		wanted[0] += running + waiting
		wanted[1] += sent + waiting
	}
	if len(left) < len(users) {
		l.mu.Lock()
		l.users = append(left, l.users[len(users):]...)
		l.mu.Unlock()
	}
	return used, wanted
}

// balance writes what this server needs of the limit, and takes what is free.
func (l *Limit) balance(ctx context.Context) error {
	if l.most == [2]int{} { // only what users are told matters
		return nil
	}
	self := hex.EncodeToString(l.bus.seal.self[:])
	for range attempts {
		d, revision, err := l.read(ctx)
		if err != nil {
			return err
		}
		l.forget(&d, self, time.Now())
		used, wanted := l.use()
		was, part := d.divide(self, l.most, used, wanted)
		body, err := json.Marshal(d)
		if err != nil {
			return err
		}
		subject := names{l.bus.ID}.subject(limits, l.key)
		_, err = l.bus.js.Publish(ctx, subject, l.bus.seal.seal(subject, body),
			jetstream.WithExpectLastSequencePerSubject(revision))
		if another(err) {
			continue // another server was quicker
		}
		if err != nil {
			return err
		}
		l.apply(&d, self, was, part)
		return nil
	}
	return errors.New("too many servers divide it at once")
}

// read reads the record. It is empty if it is missing, or was not written by a server of this database.
func (l *Limit) read(ctx context.Context) (d division, revision uint64, err error) {
	d.Servers = map[string]*share{}
	s := l.bus.records.Load()
	if s == nil {
		return d, 0, jetstream.ErrStreamNotFound
	}
	subject := names{l.bus.ID}.subject(limits, l.key)
	m, err := (*s).GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return d, 0, nil
	}
	if err != nil {
		return d, 0, err
	}
	if _, body, ok := l.bus.seal.open(subject, m.Data); !ok || json.Unmarshal(body, &d) != nil || d.Servers == nil {
		d = division{Servers: map[string]*share{}}
	}
	for id, s := range d.Servers {
		if s == nil || s.Part[0] < 0 || s.Part[1] < 0 {
			delete(d.Servers, id)
		}
	}
	return d, m.Sequence, nil
}

// forget removes servers that have not been seen for long.
func (l *Limit) forget(d *division, self string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.seen {
		if d.Servers[id] == nil {
			delete(l.seen, id)
		}
	}
	for id, s := range d.Servers {
		if id == self {
			continue
		}
		if b, ok := l.seen[id]; !ok || b.n != s.Beat {
			l.seen[id] = beat{s.Beat, now}
			continue
		}
		switch since := now.Sub(l.seen[id].at); {
		case since > rateLasts:
			delete(d.Servers, id)
		case since > placesLast:
			s.Part[0], s.Wants = 0, [2]uint64{}
		}
	}
}

// divide gives a server its part, and returns what it had before and what it may use. A server never has less than it
// uses, never takes more than is free, and while others ask for more it may use no more than its share; the one that
// has asked for the longest time may use one more.
func (d *division) divide(self string, most, used, wanted [2]int) (was share, may [2]int) {
	mine := d.Servers[self]
	if mine == nil {
		mine = &share{}
		d.Servers[self] = mine
	}
	was = *mine
	mine.Beat++
	d.Ticket++
	for i, most := range most {
		if most == 0 {
			continue
		}
		free, asking, first := most, 0, mine.Wants[i]
		for id, s := range d.Servers {
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
		part := max(wanted[i], most/len(d.Servers)) // a reserve, so that a request need not wait for the others
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
func (l *Limit) apply(d *division, self string, was share, may [2]int) {
	mine := d.Servers[self]
	l.mu.Lock()
	grown := may[0] > l.part[0] || may[1] > l.part[1]
	l.part, l.has, l.kept, l.shares = may, mine.Part, time.Now().Round(0), len(d.Servers)
	l.asked, l.wants = false, mine.Wants != [2]uint64{}
	for id, s := range d.Servers {
		l.asked = l.asked || id != self && s.Wants != [2]uint64{}
	}
	tell := l.asked && (mine.Part[0] < was.Part[0] || mine.Part[1] < was.Part[1]) || // others may take it
		l.wants && mine.Wants != was.Wants // others should give some
	l.mu.Unlock()
	if tell {
		l.bus.tell(divided, l.key, nil)
	}
	if grown {
		l.changed()
	}
}

// changed tells the users that the part has changed.
func (l *Limit) changed() {
	l.mu.Lock()
	users := l.users
	l.mu.Unlock()
	for _, u := range users {
		u.Changed()
	}
}

// declareLimits makes the stream of the records.
func (b *Bus) declareLimits(ctx context.Context) error {
	s, err := makeStream(ctx, b.js, jetstream.StreamConfig{
		Name: names{b.ID}.stream(limits), Subjects: []string{names{b.ID}.subject(limits, "*")},
		Storage: jetstream.MemoryStorage, MaxBytes: maxShared, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardOld,
		MaxAge: 2 * rateLasts, Replicas: 3,
	})
	if err == nil {
		b.records.Store(&s)
	}
	return err
}
