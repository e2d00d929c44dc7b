package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/service"
)

// Prefixes of the URIs that clients can read.
const (
	runURI      = "toolcrib://runs/"
	approvalURI = "toolcrib://approvals/"
)

// maxResource bounds a resource that a client reads, in bytes.
const maxResource = 1 << 20

// addResources adds runs and approvals as resources.
func (s *Server) addResources() {
	const form = "application/json"
	type read = func(v *service.Serving, ctx context.Context, id string) (any, error)
	one := func(kind, uri, about string, read read) {
		s.sdk.AddResourceTemplate(&sdk.ResourceTemplate{
			Name: kind, URITemplate: uri + "{id}", Description: about, MIMEType: form,
		}, s.reading(uri, read))
	}
	list := func(kind, uri, about string, read read) {
		uri = strings.TrimSuffix(uri, "/")
		s.sdk.AddResource(&sdk.Resource{Name: kind, URI: uri, Description: about, MIMEType: form}, s.reading(uri, read))
	}
	one("run", runURI, "A run, with its calls and their results",
		func(v *service.Serving, ctx context.Context, id string) (any, error) { return v.Run(ctx, id) })
	one("approval", approvalURI, "An approval, with the calls that it is about",
		func(v *service.Serving, ctx context.Context, id string) (any, error) { return v.Approval(ctx, id) })
	list("runs", runURI, "The newest runs",
		func(v *service.Serving, ctx context.Context, _ string) (any, error) { return v.Runs(ctx) })
	list("approvals", approvalURI, "What waits for a person's decision",
		func(v *service.Serving, ctx context.Context, _ string) (any, error) { return v.Approvals(ctx) })
}

// reading returns a handler that reads a resource as JSON.
func (s *Server) reading(
	uri string, read func(v *service.Serving, ctx context.Context, id string) (any, error),
) func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	return func(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		value, err := read(s.Serving, ctx, strings.TrimPrefix(req.Params.URI, uri))
		if toolcrib.CodeOf(err) == toolcrib.CodeNotFound {
			return nil, sdk.ResourceNotFoundError(req.Params.URI)
		}
		var text []byte
		if err == nil {
			text, err = json.MarshalIndent(value, "", "  ")
		}
		if len(text) > maxResource {
			err = fmt.Errorf("%s has more than %d bytes; a person reads it with %s runs show", req.Params.URI, maxResource, s.Self)
		}
		if err != nil {
			return nil, s.rpcError(err)
		}
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: req.Params.URI, Text: string(text)}}}, nil
	}
}
