package line

import (
	"slices"
	"strings"
	"sync"

	"github.com/toolcrib/toolcrib/tool/internal/beneath"
)

// table returns the built-in table: programs with the options that only read files of the
// workspace and print. It leaves out options that write (sort -o), run another program (sort
// --compress-program, diff -l), read a list of files (wc --files0-from), follow links (ls -L,
// grep -R), wait (tail -f), use much memory or set the clock, and abbreviated long options.
var table = sync.OnceValue(func() map[string]*program {
	test := &program{whole: testExpression}
	return map[string]*program{
		"echo":  {whole: anyWords},
		"true":  {whole: anyWords},
		"false": {whole: anyWords},
		"test":  test,
		"[":     test,
		"find":  {whole: findExpression},
		"pwd":   {operands: noOperands, options: `LP logical physical`},
		"cat": {operands: files, options: `AbeEnstTuv show-all number-nonblank show-ends number squeeze-blank
			show-tabs show-nonprinting`},
		"head": {operands: files, number: true, options: `c:n:qvz bytes: lines: quiet silent verbose zero-terminated`},
		"tail": {operands: files, number: true, options: `c:n:qvz bytes: lines: quiet silent verbose zero-terminated`},
		"wc":   {operands: files, options: `cmlLw bytes chars lines max-line-length words total:`},
		"uniq": {operands: atMostOneFile, options: `cdDf:is:uzw: count repeated all-repeated? skip-fields: group?
			ignore-case skip-chars: unique zero-terminated check-chars:`},
		"sort": {operands: files, options: `bdfgiMhnRrVcCk:mst:uz ignore-leading-blanks dictionary-order ignore-case
			general-numeric-sort ignore-nonprinting month-sort human-numeric-sort numeric-sort random-sort reverse
			sort: version-sort check? debug key: merge stable field-separator: unique zero-terminated`},
		"date": {operands: dateFormat, options: `d:I?Ru date: debug iso-8601? rfc-email rfc-3339: utc universal`},
		"ls": {operands: listed, options: `aAbBcCdfFgGhiI:klmnNopqQrRsStT:uUvw:xXZ1 all almost-all author escape
			block-size: ignore-backups color? directory classify? file-type format: full-time
			group-directories-first no-group human-readable si hide: indicator-style: inode ignore: kibibytes
			numeric-uid-gid literal hide-control-chars show-control-chars quote-name quoting-style: reverse
			recursive size sort: time: time-style: tabsize: width: context zero`},
		"grep": {operands: searched, number: true, options: `EFGPe:f@iwxzsvm:bnHhoqaId:rLlcTZB:A:C:UyV
			extended-regexp fixed-strings basic-regexp perl-regexp regexp: file@ ignore-case no-ignore-case
			word-regexp line-regexp null-data no-messages invert-match max-count: byte-offset line-number
			line-buffered with-filename no-filename label: only-matching quiet silent binary-files: text
			directories: recursive include: exclude: exclude-from@ exclude-dir: files-without-match
			files-with-matches count initial-tab null before-context: after-context: context: group-separator:
			no-group-separator color? colour? binary`},
		"diff": {operands: compared, options: `qscC:uU:enyW:pF:tTrNx:X@iEZbwBI:ad normal brief
			report-identical-files context? unified? ed rcs side-by-side width: left-column suppress-common-lines
			show-c-function show-function-line: label: expand-tabs initial-tab tabsize: suppress-blank-empty
			recursive no-dereference new-file unidirectional-new-file ignore-file-name-case no-ignore-file-name-case
			exclude: exclude-from@ ignore-case ignore-tab-expansion ignore-trailing-space ignore-space-change
			ignore-all-space ignore-blank-lines ignore-matching-lines: text strip-trailing-cr minimal
			speed-large-files color?`},
	}
})

// anyWords allows any arguments, for programs that only print or ignore them.
func anyWords(*judge, []string) error { return nil }

func noOperands(j *judge, operands []string) error {
	if len(operands) > 0 {
		return refuse("%s takes no operands", j.name)
	}
	return nil
}

// files judges operands that are files to be read.
func files(j *judge, operands []string) error {
	for _, name := range operands {
		if _, err := j.reads(name); err != nil {
			return err
		}
	}
	return nil
}

// atMostOneFile judges the operands of uniq, which would write the second file.
func atMostOneFile(j *judge, operands []string) error {
	if len(operands) > 1 {
		return refuse("%s with a second file would write it; give one file, and read the result from stdout", j.name)
	}
	return files(j, operands)
}

// dateFormat judges the operands of date, which set the clock unless they are formats.
func dateFormat(j *judge, operands []string) error {
	for _, word := range operands {
		if !strings.HasPrefix(word, "+") {
			return refuse("%s with %s would set the clock; a format begins with +", j.name, Quote(word))
		}
	}
	return nil
}

func listed(j *judge, operands []string) error {
	return j.folders(operands, j.has("R", "recursive"), true)
}

// searched judges the operands of grep. The first one is the pattern, unless an option gave one.
func searched(j *judge, operands []string) error {
	for _, name := range []string{"d", "directories"} {
		switch action := j.last[name]; action {
		case "", "read", "skip":
		case "recurse":
			j.seen["r"] = true
		default:
			return refuse("%s: directories can be read, skip or recurse, not %s", j.name, Quote(action))
		}
	}
	if !j.has("e", "regexp", "f", "file") && len(operands) > 0 {
		operands = operands[1:]
	}
	return j.folders(operands, j.has("r", "recursive"), j.has("r", "recursive"))
}

