package bus

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolcrib/toolcrib"
)

// sessionOf returns a session of two instances, of each end.
func sessionOf(t testing.TB, caller, serving Address) (at, there *session) {
	t.Helper()
	ask, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	give, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	asked, given := ask.PublicKey().Bytes(), give.PublicKey().Bytes()
	if at, err = agree(ask, given, asked, given, exchangeID{1}, caller, serving); err != nil {
		t.Fatal(err)
	}
	if there, err = agree(give, asked, asked, given, exchangeID{1}, caller, serving); err != nil {
		t.Fatal(err)
	}
	at.peer, there.peer = serving, caller
	if at.id != there.id || !bytes.Equal(at.secret, there.secret) {
		t.Fatal("the ends have different sessions")
	}
	return at, there
}

// inSession has a target know a session, and returns that of the caller.
func (g *target) inSession(t *testing.T, k *Keys) *session {
	t.Helper()
	at, there := sessionOf(t, Address{k.Public(), "here"}, g.self)
	g.Node.mu.Lock()
	defer g.Node.mu.Unlock()
	g.sessions[there.id] = there
	return at
}

// Each byte of a next message is changed: it is not opened. So is it in another session, or at another node.
func TestSession_EachByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTarget(t)
		k := testKeys(t, 1)
		s := g.inSession(t, k)
		raw, _, _, err := k.seal(newTestCall(), Address{k.Public(), "here"}, g.self, nil, s, exchangeID{7}, noon)
		if err != nil {
			t.Fatal(err)
		}
		e, err := g.unsealNext(raw)
		if err != nil {
			t.Fatal(err)
		}
		if in, err := e.read(g.Key(), noon); err != nil || in.last().Node != k.Public() {
			t.Fatalf("%+v, %v", in, err)
		}
		for i := range raw {
			for _, bit := range []byte{1, 0x80} {
				changed := bytes.Clone(raw)
				changed[i] ^= bit
				if _, err := g.unsealNext(changed); err == nil && i > 1 {
					t.Errorf("byte %d was changed", i)
				}
			}
			if _, err := g.unsealNext(raw[:i]); err == nil {
				t.Errorf("%d bytes were opened", i)
			}
		}
		other := g.inSession(t, k)
		if _, err := g.unsealNext(bytes.Replace(raw, s.id[:], other.id[:], 1)); err == nil {
			t.Error("it was opened in another session")
		}
		if _, err := newTarget(t).unsealNext(raw); err == nil {
			t.Error("another instance has opened it")
		}
	})
}

// A session is for its caller only: no other node or instance is named in it.
func TestSession_OfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTarget(t)
		evil, member := testKeys(t, 5), testKeys(t, 1)
		s := g.inSession(t, evil)
		for _, from := range []Address{{member.Public(), "here"}, {evil.Public(), "there"}} {
			raw, _, _, err := evil.seal(newTestCall(), from, g.self, nil, s, exchangeID{byte(len(from.Node))}, g.now())
			if err != nil {
				t.Fatal(err)
			}
			e, err := g.unsealNext(raw)
			if err != nil {
				t.Fatal(err)
			}
			if in, err := e.read(g.Key(), g.now()); in != nil || err == nil {
				t.Errorf("a call of %+v in the session of another: %+v, %v", from, in, err)
			}
		}
	})
}

// A signature that was not verified, because of the session, is verified before the call is shown to other nodes.
func TestSession_SignatureIsPassedOn(t *testing.T) {
	a, b, c := testKeys(t, 1), testKeys(t, 2), testKeys(t, 3)
	at, there := sessionOf(t, Address{a.Public(), "here"}, Address{b.Public(), "there"})
	for _, signs := range []*Keys{a, c} {
		sign := *a
		sign.sign = signs.sign
		text, err := sign.text(newTestCall(), there.peer, at.peer, nil, noon)
		if err != nil {
			t.Fatal(err)
		}
		in, err := envelope{text: text, session: there}.read(b.Public(), noon)
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.text(newTestCall(in.hops...), at.peer, Address{c.Public(), "x"}, nil, noon)
		want := toolcrib.CodeSignature
		if signs == a {
			want = ""
		}
		refusedWith(t, "a signature of another", err, want)
	}
}

