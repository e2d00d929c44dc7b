package secret

import (
	"errors"
	"strings"

	"filippo.io/age"
)

// KeyPurpose is the purpose under which the seed of the identity is derived from the
// keys of a data folder (store.Keys.Derive).
const KeyPurpose = "secrets"

// seedBytes is the size of an X25519 key.
const seedBytes = 32

// NewIdentity makes the identity whose secret key is the seed of 32 bytes. It prints
// as age writes identities, so a file of secrets can be opened with `age -d -i` too.
func NewIdentity(seed []byte) (*age.X25519Identity, error) {
	if len(seed) != seedBytes {
		return nil, errors.New("the key of the secrets must have 32 bytes")
	}
	return age.ParseX25519Identity(strings.ToUpper(bech32("age-secret-key-", seed)))
}

// bech32 encodes data as BIP 173 says, in small letters. age takes an identity in
// this form only.
func bech32(prefix string, data []byte) string {
	const alphabet = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
	words := fives(data)
	var out strings.Builder
	out.WriteString(prefix + "1")
	for _, w := range append(words, checksum(prefix, words)...) {
		out.WriteByte(alphabet[w])
	}
	return out.String()
}

// fives regroups bytes into words of five bits, filled up with zeros.
func fives(data []byte) []byte {
	var words []byte
	bits, n := 0, 0
	for _, b := range data {
		bits, n = bits<<8|int(b), n+8
		for n >= 5 {
			n -= 5
			words = append(words, byte(bits>>n&31))
		}
		bits &= 1<<n - 1
	}
	if n > 0 {
		words = append(words, byte(bits<<(5-n)&31))
	}
	return words
}

func checksum(prefix string, words []byte) []byte {
	var all []byte
	for i := range len(prefix) {
		all = append(all, prefix[i]>>5)
	}
	all = append(all, 0)
	for i := range len(prefix) {
		all = append(all, prefix[i]&31)
	}
	all = append(append(all, words...), 0, 0, 0, 0, 0, 0)
	sum := uint32(1)
	for _, v := range all {
		top := sum >> 25
		sum = sum&0x1ffffff<<5 ^ uint32(v)
		for i, generator := range [5]uint32{0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3} {
			if top>>i&1 == 1 {
				sum ^= generator
			}
		}
	}
	sum ^= 1
	out := make([]byte, 6)
	for i := range out {
		out[i] = byte(sum >> (5 * (5 - i)) & 31)
	}
	return out
}
