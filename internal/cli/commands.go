package cli

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commandsText describes the commands: under a heading with the command line of each what
// it does in a line, then at length, its examples, and its flags. The flags below the first
// heading are those of several commands.
//
//go:embed commands.md
var commandsText string

// flagText describes a flag: the name of its value, and what it is for.
type flagText struct{ value, usage string }

// described is what commands.md says about a command.
type described struct {
	path, args string // of its command line
	cobra.Command
	flags map[string]flagText
}

// descriptions reads commands.md. The first one has only the flags of several commands.
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
				d.Long = block
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

// commands are what the commands do.
func (a *app) commands() map[string]func(cmd *cobra.Command) {
	return map[string]func(cmd *cobra.Command){
		"run":                         a.runCommand,
		"help":                        a.helpCommand,
		"chat":                        a.chatCommand,
		"tools list":                  a.toolsListCommand,
		"tools show":                  a.toolsShowCommand,
		"tools enable":                a.toolsSwitchCommand,
		"tools disable":               a.toolsSwitchCommand,
		"tools reset":                 a.toolsSwitchCommand,
		"tools call":                  a.toolsCallCommand,
		"tools explain":               a.toolsExplainCommand,
		"runs list":                   a.runsListCommand,
		"runs show":                   a.runsShowCommand,
		"runs events":                 a.runsEventsCommand,
		"runs export":                 a.runsExportCommand,
		"runs import":                 a.runsImportCommand,
		"runs resume":                 a.runsResumeCommand,
		"runs cancel":                 a.runsCancelCommand,
		"runs fork":                   a.runsForkCommand,
		"runs verify":                 a.runsVerifyCommand,
		"runs replay":                 a.runsReplayCommand,
		"runs prune":                  a.runsPruneCommand,
		"sessions list":               a.sessionsListCommand,
		"sessions show":               a.sessionsShowCommand,
		"sessions export":             a.sessionsExportCommand,
		"approvals list":              a.approvalsListCommand,
		"approvals show":              a.approvalsShowCommand,
		"approvals approve":           a.approvalsDecideCommand,
		"approvals deny":              a.approvalsDecideCommand,
		"approvals answer":            a.approvalsAnswerCommand,
		"approvals resolve":           a.approvalsResolveCommand,
		"approvals remembered list":   a.rememberedListCommand,
		"approvals remembered revoke": a.rememberedRevokeCommand,
		"approvals notify test":       a.notifyTestCommand,
		"gate rules":                  a.gateRulesCommand,
		"gate backtest":               a.gateBacktestCommand,
		"audit list":                  a.auditListCommand,
		"audit verify":                a.auditVerifyCommand,
		"audit export":                a.auditExportCommand,
		"usage":                       a.usageCommand,
		"agents list":                 a.agentsListCommand,
		"agents show":                 a.agentsShowCommand,
		"models list":                 a.modelsListCommand,
		"models refresh":              a.modelsRefreshCommand,
		"skills list":                 a.skillsListCommand,
		"skills show":                 a.skillsShowCommand,
		"skills check":                a.skillsCheckCommand,
		"config check":                a.configCheckCommand,
		"config show":                 a.configShowCommand,
		"config schema":               a.configSchemaCommand,
		"trust":                       a.trustCommand,
		"secret set":                  a.secretSetCommand,
		"secret list":                 a.secretListCommand,
		"secret remove":               a.secretRemoveCommand,
		"users add":                   a.usersAddCommand,
		"users list":                  a.usersListCommand,
		"users show":                  a.usersShowCommand,
		"users edit":                  a.usersEditCommand,
		"users disable":               a.usersStateCommand,
		"users enable":                a.usersStateCommand,
		"users remove":                a.usersRemoveCommand,
		"users password":              a.usersPasswordCommand,
		"users groups list":           a.groupsListCommand,
		"users groups set":            a.groupsSetCommand,
		"users groups remove":         a.groupsRemoveCommand,
		"tokens create":               a.tokensCreateCommand,
		"tokens list":                 a.tokensListCommand,
		"tokens revoke":               a.tokensRevokeCommand,
		"tokens check":                a.tokensCheckCommand,
		"backup":                      a.backupCommand,
		"restore":                     a.restoreCommand,
		"doctor":                      a.doctorCommand,
		"version":                     a.versionCommand,
		"completion":                  a.completionCommand,
	}
}

// tree makes the tree of commands of commands.md. One that does nothing by itself holds
// others.
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
		}
		if parent == "" {
			cmd.Flags().Bool("version", false, "")
			flags := cmd.PersistentFlags()
			for name, value := range map[string]*string{
				"config": &a.configFlag, "data-dir": &a.dataFlag, "as": &a.asFlag, "token-file": &a.tokenFlag,
			} {
				flags.Func(name, "", filled(value))
			}
		}
		describe(cmd.Flags(), d.flags, all[0].flags)
		describe(cmd.PersistentFlags(), d.flags, all[0].flags)
		if tree[d.path] = cmd; parent != "" {
			tree[parent].AddCommand(cmd)
		}
	}
	return tree["toolcrib"]
}

// cutLast cuts the last word off a command line.
func cutLast(path string) (before, last string, found bool) {
	i := strings.LastIndexByte(path, ' ')
	return path[:max(i, 0)], path[i+1:], i >= 0
}

// describe gives flags that say nothing their texts.
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
