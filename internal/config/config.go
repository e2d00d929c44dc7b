package config

import "github.com/toolcrib/toolcrib/internal/yamltree"

// Config is a whole configuration with every default filled in. It is made by
// [Load], [Parse] and [Default], and must not be changed afterwards: a server
// that reloads makes a new one.
type Config struct {
	DataDir   Value     `yaml:"data_dir" default:"~/.local/share/toolcrib" format:"path" min:"1" doc:"Folder of the SQLite database, keys, memory, kept results and workspaces."`
	Database  Value     `yaml:"database" default:"" format:"database" secret:"url" doc:"Empty: SQLite in data_dir. postgres://…: PostgreSQL, for many servers."`
	Workspace Value     `yaml:"workspace" default:"." format:"workspace" min:"1" doc:"Root of the file tools and the shell. serve uses data_dir/workspaces/USER."`
	Listen    Value     `yaml:"listen" default:"127.0.0.1:8420" format:"listen" doc:"Address of the HTTP server, HOST:PORT."`
	Bus       Bus       `yaml:"bus" doc:"The bus between servers."`
	Telemetry Telemetry `yaml:"telemetry" doc:"Traces for OpenTelemetry."`
	Keys      Value     `yaml:"keys" default:"" format:"path" doc:"File with the keys that sign and encrypt; empty: made in data_dir. The same on all servers."`

	Retry Retry `yaml:"retry" doc:"How long a failing provider is retried; 0 = never."`

	Providers map[string]Provider `yaml:"providers" keys:"name" doc:"Places that serve models, by name."`
	Models    map[string]Model    `yaml:"models" keys:"model" doc:"Models by a name of your own. Known models need no entry."`
	Agents    map[string]Agent    `yaml:"agents" keys:"name" doc:"Named ways to run. The agent default always exists."`
	Budgets   []UserBudget        `yaml:"budgets" max:"1000" doc:"Ceilings for a user over a day or month."`

	Tools      Tools                `yaml:"tools" doc:"What tools may do, whoever calls them."`
	Rules      []Rule               `yaml:"rules" max:"1000" doc:"Rules over calls in CEL. deny beats ask beats allow."`
	Approvals  Approvals            `yaml:"approvals" doc:"Decisions of people on calls."`
	Team       Team                 `yaml:"team" doc:"Several models on one question."`
	Channels   map[string]Channel   `yaml:"channels" keys:"name" doc:"Where the message tool writes to and messages come from, by name."`
	Skills     Skills               `yaml:"skills" doc:"Where skills are found."`
	Notes      Notes                `yaml:"notes" doc:"Files of a project that say how to work in it."`
	MCPServers map[string]MCPServer `yaml:"mcpServers" keys:"name" doc:"MCP servers, by name, as in other programs."`
	SQL        map[string]Database  `yaml:"sql" keys:"name" doc:"Databases that describe_tables may show, by name."`
	Retention  Retention            `yaml:"retention" doc:"How long runs are kept; 0 = for ever."`
	Log        Log                  `yaml:"log" doc:"The operator's log."`
	Server     Server               `yaml:"server" doc:"The HTTP server."`

	file  string                    // as the user named it; "" = no file
	base  string                    // absolute folder of the file; "" = no file
	hash  string                    // sha256:… of its content; "" = no file
	nodes map[string]*yamltree.Node // by key path, of what is written in the file
}

// Bus says where the bus is.
type Bus struct {
	URL Value `yaml:"url" default:"" format:"bus" secret:"url" doc:"Empty: a NATS server inside the process. nats://…: yours, for many servers."`
}

// Telemetry says where traces go.
type Telemetry struct {
	OTLP    Value `yaml:"otlp" default:"" format:"url" secret:"url" doc:"Address of an OpenTelemetry collector; empty: none."`
	Content bool  `yaml:"content" default:"false" doc:"true puts prompts and results into spans."`
}

