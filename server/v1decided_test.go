package server_test

import (
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/server/openai"
)

// After an answer that says that an approval is needed, the next turn learns the decision, whoever made it and by
// whatever route. Approvals of other users are not reported.
func TestV1_DecidedElsewhere(t *testing.T) {
	h := v1House(t)
	ann, bob, boss := h.token("ann", signIn), h.token("bob", signIn), h.token("boss", access.Scope{SignIn: true})
	next := func(token, said string) string {
		t.Helper()
		_, c := h.chat(token, "hello", []line{
			{"role": "user", "content": "Write."}, {"role": "assistant", "content": said}, {"role": "user", "content": "And?"},
		})
		var all struct{ Messages []toolcrib.Message }
		h.want(200, &all, "GET", "/api/runs/"+string(c.Toolcrib.RunID)+"/messages", token, "")
		if got := all.Messages[1].Text(); got != said {
			t.Errorf("the answer before is %q, want %q", got, said)
		}
		return all.Messages[2].Text()
	}
	for _, one := range [][2]string{ // the write that is approved is the last: another one with its content would not ask
		{"deny", " is decided, deny: not now; write_file: refused. The run is completed. Its answer: done"},
		{"", " is pending; write_file: no result yet. The run is waiting_for_approval."},
		{"approve", " is decided, approve; write_file: ok. The run is completed. Its answer: done"},
	} {
		decision, want := one[0], one[1]
		var c openai.ChatCompletion
		h.want(200, &c, "POST", "/v1/chat/completions", ann, chatBody("writes", ""))
		p, said := c.Toolcrib.Pending, *c.Choices[0].Message.Content
		if decision != "" {
			h.want(200, nil, "POST", "/api/approvals/"+p.ApprovalID, ann,
				`{"decision":"`+decision+`","digest":"`+p.Digest+`","reason":"`+map[string]string{"deny": "not now"}[decision]+`"}`)
			h.eventually("the run's end", func() bool { return h.runOf(ann, string(c.Toolcrib.RunID)).Status.Ended() })
		}
		if got := next(ann, said); got != "And?\n\n(Since then: approval "+p.ApprovalID+want+")" {
			t.Errorf("%q: %q, want %q", decision, got, want)
		}
		for who, token := range map[string]string{"bob": bob, "boss": boss, "another token": h.token("ann", access.Scope{})} {
			if got := next(token, said); got != "And?" {
				t.Errorf("%s reads %q", who, got)
			}
		}
	}
	// After a sub-agent's approval, the chat gets the answer of the run that it asked.
	var c openai.ChatCompletion
	h.want(200, &c, "POST", "/v1/chat/completions", ann, chatBody("sends", ""))
	p := c.Toolcrib.Pending
	h.want(200, nil, "POST", "/api/approvals/"+p.ApprovalID, ann, `{"decision":"approve","digest":"`+p.Digest+`"}`)
	h.eventually("the run's end", func() bool { return h.runOf(ann, string(c.Toolcrib.RunID)).Status.Ended() })
	want := "And?\n\n(Since then: approval " + p.ApprovalID + " is decided, approve; write_file: ok. The run is completed. Its answer: all of it)"
	if got := next(ann, *c.Choices[0].Message.Content); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
