package openai_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/server/openai"
)

const (
	run  = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	call = "call_" + run + "_1"
)

// The page has every field of both APIs, with the texts of the code.
func TestFields_AreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "openai.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, tables, _ := strings.Cut(string(page), "**Chat Completions**")
	chat, rest, _ := strings.Cut(tables, "**Responses**")
	responses, _, _ := strings.Cut(rest, "\n## ")
	for name, fields := range map[string][]openai.Field{chat: openai.ChatFields, responses: openai.ResponsesFields} {
		want := "| field | |\n|---|---|\n"
		for _, f := range fields {
			want += "| `" + f.Name + "` | " + f.About + " |\n"
		}
		if strings.TrimSpace(name) != strings.TrimSpace(want) {
			t.Errorf("docs/openai.md has\n%s\nwant\n%s", name, want)
		}
	}
}

func read(chat bool, body string) (*openai.Ask, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &fields); err != nil {
		panic(err)
	}
	if chat {
		return openai.ReadChat(fields)
	}
	return openai.ReadResponses(fields, item)
}

// item returns the items that a test refers to.
func item(id string) (*openai.ResponseItem, error) {
	if id != "msg_known" {
		return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "no item")
	}
	return &openai.ResponseItem{Content: &[]openai.ResponsePart{{Text: "Known."}}}, nil
}

// Each field, with values of every type, is accepted or rejected with its name.
func TestFields_OfAnyType(t *testing.T) {
	values := []string{
		`null`, `true`, `false`, `0`, `1`, `-1`, `1e9`, `1.5`, `""`, `"x"`, `"auto"`, `[]`, `[null]`, `[1]`, `["x"]`, `[[]]`,
		`[{}]`, `{}`,
		`{"type":"function"}`, `{"type":{}}`, `[{"type":"function","function":null}]`, `[{"type":"function","name":7}]`,
		`[{"role":"user"}]`, `[{"role":"user","content":[{"type":"text","text":[]}]}]`, `[{"role":"tool","content":"x","tool_call_id":7}]`,
		`[{"role":"user","content":[{"type":"image_url","image_url":null}]}]`, `[{"type":"function_call_output","call_id":"x"}]`,
		`[{"role":"assistant","tool_calls":[{}]}]`, `{"format":7}`, `{"format":{"type":"json_schema"}}`, `{"include_usage":"yes"}`,
	}
	for _, chat := range []bool{true, false} {
		fields := openai.ResponsesFields
		if chat {
			fields = openai.ChatFields
		}
		for _, f := range fields {
			for _, v := range values {
				_, err := read(chat, `{"`+f.Name+`":`+v+`}`)
				var wrong *openai.Error
				if err != nil && (!errors.As(err, &wrong) || !strings.HasPrefix(wrong.Param, f.Name) ||
					toolcrib.CodeOf(err) != toolcrib.CodeBadRequest) {
					t.Errorf("%s: %s: %v", f.Name, v, err)
				}
				if v == `null` && err != nil {
					t.Errorf("%s: null is not absent: %v", f.Name, err)
				}
			}
		}
	}
}

