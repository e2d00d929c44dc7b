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
FAIL x/a TestOne
FAIL x/b
FAIL check vet
1 passed, 2 failed, 1 skipped
`
	var out strings.Builder
	s := summary{out: &out, outputs: map[string]*strings.Builder{}}
	if err := s.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	s.end([]string{"vet"})
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s.failed != 2 || s.passed != 1 || s.skipped != 1 {
		t.Errorf("counted %d, %d, %d", s.passed, s.failed, s.skipped)
	}
}
