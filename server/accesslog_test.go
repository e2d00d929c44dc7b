package server_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// Each request is a line of the log, with who has sent it and without what is secret, and what a client makes up
// cannot forge a line.
func TestAccessLog(t *testing.T) {
	h := open(t, "log: {requests: true}\n")
	h.member("ann")
	b := h.browser()
	b.signIn("ann")
	token := h.token("bob", signIn)
	h.log.take()
	b.want(200, "GET", "/api/runs?status=failed", "")
	h.want(200, nil, "GET", "/api/me", token, "")
	h.want(404, nil, "GET", "/none%0alevel=ERROR"+strings.Repeat("x", 2000), "", "")
	h.want(200, nil, "GET", "/healthz", "", "")
	c := h.browser()
	c.want(401, "POST", "/api/sign-in", `{"user":"ann","password":"a wrong password"}`)
	c.want(401, "POST", "/api/sign-in", `{"user":"a wrong\npassword","password":"a wrong password"}`)
	type line struct {
		Msg, Method, Path, User, Token, Session, Address, Via string
		Status                                                int
		ID                                                    string `json:"request_id"`
	}
	var lines []line
	text := h.log.take()
	for one := range strings.Lines(text) {
		var l line
		if err := json.Unmarshal([]byte(one), &l); err != nil {
			t.Fatalf("%v: %s", err, one)
		}
		lines = append(lines, l)
	}
	if len(lines) != 7 {
		t.Fatalf("%d lines: %s", len(lines), text)
	}
	if l := lines[0]; l.Msg != "request" || l.Method != "GET" || l.Path != "/api/runs" || l.User != "ann" || l.Status != 200 ||
		!strings.HasPrefix(l.Session, "web_") || l.ID == "" || l.Address == "" || l.Token != "" {
		t.Errorf("%+v", l)
	}
	if l := lines[1]; l.User != "bob" || l.Token != h.tokenID(token) || l.Session != "" {
		t.Errorf("%+v", l)
	}
	if l := lines[2]; l.User != "-" || l.Status != 404 || len(l.Path) > 300 {
		t.Errorf("%+v", l)
	}
	if l := lines[3]; l.Msg != "a sign-in failed" || l.User != "ann" || l.Via != "password" {
		t.Errorf("%+v", l)
	}
	if l := lines[5]; l.Msg != "a sign-in failed" || l.User != "" {
		t.Errorf("%+v", l)
	}
	for _, secret := range []string{b.cookie, token, "a wrong"} {
		if strings.Contains(text, secret) {
			t.Errorf("the log has %q: %s", secret, text)
		}
	}
}
