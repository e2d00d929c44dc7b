package bus

import (
	"time"

	"github.com/toolcrib/toolcrib"
)

// TraceEvent is the end of a call, at the calling or the serving node.
type TraceEvent struct {
	Time       time.Time     `json:"ts"`
	Trace      string        `json:"trace,omitempty"` // traceparent (W3C)
	ID         string        `json:"id"`
	Capability Name          `json:"capability"`
	From       Key           `json:"from"`
	To         Key           `json:"to,omitempty"` // "" if no node was found
	Local      bool          `json:"local,omitempty"`
	Served     bool          `json:"served,omitempty"` // by the serving node; a local call has this event only
	Result     toolcrib.Code `json:"result"`           // [ResultOK] or the code of the error
	Duration   time.Duration `json:"duration_ns"`
	BytesIn    int           `json:"bytes_in"`  // of the body
	BytesOut   int           `json:"bytes_out"` // of frames and result
	TokensIn   int64         `json:"tokens_in,omitempty"`
	TokensOut  int64         `json:"tokens_out,omitempty"`
	Frames     int           `json:"frames,omitempty"`
}

// ResultOK is the result of a call without an error.
const ResultOK toolcrib.Code = "ok"

// Counter counts the calls of a capability with a result.
type Counter struct {
	Capability string        `json:"capability"`
	Served     bool          `json:"served"` // by this node; otherwise this node called it
	Result     toolcrib.Code `json:"result"`
	Calls      int64         `json:"calls"`
	Duration   time.Duration `json:"duration_ns"` // of all of them
}
