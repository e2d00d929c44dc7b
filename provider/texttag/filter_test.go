package texttag

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// read filters the pieces of a reply and returns the result.
func read(pieces []string, reason toolcrib.FinishReason) (text string, c *call, notices []toolcrib.Notice) {
	var f filter
	var b strings.Builder
	for _, p := range pieces {
		b.WriteString(f.write(p))
	}
	b.WriteString(f.end(reason == toolcrib.FinishLength))
	return b.String(), f.call, f.notices()
}

func whole(s string) []string { return []string{s} }

func codes(notices []toolcrib.Notice) string {
	var all []string
	for _, n := range notices {
		all = append(all, n.Code)
	}
	return strings.Join(all, " ")
}

func TestX1_Calls(t *testing.T) {
	const repaired, dropped = toolcrib.NoticeToolCallRepaired, toolcrib.NoticeToolCallRepaired
	for _, tt := range []struct{ name, reply, text, tool, args, codes string }{
		{"plain", `<tool_call>{"name": "fetch", "args": {"url": "u"}}</tool_call>`, "", "fetch", `{"url": "u"}`, ""},
		{"text before", "Let me look.\n<tool_call>{\"name\":\"a\",\"args\":{}}</tool_call>", "Let me look.\n", "a", "{}", ""},
		{"nested", `<tool_call>{"name":"a","args":{"x":{"y":[{"z":{}}]}}}</tool_call>`, "", "a", `{"x":{"y":[{"z":{}}]}}`, ""},
		{"closing tag in a string", `<tool_call>{"name":"a","args":{"x":"</tool_call>\"}</tool_call>"}}</tool_call>`, "", "a", `{"x":"</tool_call>\"}</tool_call>"}`, ""},
		{"opening tag in a string", `<tool_call>{"name":"a","args":{"x":"<tool_call>{"}}</tool_call>`, "", "a", `{"x":"<tool_call>{"}`, ""},
		{"lines", "<tool_call>\n{\n \"name\": \"a\",\n \"args\": {}\n}\n</tool_call>\n", "", "a", "{}", ""},
		{"no arguments", `<tool_call>{"name":"a"}</tool_call>`, "", "a", "{}", ""},
		{"arguments", `<tool_call>{"name":"a","arguments":{"b":1}}</tool_call>`, "", "a", `{"b":1}`, repaired},
		{"parameters", `<tool_call>{"name":"a","parameters":{"b":1}}</tool_call>`, "", "a", `{"b":1}`, repaired},
		{"text in args", `<tool_call>{"name":"a","args":"{\"b\":1}"}</tool_call>`, "", "a", `{"b":1}`, repaired},
		{"null args", `<tool_call>{"name":"a","args":null}</tool_call>`, "", "a", `{}`, repaired},
		{"id and type", `<tool_call>{"id":"1","type":"function","name":"a","args":{}}</tool_call>`, "", "a", `{}`, repaired},
		{"fence inside", "<tool_call>\n```json\n{\"name\":\"a\",\"args\":{}}\n```\n</tool_call>", "", "a", "{}", repaired},
		{"text inside", `<tool_call>Here is the "call: {"name":"a","args":{}} - done}</tool_call>`, "", "a", "{}", repaired},
		{"fence around", "So:\n```xml\n<tool_call>{\"name\":\"a\"}</tool_call>\n```\n", "So:\n", "a", "{}", repaired},
		{"spelling", `< Tool-Call >{"name":"a"}< / TOOL_CALL >`, "", "a", "{}", repaired},
		{"full-width", `＜ｔｏｏｌ＿ｃａｌｌ＞{"name":"a"}＜／tool_call＞`, "", "a", "{}", repaired},
		{"look-alikes", `<tооl_саll>{"name":"a"}</tool_call>`, "", "a", "{}", repaired},
		{"no bracket", `<tool_call{"name":"a"}</tool_call>`, "", "a", "{}", repaired},
		{"attribute", `<tool_call id="1">{"name":"a"}</tool_call>`, "", "a", "{}", repaired},
		{"twice opened", `<tool_call><tool_call>{"name":"a"}</tool_call></tool_call>`, "", "a", "{}", repaired + " " + dropped},
		{"not closed", `<tool_call>{"name":"a","args":{}}`, "", "a", "{}", repaired},
		{"half closed", `<tool_call>{"name":"a","args":{}}</tool_c`, "", "a", "{}", repaired},
		{"half closed, then text", "<tool_call>{\"name\":\"a\",\"args\":{}}</tool_call\nmore", "", "a", "{}", dropped},
		{"second call", `<tool_call>{"name":"a"}</tool_call> and <tool_call>{"name":"b"}</tool_call>`, "", "a", "{}", dropped},
		{"second call without end of the first", `<tool_call>{"name":"a"}<tool_call>{"name":"b"}</tool_call>`, "", "a", "{}", dropped},
		{"invented result", "<tool_call>{\"name\":\"a\"}\n<tool_result name=\"a\">{\"x\":1}</tool_result>", "", "a", "{}", dropped},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, c, notices := read(whole(tt.reply), toolcrib.FinishStop)
			if c == nil || c.problem != "" {
				t.Fatalf("no call: %+v, text %q", c, text)
			}
			if c.name != tt.tool || c.arguments != tt.args || text != tt.text {
				t.Errorf("got %q, call %s %s; want %q, call %s %s", text, c.name, c.arguments, tt.text, tt.tool, tt.args)
			}
			if got := codes(notices); got != tt.codes {
				t.Errorf("notices %q, want %q: %+v", got, tt.codes, notices)
			}
		})
	}
}

