package wire_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// plainDecoder accepts any reply that is not a stream.
type plainDecoder struct{ whole bool }

func (d *plainDecoder) Frame(wire.Frame, wire.Emit) (alive, done bool, err error) {
	return true, true, nil
}
func (d *plainDecoder) Whole([]byte, wire.Emit) error { d.whole = true; return nil }
func (d *plainDecoder) Complete() bool                { return true }
func (d *plainDecoder) Finish() toolcrib.Finish       { return toolcrib.Finish{} }

func exchange(t *testing.T, c *wire.Client, parts ...[]byte) {
	t.Helper()
	d := &plainDecoder{}
	h := c.History(wire.FileRules{})
	h.Exchange(t.Context(), "chat", wire.NewBody(parts...), d, func(_ toolcrib.Delta, err error) bool {
		if err != nil {
			t.Error(err)
		}
		return true
	})
	if !d.whole {
		t.Error("no reply")
	}
}

// lateReader answers at once and reads the bodies later, as a transport may.
type lateReader struct{ bodies []io.ReadCloser }

func (h *lateReader) RoundTrip(req *http.Request) (*http.Response, error) {
	h.bodies = append(h.bodies, req.Body)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), Request: req}, nil
}

// The memory of a body is not reused while a transport may still read it.
func TestBodyStaysWhileItMayBeRead(t *testing.T) {
	rt := &lateReader{}
	c, err := wire.NewClient(wire.Options{BaseURL: "http://api.example", Transport: rt}, "", func(http.Header, string) {})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"the first body", "another", "the third"}
	for _, text := range want {
		exchange(t, c, []byte(text[:3]), []byte(text[3:]))
	}
	for i, b := range rt.bodies {
		if got, err := io.ReadAll(b); err != nil || string(got) != want[i] {
			t.Errorf("body %d: %q, %v", i, got, err)
		}
	}
}

// With many concurrent requests on reused memory, each server receives its own.
func TestBodiesOfManyRequests(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || len(body) == 0 || len(bytes.Trim(body, string(body[:1]))) != 0 {
			http.Error(w, "a mixed body", http.StatusBadRequest)
			return
		}
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	c, err := wire.NewClient(wire.Options{BaseURL: server.URL, Proxy: wire.ProxyNone}, "", func(http.Header, string) {})
	if err != nil {
		t.Fatal(err)
	}
	m := wire.NewModel(c, "models", nil, nil)
	defer m.Close()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 50 {
				part := bytes.Repeat([]byte{byte('a' + i)}, 1+n*97)
				exchange(t, c, part, part)
			}
		})
	}
	wg.Wait()
}

// A transport can send a body again after its connection was lost.
func TestBodyCanBeReadAgain(t *testing.T) {
	rt := roundTrip(func(req *http.Request) (*http.Response, error) {
		for range 2 {
			b, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			if text, err := io.ReadAll(b); err != nil || string(text) != "whole" {
				t.Errorf("read again: %q, %v", text, err)
			}
		}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	})
	c, err := wire.NewClient(wire.Options{BaseURL: "http://api.example", Transport: rt}, "", func(http.Header, string) {})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := c.Post(context.Background(), "x", wire.NewBody([]byte("who"), []byte("le")))
	if err != nil {
		t.Fatal(err)
	}
	reply.Close()
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
