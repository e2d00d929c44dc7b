package bus

import (
	"bytes"
	"crypto/hpke"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
)

func testKeys(t testing.TB, seed byte) *Keys {
	t.Helper()
	k, err := NewKeys(bytes.Repeat([]byte{seed}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// sealed returns the content of the open message of a call from k to another node.
func sealed(t testing.TB, k, to *Keys, c *call, now time.Time) envelope {
	t.Helper()
	at := Address{to.Public(), "there"}
	raw, _, _, err := k.seal(c, Address{k.Public(), "here"}, at, to.agreement, nil, exchangeID{1}, now)
	if err != nil {
		t.Fatal(err)
	}
	e, err := to.unseal(at, raw)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// with returns the envelope with another content.
func (e envelope) with(text []byte) envelope {
	e.text = text
	return e
}

func newTestCall(hops ...signedHop) *call {
	return &call{id: "id", name: Name{"test.x", 1, 0}, body: json.RawMessage(`{"input":1}`), lineage: hops}
}

func refusedWith(t *testing.T, what string, err error, want toolcrib.Code) {
	t.Helper()
	if toolcrib.CodeOf(err) != want {
		t.Errorf("%s: %v, want %s", what, err, want)
	}
}

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// Each byte of the content of an open message is changed: the call is refused. So is one that is cut.
func TestEnvelope_EachByte(t *testing.T) {
	a, b := testKeys(t, 1), testKeys(t, 2)
	c := newTestCall(hopOf(t, testKeys(t, 3), a, noon))
	e := sealed(t, a, b, c, noon)
	text := e.text
	if in, err := e.read(b.Public(), noon); err != nil || len(in.hops) != 2 || in.last().Node != a.Public() {
		t.Fatalf("%+v, %v", in, err)
	}
	bodyAt := len(text) - len(c.body)
	for i := range text {
		for _, bit := range []byte{1, 0x20, 0x80} {
			changed := bytes.Clone(text)
			changed[i] ^= bit
			in, err := e.with(changed).read(b.Public(), noon)
			if err == nil && hashOf(in.body) == in.Hash || err != nil && i >= bodyAt {
				t.Errorf("byte %d of %d with bit %x was changed: %v", i, len(text), bit, err)
			}
		}
		if _, err := e.with(text[:i]).read(b.Public(), noon); err == nil {
			t.Errorf("%d of %d bytes were accepted", i, len(text))
		}
	}
}

// hopOf returns a hop from one node to another, as its node signs it.
func hopOf(t testing.TB, from, to *Keys, at time.Time, before ...signedHop) signedHop {
	t.Helper()
	h, err := newHop(newTestCall(before...), from.Public(), to.Public(), at, "")
	if err != nil {
		t.Fatal(err)
	}
	h.Signature = from.signature(hopContext, h.Raw)
	return h
}

// A node cannot make up who led to its call: hops are signed, for the next one, and follow each other.
func TestEnvelope_ForgedLineage(t *testing.T) {
	a, b, c, evil := testKeys(t, 1), testKeys(t, 2), testKeys(t, 3), testKeys(t, 4)
	first := hopOf(t, a, b, noon)
	second := hopOf(t, b, c, noon, first)
	changed := first
	changed.Raw = bytes.Replace(first.Raw, []byte(`"id":"id"`), []byte(`"id":"xx"`), 1)
	stolen := hopOf(t, a, b, noon)
	stolen.Signature = evil.signature(hopContext, stolen.Raw)
	unbound := hopOf(t, b, c, noon)
	card := first
	card.Signature = a.signature(cardContext, card.Raw)
	for _, tt := range []struct {
		what string
		from *Keys
		hops []signedHop
		want toolcrib.Code
	}{
		{"none", a, nil, ""},
		{"one", b, []signedHop{first}, ""},
		{"two", c, []signedHop{first, second}, ""},
		{"a hop for another node", evil, []signedHop{first}, toolcrib.CodeSignature},
		{"a changed hop", b, []signedHop{changed}, toolcrib.CodeSignature},
		{"a hop with the signature of another", b, []signedHop{stolen}, toolcrib.CodeSignature},
		{"a signature of something else", b, []signedHop{card}, toolcrib.CodeSignature},
		{"the first hop left out", c, []signedHop{second}, toolcrib.CodeSignature},
		{"hops of two calls", c, []signedHop{first, unbound}, toolcrib.CodeSignature},
		{"hops in another order", b, []signedHop{second, first}, toolcrib.CodeSignature},
		{"an old hop", b, []signedHop{hopOf(t, a, b, noon.Add(-2*time.Hour))}, toolcrib.CodeExpired},
		{"a hop of the future", b, []signedHop{hopOf(t, a, b, noon.Add(2*time.Hour))}, toolcrib.CodeExpired},
	} {
		call := newTestCall(tt.hops...)
		_, err := sealed(t, tt.from, evil, call, noon).read(evil.Public(), noon)
		refusedWith(t, tt.what, err, tt.want)
	}
	var hops []signedHop
	for range maxHops {
		hops = append(hops, hopOf(t, a, a, noon, hops...))
	}
	_, err := sealed(t, a, b, newTestCall(hops[:maxHops-1]...), noon).read(b.Public(), noon)
	refusedWith(t, "eight hops", err, "")
	_, err = sealed(t, a, b, newTestCall(hops...), noon).read(b.Public(), noon)
	refusedWith(t, "nine hops", err, toolcrib.CodeBadRequest)
}

// A call that was signed for another node, or opened by one, cannot be used there.
func TestEnvelope_ForAnother(t *testing.T) {
	a, b, c := testKeys(t, 1), testKeys(t, 2), testKeys(t, 3)
	at := Address{b.Public(), "there"}
	raw, _, _, err := a.seal(newTestCall(), Address{a.Public(), "here"}, at, b.agreement, nil, exchangeID{1}, noon)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []struct {
		keys *Keys
		self Address
	}{{c, at}, {c, Address{c.Public(), "there"}}, {b, Address{b.Public(), "another"}}} {
		if _, err := other.keys.unseal(other.self, raw); err == nil {
			t.Errorf("%+v opens the message of another", other.self)
		}
	}
	e := sealed(t, a, b, newTestCall(), noon)
	_, err = e.read(c.Public(), noon) // b has sealed it again
	refusedWith(t, "for another node", err, toolcrib.CodeSignature)
	for _, tt := range []struct {
		off  time.Duration
		want toolcrib.Code
	}{
		{-61 * time.Second, toolcrib.CodeExpired},
		{-59 * time.Second, ""},
		{0, ""},
		{89 * time.Second, ""},
		{91 * time.Second, toolcrib.CodeExpired},
		{-24 * time.Hour, toolcrib.CodeExpired},
		{24 * time.Hour, toolcrib.CodeExpired},
	} {
		_, err := e.read(b.Public(), noon.Add(tt.off))
		refusedWith(t, tt.off.String(), err, tt.want)
	}
}

// Two nodes that answer one open message use different nonces, and a message of the one is not one of the other.
func TestData_Salt(t *testing.T) {
	a, b := testKeys(t, 1), testKeys(t, 2)
	at := Address{b.Public(), "there"}
	raw, in, out, err := a.seal(newTestCall(), Address{a.Public(), "here"}, at, b.agreement, nil, exchangeID{1}, noon)
	if err != nil {
		t.Fatal(err)
	}
	e, err := b.unseal(at, raw)
	if err != nil || e.id != (exchangeID{1}) {
		t.Fatal(e.id, err)
	}
	id, in2, out2 := e.id, e.in, e.out
	m := message{number: 7, kind: kindFrame, payload: []byte("x")}
	one, two := sealData(out2, id, salt{1}, m), sealData(out2, id, salt{2}, m)
	if bytes.Equal(one[dataHead:], two[dataHead:]) {
		t.Error("two messages have one nonce")
	}
	if by, got, ok := openData(in, one); !ok || by != (salt{1}) || got.number != 7 || got.kind != kindFrame || string(got.payload) != "x" {
		t.Errorf("%v, %+v, %v", by, got, ok)
	}
	if _, _, ok := openData(in2, one); ok {
		t.Error("a node takes its own message for one of the other")
	}
	if _, _, ok := openData(in, slices.Concat(one[:dataHead], two[dataHead:])); ok {
		t.Error("a message with the salt of another was opened")
	}
	if _, _, ok := openData(in2, sealData(out, id, salt{1}, m)); !ok {
		t.Error("the other direction")
	}
}

// The body must be the one that was signed, also if it has the right length.
func TestBody_AsSigned(t *testing.T) {
	n, err := New(Options{Keys: testKeys(t, 1), Trust: nobody})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for body, want := range map[string]toolcrib.Code{`{"n":1}`: "", `{"n":2}`: toolcrib.CodeSignature} {
		in := &incoming{body: []byte(body)}
		in.Bytes, in.Hash = len(body), hashOf([]byte(`{"n":1}`))
		_, err := n.bodyOf(t.Context(), &Exchange{node: n}, in)
		refusedWith(t, body, err, want)
	}
}

func FuzzReadOpen(f *testing.F) {
	a, b := testKeys(f, 1), testKeys(f, 2)
	e := sealed(f, a, b, newTestCall(), noon)
	f.Add(e.text)
	f.Add(sealed(f, a, b, newTestCall(hopOf(f, testKeys(f, 3), a, noon)), noon).text)
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 100))
	f.Fuzz(func(t *testing.T, text []byte) {
		in, err := e.with(text).read(b.Public(), noon)
		if err == nil && !in.hops[len(in.hops)-1].verify() {
			t.Error("a call without a signature was accepted")
		}
		if in != nil && len(in.hops) == 0 {
			t.Error("a call of nobody")
		}
	})
}

func FuzzReadCard(f *testing.F) {
	n, err := New(Options{Keys: testKeys(f, 1), Trust: nobody})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(n.card(true, false))
	f.Add(n.card(false, true)[:80])
	f.Fuzz(func(t *testing.T, raw []byte) {
		if c, ok := readCard(raw); ok && c.Node != n.Key() {
			t.Errorf("a forged card: %+v", c)
		}
	})
}

func FuzzDecodeError(f *testing.F) {
	f.Add([]byte(EncodeError(&toolcrib.Error{Code: toolcrib.CodeNotFound, Message: "m", Err: &Alternatives{Capabilities: []string{"a.b@1.0"}}})))
	f.Add([]byte(`{"error":"capacity_exceeded","retry_after_ms":9223372036854775807}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		e := DecodeError(raw)
		again := DecodeError(EncodeError(e))
		if !slices.Contains(sentCodes, e.Code) || len(e.Message) > maxMessage || e.RetryAfter < 0 || e.RetryAfter > maxRetryAfter ||
			again.Code != e.Code || again.Ref != e.Ref {
			t.Errorf("%q: %+v, %+v", raw, e, again)
		}
	})
}

// FuzzData has a node receive messages of any content in an exchange.
func FuzzData(f *testing.F) {
	f.Add(uint32(0), byte(kindFrame), []byte("x"))
	f.Add(uint32(1), byte(kindDone|more), []byte(`{}`))
	f.Add(uint32(1<<31), byte(kindAck), []byte{1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, number uint32, k byte, payload []byte) {
		if len(payload) > partBytes {
			return
		}
		var l link
		for i := range uint32(40) {
			whole, err := l.receive(noon, message{number: number + i, kind: kind(k), payload: payload})
			for _, w := range whole {
				if len(w.payload) > w.kind.limit() {
					t.Errorf("%d bytes", len(w.payload))
				}
			}
			if err != nil {
				return
			}
		}
		if len(l.early) > reorder || len(l.frames) > window {
			t.Errorf("%d messages and %d frames wait", len(l.early), len(l.frames))
		}
	})
}

// The lengths in front of the parts of an open message are not believed.
func TestEnvelope_HugeLengths(t *testing.T) {
	a, b := testKeys(t, 1), testKeys(t, 2)
	e := sealed(t, a, b, newTestCall(), noon)
	for _, n := range []string{"\xff\xff\xff\xff", "\x7f\xff\xff\xff", "\x00\x01\x00\x00"} {
		changed := bytes.Clone(e.text)
		copy(changed[64:], n)
		_, err := e.with(changed).read(b.Public(), noon)
		refusedWith(t, "a length", err, toolcrib.CodeBadRequest)
	}
	large := newTestCall()
	large.body = json.RawMessage(`"` + strings.Repeat("x", MaxBody) + `"`)
	in, err := sealed(t, a, b, large, noon).read(b.Public(), noon)
	refusedWith(t, "a large body", err, toolcrib.CodeTooLarge)
	if len(in.body) > partBytes {
		t.Errorf("%d bytes of it were received", len(in.body))
	}
	if _, err := kem().NewPublicKey(make([]byte, 31)); err == nil {
		t.Error("a short key was accepted")
	}
	if _, _, err := hpke.NewSender(mustKey(t, make([]byte, 32)), hpke.HKDFSHA256(), hpke.AES128GCM(), nil); err == nil {
		t.Error("the zero key was accepted, which makes a known secret")
	}
}

func mustKey(t *testing.T, raw []byte) hpke.PublicKey {
	t.Helper()
	k, err := kem().NewPublicKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
