package telemetry

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/toolcrib/toolcrib"
)

// The names of attributes in spans that are not part of OpenTelemetry's conventions for generative AI.
const (
	opAgent = "invoke_agent"
	opChat  = "chat"
	opTool  = "execute_tool"

	keyRun       = attribute.Key("toolcrib.run.id")
	keyParent    = attribute.Key("toolcrib.run.parent_id")
	keyStatus    = attribute.Key("toolcrib.run.status")
	keyStop      = attribute.Key("toolcrib.run.stop_reason")
	keyRounds    = attribute.Key("toolcrib.run.iterations")
	keyCost      = attribute.Key("toolcrib.usage.cost_usd")
	keyEstimated = attribute.Key("toolcrib.usage.estimated")
	keyRequest   = attribute.Key("toolcrib.request")
	keyAttempt   = attribute.Key("toolcrib.request.attempt")
	keyRef       = attribute.Key("toolcrib.ref")
	keyResulted  = attribute.Key("toolcrib.tool.status")
	keyDecision  = attribute.Key("toolcrib.decision")
	keyReason    = attribute.Key("toolcrib.decision.reason")
	keyLayer     = attribute.Key("toolcrib.decision.layer")
	keyRule      = attribute.Key("toolcrib.decision.rule")
	keyBy        = attribute.Key("toolcrib.decision.by")
	keyApproval  = attribute.Key("toolcrib.approval.id")
	keyKind      = attribute.Key("toolcrib.approval.kind")
)

// layers group the reasons for which a call is refused or asked about: the call itself, access to the
// tool, the policy, limits, and a person's decision.
var layers = map[toolcrib.Reason]string{
	toolcrib.ReasonParseError: "call", toolcrib.ReasonDuplicateCallID: "call",
	toolcrib.ReasonInvalidArguments: "call",

	toolcrib.ReasonNotRegistered: "offer", toolcrib.ReasonToolDisabled: "offer",
	toolcrib.ReasonRequiresAdmin: "offer", toolcrib.ReasonNotPermitted: "offer",
	toolcrib.ReasonAgentAllowlist: "offer", toolcrib.ReasonSkillAllowlist: "offer",
	toolcrib.ReasonRunAllowlist: "offer", toolcrib.ReasonWorkerAllowlist: "offer",
	toolcrib.ReasonNotOffered: "offer",

	toolcrib.ReasonToolPolicy: "policy", toolcrib.ReasonProtectedPath: "policy",
	toolcrib.ReasonReadOnlyMode: "policy", toolcrib.ReasonRuleDenied: "policy",
	toolcrib.ReasonTaintedFlow: "policy", toolcrib.ReasonUnlistedProgram: "policy",
	toolcrib.ReasonAlreadyRan: "policy", toolcrib.ReasonNeedsConfirmation: "policy",

	toolcrib.ReasonCostCapExceeded: "limit", toolcrib.ReasonHopBudgetExhausted: "limit",
	toolcrib.ReasonTooManyCalls: "limit", toolcrib.ReasonDepthExceeded: "limit",
	toolcrib.ReasonRepeatedCall: "limit", toolcrib.ReasonBudgetExhausted: "limit",
	toolcrib.ReasonMaxIterations: "limit",

	toolcrib.ReasonApprovalDenied: "person",
}

// layerOf returns the layer of a reason.
func layerOf(r toolcrib.Reason) string {
	if layer := layers[r]; layer != "" {
		return layer
	}
	return other
}

// other replaces all values that do not fit in a bounded set.
const other = "other"
