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

// Model is the common part of the models of all HTTP APIs, which embed it. It is safe for
// concurrent use and has no state of a run.
type Model struct {
	client  *Client
	list    string
	begin   func() toolcrib.Model
	explain func(error) error
}

// NewModel returns a Model. list is the path of the list of models, begin starts a
// conversation, and explain, which may be nil, replaces an error of that list.
func NewModel(c *Client, list string, begin func() toolcrib.Model, explain func(error) error) Model {
	return Model{client: c, list: list, begin: begin, explain: explain}
}

// Stream implements [toolcrib.Model].
func (m *Model) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return m.begin().Stream(ctx, req)
}

// Conversation implements [toolcrib.Conversational].
func (m *Model) Conversation() toolcrib.Model { return m.begin() }

// Check requests the list of models, which verifies host and key
// without using tokens.
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

// ListModels returns the names of the models that the key may use, at most one page of
// them.
func (m *Model) ListModels(ctx context.Context) ([]string, error) {
	names, err := m.client.listModels(ctx, m.list)
	if err != nil && m.explain != nil {
		err = m.explain(err)
	}
	return names, err
}

// listModels reads {"data": [{"id": …}]}, the form of several APIs, or {"models": [{"name": …}]}
// of Ollama and of Gemini, which also lists the methods of each model.
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