func TestMessages(t *testing.T) {
	asked := `{"role":"user","content":"Weather?"},{"role":"assistant","content":null,"tool_calls":[
		{"id":"a","type":"function","function":{"name":"w","arguments":"{\"x\":1}"}},
		{"id":"b","type":"function","function":{"name":"w","arguments":"broken"}}]}`
	result := func(id string) string {
		return `{"role":"tool","tool_call_id":"` + id + `","content":"sun ` + id + `"}`
	}
	good := map[string]string{ // the roles, with the remaining results for a run
		`{"role":"user","content":"x"}`: "user",
		`{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"x"}]}`: "user",
		`{"role":"assistant","content":"Hi!"},{"role":"user","content":"x"}`:                     "user assistant user",
		asked + "," + result("b") + "," + result("a"):                                            "user assistant tool a b",
		asked + "," + result("a") + "," + result("b") +
			`,{"role":"user","content":"and?"}`: "user assistant tool user a b +and?",
		asked + "," + result("a") + "," + result("b") + `,{"role":"assistant","content":"y"},{"role":"user","content":"z"}`: "user assistant tool assistant user",
		`{"role":"user","content":"x"},{"role":"assistant","content":""},{"role":"user","content":"y"}`:                     "user user",
		`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}`:                 "user file0:1",
	}
	for messages, want := range good {
		a, err := read(true, `{"messages":[`+messages+`]}`)
		if err != nil {
			t.Errorf("%s: %v", messages, err)
			continue
		}
		var got []string
		for _, m := range a.Messages {
			got = append(got, string(m.Role))
		}
		for at, files := range a.Files {
			got = append(got, fmt.Sprintf("file%d:%d", at, len(files)))
		}
		for _, r := range a.Results {
			got = append(got, r.CallID)
		}
		for _, s := range a.Said {
			got = append(got, "+"+s)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", messages, got, want)
		}
	}
	bad := map[string]string{ // with their errors
		``:                                  "messages",
		`{"role":"system","content":"x"}`:   "messages",
		`{"role":"user","content":""}`:      "messages[0].content",
		`{"role":"user","content":" \n"}`:   "messages[0].content",
		`{"role":"user"}`:                   "messages[0].content",
		`{"role":"robot","content":"x"}`:    "messages[0].role",
		`{"role":"function","content":"x"}`: "messages[0].role",
		result("a"):                         "messages[0].tool_call_id",
		asked:                               "messages",
		asked + "," + result("a"):           "messages",
		asked + "," + result("c"):           "messages[2].tool_call_id",
		asked + "," + result("a") + "," + result("a"):                                                                                             "messages[3].tool_call_id",
		asked + "," + result("a") + `,{"role":"user","content":"x"}`:                                                                              "messages[3].content",
		asked + "," + result("a") + `,{"role":"assistant","content":"x"}`:                                                                         "messages[3]",
		`{"role":"user","content":"x"},{"role":"assistant","content":"prefill"}`:                                                                  "messages",
		`{"role":"user","content":[{"type":"input_audio"}]}`:                                                                                      "messages[0].content[0].type",
		`{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://169.254.169.254/"}}]}`:                                          "messages[0].content[0].image_url",
		`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,!"}}]}`:                                          "messages[0].content[0].image_url",
		`{"role":"user","content":[{"type":"file","file":{"file_id":"file_1"}}]}`:                                                                 "messages[0].content[0]",
		`{"role":"user","content":"x","tool_calls":[{"id":"a"}]}`:                                                                                 "messages[0].tool_calls",
		`{"role":"user","content":"x"},{"role":"assistant","function_call":{"name":"f"}}`:                                                         "messages[1].function_call",
		`{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f"}},{"id":"a","function":{"name":"f"}}]}`: "messages[1].tool_calls[1]",
	}
	for messages, want := range bad {
		_, err := read(true, `{"messages":[`+messages+`]}`)
		var wrong *openai.Error
		if !errors.As(err, &wrong) || wrong.Param != want {
			t.Errorf("%s: %v, want one about %s", messages, err, want)
		}
	}
	a, err := read(false, `{"input":[{"role":"developer","content":"d"},{"role":"user","content":[{"type":"input_text","text":"x"}]},
		{"type":"reasoning","summary":[]},{"type":"function_call","call_id":"a","name":"w","arguments":"{}"},
		{"type":"function_call","call_id":"b","name":"w","arguments":"{}"},{"type":"function_call_output","call_id":"b","output":"2"},
		{"type":"function_call_output","call_id":"a","output":[{"type":"input_text","text":"1"}]}]}`)
	if err != nil || len(a.Messages) != 3 || len(a.Results) != 2 || a.Results[0].Content != "1" || a.System != "d" {
		t.Errorf("%+v %v", a, err)
	}
}

