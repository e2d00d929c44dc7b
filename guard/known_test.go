package guard

import (
	"strings"
	"testing"
)

// A canonical text is read again with the same result, and under the limits of that reading.
func TestArguments_ReadAgain(t *testing.T) {
	deep := strings.Repeat("[", 20) + strings.Repeat("]", 20)
	for _, text := range []string{`{"a":1,"b":"x"}`, `{"b":"x", "a":1}`, `{"a":` + deep + `}`} {
		canonical, err := Arguments([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		again, value, err := ReadArguments(canonical)
		if err != nil || string(again) != string(canonical) || value == nil {
			t.Errorf("%s again: %s, %v, %v", canonical, again, value, err)
		}
	}
	if _, err := Arguments([]byte(`{"a":` + deep + `}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := (JSONLimits{MaxDepth: 10}).Canonical([]byte(`{"a":` + deep + `}`)); err == nil {
		t.Error("what was read under other limits passes these")
	}
	// Output before a failure is not such a text.
	for _, text := range []string{`{"a":1e1000}`, `{"a":`, `{"a":1}{`, `{"a":1`} {
		if got, err := Arguments([]byte(text)); err == nil {
			t.Errorf("%s gives %s", text, got)
		}
	}
}
