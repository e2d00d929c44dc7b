package config

// DefaultAgent is the agent that counts where none is named. It always exists.
const DefaultAgent = "default"

// Provider is a place that serves models.
type Provider struct {
	Type    string           `yaml:"type" default:"" format:"provider" doc:"What is spoken there; without it, the provider's own name must be one of these."`
	APIKey  Value            `yaml:"api_key" default:"" secret:"all" doc:"The key; better a reference such as ${env:OPENAI_API_KEY}. Empty, and neither base_url nor headers: that of the usual variable (OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY)."`
	BaseURL Value            `yaml:"base_url" default:"" format:"url" secret:"url" doc:"Address of the API; empty: that of the type."`
	API     string           `yaml:"api" default:"" enum:"|chat|responses" doc:"For type openai: Chat Completions or Responses; empty: Responses for the models of OpenAI and Azure that need it, else Chat Completions."`
	Headers map[string]Value `yaml:"headers" keys:"header" secret:"named" doc:"Further HTTP headers."`
	Proxy   Value            `yaml:"proxy" default:"" format:"proxy" secret:"url" doc:"Address of an HTTP or SOCKS proxy; none: no proxy; empty: as HTTPS_PROXY and NO_PROXY of the environment say."`
	CAFile  Value            `yaml:"ca_file" default:"" format:"path" doc:"PEM file with further certificate authorities."`
	File    Value            `yaml:"file" default:"" format:"path" doc:"Replies to play, for type script."`

	ConnectTimeout    Duration `yaml:"connect_timeout" default:"10s" min:"1ms" max:"1h" doc:"For the connection."`
	FirstTokenTimeout Duration `yaml:"first_token_timeout" default:"120s" min:"1ms" max:"24h" doc:"From the request to the first piece of the reply."`
	IdleTimeout       Duration `yaml:"idle_timeout" default:"60s" min:"1ms" max:"24h" doc:"Between two pieces of a reply."`
	MaxConcurrent     int      `yaml:"max_concurrent" default:"0" min:"0" max:"10000" doc:"Requests at a time; 0 = no limit."`
	RequestsPerMinute int      `yaml:"requests_per_minute" default:"0" min:"0" max:"1000000" doc:"0 = no limit."`
}

// Model is a model of a provider.
type Model struct {
	Provider  string `yaml:"provider" required:"true" format:"name" doc:"Name of the provider."`
	Model     string `yaml:"model" required:"true" format:"word" doc:"The provider's own name of the model."`
	Price     *Price `yaml:"price" doc:"Price in US dollars per 1M tokens; null = as known, else unknown."`
	Tools     string `yaml:"tools" default:"native" enum:"native|text|none" doc:"How tools are called: by the API, by a text protocol, or not at all."`
	Context   int    `yaml:"context" default:"0" min:"0" max:"100000000" doc:"Size of the context in tokens; 0 = as known."`
	Reasoning string `yaml:"reasoning" default:"" enum:"|low|medium|high|off" doc:"How much the model thinks; empty = not sent."`
	Extra     JSON   `yaml:"extra" null:"true" default:"null" format:"object" doc:"Further fields of the request body, as the provider documents them."`
}

// Price of a model in US dollars per 1M tokens.
type Price struct {
	Input       float64 `yaml:"input" default:"0" min:"0" doc:"Input tokens."`
	CachedInput float64 `yaml:"cached_input" default:"0" min:"0" doc:"Input tokens read from the provider's cache."`
	CacheWrite  float64 `yaml:"cache_write" default:"0" min:"0" doc:"Input tokens written to the provider's cache; 0 = as input."`
	Output      float64 `yaml:"output" default:"0" min:"0" doc:"Output tokens."`
}

