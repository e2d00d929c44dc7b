package line

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// gitReads returns the built-in table for git: by subcommand the options that only read the
// repository and print. Options that write a file (--output), run another program (--ext-diff,
// grep -O) or read other files (--no-index) are left out.
var gitReads = sync.OnceValue(func() map[string]*program {
	const (
		format = ` abbrev? abbrev-commit no-abbrev-commit color? no-color date: relative-date format: pretty? oneline
			decorate? no-decorate graph `
		diff = ` patch no-patch raw stat? numstat shortstat summary name-only name-status unified: word-diff?
			word-diff-regex: check cached staged merge-base diff-filter: find-renames? find-copies? no-renames ignore-all-space
			ignore-space-change ignore-space-at-eol ignore-blank-lines function-context minimal patience histogram
			diff-algorithm: full-index binary text reverse exit-code quiet inter-hunk-context: pickaxe-all pickaxe-regex dirstat?
			no-prefix compact-summary `
		commits = ` all branches? tags? remotes? max-count: skip: since: until: after: before: author: committer: grep:
			all-match invert-grep regexp-ignore-case extended-regexp fixed-strings perl-regexp merges no-merges first-parent
			follow not reverse date-order topo-order author-date-order ancestry-path left-right cherry-pick cherry-mark
			walk-reflogs count simplify-by-decoration full-history no-walk parents children source root oneline notes? no-notes `
	)
	subcommand := func(options string) *program {
		return &program{options: options, number: true, operands: gitOperands}
	}
	bare := func(p *program) *program {
		p.operands = noOperands
		return p
	}
	named := func(p *program, by ...string) *program { // with operands it writes, unless one of by is given
		p.operands = func(j *judge, operands []string) error {
			if len(operands) > 0 && !j.has(by...) {
				return refuse("git %s with %s is not among the commands that only read", j.name, Quote(operands[0]))
			}
			return gitOperands(j, operands)
		}
		return p
	}
	searched := func(p *program) *program { // the first operand is the pattern
		p.operands = func(j *judge, operands []string) error {
			if !j.has("e") && len(operands) > 0 {
				operands = operands[1:]
			}
			return gitOperands(j, operands)
		}
		return p
	}
	lists := []string{"l", "list", "contains", "no-contains", "merged", "no-merged"}
	log := subcommand(`pusn:U:G:S:L:iEFPqzwbcmrtM?C?O` + format + diff + commits)
	show := subcommand(`psqU:wbcmzM?C?G:S:n:` + format + diff + commits)
	return map[string]*program{
		"status": subcommand(`sbvuz short branch show-stash porcelain? long verbose untracked-files? ignored? null
			ahead-behind no-ahead-behind no-renames`),
		"diff":     subcommand(`puqsU:wbcRaWzM?C?G:S:l:` + format + diff),
		"log":      log,
		"show":     show,
		"shortlog": subcommand(`nsecw? numbered summary email group: ` + format + commits),
		"rev-list": subcommand(`n:` + format + commits + `objects`),
		"blame":    subcommand(`L:bwMCestlfnpc date: abbrev? line-porcelain porcelain show-email root since: `),
		"grep": searched(subcommand(`nicliwLEFGPe:A:B:C:hHvopWqaIm: line-number ignore-case count files-with-matches name-only
			files-without-match word-regexp extended-regexp fixed-strings basic-regexp perl-regexp after-context: before-context:
			context: show-function function-context heading break color? no-color cached untracked and or not all-match
			max-depth: max-count: invert-match only-matching text column full-name quiet`)),
		"ls-files": subcommand(`cdmosiktuvz cached deleted modified others stage ignored exclude-standard unmerged killed
			directory full-name error-unmatch deduplicate`),
		"ls-tree": subcommand(`rdtlz long name-only name-status full-name full-tree abbrev?`),
		"rev-parse": subcommand(`q abbrev-ref? short? verify show-toplevel show-prefix is-inside-work-tree
			is-bare-repository git-dir symbolic symbolic-full-name quiet`),
		"describe": subcommand(` all tags contains abbrev: always dirty? long first-parent match: exclude: exact-match
			candidates:`),
		"merge-base":   subcommand(`a all is-ancestor fork-point octopus independent`),
		"cat-file":     subcommand(`tspe`),
		"name-rev":     subcommand(` tags refs: all name-only`),
		"for-each-ref": subcommand(` count: sort: format: points-at: merged? no-merged? contains? no-contains?`),
		"show-ref":     subcommand(`q tags heads branches head verify hash? dereference`),
		"diff-tree":    subcommand(`rtpscmzU:M?C? root` + diff),
		"branch": named(subcommand(`avrl list all remotes verbose show-current sort: format: column? color? no-color
			contains? no-contains? merged? no-merged? points-at: `), lists...),
		"tag": named(subcommand(`ln? list sort: format: column? contains? no-contains? merged? no-merged?
			points-at: `), lists...),
		"remote": bare(subcommand(`v verbose`)),
		"config": {operands: gitSettings, options: `lz list get get-all get-regexp null name-only show-origin show-scope local
			global system worktree type: bool int`},
		"version":  bare(subcommand(`v build-options`)),
		"stash":    {whole: gitFirst("list")},
		"reflog":   {whole: gitFirst("", "show")},
		"worktree": {whole: gitFirst("list")},
	}
})