func TestX8_BrokenBodies(t *testing.T) {
	for _, tt := range []struct{ name, body, tool, problem string }{
		{"empty", ``, "", "empty"},
		{"prose", `fetch the page`, "", "expected one JSON object"},
		{"open", `{"name":"fetch","args":{"url":"u"}`, "fetch", "the text ends too early"},
		{"line break in a string", "{\"name\":\"fetch\",\"args\":{\"x\":\"a\nb\"}}", "fetch", "control character"},
		{"array", `[{"name":"a","args":{}}]`, "a", "found an array"},
		{"text", `"fetch"`, "", "found a string"},
		{"no name", `{"args":{"x":1}}`, "", `"name" is missing`},
		{"name is a number", `{"name":5,"args":{}}`, "", `"name" must be`},
		{"name is empty", `{"name":"","args":{}}`, "", `"name" must be`},
		{"args is an array", `{"name":"a","args":[1]}`, "a", `"args" must be a JSON object`},
		{"args is a text", `{"name":"a","args":"x"}`, "a", `"args" must be a JSON object`},
		{"args is a text with two objects", `{"name":"a","args":"{} {}"}`, "a", `"args" must be a JSON object`},
		{"two kinds of args", `{"name":"a","args":{},"arguments":{"x":1}}`, "a", "are both given"},
		{"args beside name", `{"name":"a","url":"u"}`, "a", `belongs into "args"`},
		{"function form", `{"type":"function","function":{"name":"a","arguments":{}}}`, "", `"name" is missing`},
		{"two values", `{"name":"a","args":{}} {"name":"b","args":{}}`, "a", "nothing may follow"},
		{"a key twice", `{"name":"a","args":{},"args":{"x":1}}`, "a", "duplicate key"},
		// The inner object must not be read as the call.
		{"brace missing at the end", `{"name":"create_user","args":{"name":"bob"}`, "create_user", "the text ends too early"},
		{"brace missing at the start", `"name":"create_user","args":{"name":"bob"}}`, "", "found a string"},
		{"python", `{'name': 'a', 'args': {}}`, "", "double quotes"},
		{"functions", "<function=a>\n<parameter=x>\n1\n</parameter>\n</function>", "", "expected one JSON object"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, c, _ := read(whole(callOpen+tt.body+callClose), toolcrib.FinishStop)
			if c == nil || text != "" {
				t.Fatalf("call %+v, text %q", c, text)
			}
			if c.name != tt.tool || !strings.Contains(c.problem, tt.problem) || c.problem == "" || c.cut {
				t.Errorf("name %q, problem %q; want %q, %q", c.name, c.problem, tt.tool, tt.problem)
			}
			if c.arguments != tt.body {
				t.Errorf("arguments %q, want the body as it was", c.arguments)
			}
		})
	}
}

func TestX8_QuoteThatNeverEnds(t *testing.T) {
	_, c, _ := read(whole(`<tool_call>{"name":"a","args":{"x":"y}}</tool_call> and so on`), toolcrib.FinishStop)
	if c == nil || c.problem == "" || c.arguments != `{"name":"a","args":{"x":"y}}` || c.name != "a" {
		t.Errorf("got %+v", c)
	}
}

