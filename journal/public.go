package journal

import (
	"slices"

	"github.com/toolcrib/toolcrib"
)

const requestFailed = "the request to the model failed"

// RequestFailed returns the message about a failed request to a model that users of a server read: its class. The
// provider's message and the place of its configuration are only for administrators, under the ref.
func RequestFailed(class toolcrib.ErrorClass) string { return string(class) + ": " + requestFailed }

// Public returns a body as users of a server read it: without messages of providers, without the faults of tools
// and judges, and without places in the configuration. A body without these is returned unchanged.
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

// Public returns the verdict as users of a server read it.
func (v Verdict) Public() Verdict {
	v.Position, v.Detail = "", ""
	return v
}

// Public returns the outage as users of a server read it; the amounts to add to a budget are fields of their own.
func (o *Outage) Public() *Outage {
	if o == nil || o.Ref == "" {
		return o
	}
	p := *o
	p.Message = requestFailed
	return &p
}
