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
