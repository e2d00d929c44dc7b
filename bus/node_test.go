package bus_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bus"
)

func TestH18_CallAnotherNode(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		b.offer(t, "test.echo@1.2", echo)
		settle()
		got, err := a.Call(t.Context(), bus.Request{Name: name(t, "test.echo@1.1"), Params: json.RawMessage(`{"b":1,"a":2}`), Input: json.RawMessage(`"x"`)})
		if err != nil || string(got) != `{"input":"x","params":{"a":2,"b":1}}` {
			t.Fatalf("%s, %v", got, err)
		}
		known := a.Known()
		if len(known) != 1 || known[0].Node != b.key || known[0].Name.String() != "test.echo@1.2" || known[0].Local {
			t.Errorf("known: %+v", known)
		}
		if peers := a.Peers(); len(peers) != 1 || peers[0].Node != b.key || peers[0].Capabilities != 1 {
			t.Errorf("peers: %+v", peers)
		}
		for _, asked := range []string{"test.echo@1.3", "test.echo@2.0", "test.other@1.0"} {
			_, err := a.Call(t.Context(), bus.Request{Name: name(t, asked)})
			code(t, err, toolcrib.CodeNotFound)
			_, err = a.Call(t.Context(), bus.Request{Name: name(t, asked), To: b.key})
			code(t, err, toolcrib.CodeNotFound)
			var alt *bus.Alternatives
			if strings.HasPrefix(asked, "test.echo") && (!errors.As(err, &alt) || len(alt.Capabilities) != 1 || alt.Capabilities[0] != "test.echo@1.2") {
				t.Errorf("%s: no alternatives in %v", asked, err)
			}
		}
	})
}

func TestH11_Stream(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		serve := func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
			for i := range 100 {
				if err := x.Send(ctx, bus.Frame{Event: "token", Data: json.RawMessage(`{"text":"t"}`)}); err != nil {
					return nil, err
				}
				if i == 50 { // a tool of the caller
					if err := x.Send(ctx, bus.Frame{Event: "tool_call", Data: json.RawMessage(`{}`)}); err != nil {
						return nil, err
					}
					f, err := x.Recv(ctx)
					if err != nil || f.Event != "tool_result" || string(f.Data) != `{"v":7}` {
						t.Errorf("%+v, %v", f, err)
					}
				}
			}
			return json.RawMessage(`{"n":100}`), nil
		}
		reads := func(d *bus.Descriptor) { d.Reads = true }
		b.offer(t, "test.stream@1.0", serve, reads)
		a.offer(t, "test.local@1.0", serve, reads)
		settle()
		for _, n := range []string{"test.stream@1.0", "test.local@1.0"} {
			x, err := a.Open(t.Context(), bus.Request{Name: name(t, n)})
			if err != nil {
				t.Fatal(err)
			}
			tokens := 0
			for {
				f, err := x.Recv(t.Context())
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if f.Event == "token" {
					tokens++
				} else if err := x.Send(t.Context(), bus.Frame{Event: "tool_result", Data: json.RawMessage(`{"v":7}`)}); err != nil {
					t.Fatal(err)
				}
			}
			got, err := x.Result(t.Context())
			if tokens != 100 || err != nil || string(got) != `{"n":100}` {
				t.Errorf("%s: %d tokens, %s, %v", n, tokens, got, err)
			}
			if _, err := x.Recv(t.Context()); !errors.Is(err, io.EOF) {
				t.Errorf("after the end: %v", err)
			}
		}
	})
}

// receiver is a transport whose receipt of messages begins late.
type receiver struct {
	*mailbox
	early bool // a message was sent before
}

func (r *receiver) Broadcast(message []byte) error {
	r.early = true
	return r.mailbox.Broadcast(message)
}

func (r *receiver) Receive(self bus.Address, receive func([]byte)) (func(), error) {
	time.Sleep(time.Second)
	if r.early {
		return nil, errors.New("the node asks for answers that it cannot receive")
	}
	return r.mailbox.Receive(self, receive)
}

