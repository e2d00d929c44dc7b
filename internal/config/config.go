// Package config reads toolcrib.yaml. It is strict: every error has file, line and key path, and a
// configuration with errors is not used.
//
// The struct [Config] is the single definition of the configuration: the loader, the defaults, the
// JSON Schema and the printed form are derived from its fields and their tags, which
// [yamltree.Field] describes.
//
//   - The file of a project is laid over that of its user. The tag layers says how the values of a
//     key are combined.
//   - A relative path in a file is relative to the folder of the file; ~ is the home folder. The
//     default of a path, and the workspace ".", written or not, are relative to the folder in which
//     toolcrib was started, or to that of the session of an editor.
//   - An agent inherits from agents.default only its model: other keys that are not written have
//     the built-in defaults. An agent without a model has the model and, unless it has its own, the
//     fallback of agents.default. If that has no model either, one is detected
//     ([Config.DetectModel]).
//   - PROVIDER in PROVIDER/MODEL, and the provider of a model, may be a type that needs at most a
//     key from the environment (openai, anthropic, gemini, ollama, llamacpp, offline). An entry of
//     providers with that name takes precedence.
//   - References such as ${env:NAME} are allowed in values that are texts, paths, addresses or
//     secrets, and are resolved when the value is used ([Value]). They are not allowed in names,
//     enumerations, lists of tools or hosts, and rules. $${ is a literal ${.
//   - A section, mapping or list that is null, for example because all of it is commented out, is
//     treated as absent, unless null has a meaning of its own. A list with a default that is not
//     empty must not be null.
package config

import "github.com/toolcrib/toolcrib/internal/yamltree"

// Config is a configuration with all defaults. It is returned by [Load], [Parse] and [Default],
// and must not be changed: a server that reloads gets a new one.
type Config struct {
	DataDir   Value     `yaml:"data_dir" layers:"user" default:"~/.local/share/toolcrib" format:"path" min:"1"`
	Database  Value     `yaml:"database" layers:"user" default:"" format:"database" secret:"url"`
	Workspace Value     `yaml:"workspace" default:"." format:"workspace" min:"1"`
	Listen    Value     `yaml:"listen" default:"127.0.0.1:8420" format:"listen" min:"1"`
	Bus       Bus       `yaml:"bus" layers:"user"`
	Telemetry Telemetry `yaml:"telemetry" layers:"user"`
	Keys      Value     `yaml:"keys" layers:"user" default:"" format:"path"`

	Retry Retry `yaml:"retry"`

	Providers map[string]Provider `yaml:"providers" layers:"whole" keys:"name"`
	Models    map[string]Model    `yaml:"models" keys:"model"`
	Agents    map[string]Agent    `yaml:"agents" keys:"name"`
	Budgets   []UserBudget        `yaml:"budgets" layers:"budgets" max:"1000"`

	Tools      Tools                `yaml:"tools"`
	Rules      []Rule               `yaml:"rules" layers:"rules" max:"1000"`
	Approvals  Approvals            `yaml:"approvals"`
	Team       Team                 `yaml:"team"`
	Channels   map[string]Channel   `yaml:"channels" layers:"whole" keys:"name"`
	Skills     Skills               `yaml:"skills"`
	Notes      Notes                `yaml:"notes"`
	MCPServers map[string]MCPServer `yaml:"mcpServers" layers:"whole" keys:"name"`
	SQL        map[string]Database  `yaml:"sql" layers:"whole" keys:"name"`
	Retention  Retention            `yaml:"retention"`
	Log        Log                  `yaml:"log"`
	Server     Server               `yaml:"server" layers:"user"`

	layers  []layer                   // files, nearest last; a single one may have no name
	changes []string                  // how the project's file differs from the user's
	nodes   map[string]*yamltree.Node // nodes of the file by key path
	texts   func() []Value            // returns the values that may contain references; nil if not parsed
}

// Bus configures the bus between servers, and what this node offers to others there.
type Bus struct {
	URL         Value `yaml:"url" default:"" format:"bus" secret:"url"`
	Credentials Value `yaml:"credentials" default:"" format:"path"`
	CAFile      Value `yaml:"ca_file" default:"" format:"path"`
	TLS         TLS   `yaml:"tls"`

	// Name is what other nodes call this one; "" means the name of the machine.
	Name   string           `yaml:"name" default:"" format:"word"`
	Offers map[string]Offer `yaml:"offers" keys:"capability"`
}

