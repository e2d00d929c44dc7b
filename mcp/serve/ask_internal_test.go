package serve

import (
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// What each call says of its client is not decoded again if that cannot ask its person.
func TestCall_ReadsWhatItNeedsOfItsClient(t *testing.T) {
	type object = map[string]any
	for _, c := range []struct {
		about, can any
		name       string
		asked      bool
	}{
		{object{"name": "editor", "version": "1"}, object{"roots": object{}}, "MCP client editor", false},
		{object{"name": "a\x1b[1m", "version": "1"}, object{"elicitation": object{}}, "MCP client a__1m", true},
		{object{"version": "1"}, object{"elicitation": object{"form": object{}}}, "MCP client unnamed", true},
		{nil, object{"elicitation": object{"url": object{}}}, "MCP client unnamed", false},
		{nil, object{"elicitation": nil}, "MCP client unnamed", false},
		{nil, nil, "MCP client unnamed", false},
	} {
		s, req := &Server{}, &sdk.CallToolRequest{Params: &sdk.CallToolParamsRaw{Meta: sdk.Meta{
			sdk.MetaKeyClientInfo: c.about, sdk.MetaKeyClientCapabilities: c.can,
		}}}
		if name, asked := clientOf(req), s.canAsk(req); name != c.name || asked != c.asked {
			t.Errorf("%v, %v: %q, %v", c.about, c.can, name, asked)
		}
		if n := testing.AllocsPerRun(100, func() { s.canAsk(req) }); n > 0 && !c.asked && c.name != "MCP client unnamed" {
			t.Errorf("%v: %v allocations", c.can, n)
		}
		if s.NoElicit = true; s.canAsk(req) {
			t.Errorf("%v: asked in spite of --no-elicit", c.can)
		}
	}
}
