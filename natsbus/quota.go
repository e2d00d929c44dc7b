package natsbus

import "time"

// quota is the part of a limit that a server may use.
type quota struct {
	self    string    // its name in the record
	most    [2]int    // concurrent requests and requests per minute; 0 means no limit
	part    [2]int    // what it may use
	kept    time.Time // when it began to write the part
	servers int       // that share the limit; 0 if unknown
	ticket  uint64    // of the record; 0 if it was in none
	missed  time.Time // when the record may have begun to lack users; zero if it does not
	seen    map[string]beat
	last    map[string]share // the users of the record; nil if it has seen none
}

// beat is a number of another user in the record, and when it was first seen.
type beat struct {
	n       uint64
	at      time.Time
	renewed bool // another number was seen before
}

// division is the record of a limit. It is sealed, so that others cannot read or change it.
type division struct {
	Ticket uint64            `json:"ticket"`
	Users  map[string]*share `json:"users"`
	Whole  bool              `json:"whole"` // it has all users

	foreign bool          // another record was there, which no server of this database has written
	age     time.Duration // how old it was when it was read
}

// share is the part of a limit that a user has, in concurrent requests and requests per minute.
type share struct {
	Part  [2]int    `json:"part"`
	Wants [2]uint64 `json:"wants"` // ticket with which it asks for more; 0 if it does not
	Beat  uint64    `json:"beat"`
	Ended bool      `json:"ended,omitempty"` // it has ended; its part is what it has used
}

func newQuota(self string, most [2]int, now time.Time) quota {
	return quota{self: self, most: most, kept: now, seen: map[string]beat{}}
}

// may returns the part that may be used now.
func (q *quota) may(now time.Time) (may [2]int) {
	since := now.Sub(q.kept)
	if since < -partLasts { // the clock was set back
		since = partLasts + 1
	}
	for i, most := range q.most {
		share := 0
		if q.servers > 0 {
			share = most / q.servers
		}
		switch {
		case q.last != nil && since <= partLasts:
			may[i] = q.part[i]
		case q.servers == 1 && len(q.last) <= 1:
			may[i] = share
		case since > shareAfter && most > 0: // without the bus for long, so that none stands still
			may[i] = max(share, 1)
		default:
			may[i] = min(q.part[i], share)
		}
	}
	return may
}

// whole reports whether the record has all that is used, and adds what it lacks. old reports whether the stream is
// older than what is used, and alone whether the database has no other server.
func (q *quota) whole(d *division, now time.Time, old, alone bool) bool {
	away := now.Sub(q.kept).Abs() > partLasts
	switch {
	case q.ticket == 0 && alone, d.Whole && d.Ticket >= q.ticket && !away && (q.ticket > 0 || d.age.Abs() <= partLasts):
		q.missed = time.Time{}
		return true
	case q.missed.IsZero() || away || d.Ticket < q.ticket:
		q.missed = now
		clear(q.seen)
	}
	for id, s := range q.last {
		if id != q.self && d.Users[id] == nil {
			d.Users[id] = &s
		}
	}
	since := now.Sub(q.missed)
	known := (q.ticket > 0 || old) && since > partLasts
	for id, s := range d.Users {
		known = known && (id == q.self || s.Ended || q.seen[id].renewed)
	}
	lasts := placesLast
	if q.most[1] > 0 {
		lasts = rateLasts
	}
	if known || since > lasts {
		q.missed = time.Time{}
	}
	return q.missed.IsZero()
}

// forget removes users that have not been seen for long.
func (q *quota) forget(d *division, now time.Time) {
	for id := range q.seen {
		if d.Users[id] == nil {
			delete(q.seen, id)
		}
	}
	for id, s := range d.Users {
		if id == q.self {
			continue
		}
		if b, ok := q.seen[id]; !ok || b.n != s.Beat {
			q.seen[id] = beat{s.Beat, now, ok}
			continue
		}
		switch since := now.Sub(q.seen[id].at); {
		case since > rateLasts:
			delete(d.Users, id)
		case since > placesLast:
			s.Part[0], s.Wants = 0, [2]uint64{}
		}
	}
}

// left returns what the others leave of a limit, which n users have.
func (q *quota) left(d *division, i, n int, now time.Time) (free int) {
	free = q.most[i]
	if d.Users[q.self].Beat == 1 && n > 1 { // the others do not know of this one
		n--
	}
	for id, s := range d.Users {
		switch b := q.seen[id]; {
		case id == q.self:
		case s.Ended, b.renewed, i == 0 && now.Sub(b.at) > placesLast:
			free -= s.Part[i]
		default:
			free -= max(s.Part[i], q.most[i]/n)
		}
	}
	return free
}

// divide gives a user its part, and returns what it had before and what it may use. A user never has less than it
// uses, never takes more than is free, and while others ask for more it may use no more than its share; the one that
// has asked for the longest time may use one more. What is given away is not used from now on, also if the record
// cannot be written.
func (q *quota) divide(d *division, now time.Time, used, wanted [2]int, old, alone bool) (was share, may [2]int) {
	d.Whole = q.whole(d, now, old, alone)
	q.forget(d, now)
	mine := d.Users[q.self]
	if mine == nil {
		mine = &share{}
		d.Users[q.self] = mine
	}
	was = *mine
	mine.Beat++
	d.Ticket = max(d.Ticket, q.ticket) + 1
	n, without := 0, q.may(now)
	for _, s := range d.Users {
		if !s.Ended {
			n++
		}
	}
	for i, most := range q.most {
		if most == 0 {
			continue
		}
		free, asking, first := q.left(d, i, n, now), 0, mine.Wants[i]
		for id, s := range d.Users {
			if id != q.self && s.Wants[i] > 0 {
				asking++
				if first == 0 || s.Wants[i] < first {
					first = s.Wants[i]
				}
			}
		}
		part := max(wanted[i], most/n) // a reserve, so that a request need not wait for the others
		if asking > 0 {
			part = min(wanted[i], most/(asking+1))
			if mine.Wants[i] == first && wanted[i] > part {
				part++
			}
		}
		if !d.Whole {
			free = min(free, without[i])
		}
		may[i] = max(min(part, free), 0)
		mine.Part[i] = max(used[i], may[i])
		switch {
		case may[i] >= wanted[i]:
			mine.Wants[i] = 0
		case mine.Wants[i] == 0, mine.Part[i] > was.Part[i]:
			mine.Wants[i] = d.Ticket
		}
		q.part[i] = min(without[i], may[i])
	}
	q.kept, q.servers, q.last = now, n, map[string]share{}
	for id, s := range d.Users {
		q.last[id] = *s
	}
	return was, may
}

// end leaves in the record what a user that ends has sent within a minute.
func (q *quota) end(d *division, now time.Time, sent int) {
	d.Whole = q.whole(d, now, false, false)
	q.forget(d, now)
	delete(d.Users, q.self)
	if d.Ticket = max(d.Ticket, q.ticket) + 1; sent > 0 && q.most[1] > 0 {
		d.Users[q.self] = &share{Part: [2]int{0, sent}, Ended: true}
	}
}
