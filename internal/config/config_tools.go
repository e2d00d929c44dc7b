package config

// Tools says what tools may do, whoever calls them.
type Tools struct {
	Enabled  bool               `yaml:"enabled" default:"true" doc:"false: no tool is offered to anyone, and none runs."`
	Bound    map[string]Bound   `yaml:"bound" keys:"tool" doc:"Tools that are capabilities of the bus, by name."`
	Confirm  string             `yaml:"confirm" default:"writes" enum:"writes|never|always" doc:"Which calls need an approval, by effect."`
	Shell    Shell              `yaml:"shell" doc:"exec_shell."`
	Web      Web                `yaml:"web" doc:"web_fetch and web_search."`
	Settings map[string]Setting `yaml:"settings" keys:"tool" doc:"Settings of single tools, by name."`
}

// Bound makes a tool of a capability of the bus.
type Bound struct {
	Capability  string    `yaml:"capability" required:"true" format:"word" doc:"The capability with its version, such as rag.query@1.0; llm.tools.call@1.0 is a composition."`
	Effect      string    `yaml:"effect" default:"non_idempotent_write" enum:"read_only|idempotent_write|non_idempotent_write" doc:"What a call may do to the world."`
	Description string    `yaml:"description" default:"" doc:"What the tool is for, in words for models."`
	Parameters  JSON      `yaml:"parameters" null:"true" default:"null" format:"schema" doc:"JSON Schema of its arguments."`
	Params      JSON      `yaml:"params" null:"true" default:"null" format:"object" doc:"What every call is sent besides its arguments."`
	Timeout     *Duration `yaml:"timeout" min:"1ms" max:"24h" doc:"Longest time of a call; null = limits.tool_timeout."`
}

// Shell bounds exec_shell.
type Shell struct {
	Mode    string   `yaml:"mode" default:"allowlist" enum:"ask|allowlist|any|off" doc:"What happens to a program that allow does not list: ask a person, refuse it (allowlist), or run it, each call as a non_idempotent_write (any)."`
	Allow   []string `yaml:"allow" default:"[echo, cat, ls, pwd, head, tail, wc, grep, find, sort, uniq, diff, date, true, false, test]" max:"1000" words:"true" format:"program" doc:"Programs that mode allowlist lets run."`
	Sandbox string   `yaml:"sandbox" default:"best_effort" enum:"required|best_effort" doc:"required: no sandbox, no call."`
	Network bool     `yaml:"network" default:"false" doc:"Whether programs may reach the network."`

	Path   []Value          `yaml:"path" default:"[]" max:"1000" format:"path" min:"1" doc:"Folders in which programs are looked for; []: the user's PATH at start, without relative folders, the workspace, and folders that others may write."`
	Env    map[string]Value `yaml:"env" keys:"env" format:"text" secret:"named" words:"true" doc:"Variables that programs get besides the few usual ones."`
	Caches bool             `yaml:"caches" default:"true" doc:"Build caches for each user and workspace, by named variables."`
}

// Web bounds web_fetch and web_search. Counts of a session: 0 = no limit.
type Web struct {
	Allow              []string `yaml:"allow" default:"[]" max:"10000" format:"web" doc:"host, *.host, https://host/prefix/, or * (any public host)."`
	Deny               []string `yaml:"deny" default:"[]" max:"10000" format:"web" doc:"The same; deny beats allow."`
	AllowPrivate       bool     `yaml:"allow_private" default:"false" doc:"Whether loopback and private addresses may be reached."`
	MaxBytes           int64    `yaml:"max_bytes" default:"10485760" min:"1" max:"1073741824" doc:"Largest response in bytes."`
	MaxBytesPerSession int64    `yaml:"max_bytes_per_session" default:"0" min:"0" doc:"Bytes of all responses of a session; 0 = no limit."`
	MaxHostsPerSession int      `yaml:"max_hosts_per_session" default:"0" min:"0" max:"1000000" doc:"Different hosts of a session; 0 = no limit."`
	Search             Search   `yaml:"search" doc:"The engine of web_search; empty: none."`
}

// Search is the engine of web_search.
type Search struct {
	Endpoint Value `yaml:"endpoint" default:"" format:"url" secret:"url" doc:"Address of the search API."`
	APIKey   Value `yaml:"api_key" default:"" secret:"all" doc:"The key."`
}

// Setting changes one tool; nil and "" leave it as it is.
type Setting struct {
	Timeout        *Duration `yaml:"timeout" min:"1ms" max:"24h" doc:"Longest time of a call; exec_shell up to 300s."`
	MaxResultBytes *int      `yaml:"max_result_bytes" min:"256" max:"16777216" doc:"Largest result in bytes, as JSON."`
	Confirm        string    `yaml:"confirm" default:"" enum:"|writes|never|always" doc:"Which calls of the tool need an approval; nothing lifts always."`
	Untrusted      *bool     `yaml:"untrusted" doc:"Whether its results are data of strangers."`
}

// MCPServer is an MCP server: a program (command) or an address (url).
type MCPServer struct {
	Type     string           `yaml:"type" default:"" enum:"|stdio|http|streamable-http|sse" doc:"How it is spoken to; empty: stdio with command, http with url."`
	Command  Value            `yaml:"command" default:"" format:"text" doc:"Program to start."`
	Args     []Value          `yaml:"args" default:"[]" max:"1000" format:"text" secret:"args" words:"true" doc:"Its arguments."`
	Env      map[string]Value `yaml:"env" keys:"env" format:"text" secret:"named" words:"true" doc:"Its environment, besides PATH, HOME and the like."`
	Cwd      Value            `yaml:"cwd" default:"" format:"path" doc:"Folder it is started in; empty: the workspace."`
	URL      Value            `yaml:"url" default:"" format:"url" secret:"url" doc:"Address of a remote server."`
	Headers  map[string]Value `yaml:"headers" keys:"header" secret:"named" doc:"Further HTTP headers."`
	Timeout  *Duration        `yaml:"timeout" min:"1ms" max:"24h" doc:"Longest time of a call; null = limits.tool_timeout."`
	Disabled bool             `yaml:"disabled" default:"false" doc:"true: not started."`
	Trusted  bool             `yaml:"trusted" default:"false" doc:"true: its results are not data of strangers."`
	Confirm  string           `yaml:"confirm" default:"" enum:"|writes|never|always" doc:"As tools.settings.X.confirm, for all its tools."`
	Tools    []string         `yaml:"tools" null:"true" default:"null" max:"1000" format:"glob" doc:"Its tools that are registered, by name or glob; null = all, [] = none."`
}
