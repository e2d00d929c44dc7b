package cli

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/render"
)

// commandsText describes the commands. Under a heading with the command line it has a summary, a
// description, the examples, and the flags. The flags below the first heading are shared by several
// commands.
//
//go:embed commands.md
var commandsText string

// flagText describes a flag: the name of its value, and its purpose.
type flagText struct{ value, usage string }

// described is the entry of a command in commands.md.
type described struct {
	path, args string // parts of its command line
	cobra.Command
	flags map[string]flagText
}

// descriptions reads commands.md. The first entry has only the flags shared by several commands.
func descriptions() []described {
	var all []described
	for section := range strings.SplitSeq("\n"+strings.TrimSpace(commandsText), "\n# ") {
		if section == "" {
			continue
		}
		blocks := strings.Split(strings.TrimSpace(section), "\n\n")
		d := described{flags: map[string]flagText{}}
		d.path, d.args = commandLine(blocks[0])
		for _, block := range blocks[1:] {
			switch {
			case strings.HasPrefix(block, "--"):
				for row := range strings.SplitSeq(strings.ReplaceAll(block, "\n    ", " "), "\n") {
					head, usage, _ := strings.Cut(row, "  ")
					name, value, _ := strings.Cut(head, " ")
					d.flags[strings.TrimPrefix(name, "--")] = flagText{value, usage}
				}
			case strings.HasPrefix(block, "    "):
				d.Example = strings.ReplaceAll(block[4:], "\n    ", "\n")
			case d.Short == "":
				d.Short = block
			default:
				d.Long = strings.TrimSpace(d.Long + "\n\n" + block)
			}
		}
		all = append(all, d)
	}
	return all
}

// commandLine splits a command line into the names of a command and its arguments.
func commandLine(text string) (path, args string) {
	words := strings.Fields(text)
	n := slices.IndexFunc(words, func(word string) bool { return strings.Trim(word, "abcdefghijklmnopqrstuvwxyz") != "" })
	if n < 0 {
		n = len(words)
	}
	return strings.Join(words[:n], " "), strings.Join(append([]string{""}, words[n:]...), " ")
}

// commands maps command lines to the functions that implement them.
func (a *app) commands() map[string]func(cmd *cobra.Command) {
	return map[string]func(cmd *cobra.Command){
		"run": a.runCommand, "help": a.helpCommand, "chat": a.chatCommand, "acp": a.acpCommand, "serve": a.serveCommand,
		"confer": a.teamCommand, "coordinate": a.teamCommand, "assess": a.teamCommand,
		"tools list": a.toolsListCommand, "tools show": a.toolsShowCommand, "tools enable": a.toolsSwitchCommand,
		"tools disable": a.toolsSwitchCommand, "tools reset": a.toolsSwitchCommand,
		"tools call": a.toolsCallCommand, "tools explain": a.toolsExplainCommand,
		"runs list": a.runsListCommand, "runs show": a.runsShowCommand, "runs events": a.runsEventsCommand,
		"runs export": a.runsExportCommand, "runs import": a.runsImportCommand, "runs resume": a.runsResumeCommand,
		"runs cancel": a.runsCancelCommand, "runs fork": a.runsForkCommand, "runs verify": a.runsVerifyCommand,
		"runs replay": a.runsReplayCommand, "runs prune": a.runsPruneCommand,
		"sessions list": a.sessionsListCommand, "sessions show": a.sessionsShowCommand,
		"sessions export": a.sessionsExportCommand, "sessions remove": a.sessionsRemoveCommand,
		"memory list": a.memoryListCommand, "memory show": a.memoryShowCommand, "memory edit": a.memoryEditCommand,
		"memory forget":  a.memoryForgetCommand,
		"approvals list": a.approvalsListCommand, "approvals show": a.approvalsShowCommand,
		"approvals approve": a.approvalsDecideCommand, "approvals deny": a.approvalsDecideCommand,
		"approvals answer": a.approvalsAnswerCommand, "approvals resolve": a.approvalsResolveCommand,
		"approvals remembered list":   a.rememberedListCommand,
		"approvals remembered revoke": a.rememberedRevokeCommand, "approvals notify test": a.notifyTestCommand,
		"usage":       a.usageCommand,
		"agents list": a.agentsListCommand, "agents show": a.agentsShowCommand,
		"models list": a.modelsListCommand, "models refresh": a.modelsRefreshCommand,
		"mcp list": a.mcpListCommand, "mcp tools": a.mcpToolsCommand, "mcp review": a.mcpReviewCommand,
		"mcp add": a.mcpAddCommand, "mcp remove": a.mcpRemoveCommand, "mcp serve": a.mcpServeCommand,
		"mcp login": a.mcpLoginCommand, "mcp logout": a.mcpLogoutCommand,
		"skills list": a.skillsListCommand, "skills show": a.skillsShowCommand,
		"skills check": a.skillsCheckCommand,
		"config check": a.configCheckCommand, "config show": a.configShowCommand,
		"config schema": a.configSchemaCommand,
		"trust":         a.trustCommand, "init": a.initCommand,
		"secret set": a.secretSetCommand, "secret list": a.secretListCommand,
		"secret remove": a.secretRemoveCommand,
		"backup":        a.backupCommand, "restore": a.restoreCommand, "migrate": a.migrateCommand,
		"doctor":  a.doctorCommand,
		"version": a.versionCommand, "completion": a.completionCommand,
		"gate hook": a.gateHookCommand, "gate rules": a.gateRulesCommand, "gate backtest": a.gateBacktestCommand,
		"audit list": a.auditListCommand, "audit verify": a.auditVerifyCommand,
		"audit export": a.auditExportCommand,
		"users add":    a.usersAddCommand, "users list": a.usersListCommand, "users show": a.usersShowCommand,
		"users edit": a.usersEditCommand, "users disable": a.usersStateCommand,
		"users enable": a.usersStateCommand, "users remove": a.usersRemoveCommand,
		"users password":    a.usersPasswordCommand,
		"users groups list": a.groupsListCommand, "users groups set": a.groupsSetCommand,
		"users groups remove": a.groupsRemoveCommand,
		"tokens create":       a.tokensCreateCommand, "tokens list": a.tokensListCommand,
		"tokens revoke": a.tokensRevokeCommand, "tokens check": a.tokensCheckCommand,
		"bus status": a.busStatusCommand, "bus capabilities": a.busCapabilitiesCommand, "bus call": a.busCallCommand,
		"bus trace": a.busTraceCommand, "bus trust": a.busTrustCommand, "bus invite": a.busInviteCommand,
		"bus token issue": a.busTokenIssueCommand, "bus token list": a.busTokenListCommand,
		"bus token show": a.busTokenShowCommand, "bus token revoke": a.busTokenRevokeCommand,
	}
}