// A result is text: the model learns that there was a file in it, and the conversation continues.
func TestMessages_FileInAResult(t *testing.T) {
	const image = `[{"type":"input_text","text":"Here: "},{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]`
	for chat, body := range map[bool]string{
		true: `{"messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"a","type":"function",
			"function":{"name":"view","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":` + image + `}]}`,
		false: `{"input":[{"role":"user","content":"x"},{"type":"function_call","call_id":"a","name":"view","arguments":"{}"},
			{"type":"function_call_output","call_id":"a","output":` + image + `}]}`,
	} {
		a, err := read(chat, body)
		if err != nil || len(a.Results) != 1 ||
			!strings.HasPrefix(a.Results[0].Content, "Here: (A file, image/png, 3 bytes,") {
			t.Errorf("%v: %v %+v", chat, err, a)
		}
	}
}

// An item of an earlier answer may be referred to, also without a type. An unknown one is rejected.
func TestMessages_Reference(t *testing.T) {
	for reference, known := range map[string]bool{
		`{"type":"item_reference","id":"msg_known"}`: true, `{"id":"msg_known"}`: true, `{"type":null,"id":"msg_known"}`: true,
		`{"type":"item_reference","id":"msg_other"}`: false, `{"type":"item_reference"}`: false, `{}`: false,
	} {
		a, err := read(false, `{"input":[{"role":"user","content":"x"},`+reference+`,{"role":"user","content":"y"}]}`)
		if known != (err == nil) || known && (len(a.Messages) != 3 || a.Messages[1].Text() != "Known.") {
			t.Errorf("%s: %v %+v", reference, err, a)
		}
		if !known && toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
			t.Errorf("%s: %v", reference, err)
		}
	}
	for id, want := range map[string]string{
		"msg_06H292AWFCM712BYDY1BXVBSF8_0_1": "run_06H292AWFCM712BYDY1BXVBSF8 0 false", "msg_x_0_1": "",
		"fc_06H292AWFCM712BYDY1BXVBSF8_12j_3": "run_06H292AWFCM712BYDY1BXVBSF8 12 true",
		"msg_06H292AWFCM712BYDY1BXVBSF8_0_0":  "",
	} {
		run, after, schema, ok := openai.ReadItemID(id)
		if got := fmt.Sprint(run, " ", after, " ", schema); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %s %v", id, got, ok)
		}
	}
}

// Tools in a namespace are offered by their own names, and their calls name the namespace. The web search that comes
// with every request of a command line is left out.
func TestTools_InANamespace(t *testing.T) {
	const one, more = `{"type":"function","name":"run","parameters":{"type":"object"}}`, `{"type":"function","name":"spawn"}`
	a, err := read(false, `{"input":"x","client_metadata":{"a":"b"},"tools":[`+one+`,{"type":"web_search","external_web_access":false},
		{"type":"namespace","name":"agents","description":"d","tools":[`+more+`]}]}`)
	if err != nil || len(a.Tools) != 2 || a.Tools[0].Name != "run" || a.Tools[1].Name != "spawn" {
		t.Fatalf("%v %+v", err, a)
	}
	answer := openai.NewRespond(a, "x", 0, nil)
	calls := []openai.Call{{ID: "1", Name: "run", Arguments: "{}"}, {ID: "2", Name: "spawn", Arguments: "{}"}}
	if err := answer.End(&openai.Outcome{Calls: calls}); err != nil {
		t.Fatal(err)
	}
	out := answer.Whole().(openai.Response).Output
	if len(out) != 2 || out[0].Namespace != "" || out[1].Namespace != "agents" {
		t.Errorf("%+v", out)
	}
	for _, tools := range []string{
		`{"type":"namespace","name":"a","tools":[` + one + `]},` + one, `{"type":"namespace","name":"a"}`,
		`{"type":"namespace","tools":[]}`, `{"type":"namespace","name":"a","tools":[{"type":"namespace","name":"b","tools":[]}]}`,
		`{"type":"code_interpreter"}`,
	} {
		if _, err := read(false, `{"input":"x","tools":[`+tools+`]}`); toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
			t.Errorf("%s: %v", tools, err)
		}
	}
}

