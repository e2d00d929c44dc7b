package natsbus

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// kind is the kind of a message from one server to the others.
type kind string

// Kinds of messages. Each may be lost, doubled or delayed, for the reason given.
const (
	here    kind = "here"    // of a server, from time to time
	gone    kind = "gone"    // of a server that ends
	divided kind = "divided" // a limit was divided again; each server looks from time to time anyway
	held    kind = "held"    // a provider is not to be asked for some time; otherwise each server finds out by itself
)

const (
	maxOut    = 4096      // messages that wait to be sent
	maxBody   = 256 << 10 // bytes of one message
	maxIn     = 8192      // messages that wait to be read, and their bytes
	maxInSize = 32 << 20
	maxKeys   = 1000 // keys of senders that are kept
)

// messageLasts is how old a message may be, so that one that was recorded cannot be sent again later. The clocks of the
// servers differ by less.
const messageLasts = time.Minute

// sealer encrypts and authenticates messages with their time. Each sender has a key of its own, derived from the shared
// one, so that random nonces do not repeat.
type sealer struct {
	key  []byte
	self [16]byte
	now  func() time.Time
	mu   sync.Mutex
	keys map[[16]byte]cipher.AEAD
}

func (s *sealer) init(key []byte, now func() time.Time) error {
	if len(key) < 16 {
		return errors.New("the key of the bus is too short")
	}
	s.key, s.now, s.keys = key, now, map[[16]byte]cipher.AEAD{}
	_, _ = rand.Read(s.self[:]) // does not fail
	return nil
}

// of returns the cipher of a sender.
func (s *sealer) of(sender [16]byte) (cipher.AEAD, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.keys[sender]; c != nil {
		return c, nil
	}
	key, err := hkdf.Key(sha256.New, s.key, sender[:], "message", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	c, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	if len(s.keys) >= maxKeys {
		clear(s.keys)
	}
	s.keys[sender] = c
	return c, nil
}

func (s *sealer) seal(subject string, body []byte) []byte {
	c, err := s.of(s.self)
	if err != nil {
		return nil
	}
	text := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(body)), uint64(s.now().UnixMilli()))
	return c.Seal(slices.Clone(s.self[:]), nil, append(text, body...), []byte(subject))
}

// open returns the body of a message and how old it is, and false if no server of this database has sent it with this
// subject.
func (s *sealer) open(subject string, data []byte) (sender string, body []byte, age time.Duration, ok bool) {
	if len(data) < 16 {
		return "", nil, 0, false
	}
	c, err := s.of([16]byte(data))
	if err != nil {
		return "", nil, 0, false
	}
	text, err := c.Open(nil, nil, data[16:], []byte(subject))
	if err != nil || len(text) < 8 {
		return "", nil, 0, false
	}
	age = s.now().Sub(time.UnixMilli(int64(binary.BigEndian.Uint64(text))))
	return string(data[:16]), text[8:], age, true
}

// drop records that a message is not used.
func (b *Bus) drop(subject, why string) {
	if b.dropped.Add(1) == 1 {
		b.Log.Warn("messages on the bus are dropped", "first", subject, "because", why)
	}
}

// Dropped returns the number of messages that were dropped because they were not sealed by a server of this database,
// or are too old.
func (b *Bus) Dropped() int64 { return b.dropped.Load() }

const (
	notSealed = "no server of this database has sealed it"
	notRecent = "it is older than a minute, or the clocks of the servers differ by that"
)

// tell sends a message to the other servers, unless the bus is gone or too many messages wait. It does not block.
// about is part of the subject: the ID of a run, or another word of letters, digits, - and _.
func (b *Bus) tell(kind kind, about string, body []byte) {
	if b.conn == nil || len(body) > maxBody || !b.State().Connected || !token(about) {
		return
	}
	subject := names{b.Database}.subject(string(kind), about)
	select {
	case b.out <- &nats.Msg{Subject: subject, Data: b.seal.seal(subject, body)}:
	default:
	}
}

// send writes messages to the connection, which may block when the network does.
func (b *Bus) send() {
	for {
		select {
		case m := <-b.out:
			_ = b.conn.PublishMsg(m) // a message may be lost
		case <-b.ctx.Done():
			return
		}
	}
}

// ID identifies this server to the others. It is "" without a cluster.
func (b *Bus) ID() string {
	if b.conn == nil {
		return ""
	}
	return hex.EncodeToString(b.seal.self[:])
}

// everyone is what messages to all servers are about.
const everyone = "all"

// Send sends a message of a kind to all other servers or, if to is not "", to the one with that ID. It does not
// block. The message is lost if the bus is gone, or too many wait.
func (b *Bus) Send(of, to string, body []byte) { b.tell(kind(of), cmp.Or(to, everyone), body) }