// administrative reports whether a command is one that most users never need. The first screen of help
// leaves it out.
func administrative(cmd *cobra.Command) bool {
	return slices.Contains([]string{"gate", "audit", "users", "tokens", "bus"}, cmd.Name())
}

// tree builds the tree of commands from commands.md. A command without a function is a group.
func (a *app) tree() *cobra.Command {
	all := descriptions()
	tree := map[string]*cobra.Command{}
	does := a.commands()
	for i := range all[1:] {
		d := &all[1+i]
		cmd := &d.Command
		parent, name, _ := cutLast(d.path)
		cmd.Use, cmd.Args = name+d.args, positional
		if do := does[strings.TrimPrefix(d.path, "toolcrib ")]; do != nil {
			do(cmd)
		} else {
			cmd.Args, cmd.RunE = cobra.ArbitraryArgs, group
			cmd.InitDefaultHelpFlag() // needed before commands are parsed: --help run
		}
		if parent == "" {
			cmd.Flags().Bool("version", false, "")
			flags := cmd.PersistentFlags()
			for name, value := range map[string]*string{
				"config": &a.configFlag, "as": &a.asFlag, "token-file": &a.tokenFlag,
				"server": &a.serverFlag,
			} {
				flags.Func(name, "", filled(value))
			}
			flags.Func("data-dir", "", func(text string) (err error) {
				if err = filled(&a.dataFlag)(text); err == nil {
					a.dataFlag, err = config.Absolute(text)
				}
				return err
			})
			flags.BoolVar(&a.adminFlag, "admin", false, "")
			flags.BoolVar(&a.plainFlag, "plain-http", false, "")
			flags.BoolVarP(&a.verboseFlag, "verbose", "v", false, "")
		}
		describe(cmd.Flags(), d.flags, all[0].flags)
		describe(cmd.PersistentFlags(), d.flags, all[0].flags)
		a.complete(cmd, d.path, d.args)
		if tree[d.path] = cmd; parent != "" {
			tree[parent].AddCommand(cmd)
		}
	}
	return tree["toolcrib"]
}

