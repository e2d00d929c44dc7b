package bus

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// A message begins with the version of the protocol and its form:
//
//	card: version 'C' signature[64] JSON
//	open: version 'O' exchange[16] key[32] sealed(signature[64] size[4] hop size[4] rest body…)
//	next: version 'N' exchange[16] session[16] sealed(signature[64] size[4] hop size[4] rest body…)
//	data: version 'D' exchange[16] salt[8] number[4] sealed(kind payload…)
//
// An open message is sealed for the node and instance that it is for (HPKE), and a next message with a key of their
// [session] and the exchange. Data messages are sealed with a key for each direction, which both ends derive from the
// first message. Salt and number are the nonce: if a first message is sent again by somebody else, its answer has
// another salt. Everything before the sealed part is authenticated, and that of a first message is signed.
const (
	protocol = 1
	formCard = 'C'
	formOpen = 'O'
	formNext = 'N'
	formData = 'D'

	openHead = 2 + 16 + 32
	nextHead = 2 + 16 + 16
	dataHead = 2 + 16 + 12
	overhead = 16 // of the seal

	maxHopBytes  = 4 << 10
	maxRestBytes = 96 << 10
	maxOpenBytes = openHead + overhead + ed25519.SignatureSize + 8 + maxHopBytes + maxRestBytes + partBytes
	maxDataBytes = dataHead + overhead + 1 + partBytes
)

// Bounds of an envelope.
const (
	maxHops = 8
	// lasts is the time after which an envelope expires. The clocks of the nodes may differ by clockSkew.
	lasts     = 30 * time.Second
	clockSkew = time.Minute

	maxID      = 128
	maxUser    = 256
	maxTrace   = 256
	maxSession = 256
	maxToken   = 8 << 10
)

// exchangeID identifies an exchange in messages.
type exchangeID [16]byte

// hop is what a node signs when it makes a call. Other nodes see it, if the call leads to calls of them.
type hop struct {
	Version int `json:"v"`
	Hop
	To         Key    `json:"to"`
	ID         string `json:"id"`
	Capability Name   `json:"capability"` // as asked for
	Issued     int64  `json:"iat"`        // milliseconds since 1970
	Expires    int64  `json:"exp"`
	After      string `json:"after,omitempty"` // hash of the hop before
	Rest       string `json:"rest,omitempty"`  // hash of the head of the message and of the rest
}

// signedHop is a hop as its node has signed it. The signature of this node's own may be missing.
type signedHop struct {
	Raw       []byte `json:"hop"`
	Signature []byte `json:"signature"`
	read      hop
	unread    bool // the signature was not verified: the session says who has made the call
}

// rest is what only the serving node sees.
type rest struct {
	Instance string        `json:"instance"` // of the caller
	Lineage  []signedHop   `json:"lineage,omitempty"`
	Token    string        `json:"token,omitempty"`
	Session  string        `json:"session,omitempty"`
	Trace    string        `json:"trace,omitempty"`
	Timeout  time.Duration `json:"timeout_ns,omitempty"`
	Keep     bool          `json:"keep,omitempty"` // the caller may retry the call with the same ID
	Bytes    int           `json:"bytes"`          // of the body
	Hash     string        `json:"hash"`           // of the body
	Ask      []byte        `json:"ask,omitempty"`  // key for a session
}

// incoming is a call as it was received.
type incoming struct {
	hops []signedHop // from the first node on; the last is the caller's
	rest
	body []byte // the part that was received
}

func (in *incoming) last() *hop { return &in.hops[len(in.hops)-1].read }

