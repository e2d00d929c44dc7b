package ollama

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib/provider/wire"
)

// Info is the information of Ollama about a model.
type Info struct {
	Tools, Vision bool
	// Capabilities reports whether the server sent capabilities. Old servers do not, and then
	// the two fields above are undefined.
	Capabilities bool
}

// Bounds of cached facts about models.
const (
	keepKnown   = 10 * time.Minute // a model may be pulled again
	keepUnknown = time.Minute      // the server may come back
	showTimeout = 5 * time.Second
)

// Show requests /api/show for a model. A missing model is an error of class
// bad_request with advice how to get it.
func (m *Model) Show(ctx context.Context, model string) (Info, error) {
	reply, err := m.client.Post(ctx, "api/show", wire.NewBody(wire.AppendString([]byte(`{"model":`), model), []byte(`}`)))
	if err != nil {
		return Info{}, m.explain(err, model)
	}
	defer reply.Close()
	body, err := reply.All()
	if err != nil {
		return Info{}, m.explain(err, model)
	}
	var doc struct {
		Capabilities []string `json:"capabilities"`
	}
	if json.Unmarshal(body, &doc) != nil {
		return Info{}, wire.NotAReply("answer of Ollama", body)
	}
	info := Info{Capabilities: len(doc.Capabilities) > 0}
	for _, c := range doc.Capabilities {
		info.Tools = info.Tools || c == "tools"
		info.Vision = info.Vision || c == "vision"
	}
	return info, nil
}

type trait struct {
	info    Info
	noTools bool // a request was rejected because of its tools
}

// refusesTools reports whether the model is known not to support tools.
func (m *Model) refusesTools(model string) bool {
	t, ok := m.known.Get(model)
	return ok && (t.noTools || t.info.Capabilities && !t.info.Tools)
}

func (m *Model) rememberNoTools(model string) {
	t, _ := m.known.Get(model)
	t.noTools = true
	m.known.Put(model, t, keepKnown)
}

// info is Show with a cache and a timeout; it returns the zero Info after an error.
func (m *Model) info(ctx context.Context, model string) Info {
	if t, ok := m.known.Get(model); ok {
		return t.info
	}
	bounded, cancel := context.WithTimeout(ctx, showTimeout)
	defer cancel()
	keep := keepKnown
	info, err := m.Show(bounded, model)
	if err != nil {
		info, keep = Info{}, keepUnknown
	}
	if ctx.Err() == nil { // after a cancellation nothing is known
		m.known.Put(model, trait{info: info}, keep)
	}
	return info
}

// Ollama decodes the schema of a tool into its own types, and rejects the
// whole request if one schema does not match. These types have the same fields.
type (
	parameters struct {
		Type       string               `json:"type"`
		Required   []string             `json:"required"`
		Properties map[string]*property `json:"properties"`
	}
	property struct {
		AnyOf       []property           `json:"anyOf"`
		Type        words                `json:"type"`
		Description string               `json:"description"`
		Enum        []any                `json:"enum"`
		Properties  map[string]*property `json:"properties"`
		Required    []string             `json:"required"`
	}
	words []string
)

func (w *words) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*w = words{one}
		return nil
	}
	var list []string
	if err := json.Unmarshal(data, &list); err != nil {
		return errors.New("type must be a string or a list of strings")
	}
	*w = list
	return nil
}

// decodable reports whether Ollama can decode a schema.
func decodable(schema json.RawMessage) error {
	var p parameters
	if err := json.Unmarshal(schema, &p); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) && kind.Field != "" {
			return fmt.Errorf("its schema has a %s at %s, which Ollama cannot decode", kind.Value, kind.Field)
		}
		return fmt.Errorf("its schema cannot be decoded by Ollama: %w", err)
	}
	return nil
}
