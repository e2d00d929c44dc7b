package config

import "github.com/toolcrib/toolcrib/internal/yamltree"

// Config is a whole configuration with every default filled in. It is made by
// [Load], [Parse] and [Default], and must not be changed afterwards: a server
// that reloads makes a new one.
type Config struct {
	DataDir   Value     `yaml:"data_dir" default:"~/.local/share/toolcrib" format:"path" min:"1"`
	Database  Value     `yaml:"database" default:"" format:"database" secret:"url"`
	Workspace Value     `yaml:"workspace" default:"." format:"workspace" min:"1"`
	Listen    Value     `yaml:"listen" default:"127.0.0.1:8420" format:"listen"`
	Bus       Bus       `yaml:"bus"`
	Telemetry Telemetry `yaml:"telemetry"`
	Keys      Value     `yaml:"keys" default:"" format:"path"`

	Retry Retry `yaml:"retry"`

	Providers map[string]Provider `yaml:"providers" keys:"name"`
	Models    map[string]Model    `yaml:"models" keys:"model"`
	Agents    map[string]Agent    `yaml:"agents" keys:"name"`
	Budgets   []UserBudget        `yaml:"budgets" max:"1000"`

	Tools      Tools                `yaml:"tools"`
	Rules      []Rule               `yaml:"rules" max:"1000"`
	Approvals  Approvals            `yaml:"approvals"`
	Team       Team                 `yaml:"team"`
	Channels   map[string]Channel   `yaml:"channels" keys:"name"`
	Skills     Skills               `yaml:"skills"`
	Notes      Notes                `yaml:"notes"`
	MCPServers map[string]MCPServer `yaml:"mcpServers" keys:"name"`
	SQL        map[string]Database  `yaml:"sql" keys:"name"`
	Retention  Retention            `yaml:"retention"`
	Log        Log                  `yaml:"log"`
	Server     Server               `yaml:"server"`

	file  string                    // as the user named it; "" = no file
	base  string                    // absolute folder of the file; "" = no file
	hash  string                    // sha256:… of its content; "" = no file
	nodes map[string]*yamltree.Node // by key path, of what is written in the file
}

// Bus says where the bus is.
type Bus struct {
	URL Value `yaml:"url" default:"" format:"bus" secret:"url"`
}

// Telemetry says where traces go.
type Telemetry struct {
	OTLP    Value `yaml:"otlp" default:"" format:"url" secret:"url"`
	Content bool  `yaml:"content" default:"false"`
}

// Team says how several models work on one question.
type Team struct {
	WorkerTools WorkerTools      `yaml:"worker_tools"`
	Panels      map[string]Panel `yaml:"panels" keys:"name"`
	Rubric      Value            `yaml:"rubric" default:"" format:"path"`
}

// WorkerTools caps what the tool calls of workers cost.
type WorkerTools struct {
	CostCapUSD  float64 `yaml:"cost_cap_usd" default:"0" min:"0"`
	CostCapMode string  `yaml:"cost_cap_mode" default:"warn" enum:"warn|enforce|off"`
}

// Panel is a set of agents that are asked together.
type Panel struct {
	Agents      []string `yaml:"agents" default:"[]" max:"100" format:"word"`
	Proposer    string   `yaml:"proposer" default:"" format:"word"`
	Synthesizer string   `yaml:"synthesizer" default:"" format:"word"`
}

// Channel is a way to people: of the message tool, and of messages that start runs.
type Channel struct {
	Type    string  `yaml:"type" required:"true" format:"word"`
	URL     Value   `yaml:"url" default:"" secret:"all"`
	Inbound Inbound `yaml:"inbound"`
}

// Inbound says whose messages start runs of which agent.
type Inbound struct {
	Agent string   `yaml:"agent" default:"" format:"word"`
	Allow []string `yaml:"allow" default:"[]" max:"10000" format:"word" words:"true"`
}

