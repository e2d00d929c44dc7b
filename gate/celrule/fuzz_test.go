package celrule_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/gate/celrule"
)

// FuzzRules compiles any text as a condition, and judges any arguments by it.
func FuzzRules(f *testing.F) {
	for _, c := range conditions() {
		f.Add(c, `{"n":1,"z":0,"s":"ab","list":[1,2]}`)
	}
	for _, c := range []string{
		`args.files.exists(f, f.startsWith("/etc"))`, `args.a.b[0].?c.orValue(1) in [1, 2.0, "x"]`, `targets.exists(t, t.write && t.name.endsWith(".go"))`,
		`args.s.split(",").map(x, x.trim().lowerAscii()).filter(x, x != "").join("-").replace("a", "b").matches("[a-z]*")`,
		`[args.list].map(a, a + a).map(a, [a, a]) == args.list`, `args.s.substring(1, 2) + args.s.charAt(0) > "x" ? true : 1 / args.z == -args.n % 2`,
		`timestamp(args.s) + duration("1h") > timestamp("2026-01-01T00:00:00Z")`, `optional.of(args).optMap(v, v.n).orValue(3) == 3`,
		`{"a": args, "b": {1: [dyn(null)]}}[args.s].n == 1u`, "tool\n==\t'x' // comment", `b"\xff" + bytes(args.s) == b''`, `Target{name: args.s}.name == r"\d"`,
	} {
		f.Add(c, `{"n":1e3,"s":"a,B , c","list":[[1],{"a":null}],"a":{"b":[{"c":2}]}}`)
	}
	f.Fuzz(func(t *testing.T, condition, arguments string) {
		rule := celrule.Rule{Name: "r", When: condition, Then: gate.RuleAsk, Position: "c.yaml:1"}
		set, err := celrule.New([]celrule.Rule{rule}, celrule.Options{})
		if err != nil {
			text := err.Error()
			if set != nil || text == "" || len(text) > 20_000 || strings.ContainsFunc(strings.ReplaceAll(text, "\n", ""), unicode.IsControl) {
				t.Fatalf("%q", text)
			}
			for line := range strings.Lines(text) {
				if !strings.HasPrefix(line, "c.yaml:") {
					t.Fatalf("%q", text)
				}
			}
			return
		}
		first := set.Judge(t.Context(), call(arguments))
		if len(first) > 1 {
			t.Fatalf("%d matches", len(first))
		}
		second := set.Judge(t.Context(), call(arguments))
		if len(first) != len(second) || len(first) == 1 && (first[0].Err == nil) != (second[0].Err == nil) {
			t.Fatalf("%v, then %v", first, second)
		}
		if len(first) == 1 && first[0].Err != nil && len(first[0].Err.Error()) > 1000 {
			t.Fatalf("%v", first[0].Err)
		}
	})
}