// Telemetry configures the export of traces.
type Telemetry struct {
	OTLP    Value `yaml:"otlp" default:"" format:"url" secret:"url"`
	Content bool  `yaml:"content" default:"false"`
}

// Team configures how several models work on one question.
type Team struct {
	WorkerTools WorkerTools      `yaml:"worker_tools"`
	Panels      map[string]Panel `yaml:"panels" keys:"name"`
	Rubric      Value            `yaml:"rubric" default:"" format:"path"`
}

// WorkerTools caps the cost of tool calls of workers.
type WorkerTools struct {
	CostCapUSD  float64 `yaml:"cost_cap_usd" layers:"cap" default:"0" min:"0"`
	CostCapMode string  `yaml:"cost_cap_mode" layers:"off|warn|enforce" default:"warn" enum:"warn|enforce|off"`
}

// Panel is a group of agents that answer the same question.
type Panel struct {
	Agents      []string `yaml:"agents" default:"[]" max:"100" format:"word"`
	Proposer    string   `yaml:"proposer" default:"" format:"word"`
	Synthesizer string   `yaml:"synthesizer" default:"" format:"word"`
}

// Channel is a way of sending messages to people, and of starting runs by messages.
type Channel struct {
	Type    string  `yaml:"type" required:"true" format:"word"`
	URL     Value   `yaml:"url" default:"" secret:"all"`
	Secret  Value   `yaml:"secret" default:"" format:"signing" secret:"all"` // of a webhook
	Inbound Inbound `yaml:"inbound"`
}

// The types of channels whose messages can start runs. The others are messengers to which messages are only sent.
const (
	ChannelTelegram = "telegram"
	ChannelSlack    = "slack"
	ChannelMatrix   = "matrix"
	ChannelWebhook  = "webhook"
)

// Inbound configures whose messages start runs, and of which agent. An entry of Allow is the stable ID of a sender, to
// which =USER may be appended to make them that user.
type Inbound struct {
	Agent string   `yaml:"agent" default:"" format:"word"`
	Allow []string `yaml:"allow" default:"[]" max:"10000" format:"word" words:"true"`
}

// Notes names the files with instructions for working in a project.
type Notes struct {
	Files    []string `yaml:"files" default:"[AGENTS.md, CLAUDE.md]" max:"100" format:"note"`
	MaxBytes int      `yaml:"max_bytes" default:"32768" min:"1" max:"16777216"`
}

// Retry configures how long a failing provider is retried, counted from its first failure.
type Retry struct {
	First      Duration `yaml:"first" default:"30s" max:"24h"`
	MaxElapsed Duration `yaml:"max_elapsed" default:"5m" max:"24h"`
	Park       Duration `yaml:"park" default:"24h" max:"30d"`
}

// UserBudget caps the spending of a user per calendar day or month (UTC); 0 means no cap.
type UserBudget struct {
	User             string  `yaml:"user" default:"*" format:"glob"`
	RequestsPerDay   int64   `yaml:"requests_per_day" layers:"cap" default:"0" min:"0"`
	TokensPerDay     int64   `yaml:"tokens_per_day" layers:"cap" default:"0" min:"0"`
	CostUSDPerDay    float64 `yaml:"cost_usd_per_day" layers:"cap" default:"0" min:"0"`
	RequestsPerMonth int64   `yaml:"requests_per_month" layers:"cap" default:"0" min:"0"`
	TokensPerMonth   int64   `yaml:"tokens_per_month" layers:"cap" default:"0" min:"0"`
	CostUSDPerMonth  float64 `yaml:"cost_usd_per_month" layers:"cap" default:"0" min:"0"`
}

// Rule is one rule of the gate, in CEL.
type Rule struct {
	Name    string   `yaml:"name" required:"true" format:"name"`
	Tools   []string `yaml:"tools" null:"true" default:"null" format:"glob"`
	When    string   `yaml:"when" default:"" format:"expression"`
	Then    string   `yaml:"then" required:"true" enum:"allow|ask|deny"`
	Message string   `yaml:"message" default:""`
}

// Approvals configures how approvals are decided.
type Approvals struct {
	Expire   Duration `yaml:"expire" default:"72h"`
	FourEyes bool     `yaml:"four_eyes" layers:"false|true" default:"false"`
	Notify   []Notify `yaml:"notify" default:"[]" max:"100" short:"url"`
}

