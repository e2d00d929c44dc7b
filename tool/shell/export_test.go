package shell

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
)

// Argvs returns what a call would start: the path of each program and its
// arguments.
func Argvs(t testing.TB, made toolcrib.Tool, call toolcrib.Call) [][]string {
	t.Helper()
	p, err := made.(*shell).plan(call)
	if err != nil {
		t.Fatal(err)
	}
	defer p.w.Close()
	var all [][]string
	for _, s := range p.steps {
		for _, c := range s.Commands {
			all = append(all, append([]string{c.Path}, c.Args...))
		}
	}
	return all
}

// Bound sets what a job of the tool may have at most, where the numbers are not 0.
func Bound(made toolcrib.Tool, memory, disk, files uint64, threads int) {
	made.(*shell).bounds = func(writes bool) bounds {
		b := boundsOf(writes)
		for _, set := range []struct {
			to   *uint64
			most uint64
		}{{&b.memory, memory}, {&b.disk, disk}, {&b.files, files}} {
			if set.most > 0 {
				*set.to = set.most
			}
		}
		if threads > 0 {
			b.threads = threads
		}
		return b
	}
}

// Visit sets how many entries of the workspace are visited.
func Visit(made toolcrib.Tool, entries int) { made.(*shell).options.visits = entries }

// Toolchain are the variables that a job gets for toolchains and their caches.
func Toolchain() []string {
	git := "GIT_CEILING_DIRECTORIES GIT_CONFIG_COUNT GIT_CONFIG_NOSYSTEM GIT_EDITOR GIT_OPTIONAL_LOCKS GIT_PAGER GIT_SEQUENCE_EDITOR GIT_TERMINAL_PROMPT"
	for i := range 6 {
		git += fmt.Sprintf(" GIT_CONFIG_KEY_%d GIT_CONFIG_VALUE_%d", i, i)
	}
	return strings.Fields(git + ` CARGO_HOME CARGO_NET_OFFLINE GOCACHE GOMODCACHE GOPROXY GOSUMDB GOTOOLCHAIN npm_config_cache npm_config_offline
		npm_config_update_notifier PIP_CACHE_DIR PIP_DISABLE_PIP_VERSION_CHECK PIP_NO_INDEX`)
}

// Pace sets how long a call without a timeout of its own lasts, and how much it must compute to last longer.
func Pace(made toolcrib.Tool, quiet, most, work time.Duration) {
	s := made.(*shell)
	s.quiet, s.most, s.work = quiet, most, work
}

// Entries returns the commands of the tables, each with the options that its entry lists.
func Entries() map[string][]string {
	all := map[string][]string{}
	add := func(name string, p *program) {
		letters, long := p.table()
		for _, letter := range letters {
			all[name] = append(all[name], "-"+string(letter))
		}
		for _, option := range long {
			all[name] = append(all[name], "--"+strings.TrimRight(option, marks))
		}
		all[name] = append(all[name], "-z")
	}
	for name, p := range programs() {
		add(name, p)
	}
	all["find"] = slices.Concat(findValues, findFiles, findPlain)
	all["test"], all["["] = testOperators, testOperators
	for name, p := range gitReads() {
		add("git "+name, p)
	}
	for name, words := range gitSets {
		all["git "+name] = append(all["git "+name], strings.Fields(words)...)
	}
	for _, name := range strings.Fields(gitCommands) {
		add("git "+name, &program{options: "u exec run"})
	}
	for _, name := range gitKept {
		all["git "+name] = append(all["git "+name], "-u")
	}
	for name, by := range starters() {
		add(name, &program{options: by.flags + by.values + " split-string: chdir:"})
	}
	for _, name := range []string{"git", "sh", "bash", "eval", "alias", "parallel", "sudo", "dd", "rm", "systemctl", "init", "format", "mkfs.x"} {
		add(name, &program{options: "c: split-string"})
	}
	return all
}

// OnlySh has lines run as where there is no bash.
func OnlySh(made toolcrib.Tool) { made.(*shell).shells = []string{"sh"} }