// gitFirst allows a subcommand only with exactly one of these words; "" allows it without arguments.
func gitFirst(words ...string) func(*judge, []string) error {
	return func(j *judge, args []string) error {
		if len(args) > 1 || !slices.Contains(words, strings.Join(args, "")) {
			return refuse("git %s with %s is not among the commands that only read", j.name, Quote(strings.Join(args, " ")))
		}
		return nil
	}
}

// gitSettings judges the operands of git config, which writes if there are too many for reading.
func gitSettings(j *judge, operands []string) error {
	n, gets, lists := len(operands), j.has("get", "get-all", "get-regexp"), j.has("l", "list")
	if gets && (n == 1 || n == 2) || lists && n == 0 || !gets && !lists && n == 1 && strings.Contains(operands[0], ".") {
		return nil
	}
	return refuse("git config with %s is not among the commands that only read", Quote(strings.Join(operands, " ")))
}

// gitOperands judges operands that are revisions or paths. It refuses any that could be a path
// outside the workspace.
func gitOperands(j *judge, operands []string) error {
	for _, word := range operands {
		if _, err := j.find(word); err != nil {
			return err
		}
	}
	return nil
}

// gitKept are the subcommands that write the repository but not the work tree.
var gitKept = []string{"add", "stage", "commit", "tag", "branch", "notes", "update-index", "write-tree", "commit-tree"}

// git judges the arguments of git; listed reports whether the user allowed all of git. A call that only
// reads is treated like other programs of the table. Any other may write the workspace, and the
// repository if nothing else on the line could write it.
func (j *judge) git(args []string, listed bool) error {
	j.target(j.Dir, false)
	j.whole(j.Dir)
	for len(args) > 0 && (args[0] == "--no-pager" || args[0] == "-P") {
		args = args[1:]
	}
	if len(args) == 0 || len(args) == 1 && (args[0] == "--version" || args[0] == "--help") {
		return nil
	}
	if reads := gitReads()[args[0]]; reads != nil && !verifies(args) {
		sub := &judge{name: args[0], prog: reads, draft: j.draft}
		if _, err := sub.judged(args[1:]); err == nil || j.outside {
			return err
		}
	}
	switch {
	case listed && strings.HasPrefix(args[0], "-"): // -c and -C name a program or another repository
		j.unlisted = &toolcrib.Concern{
			Reason: toolcrib.ReasonUnlistedProgram, Why: "runs git with an option before its command: " + Quote(args[0]),
			Instead: "Call git without it.",
		}
	case !listed:
		j.unlisted = &toolcrib.Concern{
			Reason: toolcrib.ReasonUnlistedProgram, Why: "runs what tools.shell.allow does not list: git " + Quote(args[0]),
			Instead: "In the configuration tools.shell.allow: [git], added to what it lists, would let it run.",
		}
	}
	j.ReadOnly = MayWrite
	if slices.Contains(gitKept, args[0]) {
		args = nil // it only reads the files that it names
	}
	return j.unjudged(args)
}

