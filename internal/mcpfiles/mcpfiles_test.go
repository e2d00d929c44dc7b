package mcpfiles_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/mcpfiles"
)

// The files are as the documentation of each product prints them.
func TestRead_FilesOfOtherProducts(t *testing.T) {
	files, err := txtar.ParseFile("testdata/products.txtar")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"claude-desktop.json": {
			`filesystem {"command":"npx","args":["-y","@modelcontextprotocol/server-filesystem","/Users/u` +
				`sername/Desktop","/Users/username/Downloads"]}`,
		},
		"claude-code.json": {
			`api-server {"url":"https://api.example.com/mcp","headers":{"Authorization":"Bearer ${env:API` +
				`_KEY}"}} note API_BASE_URL is not set, so its default is used: https://api.example.com`,
			`shared-server {"command":"/path/to/server"}`,
		},
		"claude-code-oauth.json": {
			`internal-api {"url":"https://mcp.internal.example.com","timeout":"600s"} note headersHelper ` +
				`is not used here`,
			`my-server {"url":"https://mcp.example.com/mcp"} note oauth.authServerMetadataUrl is not used` +
				` here`,
			`registered {"url":"https://mcp.example.com/mcp","oauth":{"client_id":"your-client-id","callb` +
				`ack_port":8080}}`,
			`slack {"url":"https://mcp.slack.com/mcp","oauth":{"scopes":["channels:read","chat:write","se` +
				`arch:read"]}}`,
		},
		"cursor.json": {
			`local-server {"command":"python","args":["/home/me/project/tools/mcp_server.py"],"env":{"API` +
				`_KEY":"${env:API_KEY}"}}`,
			`remote-server {"url":"http://localhost:3000/mcp","headers":{"Authorization":"Bearer ${env:MY` +
				`_SERVICE_TOKEN}"}}`,
			`server-name {"command":"npx","args":["-y","mcp-server"],"env":{"API_KEY":"${secret:server-na` +
				`me.API_KEY}"}} secret server-name.API_KEY`,
		},
		"cursor-oauth.json": {
			`by-environment {"url":"https://api.example.com/mcp","oauth":{"client_id":"${env:MCP_CLIENT_I` +
				`D}","client_secret":"${env:MCP_CLIENT_SECRET}"}} note oauth.client_secret needs oauth.issuer` +
				`, the authorization server that the secret is for`,
			`oauth-server {"url":"https://api.example.com/mcp","oauth":{"client_id":"your-oauth-client-id` +
				`","client_secret":"${secret:oauth-server.client_secret}","scopes":["read","write"]}} secret ` +
				`oauth-server.client_secret note oauth.client_secret needs oauth.issuer, the authorization se` +
				`rver that the secret is for`,
		},
		"vscode.json": {
			`Github {"url":"https://api.githubcopilot.com/mcp/"}`,
			`Perplexity {"command":"npx","args":["-y","server-perplexity-ask"],"env":{"PERPLEXITY_API_KEY` +
				`":"${secret:perplexity-key}"}} secret perplexity-key`,
			`playwright {"command":"npx","args":["-y","@microsoft/mcp-server-playwright"]}`,
		},
		"vscode-reference.json": {
			`context7 {"url":"https://mcp.context7.com/mcp"}`,
			`memory {"command":"npx","args":["-y","@modelcontextprotocol/server-memory"]}`,
			`myServer {"command":"npx","args":["-y","@example/mcp-server"]} note sandbox is not used here` +
				` note sandboxEnabled is not used here`,
			`slack {"url":"https://mcp.slack.com/mcp","oauth":{"client_id":"example-client-id"}}`,
		},
		"zed.json": {
			`local-mcp-server {"command":"some-command","args":["arg-1","arg-2"]}`,
			`remote-mcp-server {"url":"custom","headers":{"Authorization":"Bearer ${secret:remote-mcp-ser` +
				`ver.Authorization}"}} secret remote-mcp-server.Authorization not added: toolcrib.yaml:6: mcp` +
				`Servers.remote-mcp-server.url: must begin with http:// or https://`,
			`remote-mcp-server-with-oauth {"url":"https://mcp.example.com/mcp"}`,
		},
		"zed-older.json": {
			`my-context-server {"command":"/path/to/my-context-server","args":["run"]} note settings is n` +
				`ot used here`,
			`your-mcp-server {"command":"some-command","args":["arg-1","arg-2"]}`,
		},
		"codex.toml": {
			`chrome_devtools {"url":"http://localhost:3000/mcp","tools":["open"],"timeout":"45s","start_timeout":"20s"} note de` +
				`fault_tools_approval_mode is not used here note tools is not used here`,
			`context7 {"command":"npx","args":["-y","@upstash/context7-mcp"],"env":{"LOCAL_TOKEN":"${env:` +
				`LOCAL_TOKEN}","MY_ENV_VAR":"MY_ENV_VALUE"}}`,
			`figma {"url":"https://mcp.figma.com/mcp","headers":{"Authorization":"Bearer ${env:FIGMA_OAUT` +
				`H_TOKEN}","X-Figma-Region":"us-east-1"}}`,
			`remote {"command":"run","env":{"REMOTE_X":"${env:REMOTE_X}"}}`,
		},
	}
	for _, file := range files.Files {
		got := read(t, "/home/me/project/.cursor/"+file.Name, file.Data)
		if d := cmp.Diff(want[file.Name], got); d != "" {
			t.Errorf("%s (-want +got):\n%s", file.Name, d)
		}
		delete(want, file.Name)
	}
	if len(want) > 0 {
		t.Errorf("not there: %v", want)
	}
}

