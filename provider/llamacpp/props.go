package llamacpp

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// Info is what llama-server reports about the model that it serves.
type Info struct {
	Context int    // tokens that one request may have (of one slot); 0 = not told
	Path    string // of the model's file, as the server names it

	Tools, Vision bool
	// Capabilities says that the server told what its chat template knows; old ones
	// do not, and then Tools says nothing.
	Capabilities bool
}

// Bounds of what is remembered of the server, which may be started again with
// another model.
const (
	keepKnown    = time.Minute
	propsTimeout = 5 * time.Second
)

// Show asks /props. A router answers it for no model in particular.
func (m *Model) Show(ctx context.Context) (Info, error) {
	reply, err := m.client.Get(ctx, "props")
	if err != nil {
		return Info{}, m.explain(err, false)
	}
	defer reply.Close()
	body, err := reply.All()
	if err != nil {
		return Info{}, err
	}
	var doc struct {
		Path       string `json:"model_path"`
		Modalities struct {
			Vision bool `json:"vision"`
		} `json:"modalities"`
		Settings struct {
			Context int `json:"n_ctx"`
		} `json:"default_generation_settings"`
		Caps *struct {
			Tools *bool `json:"supports_tools"`
			Calls *bool `json:"supports_tool_calls"`
		} `json:"chat_template_caps"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return Info{}, &toolcrib.ModelError{
			Class: toolcrib.ErrOther, Provider: m.opts.Name, Err: err,
			Message: "answered with something that llama-server does not answer: check base_url",
			Detail:  wire.Clip(string(body), 8<<10),
		}
	}
	info := Info{Context: doc.Settings.Context, Path: doc.Path, Vision: doc.Modalities.Vision}
	if caps := doc.Caps; caps != nil && caps.Tools != nil && caps.Calls != nil {
		info.Capabilities, info.Tools = true, *caps.Tools || *caps.Calls
	}
	return info, nil
}

// traits is what is known of the server. The zero value is ready to use.
type traits struct {
	mu    sync.Mutex
	info  Info
	until time.Time
}

// refusesTools reports whether the chat template is known to know no tools. Then the
// server takes them, passes them over in silence, and the model never calls one.
// Whatever keeps it from telling is no error.
func (m *Model) refusesTools(ctx context.Context) bool {
	m.known.mu.Lock()
	info, fresh := m.known.info, time.Now().Before(m.known.until)
	m.known.mu.Unlock()
	if !fresh {
		bounded, cancel := context.WithTimeout(ctx, propsTimeout)
		defer cancel()
		info, _ = m.Show(bounded) // after an error nothing is known
		if ctx.Err() != nil {
			return false // a run that was cancelled has learned nothing
		}
		m.known.mu.Lock()
		m.known.info, m.known.until = info, time.Now().Add(keepKnown)
		m.known.mu.Unlock()
	}
	return info.Capabilities && !info.Tools
}