func TestCallID(t *testing.T) {
	if got := openai.CallID(run, 1); got != call {
		t.Error(got)
	}
	if r, n, ok := openai.ReadCallID(call); r != run || n != 1 || !ok {
		t.Error(r, n, ok)
	}
	for _, id := range []string{
		"", "call_1", call + "x", "call_" + run + "_0", "call_" + run + "_9999999", "x" + call,
		"call_run_../../etc/passwd_1",
	} {
		if _, _, ok := openai.ReadCallID(id); ok {
			t.Errorf("%q is one", id)
		}
	}
}

// heard is the output of a teller.
type heard struct {
	text, thought string
	end           *openai.Outcome
}

func (h *heard) Whole() any { return nil }

func (h *heard) Think(text string) error                       { h.thought += text; return nil }
func (h *heard) Say(text string) error                         { h.text += text; return nil }
func (h *heard) Break() error                                  { h.text = strings.TrimSuffix(h.text, "|") + "|"; return nil }
func (h *heard) End(o *openai.Outcome) error                   { h.end = o; return nil }
func (h *heard) Fail(openai.ErrorDetail, toolcrib.Usage) error { return nil }
func token(from int, text string) journal.Frame {
	return journal.Frame{Event: "token", Data: journal.TextView{Text: text, From: from}}
}

func kept(event string, data any) journal.Frame {
	return journal.Frame{Seq: 7, Event: event, Data: data}
}

func message(text string) journal.Frame {
	return kept("message", journal.MessageView{Text: text, Thinking: "hm"})
}

// The output is the same however much of a run was received live.
func TestTeller_LateOrLagged(t *testing.T) {
	done := kept("done", journal.DoneView{Done: journal.Done{
		Status: "completed", Content: "Bye now.",
		Usage: toolcrib.Usage{TotalTokens: 9},
	}})
	thought := journal.Frame{Event: "thinking", Data: journal.TextView{Text: "h"}}
	lagged := journal.Frame{Event: "lagged", Data: struct{}{}}
	for name, frames := range map[string][]journal.Frame{
		"live": {
			thought, token(0, "I "), token(2, "look."), message("I look."), token(0, "Bye "),
			token(4, "now."), message("Bye now."), done,
		},
		"late": {message("I look."), message("Bye now."), done},
		"lagged": {
			token(0, "I "), lagged, token(5, "k."), message("I look."), token(0, "Bye"), lagged,
			message("Bye now."), done,
		},
		"joined in the middle": {token(2, "look."), message("I look."), token(0, "Bye now."), message("Bye now."), done},
		"joined":               {token(0, "I look."), message("I look."), message("Bye now."), done},
	} {
		h := &heard{}
		teller := openai.NewTeller(&openai.Ask{}, h, toolcrib.Usage{TotalTokens: 2})
		for _, f := range frames {
			if err := teller.Frame(f); err != nil {
				t.Fatal(err)
			}
		}
		if err := teller.Over(run, nil, nil); err != nil {
			t.Fatal(err)
		}
		if h.text != "I look.|Bye now.|" || h.thought != "hmhm" || h.end.Text != "Bye now." || h.end.Usage.TotalTokens != 7 {
			t.Errorf("%s: %q %q %+v", name, h.text, h.thought, h.end)
		}
	}
	if used := openai.NewTeller(&openai.Ask{}, nil, toolcrib.Usage{TotalTokens: 2}).Spent(); used != (toolcrib.Usage{}) {
		t.Errorf("an answer of which nothing is known has used %+v", used)
	}
	// A reply that was taken back is sent again as a whole, after a break.
	h := &heard{}
	teller := openai.NewTeller(&openai.Ask{}, h, toolcrib.Usage{})
	for _, f := range []journal.Frame{token(0, "No, "), message("Yes.")} {
		if err := teller.Frame(f); err != nil {
			t.Fatal(err)
		}
	}
	if h.text != "No, |Yes.|" {
		t.Errorf("%q", h.text)
	}
}