func TestX8_CutInsideACall(t *testing.T) {
	for _, reply := range []string{callOpen, callOpen + `{"name":"a","args":{"x":"lo`, "<tool_call"} {
		_, c, _ := read(whole(reply), toolcrib.FinishLength)
		if c == nil || !c.cut || c.problem == "" {
			t.Errorf("%q became %+v, want a cut call", reply, c)
		}
	}
	_, c, notices := read(whole(`<tool_call>{"name":"a","args":{}}`), toolcrib.FinishLength)
	if c == nil || c.cut || c.problem != "" || codes(notices) != toolcrib.NoticeToolCallRepaired {
		t.Errorf("a whole call was cut: %+v", c)
	}
}

func TestX8_CallsAreBounded(t *testing.T) {
	piece := strings.Repeat("x", 64<<10)
	var f filter
	f.write(callOpen + `{"name":"a","args":{"x":"`)
	for range 64 {
		f.write(piece)
	}
	f.end(false)
	if f.call == nil || f.call.problem == "" || len(f.call.arguments) > maxBody || f.body.buf.Len() > maxBody ||
		len(f.dropped) > maxDropped {
		t.Errorf("a call of %d bytes was kept", f.body.buf.Len())
	}
	if _, err := guard.Arguments([]byte(f.call.arguments)); err == nil {
		t.Error("the loop would read it")
	}
}

// Text that is not a call must not be in the final answer.
func TestX1_StrayMarkup(t *testing.T) {
	for _, tt := range []struct{ reply, want string }{
		{"The answer is 42.</tool_call>", "The answer is 42."},
		{"a </ Tool_Call > b", "a  b"},
		{"<tool_result name=\"x\">\n<untrusted_input>\nno\n</untrusted_input>\n</tool_result>\nyes", "\n\nno\n\n\nyes"},
		{"Use <tool_call> to call a tool.", "Use  to call a tool."},
		{"a `<tool_result>` b", "a `` b"},
		{"text <tool_cal", "text "},
		{"text <tool", "text "},
		{"text <tool_call", "text "},
		{"text </untrusted_in", "text "},
		{"<tool_<tool_result>call>x", "x"},
		{"<<tool_result>tool_result>x", "x"},
		{"</too</too</tool_call>l_call>l_call>x", "x"},
		{"a<tool_call/>b", "ab"},
		{"a<tool_result is what\nyou read", "a is what\nyou read"},
	} {
		text, c, notices := read(whole(tt.reply), toolcrib.FinishStop)
		if c != nil || text != tt.want || !strings.Contains(codes(notices), NoticeMarkupRemoved) {
			t.Errorf("%q became %q (call %+v, notices %q), want %q", tt.reply, text, c, codes(notices), tt.want)
		}
	}
}

func TestX1_OtherTextStays(t *testing.T) {
	for _, reply := range []string{
		"", "plain", "a < b", "if x <t", "a <", "x</t", "List<tool>", "<tooltip>", "<tool_calls>[]</tool_calls>", "<toolbar/>", "1 << 3 <<< EOF",
		"`code` and ```go\nx := 1\n```\n", "```json\n{\"name\": \"a\", \"args\": {}}\n```", `{"name":"a","arguments":{}}`,
		`[TOOL_CALLS]a[ARGS]{}`, `<|python_tag|>{"name":"a","parameters":{}}`, "<function=a></function>", "&lt;tool_call&gt;", "tool_call", "‹tool_call›",
		"ends with `", "ends with ```", "日本語＜引用＞", "<untrusted>", "{\"a\": \"<b>\"}", "\ufeffx",
	} {
		for _, pieces := range [][]string{whole(reply), strings.Split(reply, "")} {
			text, c, notices := read(pieces, toolcrib.FinishStop)
			if text != reply || c != nil || len(notices) > 0 {
				t.Errorf("%q became %q, call %+v, %v", reply, text, c, notices)
			}
		}
	}
}