// Team says how several models work on one question.
type Team struct {
	WorkerTools WorkerTools      `yaml:"worker_tools" doc:"What the tool calls of workers may cost."`
	Panels      map[string]Panel `yaml:"panels" keys:"name" doc:"Agents that are asked together, by the panel's name."`
	Rubric      Value            `yaml:"rubric" default:"" format:"path" doc:"File with the rubric of assess; empty: the default six."`
}

// WorkerTools caps what the tool calls of workers cost.
type WorkerTools struct {
	CostCapUSD  float64 `yaml:"cost_cap_usd" default:"0" min:"0" doc:"US dollars; 0 = no cap."`
	CostCapMode string  `yaml:"cost_cap_mode" default:"warn" enum:"warn|enforce|off" doc:"What the cap does."`
}

// Panel is a set of agents that are asked together.
type Panel struct {
	Agents      []string `yaml:"agents" default:"[]" max:"100" format:"word" doc:"Agents that are asked."`
	Proposer    string   `yaml:"proposer" default:"" format:"word" doc:"The agent that proposes; empty: the first."`
	Synthesizer string   `yaml:"synthesizer" default:"" format:"word" doc:"The agent that sums up; empty: the proposer."`
}

// Channel is a way to people: of the message tool, and of messages that start runs.
type Channel struct {
	Type    string  `yaml:"type" required:"true" format:"word" doc:"telegram, slack, discord, matrix, webhook and so on."`
	URL     Value   `yaml:"url" default:"" secret:"all" doc:"Where to, with its token; better a reference such as ${secret:NAME}."`
	Inbound Inbound `yaml:"inbound" doc:"Messages from there that start runs."`
}

// Inbound says whose messages start runs of which agent.
type Inbound struct {
	Agent string   `yaml:"agent" default:"" format:"word" doc:"The agent; empty: no message starts a run."`
	Allow []string `yaml:"allow" default:"[]" max:"10000" format:"word" words:"true" doc:"Senders whose messages count; [] = nobody's."`
}

// Notes names files that say how to work in a project.
type Notes struct {
	Files    []string `yaml:"files" default:"[AGENTS.md, CLAUDE.md]" max:"100" format:"word" doc:"Of these names the first that exists in a folder is read; [] = none."`
	MaxBytes int      `yaml:"max_bytes" default:"32768" min:"1" max:"16777216" doc:"The most that is read of all."`
}

// Retry says how long a provider that fails is retried, from its first failure on.
type Retry struct {
	First      Duration `yaml:"first" default:"30s" max:"24h" doc:"By a run that has no reply yet; then it fails."`
	MaxElapsed Duration `yaml:"max_elapsed" default:"5m" max:"24h" doc:"By a run that has a reply; then it waits for its provider (waiting_for_provider)."`
	Park       Duration `yaml:"park" default:"24h" max:"30d" doc:"How long a server tries such a run again by itself, with growing pauses."`
}

// UserBudget caps what one user spends in a calendar day or month (UTC); 0 = no cap.
type UserBudget struct {
	User             string  `yaml:"user" default:"*" format:"glob" doc:"A user's name, or * for each user without an entry."`
	RequestsPerDay   int64   `yaml:"requests_per_day" default:"0" min:"0" doc:"Model requests a day."`
	TokensPerDay     int64   `yaml:"tokens_per_day" default:"0" min:"0" doc:"Tokens a day."`
	CostUSDPerDay    float64 `yaml:"cost_usd_per_day" default:"0" min:"0" doc:"US dollars a day."`
	RequestsPerMonth int64   `yaml:"requests_per_month" default:"0" min:"0" doc:"Model requests a month."`
	TokensPerMonth   int64   `yaml:"tokens_per_month" default:"0" min:"0" doc:"Tokens a month."`
	CostUSDPerMonth  float64 `yaml:"cost_usd_per_month" default:"0" min:"0" doc:"US dollars a month."`
}

