// Command testsummary reads the events of go test -json from standard input and
// prints what matters to a person: a line for each package, the output of what
// failed, each skipped test with its reason, how long each part took, and the sums
// alone on the last line.
//
// It exits with 1 if a test, a package or a check failed, or if nothing was tested.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// maxOutput bounds what is kept of the output of one test, in bytes.
const maxOutput = 64 << 10

func main() {
	checks := flag.String("checks", "", "`file` with a line for each check that was made beside the tests: ok or FAILED, seconds, name")
	flag.Parse()
	s := summary{out: os.Stdout, outputs: map[string]*strings.Builder{}}
	err := s.read(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsummary:", err)
	}
	parts, missing := readParts(*checks)
	if missing != nil {
		fmt.Fprintln(os.Stderr, "testsummary:", missing)
	}
	if bad := s.end(parts); bad || err != nil || missing != nil {
		os.Exit(1)
	}
}

// event is one line of go test -json (go doc test2json).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build-output
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
}

// part is a check that was made beside the tests, or all tests.
type part struct{ result, seconds, name string }

func readParts(file string) (parts []part, err error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(fields) != 3 {
			return parts, fmt.Errorf("%s: not RESULT SECONDS NAME: %q", file, line)
		}
		parts = append(parts, part{fields[0], fields[1], fields[2]})
	}
	return parts, err
}

type summary struct {
	out                     io.Writer
	outputs                 map[string]*strings.Builder // by package and test, until it ends
	passed, failed, skipped int
	open                    []event         // packages that have started and not ended
	running                 []event         // tests that have started, do not wait for their turn, and have not ended
	failedTests             map[string]bool // packages in which a test failed
	failures, skips         []string
}

func (s *summary) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil {
				fmt.Fprint(s.out, line) // what the go command says itself
			} else {
				s.add(e)
			}
		}
		if err == io.EOF {
			s.cutOff()
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *summary) add(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "start":
		s.open = append(s.open, e)
	case "run", "cont":
		s.running = append(s.running, e)
	case "pause":
		s.running = without(s.running, e)
	case "output":
		s.keep(key, e.Output)
	case "build-output":
		s.keep(e.ImportPath+" ", e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.endPackage(e)
		} else {
			s.endTest(e)
		}
		delete(s.outputs, key)
	}
}

func (s *summary) keep(key, output string) {
	b := s.outputs[key]
	if b == nil {
		b = &strings.Builder{}
		s.outputs[key] = b
	}
	if b.Len() < maxOutput {
		b.WriteString(output)
	}
}

// without returns events less those of the package or test of e.
func without(events []event, e event) []event {
	return slices.DeleteFunc(events, func(o event) bool { return o.Package == e.Package && o.Test == e.Test })
}

// unended names the tests of a package that run when it ends: time ran out, or the
// process died. A test that waits for its subtests is not named beside them.
func (s *summary) unended(name string) {
	for _, e := range s.running {
		if e.Package != name || slices.ContainsFunc(s.running, func(o event) bool {
			return o.Package == name && strings.HasPrefix(o.Test, e.Test+"/")
		}) {
			continue
		}
		s.failed++
		s.markFailed(name)
		line := "FAIL " + name + " " + e.Test + ": did not end"
		s.failures = append(s.failures, line)
		fmt.Fprintf(s.out, "%s\n%s", line, s.text(name+" "+e.Test))
	}
	s.running = slices.DeleteFunc(s.running, func(o event) bool { return o.Package == name })
}

// cutOff names what had not ended when the events broke off.
func (s *summary) cutOff() {
	for _, e := range s.open {
		s.unended(e.Package)
		if !s.failedTests[e.Package] {
			s.failed++
			s.failures = append(s.failures, "FAIL "+e.Package+": did not end")
		}
	}
}

func (s *summary) endTest(e event) {
	s.running = without(s.running, e)
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		s.skipped++
		s.skips = append(s.skips, fmt.Sprintf("SKIP %s %s: %s", e.Package, e.Test, s.reason(e)))
	case "fail":
		s.failed++
		s.markFailed(e.Package)
		text := s.text(e.Package + " " + e.Test)
		s.failures = append(s.failures, "FAIL "+e.Package+" "+e.Test)
		fmt.Fprintf(s.out, "FAIL %s %s\n%s", e.Package, e.Test, text)
	}
}

func (s *summary) markFailed(name string) {
	if s.failedTests == nil {
		s.failedTests = map[string]bool{}
	}
	s.failedTests[name] = true
}

func (s *summary) endPackage(e event) {
	s.open = without(s.open, e)
	s.unended(e.Package)
	switch e.Action {
	case "pass":
		fmt.Fprintf(s.out, "ok   %s %.1fs\n", e.Package, e.Elapsed)
	case "skip":
		fmt.Fprintf(s.out, "     %s has no tests\n", e.Package)
	case "fail":
		fmt.Fprintf(s.out, "FAIL %s %.1fs\n%s", e.Package, e.Elapsed, s.text(e.Package+" "))
		if e.FailedBuild != "" {
			fmt.Fprint(s.out, s.text(e.FailedBuild+" "))
		}
		if !s.failedTests[e.Package] { // it did not build, or ended outside of a test
			s.failed++
			s.failures = append(s.failures, "FAIL "+e.Package)
		}
	}
}

func (s *summary) text(key string) string {
	if b := s.outputs[key]; b != nil {
		return b.String()
	}
	return ""
}

// reason is what a skipped test said, in one line.
func (s *summary) reason(e event) string {
	var said []string
	for _, line := range strings.Split(s.text(e.Package+" "+e.Test), "\n") {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			said = append(said, line)
		}
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

// end prints the sums, and reports whether anything failed or nothing was tested.
func (s *summary) end(parts []part) (bad bool) {
	bad = s.failed > 0 || s.passed == 0
	fmt.Fprintln(s.out)
	for _, line := range s.skips {
		fmt.Fprintln(s.out, line)
	}
	for _, p := range parts {
		fmt.Fprintf(s.out, "%5ss %s\n", p.seconds, p.name)
	}
	for _, line := range s.failures {
		fmt.Fprintln(s.out, line)
	}
	for _, p := range parts {
		if p.result != "ok" {
			bad = true
			fmt.Fprintln(s.out, "FAIL check", p.name)
		}
	}
	fmt.Fprintf(s.out, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	return bad
}
