package server

import (
	"github.com/toolcrib/toolcrib/service/nodes"
)

// CapabilityList is a list of capabilities.
type CapabilityList struct {
	Capabilities []nodes.Capability `json:"capabilities"`
}

// busRoutes returns the routes of the bus.
func busRoutes() []route {
	return []route{
		forAdministrators(get("/api/bus", "This node, its connection to the bus, and the other nodes",
			func(c *call) (nodes.Status, error) { return c.Service.BusStatus(c, c.who) })),
		forAdministrators(get("/api/bus/capabilities", "The capabilities that this node may call",
			func(c *call) (CapabilityList, error) {
				all, err := c.Service.BusCapabilities(c, c.who, c.text("node"))
				return CapabilityList{all}, err
			}, param{"node", kindText, "only those of this node, by its name or key"})),
		forAdministrators(get("/api/bus/trace", "The last calls that this server has made and served on the bus",
			func(c *call) (nodes.Trace, error) { return c.Service.BusTrace(c, c.who, int64(c.number("after"))) },
			param{"after", kindNumber, "only calls with a higher number"})),
	}
}
