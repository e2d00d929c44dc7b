package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/server"
	"github.com/toolcrib/toolcrib/store"
)

// Behind a trusted proxy each client is counted by its own address, which is also in the logs. Without one, a client
// cannot name another address.
func TestTrustedProxy(t *testing.T) {
	for name, trusted := range map[string]bool{"trusted": true, "not trusted": false} {
		t.Run(name, func(t *testing.T) {
			config := "log: {requests: true}\n"
			if trusted {
				config += "server: {trusted_proxies: [127.0.0.0/8]}\n"
			}
			h := open(t, config)
			h.member("ann")
			const guesser, other = "198.51.100.9", "198.51.100.10"
			signIn := func(name, password, from string) int {
				body := fmt.Sprintf(`{"user":%q,"password":%q}`, name, password)
				code, _ := h.browser().send("POST", "/api/sign-in", body, "X-Forwarded-For", "203.0.113.1, "+from)
				return code
			}
			h.log.take()
			for i := range 29 {
				if code := signIn(fmt.Sprint("nobody", i), "a wrong password", guesser); code != 401 {
					t.Fatal(code)
				}
			}
			h.eventually("the guesser must wait", func() bool { return signIn("nobody", "a wrong password", guesser) == 429 })
			lines := h.log.take()
			if strings.Contains(lines, `"address":"`+guesser+`"`) != trusted ||
				strings.Contains(lines, `"address":"127.0.0.1"`) == trusted || strings.Contains(lines, "203.0.113.1") {
				t.Error(lines)
			}
			if trusted {
				if code := signIn("ann", password, other); code != 200 {
					t.Errorf("another client: %d", code)
				}
			} else {
				h.eventually("all clients must wait", func() bool {
					return signIn("nobody", "a wrong password", guesser) == 429 && signIn("ann", password, other) == 429
				})
			}
			page, err := h.service.People.Audit(t.Context(), root,
				store.AuditFilter{Kinds: []toolcrib.Kind{access.SignInFailed}, Limit: 1}, "")
			if err != nil || len(page.Entries) != 1 {
				t.Fatal(page, err)
			}
			if strings.Contains(string(page.Entries[0].Payload), guesser) != trusted {
				t.Errorf("%s", page.Entries[0].Payload)
			}
		})
	}
}

// The limit of requests counts clients without a token by the address that a trusted proxy names.
func TestTrustedProxy_RateLimit(t *testing.T) {
	h := open(t, "server: {trusted_proxies: [127.0.0.1], rate_limit: 20}\n")
	ask := func(from string) int {
		code, _, _ := h.ask("GET", "/api/me", "", "", "X-Forwarded-For", from)
		return code
	}
	limited := 0
	for range 40 {
		if ask("198.51.100.9") == 429 {
			limited++
		}
	}
	if limited == 0 {
		t.Error("a client is not limited")
	}
	if code := ask("198.51.100.10"); code != 401 {
		t.Errorf("another client: %d", code)
	}
}

// cookies sends a request, and returns the cookies of the answer.
func (h *house) cookies(r *http.Request) []*http.Cookie {
	h.t.Helper()
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.Cookies()
}

// A browser in which a user has signed in gets a cookie that permits nothing, and by which the user is not locked out
// where others guess from the same address.
func TestKnownBrowser(t *testing.T) {
	h := open(t, "")
	h.member("ann")
	b := h.browser()
	r := b.request("POST", "/api/sign-in", "", fmt.Sprintf(`{"user":"ann","password":%q}`, password), "Origin", h.url)
	cookies := h.cookies(r)
	device := ""
	for _, c := range cookies {
		if strings.HasSuffix(c.Name, "_known") {
			device = c.Name + "=" + c.Value
		}
		if !c.HttpOnly || c.Path != "/" {
			t.Errorf("%v", c)
		}
	}
	if len(cookies) != 2 || device == "" {
		t.Fatalf("%v", cookies)
	}
	h.want(401, nil, "GET", "/api/me", "", "", "Cookie", device)
	body := `{"user":"ann","password":"a wrong password"}`
	h.eventually("others are refused", func() bool {
		code, _, _ := h.ask("POST", "/api/sign-in", "", body)
		return code == 429
	})
	h.want(200, nil, "POST", "/api/sign-in", "", fmt.Sprintf(`{"user":"ann","password":%q}`, password), "Cookie", device)
}

// A changed password lists the access tokens that are left, and revokes them if asked to; so does signing out
// everywhere else.
func TestPassword_Tokens(t *testing.T) {
	h := open(t, "")
	h.member("ann")
	b := h.browser()
	b.signIn("ann")
	token := func() (id string) {
		var v struct{ ID string }
		if err := json.Unmarshal([]byte(b.want(201, "POST", "/api/tokens", `{}`)), &v); err != nil {
			t.Fatal(err)
		}
		return v.ID
	}
	change := func(more string) (out server.PasswordSet) {
		text := b.want(200, "POST", "/api/password", fmt.Sprintf(`{"old":%q,"password":%q%s}`, password, password, more))
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	id := token()
	if out := change(""); out.Revoked != 0 || len(out.Tokens) != 1 || out.Tokens[0].ID != id {
		t.Errorf("%+v", out)
	}
	if out := change(`,"revoke_tokens":true`); out.Revoked != 1 || len(out.Tokens) != 0 {
		t.Errorf("%+v", out)
	}
	token()
	b.want(400, "DELETE", "/api/web-sessions/web_0?tokens=true", "")
	if text := b.want(200, "DELETE", "/api/web-sessions/others?tokens=true", ""); !strings.Contains(text, `"revoked_tokens":1`) {
		t.Error(text)
	}
	b.want(200, "GET", "/api/me", "")
}
