package config

// DefaultAgent is the agent that counts where none is named. It always exists.
const DefaultAgent = "default"

// Provider is a place that serves models.
type Provider struct {
	Type    string           `yaml:"type" default:"" format:"provider"`
	APIKey  Value            `yaml:"api_key" default:"" secret:"all"`
	BaseURL Value            `yaml:"base_url" default:"" format:"url" secret:"url"`
	API     string           `yaml:"api" default:"" enum:"|chat|responses"`
	Headers map[string]Value `yaml:"headers" keys:"header" secret:"named"`
	Proxy   Value            `yaml:"proxy" default:"" format:"proxy" secret:"url"`
	CAFile  Value            `yaml:"ca_file" default:"" format:"path"`
	File    Value            `yaml:"file" default:"" format:"path"`

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

// Price of a model in US dollars per 1M tokens.
type Price struct {
	Input       float64 `yaml:"input" default:"0" min:"0"`
	CachedInput float64 `yaml:"cached_input" default:"0" min:"0"`
	CacheWrite  float64 `yaml:"cache_write" default:"0" min:"0"`
	Output      float64 `yaml:"output" default:"0" min:"0"`
}

// Agent is a named way to run.
type Agent struct {
	Description     string     `yaml:"description" default:"" format:"description"`
	Model           string     `yaml:"model" default:"" format:"word"`
	Fallback        []string   `yaml:"fallback" default:"[]" max:"16" format:"word"`
	System          Value      `yaml:"system" default:"You are a careful assistant." format:"prompt"`
	Temperature     *float64   `yaml:"temperature" min:"0" max:"2"`
	MaxOutputTokens *int       `yaml:"max_output_tokens" min:"1" max:"100000000"`
	Tools           []string   `yaml:"tools" null:"true" default:"null" max:"1000" format:"glob"`
	Skills          []string   `yaml:"skills" default:"[]" max:"1000" format:"word"`
	ToolChoice      ToolChoice `yaml:"tool_choice" default:"auto"`
	OutputSchema    JSON       `yaml:"output_schema" null:"true" default:"null" format:"schema"`
	OnDenial        string     `yaml:"on_denial" default:"continue" enum:"continue|stop"`
	Limits          Limits     `yaml:"limits"`
	Budget          Budget     `yaml:"budget"`
	Taint           Taint      `yaml:"taint"`
	ReadOnly        bool       `yaml:"read_only" default:"false"`
	MaxConcurrent   int        `yaml:"max_concurrent" default:"0" min:"0" max:"100000"`
	FindTools       FindTools  `yaml:"find_tools"`
	Context         Context    `yaml:"context"`
}

// Limits are the bounds of a run.
type Limits struct {
	MaxIterations     int      `yaml:"max_iterations" default:"20" min:"1" max:"200"`
	OnLimit           string   `yaml:"on_limit" default:"finalize" enum:"finalize|error|ask"`
	MaxParallel       int      `yaml:"max_parallel" default:"4" min:"1" max:"64"`
	MaxCallsPerTurn   int      `yaml:"max_calls_per_turn" default:"64" min:"1" max:"1000"`
	MaxIdenticalCalls int      `yaml:"max_identical_calls" default:"3" min:"0" max:"1000"`
	ToolTimeout       Duration `yaml:"tool_timeout" default:"30s" min:"1ms" max:"24h"`
	MaxResultBytes    int      `yaml:"max_result_bytes" default:"65536" min:"256" max:"16777216"`
	MaxDepth          int      `yaml:"max_depth" default:"3" min:"1" max:"16"`
	WallTime          Duration `yaml:"wall_time" default:"15m" min:"1ms" max:"30d"`
	MaxTreeRuns       int      `yaml:"max_tree_runs" default:"100" min:"1" max:"1000000"`
	MaxTreeRequests   int      `yaml:"max_tree_requests" default:"2000" min:"1" max:"1000000000"`
	MaxTreeBytes      int64    `yaml:"max_tree_bytes" default:"268435456" min:"1048576"`
}

// Budget caps what a run spends; 0 = no cap.
type Budget struct {
	MaxCostUSD  float64 `yaml:"max_cost_usd" default:"0" min:"0"`
	MaxTokens   int64   `yaml:"max_tokens" default:"0" min:"0"`
	MaxRequests int     `yaml:"max_requests" default:"0" min:"0" max:"1000000000"`
	Mode        string  `yaml:"mode" default:"enforce" enum:"warn|enforce|off"`
}

// Taint says what happens once untrusted data has been read.
type Taint struct {
	Writes string `yaml:"writes" default:"ask" enum:"ask|deny|allow"`
}

// FindTools says when an offer is too large to be given whole.
type FindTools struct {
	AboveBytes int `yaml:"above_bytes" default:"32768" min:"0" max:"1073741824"`
}

// Context says what happens before a request outgrows the model's context.
type Context struct {
	Strategy   string  `yaml:"strategy" default:"condense" enum:"condense|drop|fail"`
	KeepRecent float64 `yaml:"keep_recent" default:"0.3" min:"0.05" max:"0.9"`
}
