package rpc_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/toolcrib/toolcrib/mcp/internal/rpc"
)

var messages = []string{
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":[1,2]}}}`,
	`{"jsonrpc":"2.0","id":"a","method":"ping"}`,
	`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
	`{"jsonrpc":"2.0","id":null,"method":"notifications/x"}`,
	`{"jsonrpc":"2.0","id":1,"method":""}`,
	`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`,
	`{"jsonrpc":"2.0","id":1,"result":{}, "error":null}`,
	`{"jsonrpc":"2.0","id":9,"error":{"code":-32601,"message":"unknown","data":{"a":1}}}`,
	`{"jsonrpc":"2.0","id":1,"id":2,"result":{"text":"` + "a\xffb" + `"}}`,
	`{"jsonrpc":"2.0","id":1,"ID":2,"Method":"x","result":{}}`,
	` {"jsonrpc" : "2.0", "\u006dethod":"x", "other": [{}]} `,
	`{"jsonrpc":"1.0","id":1,"result":{}}`,
	`{"id":1,"result":{}}`,
	`{"jsonrpc":"2.0"}`,
	`{"jsonrpc":"2.0","id":{},"result":{}}`,
	`{"jsonrpc":"2.0","id":true,"method":"x"}`,
	`{"jsonrpc":"2.0","id":1,"method":7}`,
	`{"jsonrpc":2,"id":1,"method":"x"}`,
	`{"jsonrpc":"2.0","id":1,"error":"no"}`,
	`{"jsonrpc":"2.0","id":1,"result":{}`,
	`{}`, `null`, `[]`, `7`, `"x"`, ``, `listening on port 7`,
	strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000),
}

// The SDK reads the same in each message, and refuses the same.
func TestDecode_AsTheSDK(t *testing.T) {
	for _, text := range messages {
		got, err := rpc.Decode([]byte(text))
		want, refused := jsonrpc.DecodeMessage([]byte(text))
		if (err == nil) != (refused == nil) {
			t.Errorf("%.100q: %v, want %v", text, err, refused)
			continue
		}
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%.100q:\n%#v, want\n%#v", text, got, want)
		}
	}
}

func TestDecode_SaysWhatIsNoMessage(t *testing.T) {
	for text, want := range map[string]bool{`null`: true, `[1/3] compiling`: true, `[1]`: true, `{"a":}`: true, `{}`: true, `{"level":"info"}`: true, `{"jsonrpc":"1.0"}`: false} {
		if _, err := rpc.Decode([]byte(text)); errors.Is(err, rpc.ErrNoMessage) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := rpc.Decode([]byte(messages[0])); err != nil {
			b.Fatal(err)
		}
	}
}
