// Command testsummary reads the events of go test -json from standard input and prints a summary: a
// line for each package, the output of failures, each skipped test with its reason, and the totals on
// the last line. It passes on other lines; a line that begins with [failedCheck] is a failure.
//
// It exits with 1 if a test, a package or a check failed, or if no test ran.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// maxOutput bounds the stored output of one test, in bytes.
const maxOutput = 64 << 10

// failedCheck begins a line about a failed check that is not a test.
const failedCheck = "FAIL check "

func main() {
	s := summary{out: os.Stdout}
	err := s.read(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsummary:", err)
	}
	if bad := s.end(); bad || err != nil {
		os.Exit(1)
	}
}

// event is one line of go test -json (go doc test2json).
type event struct {
	Action      string
	Package     string
	ImportPath  string // package of build-output
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
}

type summary struct {
	out                     io.Writer
	outputs                 map[string]string // by package and test, until it ends
	passed, failed, skipped int
	open                    []string        // packages that have not ended
	failedTests             map[string]bool // packages with a failed test
	failures, skips         []string
}

func (s *summary) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		var e event
		switch {
		case strings.HasPrefix(line, failedCheck):
			s.fail(strings.TrimSuffix(line, "\n"), "")
		case line != "" && json.Unmarshal([]byte(line), &e) != nil:
			fmt.Fprint(s.out, line)
		default:
			s.add(e)
		}
		if err == io.EOF {
			for _, name := range s.open { // the events ended early
				s.endPackage(event{Action: "fail", Package: name})
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *summary) add(e event) {
	switch e.Action {
	case "start":
		s.open = append(s.open, e.Package)
	case "output":
		s.keep(e.Package+" "+e.Test, e.Output)
	case "build-output":
		s.keep(e.ImportPath+" ", e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.open = slices.DeleteFunc(s.open, func(name string) bool { return name == e.Package })
			s.endPackage(e)
		} else {
			s.endTest(e)
		}
		delete(s.outputs, e.Package+" "+e.Test)
	}
}

func (s *summary) keep(key, output string) {
	if s.outputs == nil {
		s.outputs = map[string]string{}
	}
	if len(s.outputs[key]) < maxOutput {
		s.outputs[key] += output
	}
}

func (s *summary) endTest(e event) {
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		s.skipped++
		s.skips = append(s.skips, fmt.Sprintf("SKIP %s %s: %s", e.Package, e.Test, s.reason(e)))
	case "fail":
		if s.failedTests == nil {
			s.failedTests = map[string]bool{}
		}
		s.failedTests[e.Package] = true
		s.fail("FAIL "+e.Package+" "+e.Test, s.outputs[e.Package+" "+e.Test])
	}
}

func (s *summary) fail(line, output string) {
	s.failed++
	s.failures = append(s.failures, line)
	fmt.Fprintf(s.out, "%s\n%s", line, output)
}

// endPackage prints the output of unfinished tests of a package that failed, because of a timeout or
// because the process died.
func (s *summary) endPackage(e event) {
	switch e.Action {
	case "pass":
		fmt.Fprintf(s.out, "ok   %s %.1fs\n", e.Package, e.Elapsed)
	case "skip":
		fmt.Fprintf(s.out, "     %s has no tests\n", e.Package)
	case "fail":
		output := s.outputs[e.FailedBuild+" "]
		for _, key := range slices.Sorted(maps.Keys(s.outputs)) {
			if strings.HasPrefix(key, e.Package+" ") && e.FailedBuild == "" {
				output += s.outputs[key]
			}
		}
		if s.failedTests[e.Package] {
			fmt.Fprint(s.out, output)
		} else { // it did not build, or ended outside of a test
			s.fail("FAIL "+e.Package, output)
		}
	}
}

// reason returns the output of a skipped test on one line.
func (s *summary) reason(e event) string {
	var said []string
	for _, line := range strings.Split(s.outputs[e.Package+" "+e.Test], "\n") {
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

// end prints the totals, and reports whether anything failed or no test ran.
func (s *summary) end() (bad bool) {
	fmt.Fprintln(s.out)
	for _, line := range append(s.skips, s.failures...) {
		fmt.Fprintln(s.out, line)
	}
	fmt.Fprintf(s.out, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	return s.failed > 0 || s.passed == 0
}
