package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/service/people"
)

// make asks for a token over the API, by a token.
func (h *house) make(status int, token, body string) (made people.Token) {
	h.t.Helper()
	code, _, data := h.ask("POST", "/api/tokens", token, body)
	if code != status {
		h.t.Errorf("%s: %d, want %d: %s", body, code, status, data)
	}
	if code == 201 {
		if err := json.Unmarshal(data, &made); err != nil {
			h.t.Fatal(err)
		}
	}
	return made
}

// M16: a token that is asked for over the API is narrower than what asks for it, has no administration, and ends with
// it.
func TestM16_OwnTokens(t *testing.T) {
	h := open(t, "")
	boss := h.token("boss", signIn)
	made := h.make(201, boss, `{"label":"mine"}`)
	h.want(200, nil, "GET", "/api/me", made.Token, "")
	h.want(403, nil, "GET", "/api/audit", made.Token, "")
	h.want(403, nil, "PUT", "/api/tools/read_file", made.Token, `{"enabled":false}`)
	for _, body := range []string{
		`{"sign_in":true}`, `{"expires_in":-1}`, `{"expires_in":99999999999}`, `{"agents":["*"]}`, `{"user":"ann"}`, `{"expires_in":86400}`,
		`{"rate_limit_per_minute":-1}`, `{"label":"` + strings.Repeat("x", 300) + `"}`, `{"label":"a\u202eb"}`,
	} {
		h.make(400, boss, body)
	}
	h.make(403, made.Token, `{}`) // a child has none

	scoped := h.token("ann", access.Scope{Agents: []string{"default", "read*"}, Tools: []string{"read_file", "web_*"}, Params: map[string][]any{"path": {"a", 1}}})
	for body, status := range map[string]int{
		`{"agents":["default"],"tools":["read_file"],"params_constraints":{"path":["a"]}}`:            201,
		`{"agents":["reader"],"tools":["web_fetch"],"params_constraints":{"path":[1],"other":["x"]}}`: 201,
		`{"agents":["read*"],"tools":["web_*"],"params_constraints":{"path":["a",1.0]}}`:              201,
		`{"agents":[],"tools":[],"params_constraints":{"path":[]}}`:                                   201,
		`{}`: 400,
		`{"agents":["default"],"tools":["read_file"]}`:                                                         400,
		`{"tools":["read_file"],"params_constraints":{"path":["a"]}}`:                                          400,
		`{"agents":["default"],"params_constraints":{"path":["a"]}}`:                                           400,
		`{"agents":["default"],"tools":["write_file"],"params_constraints":{"path":["a"]}}`:                    400,
		`{"agents":["default"],"tools":["read_*"],"params_constraints":{"path":["a"]}}`:                        400,
		`{"agents":["r*"],"tools":["read_file"],"params_constraints":{"path":["a"]}}`:                          400,
		`{"agents":["default"],"tools":["read_file"],"params_constraints":{"path":["b"]}}`:                     400,
		`{"agents":["default"],"capabilities":["rag.query@1.0"],"params_constraints":{"path":["a"]}}`:          400,
		`{"agents":["default"],"tools":["read_file"],"params_constraints":{"path":["a"]},"sign_in":true}`:      400,
		`{"agents":["default"],"tools":["read_file"],"params_constraints":{"path":["a"]},"expires_in":360000}`: 400,
	} {
		h.make(status, scoped, body)
	}
	h.make(400, h.token("ann", access.Scope{MaxCalls: 10}), `{"max_calls_total":5}`)

	child := h.make(201, scoped, `{"agents":["default"],"tools":["read_file"],"params_constraints":{"path":["a"]}}`)
	var list struct{ Tokens []people.Token }
	h.want(200, &list, "GET", "/api/tokens", scoped, "")
	if len(list.Tokens) != 6 || strings.Contains(fmt.Sprint(list), "toolcrib_v1") {
		t.Errorf("%d tokens: %+v", len(list.Tokens), list)
	}
	h.want(404, nil, "DELETE", "/api/tokens/"+h.tokenID(boss), scoped, "")
	h.want(404, nil, "DELETE", "/api/tokens/"+h.tokenID(scoped), child.Token, "")
	h.want(200, nil, "GET", "/api/me", child.Token, "")
	h.want(200, nil, "DELETE", "/api/tokens/"+h.tokenID(scoped), h.token("ann", signIn), "")
	h.eventually("the child is revoked", func() bool {
		code, _, _ := h.ask("GET", "/api/me", child.Token, "")
		return code == 401
	})
	h.want(401, nil, "GET", "/api/me", scoped, "")
}

// A session makes tokens that outlive it, and one by a token none that outlive that.
func TestM16_TokensOfSession(t *testing.T) {
	h := open(t, "")
	h.member("ann")
	b := h.browser()
	b.signIn("ann")
	var made people.Token
	if err := json.Unmarshal([]byte(b.want(201, "POST", "/api/tokens", `{"expires_in":8640000}`)), &made); err != nil {
		t.Fatal(err)
	}
	b.want(200, "POST", "/api/sign-out", "")
	h.want(200, nil, "GET", "/api/me", made.Token, "")

	b.want(200, "POST", "/api/sign-in", fmt.Sprintf(`{"token":%q}`, h.token("bob", signIn)))
	b.want(400, "POST", "/api/tokens", `{"expires_in":8640000}`)
	b.want(201, "POST", "/api/tokens", `{"expires_in":60}`)
	b.want(403, "POST", "/api/tokens", `{}`, "Origin", "null")
}