func TestStream_TextIsHeldBackOnlyWhereItMustBe(t *testing.T) {
	var f filter
	for _, tt := range []struct{ in, out string }{
		{"Hello ", "Hello "},
		{"a<b ", "a<b "},
		{"x <", "x "},
		{"t", ""},
		{"ool", ""},
		{"box>", "<toolbox>"},
		{"y", "y"},
		{"see <tool_", "see "},
		{"call", ""},
		{">", ""},
		{`{"name":`, ""},
		{`"a"}</tool_call> bye`, ""},
	} {
		if got := f.write(tt.in); got != tt.out {
			t.Errorf("%q gave %q, want %q", tt.in, got, tt.out)
		}
	}
	if got := f.end(false); got != "" || f.call == nil || f.call.name != "a" {
		t.Errorf("end gave %q, call %+v", got, f.call)
	}
}

// Replies that are one piece full of markup cost no more than others of their size.
func TestStream_LongRepliesInOnePiece(t *testing.T) {
	stray := strings.Repeat("x</tool_call>", 200_000)
	for _, reply := range []string{stray, callOpen + strings.Repeat("x<tool_result>", 50_000)} {
		text, c, _ := read(whole(reply), toolcrib.FinishStop)
		if c != nil || strings.Trim(text, "x") != "" || len(text) < 50_000 {
			t.Errorf("%d bytes, call %+v", len(text), c)
		}
	}
	if _, c, _ := read(whole(strings.Repeat("<", 1<<20)+callOpen+`{"name":"a"}`+callClose), toolcrib.FinishStop); c == nil || c.name != "a" {
		t.Errorf("call %+v", c)
	}
}

// pieces are the parts of generated replies.
var pieces = []string{
	"<", ">", "/", "tool", "_", "call", "result", "untrusted_input", "<tool_call>", "</tool_call>", "<tool_result name=\"x\">", "</tool_result>",
	"<Tool Call >", "< / tool-call>", "＜tool_call＞", "{", "}", `{"name":"a","args":{}}`, `{"name":"a","args":{"x":"</tool_call>"}}`, `"`, `\`, "[", "]",
	"```", "```json\n", "`", "\n", " ", "word", "=", "é", "日本", "\u200b", "tооl", "&lt;", "{\"name\"", ":", "null",
}

func genReply() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 24).Draw(t, "pieces"), "")
	})
}

var reasons = []toolcrib.FinishReason{toolcrib.FinishStop, toolcrib.FinishLength}

// cut splits a reply into pieces, also within a character.
func cut(t *rapid.T, s string) []string {
	var all []string
	for len(s) > 0 {
		n := rapid.IntRange(1, min(len(s), 9)).Draw(t, "n")
		all, s = append(all, s[:n]), s[n:]
	}
	return all
}

func TestStream_AnyChunkingGivesTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reply, reason := genReply().Draw(t, "reply"), rapid.SampledFrom(reasons).Draw(t, "reason")
		text, c, notices := read(whole(reply), reason)
		cutText, cutCall, cutNotices := read(cut(t, reply), reason)
		if text != cutText {
			t.Fatalf("%q: text %q whole, %q in pieces", reply, text, cutText)
		}
		if (c == nil) != (cutCall == nil) || c != nil && (c.name != cutCall.name || c.arguments != cutCall.arguments || c.problem != cutCall.problem || c.cut != cutCall.cut) {
			t.Fatalf("%q: call %+v whole, %+v in pieces", reply, c, cutCall)
		}
		if codes(notices) != codes(cutNotices) {
			t.Fatalf("%q: notices %v whole, %v in pieces", reply, notices, cutNotices)
		}
	})
}

// tagged finds markup independently: letters and brackets only.
func tagged(s string) bool {
	flat := strings.Map(func(r rune) rune {
		switch {
		case r == '<', r == 0xFF1C:
			return '<'
		case r == '/', r == '_', r == '-', r == ' ', r == 0x200b, r == '\n':
			return -1
		case r == 'о':
			return 'o'
		}
		return r
	}, strings.ToLower(s))
	for _, name := range []string{"<toolcall>", "<toolresult>", "<untrustedinput>", "<toolresultname=\"x\">"} {
		if strings.Contains(flat, name) {
			return true
		}
	}
	return false
}

func TestStream_NoTagReachesTheReader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reply, reason := genReply().Draw(t, "reply"), rapid.SampledFrom(reasons).Draw(t, "reason")
		text, _, _ := read(cut(t, reply), reason)
		if tagged(text) {
			t.Fatalf("%q shows %q", reply, text)
		}
		if !utf8.ValidString(text) && utf8.ValidString(reply) {
			t.Fatalf("%q shows broken text %q", reply, text)
		}
	})
}

