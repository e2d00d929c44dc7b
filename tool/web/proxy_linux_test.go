package web_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/internal/egress"
	"github.com/toolcrib/toolcrib/internal/hosts"
	"github.com/toolcrib/toolcrib/internal/waittest"
)

// TestSSRF_Proxy tries to reach the same addresses through the proxy for the commands of exec_shell.
func TestSSRF_Proxy(t *testing.T) { inWorld(t, (*world).runProxy) }

// listed returns a guard for a list of hosts.
func listed(private bool, allow ...string) *egress.Guard {
	list, err := hosts.NewList(allow)
	if err != nil {
		panic(err)
	}
	return &egress.Guard{Key: "tools.shell.network", Allow: list, AllowPrivate: private}
}

// ask sends a request to a proxy as it is written, and returns what was connected to, and the status.
func (w *world) ask(g *egress.Guard, request string) (connected []string, status int) {
	w.mu.Lock()
	w.connected = nil
	w.mu.Unlock()
	w.count++
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	g.Resolver = w.resolver
	p := &egress.Proxy{Guard: g, Budget: &egress.Budget{}}
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	served := make(chan struct{})
	go func() {
		defer close(served)
		p.Serve(ctx, l)
	}()
	defer func() { <-served }()
	defer cancel()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // nothing more is written
	fmt.Fprintf(c, "%s\r\n\r\n", request)
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		status = response.StatusCode
	}
	if status == http.StatusOK { // the listener may learn of the connection later
		waittest.Until(w.t, "the connection", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.connected) > 0
		})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return append(connected, w.connected...), status
}

// both asks for a host in the two ways of a proxy.
func both(host string) []string {
	return []string{
		"GET http://" + host + "/ HTTP/1.1\r\nHost: " + host, "CONNECT " + host + ":443 HTTP/1.1\r\nHost: " + host + ":443",
		"CONNECT " + host + ":80 HTTP/1.1\r\nHost: " + host,
	}
}

func (w *world) noProxy(g *egress.Guard, requests ...string) {
	w.t.Helper()
	for _, request := range requests {
		if connected, status := w.ask(g, request); len(connected) != 0 || status == http.StatusOK {
			w.t.Errorf("%q: connected to %v, status %d", request, connected, status)
		}
	}
}

func (w *world) proxied(g *egress.Guard, request, at string) {
	w.t.Helper()
	if connected, status := w.ask(g, request); status != http.StatusOK || strings.Join(connected, " ") != at {
		w.t.Errorf("%q: connected to %v, status %d", request, connected, status)
	}
}

func (w *world) runProxy() {
	forbidden := append(append([]string{}, privateAddrs...), neverAddrs...)
	w.each("public", publicAddrs, func(addr string) {
		for i, request := range both(bracketed(addr)) {
			w.proxied(listed(false, "*"), request, at(addr, []string{"80", "443", "80"}[i]))
		}
		w.proxied(listed(false, "*.test"), both(w.name(addr))[1], at(addr, "443"))
		w.noProxy(listed(false, "other.test"), both(w.name(addr))...)
		w.noProxy(listed(false), both(bracketed(addr))...)
	})
	w.each("literal", forbidden, func(addr string) {
		w.noProxy(listed(false, "*"), both(bracketed(addr))...)
		w.noProxy(listed(true, "*"), both(bracketed(addr))...)
	})
	w.each("by name", forbidden, func(addr string) {
		w.noProxy(listed(false, "*", "*.test"), both(w.name(addr))...)
	})
	w.each("named, and private ones allowed", privateAddrs, func(addr string) {
		w.proxied(listed(true, "*.test"), both(w.name(addr))[1], at(addr, "443"))
		w.proxied(listed(true, bracketed(addr)), both(bracketed(addr))[0], at(addr, "80"))
		w.noProxy(listed(true, bracketed(addr)), "CONNECT "+bracketed(addr)+":22 HTTP/1.1\r\nHost: x")
		w.proxied(listed(true, bracketed(addr)+":22"), "CONNECT "+bracketed(addr)+":22 HTTP/1.1\r\nHost: x", at(addr, "22"))
	})
	w.each("never, whatever is allowed", neverAddrs, func(addr string) {
		w.noProxy(listed(true, "*", "*.test", bracketed(addr)), append(both(bracketed(addr)), both(w.name(addr))...)...)
	})
	w.each("spelling", spellings, func(address string) {
		_, host, _ := strings.Cut(address, "://")
		host, _, _ = strings.Cut(host, "/")
		w.noProxy(listed(true, "*"), "GET "+address+" HTTP/1.1\r\nHost: 8.8.8.8", "CONNECT "+host+" HTTP/1.1\r\nHost: 8.8.8.8:443",
			"CONNECT "+host+":6379 HTTP/1.1\r\nHost: 8.8.8.8:443", "GET / HTTP/1.1\r\nHost: "+host)
	})
	w.each("rebinding", []string{"127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "168.63.129.16"}, func(addr string) {
		name := w.name("8.8.8.8", addr)
		w.proxied(listed(false, "*.test"), both(name)[1], "8.8.8.8:443")
		w.noProxy(listed(false, "*.test"), both(name)...)
		w.proxied(listed(false, "*.test"), both(w.name(addr + " 8.8.8.8"))[0], "8.8.8.8:80")
		w.noProxy(listed(false, "*"), both(w.name("::ffff:127.0.0.1"))...)
		denying := listed(true, "*.test")
		denying.Deny, _ = hosts.NewList([]string{bracketed(addr), "8.8.8.8"})
		w.noProxy(denying, both(w.name(addr+" 8.8.8.8"))...)
	})
	// The target is that of the request line, whatever the headers say, and no redirect is followed.
	w.proxied(listed(false, "*"), "GET http://8.8.8.8/ HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-Host: 127.0.0.1", "8.8.8.8:80")
	w.redirect, w.status = "http://127.0.0.1/", http.StatusFound
	if connected, status := w.ask(listed(false, "*"), "GET http://8.8.8.8/r HTTP/1.1\r\nHost: 8.8.8.8"); status != 302 || len(connected) != 1 {
		w.t.Errorf("redirect: %v, %d", connected, status)
	}
	w.t.Logf("%d cases", w.count)
	if w.count < 200 {
		w.t.Errorf("only %d cases were tried", w.count)
	}
}
