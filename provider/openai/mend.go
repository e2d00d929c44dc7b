package openai

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// failedCall is the error of a server that checks calls itself (Groq,
// tool_use_failed): the model called a tool, and the server could not read the
// call or found its arguments wrong.
type failedCall struct {
	Error struct {
		Code   string          `json:"code"`
		Failed json.RawMessage `json:"failed_generation"`
	} `json:"error"`
}

// repairing turns the error of a call that the server refused into that call, where
// its name and arguments can be told. The gate judges it as any other, and the
// model reads what is wrong and can fix it; as an error it would end the run.
func (d *decoder) repairing(yield func(toolcrib.Delta, error) bool) func(toolcrib.Delta, error) bool {
	return func(delta toolcrib.Delta, err error) bool {
		if err == nil {
			return yield(delta, nil)
		}
		call, ok := callOf(err)
		if !ok {
			return yield(delta, withHint(err))
		}
		call.Index = len(d.calls)
		if !yield(toolcrib.Delta{ToolCall: &call}, nil) {
			return false
		}
		f := d.finish
		f.Reason = toolcrib.FinishToolCalls
		f.Notices = append(d.notices, wire.Notice(toolcrib.NoticeToolCallRepaired,
			"the server refused a call of %s; it is judged here instead", call.Name))
		return yield(toolcrib.Delta{Finish: &f}, nil)
	}
}

// withHint says what helps where a model is served by the other API only.
func withHint(err error) error {
	var e *toolcrib.ModelError
	if !errors.As(err, &e) || e.Class != toolcrib.ErrBadRequest || !strings.Contains(e.Message, "v1/responses") {
		return err
	}
	hinted := *e
	hinted.Message += " (set api: " + APIResponses + " for this provider)"
	return &hinted
}

func callOf(err error) (call toolcrib.ToolCallDelta, ok bool) {
	var e *toolcrib.ModelError
	var doc failedCall
	if !errors.As(err, &e) || e.Class != toolcrib.ErrBadRequest && e.Class != toolcrib.ErrOther {
		return call, false
	}
	if !strings.Contains(e.Detail, "failed_generation") || json.Unmarshal([]byte(e.Detail), &doc) != nil ||
		doc.Error.Code != "tool_use_failed" {
		return call, false
	}
	text := string(doc.Error.Failed)
	var inner string
	if json.Unmarshal(doc.Error.Failed, &inner) == nil {
		text = strings.TrimSpace(inner)
	}
	call.Name, call.Arguments, ok = readFailed(text)
	return call, ok && len(call.Name) <= 2*maxName
}

// readFailed reads {"name": …, "arguments": …}, a list of one such object, and
// <function=NAME>{…}</function>.
func readFailed(text string) (name, arguments string, ok bool) {
	if rest, tagged := strings.CutPrefix(text, "<function="); tagged {
		at := strings.IndexAny(rest, ">{")
		if at <= 0 {
			return "", "", false
		}
		name = strings.TrimSpace(rest[:at])
		arguments, _, _ = strings.Cut(strings.TrimPrefix(rest[at:], ">"), "</function>")
		return name, strings.TrimSpace(arguments), name != ""
	}
	type call struct {
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"`
	}
	var one call
	if strings.HasPrefix(text, "[") {
		var list []call
		if json.Unmarshal([]byte(text), &list) != nil || len(list) != 1 {
			return "", "", false
		}
		one = list[0]
	} else if json.Unmarshal([]byte(text), &one) != nil {
		return "", "", false
	}
	if one.Arguments == nil {
		one.Arguments = one.Parameters
	}
	var quoted string
	if json.Unmarshal(one.Arguments, &quoted) == nil && quoted != "" {
		return one.Name, quoted, one.Name != ""
	}
	return one.Name, string(one.Arguments), one.Name != ""
}