func hashOf(parts ...[]byte) string {
	h := sha256.New()
	for _, part := range parts {
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

const (
	hopContext  = "toolcrib bus v1 hop\n"
	cardContext = "toolcrib bus v1 card\n"
)

func (k *Keys) signature(context string, text []byte) []byte {
	return ed25519.Sign(k.sign, append([]byte(context), text...))
}

func (k Key) signed(context string, text, signature []byte) bool {
	return k.verify(append([]byte(context), text...), signature)
}

// strict reads JSON that another node has made.
func strict(raw []byte, most int, into any) error {
	canonical, err := guard.JSONLimits{MaxBytes: most, MaxDepth: maxSchemaDepth}.Canonical(raw)
	if err != nil {
		return err
	}
	return json.Unmarshal(canonical, into)
}

// newHop returns the hop of a call after those of its lineage.
func newHop(c *call, self, to Key, now time.Time, restHash string) (signedHop, error) {
	h := hop{
		Version: protocol, Hop: c.from, To: to, ID: c.id, Capability: c.name, Issued: now.UnixMilli(),
		Expires: now.Add(lasts).UnixMilli(), Rest: restHash,
	}
	h.Node = self
	if n := len(c.lineage); n > 0 {
		h.After = hashOf(c.lineage[n-1].Raw)
	}
	raw, err := json.Marshal(h)
	if err == nil && len(raw) > maxHopBytes {
		err = toolcrib.Errorf(toolcrib.CodeBadRequest, "who makes the call is described with more than %d bytes", maxHopBytes)
	}
	return signedHop{Raw: raw, read: h}, err
}

// envelope is the first message of an exchange, opened.
type envelope struct {
	id         exchangeID
	head, text []byte
	in, out    cipher.AEAD
	session    *session // nil for an open message
}

// seal returns the first message of a call, and the ciphers of the exchange. If s is nil, it is an open message for the
// agreement key.
func (k *Keys) seal(
	c *call, self, to Address, agreement []byte, s *session, id exchangeID, now time.Time,
) (raw []byte, in, out cipher.AEAD, err error) {
	head := append([]byte{protocol, formOpen}, id[:]...)
	var seal func(head, text []byte) ([]byte, error)
	if s != nil {
		head[1] = formNext
		head = append(head, s.id[:]...)
		var first cipher.AEAD
		if first, in, out, err = s.ciphers(id); err != nil {
			return nil, nil, nil, err
		}
		seal = func(head, text []byte) ([]byte, error) { return first.Seal(nil, firstNonce, text, head), nil }
	} else {
		public, err := kem().NewPublicKey(agreement)
		if err != nil {
			return nil, nil, nil, err
		}
		enc, sender, err := hpke.NewSender(public, hpke.HKDFSHA256(), hpke.AES128GCM(), sealInfo(to))
		if err != nil {
			return nil, nil, nil, err
		}
		head = append(head, enc...)
		if in, out, err = ciphers(sender.Export); err != nil {
			return nil, nil, nil, err
		}
		seal = sender.Seal
	}
	text, err := k.text(c, self, to, head, now)
	if err != nil {
		return nil, nil, nil, err
	}
	sealed, err := seal(head, text)
	return append(head, sealed...), in, out, err
}

// text returns the content of the first message of a call.
func (k *Keys) text(c *call, self, to Address, head []byte, now time.Time) ([]byte, error) {
	r := rest{
		Instance: self.Instance, Token: c.token, Session: c.session, Trace: c.trace, Timeout: c.timeout, Keep: c.keep,
		Bytes: len(c.body), Hash: hashOf(c.body), Ask: c.ask,
	}
	for _, h := range c.lineage {
		switch {
		case len(h.Signature) == 0: // of this node, for a call within it
			h.Signature = k.signature(hopContext, h.Raw)
		case h.unread && !h.signed():
			return nil, toolcrib.Errorf(toolcrib.CodeSignature, "the call that led to this one is not signed by the node that made it")
		}
		r.Lineage = append(r.Lineage, h)
	}
	restRaw, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(restRaw) > maxRestBytes {
		return nil, toolcrib.Errorf(toolcrib.CodeTooLarge, "the envelope of the call has more than %d bytes", maxRestBytes)
	}
	h, err := newHop(c, self.Node, to.Node, now, hashOf(head, restRaw))
	if err != nil {
		return nil, err
	}
	first := c.body[:min(len(c.body), partBytes)]
	text := slices.Grow(k.signature(hopContext, h.Raw), 8+len(h.Raw)+len(restRaw)+len(first))
	for _, part := range [][]byte{h.Raw, restRaw} {
		text = append(binary.BigEndian.AppendUint32(text, uint32(len(part))), part...)
	}
	return append(text, first...), nil
}

func sealInfo(to Address) []byte {
	return []byte("toolcrib bus v1 open\n" + string(to.Node) + "\n" + to.Instance)
}

// ciphers returns those for messages of the serving node and of the caller.
func ciphers(export func(string, int) ([]byte, error)) (serving, caller cipher.AEAD, err error) {
	if serving, err = cipherFor(export, "serving"); err == nil {
		caller, err = cipherFor(export, "caller")
	}
	return serving, caller, err
}

func cipherFor(export func(string, int) ([]byte, error), use string) (cipher.AEAD, error) {
	key, err := export("toolcrib bus v1 "+use, 16)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

var errForeign = errors.New("the message is not for this instance, or was changed")

// unseal opens an open message.
func (k *Keys) unseal(self Address, raw []byte) (e envelope, err error) {
	if len(raw) < openHead+overhead || len(raw) > maxOpenBytes {
		return e, errForeign
	}
	e.id, e.head = exchangeID(raw[2:18]), slices.Clone(raw[:openHead])
	recipient, err := hpke.NewRecipient(raw[18:openHead], k.agree, hpke.HKDFSHA256(), hpke.AES128GCM(), sealInfo(self))
	if err != nil {
		return e, err
	}
	if e.text, err = recipient.Open(e.head, raw[openHead:]); err != nil {
		return e, err
	}
	e.out, e.in, err = ciphers(recipient.Export)
	return e, err
}

// read reads and verifies the content of a first message. If the caller can get the error, it returns the call
// as well.
func (e envelope) read(self Key, now time.Time) (*incoming, error) {
	text := e.text
	bad := func(what string) (*incoming, error) {
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "the envelope of the call cannot be read: %s", what)
	}
	cut := func(most int) (part []byte, ok bool) {
		if len(text) < 4 {
			return nil, false
		}
		n := binary.BigEndian.Uint32(text)
		if n > uint32(most) || int(n) > len(text)-4 {
			return nil, false
		}
		part, text = text[4:4+n], text[4+n:]
		return part, true
	}
	if len(text) < ed25519.SignatureSize {
		return bad("it is too short")
	}
	h := signedHop{Signature: text[:ed25519.SignatureSize]}
	text = text[ed25519.SignatureSize:]
	var ok, ok2 bool
	var restRaw []byte
	h.Raw, ok = cut(maxHopBytes)
	restRaw, ok2 = cut(maxRestBytes)
	in := &incoming{body: text}
	if !ok || !ok2 {
		return bad("a length is wrong")
	}
	if strict(h.Raw, maxHopBytes, &h.read) != nil || // other nodes may read it, too
		json.Unmarshal(restRaw, &in.rest) != nil || !validInstance(in.Instance) {
		return bad("it is not JSON in the right form")
	}
	if s := e.session; s != nil {
		if s.peer != (Address{h.read.Node, in.Instance}) {
			return bad("its session is that of another node")
		}
		h.unread = true
	}
	in.hops = []signedHop{h} // from here on, the caller is known
	forged := func(what string) (*incoming, error) {
		return in, toolcrib.Errorf(toolcrib.CodeSignature, "%s", what)
	}
	switch {
	case !h.verify():
		return forged("the call is not signed by the node that it names")
	case h.read.Rest != hashOf(e.head, restRaw) || h.read.To != self:
		return forged("the call was signed for another node, or with another content")
	case h.read.Version != protocol:
		return in, toolcrib.Errorf(toolcrib.CodeBadRequest, "the envelope of the call has version %d, and this node reads %d",
			h.read.Version, protocol)
	}
	if err := h.read.inTime(now); err != nil {
		return in, err
	}
	switch {
	case in.Bytes > MaxBody:
		return in, toolcrib.Errorf(toolcrib.CodeTooLarge, "the body of a call has at most %d bytes", MaxBody)
	case in.Bytes < len(in.body), in.Bytes > len(in.body) && len(in.body) != partBytes, len(in.Token) > maxToken,
		len(in.Session) > maxSession, len(in.Trace) > maxTrace, in.Timeout < 0, len(in.Ask) != 0 && len(in.Ask) != 32:
		return in, toolcrib.Errorf(toolcrib.CodeBadRequest, "a field of the call's envelope is too long or out of range")
	}
	in.hops = append(slices.Clip(in.Lineage), h)
	return in, readLineage(in.hops, now)
}

// signed reports whether the hop is signed by its node.
func (h *signedHop) signed() bool { return h.read.Node.signed(hopContext, h.Raw, h.Signature) }

// verify reports whether the hop is signed by its node, if no session says so, and its fields have their bounds.
func (h *signedHop) verify() bool {
	r := &h.read
	return (h.unread || h.signed()) && r.ID != "" && len(r.ID) <= maxID && len(r.User) <= maxUser &&
		len(r.Agent) <= maxUser && len(r.Run) <= maxUser && len(r.Call) <= maxUser
}

// inTime returns an error if a hop is not valid now.
func (h *hop) inTime(now time.Time) error {
	issued, expires := time.UnixMilli(h.Issued), time.UnixMilli(h.Expires)
	if d := expires.Sub(issued); d <= 0 || d > lasts {
		return toolcrib.Errorf(toolcrib.CodeExpired, "the call is valid for %s, and may be for at most %s", d, lasts)
	}
	if now.Add(clockSkew).Before(issued) || now.Add(-clockSkew).After(expires) {
		return toolcrib.Errorf(toolcrib.CodeExpired, "the call was made at %s by the clock of its node, and it is %s at this one; "+
			"set the clocks, or call again", issued.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// readLineage verifies the hops before the last: each was signed for the next, which followed it in time.
func readLineage(hops []signedHop, now time.Time) error {
	forged := toolcrib.Errorf(toolcrib.CodeSignature, "the nodes that led to the call have not signed it")
	if len(hops) > maxHops {
		return tooDeep()
	}
	for i := range hops[:len(hops)-1] {
		h := &hops[i]
		if len(h.Raw) > maxHopBytes || strict(h.Raw, maxHopBytes, &h.read) != nil || !h.verify() {
			return forged
		}
	}
	if hops[0].read.After != "" {
		return forged
	}
	for i := range hops[:len(hops)-1] {
		from, to := &hops[i], &hops[i+1].read
		if from.read.To != to.Node || to.After != hashOf(from.Raw) {
			return forged
		}
		if issued := time.UnixMilli(from.read.Issued); now.Sub(issued) > MaxTimeout+clockSkew || issued.Sub(now) > clockSkew {
			return toolcrib.Errorf(toolcrib.CodeExpired, "the call that led to this one was made at %s by the clock of its node, and it "+
				"is %s at this one", issued.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

func tooDeep() error {
	return toolcrib.Errorf(toolcrib.CodeBadRequest, "the call is more than %d calls deep: does a capability call itself?", maxHops)
}

// validInstance reports whether a text can be the ID of an instance.
func validInstance(text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return text != "" && len(text) <= 32
}

// salt is part of the nonces of one end of an exchange.
type salt [8]byte

// sealData returns a data message.
func sealData(c cipher.AEAD, id exchangeID, by salt, m message) []byte {
	raw := make([]byte, 0, dataHead+1+len(m.payload)+overhead)
	raw = append(append(append(raw, protocol, formData), id[:]...), by[:]...)
	raw = binary.BigEndian.AppendUint32(raw, m.number)
	head := raw[:dataHead:dataHead]
	raw = append(append(raw, byte(m.kind)), m.payload...)
	return c.Seal(raw[:dataHead], head[dataHead-12:], raw[dataHead:], head)
}

// openData opens a data message.
func openData(c cipher.AEAD, raw []byte) (by salt, m message, ok bool) {
	if len(raw) < dataHead+1+overhead || len(raw) > maxDataBytes {
		return by, m, false
	}
	by, m.number = salt(raw[18:26]), binary.BigEndian.Uint32(raw[26:])
	text, err := c.Open(nil, raw[dataHead-12:dataHead], raw[dataHead:], raw[:dataHead])
	if err != nil || len(text) == 0 {
		return by, m, false
	}
	m.kind, m.payload = kind(text[0]), text[1:]
	return by, m, true
}

// callBody returns the JSON of a call's body.
func callBody(params, input json.RawMessage) (json.RawMessage, error) {
	b := bytes.NewBufferString("{")
	for _, part := range []struct {
		name  string
		value json.RawMessage
	}{{"params", params}, {"input", input}} {
		if len(part.value) == 0 {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + part.name + `":`)
		b.Write(part.value)
	}
	b.WriteByte('}')
	if b.Len() > MaxBody {
		return nil, toolcrib.Errorf(toolcrib.CodeTooLarge, "the body of a call has at most %d bytes", MaxBody)
	}
	canonical, err := guard.JSONLimits{MaxBytes: MaxBody, MaxDepth: maxSchemaDepth}.Canonical(b.Bytes())
	if err != nil {
		return nil, badBody(err)
	}
	return canonical, nil
}

func badBody(err error) error {
	return toolcrib.Errorf(toolcrib.CodeBadRequest, "the body of the call: %v", err)
}
