package server_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/server"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/people"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/store"
)

// tokenID is the ID of a token.
func (h *house) tokenID(token string) string {
	h.t.Helper()
	v, err := h.service.People.CheckToken(h.t.Context(), root, token)
	if err != nil {
		h.t.Fatal(err)
	}
	return v.ID
}

func (h *house) revoke(token string, cancel bool) {
	h.t.Helper()
	if _, _, err := h.service.People.RevokeToken(h.t.Context(), root, h.tokenID(token), cancel); err != nil {
		h.t.Fatal(err)
	}
}

// within reads a stream to its end, which must come within a second of a change.
func (h *house) within(what string, res *http.Response, happens func()) string {
	h.t.Helper()
	ended := make(chan string, 1)
	go func() {
		data, _ := io.ReadAll(res.Body)
		ended <- string(data)
	}()
	happens()
	began := time.Now()
	select {
	case text := <-ended:
		if took := time.Since(began); took > 5*time.Second { // one second, and time for a busy machine
			h.t.Errorf("%s: the stream ends after %v", what, took)
		}
		return text
	case <-time.After(time.Minute):
		h.t.Fatalf("%s: the stream does not end", what)
	}
	return ""
}

// M16: the streams of a token end with it, however it becomes invalid, and those of another token of the same user do
// not.
func TestM16_RevokedStreams(t *testing.T) {
	h := open(t, "")
	h.script("slow.script", never)
	for kind, scope := range map[string]access.Scope{"sign-in": signIn, "scoped": {}} {
		ann, other := h.token("ann", scope), h.token("ann", signIn)
		for name, ask := range map[string]func(token string) *http.Request{
			"events": func(token string) *http.Request {
				return h.request("POST", "/api/runs", token, `{"agent":"slow","input":"Wait."}`, "Accept", "text/event-stream")
			},
			"v1": func(token string) *http.Request {
				return h.request("POST", "/v1/chat/completions", token,
					`{"model":"slow","stream":true,"messages":[{"role":"user","content":"`+token[len(token)-9:]+`"}]}`)
			},
			"no stream": func(token string) *http.Request {
				return h.request("POST", "/api/runs", token, `{"agent":"slow","input":"Wait."}`)
			},
		} {
			ann := ann
			if kind == "scoped" || name != "events" { // each kind revokes its own token
				ann = h.token("ann", scope)
			}
			answers := make(chan *http.Response, 1)
			go func() {
				res, err := http.DefaultClient.Do(ask(ann))
				if err == nil {
					answers <- res
				}
			}()
			h.eventually("its run begins", func() bool {
				var list struct{ Runs []service.Run }
				h.want(200, &list, "GET", "/api/runs?status=running", ann, "")
				for _, run := range list.Runs {
					if run.Token == h.tokenID(ann) {
						return true
					}
				}
				return false
			})
			h.revoke(ann, false)
			began := time.Now()
			res := <-answers
			text := h.within(kind+", "+name, res, func() {})
			if !strings.Contains(text, "token_revoked") || time.Since(began) > 10*time.Second {
				t.Errorf("%s, %s, after %v: %s", kind, name, time.Since(began), text)
			}
			_ = res.Body.Close()
		}
		h.want(200, nil, "GET", "/api/me", other, "")
	}
}

