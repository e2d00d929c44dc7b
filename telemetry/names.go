package telemetry

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/toolcrib/toolcrib"
)

// The names of OpenTelemetry's conventions for generative AI (semantic conventions 1.41) that
// spans have, and those of this project, which begin with toolcrib.
const (
	opAgent = "invoke_agent"
	opChat  = "chat"
	opTool  = "execute_tool"

	keyOperation    = attribute.Key("gen_ai.operation.name")
	keyProvider     = attribute.Key("gen_ai.provider.name")
	keyAgent        = attribute.Key("gen_ai.agent.name")
	keyConversation = attribute.Key("gen_ai.conversation.id")
	keyModel        = attribute.Key("gen_ai.request.model")
	keyMaxTokens    = attribute.Key("gen_ai.request.max_tokens")
	keyStream       = attribute.Key("gen_ai.request.stream")
	keyAnswered     = attribute.Key("gen_ai.response.model")
	keyResponse     = attribute.Key("gen_ai.response.id")
	keyFinish       = attribute.Key("gen_ai.response.finish_reasons")
	keyFirst        = attribute.Key("gen_ai.response.time_to_first_chunk")
	keyInput        = attribute.Key("gen_ai.usage.input_tokens")
	keyOutput       = attribute.Key("gen_ai.usage.output_tokens")
	keyCacheRead    = attribute.Key("gen_ai.usage.cache_read.input_tokens")
	keyCacheWrite   = attribute.Key("gen_ai.usage.cache_creation.input_tokens")
	keyReasoning    = attribute.Key("gen_ai.usage.reasoning.output_tokens")
	keyTool         = attribute.Key("gen_ai.tool.name")
	keyToolType     = attribute.Key("gen_ai.tool.type")
	keyCall         = attribute.Key("gen_ai.tool.call.id")
	keyError        = attribute.Key("error.type")
	keyUser         = attribute.Key("user.id")

	// Only with telemetry.content.
	keySystem      = attribute.Key("gen_ai.system_instructions")
	keyMessagesIn  = attribute.Key("gen_ai.input.messages")
	keyMessagesOut = attribute.Key("gen_ai.output.messages")
	keyArguments   = attribute.Key("gen_ai.tool.call.arguments")
	keyResult      = attribute.Key("gen_ai.tool.call.result")

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

// layers group the reasons for which a call is refused or asked about: what is wrong with the
// call itself, who may have the tool, what the policy says of this call, limits, and a
// person's decision.
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

// layerOf is the layer of a reason.
func layerOf(r toolcrib.Reason) string {
	if layer := layers[r]; layer != "" {
		return layer
	}
	return other
}

// other stands for all values beyond those that are told apart.
const other = "other"
