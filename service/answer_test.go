package service_test

import (
	"encoding/json"
	"testing"

	"github.com/toolcrib/toolcrib/service"
)

// A person answers in words, and an answer that does not fit is explained in words.
func TestAnswerJSON(t *testing.T) {
	const (
		colours = `{"type":"array","items":{"type":"string","enum":["red","deep, dark","blue"]},"maxItems":2}`
		shirt   = `{"type":"object","properties":{"size":{"enum":["s","m"]},"count":{"type":"integer","minimum":1},` +
			`"name":{"type":"string"}},"required":["size"]}`
	)
	for _, c := range []struct{ schema, text, want, problem string }{
		{"", "as you like", `"as you like"`, ""},
		{`{"type":"boolean"}`, "Yes", "true", ""},
		{`{"type":"boolean"}`, "perhaps", "", "the answer must be yes or no"},
		{`{"type":"integer","minimum":1,"maximum":5}`, "3", "3", ""},
		{`{"type":"integer","minimum":1,"maximum":5}`, "7", "", "the answer must be a whole number from 1 up to 5"},
		{`{"enum":["a",1]}`, "1", "1", ""},
		{`{"enum":["a",1]}`, "2", "", "the answer must be one of: a, 1"},
		{`{"type":"string","maxLength":3}`, "long", "", `the answer must be a text that fits {"type":"string","maxLength":3}`},
		{colours, "red, blue", `["red","blue"]`, ""},
		{colours, "deep, dark", `["deep, dark"]`, ""},
		{colours, "deep, dark, blue", `["deep, dark","blue"]`, ""},
		{colours, "red,deep, dark", `["red","deep, dark"]`, ""},
		{colours, "deep, blue", "", "the answer must be some of these, separated by commas: red, deep, dark, blue"},
		{colours, `["blue"]`, `["blue"]`, ""},
		{colours, "green", "", "the answer must be some of these, separated by commas: red, deep, dark, blue"},
		{`{"type":"array","items":{"type":"number"}}`, "1, 2.5", "[1,2.5]", ""},
		{shirt, `{"size":"m"}`, `{"size":"m"}`, ""},
		{
			shirt, "m", "",
			`the answer must be a JSON object with "count" (optional; a whole number from 1), "name" (optional; a text), ` +
				`"size" (one of: s, m)`,
		},
	} {
		answer, err := service.AnswerJSON(json.RawMessage(c.schema), c.text)
		problem := ""
		if err != nil {
			problem = err.Error()
		}
		if string(answer) != c.want || problem != c.problem {
			t.Errorf("%s, %s: %s, %q; want %s, %q", c.schema, c.text, answer, problem, c.want, c.problem)
		}
	}
}