// A node asks who is there once it receives the answers.
func TestReceivesBeforeItAsks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		net.join(t, 0).offer(t, "test.x@1.0", echo)
		b := net.join(t, 1, func(o *bus.Options) { o.Transport = &receiver{mailbox: &mailbox{network: net}} })
		settle()
		if len(b.Known()) != 1 {
			t.Errorf("known %+v", b.Known())
		}
	})
}

// A handler whose first frames are large and are read late is accepted before them.
func TestLargeFramesFirst(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		large := json.RawMessage(`"` + strings.Repeat("f", 600<<10) + `"`)
		b.offer(t, "test.large@1.0", func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
			for range 3 { // more than the caller takes without reading
				if err := x.Send(ctx, bus.Frame{Event: "data", Data: large}); err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
		settle()
		x, err := a.Open(t.Context(), bus.Request{Name: name(t, "test.large@1.0")})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for range 3 {
			if f, err := x.Recv(t.Context()); err != nil || len(f.Data) != len(large) {
				t.Fatalf("%d bytes, %v", len(f.Data), err)
			}
		}
		if _, err := x.Result(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestStreamWaitsForASlowReader(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		sent := make(chan int, 1000)
		serve := func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
			for i := range 200 {
				if err := x.Send(ctx, bus.Frame{Event: "token"}); err != nil {
					return nil, err
				}
				sent <- i
			}
			return nil, nil
		}
		reads := func(d *bus.Descriptor) { d.Reads = true }
		b.offer(t, "test.stream@1.0", serve, reads)
		a.offer(t, "test.local@1.0", serve, reads)
		settle()
		for _, n := range []string{"test.stream@1.0", "test.local@1.0"} {
			x, err := a.Open(t.Context(), bus.Request{Name: name(t, n)})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
			if len(sent) != 16 {
				t.Errorf("%s: %d frames were sent, and nobody has read one", n, len(sent))
			}
			if _, err := x.Result(t.Context()); err != nil || len(sent) != 200 {
				t.Errorf("%d frames, %v", len(sent), err)
			}
			for len(sent) > 0 {
				<-sent
			}
		}
	})
}

// A stream that has ended waits for its reader, too.
func TestResultWaitsForASlowReader(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		b.offer(t, "test.stream@1.0", func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
			for range 16 {
				if err := x.Send(ctx, bus.Frame{Event: "token"}); err != nil {
					return nil, err
				}
			}
			return json.RawMessage(`7`), nil
		}, func(d *bus.Descriptor) { d.Timeout = 10 * time.Minute })
		settle()
		x, err := a.Open(t.Context(), bus.Request{Name: name(t, "test.stream@1.0")})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if got, err := x.Result(t.Context()); err != nil || string(got) != "7" {
			t.Errorf("%s, %v", got, err)
		}
	})
}

func TestH21_ErrorsAreCarriedUnchanged(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		for i, c := range []toolcrib.Code{
			"bad_request", "schema_mismatch", "invalid_signature", "unauthorized", "token_invalid", "token_revoked", "revoked",
			"token_scope_insufficient", "federation_forbidden", "not_found", "timeout", "expired", "token_expired", "rate_limited",
			"capacity_exceeded", "internal_error", "not_implemented", "partition",
		} {
			want := &toolcrib.Error{Code: c, Message: "message of " + string(c), RetryAfter: time.Duration(i) * time.Millisecond, Ref: "r"}
			n := name(t, "test."+strings.ReplaceAll(string(c), "_", "-")+"@1.0")
			for _, at := range []*member{a, b} {
				at.offer(t, n.String(), func(context.Context, *bus.Exchange) (json.RawMessage, error) { return nil, want })
			}
			settle()
			for _, at := range []*member{a, b} {
				_, err := a.Call(t.Context(), bus.Request{Name: n, To: at.key})
				var e *toolcrib.Error
				if !errors.As(err, &e) || e.Code != c || e.Message != want.Message || e.RetryAfter != want.RetryAfter || e.Ref != "r" {
					t.Errorf("%s: %#v", c, err)
				}
			}
		}
		b.offer(t, "test.panic@1.0", func(context.Context, *bus.Exchange) (json.RawMessage, error) { panic("secret") })
		b.offer(t, "test.fail@1.0", func(context.Context, *bus.Exchange) (json.RawMessage, error) { return nil, errors.New("secret") })
		b.offer(t, "test.broken@1.0", func(context.Context, *bus.Exchange) (json.RawMessage, error) { return json.RawMessage(`{"secret`), nil })
		settle()
		for _, n := range []string{"test.panic@1.0", "test.fail@1.0", "test.broken@1.0"} {
			_, err := a.Call(t.Context(), bus.Request{Name: name(t, n)})
			var e *toolcrib.Error
			if !errors.As(err, &e) || e.Code != toolcrib.CodeInternal || e.Ref == "" || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", n, err)
			}
		}
	})
}

