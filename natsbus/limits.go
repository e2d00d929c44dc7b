package natsbus

// The servers of a database divide a limit in a record of the bus. These rules keep what they use within it:
//
//  1. A server changes the record by compare-and-set. It takes what the parts of the others leave. Its part is at least
//     what it has in use: the requests that run, and those that it has sent within a minute.
//  2. The others leave a server its part after it was last seen: places for placesLast, the rate for rateLasts. One
//     that ends leaves the requests of its last minute. One that was not seen to renew its part may use its share.
//  3. A server uses its part for partLasts after it began to write it, then as much of it as is within its share: the
//     limit divided by the servers. After shareAfter, when the others have done so for a minute, it uses its share,
//     at least 1.
//  4. If servers may use what the record does not show, because it was lost or this server was away, it writes what it
//     remembers of them, and takes no more than without the record, until all have renewed their parts or time is up.
//  5. A server that remembers nothing waits until one that does has written the record, unless it is the only one.
//
// The exceptions: requests that take longer than rateLasts, a server that is cut off for longer than that while others
// are not, a minute in which the record and all servers that remember it are gone, and a limit that is less than the
// number of servers, while the bus is gone.

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
	// shareAfter is how long a server uses no more than its part and its share without the bus.
	shareAfter = rateLasts + partLasts
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

// Limit is a limit that the servers have together. A server that needs more than its part asks for more in the record,
// and the others give it what they do not use, down to their share.
type Limit struct {
	bus  *Bus
	user User
	key  string
	kick chan struct{}

	mu    sync.Mutex
	quota quota
	has   [2]int // its part in the record, which is more while requests that were begun have not ended
	asked bool   // another user asks for more
	wants bool   // this one does
	sent  int    // requests of the last minute, when a request last ended
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
		bus: b, user: u, key: hex.EncodeToString(h.Sum(nil)[:16]), kick: make(chan struct{}, 1),
		quota: newQuota(rand.Text(), [2]int{concurrent, perMinute}, time.Now().Round(0)),
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

// Part returns what this process may use of the limit. It does not block.
func (l *Limit) Part() (concurrent, perMinute int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	part := l.quota.may(time.Now().Round(0)) // by the clock of the wall, which does not stop while the machine sleeps
	for i, most := range l.quota.most {
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
	l.sent = sent
	for i, used := range [2]int{running, sent} {
		need = need || l.quota.most[i] > 0 && (!l.wants && used+waiting > l.quota.part[i] || l.asked && used < l.has[i])
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
		servers := 0
		if err != nil {
			servers = l.bus.servers()
			l.user.Changed() // the part becomes the share when its time has passed
		}
		l.mu.Lock()
		l.quota.servers = max(l.quota.servers, servers)
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

// balance writes what the user needs of the limit, and takes what is free. Without more, it gives back what it has not
// used.
func (l *Limit) balance(ctx context.Context, more bool) error {
	if l.quota.most == [2]int{} { // there are only holds to pass on
		return nil
	}
	for range attempts {
		d, revision, err := l.read(ctx)
		if err != nil {
			return err
		}
		now, old := time.Now().Round(0), time.Now().After(l.bus.settled())
		alone := l.quota.ticket == 0 && l.bus.servers() == 1
		used, wanted := l.use()
		l.mu.Lock()
		was, part := share{}, [2]int{}
		if more {
			was, part = l.quota.divide(&d, now, used, wanted, old, alone)
		} else {
			l.quota.end(&d, now, max(used[1], l.sent))
		}
		l.mu.Unlock()
		if mine := d.Users[l.quota.self]; mine != nil { // requests were begun meanwhile
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
	_, body, age, ok := l.bus.seal.open(subject, m.Data)
	if d.age = age; !ok || json.Unmarshal(body, &d) != nil || d.Users == nil {
		d = division{Users: map[string]*share{}, foreign: true}
	}
	for id, s := range d.Users {
		if s == nil || s.Part[0] < 0 || s.Part[1] < 0 {
			delete(d.Users, id)
		}
	}
	return d, m.Sequence, nil
}

// apply puts a division that was written into effect here.
func (l *Limit) apply(d *division, was share, may [2]int) {
	mine := d.Users[l.quota.self]
	if mine == nil {
		mine = &share{}
	}
	l.mu.Lock()
	grown := may[0] > l.quota.part[0] || may[1] > l.quota.part[1]
	l.quota.part, l.quota.ticket, l.has = may, d.Ticket, mine.Part
	l.asked, l.wants = false, mine.Wants != [2]uint64{}
	for id, s := range d.Users {
		l.asked = l.asked || id != l.quota.self && s.Wants != [2]uint64{}
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
	if err != nil {
		return err
	}
	b.records.Store(&s)
	info := s.CachedInfo()
	age := max(info.TimeStamp.Sub(info.Created), 0) // by their clock
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settles = time.Now().Add(rateLasts - age)
	return nil
}

// settled returns when the stream of the records is older than what is in use.
func (b *Bus) settled() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.settles
}

// servers returns the number of servers of the database, at least 1, or 0 if it is not known.
func (b *Bus) servers() int {
	if b.Servers == nil {
		return 1
	}
	b.counting.Lock()
	defer b.counting.Unlock()
	if time.Since(b.counted) > balanceEvery {
		ctx, cancel := context.WithTimeout(b.ctx, balanceEvery)
		defer cancel()
		if others, err := b.Servers(ctx); err == nil { // otherwise it is as before
			b.count = others + 1
		}
		b.counted = time.Now()
	}
	return b.count
}
