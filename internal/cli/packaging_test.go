package cli_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// The systemd unit is one that systemd takes, and starts the server as docs/serve.md says.
func TestSystemdUnit(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "packaging", "toolcrib.service"))
	if err != nil {
		t.Fatal(err)
	}
	unit := string(text)
	for _, line := range []string{
		"Type=notify", "ExecStart=/usr/local/bin/toolcrib --config /etc/toolcrib/toolcrib.yaml --data-dir /var/lib/toolcrib serve",
		"ExecReload=/bin/kill -HUP $MAINPID", "User=toolcrib", "NoNewPrivileges=yes", "ProtectSystem=strict",
	} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("there is no %s", line)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("SKIP: needs systemd-analyze (apt install systemd)")
	}
	path := filepath.Join(t.TempDir(), "toolcrib.service")
	installed := strings.ReplaceAll(unit, "/usr/local/bin/toolcrib", "/bin/true")
	if err := os.WriteFile(path, []byte(installed), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), analyze, "verify", path).CombinedOutput(); err != nil ||
		strings.Contains(string(out), "toolcrib.service:") {
		t.Errorf("%v\n%s", err, out)
	}
}

// aroundTheGuide runs the blocks of docs/serve.md, with folders of its own in place of the system's.
const aroundTheGuide = `
set -eu
curl() { command curl -sS --fail-with-body --max-time 300 "$@"; }
go() { echo go "$@"; }
systemd-run() { while [ "${1#-}" != "$1" ]; do [ "$1" != -p ] || shift; shift; done; "$@"; }
useradd() { echo useradd "$@"; }
systemctl() { echo systemctl "$@"; }
# up COMMAND...: starts a server, and waits until it listens
up() {
  : >"$ROOT/log"
  "$@" 2>"$ROOT/log" &
  server=$!
  until grep -q 'listens on' "$ROOT/log"; do sleep 0.1; kill -0 $server || { cat "$ROOT/log"; exit 1; }; done
  url=$(sed -n 's/.*listens on \(http:[^"]*\).*/\1/p' "$ROOT/log")
}
down() { kill -TERM $server; wait $server; }
trap 'kill -9 $server' EXIT
has() { grep -q "$1" "$2" || { echo "no $1 in:"; cat "$2"; exit 1; }; }
mkdir -p $ROOT/usr/local/bin $ROOT/etc/prometheus $ROOT/etc/systemd/system $ROOT/var/lib/toolcrib empty
cd empty
{{BLOCK toolcrib serve}}
{{BLOCK TOKEN=}} >out
has '"runs":\[\]' out
has 'There is nothing in this folder' out
{{BLOCK export TOOLCRIB_SERVER}} >out
has 'There is nothing in this folder' out
{{BLOCK toolcrib .*tokens create}}
unset TOOLCRIB_SERVER TOOLCRIB_TOKEN
curl -H "Authorization: Bearer $(cat $ROOT/etc/prometheus/toolcrib-token)" $url/metrics >out
has toolcrib_runs_ended_total out
mv out ../metrics
down
cd ../sources
export TOOLCRIB_CONFIG=$PWD/toolcrib.yaml
{{BLOCK toolcrib serve}}
{{BLOCK curl.*client_tools}} >out
has waiting_for_tool out
curl -H "Authorization: Bearer $(cat $ROOT/etc/prometheus/toolcrib-token)" $url/metrics >>../metrics
names=$(grep -oE '(toolcrib|process|go)_[a-z_]+' ../grow.md | sort -u)
[ "$(echo "$names" | wc -l)" -gt 10 ]
for name in $names; do has "^$name[{ ]\|^# TYPE $name " ../metrics; done
for label in status stop_reason model outcome route; do has "[{,]$label=" ../metrics; done
{{BLOCK curl.*tool_results}} >out
{{BLOCK curl.*message}} >out
down
unset TOOLCRIB_CONFIG
{{BLOCK CGO_ENABLED}} >out
has 'systemctl enable --now toolcrib' out
up $(sed -n "s#^ExecStart=\(/usr/local\)\(.*\) /etc\(.*\) /var\(.*\)#$ROOT\1\2 $ROOT/etc\3 $ROOT/var\4#p" $ROOT/etc/systemd/system/toolcrib.service)
sed -i "s#^listen:.*#listen: ${url#http://}#" $ROOT/etc/toolcrib/toolcrib.yaml
PATH=$ROOT/usr/local/bin:$PATH
{{BLOCK systemd-run}} >out || { cat out; exit 1; }
has 'a server answers' out
down
trap - EXIT
`

// The commands of docs/serve.md work one after the other, in a fresh home.
func TestServeGuide(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if _, no := exec.LookPath("curl"); err != nil || no != nil || runtime.GOOS != "linux" {
		t.Skip("SKIP: needs Linux, bash and curl")
	}
	own, err := exec.LookPath("toolcrib")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "serve.md"))
	if err != nil {
		t.Fatal(err)
	}
	unit, err := os.ReadFile(filepath.Join("..", "..", "packaging", "toolcrib.service"))
	if err != nil {
		t.Fatal(err)
	}
	grow, err := os.ReadFile(filepath.Join("..", "..", "docs", "grow.md"))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for name, text := range map[string]string{
		"sources/packaging/toolcrib.service": string(unit),
		"sources/toolcrib":                   "#!/bin/sh\nexec " + own + " \"$@\"\n",
		"sources/toolcrib.yaml": "listen: 127.0.0.1:0\nproviders: {card: {type: script, file: " + root + "/card.script}}\n" +
			"models: {card: {provider: card, model: x, price: {input: 1, output: 1}}}\nagents: {default: {model: card}}\ntools: {shell: {mode: off}}\n",
		"card.script": "- tool_calls: [{name: pick_card, id: call_1, arguments: {suit: hearts}}]\n- {text: late, delay: 1h}\n",
		"home/x":      "",
		"grow.md":     string(grow),
	} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	var blocks []string
	for _, b := range regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)\n```$").FindAllStringSubmatch(string(page), -1) {
		if b[1] == "" && !strings.HasPrefix(b[2], "scrape_configs:") {
			blocks = append(blocks, b[2])
		}
	}
	used := map[int]bool{}
	script := regexp.MustCompile(`\{\{BLOCK (.*?)\}\}`).ReplaceAllStringFunc(aroundTheGuide, func(want string) string {
		begins := regexp.MustCompile("^" + want[len("{{BLOCK "):len(want)-2])
		for i, b := range blocks {
			if one := strings.ReplaceAll(b, "\n", " "); begins.MatchString(one) && (!used[i] || i == 0) {
				used[i] = true
				return "{\n" + strings.NewReplacer("toolcrib serve", "up toolcrib serve --listen 127.0.0.1:0", "http://127.0.0.1:8420", "$url",
					" /etc/", " $ROOT/etc/", " /usr/", " $ROOT/usr/", " /var/", " $ROOT/var/", "-g toolcrib ", "").Replace(b) + "\n}"
			}
		}
		t.Errorf("no block in docs/serve.md: %s", want)
		return ""
	})
	for i, b := range blocks {
		if !used[i] {
			t.Errorf("not tried:\n%s", b)
		}
	}
	cmd := exec.CommandContext(t.Context(), bash, "-c", script)
	cmd.Dir = root
	cmd.Env = []string{"HOME=" + filepath.Join(root, "home"), "ROOT=" + root, "PATH=" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err != nil {
		log, _ := os.ReadFile(filepath.Join(root, "log"))
		t.Errorf("%v\n%s\nthe server's log:\n%s", err, out, log)
	}
}
