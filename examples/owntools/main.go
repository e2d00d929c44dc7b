// Command owntools is toolcrib with a tool of its own: the same commands, configuration and server.
//
//	go run ./owntools tools list
//	go run ./owntools run "How long is a marathon in miles?"
package main

import (
	"context"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/app"
	"github.com/toolcrib/toolcrib/tool"
)

type distance struct {
	Kilometers float64 `json:"kilometers" jsonschema:"the distance to convert"`
}

func main() {
	app.Main(app.Options{Tools: []toolcrib.Tool{tool.MustFunc(
		toolcrib.Spec{Name: "miles", Description: "Convert kilometers to miles.", Effect: toolcrib.EffectReadOnly},
		func(_ context.Context, _ toolcrib.Call, in distance) (map[string]float64, error) {
			return map[string]float64{"miles": in.Kilometers / 1.609344}, nil
		})}})
}
