// Package policy decides what runs may do under a configuration: the agents and tools that there are, the skills and
// notes that runs begin with, and the gate that judges their calls. It also explains those decisions, judges the calls
// of stored runs again, and judges those of other agents.
package policy

import (
	"sync"
	"sync/atomic"

	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/mcpset"
	"github.com/toolcrib/toolcrib/service/people"
	"github.com/toolcrib/toolcrib/tool/shell"
	"github.com/toolcrib/toolcrib/tool/system"
	"github.com/toolcrib/toolcrib/tool/web"
)

// Policy is the policy of a data folder under a configuration. It may be used by several goroutines once the store is
// open.
type Policy struct {
	env    *env.Env
	mcp    *mcpset.Set
	people *people.People
	*shared
}

// shared is what the policies of one data folder have in common.
type shared struct {
	// preparing is held while skills are given to a run, since runs that start others prepare agents at the same time.
	preparing sync.Mutex
	skills    skillState

	logged system.LogRing // used if there is no log file

	pages     web.Cache
	loopbacks shell.Loopbacks
	rules     compiledRules
	lastGate  atomic.Pointer[gate.Gate] // the next one mostly has the same tools
	gates     gates

	// Absent returns the tools that would be there if another node offered their capabilities. It may be nil.
	Absent func() []gate.Absent
}

// New returns the policy of a data folder.
func New(e *env.Env, mcp *mcpset.Set, people *people.People) *Policy {
	return &Policy{env: e, mcp: mcp, people: people, shared: new(shared)}
}

// Under returns the policy of the same data folder under another configuration.
func (p *Policy) Under(e *env.Env, mcp *mcpset.Set, people *people.People) *Policy {
	return &Policy{env: e, mcp: mcp, people: people, shared: p.shared}
}
