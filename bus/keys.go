package bus

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"

	"github.com/toolcrib/toolcrib"
)

// Key is the public key of a node (Ed25519): 32 bytes as base64url without padding.
type Key string

// KeyPurpose is the purpose under which the seed of a node's keys is derived from the keys of a data folder.
const KeyPurpose = "bus node"

// ParseKey reads the text of a key. The error has the code bad_request.
func ParseKey(text string) (Key, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != ed25519.PublicKeySize || len(text) != 43 {
		return "", toolcrib.Errorf(toolcrib.CodeBadRequest,
			"this is not the key of a node: it has 43 letters, digits, - and _, as `toolcrib bus status` prints it")
	}
	return Key(text), nil
}

func keyOf(raw []byte) Key { return Key(base64.RawURLEncoding.EncodeToString(raw)) }

// verify reports whether the node signed a text.
func (k Key) verify(text, signature []byte) bool {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(string(k))
	return err == nil && len(raw) == ed25519.PublicKeySize && len(k) == 43 && len(signature) == ed25519.SignatureSize &&
		ed25519.Verify(raw, text, signature)
}

// Keys are the secret keys of a node. Printing them does not reveal them.
type Keys struct {
	sign      ed25519.PrivateKey
	agree     hpke.PrivateKey
	public    Key
	agreement []byte // public key of agree
}

// kem is how messages to a node are encrypted (RFC 9180: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM).
func kem() hpke.KEM { return hpke.DHKEM(ecdh.X25519()) }

// NewKeys derives the keys of a node from 32 secret bytes.
func NewKeys(seed []byte) (*Keys, error) {
	if len(seed) != ed25519.SeedSize {
		return nil, toolcrib.Errorf(toolcrib.CodeInternal, "the seed of a node's keys must have %d bytes", ed25519.SeedSize)
	}
	derive := func(info string) ([]byte, error) { return hkdf.Key(sha256.New, seed, nil, "toolcrib bus "+info, 32) }
	sign, err := derive("sign")
	if err != nil {
		return nil, err
	}
	agree, err := derive("agree")
	if err != nil {
		return nil, err
	}
	k := &Keys{sign: ed25519.NewKeyFromSeed(sign)}
	if k.agree, err = kem().DeriveKeyPair(agree); err != nil {
		return nil, err
	}
	k.public = keyOf(k.sign[ed25519.SeedSize:])
	k.agreement = k.agree.PublicKey().Bytes()
	return k, nil
}

// Public returns the key that others know the node by.
func (k *Keys) Public() Key { return k.public }

// Format implements [fmt.Formatter], so that no verb prints the keys.
func (k *Keys) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "keys of "+string(k.public)) // fmt has no use for the error
}
