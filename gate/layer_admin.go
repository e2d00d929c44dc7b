package gate

import "github.com/toolcrib/toolcrib"

// admin refuses tools for administrators to everybody else (N18). Nobody is no
// administrator, and an unknown tool counts as one for administrators.
type admin struct{}

func (admin) Reason() toolcrib.Reason { return toolcrib.ReasonRequiresAdmin }

func (admin) Judge(q Query) Answer {
	switch {
	case q.Spec == nil:
		return unknownTool()
	case q.Who == nil:
		return Answer{Detail: "nobody is acting"}
	case !q.Spec.RequiresAdmin:
		return allowed("for everybody")
	case q.Who.User == "":
		return Answer{Detail: "for administrators, and no user is acting"}
	case !q.Who.Admin:
		return Answer{Detail: "for administrators, and this user is none", By: q.Who.User}
	}
	return Answer{Allowed: true, Detail: "for administrators, and this user is one", By: q.Who.User}
}
