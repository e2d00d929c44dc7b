package guard

import "testing"

// An integer has one canonical form: the same
// canonical JSON is validated, shown, digested, journaled and executed.
func TestAppendNumber(t *testing.T) {
	for in, want := range map[string]string{
		"1": "1", "1.0": "1", "1e0": "1", "1E2": "100", "1e+2": "100", "100e-2": "1", "-1.0": "-1", "-0": "0", "-0.0": "0", "0e9": "0",
		"1.5": "1.5", "15e-1": "15e-1", "1.50": "1.50", "150.0e-1": "15", "123456789012345678.0": "123456789012345678",
		"1234567890123456789.0": "1234567890123456789.0", "1e400": "1e400", "1e18": "1e18", "1e17": "100000000000000000",
		"12345678901234567890": "12345678901234567890", "0.000": "0", "2.50e1": "25",
	} {
		if got := string(appendNumber(nil, []byte(in))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
		if got, err := Canonical([]byte(in)); err != nil && in != "1e400" || err == nil && string(got) != want {
			t.Errorf("Canonical(%s): %s %v, want %s", in, got, err, want)
		}
	}
}
