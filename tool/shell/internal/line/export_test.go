package line

import (
	"slices"
	"strings"
)

// Entries returns the commands of the tables, each with the options that its entry lists.
func Entries() map[string][]string {
	all := map[string][]string{}
	add := func(name string, p *program) {
		letters, long := p.list()
		for _, letter := range letters {
			all[name] = append(all[name], "-"+string(letter))
		}
		for _, option := range long {
			all[name] = append(all[name], "--"+strings.TrimRight(option, marks))
		}
		all[name] = append(all[name], "-z")
	}
	for name, p := range table() {
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