// cutLast cuts a command line before its last word.
func cutLast(path string) (before, last string, found bool) {
	i := strings.LastIndexByte(path, ' ')
	return path[:max(i, 0)], path[i+1:], i >= 0
}

// describe sets the texts of flags that have none.
func describe(flags *pflag.FlagSet, texts, shared map[string]flagText) {
	flags.VisitAll(func(f *pflag.Flag) {
		text, ok := texts[f.Name]
		if !ok {
			text = shared[f.Name]
		}
		if f.Usage == "" {
			f.Usage = text.usage
		}
		f.Annotations = map[string][]string{valueName: {text.value}}
	})
}

// valueName is the annotation of a flag that names its value.
const valueName = "toolcrib_value"

// help writes the help of a command. For an unknown command of a group it sets an error.
func (a *app) help(cmd *cobra.Command, _ []string) {
	if rest := cmd.Flags().Args(); cmd.HasSubCommands() && len(rest) > 0 {
		a.began = true
		a.helpErr = group(cmd, rest)
		return
	}
	use, root := cmd.CommandPath(), cmd.Root()
	if _, arguments, ok := strings.Cut(cmd.Use, " "); ok {
		use += " " + arguments
	} else if cmd.HasSubCommands() {
		use += " COMMAND"
	}
	if !strings.Contains(use, " --") {
		use += " [FLAGS]"
	}
	for i, paragraph := range strings.Split(cmp.Or(cmd.Long, cmd.Short+"."), "\n\n") {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		a.helpText(paragraph)
	}
	a.section("Usage", [2]string{"", use})
	if cmd.Example != "" { // examples are copied, so they are not wrapped
		fmt.Fprintf(a.out, "\n%s\n  %s\n", a.outStyle.Bold("Examples"), strings.ReplaceAll(cmd.Example, "\n", "\n  "))
	}
	a.section("Commands", commandsOf(cmd, func(c *cobra.Command) bool { return cmd != root || !administrative(c) })...)
	a.section("Flags", rowsOf(cmd.LocalNonPersistentFlags())...)
	a.section("Flags of every command", rowsOf(root.PersistentFlags())...)
	if cmd == root {
		a.section("Administration", [2]string{"", "toolcrib help " + administrationTopic +
			" lists the commands for users, tokens, the bus, the audit log and policies."})
		a.section("Exit status", [2]string{"", exitWords})
	}
	if cmd.HasSubCommands() {
		fmt.Fprintln(a.out)
		a.helpText(cmd.CommandPath() + " COMMAND --help shows examples and flags of a command.")
	}
}

// helpStyle returns a style with a readable line width.
func (a *app) helpStyle() render.Style {
	s := render.Style{Color: a.outStyle.Color, Width: 81}
	if a.outTerminal && a.outStyle.Width >= 40 {
		s.Width = min(a.outStyle.Width, 101)
	}
	return s
}

func (a *app) helpText(text string) {
	text = strings.Join(strings.Fields(text), " ")
	fmt.Fprintln(a.out, strings.Join(render.Wrap(text, a.helpStyle().Width-1), "\n"))
}

// commandsOf lists the visible commands below one, with their summaries.
func commandsOf(cmd *cobra.Command, show func(*cobra.Command) bool) (rows [][2]string) {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && show(c) {
			rows = append(rows, [2]string{c.Name(), c.Short})
		}
	}
	return rows
}

// administrationTopic is the help topic that lists the administrative commands.
const administrationTopic = "administration"

// exitWords describes the exit codes.
const exitWords = "0 done, 1 the run failed (other commands: not done), 2 wrong usage or configuration, " +
	"3 the run is parked and waits for you or for its provider, 4 stopped by a limit or budget without an answer, " +
	"5 tools call: refused, 130 interrupted, 143 and 129 ended by SIGTERM and SIGHUP: the run can be resumed."

// section writes names and their descriptions under a heading, if there are any.
func (a *app) section(head string, rows ...[2]string) {
	if len(rows) > 0 {
		s := a.helpStyle()
		fmt.Fprintf(a.out, "\n%s\n%s", s.Bold(head), twoColumns(s, rows))
	}
}

// twoColumns formats names with descriptions next to them.
func twoColumns(s render.Style, rows [][2]string) string {
	var b strings.Builder
	most := 0
	for _, row := range rows {
		most = max(most, min(len(row[0]), 24))
	}
	for _, row := range rows {
		name := " "
		if most > 0 {
			name = "  " + s.Cyan(row[0]) + strings.Repeat(" ", max(most+1-len(row[0]), 0))
		}
		b.WriteString(s.Hanging(name, row[1]))
	}
	return b.String()
}