// Agent is a named way to run.
type Agent struct {
	Description     string     `yaml:"description" default:"" format:"description" doc:"What the agent is for, in words for models that may give it tasks (spawn)."`
	Model           string     `yaml:"model" default:"" format:"word" doc:"A name of models, or PROVIDER/MODEL; empty: that of agents.default, else the first that is found."`
	Fallback        []string   `yaml:"fallback" default:"[]" max:"16" format:"word" doc:"Models to try next when a provider fails."`
	System          Value      `yaml:"system" default:"You are a careful assistant." format:"prompt" doc:"The system prompt."`
	Temperature     *float64   `yaml:"temperature" min:"0" max:"2" doc:"null = not sent."`
	MaxOutputTokens *int       `yaml:"max_output_tokens" min:"1" max:"100000000" doc:"null = the model's own, bounded by the budget."`
	Tools           []string   `yaml:"tools" null:"true" default:"null" max:"1000" format:"glob" doc:"Tools by name or glob. null = no restriction, [] = no tools."`
	Skills          []string   `yaml:"skills" default:"[]" max:"1000" format:"word" doc:"Skills by name."`
	ToolChoice      ToolChoice `yaml:"tool_choice" default:"auto" doc:"auto, none, required or {name: X}; required and name hold for the first request."`
	OutputSchema    JSON       `yaml:"output_schema" null:"true" default:"null" format:"schema" doc:"JSON Schema of the answer."`
	OnDenial        string     `yaml:"on_denial" default:"continue" enum:"continue|stop" doc:"What a person's deny does to the run."`
	Limits          Limits     `yaml:"limits" doc:"Bounds of a run."`
	Budget          Budget     `yaml:"budget" doc:"What a run may spend; 0 = no cap."`
	Taint           Taint      `yaml:"taint" doc:"What happens once untrusted data has been read."`
	ReadOnly        bool       `yaml:"read_only" default:"false" doc:"true: calls whose effect is a write are refused."`
	MaxConcurrent   int        `yaml:"max_concurrent" default:"0" min:"0" max:"100000" doc:"Runs of this agent at a time on the servers; 0 = no bound."`
	FindTools       FindTools  `yaml:"find_tools" doc:"When tools are given through find_tools."`
	Context         Context    `yaml:"context" doc:"What happens before a request outgrows the model's context."`
}

// Limits are the bounds of a run.
type Limits struct {
	MaxIterations     int      `yaml:"max_iterations" default:"20" min:"1" max:"200" doc:"Rounds of model call and tool calls."`
	OnLimit           string   `yaml:"on_limit" default:"finalize" enum:"finalize|error|ask" doc:"What happens at max_iterations; ask parks, and a person may grant more."`
	MaxParallel       int      `yaml:"max_parallel" default:"4" min:"1" max:"64" doc:"Tool calls of one turn at a time; 1 = one after another, in order."`
	MaxCallsPerTurn   int      `yaml:"max_calls_per_turn" default:"64" min:"1" max:"1000" doc:"Tool calls of one turn; those beyond are refused."`
	MaxIdenticalCalls int      `yaml:"max_identical_calls" default:"3" min:"0" max:"1000" doc:"The same call with the same result so often in a row: the next is refused; 0 = off."`
	ToolTimeout       Duration `yaml:"tool_timeout" default:"30s" min:"1ms" max:"24h" doc:"For tools that state none; where it is set, exec_shell keeps to it as well."`
	MaxResultBytes    int      `yaml:"max_result_bytes" default:"65536" min:"256" max:"16777216" doc:"Largest result in bytes, as JSON."`
	MaxDepth          int      `yaml:"max_depth" default:"3" min:"1" max:"16" doc:"How deep agents may call agents, and tools tools: with 3, the agent of a run may call one, that one another, and that one a third. Of the runs above, the smallest counts."`
	WallTime          Duration `yaml:"wall_time" default:"15m" min:"1ms" max:"30d" doc:"Time of a run; stands still while it is parked."`
	MaxTreeRuns       int      `yaml:"max_tree_runs" default:"100" min:"1" max:"1000000" doc:"Runs of a run and all that it starts, itself among them."`
	MaxTreeRequests   int      `yaml:"max_tree_requests" default:"2000" min:"1" max:"1000000000" doc:"Model requests of a run and all that it starts."`
	MaxTreeBytes      int64    `yaml:"max_tree_bytes" default:"268435456" min:"1048576" doc:"Bytes that the journals of a run and all that it starts may have, with kept results and files."`
}

// Budget caps what a run spends; 0 = no cap.
type Budget struct {
	MaxCostUSD  float64 `yaml:"max_cost_usd" default:"0" min:"0" doc:"US dollars."`
	MaxTokens   int64   `yaml:"max_tokens" default:"0" min:"0" doc:"Tokens, input and output."`
	MaxRequests int     `yaml:"max_requests" default:"0" min:"0" max:"1000000000" doc:"Model requests."`
	Mode        string  `yaml:"mode" default:"enforce" enum:"warn|enforce|off" doc:"What a budget that runs out does."`
}

// Taint says what happens once untrusted data has been read.
type Taint struct {
	Writes string `yaml:"writes" default:"ask" enum:"ask|deny|allow" doc:"Writes and other sinks once untrusted data has been read."`
}

// FindTools says when an offer is too large to be given whole.
type FindTools struct {
	AboveBytes int `yaml:"above_bytes" default:"32768" min:"0" max:"1073741824" doc:"An offer with larger schemas is given through find_tools; 0 = never."`
}

// Context says what happens before a request outgrows the model's context.
type Context struct {
	Strategy   string  `yaml:"strategy" default:"condense" enum:"condense|drop|fail" doc:"How room is made."`
	KeepRecent float64 `yaml:"keep_recent" default:"0.3" min:"0.05" max:"0.9" doc:"Share of the context that is never condensed."`
}
