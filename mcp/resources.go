package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
)

const (
	maxPrompts   = 200
	maxResources = 500 // resources of one answer of list_mcp_resources
	maxURI       = 4 << 10
)

// Offers lists what a server offers in addition to tools.
type Offers struct {
	Resources bool         `json:"resources,omitempty"`
	Prompts   []api.Prompt `json:"prompts,omitempty"` // sorted by name
}

// Text returns everything that is pinned of the offers, or nil if nothing is.
func (o *Offers) Text() []byte {
	if !o.Resources && len(o.Prompts) == 0 {
		return nil
	}
	text, _ := json.MarshalIndent(o, "", "  ") // texts and lists of texts can be encoded
	return text
}

// Offers returns the server's last offers other than tools.
func (c *Client) Offers() Offers {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Offers{c.offers.Resources, slices.Clone(c.offers.Prompts)}
}

// Prefix returns the prefix of the names of the server's tools.
func (c *Client) Prefix() string { return c.prefix }

// other lists the server's offers other than tools. problems has the offers that cannot be listed.
func (c *Client) other(ctx context.Context, session *sdk.ClientSession, can *sdk.ServerCapabilities) (
	o Offers, problems []string,
) {
	o.Resources = can.Resources != nil
	if can.Prompts == nil {
		return o, nil
	}
	list, err := within(ctx, func() (list []*sdk.Prompt, err error) {
		size := 0
		for p, err := range session.Prompts(ctx, nil) {
			if err != nil {
				return nil, err
			}
			if list = append(list, p); len(list) > maxPrompts {
				break
			}
			if size += sizeOf(p); size > maxMessage {
				return nil, errTooLong
			}
		}
		return list, nil
	})
	if err != nil {
		return o, []string{"its prompts cannot be listed: " + oneLine(err)}
	}
	if len(list) > maxPrompts {
		list, problems = list[:maxPrompts], []string{fmt.Sprintf("it lists more than %d prompts; the others are left out",
			maxPrompts)}
	}
	size := 0
	for _, p := range list {
		if p == nil || p.Name == "" || strings.ContainsAny(p.Name, " \t\r\n") {
			continue
		}
		one := api.Prompt{Name: p.Name, Title: guard.Clean(p.Title), Description: guard.Clean(p.Description)}
		hidden := guard.Clean(p.Name) != p.Name
		for _, a := range p.Arguments {
			if a != nil {
				one.Arguments = append(one.Arguments, api.PromptArgument{
					Name: a.Name, Description: guard.Clean(a.Description), Required: a.Required,
				})
				hidden = hidden || guard.Clean(a.Name) != a.Name
			}
		}
		if hidden {
			problems = append(problems, fmt.Sprintf("the prompt %.60q is left out: a name of it holds characters that are "+
				"not seen", p.Name))
			continue
		}
		text, err := json.Marshal(one)
		if size += len(text); err != nil || size > maxDefinition {
			problems = append(problems, "its prompts together are too long; some are left out")
			break
		}
		o.Prompts = append(o.Prompts, one)
	}
	slices.SortFunc(o.Prompts, func(a, b api.Prompt) int { return strings.Compare(a.Name, b.Name) })
	return o, problems
}

// sizeOf returns the approximate size of a value that a server has sent.
func sizeOf(v any) int {
	text, _ := json.Marshal(v) // v was decoded from JSON
	return len(text)
}

// Prompt makes the server return the text of a prompt.
func (c *Client) Prompt(ctx context.Context, name string, arguments map[string]string) (toolcrib.Output, error) {
	result, err := request(ctx, c, func(session *sdk.ClientSession) (*sdk.GetPromptResult, error) {
		return session.GetPrompt(ctx, &sdk.GetPromptParams{Name: name, Arguments: arguments})
	})
	if err != nil {
		return toolcrib.Output{}, err
	}
	if result.NeedsInput() {
		return toolcrib.Output{}, c.fails("asks for something that it is not given", nil)
	}
	out := toolcrib.Output{Source: c.server.source()}
	var texts []string
	for _, m := range result.Messages {
		if m == nil {
			continue
		}
		if m.Role == "assistant" {
			texts = append(texts, "Assistant:")
		}
		texts = contents(&out, texts, []sdk.Content{m.Content})
	}
	out.Text = strings.Join(texts, "\n\n")
	return out, nil
}

// Read reads a resource.
func (c *Client) Read(ctx context.Context, uri string) (toolcrib.Output, error) {
	if uri == "" || len(uri) > maxURI {
		return toolcrib.Output{}, toolcrib.Failf(toolcrib.InvalidArguments, "uri must have 1 to %d bytes", maxURI)
	}
	result, err := request(ctx, c, func(session *sdk.ClientSession) (*sdk.ReadResourceResult, error) {
		return session.ReadResource(ctx, &sdk.ReadResourceParams{URI: uri})
	})
	if err != nil {
		return toolcrib.Output{}, err
	}
	if result.NeedsInput() {
		return toolcrib.Output{}, c.fails("asks for something that it is not given", nil)
	}
	out := toolcrib.Output{Source: c.server.source(), Untrusted: !c.server.Trusted}
	var texts []string
	for _, r := range result.Contents {
		switch {
		case r == nil:
		case r.Blob == nil:
			texts = append(texts, r.Text)
		default:
			texts = attach(&out, texts, r.MIMEType, r.URI, r.Blob)
		}
	}
	out.Text = strings.Join(texts, "\n")
	return out, nil
}

