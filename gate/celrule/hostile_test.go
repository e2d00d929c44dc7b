package celrule_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/gate/celrule"
)

// maxAllocated is more than any decision may allocate, in bytes. Memory, and not
// time, is what is measured: it is the same on a busy machine, and what is never
// allocated is never walked through either.
const maxAllocated = 1 << 29

// judged judges by one condition, and holds it to what it may allocate.
func judged(t *testing.T, condition string, in gate.RuleInput) string {
	t.Helper()
	set, err := celrule.New([]celrule.Rule{when(condition)}, celrule.Options{})
	if err != nil {
		return "refused at load: " + err.Error()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := outcome(t, set, in)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > maxAllocated {
		t.Errorf("%.80s allocated %d MB", condition, n>>20)
	}
	return got
}

func chain(start, step string, times int) string {
	return start + strings.Repeat(step, times)
}

// TestRules_HostileConditions has conditions that would never end, or take all
// memory, if nothing bounded them.
func TestRules_HostileConditions(t *testing.T) {
	hundred := "[" + strings.TrimSuffix(strings.Repeat("1,", 150), ",") + "]"
	nested := func(depth int) string {
		s := "true"
		for i := range depth {
			s = fmt.Sprintf("%s.all(x%d, %s)", hundred, i, s)
		}
		return s
	}
	tests := []struct{ name, when, want string }{
		{"many loops", chain(`[1]`, `.map(a, a)`, 25) + ` == [1]`, "yes"},
		{"nested loops", nested(3), "error: the condition costs more than 2000000 units"},
		{"more nested loops", nested(4), "rules[0].when: column "},
		{"a text doubled", chain(`[args.s.substring(0, 5000)]`, `.map(a, a+a)`, 25) + `.size() == 1`, "error: the condition costs more"},
		{"an argument doubled", chain(`[args.s]`, `.map(a, a+a)`, 25) + `.size() == 1`, "error: the condition costs more"},
		{"a list doubled", chain(`[[1].map(x, args.list)[0]]`, `.map(a, a+a+a)`, 25) + `.size() == 1`, "error: a value has too many parts"},
		{"an argument's list doubled", chain(`[args.list]`, `.map(a, a+a)`, 25) + `.size() == 1`, "error: a value has too many parts"},
		{"pairs of pairs", chain(`[dyn(args.list)]`, `.map(a, [a, a, a, a])`, 25) + ` == args.list`, "error: a value has too many parts"},
		{"maps of maps", chain(`[dyn(args)]`, `.map(a, dyn({"a": a, "b": a, "c": a}))`, 25) + ` == [args]`, "error: a value has too many parts"},
		{"a heavy thing often", `args.list.map(x, args).map(x, args.list.map(y, args)).size() == 0`, "error: "},
		{"nothing replaced", `args.s.replace("", args.s).replace("", args.s).replace("", args.s) == "x"`, "error: a text would be longer"},
		{"joined", `args.list.map(x, args.s).join(args.s + args.s + args.s + args.s) == "x"`, "error: "},
		{"repeated repetition", `args.s.matches("((a{100}){100}){100}")`, "rules[0].when: column "},
		{"a large pattern", fmt.Sprintf(`args.s.matches("(%s)+$")`, strings.Repeat("a?", 400)), "error: "},
		{"a long pattern", fmt.Sprintf(`args.s.matches("%s")`, strings.Repeat("a", 2000)), "error: the condition costs more"},
		{"a pattern made", `args.s.substring(0, 9).matches(args.list.map(x, "(a?){100}").join())`, "rules[0].when: column 66: a regular expression must be a text"},
		{"division by zero", `1 / (args.zero) == 1`, "error: division by zero"},
		{"rest by zero", `1 % args.zero == 1`, "error: modulus by zero"},
		{"smallest integer negated", `-args.small > 0`, "error: integer overflow"},
		{"smallest integer divided", `args.small / -1 > 0`, "error: integer overflow"},
		{"a double too large for an int", `int(args.huge) > 0`, "error: integer overflow"},
		{"deep brackets", chain("", "(", 500) + "true" + chain("", ")", 500), "rules[0].when: "},
		{"deep lists", chain("", "[", 500) + chain("", "]", 500) + " == []", "rules[0].when: "},
		{"deep negation", chain("", "!", 5001) + "true", "no"},
		{"a long condition", "true" + chain("", " || true", 5000), "rules[0].when: "},
		{"many literals", "[" + chain("1", ",1", 4000) + "] == []", "no"},
		{"deep ternaries", chain("", "true ? ", 200) + "true" + chain("", ": false", 200), "rules[0].when: "},
		{"a list as a key", `{"a": true}[args.list]`, "error: "},
		{"a missing key that is heavy", chain(`[dyn(args.list)]`, `.map(a, [a, a, a])`, 6) + `.exists(x, {"a": 1}[dyn(x)] == 1)`, "error: "},
	}
	in := call(fmt.Sprintf(`{"s":%q,"list":[%s],"zero":0,"small":-9223372036854775808,"huge":1e300}`,
		strings.Repeat("a", 100_000), strings.TrimSuffix(strings.Repeat("1,", 1000), ",")))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := judged(t, tt.when, in)
			if got != tt.want && !strings.HasPrefix(got, tt.want) && !strings.HasPrefix(got, "refused at load: "+tt.want) {
				t.Errorf("%.80s: %.200s, want %s", tt.when, got, tt.want)
			}
		})
	}
}

