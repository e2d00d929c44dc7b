package cli_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/toolcrib/toolcrib/internal/oauthtest"
)

// signIns are the servers of a script that ask for a sign-in.
type signIns struct{ named sync.Map } // by the name of the script

// command starts a server, whose address is URL then: oauth start. It ends its tokens: oauth
// expire. It wants so many requests for tokens, or so many good tokens of both kinds:
// oauth trades N, oauth live N. It writes a .mcp.json, as Claude Code has it, with a client
// that is registered for one port: oauth project.
func (s *signIns) command(ts *testscript.TestScript, _ bool, args []string) {
	if args[0] == "start" {
		server := oauthtest.New()
		ts.Defer(server.Close)
		s.named.Store(ts.Name(), server)
		ts.Setenv("URL", server.URL())
		ts.Setenv("ISSUER", server.Auth.URL)
		return
	}
	known, _ := s.named.Load(ts.Name())
	server := known.(*oauthtest.Server)
	got := len(server.Seen("/token"))
	switch args[0] {
	case "expire":
		server.Expire()
		return
	case "project":
		free, err := net.Listen("tcp4", "127.0.0.1:0")
		ts.Check(err)
		ts.Check(free.Close())
		server.Register("mine", "", "http://"+free.Addr().String()+"/callback")
		text := fmt.Sprintf(`{"mcpServers": {"desk": {
			"type": "http", "url": %q, "oauth": {"clientId": "mine", "callbackPort": %d}
		}}}`, server.URL(), free.Addr().(*net.TCPAddr).Port)
		ts.Check(os.WriteFile(ts.MkAbs(".mcp.json"), []byte(text), 0o600))
		return
	case "live":
		access, refresh := server.Live()
		got = access + refresh
	case "paste": // a person at a terminal whose browser is on another machine
		answerPTY(ts, args[1], args[2:], func(screen string, n int) string {
			if n == 0 {
				return "what now?"
			}
			return endOf(ts, screen)
		})
		return
	}
	if want := args[1]; fmt.Sprint(got) != want {
		ts.Fatalf("%s: %d, want %s", args[0], got, want)
	}
}

// link is a link to an authorization server on the screen.
var link = regexp.MustCompile(`http://\S+/authorize\?\S+`)

// endOf returns the address that a browser ends at which follows the last link on a screen.
func endOf(ts *testscript.TestScript, screen string) string {
	all := link.FindAllString(screen, -1)
	if len(all) == 0 {
		ts.Fatalf("no link is shown:\n%s", screen)
	}
	stop := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	r, err := stop.Get(all[len(all)-1])
	ts.Check(err)
	ts.Check(r.Body.Close())
	return r.Header.Get("Location")
}

// fakeBrowser is a browser whose person consents to everything: fakebrowser URL [--new].
func fakeBrowser() {
	r, err := http.Get(os.Args[1])
	if err != nil || r.StatusCode != http.StatusOK || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") {
		fmt.Fprintln(os.Stderr, "the page does not open:", err)
		os.Exit(1)
	}
	_ = r.Body.Close()
}
