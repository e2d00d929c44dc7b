package config_test

import (
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
)

// An agent without limits in the configuration has those of a program that sets none: the two lists of defaults are
// the same.
func TestLimits_DefaultsAreThoseOfTheLibrary(t *testing.T) {
	a, err := config.Default().Agent(config.DefaultAgent, config.Resolver{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := a.Limits.WithDefaults(), toolcrib.DefaultLimits(); got != want {
		t.Errorf("the configuration has %+v, and the library %+v", got, want)
	}
}