// TestRules_HostileArguments has arguments that a harmless condition meets.
func TestRules_HostileArguments(t *testing.T) {
	keys := make(map[string]int, 10_000)
	for i := range 10_000 {
		keys[fmt.Sprintf("key_%d", i)] = i
	}
	encode := func(v any) string {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	megabyte := strings.Repeat("a", 1<<20)
	half := strings.Repeat("a", 1<<19)
	deep := strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000)
	sum := "args.l"
	for range 5 {
		sum = "(" + sum + " + " + sum + ")"
	}
	list := `{"l":[1` + strings.Repeat(",1", 100_000) + `]}`
	tests := []struct{ name, when, args, want string }{
		{"1 MB", `args.s.contains("needle")`, encode(map[string]string{"s": megabyte}), "no"},
		{"1 MB, pattern", `args.s.matches("(?i)password\\s*=")`, encode(map[string]string{"s": megabyte}), "no"},
		{"1 MB, a pattern that is too dear", `args.s.matches("(` + strings.Repeat("a?", 200) + `)b")`, encode(map[string]string{"s": megabyte}), "error: the condition costs more"},
		{"text in text", `args.s.indexOf(args.t) >= 0`, encode(map[string]string{"s": megabyte, "t": half + "b"}), "error: the condition costs more"},
		{"word in text", `args.s.indexOf(args.t) >= 0`, encode(map[string]string{"s": megabyte, "t": "needle"}), "no"},
		{"text in text from behind", `args.s.lastIndexOf(args.t) >= 0`, encode(map[string]string{"s": megabyte, "t": "b" + half}), "error: the condition costs more"},
		{"text in text, asked", `args.s.contains(args.t)`, encode(map[string]string{"s": megabyte, "t": half + "b" + half}), "no"},
		{"1 MB split", `args.s.split("").size() > 5`, encode(map[string]string{"s": megabyte}), "error: the condition costs more"},
		{"1 MB split once", `args.s.split("", 5).size() > 4`, encode(map[string]string{"s": megabyte}), "yes"},
		{"1 MB replaced", `args.s.replace("a", "aaaaaaaaaaa") == ""`, encode(map[string]string{"s": megabyte}), "error: a text would be longer"},
		{"10,000 keys", `args.exists(k, k == "key_9999")`, encode(keys), "yes"},
		{"10,000 keys, and each once more", `args.all(k, args.all(j, j != k + "x"))`, encode(keys), "error: the condition costs more"},
		{"the arguments with themselves", `args.all(k, args == args)`, encode(keys), "error: the condition costs more"},
		{"a list added to itself", sum + ` == args.l`, list, "error: a value has too many parts"},
		{"in a list added to itself", `2 in ` + sum, list, "error: a value has too many parts"},
		{"deep", `has(args.a.a.a)`, deep, "yes"},
		{"deep with itself", `args.a == args`, deep, "no"},
		{"deep, missing", `args.b == 1`, deep, "error: no such key: b"},
		{"a text too large for numbers", `int(args.s) == 1`, encode(map[string]string{"s": strings.Repeat("9", 1<<20)}), "error: "},
		{"no object", `args.x == 1`, `[1]`, "error: the arguments are not a JSON object"},
		{"null", `args.x == 1`, `null`, "error: the arguments are not a JSON object"},
		{"two objects", `args.x == 1`, `{"x":1}{"x":2}`, "error: the arguments: "},
		{"nothing", `args.x == 1`, ``, "error: the arguments: "},
		{"broken, and not looked at", `tool == "exec_shell"`, `{`, "yes"},
		{"5 MB", `args.x == 1`, `{"s":"` + strings.Repeat(megabyte, 5) + `"}`, "error: the arguments: longer than 4194304 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := judged(t, tt.when, call(tt.args))
			if got != tt.want && (!strings.HasPrefix(tt.want, "error") || !strings.HasPrefix(got, tt.want)) {
				t.Errorf("%s: %.200s, want %s", tt.when, got, tt.want)
			}
			if len(got) > 500 {
				t.Errorf("the error has %d bytes", len(got))
			}
		})
	}
}

