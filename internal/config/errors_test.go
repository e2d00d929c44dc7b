package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib/internal/config"
)

const unknownScheme = "has a scheme that is not known; use one of https, http, bark, discord, googlechat, gotify, ifttt, join, lark, matrix, mattermost, " +
	"notifiarr, ntfy, opsgenie, pagerduty, pushbullet, pushover, rocketchat, signal, slack, teams, telegram, wecom, zulip"

// Each bad configuration has exactly these errors, in this order.
func TestN5_ErrorsOfBadConfigurations(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"contract", "\n\n\n\n\n\n\n\nagents:\n  default:\n    limits:\n      max_iterations: 0\n", "toolcrib.yaml:12: agents.default.limits.max_iterations: must be at least 1"},
		{"too many iterations", "agents: {default: {limits: {max_iterations: 201}}}", "toolcrib.yaml:1: agents.default.limits.max_iterations: must be at most 200"},
		{"near key", "agents:\n  default:\n    limits:\n      max_iteration: 3", `toolcrib.yaml:4: agents.default.limits.max_iteration: unknown key "max_iteration"; did you mean "max_iterations"?`},
		{"far key", "colour: red", `toolcrib.yaml:1: colour: unknown key "colour"`},
		{"odd key", `"a.b c": red`, `toolcrib.yaml:1: ["a.b c"]: unknown key "a.b c"`},
		{"duplicate key", "log: {level: info}\n\nlog: {level: debug}", `toolcrib.yaml:3: log: duplicate key "log"; it is already at line 1`},
		{"duplicate name", "agents:\n  a: {}\n  a: {}", `toolcrib.yaml:3: agents.a: duplicate key "a"; it is already at line 2`},
		{"duplicate in extra", "models: {m: {provider: offline, model: x, extra: {a: 1, a: 2}}}", `toolcrib.yaml:1: models.m.extra.a: duplicate key "a"; it is already at line 1`},
		{"number for text", "log: {level: 3}", "toolcrib.yaml:1: log.level: must be a text, not a number; put it in quotes"},
		{"text for number", "server: {rate_limit: many}", "toolcrib.yaml:1: server.rate_limit: must be a whole number, not a text"},
		{"part for whole", "server: {rate_limit: 1.5}", "toolcrib.yaml:1: server.rate_limit: must be a whole number in plain digits"},
		{"octal", "server: {rate_limit: 010}", "toolcrib.yaml:1: server.rate_limit: must be a whole number in plain digits"},
		{"huge", "server: {rate_limit: 99999999999999999999}", "toolcrib.yaml:1: server.rate_limit: must be a whole number in plain digits"},
		{"infinite", "agents: {default: {budget: {max_cost_usd: .inf}}}", "toolcrib.yaml:1: agents.default.budget.max_cost_usd: must be a plain decimal number"},
		{"negative money", "agents: {default: {budget: {max_cost_usd: -0.5}}}", "toolcrib.yaml:1: agents.default.budget.max_cost_usd: must be at least 0"},
		{"yes", "agents: {default: {read_only: yes}}", "toolcrib.yaml:1: agents.default.read_only: must be true or false, not a text"},
		{"list for mapping", "agents: [a]", "toolcrib.yaml:1: agents: must be a mapping, not a list"},
		{"text for list", "agents: {default: {tools: read_file}}", "toolcrib.yaml:1: agents.default.tools: must be a list, not a text"},
		{"null for text", "log: {level: null}", "toolcrib.yaml:1: log.level: must not be null; leave the key out for the default"},
		{"null for list with default", "tools: {shell: {allow: }}", "toolcrib.yaml:1: tools.shell.allow: must be a list, not null; write [] for none"},
		{"empty api key", "providers:\n  openai:\n    api_key:\n", `toolcrib.yaml:3: providers.openai.api_key: must not be null; leave the key out, or write ""`},
		{"wrong word", "agents: {default: {limits: {on_limit: finalise}}}", `toolcrib.yaml:1: agents.default.limits.on_limit: must be one of finalize, error, ask, not "finalise"; did you mean "finalize"?`},
		{"description", "agents: {default: {description: " + strings.Repeat("ä", 501) + "}}", "toolcrib.yaml:1: agents.default.description: must have at most 500 characters"},
		{"hidden description", "agents: {default: {description: \"a\\e[2J\"}, b: {description: \"a\u202e\"}}", "toolcrib.yaml:1: agents.default.description: must have no control or hidden characters\ntoolcrib.yaml:1: agents.b.description: must have no control or hidden characters"},
		{"description by reference", "agents: {default: {description: '${env:X}'}}", "toolcrib.yaml:1: agents.default.description: cannot hold a reference such as ${env:NAME}; write the value itself"},
		{"tool choice", "agents: {default: {tool_choice: any}}", "toolcrib.yaml:1: agents.default.tool_choice: must be auto, none, required or {name: TOOL}"},
		{"tool choice without tools", "agents: {default: {tools: [], tool_choice: required}}", "toolcrib.yaml:1: agents.default.tool_choice: asks for a tool, but tools is []: the agent has none"},
		{"result bytes", "agents: {default: {limits: {max_result_bytes: 255}}}", "toolcrib.yaml:1: agents.default.limits.max_result_bytes: must be at least 256"},
		{"keep recent", "agents: {default: {context: {keep_recent: 1.1}}}", "toolcrib.yaml:1: agents.default.context.keep_recent: must be at most 0.9"},
		{"duration without unit", "agents: {default: {limits: {wall_time: 15}}}", "toolcrib.yaml:1: agents.default.limits.wall_time: must be a duration with its unit, such as 30s, 15m, 72h or 90d"},
		{"duration of nothing", "agents: {default: {limits: {wall_time: 0}}}", "toolcrib.yaml:1: agents.default.limits.wall_time: must be at least 1ms"},
		{"negative duration that may not be 0", "agents: {default: {limits: {wall_time: -5s}}}", "toolcrib.yaml:1: agents.default.limits.wall_time: must be a duration such as 30s, 15m, 72h or 90d"},
		{"negative expiry", "approvals: {expire: -1h}", "toolcrib.yaml:1: approvals.expire: must be a duration such as 30s, 15m, 72h or 90d, or 0"},
		{"negative duration", "retention: {runs: -5s}", "toolcrib.yaml:1: retention.runs: must be a duration such as 30s, 15m, 72h or 90d, or 0"},
		{"long duration", "retention: {runs: 999999999d}", "toolcrib.yaml:1: retention.runs: is too long"},
		{"shell timeout", "tools: {settings: {exec_shell: {timeout: 301s}}}", "toolcrib.yaml:1: tools.settings.exec_shell.timeout: must be at most 300s"},
		{"settings of no tool", "tools: {settings: {read file: {}}}", `toolcrib.yaml:1: tools.settings["read file"]: "read file" is not a valid name here: use 1 to 64 of A-Z, a-z, 0-9, _ and -`},
		{"path as program", "tools: {shell: {allow: [/bin/ls]}}", "toolcrib.yaml:1: tools.shell.allow[0]: must be the name of a program, without a path"},
		{"web host", "tools: {web: {allow: [example.org, 'ftp://x', 'a b']}}", "toolcrib.yaml:1: tools.web.allow[1]: must be host, *.host, https://host/prefix/ or *\ntoolcrib.yaml:1: tools.web.allow[2]: must be host, *.host, https://host/prefix/ or *"},
		{"unknown type", "providers: {x: {type: opnai}}", `toolcrib.yaml:1: providers.x.type: must be one of openai, anthropic, gemini, ollama, llamacpp, bus, script, offline, not "opnai"; did you mean "openai"?`},
		{"no type", "providers: {x: {}}", "toolcrib.yaml:1: providers.x.type: is required: one of openai, anthropic, gemini, ollama, llamacpp, bus, script, offline"},
		{"script without file", "providers: {x: {type: script}}", "toolcrib.yaml:1: providers.x.file: is required for type script: the file with the replies"},
		{"reasoning of another type", "providers: {a: {type: anthropic, reasoning: drop}}", "toolcrib.yaml:1: providers.a.reasoning: is only for type openai, ollama, llamacpp"},
		{"provider name", "providers: {a/b: {type: openai}}", `toolcrib.yaml:1: providers["a/b"]: "a/b" is not a valid name here: use 1 to 64 of A-Z, a-z, 0-9, _, . and -, the first a letter or digit`},
		{"bad address", "providers: {openai: {base_url: localhost}}", "toolcrib.yaml:1: providers.openai.base_url: must begin with http:// or https://"},
		{"unknown provider", "models: {m: {provider: opena, model: x}}", `toolcrib.yaml:1: models.m.provider: unknown provider "opena"; did you mean "openai"? (valid: openai, anthropic, gemini, ollama, llamacpp, offline)`},
		{"model without all", "models:\n  m: {}", "toolcrib.yaml:2: models.m.provider: is required\ntoolcrib.yaml:2: models.m.model: is required"},
		{"unknown model", "models: {small: {provider: openai, model: x}}\nagents: {default: {model: smal}}", `toolcrib.yaml:2: agents.default.model: unknown model "smal"; did you mean "small"? (valid: small); or name it PROVIDER/MODEL`},
		{"unknown fallback", "agents: {default: {fallback: [offline, nobody/x]}}", `toolcrib.yaml:1: agents.default.fallback[1]: unknown provider "nobody" (valid: openai, anthropic, gemini, ollama, llamacpp, offline)`},
		{"one error, not two", "models: {m: {provider: openai}}\nagents: {default: {model: m}}", "toolcrib.yaml:1: models.m.model: is required"},
		{"notify scheme", "approvals: {notify: [hook, 'generic://h', 'logger://', 'https://', 'https://u:p@h/', 'HTTPS://h.example/x', 'slack://a/b/c']}", "toolcrib.yaml:1: approvals.notify[0].url: must begin with a scheme, such as https:// or slack://\n" +
			"toolcrib.yaml:1: approvals.notify[1].url: " + unknownScheme + "\ntoolcrib.yaml:1: approvals.notify[2].url: " + unknownScheme +
			"\ntoolcrib.yaml:1: approvals.notify[3].url: is an address without a host" +
			"\ntoolcrib.yaml:1: approvals.notify[4].url: has a user name or password, which are not sent: a webhook proves by its signature where it comes from"},
		{"notify secret", "approvals:\n  notify:\n    - {url: 'https://h', secret: short}\n    - {url: 'https://h', secret: 'whsec_???'}\n    - {url: 'slack://a', secret: 'long enough to sign with'}\n    - {secret: 'long enough to sign with'}\n    - 3", "toolcrib.yaml:3: approvals.notify[0].secret: is too short: a key has at least 16 bytes\n" +
			"toolcrib.yaml:4: approvals.notify[1].secret: begins with whsec_, but what follows is not base64\n" +
			"toolcrib.yaml:5: approvals.notify[2].secret: is for https://… only: what messengers are sent is not signed\n" +
			"toolcrib.yaml:6: approvals.notify[3].url: is required\n" +
			"toolcrib.yaml:7: approvals.notify[4]: must be a mapping, not a number"},
		{"schema", "agents: {default: {output_schema: {type: 3}}}", "toolcrib.yaml:1: agents.default.output_schema: is not a valid JSON Schema, at /type"},
		{"schema from outside", "agents: {default: {output_schema: {$ref: 'file:///etc/passwd'}}}", "toolcrib.yaml:1: agents.default.output_schema: is not a valid JSON Schema: it refers to what is outside of it"},
		{"no origin", "server: {cors: ['https://a.example', page, 'https://a.example/x', '*']}", "toolcrib.yaml:1: server.cors[1]: must be an origin such as https://example.com\n" +
			"toolcrib.yaml:1: server.cors[2]: must be an origin such as https://example.com\ntoolcrib.yaml:1: server.cors[3]: must be an origin such as https://example.com"},
		{
			"no network", "server:\n  trusted_proxies:\n    - 10.0.0.0/8\n    - proxy.example\n    - 10.0.0.0/33\n    - 'fe80::1%eth0'\n    - 0.0.0.0/0\n    - '::ffff:10.0.0.1'",
			"toolcrib.yaml:4: server.trusted_proxies[1]: must be an IP address or a network, such as 192.0.2.1 or 10.0.0.0/8\n" +
				"toolcrib.yaml:5: server.trusted_proxies[2]: must be an IP address or a network, such as 192.0.2.1 or 10.0.0.0/8\n" +
				"toolcrib.yaml:6: server.trusted_proxies[3]: must be an IP address or a network, such as 192.0.2.1 or 10.0.0.0/8\n" +
				"toolcrib.yaml:7: server.trusted_proxies[4]: is every address; name those of your proxies\n" +
				"toolcrib.yaml:8: server.trusted_proxies[5]: must be an IP address or a network, such as 192.0.2.1 or 10.0.0.0/8",
		},
		{"no database", "sql:\n  a: {url: x}\n  b: {url: 'mysql://h/x'}\n  c: {url: 'sqlite:x'}\n  d: {url: x.db}\n  e: {url: 'host=x'}", "toolcrib.yaml:2: sql.a.url: must be postgres://… or sqlite:FILE\ntoolcrib.yaml:3: sql.b.url: must be postgres://… or sqlite:FILE"},
		{"bound as built-in", "tools: {bound: {read_file: {capability: a.b@1.0}, translate: {capability: a.b@1.0}}}", "toolcrib.yaml:1: tools.bound.read_file: read_file is a built-in tool; use another name"},
		{"bound to an argument that is not there", "tools:\n  bound:\n    a: {capability: a.b@1.0, params: {x: '{args.b}'}}\n    b: {capability: a.b@1.0, params: {x: '{args.b}', y: '{args.c}'}, parameters: {properties: {c: {}}}}", `toolcrib.yaml:4: tools.bound.b.params: "x": parameters has no "b"`},
		{"composition of nothing", "tools:\n  bound:\n    a: {capability: llm.tools.call@1.0, params: {target_capability: a.b@1.0}}\n    b: {capability: llm.tools.call@1.0}\n    c: {capability: llm.tools.call@1.0, params: {target_capability: rag.query}}", "toolcrib.yaml:4: tools.bound.b.params: llm.tools.call needs target_capability: NAME@MAJOR.MINOR, such as rag.query@1.0\ntoolcrib.yaml:5: tools.bound.c.params: llm.tools.call needs target_capability: NAME@MAJOR.MINOR, such as rag.query@1.0"},
		{"default set", "tools: {default_set: [translate, read_file]}", `toolcrib.yaml:1: tools.default_set[1]: unknown tool of the bus "read_file" (valid: search_corpus, list_corpora, translate, list_marketplace, find_neighbour, describe_image, transcribe_audio, market_post, chat_send)`},
		{"address of a node", "providers: {far: {type: bus, base_url: 'http://h'}}", "toolcrib.yaml:1: providers.far.base_url: is not for type bus, which calls the model of a node of the bus"},
		{"panel of nobody", "agents: {one: {}}\nteam:\n  panels:\n    x: {agents: [one, two],\n      proposer: default, synthesizer: oen}", `toolcrib.yaml:4: team.panels.x.agents[1]: unknown agent "two" (valid: default, one)` + "\n" +
			`toolcrib.yaml:5: team.panels.x.synthesizer: unknown agent "oen"; did you mean "one"? (valid: default, one)`},
		{"address with a user", "providers: {openai: {base_url: 'https://me:pw@h/v1'}}", "toolcrib.yaml:1: providers.openai.base_url: must not have a user, a password or a fragment; use api_key or headers"},
		{"reference without end", "providers: {openai: {api_key: '${env:KEY'}}", "toolcrib.yaml:1: providers.openai.api_key: has a reference without its closing brace; write ${env:NAME}, and $${ for a literal ${"},
		{"no auth", "listen: 0.0.0.0:80\nserver: {auth: none}", "toolcrib.yaml:2: server.auth: none is refused unless listen is loopback, such as 127.0.0.1:8420"},
		{"no auth on all", "listen: ':80'\nserver: {auth: none}", "toolcrib.yaml:2: server.auth: none is refused unless listen is loopback, such as 127.0.0.1:8420"},
		{"no auth by reference", "listen: '${env:L}'\nserver: {auth: none}", "toolcrib.yaml:2: server.auth: none needs a listen address that is written out, so that it is known to be loopback"},
		{"listen", "listen: '8420'", "toolcrib.yaml:1: listen: must be HOST:PORT, such as 127.0.0.1:8420"},
		{"listen nowhere", "listen: ''", "toolcrib.yaml:1: listen: must not be empty"},
		{"variables of the shell", "tools:\n  shell:\n    env: {A: b, TMPDIR: /t,\n      PATH: /x}", "toolcrib.yaml:3: tools.shell.env.TMPDIR: cannot be set: HOME and TMPDIR are new for each call, PATH is tools.shell.path\n" +
			"toolcrib.yaml:4: tools.shell.env.PATH: cannot be set: HOME and TMPDIR are new for each call, PATH is tools.shell.path"},
		{"half TLS", "server: {tls: {cert: x}}", "toolcrib.yaml:1: server.tls: needs both cert and key, or neither"},
		{"rule", "rules:\n  - name: a\n    then: refuse\n  - {then: ask}", "toolcrib.yaml:3: rules[0].then: must be one of allow, ask, deny, not \"refuse\"\ntoolcrib.yaml:4: rules[1].name: is required"},
		{"rule twice", "rules: [{name: a, then: ask},\n {name: a, then: deny}]", `toolcrib.yaml:2: rules[1].name: "a" is the name of rules[0] already`},
		{"budget of a glob", "budgets: [{user: 'team-*'}]", `toolcrib.yaml:1: budgets[0].user: must be a name, or * for each user without an entry, not "team-*"`},
		{"budget twice", "budgets: [{user: a}, {user: a}]", `toolcrib.yaml:1: budgets[1].user: "a" has its budget in budgets[0] already`},
		{"mcp of nothing", "mcpServers: {x: {}}", "toolcrib.yaml:1: mcpServers.x: needs command (a program) or url (an address)"},
		{"mcp of both", "mcpServers: {x: {command: a, url: 'http://h'}}", "toolcrib.yaml:1: mcpServers.x.url: cannot be combined with command: a server is a program or an address"},
		{"mcp of a bad address", "mcpServers: {x: {url: h}}", "toolcrib.yaml:1: mcpServers.x.url: must begin with http:// or https://"},
		{"database", "database: mysql://h/x", "toolcrib.yaml:1: database: must begin with postgres:// or postgresql://"},
		{"reference without name", "providers: {openai: {api_key: '${env:}'}}", "toolcrib.yaml:1: providers.openai.api_key: has a reference ${env:…} without a valid name"},
		{"reference of a shell", "providers: {openai: {api_key: '${KEY}'}}", "toolcrib.yaml:1: providers.openai.api_key: has a reference of no known kind; write ${env:NAME}, ${file:PATH} or ${secret:NAME}, and $${ for a literal ${"},
		{"reference in a name", "agents: {default: {model: '${env:M}'}}", "toolcrib.yaml:1: agents.default.model: cannot hold a reference such as ${env:NAME}; write the value itself"},
		{"secret in a prompt", "agents: {default: {system: 'x ${secret:k}'}}", "toolcrib.yaml:1: agents.default.system: a secret does not belong in a prompt"},
		{"unconfined", "tools: {shell: {unconfined: [ann, '*', 'group:', x*]}}", "toolcrib.yaml:1: tools.shell.unconfined[1]: must be the name of a user, or group:NAME, not a pattern\ntoolcrib.yaml:1: tools.shell.unconfined[2]: no user can be called so: a name must not be empty\ntoolcrib.yaml:1: tools.shell.unconfined[3]: must be the name of a user, or group:NAME, not a pattern"},
		{"by line", "log: {level: x}\nlisten: 1\ndatabase: 2\n", "toolcrib.yaml:1: log.level: must be one of debug, info, warn, error, not \"x\"\ntoolcrib.yaml:2: listen: must be a text, not a number; put it in quotes\ntoolcrib.yaml:3: database: must be a text, not a number; put it in quotes"},
		{"alias", "agents: {default: {tools: [*]}}", "toolcrib.yaml:1: anchors and aliases (& and *) are not allowed; put a text that begins with * in quotes"},
		{"anchor", "a: &x 1", "toolcrib.yaml:1: anchors and aliases (& and *) are not allowed; put a text that begins with & in quotes"},
		{"tag", "\ndata_dir: !!str x", "toolcrib.yaml:2: tags are not allowed; put a text that begins with ! in quotes"},
		{"merge", "log:\n  <<: {level: info}", "toolcrib.yaml:2: merge keys (<<) are not allowed"},
		{"two documents", "log: {}\n---\nlog: {}", "toolcrib.yaml:2: only one YAML document is allowed"},
		{"empty document first", "---\n---\nlog: {}", "toolcrib.yaml:2: only one YAML document is allowed"},
		{"after the end", "log: {}\n...\nrules: []", "toolcrib.yaml:3: only one YAML document is allowed"},
		{"after an empty end", "---\n...\nrules: []", "toolcrib.yaml:3: only one YAML document is allowed"},
		{"a text", "hello", "toolcrib.yaml:1: must be a mapping of keys, not a text"},
		{"tab", "log:\n\tlevel: info", "toolcrib.yaml:2: is not valid YAML: a tab is used for indentation; use spaces"},
		{"open quote", "log: {level: info}\ndata_dir: \"x\n\n", "toolcrib.yaml:2: is not valid YAML: could not find end character of double-quoted text"},
		{"Latin-1", "log: {}\ndata_dir: caf\xe9", "toolcrib.yaml:2: is not valid UTF-8 text"},
		{"NUL", "log: {}\n\x00", "toolcrib.yaml:2: is not valid UTF-8 text"},
		{"deep", "agents: " + strings.Repeat("[", 20_000), "toolcrib.yaml:1: lists and mappings are nested deeper than 32"},
		{"deep dashes", strings.Repeat("- ", 20_000), "toolcrib.yaml:1: lists and mappings are nested deeper than 32"},
		{"large", strings.Repeat("# x\n", config.MaxBytes/4+1), "toolcrib.yaml:1: is larger than 1048576 bytes"},
		{"many keys", strings.Repeat("a: 1\n", 20_000), "toolcrib.yaml:10001: the file has more than 30000 words and marks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := config.Parse("toolcrib.yaml", []byte(c.text))
			if err == nil {
				t.Fatal("it loads")
			}
			if got != nil {
				t.Error("a configuration comes with the error")
			}
			if diff := cmp.Diff(c.want, err.Error()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestN5_ErrorsAreBounded(t *testing.T) {
	_, err := config.Parse("toolcrib.yaml", []byte("x: 1\n"+manyKeys(3000)))
	if err == nil {
		t.Fatal("it loads")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 201 || lines[200] != "toolcrib.yaml: 2801 more errors" {
		t.Errorf("%d errors, the last: %s", len(lines), lines[len(lines)-1])
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("k" + strings.Repeat("x", i%50) + string(rune('a'+i%26)) + strings.Repeat("y", i/50) + ": 1\n")
	}
	return b.String()
}

// An error never shows a value that could be a secret.
func TestN21_ErrorsHoldNoSecret(t *testing.T) {
	for _, text := range []string{
		"providers: {openai: {api_key: [s3cr3t]}}", "providers: {openai: {base_url: 's3cr3t'}}", "database: 'mysql://u:s3cr3t@h'", "database: 'postgres://u:s3cr3t@h:bad/'",
		"sql: {a: {url: {x: s3cr3t}}}", "providers: {openai: {api_key: s3cr3t", "providers: {openai: {api_key: \"s3cr3t", "providers:\n  openai:\n    api_key: s3cr3t: x\n", "api_key: 's3cr3t' s3cr3t\n",
		"providers: {openai: {api_key: @s3cr3t}}\n", "providers: {openai: {api_key: [s3cr3t}}\n", "providers:\n openai:\n   api_key: s3cr3t\n  x: s3cr3t\n", "mcpServers: {x: {command: a, env: {A: [s3cr3t]}}}",
		"bus: {url: 's3cr3t://x'}", "providers: {openai: {proxy: '%s3cr3t'}}", "server: {rate_limit: s3cr3t}", "providers: {openai: {api_key: \"\\q s3cr3t\"}}", "s: |3cr3t\n s3cr3t", "a: `s3cr3t`", "a: %s3cr3t",
	} {
		_, err := config.Parse("toolcrib.yaml", []byte(text))
		if err == nil {
			t.Errorf("loads: %s", text)
		} else if strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s:\n%v", text, err)
		}
	}
}
