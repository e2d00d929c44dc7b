package mcpfiles_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/mcpfiles"
)

// The files are as the documentation of each product prints them.
func TestRead_FilesOfOtherProducts(t *testing.T) {
	for name, want := range map[string][]string{
		"claude-desktop.json": {
			`filesystem {"command":"npx","args":["-y","@modelcontextprotocol/server-filesystem","/Users/username/Desktop",` +
				`"/Users/username/Downloads"]}`,
		},
		"claude-code.json": {
			`api-server {"url":"https://api.example.com/mcp","headers":{"Authorization":"Bearer ${env:API_KEY}"}} ` +
				`note API_BASE_URL is not set, so its default is used: https://api.example.com`,
			`shared-server {"command":"/path/to/server"}`,
		},
		"cursor.json": {
			`local-server {"command":"python","args":["/home/me/project/tools/mcp_server.py"],"env":{"API_KEY":"${env:API_KEY}"}}`,
			`remote-server {"url":"http://localhost:3000/mcp","headers":{"Authorization":"Bearer ${env:MY_SERVICE_TOKEN}"}}`,
			`server-name {"command":"npx","args":["-y","mcp-server"],"env":{"API_KEY":"${secret:server-name.API_KEY}"}} ` +
				`secret server-name.API_KEY`,
		},
		"vscode.json": {
			`Github {"url":"https://api.githubcopilot.com/mcp/"}`,
			`Perplexity {"command":"npx","args":["-y","server-perplexity-ask"],"env":{"PERPLEXITY_API_KEY":` +
				`"${secret:perplexity-key}"}} secret perplexity-key`,
			`playwright {"command":"npx","args":["-y","@microsoft/mcp-server-playwright"]}`,
		},
		"zed.json": {
			`local-mcp-server {"command":"some-command","args":["arg-1","arg-2"]}`,
			`my-context-server {"command":"/path/to/my-context-server","args":["run"]} note settings is not used here`,
			`remote-mcp-server {"url":"https://mcp.example/mcp","headers":{"Authorization":"Bearer ` +
				`${secret:remote-mcp-server.Authorization}"}} secret remote-mcp-server.Authorization`,
		},
		"codex.toml": {
			`chrome_devtools {"url":"http://localhost:3000/mcp","tools":["open"],"timeout":"45s"}`,
			`context7 {"command":"npx","args":["-y","@upstash/context7-mcp"],"env":{"LOCAL_TOKEN":"${env:LOCAL_TOKEN}",` +
				`"MY_ENV_VAR":"MY_ENV_VALUE"}}`,
			`figma {"url":"https://mcp.figma.com/mcp","headers":{"Authorization":"Bearer ${env:FIGMA_OAUTH_TOKEN}",` +
				`"X-Figma-Region":"us-east-1"}}`,
		},
	} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		got := read(t, "/home/me/project/.cursor/"+name, data)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// read reads a file, and fails if an entry of it cannot be one of a configuration.
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
		lines = append(lines, strings.Join(line, " "))
		if text, err = config.AddMCPServer("toolcrib.yaml", text, s.Name, s.Entry); err != nil {
			t.Errorf("%s: %v", path, err)
		}
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
