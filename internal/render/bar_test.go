package render

import (
	"math"
	"testing"
	"unicode/utf8"
)

func TestN6_Bar(t *testing.T) {
	for _, k := range []struct {
		value, most float64
		want        string
	}{
		{0, 10, ""},
		{10, 10, "████"},
		{5, 10, "██"},
		{1, 1000, "▏"},
		{99, 10, "████"},
		{-1, 10, ""},
		{1, 0, ""},
		{math.NaN(), 1, ""},
		{math.Inf(1), 1, "████"},
		{3, 32, "▍"},
	} {
		if got := Bar(k.value, k.most, 4); got != k.want {
			t.Errorf("%v of %v: %q, want %q", k.value, k.most, got, k.want)
		}
	}
	for i := range 1000 {
		if n := utf8.RuneCountInString(Bar(float64(i), 999, 20)); n > 20 {
			t.Fatalf("%d: %d columns", i, n)
		}
	}
}
