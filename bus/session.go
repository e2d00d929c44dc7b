package bus

import (
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"time"
)

// session is a secret of two instances for calls from one to the other. Such a call needs no key agreement, and its
// signature is verified only when it is passed on to another node. A caller asks for a session in an open message, with
// a new public key (X25519); a trusted one is answered with another new key. Neither instance keeps the private keys,
// so recorded calls stay secret even if the keys of the nodes are stolen later.
//
// A session authenticates the caller and nothing else: trust, tokens and replays are checked for each call. The serving
// instance keeps a session longer than the caller uses it and drops none earlier. A restart gives it a new address.
type session struct {
	id     sessionID
	secret []byte
	peer   Address // the other end
	made   time.Time
	holder Key // of the share, at the serving end
}

type sessionID [16]byte

const (
	sessionLasts = 10 * time.Minute // for the caller; the serving instance keeps it for clockSkew longer
	sessionAgain = 5 * time.Second  // between two questions for one
	maxSessions  = 4096             // that an instance serves
)

// firstNonce is the nonce of a next message. Each has a key of its own.
var firstNonce = make([]byte, 12)

// over reports whether the session is too old for another call. The wall clock counts the time of a suspended machine,
// too.
func (s *session) over(now time.Time) bool {
	wall := now.Round(0).Sub(s.made.Round(0))
	return now.Sub(s.made) >= sessionLasts || wall >= sessionLasts || wall < 0
}

// ciphers returns those of an exchange: for the next message, and for those of the serving node and of the caller.
func (s *session) ciphers(id exchangeID) (next, serving, caller cipher.AEAD, err error) {
	export := func(use string, size int) ([]byte, error) {
		return hkdf.Expand(sha256.New, s.secret, use+string(id[:]), size)
	}
	if next, err = cipherFor(export, "next"); err == nil {
		serving, caller, err = ciphers(export)
	}
	return next, serving, caller, err
}

// agree returns the session of an exchange whose ends have exchanged keys: asked is that of the caller.
func agree(
	own *ecdh.PrivateKey, theirs, asked, given []byte, id exchangeID, caller, serving Address,
) (*session, error) {
	public, err := ecdh.X25519().NewPublicKey(theirs)
	if err != nil {
		return nil, err
	}
	shared, err := own.ECDH(public)
	if err != nil {
		return nil, err
	}
	info := "toolcrib bus v1 session\n" + string(asked) + string(given)
	for _, at := range []Address{caller, serving} {
		info += string(at.Node) + "\n" + at.Instance + "\n"
	}
	derived, err := hkdf.Key(sha256.New, shared, id[:], info, 16+32)
	if err != nil {
		return nil, err
	}
	return &session{id: sessionID(derived), secret: derived[16:], made: time.Now()}, nil
}

// sessionWith returns the session with a peer. If it is nil, ask may be a new key to ask for one; may permits that.
func (n *Node) sessionWith(p *peer, may bool) (s *session, ask *ecdh.PrivateKey, err error) {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case p.session != nil && !p.session.over(now):
		return p.session, nil, nil
	case !may || !p.sessionAsked.IsZero() && now.Sub(p.sessionAsked) < sessionAgain:
		return nil, nil, nil
	}
	p.session, p.sessionAsked = nil, now
	ask, err = ecdh.X25519().GenerateKey(rand.Reader)
	return nil, ask, err
}

// grant makes a session with the caller of a verified call, if it asks for one and there is room.
func (n *Node) grant(x *Exchange, in *incoming) error {
	if len(in.Ask) == 0 || x.holder == "" {
		return nil
	}
	own, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	given := own.PublicKey().Bytes()
	s, err := agree(own, in.Ask, in.Ask, given, x.id, x.peer, n.self)
	if err != nil {
		return nil // an invalid key; the caller has no session
	}
	s.peer, s.holder = x.peer, x.holder
	n.mu.Lock()
	room := len(n.sessions) < maxSessions && n.sessionsBy.take(s.holder, maxSessions, 1)
	if room {
		n.sessions[s.id] = s
	}
	n.mu.Unlock()
	if room {
		x.mu.Lock()
		x.put(kindSession, given)
		x.mu.Unlock()
		x.flush()
	}
	return nil
}

// granted takes the key with which the serving node answers the question for a session.
func (n *Node) granted(x *Exchange, ask *ecdh.PrivateKey, given []byte) {
	s, err := agree(ask, given, ask.PublicKey().Bytes(), given, x.id, n.self, x.peer)
	if err != nil {
		return // an invalid key
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.peers[x.peer]; p != nil {
		s.peer = x.peer
		p.session = s
	}
}

// unsealNext opens a next message.
func (n *Node) unsealNext(raw []byte) (e envelope, err error) {
	if len(raw) < nextHead+overhead {
		return e, errForeign
	}
	n.mu.Lock()
	e.session = n.sessions[sessionID(raw[18:nextHead])]
	n.mu.Unlock()
	if e.session == nil {
		return e, errForeign
	}
	e.id, e.head = exchangeID(raw[2:18]), append([]byte(nil), raw[:nextHead]...)
	var next cipher.AEAD
	if next, e.out, e.in, err = e.session.ciphers(e.id); err == nil {
		e.text, err = next.Open(nil, firstNonce, raw[nextHead:], e.head)
	}
	return e, err
}

// expireSessions needs the lock.
func (n *Node) expireSessions(now time.Time) {
	for id, s := range n.sessions {
		if now.Sub(s.made) > sessionLasts+clockSkew {
			n.sessionsBy.give(s.holder, 1)
			delete(n.sessions, id)
		}
	}
}