// compared judges the operands of diff: two files or two folders. In folders diff would follow
// links, so it gets --no-dereference.
func compared(j *judge, operands []string) error {
	if len(operands) != 2 {
		return refuse("%s takes two files or two folders", j.name)
	}
	folder := 0
	for _, name := range operands {
		if name == "-" || name == devNull {
			continue
		}
		p, err := j.find(name)
		if err != nil {
			return err
		}
		if p.Info != nil && p.Info.IsDir() {
			folder++
		}
	}
	if folder > 0 {
		j.add = []string{"--no-dereference"}
	}
	if folder == 1 {
		return refuse("%s of a folder and a file is not allowed; name both files", j.name)
	}
	return j.folders(operands, folder > 0, false)
}

// folders judges operands that are files or folders to be read, and, if recursive is true, all
// that is below the folders. Without operands it judges the workspace if itself is true.
func (j *judge) folders(operands []string, recursive, itself bool) error {
	if len(operands) == 0 && itself {
		operands = []string{"."}
	}
	for _, name := range operands {
		p, err := j.reads(name)
		if err != nil {
			return err
		}
		if !recursive || name == "-" || name == devNull {
			continue
		}
		abs := j.abs(p.Real)
		if p.Info != nil && p.Info.IsDir() {
			j.whole(abs)
		}
		if j.HoldsHidden(abs) {
			j.outside = true
			return protects("%s is protected in part: toolcrib's own data is below it. Name the folders or files that you need",
				Quote(name))
		}
	}
	return nil
}

// reads judges a file to be read: it must be in the workspace, and be a regular file, a folder or
// missing.
func (j *judge) reads(name string) (beneath.Place, error) {
	if name == "-" || name == devNull {
		return beneath.Place{}, nil
	}
	p, err := j.find(name)
	if err != nil {
		return p, err
	}
	if p.Info != nil && !p.Info.Mode().IsRegular() && !p.Info.IsDir() {
		return p, refuse("%s is %s; only regular files and folders can be read", Quote(name), beneath.Special(p.Info.Mode()))
	}
	j.touch(p)
	j.look(looked{name, p.Real, true})
	return p, nil
}

// findValues are find's tests and actions with one argument that is not a file, findFiles those
// with a file, findPlain those without an argument. Everything else is refused: -exec, -execdir,
// -ok, -okdir, -delete, -fprint, -fprint0, -fprintf, -fls, -files0-from, -follow, …
var (
	findValues = strings.Fields(`-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -maxdepth
		-mindepth -amin -atime -cmin -ctime -mmin -mtime -size -type -xtype -perm -links -inum -uid -gid -user -group -used
		-lname -ilname -fstype -printf -newermt -newerct -newerat -newerBt`)
	findFiles = strings.Fields(`-newer -anewer -cnewer -samefile -newermm -newerma -newermc -neweram -neweraa -newerac
		-newercm -newerca -newercc`)
	findPlain = strings.Fields(`-empty -readable -writable -executable -nouser -nogroup -true -false -daystart -depth -mount
		-xdev -noleaf -nowarn -warn -ignore_readdir_race -noignore_readdir_race -prune -quit -print -print0 -ls -not -and -or
		-a -o ! ( ) ,`)
)

// findExpression judges find: options, the folders to search, the expression.
func findExpression(j *judge, args []string) error {
	i := 0
	for ; i < len(args) && (args[i] == "-P" || strings.HasPrefix(args[i], "-O") && digits(args[i][2:])); i++ {
	}
	start := i
	for i < len(args) && !strings.HasPrefix(args[i], "-") && !slices.Contains([]string{"(", ")", "!", ","}, args[i]) {
		i++
	}
	if err := j.folders(args[start:i], true, true); err != nil {
		return err
	}
	for ; i < len(args); i++ {
		word := args[i]
		switch {
		case slices.Contains(findPlain, word), word == "--help", word == "--version", word == "-help", word == "-version":
		case slices.Contains(findValues, word), slices.Contains(findFiles, word):
			if i++; i >= len(args) {
				return refuse("%s: %s needs an argument", j.name, word)
			}
			if !slices.Contains(findFiles, word) {
				continue
			}
			if _, err := j.reads(args[i]); err != nil {
				return err
			}
		case strings.HasPrefix(word, "-"):
			return refuse("%s with %s is not allowed; it may search and print (-name, -type, -size, -newer, -maxdepth, -print, -printf, …), and neither run, write, delete nor follow links",
				j.name, Quote(word))
		default:
			return refuse("%s: %s is after the expression; folders come first", j.name, Quote(word))
		}
	}
	return nil
}

// testOperators are the words of test's expressions that are not operands.
var testOperators = strings.Fields(`! ( ) = == != < > -a -o -b -c -d -e -f -g -G -h -k -L -N -O -p -r -s -S -t -u -w -x -z -n
	-eq -ne -lt -le -gt -ge -nt -ot -ef -l`)

// testExpression judges the arguments of test and [. Which words are files depends on the number
// of words, so all except numbers and operators must be allowed as files.
func testExpression(j *judge, args []string) error {
	if j.name == "[" {
		if len(args) == 0 || args[len(args)-1] != "]" {
			return refuse("[ needs ] as its last word")
		}
		args = args[:len(args)-1]
	}
	for _, word := range args {
		switch {
		case word == "" || slices.Contains(testOperators, word) || digits(strings.TrimPrefix(word, "-")):
		case word == "--help" || word == "--version":
		case strings.HasPrefix(word, "-"):
			return refuse("%s with %s is not allowed; allowed are the tests of POSIX", j.name, Quote(word))
		default:
			p, err := j.find(word)
			if err != nil {
				return err
			}
			j.touch(p)
		}
	}
	return nil
}
