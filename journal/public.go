package journal

import (
	"slices"

	"github.com/toolcrib/toolcrib"
)

const requestFailed = "the request to the model failed"

// RequestFailed is what users of a server read of a request to a model that failed: its class. What the provider
// said, and where its key is configured, administrators find under the ref (contract §9).
func RequestFailed(class toolcrib.ErrorClass) string { return string(class) + ": " + requestFailed }

// Public is a body as users of a server read it: without what providers said, without the faults of tools and
// judges, and without places in the configuration. A body that has none of these is returned as it is.
func Public(body toolcrib.Body) toolcrib.Body {
	switch b := body.(type) {
	case *ModelFailed:
		if b.Ref != "" {
			p := *b
			p.Message, p.Detail = requestFailed, ""
			return &p
		}
	case *Error:
		if b.Class != "" {
			p := *b
			p.Message = RequestFailed(b.Class)
			return &p
		}
	case *Notice:
		if b.Notice.Public != "" {
			p := *b
			p.Message, p.Notice.Public = b.Notice.Public, ""
			return &p
		}
	case *Paused:
		if b.Pending.Error != nil {
			p := *b
			p.Pending.Error = b.Pending.Error.Public()
			return &p
		}
	case *ChildParked:
		if b.Pending.Error != nil {
			p := *b
			p.Pending.Error = b.Pending.Error.Public()
			return &p
		}
	case *ToolResult:
		if b.Fault != "" {
			p := *b
			p.Fault = ""
			return &p
		}
	case *Verdicts:
		if slices.ContainsFunc(b.Verdicts, func(v Verdict) bool { return v.Position+v.Detail != "" }) {
			p := *b
			p.Verdicts = slices.Clone(b.Verdicts)
			for i := range p.Verdicts {
				p.Verdicts[i] = p.Verdicts[i].Public()
			}
			return &p
		}
	}
	return body
}

// Public is the verdict as users of a server read it.
func (v Verdict) Public() Verdict {
	v.Position, v.Detail = "", ""
	return v
}

// Public is the outage as users of a server read it; what must be added to a budget is in fields of its own.
func (o *Outage) Public() *Outage {
	if o == nil || o.Ref == "" {
		return o
	}
	p := *o
	p.Message = requestFailed
	return &p
}
