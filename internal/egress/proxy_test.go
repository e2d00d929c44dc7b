package egress_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/egress"
	"github.com/toolcrib/toolcrib/internal/hosts"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/internal/waittest"
)

// serve starts a proxy that reaches the hosts of a list, but not the entries that begin with !, and returns it with a
// client for it and a function that ends it.
func serve(t *testing.T, b *egress.Budget, allow ...string) (*egress.Proxy, *http.Client, string, func()) {
	t.Helper()
	var deny []string
	allow = slices.DeleteFunc(allow, func(entry string) bool {
		denied, ok := strings.CutPrefix(entry, "!")
		if ok {
			deny = append(deny, denied)
		}
		return ok
	})
	list, err := hosts.NewList(allow)
	if err != nil {
		t.Fatal(err)
	}
	not, err := hosts.NewList(deny)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &egress.Proxy{
		Guard: &egress.Guard{Key: "tools.shell.network", Allow: list, Deny: not, AllowPrivate: true}, Budget: b,
		Call: toolcrib.Call{Run: "run_1"},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Serve(ctx, l)
	}()
	end := func() {
		cancel()
		<-done
	}
	t.Cleanup(end)
	address := l.Addr().String()
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: address})}}
	t.Cleanup(client.CloseIdleConnections)
	return p, client, address, end
}

func get(c *http.Client, address string) (int, string, error) {
	response, err := c.Get(address)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// What is denied below a path is not reached by CONNECT either, where the path is not known.
func TestC12_DeniedPathsInTunnels(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	at := server.Listener.Addr().String()
	for _, scheme := range []string{"https", "http"} {
		p, client, _, _ := serve(t, &egress.Budget{}, at, "!"+scheme+"://"+at+"/admin/")
		client.Transport.(*http.Transport).TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig
		if _, _, err := get(client, "https://"+at+"/"); err == nil || len(p.Records()) != 1 || p.Records()[0].Refused == nil {
			t.Errorf("%s: %v %+v", scheme, err, p.Records())
		}
	}
}

// Listed hosts are reached by HTTP and by CONNECT; each is recorded, and so is a host that is refused.
func TestC12_ProxyRecords(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Proxy-Authorization") != "" || r.Header.Get("X-Forwarded-For") != "" {
			t.Errorf("%v", r.Header)
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, r.URL.RequestURI(), " ", string(body))
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	p, client, _, _ := serve(t, &egress.Budget{}, plain.Listener.Addr().String(), secure.Listener.Addr().String())
	client.Transport.(*http.Transport).TLSClientConfig = secure.Client().Transport.(*http.Transport).TLSClientConfig
	for _, base := range []string{plain.URL, secure.URL} {
		if status, body, err := get(client, base+"/a?b=1;c"); err != nil || status != 200 || body != "/a?b=1;c " {
			t.Errorf("%s: %d %q %v", base, status, body, err)
		}
	}
	request, err := http.NewRequest(http.MethodPost, plain.URL+"/p", strings.NewReader("data"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Proxy-Authorization", "Basic x")
	response, err := client.Do(request)
	if err != nil || response.StatusCode != 200 {
		t.Fatal(response, err)
	}
	response.Body.Close() //nolint:errcheck // it is not read
	status, body, err := get(client, "http://other.test/")
	if err != nil || status != 403 || !strings.Contains(body, `other.test is not in tools.shell.network, where a person can add "other.test"`) {
		t.Errorf("%d %q %v", status, body, err)
	}
	if _, _, err := get(client, "https://third.test/"); err == nil {
		t.Error("reached")
	}
	records := map[string]egress.Record{}
	for _, r := range p.Records() {
		records[r.Host] = r
	}
	one, two := records[plain.Listener.Addr().String()], records[secure.Listener.Addr().String()]
	if one.Connections != 2 || one.Sent < 100 || one.Received < 100 || two.Connections != 1 || two.Received < 100 || one.Refused != nil {
		t.Errorf("%+v", records)
	}
	if records["other.test:80"].Refused == nil || records["third.test:443"].Refused == nil || len(records) != 4 {
		t.Errorf("%+v", records)
	}
}

// The bounds of a session apply to what programs transfer, in both directions.
func TestX11_ProxyIsCounted(t *testing.T) {
	var got atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		got.Add(n)
		_, _ = io.WriteString(w, strings.Repeat("a", 4000))
	}))
	defer server.Close()
	at := server.Listener.Addr().String()
	dir := t.TempDir()
	budget := func() *egress.Budget {
		return &egress.Budget{Bytes: 10_000, Files: safefile.Folder{Dir: dir}}
	}
	few := budget()
	few.Bytes, few.Hosts = 0, 1
	_, client, _, end := serve(t, few, at, "*.test")
	if _, body, err := get(client, server.URL); err != nil || len(body) != 4000 {
		t.Fatal(len(body), err)
	}
	if status, body, _ := get(client, "http://other.test/"); status != 403 || !strings.Contains(body, "max_hosts_per_session") {
		t.Errorf("%d %q", status, body)
	}
	end()
	_, client, _, end = serve(t, budget(), at)
	if _, body, err := get(client, server.URL); err != nil || len(body) != 4000 {
		t.Fatal(len(body), err)
	}
	end()
	_, client, _, _ = serve(t, budget(), at)
	_, _ = client.Post(server.URL, "text/plain", strings.NewReader(strings.Repeat("s", 50_000)))
	if n := got.Load(); n > 6000 {
		t.Errorf("%d bytes were sent", n)
	}
	if status, body, _ := get(client, server.URL); status == 200 {
		t.Errorf("%d %d", status, len(body))
	}
}

