package egress

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
)

// spent is the usage of a session. Bytes are recorded in pieces before they are transferred, so that
// neither concurrent calls nor a crash can transfer more than is recorded.
type spent struct {
	Bytes int64     `json:"bytes"`
	Hosts []string  `json:"hosts,omitempty"`
	At    time.Time `json:"at"` // of the last change
}

const (
	piece         = 256 << 10
	spentPatience = 15 * time.Second
	spentKept     = 90 * 24 * time.Hour // lifetime of the record of an inactive session
)

var (
	// ErrSpent is the error of a [Meter] when the bytes of the session are used up.
	ErrSpent = errors.New("the bytes of the session are used up")
	// ErrTooLong is the error of a [Meter] when its own bytes are used up.
	ErrTooLong = errors.New("the transfer is longer than it may be")
)

// Budget bounds what all calls of a session send and receive, and the hosts that they reach. The zero
// value has no bounds.
type Budget struct {
	Bytes int64 // if 0, no bound
	Hosts int   // if 0, no bound
	// Files has the usage of each session, for all processes that have the same files. Without it, a bound refuses
	// all calls.
	Files toolcrib.Files
	// CountedFor returns the session to which the usage of a call without a session is attributed. If
	// nil, it is the call's own run.
	CountedFor func(call toolcrib.Call) (string, error)
}

// count changes the usage of a call's session, unless do returns an error. A record that cannot be read
// or written is an error.
func (b *Budget) count(call toolcrib.Call, do func(*spent) error) error {
	session, err := string(call.Session), error(nil)
	switch {
	case b.Files == nil:
		return errors.New("web: nothing counts what a session uses")
	case session == "" && b.CountedFor != nil:
		session, err = b.CountedFor(call)
	case session == "":
		session = string(call.Run)
	}
	if err != nil {
		return err
	}
	return change(b.Files, session, do)
}

// errSame reports that the usage has not changed.
var errSame = errors.New("nothing has changed")

// change changes the usage of a session. There is a bounded number of files, each in a folder of its own, so that
// sessions rarely wait for each other.
func change(files toolcrib.Files, session string, do func(*spent) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), spentPatience)
	defer cancel()
	sum := sha256.Sum256([]byte(session))
	name, key := fmt.Sprintf("web/%02x/spent.json", sum[0]), hex.EncodeToString(sum[:16])
	err := files.ChangeFile(ctx, name, func(before []byte) ([]byte, error) {
		all := map[string]spent{}
		if before != nil {
			if err := json.Unmarshal(before, &all); err != nil || all[key].Bytes < 0 || all == nil {
				return nil, fmt.Errorf("web: the file %s is damaged", name)
			}
		}
		now := time.Now()
		maps.DeleteFunc(all, func(_ string, s spent) bool { return now.Sub(s.At) > spentKept })
		s := all[key]
		was, hosts := s.Bytes, len(s.Hosts)
		switch err := do(&s); {
		case err != nil:
			return nil, err
		case s.Bytes == was && len(s.Hosts) == hosts:
			return nil, errSame
		}
		s.At = now.UTC()
		all[key] = s
		return json.Marshal(all)
	})
	if errors.Is(err, errSame) {
		return nil
	}
	return err
}

// Spend returns an error if the session has no room left for a request of size bytes to a host. If host is "", it
// is the administrator's own host, which is not counted. If sent is set, the request is recorded.
func (b *Budget) Spend(call toolcrib.Call, host string, size int64, sent bool) error {
	if b.Bytes <= 0 && b.Hosts <= 0 {
		return nil
	}
	return b.count(call, func(s *spent) error {
		another := b.Hosts > 0 && host != "" && !slices.Contains(s.Hosts, host)
		switch left := b.Bytes - s.Bytes; {
		case b.Bytes > 0 && left <= 0:
			return b.Refusal()
		case another && len(s.Hosts) >= b.Hosts:
			return denied("this session has reached as many hosts as tools.web.max_hosts_per_session allows (%d); "+
				"%s would be another", b.Hosts, host)
		case b.Bytes > 0 && size > left:
			return denied("the request sends %d bytes: of those that "+
				"tools.web.max_bytes_per_session allows this session (%d), %d are left", size, b.Bytes, left)
		case !sent:
			return nil
		case another:
			s.Hosts = append(s.Hosts, host)
		}
		s.Bytes += size
		return nil
	})
}

// Refusal returns the error for a session whose bytes are used up.
func (b *Budget) Refusal() error {
	return denied("this session has used as many bytes of the web as tools.web.max_bytes_per_session allows (%d)", b.Bytes)
}

// Meter counts the bytes of a transfer, and records them before they are transferred. It may be used by
// several goroutines.
type Meter struct {
	budget *Budget
	call   toolcrib.Call

	mu       sync.Mutex
	left     int64 // bytes that may still be transferred
	reserved int64 // bytes that are recorded, but not transferred yet
}

// Meter returns a meter for at most most bytes.
func (b *Budget) Meter(call toolcrib.Call, most int64) *Meter {
	return &Meter{budget: b, call: call, left: most}
}

// take returns how many of n bytes may be transferred now. Those that are not transferred must be given back.
func (m *Meter) take(n int) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left <= 0 {
		return 0, ErrTooLong
	}
	n = int(min(int64(n), m.left))
	if m.budget.Bytes > 0 {
		if m.reserved == 0 {
			if err := m.reserve(); err != nil {
				return 0, err
			}
		}
		n = int(min(int64(n), m.reserved))
		m.reserved -= int64(n)
	}
	m.left -= int64(n)
	return n, nil
}

func (m *Meter) giveBack(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left += int64(n)
	if m.budget.Bytes > 0 {
		m.reserved += int64(n)
	}
}

func (m *Meter) reserve() error {
	var n int64
	err := m.budget.count(m.call, func(s *spent) error { // it may be called again
		if n = min(piece, m.left, m.budget.Bytes-s.Bytes); n <= 0 {
			return ErrSpent
		}
		s.Bytes += n
		return nil
	})
	if err == nil {
		m.reserved = n
	}
	return err
}

// Reader returns a reader of what may be transferred of r.
func (m *Meter) Reader(r io.Reader) io.Reader { return &meteredReader{r, m} }

type meteredReader struct {
	from  io.Reader
	meter *Meter
}

func (r *meteredReader) Read(b []byte) (int, error) {
	most, err := r.meter.take(len(b))
	if err != nil {
		return 0, err
	}
	n, err := r.from.Read(b[:most])
	r.meter.giveBack(most - n)
	return n, err
}

// Close removes the bytes that were recorded, but not transferred, from the record.
func (m *Meter) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reserved > 0 {
		_ = m.budget.count(m.call, func(s *spent) error { // on an error they stay recorded
			s.Bytes = max(0, s.Bytes-m.reserved)
			return nil
		})
		m.reserved = 0
	}
}