// Receive calls do for the messages of a kind that others send to all servers or to this one, one after another. If
// do is slow, messages are lost.
func (b *Bus) Receive(of string, do func(body []byte)) {
	for _, about := range []string{everyone, b.ID()} {
		b.receive(kind(of), about, func(_, _ string, body []byte) { do(body) })
	}
}

// receive calls do for the messages of a kind that other servers send, until stop is called. If about is not "", only
// for those about it. Calls come one after another. If do is slow, messages are lost.
func (b *Bus) receive(kind kind, about string, do func(sender, about string, body []byte)) (stop func()) {
	if b.conn == nil || about != "" && !token(about) {
		return func() {}
	}
	prefix := names{b.Database}.subject(string(kind), "")
	subject := prefix + about
	if about == "" {
		subject += "*"
	}
	got := func(m *nats.Msg) {
		switch sender, body, age, ok := b.seal.open(m.Subject, m.Data); {
		case !ok:
			b.drop(m.Subject, notSealed)
		case age.Abs() > messageLasts:
			b.drop(m.Subject, notRecent)
		case sender != string(b.seal.self[:]):
			do(sender, strings.TrimPrefix(m.Subject, prefix), body)
		}
	}
	made := make(chan *nats.Subscription, 1)
	b.running.Go(func() { // it waits while the connection is being made
		sub, err := b.conn.Subscribe(subject, got)
		if err == nil { // otherwise the connection is closed
			_ = sub.SetPendingLimits(maxIn, maxInSize)
		}
		made <- sub
	})
	return func() { _ = (<-made).Unsubscribe() }
}

// token reports whether a word can be part of a subject.
func token(word string) bool {
	return word != "" && len(word) <= 255 && !strings.ContainsFunc(word, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(".*>", r)
	})
}

// Server describes a server to the others. If Name is "", they do not see it.
type Server struct {
	Name    string    `json:"name"` // of its machine and process, for people
	Version string    `json:"version"`
	Config  string    `json:"config,omitempty"` // hash of its configuration
	Started time.Time `json:"started"`
	// Site identifies the folder of workspaces of the server. Servers with the same one share a queue.
	Site string `json:"site,omitempty"`
}

const (
	// HereEvery is how often a server tells the others that it is there.
	HereEvery = 2 * time.Second
	// hereLasts is how long they take it to be there after they have last heard of it.
	hereLasts = 4 * HereEvery
	maxPeers  = 10_000
)

// peer is another server.
type peer struct {
	Server
	heard time.Time
}

// present tells the others that this server is there, and learns which others are.
func (b *Bus) present() {
	met := make(chan struct{}, 1) // another server that may not know this one yet
	b.receive(here, "", func(sender, _ string, body []byte) {
		p := peer{heard: time.Now()}
		if json.Unmarshal(body, &p.Server) != nil {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		_, known := b.peers[sender]
		if !known && len(b.peers) >= maxPeers {
			return
		}
		if b.peers[sender] = p; !known {
			select {
			case met <- struct{}{}:
			default:
			}
		}
	})
	b.receive(gone, "", func(sender, _ string, _ []byte) {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.peers, sender)
	})
	if b.Self.Name == "" {
		return
	}
	b.running.Go(func() {
		for self := b.Self; ; {
			select {
			case <-b.connected():
			case <-b.ctx.Done():
				return
			}
			if b.Config != nil {
				self.Config = b.Config()
			}
			body, _ := json.Marshal(self) // does not fail
			b.tell(here, "server", body)
			select {
			case <-time.After(HereEvery):
			case <-met:
			case <-b.ctx.Done():
				return
			}
		}
	})
}

// leave tells the others that this server ends.
func (b *Bus) leave() {
	if b.conn == nil || !b.State().Connected {
		return
	}
	subject := names{b.Database}.subject(string(gone), "server")
	_ = b.conn.Publish(subject, b.seal.seal(subject, nil))
	_ = b.conn.FlushTimeout(repairEvery)
}

// Live reports whether there is a cluster, which carries all messages.
func (b *Bus) Live() bool { return b.conn != nil }

// Alone reports whether there are no other servers of the database with the same Site, as [Bus.Others] returns them.
func (b *Bus) Alone() bool {
	return !slices.ContainsFunc(b.Others(), func(s Server) bool { return s.Site == b.Self.Site })
}

// Others returns the other servers of the database that were heard of lately. While the bus is gone, it returns those
// that were there before.
func (b *Bus) Others() (all []Server) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for sender, p := range b.peers {
		if b.state.Connected && time.Since(b.state.Since) > hereLasts && time.Since(p.heard) > hereLasts {
			delete(b.peers, sender)
			continue
		}
		all = append(all, p.Server)
	}
	slices.SortFunc(all, func(x, y Server) int { return strings.Compare(x.Name, y.Name) })
	return all
}