// gitSets are the subcommands that write settings of git or create a repository, with the
// arguments that make them do so; if there are none, they always do.
var gitSets = map[string]string{
	"init": "", "init-db": "", "clone": "", "submodule--helper": "", "for-each-repo": "", "filter-branch": "",
	"remote":          "add rename remove rm set-url set-branches set-head",
	"branch":          "-u --set-upstream-to --unset-upstream --edit-description -t --track",
	"checkout":        "-t --track",
	"switch":          "-t --track",
	"push":            "-u --set-upstream",
	"pull":            "--set-upstream --filter",
	"fetch":           "--set-upstream --filter",
	"submodule":       "add init deinit set-url set-branch sync update absorbgitdirs foreach",
	"worktree":        "add move remove prune lock unlock repair",
	"sparse-checkout": "init set add disable reapply",
	"maintenance":     "start stop register unregister",
	"lfs":             "install uninstall update",
	"svn":             "init clone",
	"p4":              "clone",
	"refs":            "migrate",
}

// gitCommands are the other subcommands of git. Git ignores aliases with their names.
const gitCommands = ` add am annotate apply archive bisect blame bugreport bundle cat-file check-attr check-ignore
	check-mailmap check-ref-format checkout-index cherry cherry-pick clean column commit commit-graph commit-tree
	count-objects credential describe diagnose diff diff-files diff-index diff-tree difftool fast-export fast-import
	fetch-pack fmt-merge-msg for-each-ref format-patch fsck gc get-tar-commit-id grep hash-object help hook index-pack
	interpret-trailers log ls-files ls-remote ls-tree mailinfo mailsplit merge merge-base merge-file merge-index merge-tree
	mergetool mktag mktree multi-pack-index mv name-rev notes pack-objects pack-refs patch-id prune prune-packed range-diff
	read-tree rebase reflog repack replace request-pull rerere reset restore rev-list rev-parse revert rm send-email
	send-pack shortlog show show-branch show-index show-ref stage stash status stripspace symbolic-ref tag unpack-file
	unpack-objects update-index update-ref update-server-info var verify-commit verify-pack verify-tag version write-tree `

// gitCommand returns the subcommand in the arguments of git, with its arguments. sets reports whether
// options before it change settings, or a word before it is unknown.
func gitCommand(words []toolcrib.Word) (command []toolcrib.Word, sets bool) {
	for len(words) > 0 && (words[0].Unknown || strings.HasPrefix(words[0].Text, "-")) {
		sets = sets || words[0].Unknown
		option, _, inline := strings.Cut(words[0].Text, "=")
		own := 1
		switch option {
		case "-c", "--config-env":
			own, sets = 2, true
		case "-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--attr-source", "--shallow-file":
			own = 2
		}
		if inline {
			own = 1
		}
		words = words[min(own, len(words)):]
	}
	return words, sets
}

// repository sets the fields of the plan that are about git.
func (d *draft) repository() {
	d.UsesGit = slices.ContainsFunc(d.Programs, func(at toolcrib.Program) bool { return at.Name.Text == "git" })
	if d.UsesGit {
		d.GitRuns = d.gitRuns()
	}
	if d.unlisted != nil {
		d.Concerns = append(d.Concerns, *d.unlisted)
	}
	if d.GitRuns != "" {
		c := toolcrib.Concern{
			Reason: toolcrib.ReasonUnlistedProgram,
			Why:    "runs git, and the repository's configuration may name programs that it starts: " + Quote(d.GitRuns),
		}
		if d.Any {
			c.Reason = toolcrib.ReasonNeedsConfirmation // any program runs
		}
		d.Concerns = append(d.Concerns, c)
	}
	if d.ReadOnly == MayWrite { // otherwise each call of git was found to only read
		d.GitWrites = d.UsesGit && d.onlyGitWrites()
		d.steering()
	}
}