// A tunnel transfers what remains in one direction after the other has ended, and ends with its call.
func TestC18_TunnelsEnd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // the test ends
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close() //nolint:errcheck // it was read to its end
				data, _ := io.ReadAll(c)
				_, _ = fmt.Fprintf(c, "%d bytes", len(data))
			}()
		}
	}()
	p, _, address, end := serve(t, &egress.Budget{}, l.Addr().String())
	connect := func() (*net.TCPConn, *bufio.Reader) {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\nearly", l.Addr())
		r := bufio.NewReader(c)
		if response, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect}); err != nil || response.StatusCode != 200 {
			t.Fatal(response, err)
		}
		return c.(*net.TCPConn), r
	}
	c, r := connect()
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(r); err != nil || string(text) != "5 bytes" {
		t.Errorf("%q %v", text, err)
	}
	c.Close() //nolint:errcheck // it was read to its end
	c, r = connect()
	defer c.Close() //nolint:errcheck // the proxy has closed it
	waittest.Until(t, "the second connection", func() bool { return p.Records()[0].Connections == 2 })
	end()
	if _, err := io.ReadAll(r); err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("the proxy still listens")
	}
}

// Programs cannot have more connections than the bound: a further one waits until one ends.
func TestC18_ConnectionsAreBounded(t *testing.T) {
	_, _, address, _ := serve(t, &egress.Budget{}, "other.test")
	type conn struct {
		net.Conn
		*bufio.Reader
	}
	send := func(c conn) { fmt.Fprintf(c.Conn, "GET http://third.test/ HTTP/1.1\r\nHost: x\r\n\r\n") }
	receive := func(c conn) {
		response, err := http.ReadResponse(c.Reader, nil)
		if err != nil || response.StatusCode != http.StatusForbidden {
			t.Error(response, err)
			return
		}
		_, _ = io.Copy(io.Discard, response.Body)
	}
	open := func() conn {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() }) //nolint:errcheck // the test ends
		return conn{c, bufio.NewReader(c)}
	}
	var held []conn
	for range 128 {
		c := open()
		send(c)
		receive(c)
		held = append(held, c)
	}
	var closed atomic.Bool
	last, answered := open(), make(chan struct{})
	send(last)
	go func() {
		defer close(answered)
		receive(last)
		if !closed.Load() {
			t.Error("129 connections at a time")
		}
	}()
	for range 200 { // meanwhile the others are served
		send(held[0])
		receive(held[0])
	}
	closed.Store(true)
	held[1].Close() //nolint:errcheck // its responses were read
	<-answered
}
