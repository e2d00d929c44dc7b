package shell_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/egress"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// wrappedOnly skips a test without bubblewrap, without which commands have no network.
func wrappedOnly(t *testing.T) *shell.Report {
	t.Helper()
	report := shell.Probe()
	if !report.Helper || report.Bubblewrap == "" {
		t.Skip("SKIP: there is no bubblewrap; with it, the network of commands is tested here")
	}
	return &report
}

// localNames is a resolver for which every name is at the loopback address.
func localNames(t *testing.T) *net.Resolver {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // the test ends
	go func() {
		b := make([]byte, 4096)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(b[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			reply := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true}, Questions: m.Questions}
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				reply.Answers = append(reply.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, Type: q.Type},
					Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
				})
			}
			if out, err := reply.Pack(); err == nil {
				_, _ = c.WriteTo(out, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", c.LocalAddr().String())
	}}
}

// reaching returns a tool whose commands reach hosts, which are all at the loopback address, and have the toolchains
// of a home folder, or none.
func reaching(t *testing.T, n shell.Network, home string) toolcrib.Tool {
	t.Helper()
	n.AllowPrivate = true
	shell.Resolve(&n, localNames(t))
	return tool(t, shell.Options{Mode: shell.ModeAny, Report: wrappedOnly(t), Network: n, Home: home})
}

// port returns the port of a server.
func port(s *httptest.Server) string {
	return s.URL[strings.LastIndexByte(s.URL, ':'):]
}

// naming is a call that names hosts.
func naming(t *testing.T, dir, line string, hosts ...string) toolcrib.Call {
	t.Helper()
	c := callOf(t, dir, line, 60)
	var in map[string]any
	if err := json.Unmarshal(c.Arguments, &in); err != nil {
		t.Fatal(err)
	}
	in["network"] = hosts
	c.Arguments, _ = json.Marshal(in)
	return c
}

// fetchLine is a line that reads an address through the proxy, in Perl, whatever NO_PROXY says.
func fetchLine(address string) string {
	return `perl -MIO::Socket::INET -e '$ENV{http_proxy} =~ m{//(.*)} or die "no proxy\n"; my $s = IO::Socket::INET->new($1) or die "no $1\n";
print $s "GET ` + address + ` HTTP/1.0\r\n\r\n"; print <$s>; '`
}

// What programs reach is what the configuration lists, through the proxy; a host that it refused is named.
func TestC12_NetworkOfHosts(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "from outside") }))
	defer server.Close()
	listed := "listed.test" + port(server)
	made := reaching(t, shell.Network{Hosts: []string{listed}}, "")
	dir := folder(t)
	var notices []string
	run := func(c toolcrib.Call) (output, toolcrib.Output, error) {
		notices = nil
		c.Notice = func(n toolcrib.Notice) { notices = append(notices, n.Code+": "+n.Message) }
		out, err := made.Call(t.Context(), c)
		var r output
		if err == nil {
			err = json.Unmarshal(out.JSON, &r)
		}
		return r, out, err
	}
	for range 2 { // the second time in a prepared sandbox, if there is one
		r, out, err := run(callOf(t, dir, fetchLine("http://"+listed+"/"), 20))
		if err != nil || !strings.HasSuffix(r.Stdout, "from outside") || !out.Untrusted || out.Source != listed {
			t.Fatalf("%+v %v %v", r, out.Source, err)
		}
		if len(notices) != 1 || !strings.Contains(notices[0], "network: exec_shell reached "+listed+" (") {
			t.Errorf("%q", notices)
		}
	}
	r, out, err := run(callOf(t, dir, fetchLine("http://other.test"+port(server)+"/")+"; false", 20))
	if err != nil || !strings.Contains(r.Stdout, "403 Forbidden") || out.Untrusted {
		t.Errorf("%+v %v", r, err)
	}
	if want := "The network refused other.test" + port(server); !strings.Contains(r.Hint, want) ||
		!strings.Contains(r.Hint, "where a person can add") || !strings.Contains(notices[0], "was refused other.test") {
		t.Errorf("%q %q", r.Hint, notices)
	}
	// So is what a command printed before its timeout, and all of one in the background.
	var failed *toolcrib.ToolError
	_, _, err = run(callOf(t, dir, fetchLine("http://"+listed+"/")+"; sleep 60", 3))
	if !errors.As(err, &failed) || failed.Kind != toolcrib.ToolTimeout || failed.Untrusted != listed {
		t.Errorf("%+v", failed)
	}
	behind := callOf(t, dir, "true", 20)
	behind.Arguments = json.RawMessage(`{"command":"true","background":true}`)
	ctx, cancel := context.WithCancel(t.Context())
	var works sync.WaitGroup
	behind.Behind = func(work func(context.Context)) bool {
		works.Go(func() { work(ctx) })
		return true
	}
	if _, out, err := run(behind); err != nil || !out.Untrusted {
		t.Errorf("%+v %v", out, err)
	}
	cancel()
	works.Wait()
	// There is no way around the proxy.
	r, _, err = run(callOf(t, dir, `perl -MIO::Socket::INET -e 'IO::Socket::INET->new("`+server.Listener.Addr().String()+`") and print "reached"; exit 1'`, 20))
	if err != nil || r.Stdout != "" {
		t.Errorf("%+v %v", r, err)
	}
	r, _, err = run(callOf(t, dir, `perl -MIO::Socket::INET -e 'IO::Socket::INET->new("8.8.8.8:80") and print "reached"; exit 1'`, 20))
	if err != nil || !strings.Contains(r.Hint, "without the proxy") {
		t.Errorf("%+v %v", r, err)
	}
	// A call may name what is listed, and is refused otherwise.
	if r, _, err = run(naming(t, dir, fetchLine("http://"+listed+"/"), listed)); err != nil || !strings.HasSuffix(r.Stdout, "from outside") {
		t.Errorf("%+v %v", r, err)
	}
	for _, host := range []string{"other.test", "*", "*.test", "http://listed.test", "a/b", "127.1", "user@listed.test"} {
		if err := admit(made, naming(t, dir, "true", host)); err == nil {
			t.Errorf("%s may be named", host)
		}
	}
}

