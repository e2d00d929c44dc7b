package config

// Tools says what tools may do, whoever calls them.
type Tools struct {
	Enabled  bool               `yaml:"enabled" default:"true"`
	Bound    map[string]Bound   `yaml:"bound" keys:"tool"`
	Confirm  string             `yaml:"confirm" default:"writes" enum:"writes|never|always"`
	Shell    Shell              `yaml:"shell"`
	Web      Web                `yaml:"web"`
	Settings map[string]Setting `yaml:"settings" keys:"tool"`
}

// Bound makes a tool of a capability of the bus.
type Bound struct {
	Capability  string    `yaml:"capability" required:"true" format:"word"`
	Effect      string    `yaml:"effect" default:"non_idempotent_write" enum:"read_only|idempotent_write|non_idempotent_write"`
	Description string    `yaml:"description" default:""`
	Parameters  JSON      `yaml:"parameters" null:"true" default:"null" format:"schema"`
	Params      JSON      `yaml:"params" null:"true" default:"null" format:"object"`
	Timeout     *Duration `yaml:"timeout" min:"1ms" max:"24h"`
}

// Shell bounds exec_shell.
type Shell struct {
	Mode    string   `yaml:"mode" default:"allowlist" enum:"ask|allowlist|any|off"`
	Allow   []string `yaml:"allow" default:"[echo, cat, ls, pwd, head, tail, wc, grep, find, sort, uniq, diff, date, true, false, test]" max:"1000" words:"true" format:"program"`
	Sandbox string   `yaml:"sandbox" default:"best_effort" enum:"required|best_effort"`
	Network bool     `yaml:"network" default:"false"`

	Path   []Value          `yaml:"path" default:"[]" max:"1000" format:"path" min:"1"`
	Env    map[string]Value `yaml:"env" keys:"env" format:"text" secret:"named" words:"true"`
	Caches bool             `yaml:"caches" default:"true"`
}

// Web bounds web_fetch and web_search. Counts of a session: 0 = no limit.
type Web struct {
	Allow              []string `yaml:"allow" default:"[]" max:"10000" format:"web"`
	Deny               []string `yaml:"deny" default:"[]" max:"10000" format:"web"`
	AllowPrivate       bool     `yaml:"allow_private" default:"false"`
	MaxBytes           int64    `yaml:"max_bytes" default:"10485760" min:"1" max:"1073741824"`
	MaxBytesPerSession int64    `yaml:"max_bytes_per_session" default:"0" min:"0"`
	MaxHostsPerSession int      `yaml:"max_hosts_per_session" default:"0" min:"0" max:"1000000"`
	Search             Search   `yaml:"search"`
}

// Search is the engine of web_search.
type Search struct {
	Endpoint Value `yaml:"endpoint" default:"" format:"url" secret:"url"`
	APIKey   Value `yaml:"api_key" default:"" secret:"all"`
}

// Setting changes one tool; nil and "" leave it as it is.
type Setting struct {
	Timeout        *Duration `yaml:"timeout" min:"1ms" max:"24h"`
	MaxResultBytes *int      `yaml:"max_result_bytes" min:"256" max:"16777216"`
	Confirm        string    `yaml:"confirm" default:"" enum:"|writes|never|always"`
	Untrusted      *bool     `yaml:"untrusted"`
}

// MCPServer is an MCP server: a program (command) or an address (url).
type MCPServer struct {
	Type     string           `yaml:"type" default:"" enum:"|stdio|http|streamable-http|sse"`
	Command  Value            `yaml:"command" default:"" format:"text"`
	Args     []Value          `yaml:"args" default:"[]" max:"1000" format:"text" secret:"args" words:"true"`
	Env      map[string]Value `yaml:"env" keys:"env" format:"text" secret:"named" words:"true"`
	Cwd      Value            `yaml:"cwd" default:"" format:"path"`
	URL      Value            `yaml:"url" default:"" format:"url" secret:"url"`
	Headers  map[string]Value `yaml:"headers" keys:"header" secret:"named"`
	Timeout  *Duration        `yaml:"timeout" min:"1ms" max:"24h"`
	Disabled bool             `yaml:"disabled" default:"false"`
	Trusted  bool             `yaml:"trusted" default:"false"`
	Confirm  string           `yaml:"confirm" default:"" enum:"|writes|never|always"`
	Tools    []string         `yaml:"tools" null:"true" default:"null" max:"1000" format:"glob"`
}
