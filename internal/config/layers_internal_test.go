package config

import (
	"flag"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/yamltree"
)

var update = flag.Bool("update", false, "rewrite testdata/layers.txt")

// Each key has a rule for two files that both have it: testdata/layers.txt is the whole table, so that
// a new key is there only once somebody has decided how it is combined.
func TestN5_EachKeyHasALayerRule(t *testing.T) {
	known := []string{
		layerNearest, layerKeys, layerUser, layerWhole, layerLeast, layerCap, layerAll, layerBoth, layerWidens, layerRules,
		layerBudgets, layerCommand, layerNetwork,
	}
	var lines []string
	var walk func(key string, f yamltree.Field)
	walk = func(key string, f yamltree.Field) {
		rule := layerRule(f)
		if order := strings.Split(rule, "|"); len(order) > 1 {
			enum := f.Enum
			if enum == nil {
				enum = []string{"true", "false"}
			}
			if a, b := slices.Sorted(slices.Values(order)), slices.Sorted(slices.Values(enum)); !slices.Equal(a, b) {
				t.Errorf("%s: the order %q has other values than %q", key, order, enum)
			}
		} else if !slices.Contains(known, rule) {
			t.Errorf("%s: unknown rule %s", key, rule)
		}
		lines = append(lines, key+" "+rule)
		switch f.Type.Kind() {
		case reflect.Map:
			walk(key+".*", f.Inner())
		case reflect.Struct:
			if rule != layerKeys && rule != layerWhole && rule != layerCommand {
				return
			}
			for _, one := range yamltree.Fields(f.Type) {
				walk(key+"."+one.Key, one)
			}
		}
	}
	for _, f := range yamltree.Fields(reflect.TypeFor[Config]()) {
		walk(f.Key, f)
	}
	got := strings.Join(lines, "\n") + "\n"
	file := path.Join("testdata", "layers.txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != got {
		t.Errorf("%v; %s differs from the tags of Config; decide on each new key, then run with -update:\n%s", err, file, got)
	}
}

// The overlap of two patterns of tools matches exactly the names that both match.
func TestN5_OverlapOfPatterns(t *testing.T) {
	patterns := []string{"a", "ab", "*", "a*", "*a", "*b", "a?", "?b", "*a*", "*b*", "a*b", "b*a", "??", "a**", "*?a", "ab*ba", "*aba*"}
	var names []string
	for n := range 1 << 7 {
		name := ""
		for ; n > 1; n >>= 1 {
			name += string("ab"[n&1])
		}
		if name != "" {
			names = append(names, name)
		}
	}
	for _, a := range patterns {
		for _, b := range patterns {
			all := overlap(a, b, map[[2]string][]string{})
			for _, name := range names {
				want := gate.Match(a, name) && gate.Match(b, name)
				if got := slices.ContainsFunc(all, func(p string) bool { return gate.Match(p, name) }); got != want {
					t.Errorf("%s and %s: %q match %s: %t", a, b, all, name, got)
				}
			}
		}
	}
	long := strings.Repeat("a*", 127)
	if all := overlap(long, "*", map[[2]string][]string{}); len(all) > 0 || len(overlap(long, long, map[[2]string][]string{})) != 1 {
		t.Errorf("a long pattern matches %q", all)
	}
	if all := overlap("*a*a*a*", "*b*b*b*", map[[2]string][]string{}); len(all) != 20 {
		t.Errorf("%d patterns: %q", len(all), all)
	}
}