// With ask, only the hosts that a call names are reached, and each is a concern that is answered for the run.
func TestC12_NetworkAsks(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "from outside") }))
	defer server.Close()
	host := "asked.test" + port(server)
	made, dir := reaching(t, shell.Network{Ask: true, Deny: []string{"denied.test"}}, ""), folder(t)
	r, err := runIn(t.Context(), t, made, callOf(t, dir, fetchLine("http://"+host+"/")+"; false", 20))
	want := "The network refused " + host + `. To reach that, call again with network: ["` + host + `"], which a person must approve.`
	if err != nil || r.Hint != want {
		t.Fatalf("%+v %v", r, err)
	}
	call := naming(t, dir, fetchLine("http://"+host+"/"), host, host)
	plan, err := made.(toolcrib.Planner).Plan(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	var asks []string
	for _, c := range plan.Concerns {
		asks = append(asks, fmt.Sprint(c.Reason, " ", c.Why, " ", c.Run))
	}
	target := toolcrib.Target{Kind: "host", Name: host, Write: true}
	if len(asks) != 1 || asks[0] != "needs_confirmation reaches "+host+" true" || plan.Effect != toolcrib.EffectNonIdempotentWrite ||
		plan.Targets[len(plan.Targets)-1] != target {
		t.Errorf("%q %s %v", asks, plan.Effect, plan.Targets)
	}
	if r, err := runIn(t.Context(), t, made, call); err != nil || !strings.HasSuffix(r.Stdout, "from outside") {
		t.Errorf("%+v %v", r, err)
	}
	if err := admit(made, naming(t, dir, "true", "denied.test")); err == nil || !strings.Contains(err.Error(), "tools.web.deny") {
		t.Error(err)
	}
	public := tool(t, shell.Options{Mode: shell.ModeAny, Report: wrappedOnly(t), Network: shell.Network{Ask: true}})
	if err := admit(public, naming(t, dir, "true", "127.0.0.1:80")); err == nil || !strings.Contains(err.Error(), "allow_private") {
		t.Error(err)
	}
}