// Rule is one rule of the gate, in CEL.
type Rule struct {
	Name    string   `yaml:"name" required:"true" format:"name" doc:"Name, shown in refusals and explain."`
	Tools   []string `yaml:"tools" null:"true" default:"null" format:"glob" doc:"Tools by name or glob; null = every tool."`
	When    string   `yaml:"when" default:"" format:"expression" doc:"CEL expression that must be true; empty = always."`
	Then    string   `yaml:"then" required:"true" enum:"allow|ask|deny" doc:"What happens to the call."`
	Message string   `yaml:"message" default:"" doc:"What the model and the person read."`
}

// Approvals says how people decide.
type Approvals struct {
	Expire   Duration `yaml:"expire" default:"72h" doc:"An approval nobody decided is denied after this time; 0 = never."`
	FourEyes bool     `yaml:"four_eyes" default:"false" doc:"Nobody may approve calls of a run of their own."`
	Notify   []Notify `yaml:"notify" default:"[]" max:"100" short:"url" doc:"Addresses that are told when a run waits for a person (slack://…, https://…), or {url, secret}."`
}

// Notify is an address that is told of approvals. A text alone is its URL.
type Notify struct {
	URL    Value `yaml:"url" required:"true" format:"notify" secret:"notify" doc:"https://… is a webhook; slack://…, discord://…, smtp://… and so on are messengers."`
	Secret Value `yaml:"secret" default:"" format:"signing" secret:"all" doc:"Signs what a webhook is sent, whsec_… or a text; empty: a key made from those of the data folder."`
}

// Skills says where skills are found.
type Skills struct {
	Dirs []Value `yaml:"dirs" default:"[./skills, ~/.config/toolcrib/skills]" max:"100" format:"path" min:"1" doc:"Folders, each holding skills as folders with a SKILL.md."`
}

// Database is a database that describe_tables may show.
type Database struct {
	URL Value `yaml:"url" required:"true" format:"dsn" secret:"url" doc:"Address of the database."`
}

// Retention says how long things are kept; 0 = for ever.
type Retention struct {
	Runs    Duration `yaml:"runs" default:"0" doc:"Age at which ended runs are removed, such as 90d."`
	Content Duration `yaml:"content" default:"0" doc:"Age at which the content of ended runs is removed."`
}

// Log is the operator's log.
type Log struct {
	Level  string `yaml:"level" default:"info" enum:"debug|info|warn|error" doc:"The least important that is logged."`
	Format string `yaml:"format" default:"text" enum:"text|json" doc:"How a line looks."`
	File   Value  `yaml:"file" default:"" format:"path" doc:"File to append to; empty: standard error."`
}

// Server is the HTTP server.
type Server struct {
	Auth         string   `yaml:"auth" default:"token" enum:"token|none" doc:"none is refused unless listen is loopback."`
	TLS          TLS      `yaml:"tls" doc:"Certificate; empty: plain HTTP."`
	RateLimit    int      `yaml:"rate_limit" default:"0" min:"0" max:"1000000" doc:"Requests a minute of one token or address; 0 = no limit."`
	MaxBodyBytes int64    `yaml:"max_body_bytes" default:"10485760" min:"1024" max:"1073741824" doc:"Largest request body in bytes."`
	CORS         []string `yaml:"cors" default:"[]" max:"1000" format:"word" doc:"Origins whose pages may call the API."`

	ClientToolTimeout Duration `yaml:"client_tool_timeout" default:"1h" min:"1s" max:"30d" doc:"How long the result of a client tool is waited for."`
	MaxRunsPerUser    int      `yaml:"max_runs_per_user" default:"0" min:"0" max:"100000" doc:"Runs of one user at a time; 0 = no bound."`
}

// TLS names the files of a certificate, both or neither.
type TLS struct {
	Cert Value `yaml:"cert" default:"" format:"path" doc:"PEM file of the certificate chain."`
	Key  Value `yaml:"key" default:"" format:"path" doc:"PEM file of the private key."`
}
