package e2e

import (
	"context"
	"iter"

	"github.com/toolcrib/toolcrib"
)

// told records each request to a model that has no server.
type told struct {
	toolcrib.Model
	onRequest func()
}

func (m told) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	m.onRequest()
	return m.Model.Stream(ctx, req)
}