// rowsOf lists the visible flags of a set.
func rowsOf(flags *pflag.FlagSet) (rows [][2]string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			name := "--" + f.Name
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			rows = append(rows, [2]string{strings.TrimSuffix(name+" "+placeholder(f), " "), f.Usage})
		}
	})
	return rows
}

// placeholder names the value of a flag. It returns "" for a flag without a value.
func placeholder(f *pflag.Flag) string {
	switch value := f.Annotations[valueName]; {
	case strings.HasPrefix(f.Value.Type(), "bool"):
		return ""
	case len(value) > 0 && value[0] != "":
		return value[0]
	case f.Value.Type() == "string", f.Value.Type() == "stringArray":
		return "TEXT"
	}
	return "N"
}

func (a *app) helpCommand(cmd *cobra.Command) {
	cmd.Args = nil
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 && args[0] == administrationTopic {
			a.helpText("Commands for administrators.")
			a.section("Commands", commandsOf(cmd.Root(), administrative)...)
			return nil
		}
		of, rest, err := cmd.Root().Find(args)
		if err != nil || of == nil || len(rest) > 0 {
			return usagef("unknown command %q; see: toolcrib --help", strings.Join(args, " "))
		}
		of.InitDefaultHelpFlag()
		return of.Help()
	}
}

// positional checks the arguments of a command against its Use line: NAME is required, [NAME] is
// optional, NAME... may be repeated.
func positional(cmd *cobra.Command, args []string) error {
	required, most := []string{}, 0
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if strings.HasPrefix(word, "--") || word == "|" {
			break
		}
		if most++; strings.Contains(word, "...") {
			most = len(args)
		}
		if !strings.HasPrefix(word, "[") {
			required = append(required, strings.TrimSuffix(word, "..."))
		}
	}
	switch {
	case len(args) < len(required):
		return usagef("%s is missing\nSee: %s --help", required[len(args)], cmd.CommandPath())
	case len(args) > max(most, len(required)):
		return usagef("unexpected argument %q\nSee: %s --help", guard.Visible(args[most]), cmd.CommandPath())
	}
	return nil
}

// habitual returns our command for one of another program, or "".
func habitual(cmd *cobra.Command, word string) string {
	if cmd.HasParent() {
		return meant(word, commandNames(cmd), map[string]string{
			"ls": "list", "view": "show", "get": "show", "rm": "remove|prune|forget", "delete": "remove|prune|forget",
			"log": "events", "logs": "events", "watch": "events", "accept": "approve", "reject": "deny",
		})
	}
	return meant(word, commandNames(cmd), map[string]string{
		"exec": "run", "ask": "run", "prompt": "run", "resume": "runs resume", "logs": "runs list", "history": "runs list",
		"approve": "approvals approve", "deny": "approvals deny", "login": "secret set", "auth": "secret set",
		"keys": "secret set", "status": "doctor",
	})
}

// meantRuns reports whether the words of a prompt look like a command about stored runs: run list, run
// show last.
func meantRuns(cmd *cobra.Command, args []string) bool {
	runs, _, err := cmd.Root().Find([]string{"runs"})
	if err != nil || len(args) == 0 || !slices.Contains(commandNames(runs), args[0]) {
		return false
	}
	return len(args) == 1 || len(args) == 2 && (args[1] == "last" || strings.HasPrefix(args[1], "run_"))
}

// habitualFlag returns the flag among names that corresponds to a flag of another program, with its
// value if needed, or "".
func habitualFlag(flag string, names []string) string {
	return meant(flag, names, map[string]string{
		"max-turns": "max-iterations", "allowedTools": "tools", "allowed-tools": "tools", "output-format": "output",
		"o": "output", "dangerously-skip-permissions": "approve all", "yolo": "approve all", "full-auto": "approve all",
		"yes": "approve all", "y": "approve all|yes", "r": "session", "resume": "session", "cid": "session",
		"cwd": "workspace", "cd": "workspace", "C": "workspace", "a": "attach", "file": "attach", "f": "attach",
		"n": "limit", "L": "limit", "V": "version",
	})
}

// meant returns the first meaning of a word that begins with one of names, or "".
func meant(word string, names []string, habits map[string]string) string {
	for text := range strings.SplitSeq(habits[word], "|") {
		if name, _, _ := strings.Cut(text, " "); slices.Contains(names, name) {
			return text
		}
	}
	return ""
}