// Notify is an address that is notified of approvals. It may be written as its URL alone.
type Notify struct {
	URL    Value `yaml:"url" required:"true" format:"notify" secret:"notify"`
	Secret Value `yaml:"secret" default:"" format:"signing" secret:"all"`
}

// Skills configures where skills are searched.
type Skills struct {
	Dirs []Value `yaml:"dirs" default:"[./skills, ./.agents/skills, ./.claude/skills, ~/.config/toolcrib/skills, ~/.claude/skills]" max:"100" format:"path" min:"1"`
}

// Database is a database that describe_tables may show.
type Database struct {
	URL Value `yaml:"url" required:"true" format:"dsn" secret:"url"`
}

// Retention configures how long runs and their content are kept; 0 means forever.
type Retention struct {
	Runs    Duration `yaml:"runs" default:"0"`
	Content Duration `yaml:"content" default:"0"`
}

// Log configures the log for operators.
type Log struct {
	Level  string `yaml:"level" default:"info" enum:"debug|info|warn|error"`
	Format string `yaml:"format" default:"text" enum:"text|json"`
	File   Value  `yaml:"file" default:"" format:"path"`

	Requests bool `yaml:"requests" default:"true"`
}

// Server configures the HTTP server.
type Server struct {
	Auth         string   `yaml:"auth" default:"token" enum:"token|none"`
	TLS          TLS      `yaml:"tls"`
	RateLimit    int      `yaml:"rate_limit" default:"0" min:"0" max:"1000000"`
	MaxBodyBytes int64    `yaml:"max_body_bytes" default:"10485760" min:"1024" max:"1073741824"`
	CORS         []string `yaml:"cors" default:"[]" max:"1000" format:"origin"`
	Origin       string   `yaml:"origin" default:"" format:"origin"`
	// TrustedProxies are the peers whose X-Forwarded-For is believed.
	TrustedProxies []string `yaml:"trusted_proxies" default:"[]" max:"100" format:"network"`

	ClientToolTimeout Duration `yaml:"client_tool_timeout" default:"1h" min:"1s" max:"30d"`
	MaxRuns           int      `yaml:"max_runs" default:"256" min:"16" max:"4096"` // that each server works on
	MaxRunsPerUser    int      `yaml:"max_runs_per_user" default:"0" min:"0" max:"100000"`

	Session WebSession `yaml:"session"`
	OIDC    OIDC       `yaml:"oidc"`
}

// OIDC configures the OpenID Connect provider by which people sign in. It is not used without an issuer.
type OIDC struct {
	Issuer       string              `yaml:"issuer" default:"" format:"url"`
	ClientID     Value               `yaml:"client_id" default:"" format:"text"`
	ClientSecret Value               `yaml:"client_secret" default:"" secret:"all"`
	Scopes       []string            `yaml:"scopes" default:"[openid,profile,email]" max:"100" format:"word"`
	UserClaim    string              `yaml:"user_claim" default:"" format:"word"`
	GroupsClaim  string              `yaml:"groups_claim" default:"" format:"word"`
	Roles        map[string][]string `yaml:"roles" keys:"claim" max:"100"`
	Admins       []string            `yaml:"admins" default:"[]" max:"100"`
	Create       bool                `yaml:"create" default:"false"`
}

// WebSession bounds the sessions of browsers.
type WebSession struct {
	Idle Duration `yaml:"idle" default:"12h" min:"1m" max:"365d"`
	Max  Duration `yaml:"max" default:"7d" min:"1m" max:"365d"`
}

// TLS names the files of a certificate, both or neither.
type TLS struct {
	Cert Value `yaml:"cert" default:"" format:"path"`
	Key  Value `yaml:"key" default:"" format:"path"`
}

// DefaultAgent is the agent that is used if none is named. It always exists.
const DefaultAgent = "default"