// Notes names files that say how to work in a project.
type Notes struct {
	Files    []string `yaml:"files" default:"[AGENTS.md, CLAUDE.md]" max:"100" format:"word"`
	MaxBytes int      `yaml:"max_bytes" default:"32768" min:"1" max:"16777216"`
}

// Retry says how long a provider that fails is retried, from its first failure on.
type Retry struct {
	First      Duration `yaml:"first" default:"30s" max:"24h"`
	MaxElapsed Duration `yaml:"max_elapsed" default:"5m" max:"24h"`
	Park       Duration `yaml:"park" default:"24h" max:"30d"`
}

// UserBudget caps what one user spends in a calendar day or month (UTC); 0 = no cap.
type UserBudget struct {
	User             string  `yaml:"user" default:"*" format:"glob"`
	RequestsPerDay   int64   `yaml:"requests_per_day" default:"0" min:"0"`
	TokensPerDay     int64   `yaml:"tokens_per_day" default:"0" min:"0"`
	CostUSDPerDay    float64 `yaml:"cost_usd_per_day" default:"0" min:"0"`
	RequestsPerMonth int64   `yaml:"requests_per_month" default:"0" min:"0"`
	TokensPerMonth   int64   `yaml:"tokens_per_month" default:"0" min:"0"`
	CostUSDPerMonth  float64 `yaml:"cost_usd_per_month" default:"0" min:"0"`
}

// Rule is one rule of the gate, in CEL.
type Rule struct {
	Name    string   `yaml:"name" required:"true" format:"name"`
	Tools   []string `yaml:"tools" null:"true" default:"null" format:"glob"`
	When    string   `yaml:"when" default:"" format:"expression"`
	Then    string   `yaml:"then" required:"true" enum:"allow|ask|deny"`
	Message string   `yaml:"message" default:""`
}

// Approvals says how people decide.
type Approvals struct {
	Expire   Duration `yaml:"expire" default:"72h"`
	FourEyes bool     `yaml:"four_eyes" default:"false"`
	Notify   []Notify `yaml:"notify" default:"[]" max:"100" short:"url"`
}

// Notify is an address that hears about approvals. A text alone is its URL.
type Notify struct {
	URL    Value `yaml:"url" required:"true" format:"notify" secret:"notify"`
	Secret Value `yaml:"secret" default:"" format:"signing" secret:"all"`
}

// Skills says where skills are found.
type Skills struct {
	Dirs []Value `yaml:"dirs" default:"[./skills, ~/.config/toolcrib/skills]" max:"100" format:"path" min:"1"`
}

// Database is a database that describe_tables may show.
type Database struct {
	URL Value `yaml:"url" required:"true" format:"dsn" secret:"url"`
}

// Retention says how long things are kept; 0 = forever.
type Retention struct {
	Runs    Duration `yaml:"runs" default:"0"`
	Content Duration `yaml:"content" default:"0"`
}

// Log is the operator's log.
type Log struct {
	Level  string `yaml:"level" default:"info" enum:"debug|info|warn|error"`
	Format string `yaml:"format" default:"text" enum:"text|json"`
	File   Value  `yaml:"file" default:"" format:"path"`
}

// Server is the HTTP server.
type Server struct {
	Auth         string   `yaml:"auth" default:"token" enum:"token|none"`
	TLS          TLS      `yaml:"tls"`
	RateLimit    int      `yaml:"rate_limit" default:"0" min:"0" max:"1000000"`
	MaxBodyBytes int64    `yaml:"max_body_bytes" default:"10485760" min:"1024" max:"1073741824"`
	CORS         []string `yaml:"cors" default:"[]" max:"1000" format:"word"`

	ClientToolTimeout Duration `yaml:"client_tool_timeout" default:"1h" min:"1s" max:"30d"`
	MaxRunsPerUser    int      `yaml:"max_runs_per_user" default:"0" min:"0" max:"100000"`
}

// TLS names the files of a certificate, both or neither.
type TLS struct {
	Cert Value `yaml:"cert" default:"" format:"path"`
	Key  Value `yaml:"key" default:"" format:"path"`
}
