package address

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// secretPrefix begins a secret of Standard Webhooks that is written in base64.
const secretPrefix = "whsec_"

// minKey is the shortest key that signs, in bytes.
const minKey = 16

// Key reads the secret of a webhook: whsec_ and base64, or any other text of at least
// 16 bytes, which is taken as it is. The error holds nothing of it.
func Key(secret string) ([]byte, error) {
	key := []byte(secret)
	if text, ok := strings.CutPrefix(secret, secretPrefix); ok {
		var err error
		if key, err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, errors.New("begins with whsec_, but what follows is no base64")
		}
	}
	if len(key) < minKey {
		return nil, fmt.Errorf("is too short: a key has at least %d bytes", minKey)
	}
	return key, nil
}

// Secret writes a key as a receiver is given it.
func Secret(key []byte) string { return secretPrefix + base64.StdEncoding.EncodeToString(key) }