// request sends a server a request that is not a call of a tool.
func request[T any](ctx context.Context, c *Client, do func(*sdk.ClientSession) (T, error)) (T, error) {
	out, err := requestOnce(ctx, c, do)
	if errors.Is(err, errForgotten) && ctx.Err() == nil {
		return requestOnce(ctx, c, do)
	}
	return out, err
}

func requestOnce[T any](ctx context.Context, c *Client, do func(*sdk.ClientSession) (T, error)) (out T, err error) {
	session, err := c.current(ctx)
	if err != nil {
		return out, c.fails("does not run", err)
	}
	select {
	case c.calls <- struct{}{}:
	default:
		return out, c.fails("does not answer its calls", nil)
	}
	out, err = within(ctx, func() (T, error) {
		defer func() { <-c.calls }()
		return do(session)
	})
	if errors.Is(err, errForgotten) {
		c.restart(session)
	}
	if err != nil && ctx.Err() == nil {
		err = c.fails("does not give it: "+oneLine(err), err)
	}
	return out, err
}

// resource is a resource, or a template of resources, as list_mcp_resources shows it.
type resource struct {
	Server      string `json:"server"`
	URI         string `json:"uri,omitempty"`
	Template    string `json:"uri_template,omitempty"` // RFC 6570
	Name        string `json:"name,omitempty"`
	Description string `json:"description,omitempty"`
	MediaType   string `json:"media_type,omitempty"`
	Size        int64  `json:"size,omitempty"`
}

// resources lists the resources of the server, and its templates.
func (c *Client) resources(ctx context.Context) (list []resource, err error) {
	return request(ctx, c, func(session *sdk.ClientSession) (list []resource, err error) {
		size := 0
		full := func() bool {
			size += sizeOf(list[len(list)-1])
			return len(list) >= maxResources || size > maxMessage
		}
		for r, err := range session.Resources(ctx, nil) {
			switch {
			case err != nil:
				return list, err
			case r == nil:
				continue
			}
			list = append(list, resource{
				Server: c.server.Name, URI: r.URI, Name: r.Name, Description: r.Description, MediaType: r.MIMEType, Size: r.Size,
			})
			if full() {
				return list, nil
			}
		}
		for r, err := range session.ResourceTemplates(ctx, nil) {
			switch {
			case err != nil:
				return list, nil // a server may have no templates at all
			case r == nil:
				continue
			}
			list = append(list, resource{
				Server: c.server.Name, Template: r.URITemplate, Name: r.Name, Description: r.Description, MediaType: r.MIMEType,
			})
			if full() {
				break
			}
		}
		return list, nil
	})
}

// The tools that read resources, and their group.
const (
	ListResources = "list_mcp_resources"
	ReadResource  = "read_mcp_resource"
	ResourceGroup = "mcp"
)

// ResourceTools returns the tools that list and read the resources of servers. servers returns the servers by name.
func ResourceTools(servers func() map[string]*Client) []toolcrib.Tool {
	return []toolcrib.Tool{
		&resourceTool{servers, toolcrib.Spec{
			Name: ListResources, Description: "List what MCP servers have to read.",
			Parameters: json.RawMessage(`{"type":"object","properties":{"server":{"type":"string"}},"additionalProperties":false}`),
		}},
		&resourceTool{servers, toolcrib.Spec{
			Name: ReadResource, Description: "Read a resource of an MCP server.",
			Parameters: json.RawMessage(`{"type":"object","properties":{"server":{"type":"string"},"uri":{"type":"string"}},` +
				`"required":["server","uri"],"additionalProperties":false}`),
		}},
	}
}

type resourceTool struct {
	servers func() map[string]*Client
	spec    toolcrib.Spec
}

// Spec declares that the tool reads. Its results are untrusted, and a URI may carry data out.
func (t *resourceTool) Spec() toolcrib.Spec {
	spec := t.spec
	spec.Effect, spec.Group, spec.Source, spec.EnabledByDefault = toolcrib.EffectReadOnly, ResourceGroup, "builtin", true
	spec.Untrusted, spec.Sink = true, true
	return spec
}

func (t *resourceTool) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	var args struct{ Server, URI string }
	if err := json.Unmarshal(call.Arguments, &args); err != nil {
		return toolcrib.Output{}, toolcrib.Failf(toolcrib.InvalidArguments, "%v", err)
	}
	servers := t.servers()
	if _, ok := servers[args.Server]; args.Server != "" && !ok {
		return toolcrib.Output{}, toolcrib.Failf(toolcrib.NotFound, "there is no MCP server %q with resources; there is %s",
			args.Server, strings.Join(slices.Sorted(maps.Keys(servers)), ", "))
	}
	if t.spec.Name == ReadResource {
		return servers[args.Server].Read(ctx, args.URI)
	}
	out := struct {
		Resources []resource        `json:"resources"`
		Problems  map[string]string `json:"problems,omitempty"` // by server
	}{[]resource{}, map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		if args.Server != "" && name != args.Server {
			continue
		}
		list, err := servers[name].resources(ctx)
		if out.Resources = append(out.Resources, list...); err != nil {
			out.Problems[name] = oneLine(err)
		}
		if ctx.Err() != nil {
			return toolcrib.Output{}, context.Cause(ctx)
		}
	}
	text, err := json.Marshal(out)
	return toolcrib.Output{JSON: text, Source: "mcp"}, err
}
