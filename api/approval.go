package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Approval is an approval with the decisions so far.
type Approval struct {
	ID        string               `json:"approval_id"`
	Run       toolcrib.RunID       `json:"run_id"`
	Parent    toolcrib.RunID       `json:"parent_id,omitempty"` // run that started Run
	Status    string               `json:"status"`              // pending | expired | decided | ended
	Kind      journal.ApprovalKind `json:"kind"`
	Digest    string               `json:"digest"`
	Agent     string               `json:"agent"`
	User      string               `json:"user"`
	Reason    string               `json:"reason"`
	Question  string               `json:"question,omitempty"` // for kind input
	Schema    json.RawMessage      `json:"schema,omitempty"`   // schema of the answer
	Calls     []ApprovalCall       `json:"calls"`
	CreatedAt time.Time            `json:"created_at"`
	ExpiresAt *time.Time           `json:"expires_at"` // null = never, or not pending any more
	Decisions []ApprovalWord       `json:"decisions"`
	LetPass   []string             `json:"let_pass"` // later calls that passed because it was remembered

	Workspace string `json:"workspace,omitempty"` // workspace of Run
}

// The values of [Approval.Status].
const (
	ApprovalPending = "pending"
	ApprovalExpired = "expired" // it has waited for too long: the process that continues the run denies it
	ApprovalDecided = "decided"
	ApprovalEnded   = "ended" // its run ended before it was decided
)

// Open returns the IDs of the calls without a decision.
func (v *Approval) Open() []string {
	var ids []string
	for _, c := range v.Calls {
		if c.Decision == "" {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// Request returns the approval as it was asked, with the calls that are open.
func (v *Approval) Request() *journal.ConfirmationRequired {
	ask := &journal.ConfirmationRequired{
		ApprovalID: v.ID, Digest: v.Digest, Kind: v.Kind, Reason: v.Reason, Question: v.Question, Schema: v.Schema,
	}
	for _, c := range v.Calls {
		if c.Decision == "" {
			ask.Calls = append(ask.Calls, c.ApprovalItem)
		}
	}
	return ask
}

// ApprovalCall is a call of an approval.
type ApprovalCall struct {
	journal.ApprovalItem
	Decision string `json:"decision"` // "" = open
	// Edited are the arguments by which a person replaced the model's.
	Edited json.RawMessage `json:"edited_arguments,omitempty"`
	// Rule is the rule that asks, and Position its place in the configuration.
	Rule     string `json:"rule,omitempty"`
	Position string `json:"position,omitempty"`
	// Proposed is a rule that would allow calls like this one. It is nil if the call is decided.
	Proposed *Rule `json:"proposed_rule,omitempty"`
}

// ApprovalList is the answer with approvals.
type ApprovalList struct {
	Approvals []*Approval `json:"approvals"`
	Next      string      `json:"next,omitempty"` // cursor of the next page
}

// Rule is a proposed rule, which has no effect until a person adds it to a configuration.
type Rule struct {
	Name  string   `json:"name"`
	Tools []string `json:"tools"`
	When  string   `json:"when"`
	Then  string   `json:"then"`
}

// Line returns the rule as an entry of rules in a configuration.
func (r *Rule) Line() string {
	return fmt.Sprintf("- {name: %s, tools: [%s], when: '%s', then: %s}", r.Name, strings.Join(r.Tools, ", "),
		strings.ReplaceAll(r.When, "'", "''"), r.Then)
}

// ApprovalWord is a decision about an approval.
type ApprovalWord struct {
	Decision string    `json:"decision"`
	By       string    `json:"by"`
	Token    string    `json:"token_id,omitempty"` // ID of the access token of the decision
	Own      bool      `json:"own"`                // it was made by the user of the run
	Reason   string    `json:"reason,omitempty"`
	At       time.Time `json:"at"`

	Calls    map[string]journal.CallDecision `json:"calls,omitempty"` // by call ID; absent = Decision, or still open
	Remember *journal.Remember               `json:"remember,omitempty"`
	Edited   bool                            `json:"edited,omitempty"` // a call runs with other arguments
}

// Text returns the decision in words.
func (w *ApprovalWord) Text() string {
	text := strings.ReplaceAll(w.Decision, "_", " ")
	if w.Edited {
		text += " with other arguments"
	}
	return text
}

// DecisionRequest is a person's decision about an approval.
type DecisionRequest struct {
	Decision string                `json:"decision,omitempty" jsonschema:"for all calls: approve, deny, retry, happened or not_happened"`
	Digest   string                `json:"digest" jsonschema:"the digest of the approval that the person was shown"`
	Calls    map[string]CallChoice `json:"calls,omitempty" jsonschema:"decisions by call ID; without a decision for all, other calls stay pending"`
	Reason   string                `json:"reason,omitempty"`
	Remember string                `json:"remember,omitempty" jsonschema:"run, session or user: also approve later calls like these"`

	RememberCalls string          `json:"remember_calls,omitempty" jsonschema:"which calls are like these; default: as narrow as is of use"`
	Check         bool            `json:"check,omitempty" jsonschema:"only say whether the decision would be taken; the digest may be missing"`
	Answer        json.RawMessage `json:"answer,omitempty" jsonschema:"the answer to a question of the model"`
}

// CallChoice is a decision about one call.
type CallChoice struct {
	Decision  string          `json:"decision,omitempty" jsonschema:"default: that for all calls"`
	Arguments json.RawMessage `json:"arguments,omitempty" jsonschema:"replace the model's"`
	Result    json.RawMessage `json:"result,omitempty" jsonschema:"with happened: the result"`
}

// Decided is a recorded decision.
type Decided struct {
	ID       string          `json:"approval_id"`
	Run      toolcrib.RunID  `json:"run_id"`
	Decision string          `json:"decision"`
	By       string          `json:"by"`
	Reason   string          `json:"reason,omitempty"`
	Calls    []string        `json:"calls"` // calls with a decision
	Open     []string        `json:"open"`  // calls without one
	Status   toolcrib.Status `json:"status"`

	Remember *journal.Remember `json:"remember,omitempty"`
}