// Without a network, or without bubblewrap, hosts cannot be named; a program that needed one is told so.
func TestC12_NoNetwork(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	made := tool(t, shell.Options{Mode: shell.ModeAny, Report: wrappedOnly(t)})
	if strings.Contains(string(made.Spec().Parameters), "network") {
		t.Error("the parameter is offered")
	}
	for _, line := range []string{
		`perl -MIO::Socket::INET -e 'IO::Socket::INET->new("8.8.8.8:80") or exit 3'`,
		`perl -MSocket -e 'getaddrinfo("registry.npmjs.org", 443)' ; perl -e 'gethostbyname("registry.npmjs.org") or exit 3'`,
	} {
		r, err := runIn(t.Context(), t, made, callOf(t, dir, line, 30))
		if err != nil || r.ExitCode != 3 || !strings.Contains(r.Hint, "It tried to reach the network, which commands do not have here") {
			t.Errorf("%s: %+v %v", line, r, err)
		}
	}
	const local = `perl -MIO::Socket::INET -e 'IO::Socket::INET->new("127.0.0.1:9") or `
	for end, want := range map[string]string{
		`exit 3'`:                              "Nothing listens where it tried to connect on the loopback interface",
		`die "curl: (7) Failed to connect\n"'`: "Nothing listens where it tried to connect on the loopback interface",
		`die "FAIL TestOther\n"'`:              "", // perhaps a test that tried it
		`exit 0'`:                              "",
	} {
		if r, err := runIn(t.Context(), t, made, callOf(t, dir, local+end, 20)); err != nil || !strings.HasPrefix(r.Hint, want) || (want == "") != (r.Hint == "") {
			t.Errorf("a refused connection to the loopback, %s: %+v %v", end, r, err)
		}
	}
	strict := tool(t, shell.Options{Mode: shell.ModeAsk, Report: wrappedOnly(t)})
	for line, want := range map[string]string{
		"git ls-remote https://example.com/x.git || exit 3; false": "It tried to reach the network, which commands do not have here (tools.shell.network).",
		"echo FAIL TestTotal; exit 1":                              "",
		"echo x > new.txt":                                         "It ran in a sandbox where it can only read, without network. If it failed because it must write, call again",
	} {
		if r, err := runIn(t.Context(), t, strict, callOf(t, dir, line, 20)); err != nil || r.ExitCode == 0 || !strings.HasPrefix(r.Hint, want) || (want == "") != (r.Hint == "") {
			t.Errorf("%s: %+v %v", line, r, err)
		}
	}
	landlock := tool(t, shell.Options{
		Mode: shell.ModeAny, Report: &shell.Report{Helper: true, LandlockABI: 6}, Network: shell.Network{Hosts: []string{"a.test"}},
	})
	if err := admit(landlock, naming(t, dir, "true", "a.test")); err == nil || !strings.Contains(err.Error(), "bubblewrap") {
		t.Error(err)
	}
}

// A call that names some of the listed hosts reaches only these; what it can reach is its targets.
func TestC12_NetworkOfACall(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "from outside") }))
	defer server.Close()
	one, two := "one.test"+port(server), "two.test"+port(server)
	made := reaching(t, shell.Network{Hosts: []string{one, two}}, "")
	dir := folder(t)
	line := fetchLine("http://" + one + "/")
	for _, c := range []struct {
		named []string
		reads string
		hosts int
	}{{nil, "from outside", 2}, {[]string{one}, "from outside", 1}, {[]string{two}, "403 Forbidden", 1}} {
		call := naming(t, dir, line, c.named...)
		plan, err := made.(toolcrib.Planner).Plan(t.Context(), call)
		if err != nil {
			t.Fatal(err)
		}
		hosts := 0
		for _, target := range plan.Targets {
			if target.Kind == "host" && target.Write {
				hosts++
			}
		}
		if r, err := runIn(t.Context(), t, made, call); err != nil || !strings.Contains(r.Stdout, c.reads) || hosts != c.hosts {
			t.Errorf("%q: %d hosts, %+v %v", c.named, hosts, r, err)
		}
	}
}

// The bounds of a session apply, and a server that a background command reaches marks its output.
func TestC12_NetworkIsCounted(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, strings.Repeat("a", 20_000))
	}))
	defer server.Close()
	host := "listed.test" + port(server)
	made := reaching(t, shell.Network{
		Hosts: []string{host}, Budget: egress.Budget{Bytes: 10_000, Files: safefile.Folder{Dir: t.TempDir()}},
	}, "")
	r, err := runIn(t.Context(), t, made, callOf(t, folder(t), fetchLine("http://"+host+"/"), 20))
	if err != nil || len(r.Stdout) > 10_000 {
		t.Errorf("%d %v", len(r.Stdout), err)
	}
	r, err = runIn(t.Context(), t, made, callOf(t, folder(t), fetchLine("http://"+host+"/")+"; false", 20))
	if err != nil || !strings.Contains(r.Hint, "max_bytes_per_session") {
		t.Errorf("%+v %v", r, err)
	}
}

// A call whose proxy is in use ends in time.
func TestC18_NetworkEndsWithTheCall(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(hold)
		<-r.Context().Done()
	}))
	defer server.Close()
	host := "listed.test" + port(server)
	made := reaching(t, shell.Network{Hosts: []string{host}}, "")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-hold
		cancel()
	}()
	began := time.Now()
	if _, err := made.Call(ctx, callOf(t, folder(t), fetchLine("http://"+host+"/"), 60)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("%s", took)
	}
}