// Provider is a service that serves models.
type Provider struct {
	Type    string `yaml:"type" default:"" format:"provider"`
	APIKey  Value  `yaml:"api_key" default:"" format:"header" secret:"all"`
	BaseURL Value  `yaml:"base_url" default:"" format:"api" secret:"url"`
	API     string `yaml:"api" default:"" enum:"|chat|responses"`
	// Reasoning says whether the reasoning of earlier turns is sent back.
	Reasoning string `yaml:"reasoning" default:"" enum:"|replay|drop"`

	Headers map[string]Value `yaml:"headers" keys:"header" format:"header" secret:"named"`
	Proxy   Value            `yaml:"proxy" default:"" format:"proxy" secret:"url"`
	CAFile  Value            `yaml:"ca_file" default:"" format:"path"`
	File    Value            `yaml:"file" default:"" format:"path"`

	// Node is the key of a node of the bus, and Token a token for it.
	Node  string `yaml:"node" default:"" format:"word"`
	Token Value  `yaml:"token" default:"" format:"bustoken" secret:"all"`

	ConnectTimeout    Duration `yaml:"connect_timeout" default:"10s" min:"1ms" max:"1h"`
	FirstTokenTimeout Duration `yaml:"first_token_timeout" default:"120s" min:"1ms" max:"24h"`
	IdleTimeout       Duration `yaml:"idle_timeout" default:"60s" min:"1ms" max:"24h"`
	MaxConcurrent     int      `yaml:"max_concurrent" default:"0" min:"0" max:"10000"`
	RequestsPerMinute int      `yaml:"requests_per_minute" default:"0" min:"0" max:"1000000"`
}

// Model is a model of a provider.
type Model struct {
	Provider  string `yaml:"provider" required:"true" format:"name"`
	Model     string `yaml:"model" required:"true" format:"word"`
	Price     *Price `yaml:"price"`
	Tools     string `yaml:"tools" default:"native" enum:"native|text|none"`
	Context   int    `yaml:"context" default:"0" min:"0" max:"100000000"`
	Reasoning string `yaml:"reasoning" default:"" enum:"|low|medium|high|off"`
	Extra     JSON   `yaml:"extra" null:"true" default:"null" format:"object"`
}

// Price is the price of a model in US dollars per million tokens.
type Price struct {
	Input       float64 `yaml:"input" default:"0" min:"0"`
	CachedInput float64 `yaml:"cached_input" default:"0" min:"0"`
	CacheWrite  float64 `yaml:"cache_write" default:"0" min:"0"`
	Output      float64 `yaml:"output" default:"0" min:"0"`
}

// Agent is the configuration of a named agent.
type Agent struct {
	Description     string     `yaml:"description" default:"" format:"description"`
	Model           string     `yaml:"model" default:"" format:"word"`
	Fallback        []string   `yaml:"fallback" default:"[]" max:"16" format:"word"`
	System          Value      `yaml:"system" default:"You are a careful assistant." format:"prompt"`
	Temperature     *float64   `yaml:"temperature" min:"0" max:"2"`
	MaxOutputTokens *int       `yaml:"max_output_tokens" min:"1" max:"100000000"`
	Tools           []string   `yaml:"tools" layers:"both" null:"true" default:"null" max:"1000" format:"glob"`
	Skills          []string   `yaml:"skills" default:"[]" max:"1000" format:"word"`
	ToolChoice      ToolChoice `yaml:"tool_choice" default:"auto"`
	OutputSchema    JSON       `yaml:"output_schema" null:"true" default:"null" format:"schema"`
	OnDenial        string     `yaml:"on_denial" default:"continue" enum:"continue|stop"`
	Arguments       string     `yaml:"arguments" default:"lossless" enum:"lossless|strict"`
	Limits          Limits     `yaml:"limits"`
	Budget          Budget     `yaml:"budget"`
	Session         Session    `yaml:"session"`
	Taint           Taint      `yaml:"taint"`
	ReadOnly        bool       `yaml:"read_only" layers:"false|true" default:"false"`
	MaxConcurrent   int        `yaml:"max_concurrent" layers:"cap" default:"0" min:"0" max:"100000"`
	FindTools       FindTools  `yaml:"find_tools"`
	Context         Context    `yaml:"context"`
}