// M16: a WebSocket ends with its token, and with its user.
func TestM16_RevokedSocket(t *testing.T) {
	h := open(t, "")
	for name, end := range map[string]func(token string){
		"revoked": func(token string) { h.revoke(token, false) },
		"disabled": func(string) {
			if _, _, err := h.service.People.EditUser(t.Context(), root, "ann", access.Edit{Disabled: new(true)}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		ann := h.token("ann", signIn)
		s := h.socket(ann)
		end(ann)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, _, err := s.conn.Read(ctx)
		cancel()
		if websocket.CloseStatus(err) != websocket.StatusPolicyViolation || time.Since(began) > 10*time.Second {
			t.Errorf("%s: %v after %v", name, err, time.Since(began))
		}
		if name == "disabled" {
			if _, _, err := h.service.People.EditUser(t.Context(), root, "ann", access.Edit{Disabled: new(false)}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// M16: the runs of a revoked token end. A run that waits ends at once, with its approval, also one below another run;
// and every run, decision and entry of the audit log names the token.
func TestM16_RevokedRuns(t *testing.T) {
	h := open(t, "")
	for kind, scope := range map[string]access.Scope{"sign-in": signIn, "scoped": {}} {
		h.unwritten("ann")
		ann, other := h.token("ann", scope), h.token("ann", signIn)
		id := h.tokenID(ann)
		var run, left service.Run
		h.want(200, &run, "POST", "/api/runs", ann, `{"input":"Write."}`)
		h.want(200, &left, "POST", "/api/runs", other, `{"input":"Write."}`)
		if run.Token != id || left.Token != h.tokenID(other) {
			t.Errorf("%s: %q and %q started them", kind, run.Token, left.Token)
		}
		h.revoke(ann, false)
		var now service.Run
		h.want(200, &now, "GET", "/api/runs/"+string(run.ID), other, "")
		if now.Status != "failed" || now.StopReason != "policy_denied" || now.Pending != nil {
			t.Errorf("%s: %+v", kind, now)
		}
		var list struct{ Approvals []service.Approval }
		h.want(200, &list, "GET", "/api/approvals", other, "")
		for _, v := range list.Approvals {
			if v.Run == run.ID {
				t.Errorf("%s: its approval waits: %+v", kind, v)
			}
		}
		h.want(409, nil, "POST", "/api/approvals/"+run.Pending.ApprovalID, other,
			`{"decision":"approve","digest":"`+run.Pending.Digest+`"}`)
		h.want(200, nil, "POST", "/api/approvals/"+left.Pending.ApprovalID, other,
			`{"decision":"approve","digest":"`+left.Pending.Digest+`"}`)
		h.eventually("the run of the other token completes", func() bool {
			h.want(200, &now, "GET", "/api/runs/"+string(left.ID), other, "")
			return now.Status == "completed"
		})
		for run, token := range map[string]string{string(run.ID): id, string(left.ID): left.Token} {
			var log store.AuditPage
			h.want(200, &log, "GET", "/api/audit?run="+run, h.token("boss", signIn), "")
			for _, e := range log.Entries {
				if e.Token != token {
					t.Errorf("%s: %s names %q, want %q", kind, e.Kind, e.Token, token)
				}
			}
			if len(log.Entries) < 2 {
				t.Errorf("%+v", log)
			}
		}
	}
}

// M16: a run that waits for one below it ends together with it.
func TestM16_RevokedTree(t *testing.T) {
	h := openWith(t, agents+"  child: {model: slow/x}\n", map[string]string{
		"demo.script": "- tool_calls: [{name: spawn, arguments: {agent: child, task: Write.}}]\n- {text: done}\n",
		"slow.script": scripts["demo.script"],
	})
	for name, cancel := range map[string]bool{"failed": false, "cancelled": true} {
		ann, other := h.token("ann", signIn), h.token("ann", signIn)
		var run, below service.Run
		h.want(200, &run, "POST", "/api/runs", ann, `{"input":"Write."}`)
		if len(run.Children) != 1 || run.Pending == nil {
			t.Fatalf("%+v", run)
		}
		h.revoke(ann, cancel)
		h.want(200, &below, "GET", "/api/runs/"+string(run.Children[0].RunID), other, "")
		h.want(200, &run, "GET", "/api/runs/"+string(run.ID), other, "")
		if string(run.Status) != name || string(below.Status) != name {
			t.Errorf("%s: %+v, below it %+v", name, run, below)
		}
		h.want(404, nil, "GET", "/api/approvals/last", other, "")
	}
}

// M16: the stream that an MCP client listens on ends with its token.
func TestM16_RevokedMCP(t *testing.T) {
	h := open(t, "")
	ann := h.token("ann", signIn)
	head := []string{"Accept", "application/json, text/event-stream", "MCP-Protocol-Version", "2025-11-25"}
	res, err := http.DefaultClient.Do(h.request("POST", "/mcp", ann, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+
		`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`, head...))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	head = append(head, "Mcp-Session-Id", res.Header.Get("Mcp-Session-Id"))
	listens, err := http.DefaultClient.Do(h.request("GET", "/mcp", ann, "", head...))
	if err != nil || listens.StatusCode != 200 {
		t.Fatal(listens, err)
	}
	defer listens.Body.Close()
	h.within("MCP", listens, func() { h.revoke(ann, false) })
}

// M16: a running run ends with its next call, or at once if its token is revoked with its runs.
func TestM16_RevokedDriven(t *testing.T) {
	h := openWith(t, agents, map[string]string{
		"demo.script": "- {text: x, delay: 1500ms, tool_calls: [{name: read_file, arguments: {path: x}}]}\n- {text: done}\n",
		"slow.script": never,
	})
	for name, want := range map[string]string{"default": "failed policy_denied", "slow": "cancelled cancelled"} {
		ann, other := h.token("ann", signIn), h.token("ann", signIn)
		var run service.Run
		h.want(202, &run, "POST", "/api/runs", ann, `{"agent":"`+name+`","input":"Work.","detach":true}`)
		h.revoke(ann, name == "slow")
		h.eventually("the run ends", func() bool {
			h.want(200, &run, "GET", "/api/runs/"+string(run.ID), other, "")
			return run.Status.Ended()
		})
		if got := string(run.Status) + " " + string(run.StopReason); got != want {
			text, _ := json.Marshal(run)
			t.Errorf("%s: %s", name, text)
		}
	}
}

// M16: each entry of the audit log that is caused with a token names it, and others name none.
func TestM16_AuditNamesToken(t *testing.T) {
	h := open(t, "")
	boss, ann := h.token("boss", signIn), h.token("ann", signIn)
	var run service.Run
	h.want(200, &run, "POST", "/api/runs", ann, `{"input":"Write."}`)
	h.want(200, nil, "POST", "/api/approvals/"+run.Pending.ApprovalID, ann,
		`{"decision":"approve","digest":"`+run.Pending.Digest+`","remember":"user"}`)
	h.eventually("the run completes", func() bool {
		h.want(200, &run, "GET", "/api/runs/"+string(run.ID), ann, "")
		return run.Status == "completed"
	})
	var kept server.RememberedList
	h.want(200, &kept, "GET", "/api/remembered", ann, "")
	h.want(200, nil, "DELETE", "/api/remembered/"+kept.Remembered[0].ID, boss, "")
	h.want(200, nil, "PUT", "/api/tools/read_file", boss, `{"enabled":false}`)
	h.want(200, nil, "DELETE", "/api/tools/read_file/override", boss, "")
	h.want(200, nil, "PUT", "/api/tool-groups/files", boss, `{"enabled":false}`)
	h.want(200, nil, "POST", "/api/gate/decide", ann, `{"tool":"Read","arguments":{"file_path":"x"}}`)
	h.want(200, nil, "POST", "/api/runs/prune", boss, `{"runs":["`+string(run.ID)+`"]}`)
	other := open(t, "")
	there := other.token("boss", signIn)
	other.want(200, &run, "POST", "/api/runs", there, `{"agent":"slow","input":"Talk."}`)
	_, _, export := other.ask("GET", "/api/runs/"+string(run.ID)+"/export", there, "")
	text, _ := json.Marshal(api.ImportRequest{Export: string(export)})
	h.want(200, nil, "POST", "/api/runs/import", boss, string(text))
	if _, err := h.service.Policy.SwitchTool(t.Context(), root,
		policy.SwitchRequest{Group: "files", Reset: true}); err != nil {
		t.Fatal(err)
	}
	var log store.AuditPage
	h.want(200, &log, "GET", "/api/audit?limit=1000", boss, "")
	tokens := map[string]string{"boss": h.tokenID(boss), "ann": h.tokenID(ann), root.User: ""}
	seen := map[string]bool{}
	for _, e := range log.Entries {
		if id, ok := tokens[e.By]; e.Chain == store.SystemChain && (!ok || e.Token != id) {
			t.Errorf("%s by %s names %q, want %q: %s", e.Kind, e.By, e.Token, id, e.Payload)
		}
		seen[e.By+" "+string(e.Kind)] = true
	}
	for _, want := range []string{
		"ann approval_remembered", "boss approval_forgotten", "boss override_set", "boss override_reset", "ann other_call",
		"boss run_removed", "boss run_imported", root.User + " override_reset", root.User + " user_added", root.User +
			" token_issued",
	} {
		if !seen[want] {
			t.Errorf("there is no entry %s: %v", want, seen)
		}
	}
	if all, err := h.service.Verify(t.Context(), root, "", nil); err != nil || len(all) != 1 || !all[0].OK {
		t.Error(all, err)
	}
}

// M16: raised limits and a cancellation name the token with which they were made, not that of the run.
func TestM16_AuditNamesTokenOfRuns(t *testing.T) {
	h := open(t, "")
	h.script("slow.script", never)
	boss, ann := h.token("boss", signIn), h.token("ann", signIn)
	var waits, driven service.Run
	h.want(200, &waits, "POST", "/api/runs", ann, `{"input":"Write."}`)
	h.want(200, nil, "POST", "/api/runs/"+string(waits.ID)+"/resume", boss, `{"add_iterations":2}`)
	h.want(200, nil, "POST", "/api/runs/"+string(waits.ID)+"/cancel", boss, "{}")
	h.want(202, &driven, "POST", "/api/runs", ann, `{"agent":"slow","input":"Wait.","detach":true}`)
	h.want(200, nil, "POST", "/api/runs/"+string(driven.ID)+"/cancel", boss, "{}")
	want := map[string]string{"run_started": h.tokenID(ann), "limits_raised": h.tokenID(boss), "stopped": h.tokenID(boss)}
	for _, run := range []service.Run{waits, driven} {
		var log store.AuditPage
		h.want(200, &log, "GET", "/api/audit?run="+string(run.ID), boss, "")
		seen := 0
		for _, e := range log.Entries {
			if id, ok := want[string(e.Kind)]; ok && e.Token != id {
				t.Errorf("%s names %q, want %q", e.Kind, e.Token, id)
			} else if ok {
				seen++
			}
		}
		if seen != 2 && run.ID == driven.ID || seen != 3 && run.ID == waits.ID {
			t.Errorf("%d entries: %+v", seen, log.Entries)
		}
	}
}

// M16: when an administrator is removed, the waiting runs of the tokens that they issued end.
func TestM16_RevokedIssuer(t *testing.T) {
	h := open(t, "")
	h.token("ann", signIn)
	h.token("boss", signIn)
	for kind, scope := range map[string]access.Scope{"sign-in": signIn, "scoped": {}} {
		boss := toolcrib.Principal{User: "boss", Admin: true}
		issued, err := h.service.People.CreateToken(t.Context(), boss,
			people.TokenRequest{User: "ann", Scope: scope, Via: "cli"})
		if err != nil {
			t.Fatal(err)
		}
		var run, now service.Run
		h.want(200, &run, "POST", "/api/runs", issued.Token, `{"input":"Write."}`)
		other := h.token("ann", signIn)
		if _, _, err := h.service.People.EditUser(t.Context(), root, "boss", access.Edit{Disabled: new(true)}); err != nil {
			t.Fatal(err)
		}
		h.want(200, &now, "GET", "/api/runs/"+string(run.ID), other, "")
		if now.Status != "failed" || now.StopReason != "policy_denied" || now.Pending != nil {
			t.Errorf("%s: %+v", kind, now)
		}
		if _, _, err := h.service.People.EditUser(t.Context(), root, "boss", access.Edit{Disabled: new(false)}); err != nil {
			t.Fatal(err)
		}
	}
}

// M16: a stream ends when its user loses a role, also one by a group, and not when another role comes.
func TestM16_RoleWithdrawn(t *testing.T) {
	h := open(t, "")
	h.script("slow.script", never)
	approver := h.token("eve", signIn)
	edit := func(e access.Edit) {
		t.Helper()
		if _, _, err := h.service.People.EditUser(t.Context(), root, "eve", e); err != nil {
			t.Fatal(err)
		}
	}
	group := func(roles ...string) {
		t.Helper()
		if _, _, err := h.service.People.PutGroup(t.Context(), root, "office", access.GroupEdit{Roles: &roles}); err != nil {
			t.Fatal(err)
		}
	}
	group("approver")
	for name, withdraw := range map[string]func(){
		"of the user":  func() { edit(access.Edit{Roles: &[]string{"other"}}) },
		"of the group": func() { group() },
	} {
		if name == "of the user" {
			edit(access.Edit{Roles: &[]string{"approver"}})
		} else {
			edit(access.Edit{Roles: &[]string{}, Groups: &[]string{"office"}})
		}
		var own service.Run
		h.want(202, &own, "POST", "/api/runs", approver, `{"agent":"slow","input":"Wait.","detach":true}`)
		r := h.request("GET", "/api/runs/"+string(own.ID)+"/events", approver, "", "Accept", "text/event-stream")
		stream, err := http.DefaultClient.Do(r)
		if err != nil || stream.StatusCode != 200 {
			t.Fatal(stream, err)
		}
		text := h.within(name, stream, withdraw)
		_ = stream.Body.Close()
		if !strings.Contains(text, "forbidden") {
			t.Errorf("%s: %s", name, text)
		}
		h.want(200, nil, "GET", "/api/me", approver, "")
	}
}

// M16: a stream that an administrator began ends when they no longer are one. They keep the rights of a user.
func TestM16_NoLongerAdministrator(t *testing.T) {
	h := open(t, "")
	h.script("slow.script", never)
	ann, boss := h.token("ann", signIn), h.token("boss", signIn)
	var run service.Run
	h.want(202, &run, "POST", "/api/runs", ann, `{"agent":"slow","input":"Wait.","detach":true}`)
	stream, err := http.DefaultClient.Do(h.request("GET", "/api/runs/"+string(run.ID)+"/events", boss, "", "Accept",
		"text/event-stream"))
	if err != nil || stream.StatusCode != 200 {
		t.Fatal(stream, err)
	}
	defer stream.Body.Close()
	text := h.within("of another's run", stream, func() {
		if _, _, err := h.service.People.EditUser(t.Context(), root, "boss", access.Edit{Admin: new(false)}); err != nil {
			t.Fatal(err)
		}
	})
	if !strings.Contains(text, "forbidden") {
		t.Errorf("%s", text)
	}
	h.want(404, nil, "GET", "/api/runs/"+string(run.ID), boss, "")
	h.want(200, nil, "GET", "/api/me", boss, "")
}