// TestRules_CostOfAllRules has rules that each may cost what they do, and together
// may not.
func TestRules_CostOfAllRules(t *testing.T) {
	loop := `args.list.all(x, args.list.all(y, y < 10))`
	var rules []celrule.Rule
	for i := range 10 {
		rules = append(rules, celrule.Rule{Name: fmt.Sprint("r", i), When: "!" + loop, Then: gate.RuleAsk})
	}
	args := fmt.Sprintf(`{"list":[%s]}`, strings.TrimSuffix(strings.Repeat("1,", 400), ","))
	if got := outcome(t, compile(t, when(loop)), call(args)); got != "yes" {
		t.Fatalf("one rule: %s", got)
	}
	matches := compile(t, rules...).Judge(t.Context(), call(args))
	if len(matches) == 0 || len(matches) == 10 {
		t.Fatalf("%d of 10 rules failed", len(matches))
	}
	for _, m := range matches {
		if m.Err == nil || !strings.Contains(m.Err.Error(), "cost too much together") {
			t.Errorf("%s: %v", m.Name, m.Err)
		}
	}
}

// TestRules_ContextEnded refuses to say anything after the end.
func TestRules_ContextEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	set := compile(t, when(`false`), celrule.Rule{Name: "always", Then: gate.RuleAllow})
	matches := set.Judge(ctx, call(`{}`))
	if len(matches) != 2 || matches[0].Err == nil || matches[1].Err == nil {
		t.Fatalf("%+v", matches)
	}
}

// TestRules_ContextEndsLoop has a context that ends between the beginning of the
// decision and the loop, which then does not go on to its end.
func TestRules_ContextEndsLoop(t *testing.T) {
	ctx := &endsLater{Context: t.Context(), done: make(chan struct{})}
	set := compile(t, when(`args.list.all(x, args.list.all(y, y < 10))`))
	args := fmt.Sprintf(`{"list":[%s]}`, strings.TrimSuffix(strings.Repeat("1,", 400), ","))
	matches := set.Judge(ctx, call(args))
	if len(matches) != 1 || matches[0].Err == nil || !strings.Contains(matches[0].Err.Error(), "context canceled") {
		t.Fatalf("%+v", matches)
	}
}

// endsLater is a context that has ended for all who ask but the first.
type endsLater struct {
	context.Context
	done  chan struct{}
	asked bool
}

func (e *endsLater) Err() error {
	if !e.asked {
		e.asked = true
		close(e.done)
		return nil
	}
	return context.Canceled
}

func (e *endsLater) Done() <-chan struct{} { return e.done }

// TestRules_NobodyAndNothing judges by facts that are all zero.
func TestRules_NobodyAndNothing(t *testing.T) {
	set := compile(t, when(`user == "" && !admin && size(roles) == 0 && size(groups) == 0 && trust == "unknown" &&
		effect == "non_idempotent_write" && size(targets) == 0 && !tainted && tool == ""`))
	if got := outcome(t, set, gate.RuleInput{}); got != "yes" {
		t.Error(got)
	}
	for _, none := range []*celrule.Set{nil, {}} {
		if m := none.Judge(t.Context(), call(`{}`)); m != nil || len(none.About("x")) > 0 || none.Warnings() != nil {
			t.Errorf("no rules: %v", m)
		}
	}
	bad := compile(t, when(`trust == "anchor"`))
	if got := outcome(t, bad, gate.RuleInput{Who: &toolcrib.Principal{Trust: "Anchor"}}); got != "no" {
		t.Errorf("a level of trust that does not exist: %s", got)
	}
}
