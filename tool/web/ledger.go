package web

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/safefile"
)

// Ledger records the usage of each session in files of a folder, so that it survives a restart. It may
// be used by several processes at once.
type Ledger struct{ Dir string }

// spent is the usage of a session. Bytes are recorded in pieces before they are read, so that neither
// concurrent calls nor a crash can read more than is recorded.
type spent struct {
	Bytes int64    `json:"bytes"`
	Hosts []string `json:"hosts,omitempty"`
}

const (
	piece          = 256 << 10
	maxLedger      = 256 << 20 // bytes of a file
	ledgerPatience = 10 * time.Second
	ledgerKept     = 90 * 24 * time.Hour // lifetime of the record of an inactive session
)

var (
	errSpent   = errors.New("the bytes of the session are used up")
	errTooLong = errors.New("the answer is longer than it may be")
)

// count changes the usage of a call's session, unless do returns an error. A record that cannot be read
// or written is an error.
func (f *fetcher) count(call toolcrib.Call, do func(*spent) error) error {
	session, err := string(call.Session), error(nil)
	switch {
	case f.Ledger == nil || f.Ledger.Dir == "":
		return errors.New("web: nothing counts what a session uses")
	case session == "" && f.CountedFor != nil:
		session, err = f.CountedFor(call)
	case session == "":
		session = string(call.Run)
	}
	if err != nil {
		return err
	}
	return f.Ledger.change(session, do)
}

func (l *Ledger) change(session string, do func(*spent) error) error {
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(session))
	path := filepath.Join(l.Dir, hex.EncodeToString(sum[:16])+".json")
	unlock, err := safefile.Lock(filepath.Join(l.Dir, ".lock"), ledgerPatience)
	if err != nil {
		return err
	}
	defer unlock()
	var s spent
	switch text, err := safefile.Read(path, maxLedger); {
	case err == nil:
		if err := json.Unmarshal(text, &s); err != nil || s.Bytes < 0 {
			return fmt.Errorf("web: %s is damaged", path)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	default:
		safefile.RemoveOld(l.Dir, ledgerKept)
	}
	before := s.Bytes
	hosts := len(s.Hosts)
	if err := do(&s); err != nil || s.Bytes == before && len(s.Hosts) == hosts {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return safefile.Replace(path, ".web-", text)
}

// bounded reports whether usage is limited.
func (f *fetcher) bounded() bool { return f.SessionBytes > 0 || f.SessionHosts > 0 }

// budget returns an error if the session has no room left for a request of size bytes to a host. If host is "", it
// is the administrator's own host, which is not counted. If sent is set, the request is recorded.
func (f *fetcher) budget(call toolcrib.Call, host string, size int64, sent bool) error {
	if !f.bounded() {
		return nil
	}
	return f.count(call, func(s *spent) error {
		another := f.SessionHosts > 0 && host != "" && !slices.Contains(s.Hosts, host)
		switch left := f.SessionBytes - s.Bytes; {
		case f.SessionBytes > 0 && left <= 0:
			return f.spent()
		case another && len(s.Hosts) >= f.SessionHosts:
			return toolcrib.Failf(toolcrib.PermissionDenied,
				"this session has reached as many hosts as tools.web.max_hosts_per_session allows (%d); %s would be another",
				f.SessionHosts, host)
		case f.SessionBytes > 0 && size > left:
			return toolcrib.Failf(toolcrib.PermissionDenied, "the request sends %d bytes: of those that "+
				"tools.web.max_bytes_per_session allows this session (%d), %d are left", size, f.SessionBytes, left)
		case !sent:
			return nil
		case another:
			s.Hosts = append(s.Hosts, host)
		}
		s.Bytes += size
		return nil
	})
}

func (f *fetcher) spent() error {
	return toolcrib.Failf(toolcrib.PermissionDenied,
		"this session has used as many bytes of the web as tools.web.max_bytes_per_session allows (%d)", f.SessionBytes)
}

// metered is a body that records bytes before they are read.
type metered struct {
	from     io.Reader
	f        *fetcher
	call     toolcrib.Call
	left     int64 // bytes that the call may still read
	reserved int64 // bytes that are recorded, but not read yet
}

func (m *metered) Read(b []byte) (int, error) {
	if m.left <= 0 {
		return 0, errTooLong
	}
	b = b[:min(int64(len(b)), m.left)]
	if m.f.SessionBytes > 0 {
		if m.reserved == 0 {
			if err := m.take(); err != nil {
				return 0, err
			}
		}
		b = b[:min(int64(len(b)), m.reserved)]
	}
	n, err := m.from.Read(b)
	m.left -= int64(n)
	if m.f.SessionBytes > 0 {
		m.reserved -= int64(n)
	}
	return n, err
}

func (m *metered) take() error {
	return m.f.count(m.call, func(s *spent) error {
		m.reserved = min(piece, m.left, m.f.SessionBytes-s.Bytes)
		if m.reserved <= 0 {
			m.reserved = 0
			return errSpent
		}
		s.Bytes += m.reserved
		return nil
	})
}

// done returns the bytes that were recorded, but not read.
func (m *metered) done() {
	if m.reserved > 0 {
		_ = m.f.count(m.call, func(s *spent) error { // on an error they stay recorded
			s.Bytes = max(0, s.Bytes-m.reserved)
			return nil
		})
	}
}
