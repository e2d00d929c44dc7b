package celrule

import (
	"encoding/json"
	"testing"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/toolcrib/toolcrib/guard"
)

// FuzzArguments reads any bytes: input is refused exactly if it is not an object, or the strict reader
// refuses it.
func FuzzArguments(f *testing.F) {
	for _, s := range []string{`{}`, ` {"a" : [1, -2.5e3, "x\n\u00e9\ud83d\ude00", true, false, null, {}, [] ] } `, `{"a":"\"\\"}`, `{"a":"` + "\xff" + `"}`, `[1]`, `null`, `{"a":1}{`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := arguments(raw)
		var want map[string]any
		_, strict := guard.JSONLimits{MaxBytes: maxArguments, MaxDepth: maxArgumentsDepth}.Canonical(raw)
		if wrong := json.Unmarshal(raw, &want); (err != nil) != (want == nil || strict != nil) {
			t.Fatalf("%q: %v, and for the standard library %v", raw, err, wrong)
		}
		if err == nil && got.(interface{ Size() ref.Val }).Size() != types.Int(len(want)) {
			t.Fatalf("%q: %v members, want %d", raw, got, len(want))
		}
	})
}

func TestSome(t *testing.T) {
	if got, want := some([]string{"a", "b", "c", "d"}), "a, b, c and 1 more tool"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
