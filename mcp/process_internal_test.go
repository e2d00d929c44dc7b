package mcp

import (
	"errors"
	"testing"

	"github.com/toolcrib/toolcrib/mcp/internal/rpc"
)

// Older servers may send several messages at once.
func TestDecode_Batch(t *testing.T) {
	answer := `{"jsonrpc":"2.0","id":1,"result":{}}`
	for text, want := range map[string]int{
		answer: 1, "[" + answer + "]": 1, "[" + answer + `,{"level":"info"}]`: 1, "[" + answer + `,{"jsonrpc":"2.0","method":"notifications/message"}]`: 2,
	} {
		if list, err := decode([]byte(text)); err != nil || len(list) != want {
			t.Errorf("%s: %d messages, %v", text, len(list), err)
		}
	}
	for text, noise := range map[string]bool{
		"[]": true, "[1/3] compiling": true, "[7]": true, "ready": true, `{"level":"info","method":"GET","id":1}`: true,
		`[{"level":"info"}]`: true, `{"jsonrpc":"1.0","id":1,"result":{}}`: false,
		"[" + answer + `,{"jsonrpc":"2.0"}]`: false,
	} {
		if _, err := decode([]byte(text)); err == nil || errors.Is(err, rpc.ErrNoMessage) != noise {
			t.Errorf("%s: %v", text, err)
		}
	}
}
