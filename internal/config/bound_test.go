package config_test

import (
	"testing"

	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/tool/bound"
)

// Each predefined tool of the bus, and nothing else, can be in the default set.
func TestH22_DefaultSet(t *testing.T) {
	for _, o := range bound.Predefined(nil) {
		if _, err := config.Parse("t.yaml", []byte("tools: {default_set: ["+o.Name+"]}")); err != nil {
			t.Errorf("%s: %v", o.Name, err)
		}
	}
	if _, err := config.Parse("t.yaml", []byte("tools: {default_set: [read_file]}")); err == nil {
		t.Error("read_file is not refused")
	}
}

// H19: the form of a token for another node is checked with the configuration, unless it comes from elsewhere.
func TestH19_TokenOfABoundTool(t *testing.T) {
	for token, good := range map[string]bool{
		"hntoken://v1/a.b.c": true, "${secret:there}": true, "${file:token.txt}": true, "": true,
		"hntoken://v1/a.b": false, "tctoken://v1/a.b.c": false, "there": false,
	} {
		_, err := config.Parse("t.yaml", []byte("tools: {bound: {x: {capability: a.b@1.0, token: '"+token+"'}}}"))
		if want := `t.yaml:1: tools.bound.x.token: must be a token of another node, which begins with hntoken://v1/`; (err == nil) != good ||
			err != nil && err.Error() != want {
			t.Errorf("%q: %v", token, err)
		}
	}
}