func TestH4_SchemasOfBothEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		lax := net.join(t, 2, func(o *bus.Options) { o.Schema = nil })
		calls := 0
		d := bus.Descriptor{
			Name:     name(t, "test.typed@1.0"),
			Request:  json.RawMessage(`{"type":"object","properties":{"input":{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}},"required":["input"]}`),
			Response: json.RawMessage(`{"type":"integer"}`),
			Stream:   json.RawMessage(`{"type":"string"}`),
		}
		serve := func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
			calls++
			var in struct{ Input struct{ N int } }
			if err := json.Unmarshal(x.Body, &in); err != nil {
				return nil, err
			}
			switch in.Input.N {
			case 1:
				return json.RawMessage(`1`), nil
			case 2:
				return json.RawMessage(`"no number"`), nil
			default:
				if err := x.Send(ctx, bus.Frame{Event: "token", Data: json.RawMessage(`5`)}); err != nil {
					return nil, err
				}
				return json.RawMessage(`3`), nil
			}
		}
		for _, at := range []*member{b, lax} {
			if err := at.Offer(d, serve); err != nil {
				t.Fatal(err)
			}
		}
		settle()
		for _, from := range []*member{a, lax} { // lax does not check what it sends
			_, err := from.Call(t.Context(), bus.Request{Name: d.Name, To: b.key, Input: json.RawMessage(`{"n":"x"}`)})
			code(t, err, toolcrib.CodeSchemaMismatch)
			var alt *bus.Alternatives
			if !errors.As(err, &alt) || alt.SchemaHash != d.SchemaHash() {
				t.Errorf("no hash of the schema in %v", err)
			}
		}
		if calls != 0 {
			t.Errorf("the handler ran %d times", calls)
		}
		if got, err := a.Call(t.Context(), bus.Request{Name: d.Name, To: b.key, Input: json.RawMessage(`{"n":1}`)}); err != nil || string(got) != "1" {
			t.Errorf("%s, %v", got, err)
		}
		_, err := a.Call(t.Context(), bus.Request{Name: d.Name, To: b.key, Input: json.RawMessage(`{"n":2}`)})
		code(t, err, toolcrib.CodeInternal)
		for _, n := range []string{`{"n":2}`, `{"n":3}`} { // the caller checks the answers of a node that does not
			x, err := a.Open(t.Context(), bus.Request{Name: d.Name, To: lax.key, Input: json.RawMessage(n)})
			if err != nil {
				t.Fatal(err)
			}
			_, err = x.Recv(t.Context())
			code(t, err, toolcrib.CodeSchemaMismatch)
		}
		bad := d
		bad.Name, bad.Request = name(t, "test.bad@1.0"), json.RawMessage(`{"type":"nonsense"}`)
		code(t, b.Offer(bad, serve), toolcrib.CodeSchemaMismatch)
		code(t, b.Offer(d, serve), toolcrib.CodeConflict)
		d.Name = name(t, "node.x@1.0")
		code(t, b.Offer(d, serve), toolcrib.CodeBadRequest)
	})
}