// The client's calls end an answer, whatever the run has done since. A pause for a person ends it only while it lasts.
func TestTeller_Pauses(t *testing.T) {
	pause := func(kind string) journal.Frame {
		return kept("paused", &journal.Paused{Status: "x", Pending: journal.Pending{
			Kind: kind, Calls: []journal.ApprovalItem{{ID: "c", Name: "w", Arguments: json.RawMessage(`{"x":1}`)}},
		}})
	}
	h := &heard{}
	teller := openai.NewTeller(&openai.Ask{}, h, toolcrib.Usage{})
	for _, f := range []journal.Frame{pause("approval"), message("On it.")} {
		if err := teller.Frame(f); err != nil || (f.Event == "message") != (teller.Paused == nil) {
			t.Fatal(err)
		}
	}
	if err := teller.Frame(pause(journal.PendingClientTool)); !errors.Is(err, openai.ErrOver) {
		t.Fatal(err)
	}
	if err := teller.Over(run, func(string) int { return 1 }, nil); err != nil {
		t.Fatal(err)
	}
	if len(h.end.Calls) != 1 || h.end.Calls[0] != (openai.Call{ID: call, Name: "w", Arguments: `{"x":1}`}) ||
		h.end.Text != "On it." {
		t.Errorf("%+v", h.end)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(true, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:a/b;base64,AA=="}}]}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}}}`)
	f.Add(false, `{"input":[{"role":"user","content":"x"},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"x"}],"text":{"format":{"type":"json_object"}}}`)
	f.Fuzz(func(t *testing.T, chat bool, body string) {
		var fields map[string]json.RawMessage
		if json.Unmarshal([]byte(body), &fields) != nil {
			return
		}
		a, err := read(chat, body)
		if err != nil {
			return
		}
		open := 0
		for _, m := range a.Messages {
			open += len(m.ToolCalls())
			for _, p := range m.Parts {
				if p.ToolResult != nil {
					open--
				}
			}
		}
		if open != 0 {
			t.Errorf("%d calls have no result", open)
		}
	})
}

// An answer ends before the first of its stop texts, however it is cut into pieces, and is the same whether it is
// streamed or sent as a whole.
func TestStop(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"Thought: look\nObservation: none", "Thought: look\n"},
		{"No stop here: Observatio", "No stop here: Observatio"},
		{"Observation:", ""},
		{"a ENDED", "a "},
		{"früh É€€€", "früh "},
		{"xabcd", "xa"},
		{"aObsObservation:b", "aObs"},
	} {
		for size := 1; size <= len(c.text); size++ {
			a, err := read(true, `{"stop":["Observation:","END","É€€","bc","abcd"]}`)
			if err != nil {
				t.Fatal(err)
			}
			h := &heard{}
			teller := openai.NewTeller(a, h, toolcrib.Usage{})
			var frames []journal.Frame
			for rest := c.text; rest != ""; {
				n := min(size, len(rest))
				frames, rest = append(frames, token(len(c.text)-len(rest), rest[:n])), rest[n:]
			}
			done := kept("done", journal.DoneView{Done: journal.Done{Content: c.text}})
			for _, f := range append(frames, message(c.text), done) {
				if err := teller.Frame(f); err != nil {
					t.Fatal(err)
				}
			}
			if err := teller.Over(run, nil, nil); err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimRight(h.text, "|"); got != c.want || h.end.Text != c.want {
				t.Errorf("%q in pieces of %d: %q and %q, want %q", c.text, size, got, h.end.Text, c.want)
			}
		}
	}
}