// Limits are the bounds of a run.
type Limits struct {
	MaxIterations     int      `yaml:"max_iterations" layers:"least" default:"20" min:"1" max:"200"`
	OnLimit           string   `yaml:"on_limit" layers:"ask|finalize|error" default:"finalize" enum:"finalize|error|ask"`
	MaxParallel       int      `yaml:"max_parallel" layers:"least" default:"4" min:"1" max:"64"`
	MaxCallsPerTurn   int      `yaml:"max_calls_per_turn" layers:"least" default:"64" min:"1" max:"1000"`
	MaxIdenticalCalls int      `yaml:"max_identical_calls" layers:"cap" default:"3" min:"0" max:"1000"`
	ToolTimeout       Duration `yaml:"tool_timeout" layers:"least" default:"30s" min:"1ms" max:"24h"`
	MaxResultBytes    int      `yaml:"max_result_bytes" layers:"least" default:"65536" min:"256" max:"16777216"`
	MaxDepth          int      `yaml:"max_depth" layers:"least" default:"3" min:"1" max:"16"`
	WallTime          Duration `yaml:"wall_time" layers:"least" default:"15m" min:"1ms" max:"30d"`
	MaxTreeRuns       int      `yaml:"max_tree_runs" layers:"least" default:"100" min:"1" max:"1000000"`
	MaxTreeRequests   int      `yaml:"max_tree_requests" layers:"least" default:"2000" min:"1" max:"1000000000"`
	MaxTreeBytes      int64    `yaml:"max_tree_bytes" layers:"least" default:"268435456" min:"1048576"`
}

// Budget caps the spending of a run; 0 means no cap.
type Budget struct {
	MaxCostUSD  float64 `yaml:"max_cost_usd" layers:"cap" default:"0" min:"0"`
	MaxTokens   int64   `yaml:"max_tokens" layers:"cap" default:"0" min:"0"`
	MaxRequests int     `yaml:"max_requests" layers:"cap" default:"0" min:"0" max:"1000000000"`
	Mode        string  `yaml:"mode" layers:"off|warn|enforce" default:"enforce" enum:"warn|enforce|off"`
}

// Session caps the usage of all runs of a session together; 0 means no cap.
type Session struct {
	MaxCostUSD float64  `yaml:"max_cost_usd" layers:"cap" default:"0" min:"0"`
	MaxTokens  int64    `yaml:"max_tokens" layers:"cap" default:"0" min:"0"`
	WallTime   Duration `yaml:"wall_time" layers:"cap" default:"0" min:"0"`
}

// Taint configures what happens after a run has read untrusted data.
type Taint struct {
	Writes string `yaml:"writes" layers:"allow|ask|deny" default:"ask" enum:"ask|deny|allow"`
}

// FindTools configures the size above which tools are not offered completely but must be found.
type FindTools struct {
	AboveBytes int `yaml:"above_bytes" default:"32768" min:"0" max:"1073741824"`
}

// Context configures what happens before a request exceeds the context of the model.
type Context struct {
	Strategy   string  `yaml:"strategy" default:"condense" enum:"condense|drop|fail"`
	KeepRecent float64 `yaml:"keep_recent" default:"0.3" min:"0.05" max:"0.9"`
}

// Tools configures the tools for all callers.
type Tools struct {
	Enabled bool             `yaml:"enabled" layers:"true|false" default:"true"`
	Bound   map[string]Bound `yaml:"bound" layers:"whole" keys:"tool"`
	// DefaultSet has the predefined tools of the bus that are enabled by default.
	DefaultSet []string `yaml:"default_set" default:"[search_corpus, list_corpora, translate, list_marketplace]" max:"100" format:"word"`

	Confirm  string             `yaml:"confirm" layers:"never|writes|always" default:"writes" enum:"writes|never|always"`
	Shell    Shell              `yaml:"shell"`
	Web      Web                `yaml:"web"`
	Settings map[string]Setting `yaml:"settings" keys:"tool"`
	Commands map[string]Command `yaml:"commands" layers:"command" keys:"tool"`
}

// Bound defines a tool for a capability of the bus.
type Bound struct {
	Capability  string    `yaml:"capability" required:"true" format:"capability"`
	Effect      string    `yaml:"effect" layers:"read_only|idempotent_write|non_idempotent_write" default:"non_idempotent_write" enum:"read_only|idempotent_write|non_idempotent_write"`
	Description string    `yaml:"description" default:""`
	Parameters  JSON      `yaml:"parameters" null:"true" default:"null" format:"schema"`
	Params      JSON      `yaml:"params" null:"true" default:"null" format:"object"`
	Timeout     *Duration `yaml:"timeout" min:"1ms" max:"24h"`
	Untrusted   bool      `yaml:"untrusted" layers:"false|true" default:"true"`
	Token       Value     `yaml:"token" default:"" format:"bustoken" secret:"all"` // presented to its issuer, the only node called
}

