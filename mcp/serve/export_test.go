package serve

import (
	"context"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Over is the server for a transport of the SDK's.
func (s *Server) Over(ctx context.Context) (*sdk.Server, error) {
	s.ctx = ctx
	return s.sdk, s.offer(ctx)
}
