package cli_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/toolcrib/toolcrib/internal/cli"
)

// served are scripts that hold against a server, too, as they are: the same texts, the same JSON,
// the same exit codes.
var served = []string{
	"exits", "jsonvalues", "approve", "chatday", "attach", "question", "usage", "runscursor", "explainrun", "subagent", "subagentprune", "findtools",
	"models", "encodings", "races", "shell", "runs",
}

// servedVariable names the folder of the servers of a script; "" = its commands use the data folder.
const servedVariable = "SERVED"

// TestScripts_Served runs scripts of TestScripts against a server: each command that works
// against one asks that of its configuration, which works in the script's folder.
func TestScripts_Served(t *testing.T) {
	t.Parallel()
	p := scripts(t)
	p.Dir, p.Files = "", nil
	p.Condition = func(cond string) (bool, error) { return condition(cond, true) }
	for _, name := range served {
		if testing.Short() && len(p.Files) == 4 {
			break
		}
		p.Files = append(p.Files, filepath.Join("testdata", "script", name+".txtar"))
	}
	local := p.Setup
	p.Setup = func(env *testscript.Env) error {
		if err := local(env); err != nil {
			return err
		}
		folder := filepath.Join(env.WorkDir, "home", "served")
		own := filepath.Join(env.Getenv("DATA"), "workspaces")
		if err := errors.Join(os.MkdirAll(folder, 0o700), os.MkdirAll(own, 0o700)); err != nil {
			return err
		}
		// Only the test's own program asks the server; the shipped one does not know how.
		env.Setenv("PATH", strings.TrimPrefix(env.Getenv("PATH"), plainBinary(t)+string(os.PathListSeparator)))
		env.Setenv(servedVariable, folder)
		env.Setenv("SELF", "admin")
		env.Defer(func() { endServers(t, folder) })
		return os.Symlink(env.WorkDir, filepath.Join(own, "admin"))
	}
	testscript.Run(t, p)
}

func endServers(t *testing.T, folder string) {
	pids, _ := filepath.Glob(filepath.Join(folder, "*.pid"))
	for _, path := range pids {
		text, _ := os.ReadFile(path)
		pid, _ := strconv.Atoi(string(text))
		if p, err := os.FindProcess(pid); err == nil && pid > 0 {
			if err := p.Kill(); err != nil {
				t.Logf("server %d: %v", pid, err)
			}
		}
	}
}

// ask is the program toolcrib of scripts.
func ask() {
	args := os.Args[1:]
	if folder := os.Getenv(servedVariable); folder != "" {
		os.Unsetenv(servedVariable)
		args = toServer(folder, args)
	}
	if address := os.Getenv(databaseVariable); address != "" {
		os.Exit(cli.MainWith(args, inPostgreSQL(address)))
	}
	os.Exit(cli.Main(args))
}

// toServer has a command line ask a server, if it can.
func toServer(folder string, args []string) []string {
	config, at := "", 0
	for at < len(args) && strings.HasPrefix(args[at], "-") {
		if args[at] != "--config" || at+1 == len(args) {
			return args
		}
		config, at = args[at+1], at+2
	}
	rest := args[at:]
	if len(rest) == 0 || slices.Contains(rest, "--workspace") || slices.Contains(rest, "--help") ||
		slices.Contains(rest, "--all") || slices.Equal(rest, []string{"runs", "verify"}) ||
		!slices.Contains(cli.RemoteCommands, rest[0]) &&
			(len(rest) == 1 || !slices.Contains(cli.RemoteCommands, rest[0]+" "+rest[1])) {
		return args
	}
	address, token, err := serverFor(folder, config)
	if err != nil {
		fmt.Fprintln(os.Stderr, "the server of the script:", err)
		os.Exit(99)
	}
	os.Setenv("TOOLCRIB_SERVER", address)
	os.Setenv("TOOLCRIB_TOKEN", token)
	return rest
}

var listens = regexp.MustCompile(`listens on (http://\S+)`)

// serverFor is the server of a configuration, which is started when it is first asked.
func serverFor(folder, config string) (address, token string, err error) {
	sum := sha256.Sum256([]byte(config))
	name := filepath.Join(folder, hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(name + ".pid"); err != nil {
		out, err := os.Create(name + ".log")
		if err != nil {
			return "", "", err
		}
		args := []string{"serve", "--listen", "127.0.0.1:0"}
		if config != "" {
			args = append([]string{"--config", config}, args...)
		}
		cmd := exec.Command("toolcrib", args...)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			return "", "", err
		}
		if err := os.WriteFile(name+".pid", []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
			return "", "", err
		}
	}
	for range 4800 {
		log, _ := os.ReadFile(name + ".log")
		if found := listens.FindSubmatch(log); found != nil {
			home, _ := os.UserHomeDir()
			text, err := os.ReadFile(filepath.Join(home, ".local", "share", "toolcrib", "first-token"))
			return string(found[1]), strings.TrimSpace(string(text)), err
		}
		time.Sleep(25 * time.Millisecond)
	}
	log, _ := os.ReadFile(name + ".log")
	return "", "", fmt.Errorf("it does not listen: %s", log)
}