// Shell configures exec_shell. In mode ask a line that is not listed runs in a sandbox in which it can only read, and
// asks if it is to write or if there is no such sandbox.
type Shell struct {
	Mode    string   `yaml:"mode" layers:"any|ask|allowlist|off" default:"ask" enum:"ask|allowlist|any|off"`
	Allow   []string `yaml:"allow" layers:"widens" default:"[echo, cat, ls, pwd, head, tail, wc, grep, find, sort, uniq, diff, date, true, false, test]" max:"1000" words:"true" format:"program"`
	Sandbox string   `yaml:"sandbox" layers:"best_effort|required" default:"best_effort" enum:"required|best_effort"`
	Network Network  `yaml:"network" layers:"network" default:"false"`
	// Unconfined lists users, and groups as group:NAME.
	Unconfined []string `yaml:"unconfined" layers:"user" default:"[]" max:"1000" format:"word" words:"true"`

	Path   []Value          `yaml:"path" default:"[]" max:"1000" format:"path" min:"1"`
	Env    map[string]Value `yaml:"env" keys:"env" format:"text" secret:"named" words:"true"`
	Caches bool             `yaml:"caches" default:"true"`
}

// Web configures web_fetch and web_search. For the limits per session 0 means no limit.
type Web struct {
	Allow              []string `yaml:"allow" layers:"widens" default:"[]" max:"10000" format:"web"`
	Deny               []string `yaml:"deny" layers:"all" default:"[]" max:"10000" format:"web"`
	AllowPrivate       bool     `yaml:"allow_private" layers:"true|false" default:"false"`
	MaxBytes           int64    `yaml:"max_bytes" layers:"least" default:"10485760" min:"1" max:"1073741824"`
	MaxBytesPerSession int64    `yaml:"max_bytes_per_session" layers:"cap" default:"0" min:"0"`
	MaxHostsPerSession int      `yaml:"max_hosts_per_session" layers:"cap" default:"0" min:"0" max:"1000000"`
	Search             Search   `yaml:"search" layers:"whole"`
}

// Search is the engine of web_search.
type Search struct {
	Endpoint Value `yaml:"endpoint" default:"" format:"url" secret:"url"`
	APIKey   Value `yaml:"api_key" default:"" format:"header" secret:"all"`
}

// Setting changes the settings of one tool; nil and "" mean no change.
type Setting struct {
	Timeout        *Duration `yaml:"timeout" min:"1ms" max:"24h"`
	MaxResultBytes *int      `yaml:"max_result_bytes" min:"256" max:"16777216"`
	Confirm        string    `yaml:"confirm" layers:"|never|writes|always" default:"" enum:"|writes|never|always"`
	Untrusted      *bool     `yaml:"untrusted" layers:"false|true"`
}

// MCPServer is an MCP server: a program (command) or an address (url).
type MCPServer struct {
	Type     string           `yaml:"type" default:"" enum:"|stdio|http|streamable-http|sse"`
	Command  Value            `yaml:"command" default:"" format:"text"`
	Args     []Value          `yaml:"args" default:"[]" max:"1000" format:"text" secret:"args" words:"true"`
	Env      map[string]Value `yaml:"env" keys:"env" format:"text" secret:"named" words:"true"`
	Cwd      Value            `yaml:"cwd" default:"" format:"path"`
	URL      Value            `yaml:"url" default:"" format:"url" secret:"url"`
	Headers  map[string]Value `yaml:"headers" keys:"header" format:"header" secret:"named"`
	Timeout  *Duration        `yaml:"timeout" min:"1ms" max:"24h"`
	Start    Duration         `yaml:"start_timeout" default:"15s" min:"1ms" max:"1h"`
	Disabled bool             `yaml:"disabled" default:"false"`
	Trusted  bool             `yaml:"trusted" default:"false"`
	Confirm  string           `yaml:"confirm" layers:"|never|writes|always" default:"" enum:"|writes|never|always"`
	Tools    []string         `yaml:"tools" null:"true" default:"null" max:"1000" format:"glob"`
	OAuth    MCPOAuth         `yaml:"oauth"`
}

// MCPOAuth configures how to sign in to an MCP server (mcp login), if the server does not say so itself.
type MCPOAuth struct {
	ClientID     Value    `yaml:"client_id" default:"" format:"text"`
	ClientSecret Value    `yaml:"client_secret" default:"" secret:"all"`
	Issuer       string   `yaml:"issuer" default:"" format:"url"`
	Scopes       []string `yaml:"scopes" null:"true" default:"null" max:"100" format:"word"`
	CallbackPort int      `yaml:"callback_port" default:"0" min:"0" max:"65535"`
}
