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
   12s go vet in .
FAIL check gofumpt
`
	want := `FAIL x/a TestOne
=== RUN   TestOne
    a_test.go:5: got 1
FAIL
go: a line of the go command
FAIL x/b
b_test.go:3:1: syntax error
     x/c has no tests
ok   x/d 1.2s
   12s go vet in .
FAIL check gofumpt

SKIP x/a TestTwo: a_test.go:9: no server here
FAIL x/a TestOne
FAIL x/b
FAIL check gofumpt
1 passed, 3 failed, 1 skipped
`
	var out strings.Builder
	s := summary{out: &out}
	if err := s.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	if !s.end() {
		t.Error("nothing is bad")
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A package whose tests did not end, because time ran out, the process died or the stream broke
// off, fails, with what they wrote.
func TestSummary_DidNotEnd(t *testing.T) {
	events := `{"Action":"start","Package":"x/a"}
{"Action":"pass","Package":"x/a","Test":"TestOne","Elapsed":0}
{"Action":"output","Package":"x/a","Test":"TestSlow/sub","Output":"panic: test timed out after 2s\n"}
{"Action":"output","Package":"x/a","Output":"FAIL\tx/a\t2.0s\n"}
{"Action":"fail","Package":"x/a","Elapsed":2}
{"Action":"start","Package":"x/b"}
{"Action":"fail","Package":"x/b","Test":"TestFails","Elapsed":0}
{"Action":"output","Package":"x/b","Test":"TestHangs","Output":"=== RUN   TestHangs\n"}
{"Action":"fail","Package":"x/b","Elapsed":2}
{"Action":"start","Package":"x/c"}
{"Action":"output","Package":"x/c","Test":"TestCut","Output":"=== RUN   TestCut\n"}
`
	want := `FAIL x/a
FAIL	x/a	2.0s
panic: test timed out after 2s
FAIL x/b TestFails
=== RUN   TestHangs
FAIL x/c
=== RUN   TestCut

FAIL x/a
FAIL x/b TestFails
FAIL x/c
1 passed, 3 failed, 0 skipped
`
	var out strings.Builder
	s := summary{out: &out}
	if err := s.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	if !s.end() {
		t.Error("nothing is bad")
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever is bad makes the command fail; what is good does not.
func TestSummary_Bad(t *testing.T) {
	for name, c := range map[string]struct {
		s   summary
		bad bool
	}{
		"good":         {summary{passed: 1}, false},
		"a test":       {summary{passed: 1, failed: 1}, true},
		"nothing done": {summary{skipped: 1}, true},
	} {
		c.s.out = &strings.Builder{}
		if got := c.s.end(); got != c.bad {
			t.Errorf("%s: bad is %v", name, got)
		}
	}
}