// steering adds the settings of git as a target if a program of the line would write them, so that
// the call is refused. The sandbox protects them from writes that are not detected here.
func (d *draft) steering() {
	for i := range d.Programs {
		name, words := d.Programs[i].Name.Text, d.Programs[i].Args
		if own, ok := strings.CutPrefix(name, "git-"); ok { // a program in git's own folder
			name, words = "git", slices.Concat([]toolcrib.Word{{Text: own}}, words)
		}
		if name != "git" {
			continue
		}
		command, set := gitCommand(words)
		if len(command) == 0 {
			continue
		}
		args := make([]string, len(command))
		for k, word := range command {
			if args[k] = word.Text; word.Unknown {
				args[k] = "\x00"
			}
		}
		if !d.sets(args, set || d.Line.sets || d.GitRuns != "") {
			continue
		}
		d.steers = true
		switch {
		case strings.HasPrefix(args[0], "init"), args[0] == "clone":
			folder := "."
			if at := slices.IndexFunc(args[1:], func(word string) bool { return !strings.HasPrefix(word, "-") }); at >= 0 &&
				args[0] != "clone" {
				folder = args[1+at]
			}
			found, _ := d.resolve(folder) // on an error, the workspace
			d.target(filepath.Join(d.abs(found.Real), ".git"), true)
		default:
			d.target(filepath.Join(d.Dir, ".git", "config"), true)
		}
	}
}

// sets reports whether a subcommand of git writes settings of git. named reports whether the
// subcommand may be an alias.
func (d *draft) sets(args []string, named bool) bool {
	reads := gitReads()[args[0]]
	if reads != nil {
		if _, err := (&judge{name: args[0], prog: reads, draft: d.trial()}).judged(args[1:]); err == nil {
			return false
		}
	}
	given := func(option string) bool {
		return slices.ContainsFunc(args[1:], func(word string) bool { return gives(word, option) })
	}
	words, ok := gitSets[args[0]]
	switch {
	case args[0] == "config":
		return d.Line.sets || !ofAnotherFile(args[1:])
	case ok:
		return words == "" || slices.ContainsFunc(strings.Fields(words), given)
	}
	return named && reads == nil && !slices.Contains(strings.Fields(gitCommands), args[0])
}

// ofAnotherFile reports whether git config has an option that selects a file outside the repository. Options
// end at the first argument.
func ofAnotherFile(words []string) bool {
	for i, word := range words {
		option, _, _ := strings.Cut(word, "=")
		switch {
		case slices.Contains([]string{"-f", "--file", "--blob", "--global", "--system"}, option):
			return true
		case i == 0 && slices.Contains([]string{"get", "set", "list", "unset", "edit"}, word):
		case !strings.HasPrefix(word, "-") || word == "--":
			return false
		}
	}
	return false
}

// gives reports whether an argument of git is or contains this option or word. Long options may be
// abbreviated, short ones combined.
func gives(word, option string) bool {
	word, _, _ = strings.Cut(word, "=")
	switch {
	case strings.HasPrefix(option, "--"):
		return len(word) > 3 && strings.HasPrefix(option, word)
	case len(option) == 2 && option[0] == '-' && len(word) > 1 && word[0] == '-' && word[1] != '-':
		letters := word[1:]
		if at := strings.IndexAny(letters, "bBcCo"); at >= 0 { // the rest is the value of these
			letters = letters[:at]
		}
		return strings.Contains(letters, option[1:])
	}
	return word == option
}

var signed = lazyregexp.New(`%[-+ ]?G`)

// verifies reports whether a call of git verifies signatures, for which it starts gpg.
func verifies(args []string) bool {
	refs := slices.Contains([]string{"for-each-ref", "branch", "tag"}, args[0])
	return slices.ContainsFunc(args[1:], func(word string) bool {
		return signed.MatchString(word) || refs && strings.Contains(strings.ToLower(word), "signature")
	})
}

