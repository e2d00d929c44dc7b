package plan_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/plan"
)

func TestPlan(t *testing.T) {
	for _, c := range []struct{ name, arguments, want, wrong string }{
		{"steps", `{"steps":[{"step":"read","status":"done"},{"step":"a\n b","status":"in_progress"},{"step":"c"},{"step":"d","status":"completed"}]}`, "[x] read\n[>] a b\n[ ] c\n[x] d", ""},
		{"none", `{"steps":[]}`, "", "1 to 40 steps"},
		{"too many", `{"steps":[` + strings.Repeat(`{"step":"x"},`, 40) + `{"step":"x"}]}`, "", "1 to 40 steps, not 41"},
		{"unknown status", `{"steps":[{"step":"x","status":"perhaps"}]}`, "", "step 1 needs"},
		{"blank", `{"steps":[{"step":"x"},{"step":" \n"}]}`, "", "step 2 needs"},
		{"long", `{"steps":[{"step":"` + strings.Repeat("x", 2000) + `"}]}`, "", "step 1 needs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := plan.New().Call(t.Context(), toolcrib.Call{ID: "1", Name: plan.Name, Arguments: json.RawMessage(c.arguments)})
			if c.wrong == "" && (err != nil || out.Text != c.want) {
				t.Fatalf("%q, %v, want %q", out.Text, err, c.want)
			}
			if c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
				t.Fatalf("%v, want %q", err, c.wrong)
			}
		})
	}
	if s := plan.New().Spec(); s.Effect != toolcrib.EffectReadOnly || s.Source != "builtin" || len(s.Parameters)+len(s.Description) > 500 {
		t.Fatalf("%+v", s)
	}
}
