package modeltest

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"

	"github.com/toolcrib/toolcrib"
)

//go:embed testdata
var testdata embed.FS

// Fixture is one recorded reply, written after the vendor's documentation: as a
// stream, in one piece, or both.
type Fixture struct {
	Name    string
	Dialect Dialect
	Stream  []byte // server-sent events, or NDJSON; nil = none
	Whole   []byte // JSON; nil = none
	Want    Want
}

// Want is what an adapter must make of a fixture.
type Want struct {
	Parts  []WantPart            `json:"parts"`
	Reason toolcrib.FinishReason `json:"reason"`
	Usage  toolcrib.TokenUsage   `json:"usage"`
	Model  string                `json:"model"`
	Error  toolcrib.ErrorClass   `json:"error,omitempty"` // an error instead of a reply

	Lenient       bool `json:"lenient,omitempty"`        // beyond what the API says: the vendor's own library need not read it
	JSONArguments bool `json:"json_arguments,omitempty"` // arguments are compared as JSON values
}

// WantPart is one part; exactly what is expected is set.
type WantPart struct {
	Text      string    `json:"text,omitempty"`
	Thinking  string    `json:"thinking,omitempty"`
	Signature string    `json:"signature,omitempty"`
	Redacted  string    `json:"redacted,omitempty"`
	Call      *WantCall `json:"call,omitempty"`
}

// WantCall is one call; the arguments are text, since they need not be JSON.
type WantCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Fixtures returns the recorded replies of a dialect.
func Fixtures(d Dialect) ([]Fixture, error) {
	dir := "testdata/" + string(d)
	entries, err := fs.ReadDir(testdata, dir)
	if err != nil {
		return nil, err
	}
	var list []Fixture
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".want.json")
		if !ok {
			continue
		}
		f := Fixture{Name: name, Dialect: d}
		want, err := fs.ReadFile(testdata, dir+"/"+e.Name())
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(want, &f.Want); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		f.Stream, _ = fs.ReadFile(testdata, dir+"/"+name+".sse") // either may be absent
		if d == Ollama {
			f.Stream, _ = fs.ReadFile(testdata, dir+"/"+name+".ndjson")
		}
		f.Whole, _ = fs.ReadFile(testdata, dir+"/"+name+".json")
		if f.Stream == nil && f.Whole == nil {
			return nil, fmt.Errorf("%s: has neither .sse nor .json", name)
		}
		list = append(list, f)
	}
	return list, nil
}

// Parts brings a message into the form of Want.
func Parts(m toolcrib.Message) []WantPart {
	list := []WantPart{}
	for i := range m.Parts {
		p := &m.Parts[i]
		switch {
		case p.ToolCall != nil:
			list = append(list, WantPart{Call: &WantCall{ID: p.ToolCall.ID, Name: p.ToolCall.Name, Arguments: string(p.ToolCall.Arguments)}})
		case p.Thinking != nil:
			list = append(list, WantPart{Thinking: p.Thinking.Text, Signature: p.Thinking.Signature, Redacted: p.Thinking.Redacted})
		default:
			list = append(list, WantPart{Text: p.Text})
		}
	}
	return list
}