// read reads a file, and says which of its entries cannot be those of a configuration.
func read(t *testing.T, path string, data []byte) (lines []string) {
	t.Helper()
	servers, err := mcpfiles.Read(path, data, func(string) string { return "" })
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	text := []byte{}
	for _, s := range servers {
		entry, err := json.Marshal(s.Entry)
		if err != nil {
			t.Fatal(err)
		}
		line := []string{s.Name, string(entry)}
		for _, secret := range s.Secrets {
			line = append(line, "secret", secret)
		}
		for _, note := range s.Notes {
			line = append(line, "note", note)
		}
		if after, err := config.AddMCPServer("toolcrib.yaml", text, s.Name, s.Entry); err != nil {
			why, _, _ := strings.Cut(err.Error(), "\n")
			line = append(line, "not added:", why)
		} else {
			text = after
		}
		lines = append(lines, strings.Join(line, " "))
	}
	return lines
}

func TestRead_OddFiles(t *testing.T) {
	got := read(t, "/p/.vscode/mcp.json", []byte(`{
		"inputs": [{"id": "region", "type": "pickString", "default": "eu"}, {"id": "a key!", "type": "promptString"}],
		"servers": {
			"a": {"command": "x", "args": ["--token=s3cr3t", "--at=${input:region}", "${command:y}", "${workspaceFolderBasename}"],
				"env": {"N": 1, "KEY": "${input:a key!}"}, "envFile": "${workspaceFolder}/.env", "disabled": true},
			"b": {"type": "sse", "url": "http://h/sse"}
		}}`))
	want := []string{
		`a {"command":"x","args":["--token=${secret:a.arg}","--at=eu","$${command:y}","p"],"env":{"KEY":"${secret:a_key_}","N":"1"},` +
			`"disabled":true} secret a.arg secret a_key_ note the input region is its default, eu note ${command:y} is not filled in ` +
			`note envFile is not used here`,
		`b {"type":"sse","url":"http://h/sse"}`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for name, text := range map[string]string{
		"nothing": "", "no servers": "{}", "not an object": "[1]", "a list of servers": `{"mcpServers": [1]}`,
		"neither": `{"mcpServers": {"a": {}}}`, "both": `{"mcpServers": {"a": {"command": "x", "url": "http://h"}}}`,
		"wrong types": `{"mcpServers": {"a": {"command": ["x"]}}}`, "binary": "\x00\xff", "TOML": "a = [",
	} {
		if servers, err := mcpfiles.Read("/f", []byte(text), func(string) string { return "" }); err == nil {
			t.Errorf("%s: %+v", name, servers)
		}
	}
}
