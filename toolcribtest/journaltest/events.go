package journaltest

import (
	"encoding/json"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// At is the time of the first event of the suite. It has microseconds that are
// easily lost.
func At() time.Time { return time.Date(2026, 2, 28, 23, 59, 59, 999_999_000, time.UTC) }

// Bodies returns a body of every kind with every field set, in an order in which
// a run could hold them.
func Bodies() []toolcrib.Body {
	cost := 0.25
	temperature := 0.5
	usage := toolcrib.Usage{
		InputTokens: 100, CachedInputTokens: 40, OutputTokens: 20, TotalTokens: 120, Requests: 2,
		CostUSD: 0.00125, Estimated: true, CacheWriteTokens: 7, ReasoningTokens: 5,
	}
	tokens := toolcrib.TokenUsage{
		InputTokens: 50, CachedInputTokens: 20, CacheWriteTokens: 3, OutputTokens: 10, ReasoningTokens: 2,
		CostUSD: &cost, Reported: true,
	}
	preview := &toolcrib.Preview{Kind: "diff", Text: "-old\n+new <&>\u2028"}
	questions := []journal.Question{{
		Reason: toolcrib.ReasonTaintedFlow, Rule: "r", Says: "0a", Setting: "tools.confirm", Mode: "writes",
		Effect: toolcrib.EffectIdempotentWrite, Sources: []string{"web_fetch"}, Text: "<why> & \u2028",
	}}
	binding := &journal.Binding{
		Workspace: "/w", LeadsTo: "/real <w>", FolderID: "7@1.5", CommandLine: true,
		Files: []toolcrib.FileState{{Path: "/real <w>/a.txt", State: toolcrib.FileAbsent}},
	}
	item := journal.ApprovalItem{
		ID: "call_1", Name: "write_file", Arguments: json.RawMessage(`{"path":"a.txt","text":"<b>&é\u0000"}`),
		Effect: toolcrib.EffectIdempotentWrite, Preview: preview, Reason: "writes need an approval",
		Questions: questions, Changed: "a.txt is gone", Binding: binding,
	}
	call := toolcrib.ToolCall{
		ID: "call_1", Name: "write_file", Arguments: json.RawMessage(`{"path":"a.txt"}`), Broken: "{", Problem: "ends early",
		Cut: true, ProviderID: "toolu_9", Duplicate: true, Signature: "c2ln", Secret: "acme",
	}
	offer := journal.Offer{Hash: "f0", Bytes: 2048, Finder: "find_tools", Tools: []journal.OfferedTool{{Name: "read_file", Hash: "aa", Bytes: 300, Shown: true}, {Name: "write_file", Hash: "bb"}}}
	return append([]toolcrib.Body{
		runStarted(offer, &call, &temperature),
		&journal.TakenUp{Worker: "host-1", Epoch: 2, Children: 1},
		&journal.Offered{Offer: offer},
		&journal.ModelRequest{
			Request: 1, Iteration: 1, Attempt: 1, Model: 1, Closing: true, Purpose: "condense", OfferHash: "f0", Hash: "e1",
			Choice: toolcrib.ToolChoice{Mode: toolcrib.ChoiceRequired}, ReservedInput: 1000, ReservedOutput: 500, ReservedUSD: 0.5, MaxOutput: 500, DelayMS: 500, UserLeft: 700,
		},
		&journal.ModelFailed{
			NoTools: true,
			Request: 1, Class: toolcrib.ErrOverloaded, Provider: "anthropic", Status: 529, Message: "overloaded", Detail: "line\nline",
			Ref: "err_1", RetryAfterMS: 1500, Unsent: true, OutputBegan: true, DurationMS: 12, Charged: tokens, ChargedUSD: 0.1, Sum: usage,
		},
		reply(),
		&journal.ToolCall{Iteration: 1, ToolCall: call},
		&journal.Usage{Request: 2, Tokens: tokens, CostUSD: 0.001, Estimated: true, Sum: usage},
		&journal.Verdicts{Iteration: 1, Again: true, Verdicts: []journal.Verdict{{
			CallID: "call_1", Tool: "write_file", Decision: toolcrib.Ask, Reason: toolcrib.ReasonNeedsConfirmation, Message: "m",
			Questions: questions, Changed: "a.txt is gone", Binding: binding, ApprovedBy: "bob",
			OperatorHint: "h", Rule: "r", SchemaError: json.RawMessage(`{"at":"/path"}`), Position: "toolcrib.yaml:3", Detail: "d",
			Effect: toolcrib.EffectIdempotentWrite, Targets: []toolcrib.Target{{Kind: "file", Name: "/w/a.txt", Write: true}},
			Preview: preview, Untrusted: true, Approval: "apr_1", TimeoutMS: 30000, MaxBytes: 65536, AnsweredBy: toolcrib.ByPerson, Counted: true,
		}}},
		&journal.ConfirmationRequired{
			ApprovalID: "apr_1", Digest: "d1", Kind: journal.ApprovalCall, Iteration: 1, Calls: []journal.ApprovalItem{item}, Reason: "writes",
			Question: "q?", Schema: json.RawMessage(`{"type":"string"}`),
		},
		&journal.Paused{Status: toolcrib.StatusWaitingForApproval, Pending: journal.Pending{
			Kind: "approval", ApprovalID: "apr_1", Digest: "d1", Calls: []journal.ApprovalItem{item}, Question: "q?",
			Schema: json.RawMessage(`{"type":"string"}`),
			Error:  &journal.Outage{Class: toolcrib.ErrOverloaded, Provider: "openai", Model: "m1", Message: "HTTP 503", Ref: "err_4", RetryMS: 60000, AddTokens: 900, AddCostUSD: 0.5, AddRequests: 3},
		}},
		&journal.ConfirmationResolved{
			Remember: &journal.Remember{Scope: journal.RememberRun, Calls: journal.RememberTool},

			Open: true, ApprovalID: "apr_1", Digest: "d1", Decision: journal.DecisionMixed, By: "local:ann", User: "local:ann", Token: "tok_1", Reason: "fine",
			Calls: map[string]journal.CallDecision{"call_1": {
				Decision: journal.DecisionApprove, Arguments: json.RawMessage(`{"path":"b.txt"}`), Result: json.RawMessage(`"done"`),
			}},
		},
		&journal.ToolStarted{ID: "call_1", Name: "write_file", Write: true, Prepared: json.RawMessage(`{"before":"00"}`)},
		&journal.Reconciled{ID: "call_1", State: toolcrib.Happened},
		&journal.ToolResult{
			ToolCallID: "call_1", Name: "write_file", Status: toolcrib.ResultError, IsError: true, Content: `{"error":"<full>"}`,
			Reason: toolcrib.ReasonToolPolicy, DurationMS: 3, Truncated: true, Untrusted: true, Source: "web", Sources: []string{"mcp:notes"}, Ref: "res_1",
			Bytes: 1 << 40, Found: []string{"x"}, By: "ann", FaultRef: "err_2", Fault: "disk", Files: []toolcrib.File{{Ref: "run_a/res_1_1", MediaType: "image/png"}},
		},
	}, append(ends(usage), children(item, usage)...)...)
}

// children are the bodies of a call that a run of its own answers. What it waits for
// is in the journal of a run below that one.
func children(item journal.ApprovalItem, usage toolcrib.Usage) []toolcrib.Body {
	return []toolcrib.Body{
		&journal.ChildStarted{ID: "call_2", Run: "run_b", Agent: "helper", Share: share()},
		&journal.ChildParked{ID: "call_2", Run: "run_b", Status: toolcrib.StatusWaitingForApproval, Pending: journal.Pending{
			Kind: "approval", Run: "run_c", ApprovalID: "apr_2", Digest: "d2", Calls: []journal.ApprovalItem{item}, Question: "q?",
			Schema: json.RawMessage(`{"type":"string"}`),
		}},
		&journal.ChildResumed{ID: "call_2", Run: "run_b"},
		&journal.ChildEnded{ID: "call_2", Run: "run_b", Status: toolcrib.StatusCompleted, StopReason: toolcrib.StopCompleted, Usage: usage, Runs: 2, Bytes: 5000},
		&journal.Forgotten{
			ApprovalID: "apr_1", Tool: "write_file", Arguments: json.RawMessage(`{"a":1}`), Path: "/w/d", Folder: true, By: "local:ann",
		},
		&journal.Resumed{Once: "aa:bb", By: "local:ann"},
	}
}

func share() *journal.Share {
	return &journal.Share{CostUSD: 0.5, Tokens: 1000, Requests: 5, Runs: 3, Bytes: 1 << 20}
}

// ends are the bodies of what people add to a run, of its ends, and of kinds that
// came later.
func ends(usage toolcrib.Usage) []toolcrib.Body {
	return []toolcrib.Body{
		&journal.Notice{Notice: toolcrib.Notice{Code: "fallback", Message: "used m2"}},
		&journal.Granted{Iterations: 5, CostUSD: 0.5, Tokens: 1000, Requests: 2, By: "local:ann"},
		&journal.Said{ID: "msg_1", Text: "go on", By: "local:ann"},
		&journal.Stopping{Reason: toolcrib.StopWallTime, Message: "15m are over", By: "local:ann"},
		&journal.Done{
			Status: toolcrib.StatusCompleted, StopReason: toolcrib.StopCompleted, Content: "ready", Truncated: true, Iterations: 2, Usage: usage,
			Unread: 1,
		},
		&journal.Error{
			Code: "provider_failed", Message: "no model answered", Ref: "err_3", Status: toolcrib.StatusFailed,
			StopReason: toolcrib.StopProviderFailed, Content: "so far", Truncated: true, Iterations: 2, Usage: usage, Unread: 1,
		},
		&journal.Condensed{
			Request: 4, Iteration: 3, Strategy: "condense", From: 1, Messages: 6, Text: "earlier: <b>&é", Before: 9000, After: 2000, Reason: "context_length",
		},
		&journal.Released{Cause: "terminated"},
		&journal.Worked{MS: 1200},
		&journal.ModelChosen{Model: journal.ModelInfo{Ref: "m3", Provider: "openai", ID: "gpt-5-mini"}, By: "local:ann"},
		&journal.AnswerChecked{Request: 5, Valid: true, Answer: `{"n":1}`, Problem: "at /n: must be a number"},
	}
}

// reply has a part of every kind, also those that no reply has.
func reply() *journal.Message {
	return &journal.Message{
		Request: 2, Iteration: 1, Finish: toolcrib.FinishToolCalls, Model: "m-2026", RequestID: "req_1", Closing: true,
		DurationMS: 900, FirstMS: 150,
		Parts: []toolcrib.Part{
			{Thinking: &toolcrib.Thinking{Text: "hm", Signature: "sig", Redacted: "xx", Model: "anthropic/m"}},
			{Text: "I will look.\n\tΩ 漢字 🙂"},
			{ToolCall: &toolcrib.ToolCall{ID: "call_1", Name: "write_file"}},
			{ToolResult: &toolcrib.ToolResult{CallID: "c0", Name: "x", Content: "y", IsError: true, Files: []toolcrib.File{{Ref: "r2", MediaType: "image/png"}}}},
			{File: &toolcrib.File{Ref: "r1", MediaType: "image/png", Name: "a.png", Bytes: 12}},
		},
	}
}

func runStarted(offer journal.Offer, given *toolcrib.ToolCall, temperature *float64) *journal.RunStarted {
	return &journal.RunStarted{
		Format: journal.Format, Version: "1.2.3", CostCap: "day", ForkedFrom: "run_0", ForkedRound: 2, Compact: true,
		Ran: []journal.RanCall{{Run: "run_0", ID: "call_7", Name: "write_file", Arguments: "ab", Does: []string{"cd"}}},
		Agent: toolcrib.Agent{
			Name: "default", Model: "small", Fallback: []string{"tiny"}, System: "Be careful.", Temperature: temperature,
			MaxOutputTokens: 4096, Tools: []string{}, Skills: []string{"review"},
			ToolChoice:   toolcrib.ToolChoice{Mode: toolcrib.ChoiceName, Name: "read_file"},
			OutputSchema: json.RawMessage(`{"type":"object"}`), OnDenial: "stop", Limits: toolcrib.DefaultLimits(),
			Budget:      toolcrib.Budget{MaxCostUSD: 1.5, MaxTokens: 1000, MaxRequests: 3, Mode: toolcrib.BudgetWarn},
			TaintWrites: "deny", ReadOnly: true, ContextStrategy: "condense", KeepRecent: 0.3, FindAbove: 32768,
		},
		Models: []journal.ModelInfo{{
			Ref: "small", Provider: "openai", ID: "gpt-5-mini", Price: toolcrib.Price{Input: 0.25, CachedInput: 0.025, CacheWrite: 0.3, Output: 2, Known: true},
			Context: 400000, MaxOutput: 128000, Tools: "native", Files: "none", Reasoning: "low", Extra: json.RawMessage(`{"seed":1}`),
		}},
		Principal: toolcrib.Principal{
			User: "ann", Admin: true, Roles: []string{"dev"}, Groups: []string{"g"}, Grants: []string{"read_*"}, Trust: toolcrib.TrustMember, Actor: "local:root",
		},
		Session: "ses_1", Parent: "run_0", Beside: "ses_2", Depth: 1, Workspace: "/w", Driver: "server", Once: "6b:2f", System: "Be careful.",
		Input:    []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, "hello")},
		RunTools: nil, SkillTools: []string{}, WorkerTools: []string{"fetch"}, Skills: []journal.Skill{{Name: "review", Hash: "sha256:1f"}}, Listed: []journal.Skill{{Name: "pdf", Hash: "sha256:ab"}}, Approve: "ask", Offer: offer, Given: given,
		Taint: []string{"web"}, Canary: "CC_CANARY_0123456789ABCDEF", Retry: journal.DefaultRetry(),
		Above:  &journal.Above{SkillTools: [][]string{{"read_file"}, {}}, ReadOnly: true, TaintWrites: "deny", MaxDepth: 2},
		Share:  share(),
		Worker: &journal.WorkerLimits{Hops: 2, CostCapUSD: 0.25, CostCapMode: "enforce"},
		ClientTools: []toolcrib.Spec{{
			Name: "pick", Description: "picks", Parameters: json.RawMessage(`{"type":"object"}`), Source: "client",
			AnsweredBy: toolcrib.ByClient,
		}},
	}
}

// Events makes events of bodies, a millisecond and a microsecond apart.
func Events(bodies ...toolcrib.Body) []toolcrib.Event {
	events := make([]toolcrib.Event, len(bodies))
	for i, b := range bodies {
		events[i] = toolcrib.Event{Time: At().Add(time.Duration(i) * 1001 * time.Microsecond), Body: b}
	}
	return events
}

// notices makes n small events.
func notices(n int) []toolcrib.Event {
	bodies := make([]toolcrib.Body, n)
	for i := range bodies {
		bodies[i] = &journal.Notice{Notice: toolcrib.Notice{Code: "n"}}
	}
	return Events(bodies...)
}