// What a node has signed for one message is not accepted in another one.
func TestEnvelope_InAnotherMessage(t *testing.T) {
	a, b := testKeys(t, 1), testKeys(t, 2)
	e := sealed(t, a, b, newTestCall(), noon)
	for i := range e.head {
		other := e
		other.head = bytes.Clone(e.head)
		other.head[i] ^= 1
		_, err := other.read(b.Public(), noon)
		refusedWith(t, "another head", err, toolcrib.CodeSignature)
	}
}

// Calls in a session are checked as all calls: a replay is executed once, and a node without trust is
// refused.
func TestSession_Checks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTarget(t)
		ran := 0
		if err := g.Offer(Descriptor{Name: Name{"test.x", 1, 0}}, func(context.Context, *Exchange) (json.RawMessage, error) {
			ran++
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
		next := func(k *Keys, s *session) sealedCall {
			g.last++
			c := sealedCall{id: exchangeID{byte(g.last), 9}}
			var err error
			c.raw, c.in, c.out, err = k.seal(newTestCall(), Address{k.Public(), "here"}, g.self, nil, s, c.id, g.now())
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		member, unknown := testKeys(t, 1), testKeys(t, 5)
		s := g.inSession(t, member)
		call := next(member, s)
		for range 3 {
			g.receive(call.raw)
			synctest.Wait()
			time.Sleep(20 * time.Second)
		}
		if got := g.result(call); got != ResultOK || ran != 1 {
			t.Errorf("%q, ran %d times", got, ran)
		}
		call = next(unknown, g.inSession(t, unknown))
		g.receive(call.raw)
		synctest.Wait()
		if got := g.result(call); got != toolcrib.CodeUnauthorized || ran != 1 {
			t.Errorf("without trust: %q, ran %d times", got, ran)
		}
		time.Sleep(sessionLasts + clockSkew + time.Second)
		g.expire(time.Now())
		if len(g.sessions) != 0 || len(g.sessionsBy) != 0 {
			t.Errorf("%d sessions are kept", len(g.sessions))
		}
		call = next(member, s)
		g.receive(call.raw)
		synctest.Wait()
		if got := g.result(call); got != "" || ran != 1 {
			t.Errorf("in a session that is over: %q, ran %d times", got, ran)
		}
	})
}

// Sessions are for nodes with some trust, and each has a share of the places.
func TestSession_Shares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTarget(t)
		if err := g.Offer(Descriptor{Name: Name{"test.x", 1, 0}}, func(context.Context, *Exchange) (json.RawMessage, error) {
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
		ask, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := newTestCall()
		c.ask = ask.PublicKey().Bytes()
		for _, tt := range []struct {
			seed byte
			held int
			want int
		}{{5, 0, 0}, {1, maxSessions / 2, 0}, {1, 0, 1}} {
			k := testKeys(t, tt.seed)
			g.sessionsBy[k.Public()] = tt.held
			g.call(t, k, c)
			if got := len(g.sessions); got != tt.want {
				t.Errorf("node %d, which has %d: %d sessions, want %d", tt.seed, tt.held, got, tt.want)
			}
		}
		if err := g.grant(&Exchange{node: g.Node}, &incoming{rest: rest{Ask: c.ask}}); err != nil || len(g.sessions) != 1 {
			t.Errorf("a node without trust, but with a token, has a session: %v", err)
		}
		c.ask = make([]byte, 32) // makes no secret
		if got := g.call(t, testKeys(t, 1), c); got != ResultOK || len(g.sessions) != 1 {
			t.Errorf("a bad key: %q, %d sessions", got, len(g.sessions))
		}
	})
}
