// Command bot is a bot in a Telegram chat with a tool of its own, whose calls are approved in the chat.
//
//	BOT='telegram://TOKEN@telegram' go run ./bot --config bot/toolcrib.yaml serve
//
// The token is from @BotFather. Write to the bot: `doctor` shows your number, which belongs into toolcrib.yaml.
package main

import (
	"context"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/app"
	"github.com/toolcrib/toolcrib/tool"
)

type refund struct {
	Order int     `json:"order"`
	EUR   float64 `json:"eur"`
}

func main() {
	app.Main(app.Options{Tools: []toolcrib.Tool{tool.MustFunc(
		toolcrib.Spec{
			Name: "refund", Description: "Refund an order.", Effect: toolcrib.EffectNonIdempotentWrite, EnabledByDefault: true,
		},
		func(_ context.Context, _ toolcrib.Call, in refund) (string, error) {
			return fmt.Sprintf("refunded %.2f EUR of order %d", in.EUR, in.Order), nil
		})}})
}
