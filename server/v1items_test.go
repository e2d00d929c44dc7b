package server_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/server/openai"
)

// An item_reference is resolved to the item, of any answer: replies before the answer, calls, a text about an approval
// also after the decision, JSON of a schema.
func TestV1_ItemReference(t *testing.T) {
	h := v1House(t)
	ann, bob := h.token("ann", signIn), h.token("bob", signIn)
	respond := func(body string) (r openai.Response) {
		t.Helper()
		h.want(200, &r, "POST", "/v1/responses", ann, body)
		return r
	}
	read := func(run toolcrib.RunID) (texts []string) {
		var all struct{ Messages []toolcrib.Message }
		h.want(200, &all, "GET", "/api/runs/"+string(run)+"/messages", ann, "")
		for _, m := range all.Messages {
			texts = append(texts, string(m.Role)+": "+m.Text())
		}
		return texts
	}
	const schema = `,"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}}}`
	const tools = `,"tools":[{"type":"function","name":"get_weather","parameters":{"type":"object"}}]`
	refers := func(id string) string {
		return `{"model":"hello","input":[{"type":"item_reference","id":"` + id + `"},{"role":"user","content":"x"}]}`
	}
	var id string
	for agent, more := range map[string]string{"hello": "", "steps": "", "json": schema, "writes": "", "weather": tools} {
		body := `{"model":"` + agent + `"` + more + `,"input":[{"role":"user","content":"x"}`
		first := respond(body + `]}`)
		if p := first.Toolcrib.Pending; p != nil && p.ApprovalID != "" {
			h.want(200, nil, "POST", "/api/approvals/"+p.ApprovalID, ann, `{"decision":"approve","digest":"`+p.Digest+`"}`)
			h.eventually("the run's end", func() bool { return h.runOf(ann, string(first.Toolcrib.RunID)).Status.Ended() })
		}
		items, references := "", ""
		for _, item := range first.Output {
			raw, err := json.Marshal(item)
			if err != nil {
				t.Fatal(err)
			}
			items, references = items+","+string(raw), references+`,{"type":"item_reference","id":"`+item.ID+`"}`
			if item.CallID != "" {
				result := `,{"type":"function_call_output","call_id":"` + item.CallID + `","output":"sun"}`
				items, references = items+result, references+result
			}
		}
		if agent == "hello" {
			id = first.Output[0].ID
		}
		const next = `,{"role":"user","content":"y"}]}`
		got := respond(body + references + next)
		if agent == "weather" {
			if got.Toolcrib.RunID != first.Toolcrib.RunID ||
				!strings.Contains(fmt.Sprint(read(got.Toolcrib.RunID)), "Sunny in Berlin.") {
				t.Errorf("%s: %+v, want run %s", agent, got, first.Toolcrib.RunID)
			}
			continue
		}
		want := respond(body + items + next)
		if got, want := read(got.Toolcrib.RunID), read(want.Toolcrib.RunID); !reflect.DeepEqual(got, want) || len(got) < 4 {
			t.Errorf("%s: %q, want %q", agent, got, want)
		}
	}
	for _, other := range []string{id + "0", "msg_1", "msg_00000000000000000000000000_0_1"} {
		h.want(400, nil, "POST", "/v1/responses", ann, refers(other))
	}
	h.want(400, nil, "POST", "/v1/responses", bob, refers(id))
}
