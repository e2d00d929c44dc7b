package wire

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// Model is what the models of all HTTP APIs share; they embed it. It is safe for use by
// many runs at once and keeps no state of a run.
type Model struct {
	client  *Client
	list    string
	begin   func() toolcrib.Model
	explain func(error) error
}

// NewModel makes it of the client, the path of the list of models, what begins a
// conversation, and what explains an error of that list; nil = nothing.
func NewModel(c *Client, list string, begin func() toolcrib.Model, explain func(error) error) Model {
	return Model{client: c, list: list, begin: begin, explain: explain}
}

// Stream implements [toolcrib.Model].
func (m *Model) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return m.begin().Stream(ctx, req)
}

// Conversation implements [toolcrib.Conversational].
func (m *Model) Conversation() toolcrib.Model { return m.begin() }

// Check asks the API for its models: it reports whether host and key are good
// without spending a token.
func (m *Model) Check(ctx context.Context) error {
	_, err := m.ListModels(ctx)
	return err
}

// Close closes idle connections. The model can still be used.
func (m *Model) Close() error {
	if t, ok := m.client.rt.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
	return nil
}

// ListModels asks for the names of the models that the key may use, up to one page of
// them.
func (m *Model) ListModels(ctx context.Context) ([]string, error) {
	names, err := m.client.listModels(ctx, m.list)
	if err != nil && m.explain != nil {
		err = m.explain(err)
	}
	return names, err
}

// listModels reads {"data": [{"id": …}]}, as several APIs answer, or {"models": [{"name": …}]}
// of Ollama and of Gemini, which lists the methods of each as well.
func (c *Client) listModels(ctx context.Context, path string) ([]string, error) {
	reply, err := c.Get(ctx, path)
	if err != nil {
		return nil, err
	}
	defer reply.Close()
	body, err := reply.All()
	if err != nil {
		return nil, reply.broken(err)
	}
	var doc struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
		Models []struct {
			Name    string   `json:"name"`
			Model   string   `json:"model"`
			Methods []string `json:"supportedGenerationMethods"`
		} `json:"models"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		message := "answered with no list of models: check base_url"
		if kind := reply.Header.Get("Content-Type"); isPage(kind, body) {
			message = plainBody(kind, body)
		}
		return nil, reply.error(toolcrib.ErrOther, message, body, err)
	}
	names := make([]string, 0, len(doc.Data)+len(doc.Models))
	for _, m := range doc.Data {
		names = append(names, m.ID)
	}
	for _, m := range doc.Models {
		if len(m.Methods) == 0 || slices.Contains(m.Methods, "generateContent") {
			names = append(names, strings.TrimPrefix(cmp.Or(m.Name, m.Model), "models/"))
		}
	}
	return names, nil
}
