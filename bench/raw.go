package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// The raw wire: the bytes of the hand-written loop's requests and of the replies to
// them, over a bare connection. Nothing is encoded, decoded or understood; what is
// left is what the kernel and the scheduler take, and no loop can be below it.

// rawWire has the requests of each kind of run, recorded once.
type rawWire struct {
	url      string
	stream   bool
	mu       sync.Mutex
	requests map[string][][]byte // by model
	idle     []*rawConn
}

type rawConn struct {
	net.Conn
	r *bufio.Reader
}

func (w *rawWire) run(ctx context.Context, model string, _ int) (string, error) {
	requests, err := w.recorded(ctx, model)
	if err != nil {
		return "", err
	}
	c, err := w.take()
	if err != nil {
		return "", err
	}
	for _, r := range requests {
		if err := c.exchange(r); err != nil {
			_ = c.Close()
			return "", err
		}
	}
	w.mu.Lock()
	w.idle = append(w.idle, c)
	w.mu.Unlock()
	return mockAnswer, nil
}

func (w *rawWire) take() (*rawConn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.idle); n > 0 {
		c := w.idle[n-1]
		w.idle = w.idle[:n-1]
		return c, nil
	}
	c, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		return nil, err
	}
	return &rawConn{Conn: c, r: bufio.NewReaderSize(c, 64<<10)}, nil
}

func (w *rawWire) close() {
	for _, c := range w.idle {
		_ = c.Close()
	}
}

// exchange sends a request and reads its reply to the end.
func (c *rawConn) exchange(request []byte) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	size := -1
	for first := true; ; first = false {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
			return fmt.Errorf("raw wire: %q", line)
		}
		if len(line) == 2 {
			break
		}
		if n, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if size, err = strconv.Atoi(string(bytes.TrimSpace(n))); err != nil {
				return err
			}
		}
	}
	if size >= 0 {
		_, err := c.r.Discard(size)
		return err
	}
	for { // chunks
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 32)
		if err != nil {
			return err
		}
		if _, err := c.r.Discard(int(n) + 2); err != nil || n == 0 {
			return err
		}
	}
}

// recorded returns the requests of a run, made by running it once by hand.
func (w *rawWire) recorded(ctx context.Context, model string) ([][]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r, ok := w.requests[model]; ok {
		return r, nil
	}
	rec := &recorder{}
	if answer, err := floorRun(ctx, &http.Client{Transport: rec}, w.url, model, w.stream, nil); err != nil ||
		answer != mockAnswer {
		return nil, errors.Join(fmt.Errorf("raw wire: the run that was to be recorded answered %q", answer), err)
	}
	if w.requests == nil {
		w.requests = make(map[string][][]byte)
	}
	w.requests[model] = rec.requests
	return rec.requests, nil
}

// recorder keeps each request as it goes over the wire.
type recorder struct{ requests [][]byte }

// RoundTrip implements http.RoundTripper.
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	var b bytes.Buffer
	if err := req.Write(&b); err != nil {
		return nil, err
	}
	r.requests = append(r.requests, b.Bytes())
	req.Body = io.NopCloser(bytes.NewReader(body))
	return http.DefaultTransport.RoundTrip(req)
}
