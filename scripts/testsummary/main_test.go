package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSummary(t *testing.T) {
	events := `{"Action":"start","Package":"x/a"}
{"Action":"run","Package":"x/a","Test":"TestOne"}
{"Action":"output","Package":"x/a","Test":"TestOne","Output":"=== RUN   TestOne\n"}
{"Action":"output","Package":"x/a","Test":"TestOne","Output":"    a_test.go:5: got 1\n"}
{"Action":"fail","Package":"x/a","Test":"TestOne","Elapsed":0}
{"Action":"output","Package":"x/a","Test":"TestTwo","Output":"=== RUN   TestTwo\n"}
{"Action":"output","Package":"x/a","Test":"TestTwo","Output":"    a_test.go:9: no server here\n"}
{"Action":"output","Package":"x/a","Test":"TestTwo","Output":"--- SKIP: TestTwo (0.00s)\n"}
{"Action":"skip","Package":"x/a","Test":"TestTwo","Elapsed":0}
{"Action":"pass","Package":"x/a","Test":"TestThree","Elapsed":0}
{"Action":"output","Package":"x/a","Output":"FAIL\n"}
{"Action":"fail","Package":"x/a","Elapsed":0.5}
go: a line of the go command
{"ImportPath":"x/b [x/b.test]","Action":"build-output","Output":"b_test.go:3:1: syntax error\n"}
{"ImportPath":"x/b [x/b.test]","Action":"build-fail"}
{"Action":"fail","Package":"x/b","Elapsed":0,"FailedBuild":"x/b [x/b.test]"}
{"Action":"skip","Package":"x/c","Elapsed":0}
{"Action":"pass","Package":"x/d","Elapsed":1.25}
`
	want := `FAIL x/a TestOne
=== RUN   TestOne
    a_test.go:5: got 1
FAIL x/a 0.5s
FAIL
go: a line of the go command
FAIL x/b 0.0s
b_test.go:3:1: syntax error
     x/c has no tests
ok   x/d 1.2s

SKIP x/a TestTwo: a_test.go:9: no server here
   12s go vet in .
    3s gofumpt
FAIL x/a TestOne
FAIL x/b
FAIL check gofumpt
1 passed, 2 failed, 1 skipped
`
	var out strings.Builder
	s := summary{out: &out, outputs: map[string]*strings.Builder{}}
	if err := s.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	if !s.end([]part{{"ok", "12", "go vet in ."}, {"FAILED", "3", "gofumpt"}}) {
		t.Error("nothing is bad")
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s.failed != 2 || s.passed != 1 || s.skipped != 1 {
		t.Errorf("counted %d, %d, %d", s.passed, s.failed, s.skipped)
	}
}

// A test that did not end, because time ran out, the process died or the stream broke
// off, is named with its package: the innermost one, and none that only waits for its turn.
func TestSummary_DidNotEnd(t *testing.T) {
	events := `{"Action":"start","Package":"x/a"}
{"Action":"run","Package":"x/a","Test":"TestOne"}
{"Action":"pass","Package":"x/a","Test":"TestOne","Elapsed":0}
{"Action":"run","Package":"x/a","Test":"TestLater"}
{"Action":"pause","Package":"x/a","Test":"TestLater"}
{"Action":"run","Package":"x/a","Test":"TestPar"}
{"Action":"pause","Package":"x/a","Test":"TestPar"}
{"Action":"run","Package":"x/a","Test":"TestSlow"}
{"Action":"run","Package":"x/a","Test":"TestSlow/sub"}
{"Action":"cont","Package":"x/a","Test":"TestPar"}
{"Action":"output","Package":"x/a","Test":"TestSlow/sub","Output":"panic: test timed out after 2s\n"}
{"Action":"output","Package":"x/a","Output":"FAIL\tx/a\t2.0s\n"}
{"Action":"fail","Package":"x/a","Elapsed":2}
{"Action":"start","Package":"x/b"}
{"Action":"run","Package":"x/b","Test":"TestFails"}
{"Action":"fail","Package":"x/b","Test":"TestFails","Elapsed":0}
{"Action":"run","Package":"x/b","Test":"TestHangs"}
{"Action":"fail","Package":"x/b","Elapsed":2}
{"Action":"start","Package":"x/c"}
{"Action":"run","Package":"x/c","Test":"TestCut"}
{"Action":"start","Package":"x/d"}
`
	want := `FAIL x/a TestSlow/sub: did not end
panic: test timed out after 2s
FAIL x/a TestPar: did not end
FAIL x/a 2.0s
FAIL	x/a	2.0s
FAIL x/b TestFails
FAIL x/b TestHangs: did not end
FAIL x/b 2.0s
FAIL x/c TestCut: did not end

FAIL x/a TestSlow/sub: did not end
FAIL x/a TestPar: did not end
FAIL x/b TestFails
FAIL x/b TestHangs: did not end
FAIL x/c TestCut: did not end
FAIL x/d: did not end
1 passed, 6 failed, 0 skipped
`
	var out strings.Builder
	s := summary{out: &out, outputs: map[string]*strings.Builder{}}
	if err := s.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	if !s.end(nil) {
		t.Error("nothing is bad")
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s.failed != 6 {
		t.Errorf("counted %d failures", s.failed)
	}
}

// Whatever is bad makes the command fail; what is good does not.
func TestSummary_Bad(t *testing.T) {
	for name, c := range map[string]struct {
		s    summary
		part part
		bad  bool
	}{
		"good":         {summary{passed: 1}, part{"ok", "1", "vet"}, false},
		"a test":       {summary{passed: 1, failed: 1}, part{"ok", "1", "vet"}, true},
		"a check":      {summary{passed: 1}, part{"FAILED", "1", "vet"}, true},
		"nothing done": {summary{skipped: 1}, part{"ok", "1", "vet"}, true},
	} {
		c.s.out = &strings.Builder{}
		if got := c.s.end([]part{c.part}); got != c.bad {
			t.Errorf("%s: bad is %v", name, got)
		}
	}
}
