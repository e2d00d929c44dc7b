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
//	data: version 'D' exchange[16] salt[8] number[4] sealed(kind payload…)
//
// An open message is sealed for the node and instance that it is for (HPKE). Data messages are sealed with a key for
// each direction, which both ends export from the open message. Salt and number are the nonce: if an open message is
// sent again by somebody else, its answer has another salt. All before the sealed part is authenticated.
const (
	protocol = 1
	formCard = 'C'
	formOpen = 'O'
	formData = 'D'

	openHead = 2 + 16 + 32
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
	Rest       string `json:"rest,omitempty"`  // hash of the rest
}

// signedHop is a hop as its node has signed it. The signature of this node's own may be missing.
type signedHop struct {
	Raw       []byte `json:"hop"`
	Signature []byte `json:"signature"`
	read      hop
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
}

// incoming is a call as it was received.
type incoming struct {
	hops []signedHop // from the first node on; the last is the caller's
	rest
	body []byte // the part that was received
}

func (in *incoming) last() *hop { return &in.hops[len(in.hops)-1].read }

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
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

// seal returns the open message of a call, and the ciphers of the exchange.
func (k *Keys) seal(
	c *call, self, to Address, agreement []byte, id exchangeID, now time.Time,
) (raw []byte, in, out cipher.AEAD, err error) {
	r := rest{
		Instance: self.Instance, Token: c.token, Session: c.session, Trace: c.trace, Timeout: c.timeout, Keep: c.keep,
		Bytes: len(c.body), Hash: hashOf(c.body),
	}
	for _, h := range c.lineage {
		if len(h.Signature) == 0 { // of this node, for a call within it
			h.Signature = k.signature(hopContext, h.Raw)
		}
		r.Lineage = append(r.Lineage, h)
	}
	restRaw, err := json.Marshal(r)
	if err != nil {
		return nil, nil, nil, err
	}
	if len(restRaw) > maxRestBytes {
		return nil, nil, nil, toolcrib.Errorf(toolcrib.CodeTooLarge, "the envelope of the call has more than %d bytes", maxRestBytes)
	}
	h, err := newHop(c, self.Node, to.Node, now, hashOf(restRaw))
	if err != nil {
		return nil, nil, nil, err
	}
	first := c.body[:min(len(c.body), partBytes)]
	text := slices.Grow(k.signature(hopContext, h.Raw), 8+len(h.Raw)+len(restRaw)+len(first))
	for _, part := range [][]byte{h.Raw, restRaw} {
		text = append(binary.BigEndian.AppendUint32(text, uint32(len(part))), part...)
	}
	text = append(text, first...)

	public, err := kem().NewPublicKey(agreement)
	if err != nil {
		return nil, nil, nil, err
	}
	enc, sender, err := hpke.NewSender(public, hpke.HKDFSHA256(), hpke.AES128GCM(), sealInfo(to))
	if err != nil {
		return nil, nil, nil, err
	}
	head := append(append([]byte{protocol, formOpen}, id[:]...), enc...)
	sealed, err := sender.Seal(head, text)
	if err != nil {
		return nil, nil, nil, err
	}
	in, out, err = ciphers(sender.Export)
	return append(head, sealed...), in, out, err
}

func sealInfo(to Address) []byte {
	return []byte("toolcrib bus v1 open\n" + string(to.Node) + "\n" + to.Instance)
}

// ciphers returns those for messages of the serving node and of the caller.
func ciphers(export func(string, int) ([]byte, error)) (serving, caller cipher.AEAD, err error) {
	of := func(direction string) (cipher.AEAD, error) {
		key, err := export("toolcrib bus v1 "+direction, 16)
		if err != nil {
			return nil, err
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		return cipher.NewGCM(block)
	}
	if serving, err = of("serving"); err == nil {
		caller, err = of("caller")
	}
	return serving, caller, err
}

var errForeign = errors.New("the message is not for this instance, or was changed")

// unseal opens an open message.
func (k *Keys) unseal(self Address, raw []byte) (id exchangeID, text []byte, in, out cipher.AEAD, err error) {
	if len(raw) < openHead+overhead || len(raw) > maxOpenBytes {
		return id, nil, nil, nil, errForeign
	}
	id = exchangeID(raw[2:18])
	recipient, err := hpke.NewRecipient(raw[18:openHead], k.agree, hpke.HKDFSHA256(), hpke.AES128GCM(), sealInfo(self))
	if err != nil {
		return id, nil, nil, nil, err
	}
	if text, err = recipient.Open(raw[:openHead], raw[openHead:]); err != nil {
		return id, nil, nil, nil, err
	}
	out, in, err = ciphers(recipient.Export)
	return id, text, in, out, err
}

// readOpen reads and verifies the content of an open message. If the error can be told to the caller, it returns the
// call as well.
func readOpen(text []byte, self Key, now time.Time) (*incoming, error) {
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
	if strict(h.Raw, maxHopBytes, &h.read) != nil || strict(restRaw, maxRestBytes, &in.rest) != nil ||
		!validInstance(in.Instance) {
		return bad("it is not JSON in the right form")
	}
	in.hops = []signedHop{h} // from here on, the caller is known
	forged := func(what string) (*incoming, error) {
		return in, toolcrib.Errorf(toolcrib.CodeSignature, "%s", what)
	}
	switch {
	case !h.verify():
		return forged("the call is not signed by the node that it names")
	case h.read.Rest != hashOf(restRaw) || h.read.To != self:
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
		len(in.Session) > maxSession, len(in.Trace) > maxTrace, in.Timeout < 0:
		return in, toolcrib.Errorf(toolcrib.CodeBadRequest, "a field of the call's envelope is too long or out of range")
	}
	in.hops = append(slices.Clip(in.Lineage), h)
	return in, readLineage(in.hops, now)
}

// verify reports whether the hop is signed by its node and its fields have their bounds.
func (h *signedHop) verify() bool {
	r := &h.read
	return r.Node.signed(hopContext, h.Raw, h.Signature) && r.ID != "" && len(r.ID) <= maxID && len(r.User) <= maxUser &&
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
	return readBody(b.Bytes())
}

// readBody returns a body in canonical form.
func readBody(raw []byte) (json.RawMessage, error) {
	canonical, err := guard.JSONLimits{MaxBytes: MaxBody, MaxDepth: maxSchemaDepth}.Canonical(raw)
	if err == nil && (len(canonical) == 0 || canonical[0] != '{') {
		err = errors.New("it is not an object")
	}
	if err != nil {
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "the body of the call: %v", err)
	}
	return canonical, nil
}
