package shell

import (
	"testing"

	"github.com/toolcrib/toolcrib"
)

// Argvs returns what a call would start: the path of each program and its
// arguments.
func Argvs(t testing.TB, made toolcrib.Tool, call toolcrib.Call) [][]string {
	t.Helper()
	p, err := made.(*shell).plan(call)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	var all [][]string
	for _, s := range p.steps {
		for _, c := range s.Commands {
			all = append(all, append([]string{c.Path}, c.Args...))
		}
	}
	return all
}