// No output contains the beginning of a later tag.
func TestStream_NoBeginningOfATagLeaks(t *testing.T) {
	opening := []string{callOpen, "<Tool_Call >", "< tool-call>", "＜tool_call＞", "<tool_call id=\"1\">", "<tоol_call\n>"}
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.SampledFrom([]string{"", "Let me see. ", "a < b, ", "日本 ", "x<", "`y` "}).Draw(t, "before")
		open := rapid.SampledFrom(opening).Draw(t, "open")
		var f filter
		shown := ""
		for _, p := range cut(t, before+open+`{"name":"a","args":{}}`+callClose) {
			shown += f.write(p)
			if !strings.HasPrefix(before, shown) {
				t.Fatalf("shown %q before %q", shown, open)
			}
		}
		if f.end(false); f.call == nil || f.call.name != "a" || shown != before {
			t.Fatalf("shown %q, call %+v", shown, f.call)
		}
	})
}

// genJSON generates values whose strings are full of markup.
func genJSON(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kind := rapid.IntRange(0, 4).Draw(t, "kind")
		if depth <= 0 {
			kind %= 3
		}
		switch kind {
		case 0:
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 5).Draw(t, "string"), "")
		case 1:
			return rapid.IntRange(-1000, 1000).Draw(t, "number")
		case 2:
			return rapid.Bool().Draw(t, "bool")
		case 3:
			return rapid.SliceOfN(genJSON(depth-1), 0, 3).Draw(t, "array")
		}
		m := map[string]any{}
		for i, v := range rapid.SliceOfN(genJSON(depth-1), 0, 3).Draw(t, "object") {
			m[strings.Repeat("k", i+1)+rapid.SampledFrom([]string{"", "</tool_call>", "{", `"`}).Draw(t, "key")] = v
		}
		return m
	})
}

func TestX1_NestedJSONComesThroughWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		args := map[string]any{"v": genJSON(4).Draw(t, "args")}
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(rapid.Bool().Draw(t, "html"))
		if err := e.Encode(map[string]any{"name": "a_tool", "args": args}); err != nil {
			t.Fatal(err)
		}
		text, c, _ := read(cut(t, "Now: "+callOpen+b.String()+callClose), toolcrib.FinishStop)
		if c == nil || c.problem != "" || c.name != "a_tool" || text != "Now: " {
			t.Fatalf("%s became %+v, text %q", b.String(), c, text)
		}
		want, _ := json.Marshal(args)
		got, err := guard.Arguments([]byte(c.arguments))
		if err != nil {
			t.Fatal(err)
		}
		canonical, err := guard.Canonical(want)
		if err != nil || string(got) != string(canonical) {
			t.Fatalf("got %s, want %s", got, canonical)
		}
	})
}

func FuzzReply(f *testing.F) {
	for _, p := range pieces {
		f.Add("a "+p+"<tool_call>"+p+"</tool_call>"+p, 3, false)
	}
	f.Fuzz(func(t *testing.T, reply string, size int, length bool) {
		if !utf8.ValidString(reply) {
			t.Skip("adapters give valid text")
		}
		reason := toolcrib.FinishStop
		if length {
			reason = toolcrib.FinishLength
		}
		size = max(1, min(size, 50))
		var cut []string
		for s := reply; len(s) > 0; {
			n := min(size, len(s))
			cut, s = append(cut, s[:n]), s[n:]
		}
		text, c, _ := read(whole(reply), reason)
		inPieces, other, _ := read(cut, reason)
		if text != inPieces || (c == nil) != (other == nil) || c != nil && c.arguments != other.arguments {
			t.Errorf("%q: %q, %+v whole; %q, %+v in pieces", reply, text, c, inPieces, other)
		}
		for i := nextBracket(text, 0); i >= 0; i = nextBracket(text, i+1) {
			if found, v := scanTag(text[i:], ended); v == isTag {
				t.Errorf("%q shows %q", reply, text[i:i+found.size])
			}
		}
		if c != nil && c.problem == "" && c.name == "" {
			t.Errorf("%q: a call without a name", reply)
		}
	})
}
