package shell

import (
	"slices"
	"strings"
)

// findValues are find's tests and actions with one argument that is no file,
// findFiles those with a file, findPlain those without an argument. Everything
// else is refused: -exec, -execdir, -ok, -okdir, -delete, -fprint, -fprint0,
// -fprintf, -fls, -files0-from, -follow, …
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
			if err := j.reads(args[i]); err != nil {
				return err
			}
		case strings.HasPrefix(word, "-"):
			return refuse("%s with %s is not allowed; it may search and print (-name, -type, -size, -newer, -maxdepth, -print, -printf, …), and neither run, write, delete nor follow links",
				j.name, quote(word))
		default:
			return refuse("%s: %s stands behind the expression; folders come first", j.name, quote(word))
		}
	}
	return nil
}

// testOperators are the words of test's expressions that are no operands.
var testOperators = strings.Fields(`! ( ) = == != < > -a -o -b -c -d -e -f -g -G -h -k -L -N -O -p -r -s -S -t -u -w -x -z -n
	-eq -ne -lt -le -gt -ge -nt -ot -ef -l`)

// testExpression judges test and [. Which words are files depends on how many words
// there are; so all of them must be harmless as files, but for numbers and operators.
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
			return refuse("%s with %s is not allowed; allowed are the tests of POSIX", j.name, quote(word))
		default:
			p, err := j.find(word)
			if err != nil {
				return err
			}
			j.touch(p, false)
		}
	}
	return nil
}
