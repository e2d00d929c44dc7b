package mcpset

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/mcp"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// pinned returns the reviewed definitions of a server by the names of the tools, or nil if it was never reviewed or
// the record cannot be read. A review by another process is seen after [env.OverrideAge].
func (m *server) pinned() map[string][]byte {
	if m.kept == nil {
		return nil
	}
	m.kept.mu.Lock()
	defer m.kept.mu.Unlock()
	if time.Since(m.kept.read) > env.OverrideAge {
		m.kept.pinned, m.kept.read = m.readPins(), time.Now()
	}
	return m.kept.pinned
}

func (m *server) readPins() map[string][]byte {
	kept, ok := m.trusted.Skills().LastTrusted(m.pins, m.pin())
	if !ok || kept.Hash != pinHash(kept.Files) {
		return nil
	}
	return kept.Files
}

// pin returns the name that the definitions of a server are stored under.
func (m *server) pin() string { return "mcp:" + m.Name }

// pinHash returns a hash over definitions by the names of their tools.
func pinHash(definitions map[string][]byte) string {
	text, err := json.Marshal(definitions)
	if err != nil {
		return ""
	}
	return trust.Hash(text)
}

// tools returns the tools that the server lists, and whether they were reviewed. Its resources and prompts are
// reviewed together, under the prefix of its tools.
func (m *server) tools() []Tool {
	pinned := m.pinned()
	var out []Tool
	add := func(name, description string, text []byte) {
		state := toolChanged
		switch before, known := pinned[name]; {
		case !known:
			state = toolNew
		case bytes.Equal(before, text):
			state = toolReviewed
		}
		out = append(out, Tool{Name: name, State: state, Description: description, Definition: text})
	}
	// offers returns the resources and prompts of a server, if their current state was reviewed.
	offers := m.client.Offers()
	if text := offers.Text(); text != nil {
		add(m.client.Prefix(), "resources and prompts", text)
	}
	for _, d := range m.client.Definitions() {
		add(d.Name, d.Description, d.Text)
	}
	return out
}

// reviewedOffers returns the resources and prompts of a server as they were reviewed.
func (m *server) reviewedOffers() (o mcp.Offers) {
	if text := m.pinned()[m.client.Prefix()]; json.Unmarshal(text, &o) != nil || !bytes.Equal(o.Text(), text) {
		return mcp.Offers{}
	}
	return o
}

// offers is what a server offers beside tools, if that was reviewed as it is now.
func (m *server) offers() mcp.Offers {
	// reviewed returns the definitions of a server as they were reviewed.
	reviewed := m.reviewedOffers()
	tried := m.client.Tried()
	if now := m.client.Offers(); tried && !bytes.Equal(now.Text(), reviewed.Text()) {
		return mcp.Offers{}
	}
	return reviewed
}

// reviewed are the definitions of a server as they were reviewed.
func (m *server) reviewed(pinned map[string][]byte) (defs []mcp.Definition) {
	for _, name := range slices.Sorted(maps.Keys(pinned)) {
		if d, err := m.ReadDefinition(pinned[name]); err == nil && d.Name == name {
			defs = append(defs, d)
		}
	}
	return defs
}

// Review is the offer of a server, for a person to review.
type Review struct {
	Server Info       `json:"server"`
	Digest string     `json:"digest"` // of all definitions
	Tools  []Tool     `json:"tools"`
	File   trust.File `json:"-"` // the definitions by tool, with those that were reviewed last

	of *server
}

// Review starts an MCP server and returns its current offer.
func (s *Set) Review(ctx context.Context, who toolcrib.Principal, name string) (*Review, error) {
	if err := env.RequireUser(who); err != nil {
		return nil, err
	}
	m, err := named(s.know(), name)
	if err != nil {
		return nil, err
	}
	s.start(ctx, []*server{m}, InstallTime)
	v := s.view(m)
	if v.State != StateRunning {
		return nil, fmt.Errorf("MCP server %s does not run: %s", name, v.Detail)
	}
	r := &Review{Server: v, Tools: m.tools(), of: m}
	content := map[string][]byte{}
	for i, t := range r.Tools {
		content[t.Name] = t.Definition
		if d, err := m.ReadDefinition(t.Definition); err == nil { // else it is not a tool
			r.Tools[i].Unchecked = gate.Unchecked(d.Schema)
		}
	}
	r.Digest = pinHash(content)
	r.File = trust.File{Path: m.from, Name: m.pin(), Hash: r.Digest, Content: content, Before: m.pinned()}
	switch {
	case v.Unlooked == 0:
		r.File.State = trust.Trusted
	case r.File.Before != nil:
		r.File.State = trust.Changed
	}
	return r, nil
}

// Accept records that an administrator has reviewed the tools of a server, which are offered from then on. digest
// must be that of the review.
func (s *Set) Accept(ctx context.Context, who toolcrib.Principal, r *Review, digest string) error {
	if _, err := env.Administrator(who); err != nil {
		return err
	}
	if digest != r.Digest {
		return toolcrib.Errorf(toolcrib.CodeConflict, "the tools of MCP server %s have the digest %s now, not %s; "+
			"look at them again", r.Server.Name, r.Digest, digest)
	}
	if err := s.env.OpenFor(ctx, who); err != nil {
		return err
	}
	changed := store.FileChanged{Path: r.of.pins, Name: r.of.pin(), Hash: digest}
	if err := s.env.RecordChanged(ctx, who, store.SystemTrustGiven, changed); err != nil {
		return err
	}
	if err := r.of.trusted.Skills().TrustFiles(r.of.pins, []trust.File{r.File}); err != nil {
		return err
	}
	r.of.kept.mu.Lock()
	r.of.kept.read = time.Time{}
	r.of.kept.mu.Unlock()
	r.Tools = r.of.tools()
	if slices.ContainsFunc(r.Tools, func(t Tool) bool { return t.State != toolReviewed }) {
		return fmt.Errorf("MCP server %s: not all of its tools could be kept as reviewed; look at them again", r.Server.Name)
	}
	r.Server = s.view(r.of)
	s.swap()
	return nil
}
