package gate

import "github.com/toolcrib/toolcrib"

// enabled refuses what is switched off: by its group, by an administrator, or
// because it is off from the start (A1, A2, A4). A tool that can not be used, and
// every tool while the overrides can not be read, is off too.
type enabled struct{}

func (enabled) Reason() toolcrib.Reason { return toolcrib.ReasonToolDisabled }

func (enabled) Judge(q Query) Answer {
	switch {
	case q.Spec == nil:
		return unknownTool()
	case q.Overrides == nil:
		if q.Unknown == "" {
			return Answer{Detail: "it is not known which tools are switched off"}
		}
		return Answer{Detail: q.Unknown}
	case q.Overrides.Off:
		return Answer{Detail: "all tools are switched off", By: "tools.enabled"}
	case q.Unusable != "":
		return Answer{Detail: "unusable: " + q.Unusable}
	}
	if on, ok := q.Overrides.Groups[q.Spec.Group]; ok && !on && q.Spec.Group != "" {
		return Answer{
			Detail: "the tool's group is switched off", By: q.Spec.Group,
			Hint: "toolcrib tools enable --group " + q.Spec.Group,
		}
	}
	on, overridden := q.Overrides.Tools[q.Spec.Name]
	switch {
	case overridden && on:
		return allowed("switched on by an administrator")
	case overridden:
		return Answer{Detail: "switched off by an administrator", Hint: "toolcrib tools enable " + q.Spec.Name}
	case q.Spec.EnabledByDefault:
		return allowed("on by default")
	}
	return Answer{Detail: "off by default", Hint: "toolcrib tools enable " + q.Spec.Name}
}
