// Package api has the requests and answers of the HTTP API, which are also what --json prints: one
// type for each, used by server and client alike. It has no behaviour beyond reading its own
// fields. Answers that are values of another package as they are, such as the explanation of the
// gate or a session of the store, are not repeated here.
package api

import (
	"encoding/json"

	"github.com/toolcrib/toolcrib"
)

// Failure is the body of an answer that is an error, and the data of the event that ends a stream
// early.
type Failure struct {
	Error      toolcrib.Code  `json:"error"`
	Message    string         `json:"message"`
	RequestID  string         `json:"request_id"`
	RetryAfter int64          `json:"retry_after_ms,omitempty"`
	Details    map[string]any `json:"details,omitempty"`
}

// Health is the answer of a server that runs.
type Health struct {
	Status  string `json:"status"`
	Version string `json:"version,omitempty"`
}

// Readiness reports whether a server can work, and what it lacks if not.
type Readiness struct {
	Ready   bool     `json:"ready"`
	Missing []string `json:"missing"`
	// Degraded lists what does not work although the server is ready: bus.
	Degraded []string `json:"degraded,omitempty"`
}

// Me is the authenticated user.
type Me struct {
	User   string   `json:"user"`
	Admin  bool     `json:"admin"`
	Roles  []string `json:"roles,omitempty"`
	Groups []string `json:"groups,omitempty"`
	Grants []string `json:"grants" jsonschema:"null = no restriction"`
	Token  string   `json:"token_id,omitempty" jsonschema:"of a token with a scope"`
	// FourEyes is approvals.four_eyes of the configuration.
	FourEyes bool `json:"four_eyes,omitempty" jsonschema:"another person approves what your runs ask about"`
	// NoSandbox says why commands of exec_shell have no sandbox. Only administrators read it.
	NoSandbox string `json:"no_sandbox,omitempty" jsonschema:"why commands run without a sandbox; for administrators"`
}

// Model is a model that a run may name.
type Model struct {
	Name      string      `json:"name"` // name in agents and for --model
	Provider  string      `json:"provider"`
	Type      string      `json:"type"`
	Model     string      `json:"model"`
	Price     *ModelPrice `json:"price"`      // in US dollars per 1M tokens; null = unknown
	Context   int         `json:"context"`    // tokens; 0 = unknown
	MaxOutput int         `json:"max_output"` // tokens of a reply; 0 = unknown
	Tools     string      `json:"tools"`
	Files     *bool       `json:"files"` // whether it takes images; null = unknown
	Reasoning string      `json:"reasoning"`
	Detected  string      `json:"detected"` // why it is used although none is configured
	From      string      `json:"from"`     // configured | detected | known: the list of prices has it
}

// ModelPrice is the price of a model in US dollars per 1M tokens.
type ModelPrice struct {
	Input       float64 `json:"input"`
	CachedInput float64 `json:"cached_input"`
	CacheWrite  float64 `json:"cache_write"`
	Output      float64 `json:"output"`
}

// ModelList is the answer with models.
type ModelList struct {
	Models []Model `json:"models"`
}

// Skill is a skill, without its folder.
type Skill struct {
	Name         string   `json:"name"`
	Description  string   `json:"description,omitempty"`
	AllowedTools []string `json:"allowed_tools" jsonschema:"null if the skill restricts nothing"`
	State        string   `json:"state"`
	Reason       string   `json:"reason,omitempty" jsonschema:"why it cannot be used"`
	Hash         string   `json:"hash,omitempty" jsonschema:"of all its files; absent if it cannot be read"`
}

// SkillList is the answer with skills.
type SkillList struct {
	Skills []Skill `json:"skills"`
}

// ShownSkill is a skill with its text.
type ShownSkill struct {
	Skill
	Text string `json:"text" jsonschema:"empty for access tokens, and if the skill cannot be used, except for administrators"`
}

// Switch switches a tool, or all tools of a group, on or off.
type Switch struct {
	Enabled bool `json:"enabled"`
}

// OtherCallRequest asks about a call that another agent is about to make.
type OtherCallRequest struct {
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Cwd       string          `json:"cwd,omitempty" jsonschema:"the working directory of the call; default: the user's own folder; others are for administrators"`
	Session   string          `json:"session,omitempty"`
}

// OtherDecided is the decision of the gate about such a call.
type OtherDecided struct {
	Decision string `json:"decision"` // [OtherAllow], [OtherAsk] or [OtherDeny]
	Reason   string `json:"reason"`
	Rule     string `json:"rule"` // "" = no rule decided
}

// The decisions about calls of other agents.
const (
	OtherAllow = "allow"
	OtherAsk   = "ask"
	OtherDeny  = "deny"
)

// Prompt is a prompt of an MCP server, as the server offers it.
type Prompt struct {
	Name        string           `json:"name"`
	Title       string           `json:"title,omitempty"`
	Description string           `json:"description,omitempty"`
	Arguments   []PromptArgument `json:"arguments,omitempty"`
}

// PromptArgument is an argument of a prompt. Its value is a text.
type PromptArgument struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Required    bool   `json:"required,omitempty"`
}

// MCPPrompt is a prompt with the name of its MCP server.
type MCPPrompt struct {
	Prompt
	Server string `json:"server"`
}

// MCPPromptList lists the prompts of MCP servers, as they were reviewed.
type MCPPromptList struct {
	Prompts []MCPPrompt `json:"prompts"`
}

// MCPPromptRequest asks for a prompt of such a list, filled in with arguments.
type MCPPromptRequest struct {
	Prompt    MCPPrompt         `json:"prompt"`
	Arguments map[string]string `json:"arguments,omitempty"`
}

// MCPContent is the content of a prompt or a resource of an MCP server, for the prompt of a run.
type MCPContent struct {
	Text  string   `json:"text,omitempty"`
	Files []File   `json:"files,omitempty"`
	Taint []string `json:"taint,omitempty" jsonschema:"the untrusted data that is in it, for taint of the run"`
}

// MCPResourceRequest names a resource of an MCP server.
type MCPResourceRequest struct {
	Server string `json:"server"`
	URI    string `json:"uri"`
}
