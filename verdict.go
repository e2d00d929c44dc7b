package toolcrib

// Reason is the reason why the gate refused a call, or asks about it. The order of the constants is the
// order in which the gate judges; the first one that refuses is reported.
type Reason string

const (
	ReasonParseError         Reason = "parse_error"
	ReasonCostCapExceeded    Reason = "cost_cap_exceeded"
	ReasonHopBudgetExhausted Reason = "hop_budget_exhausted"
	ReasonDuplicateCallID    Reason = "duplicate_call_id"
	ReasonTooManyCalls       Reason = "too_many_calls"
	ReasonNotRegistered      Reason = "not_registered"
	ReasonToolDisabled       Reason = "tool_disabled"
	ReasonRequiresAdmin      Reason = "requires_admin"
	ReasonNotPermitted       Reason = "not_permitted"
	ReasonAgentAllowlist     Reason = "agent_allowlist"
	ReasonSkillAllowlist     Reason = "skill_allowlist"
	ReasonRunAllowlist       Reason = "run_allowlist"
	ReasonWorkerAllowlist    Reason = "worker_allowlist"
	ReasonNotOffered         Reason = "not_offered"
	ReasonDepthExceeded      Reason = "depth_exceeded"
	ReasonInvalidArguments   Reason = "invalid_arguments"
	ReasonToolPolicy         Reason = "tool_policy"
	ReasonProtectedPath      Reason = "protected_path"
	ReasonReadOnlyMode       Reason = "read_only_mode"
	ReasonRuleDenied         Reason = "rule_denied"
	ReasonTaintedFlow        Reason = "tainted_flow"
	ReasonRepeatedCall       Reason = "repeated_call"
	ReasonBudgetExhausted    Reason = "budget_exhausted"
	ReasonAlreadyRan         Reason = "already_ran"
	ReasonUnlistedProgram    Reason = "unlisted_program"
	ReasonNeedsConfirmation  Reason = "needs_confirmation"
	ReasonApprovalDenied     Reason = "approval_denied"
	// ReasonMaxIterations is for a call in the final reply, which runs no tools.
	ReasonMaxIterations Reason = "max_iterations"
)

// Decision is the gate's decision on one call. The zero value refuses.
type Decision string

const (
	Refuse Decision = ""
	Ask    Decision = "ask"
	Allow  Decision = "allow"
)

// ResultStatus is the outcome of a call.
type ResultStatus string

const (
	ResultOK        ResultStatus = "ok"
	ResultError     ResultStatus = "error"
	ResultRefused   ResultStatus = "refused"
	ResultTimeout   ResultStatus = "timeout"
	ResultCancelled ResultStatus = "cancelled"
	ResultInDoubt   ResultStatus = "in_doubt"
)