// onlyGitWrites reports whether a line has only calls of git and of programs that only read, so that
// only git writes the repository.
func (d *draft) onlyGitWrites() bool {
	only := true
	for i := range d.Programs {
		at := &d.Programs[i]
		name := at.Name.Text
		switch {
		case at.Name.Unknown:
			only = false
		case name == "git":
			// Settings on the line override those that disable hooks.
			only = only && len(at.Args) > 0 && !strings.HasPrefix(at.Args[0].Text, "-") && !at.Args[0].Unknown
		default:
			only = only && (OnlyReads(name) || name == "cd")
		}
	}
	syntax.Walk(d.Line.file, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.CallExpr:
			only = only && len(n.Assigns) == 0
		case *syntax.DeclClause, *syntax.FuncDecl:
			only = false
		case *syntax.Redirect:
			only = only && (n.Hdoc != nil || n.Op != syntax.RdrOut && n.Op != syntax.AppOut && n.Op != syntax.RdrClob &&
				n.Op != syntax.RdrAll)
		}
		return true
	})
	return only
}

// plainGit matches settings of a repository that do not name a program.
var plainGit = lazyregexp.New(`^(?i:` + strings.Join([]string{
	`core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|` +
		`eol|safecrlf|quotepath)`,
	`core\.(abbrev|compression|sparsecheckout|sparsecheckoutcone|hookspath|fsmonitor|untrackedcache|preloadindex|` +
		`commentchar|whitespace)`,
	`core\.(sharedrepository|protecthfs|protectntfs|longpaths|trustctime|checkstat|splitindex|commitgraph|multipackindex)`,
	`remote\.(.+\.(url|pushurl|fetch|push|mirror|tagopt|prune|prunetags|promisor|partialclonefilter)|pushdefault)`,
	`(branch|user|author|committer|color|status|log|advice|extensions|gc|index|feature|fetch|pull|push|pack|i18n|` +
		`column|blame|rerere)\..+`,
	`init\.defaultbranch`, `merge\.(ff|conflictstyle|stat|log|renames)`,
	`diff\.(algorithm|renames|mnemonicprefix|noprefix|colormoved|context|submodule)`,
	`submodule\.(.+\.(url|active|branch|path|ignore|shallow)|recurse|active)`, `rebase\.(autosquash|autostash|updaterefs)`,
	`lfs\.(repositoryformatversion|.+\.access)`, `commit\.(gpgsign|verbose)`, `tag\.(gpgsign|sort)`, `pull\.(rebase|ff)`,
}, "|") + `)$`)

// startsProgram matches settings that plainGit also matches, but that start a program or make
// git enter a submodule.
var startsProgram = lazyregexp.New(
	`(?i)^(log\.showsignature|gc\.recentobjectshook|submodule\..+\.ignore|diff\.submodule|status\.submodulesummary)$`)

var (
	gitSection = lazyregexp.New(`^\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\["\\])*)")?\s*\]\s*(.*)$`)
	gitSetting = lazyregexp.New(`^([A-Za-z][A-Za-z0-9-]*)\s*(?:=.*)?$`)
)

// gitRuns returns the part of the workspace's repository that may name a program for git to run, or
// another place for settings, or "".
func (r *Rules) gitRuns() string {
	texts, gap := r.Files.GitConfig()
	for _, text := range texts {
		if key := gitProgram(text); key != "" {
			return key
		}
	}
	return gap
}

// gitProgram returns the first setting of a configuration that may name a program, or a message
// if a line is not understood, or "".
func gitProgram(text string) string {
	section := ""
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if m := gitSection.FindStringSubmatch(line); m != nil {
			section, line = m[1]+".", m[3]
			if m[2] != "" {
				section += m[2] + "."
			}
		}
		m := gitSetting.FindStringSubmatch(line)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
		case m == nil || strings.HasSuffix(line, `\`):
			return "a line that is not understood"
		case !plainGit.MatchString(section+m[1]) || startsProgram.MatchString(section+m[1]):
			return section + m[1]
		case strings.Contains(strings.ToLower(line), "ext::"):
			return section + m[1]
		}
	}
	return ""
}
