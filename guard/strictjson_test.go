package guard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func sorted(keys []string) []string {
	slices.Sort(keys)
	return keys
}

func TestN13_EmptyArgumentsAreAnObject(t *testing.T) {
	for _, raw := range []string{"", " ", "\r\n\t ", "{}", " { \n} "} {
		got, err := Arguments([]byte(raw))
		if err != nil || string(got) != "{}" {
			t.Errorf("Arguments(%q) = %s, %v; want {}", raw, got, err)
		}
	}
	if got, err := Arguments(nil); err != nil || string(got) != "{}" {
		t.Errorf("Arguments(nil) = %s, %v", got, err)
	}
}

func TestArgumentsCanonicalForm(t *testing.T) {
	for _, c := range []struct{ raw, want string }{
		{`{"b":1,"a":2}`, `{"a":2,"b":1}`},
		{` {"a" : [ 1 , 2 ] , "b" : { } } `, `{"a":[1,2],"b":{}}`},
		{`{"z":{"y":1,"x":[{"b":1,"a":2}]},"a":[]}`, `{"a":[],"z":{"x":[{"a":2,"b":1}],"y":1}}`},
		{`{"a":"\u0041\/\u003c<>&"}`, `{"a":"A/<<>&"}`},
		{`{"a":"\u000a\u0008\u000c\u000d\u0009\u0022\u005c\u001F\u007f"}`, `{"a":"\n\b\f\r\t\"\\\u001f\u007f"}`},
		{"{\"a\":\"\u202e\u0085\"}", `{"a":"\u202e\u0085"}`},
		{`{"a":"\uD83D\uDE00"}`, `{"a":"😀"}`},
		{`{"a":"` + "\u2028" + `"}`, `{"a":"\u2028"}`},
		{`{"a":1.0,"b":1e400,"c":-0,"d":12345678901234567890,"e":1E+2}`, `{"a":1,"b":1e400,"c":0,"d":12345678901234567890,"e":100}`},
		{`{"é":1,"z":2,"":3,"\n":4}`, `{"":3,"\n":4,"z":2,"é":1}`},
		{`{"a":null,"b":true,"c":false}`, `{"a":null,"b":true,"c":false}`},
	} {
		got, err := Arguments([]byte(c.raw))
		if err != nil || string(got) != c.want {
			t.Errorf("Arguments(%s)\n got %s, %v\nwant %s", c.raw, got, err, c.want)
		}
	}
}

func TestArgumentsErrors(t *testing.T) {
	many := strings.Builder{}
	for i := range 40 {
		fmt.Fprintf(&many, `"key%d":1,`, i)
	}
	for _, c := range []struct {
		raw, what, pointer string
		offset             int
	}{
		{`[1]`, "expected one JSON object, found an array", "", 0},
		{` "a"`, "expected one JSON object, found a string", "", 1},
		{`null`, "expected one JSON object, found null", "", 0},
		{`-1`, "expected one JSON object, found a number", "", 0},
		{`true`, "expected one JSON object, found true or false", "", 0},
		{`hello`, "expected one JSON object, found an unquoted word, which is not JSON", "", 0},
		{"\ufeff{}", "expected one JSON object, found no JSON", "", 0},
		{`{"a":1}{"b":2}`, "nothing may follow", "", 7},
		{`{} x`, "nothing may follow", "", 3},
		{`{"a":1,}`, "invalid character ','", "", 6},
		{`{"a":[1,]}`, "invalid character ','", "/a", 7},
		{`{"a" 1}`, "invalid character '1' after object name (expecting ':')", "/a", 5},
		{`{"a":1 "b":2}`, "(expecting ',' or '}')", "", 7},
		{`{"a":[1 2]}`, "(expecting ',' or ']')", "/a", 8},
		{`{"a":`, "the text ends too early", "/a", 5},
		{`{"a":tru}`, "in literal true (expecting 'e')", "/a", 8},
		{`{"a":'x'}`, `invalid character '\''`, "/a", 5},
		{`{'a':1}`, `invalid character '\'' at start of value; keys and texts need double quotes`, "", 1},
		{`{"a":"x`, "the text ends too early", "/a", 7},
		{`{"a":"\x"}`, "invalid escape", "/a", 6},
		{`{"a":"\u12G4"}`, "invalid escape", "/a", 6},
		{`{"a":"\u00"}`, "invalid escape", "/a", 6},
		{"{\"a\":\"x\ny\"}", `invalid character '\n' in string`, "/a", 7},
		{"{\"a\":\"\xff\"}", "invalid UTF-8", "/a", 6},
		{"{\"a\":\"\xed\xa0\x80\"}", "invalid UTF-8", "/a", 6},
		{"{\"a\xc0\":1}", "invalid UTF-8", "", 3},
		{`{"a":"\ud83d"}`, "invalid surrogate pair", "/a", 6},
		{`{"a":"\ude00\ud83d"}`, "invalid surrogate pair", "/a", 6},
		{`{"a":"\ud83d\u0041"}`, "invalid surrogate pair", "/a", 6},
		{`{"a":01}`, "(expecting ',' or '}')", "", 6},
		{`{"a":-}`, "in number (expecting digit)", "/a", 6},
		{`{"a":1.}`, "in number (expecting digit)", "/a", 7},
		{`{"a":1e}`, "in number (expecting digit)", "/a", 7},
		{`{"a":+1}`, "invalid character '+' at start of value", "/a", 5},
		{`{"a":.5}`, "invalid character '.' at start of value", "/a", 5},
		{`{"a":NaN}`, "invalid character 'N' at start of value", "/a", 5},
		{`{"a":1e1000}`, "number with an exponent beyond 999", "/a", 5},
		{`{"a":1e-99999999999999999999}`, "number with an exponent beyond 999", "/a", 5},
		{`{"a":1` + strings.Repeat("0", 256) + `}`, "number longer than 256 bytes", "/a", 5},
		{`{"a":1,"a":2}`, `duplicate key "a"`, "", 7},
		{`{"a":1,"\u0061":2}`, `duplicate key "a"`, "", 7},
		{`{"x":[0,{"a":1,"b":2,"a":3}]}`, `duplicate key "a"`, "/x/1", 21},
		{`{"path":1,"Path":2}`, `keys "path" and "Path" differ only in letter case`, "", 10},
		{`{"k":1,"` + "\u212a" + `":2}`, `differ only in letter case`, "", 7},
		{`{"s":1,"\u017f":2}`, `differ only in letter case`, "", 7},
		{`{"ΣΑΣ":1,"σας":2}`, `differ only in letter case`, "", 12},
		{`{` + many.String() + `"key7":2}`, `duplicate key "key7"`, "", 391},
		{`{` + many.String() + `"KEY7":2}`, `keys "key7" and "KEY7" differ only in letter case`, "", 391},
		{`{` + many.String() + `"` + "\u212a" + `ey7":2}`, `differ only in letter case`, "", 391},
		{`{"a/b~c":{"d":?}}`, "invalid character '?'", "/a~1b~0c/d", 14},
		{`{"a":{"Ax":1,"b":{"c":[[{"d":"` + "\x01" + `"}]]}}}`, "invalid character '\\x01' in string", "/a/b/c/0/0/d", 30},
	} {
		got, err := Arguments([]byte(c.raw))
		var ae *ArgumentError
		if !errors.As(err, &ae) {
			t.Errorf("Arguments(%q) = %s, %v; want an error", c.raw, got, err)
			continue
		}
		if got != nil || !strings.Contains(ae.What, c.what) || ae.Pointer != c.pointer || ae.Offset != c.offset {
			t.Errorf("Arguments(%q): %q at %q byte %d; want %q at %q byte %d", c.raw, ae.What, ae.Pointer, ae.Offset, c.what, c.pointer, c.offset)
		}
		if strings.HasPrefix(err.Error(), "invalid_arguments") {
			t.Errorf("%q brings the gate's own beginning", err)
		}
	}
}

// The error for a text that is not an object describes the actual value, not the one that
// its first letter suggests.
func TestC10_ArgumentsNamesWhatIsThere(t *testing.T) {
	const noObject = "expected one JSON object, found "
	const word = noObject + "an unquoted word, which is not JSON (byte 0)"
	for raw, want := range map[string]string{
		"n": word, "nul": word, "nullx": word, "null_": word, "null1": word, "tru": word, "truer": word, "f": word, "notjson": word, "None": word, "NaN": word, "été": word, "nullé": word,
		"null":                    noObject + "null (byte 0)",
		" null ":                  noObject + "null (byte 1)",
		"true":                    noObject + "true or false (byte 0)",
		"false\n":                 noObject + "true or false (byte 0)",
		"null null":               noObject + "null with more after it (byte 0)",
		"null-x":                  noObject + "null with more after it (byte 0)",
		"'a'":                     noObject + "no JSON but a text in single quotes (byte 0)",
		"{a:1}":                   "invalid character 'a' at start of value (byte 1)",
		"[1":                      noObject + "an array that cannot be read: the text ends too early (byte 0)",
		"[1]":                     noObject + "an array (byte 0)",
		"[1] [2]":                 noObject + "an array with more after it (byte 0)",
		`{"a":1,}`:                "invalid character ',' at start of value (byte 6)",
		`"x`:                      noObject + "a string that cannot be read: the text ends too early (byte 0)",
		`"x"`:                     noObject + "a string (byte 0)",
		`"x" y`:                   noObject + "a string with more after it (byte 0)",
		"1 2":                     noObject + "a number with more after it (byte 0)",
		"1x":                      noObject + "a number with more after it (byte 0)",
		"-":                       noObject + "a number that cannot be read: the text ends too early (byte 0)",
		"-1.5e3":                  noObject + "a number (byte 0)",
		"\xff":                    noObject + "no JSON (byte 0)",
		"<a>":                     noObject + "no JSON (byte 0)",
		`{"a":nullx}`:             "invalid character 'x' after object value (expecting ',' or '}') (byte 9)",
		`{"a":n}`:                 "invalid character '}' in literal null (expecting 'u') (at /a, byte 6)",
		`{"a":falsey}`:            "invalid character 'y' after object value (expecting ',' or '}') (byte 10)",
		strings.Repeat("[", 2000): noObject + "an array that cannot be read: the text ends too early (byte 0)",
	} {
		if _, err := Arguments([]byte(raw)); err == nil || err.Error() != want {
			t.Errorf("Arguments(%.40q): %v; want %q", raw, err, want)
		}
	}
}

// Keys that look alike but are not equal under simple folding are
// different keys.
func TestArgumentsDistinctKeys(t *testing.T) {
	for _, raw := range []string{`{"a":{"b":1},"b":{"B":1}}`, `{"ı":1,"i":2}`, `{"ß":1,"ss":2}`, `{"a":1,"а":2}`, `{"\u00e9":1,"e\u0301":2}`} {
		if _, err := Arguments([]byte(raw)); err != nil {
			t.Errorf("Arguments(%s): %v", raw, err)
		}
	}
}

func TestArgumentsBounds(t *testing.T) {
	nested := func(n int) []byte {
		return []byte(strings.Repeat(`{"a":`, n-1) + "{}" + strings.Repeat("}", n-1))
	}
	if _, err := Arguments(nested(MaxArgumentsDepth)); err != nil {
		t.Errorf("depth %d: %v", MaxArgumentsDepth, err)
	}
	if _, err := Arguments(nested(MaxArgumentsDepth + 1)); err == nil || !strings.Contains(err.Error(), "nested deeper than 64 levels") || len(err.Error()) > 512 {
		t.Errorf("depth %d: %v", MaxArgumentsDepth+1, err)
	}
	long := func(n int) []byte { return []byte(`{"a":"` + strings.Repeat("x", n-8) + `"}`) }
	if _, err := Arguments(long(MaxArgumentsBytes)); err != nil {
		t.Errorf("%d bytes: %v", MaxArgumentsBytes, err)
	}
	for _, raw := range [][]byte{long(MaxArgumentsBytes + 1), bytes.Repeat([]byte(" "), MaxArgumentsBytes+1), bytes.Repeat([]byte("["), MaxArgumentsBytes+1)} {
		if _, err := Arguments(raw); err == nil || !strings.Contains(err.Error(), "longer than 1048576 bytes") {
			t.Errorf("%d bytes: %v", len(raw), err)
		}
	}
	for _, exponent := range []int{maxExponent + 1, -maxExponent - 1, math.MaxInt, math.MinInt} {
		if _, err := Arguments(fmt.Appendf(nil, `{"a":1e%d}`, exponent)); err == nil || !strings.Contains(err.Error(), "exponent beyond") {
			t.Errorf("exponent %d: %v", exponent, err)
		}
	}
	if _, err := (JSONLimits{MaxBytes: 4, MaxDepth: 1}).Canonical([]byte("[[]]")); err == nil {
		t.Error("a limit of depth is ignored")
	}
	if _, err := (JSONLimits{MaxBytes: 3}).Canonical([]byte("[[]]")); err == nil {
		t.Error("a limit of bytes is ignored")
	}
	if _, err := (JSONLimits{MaxBytes: 1 << 22, MaxDepth: 1 << 30}).Canonical(bytes.Repeat([]byte("["), 1<<22)); err == nil {
		t.Error("depth is not bounded")
	}
}

func TestArgumentErrorIsShortAndShowsNoHiddenText(t *testing.T) {
	key := strings.Repeat("k", 10_000)
	_, err := Arguments([]byte(`{"` + key + `":1,"` + key + `":2}`))
	if err == nil || len(err.Error()) > 512 {
		t.Errorf("error of %d bytes", len(err.Error()))
	}
	_, err = Arguments([]byte(`{"a\u001b[2J\u202e/":{"` + key + `":[[[?]]]}}`))
	if err == nil || len(err.Error()) > 512 || strings.ContainsAny(err.Error(), "\x1b\u202e") {
		t.Errorf("%q", err)
	}
}

func TestCanonicalAnyValue(t *testing.T) {
	for raw, want := range map[string]string{` [ 1, {"b":1,"a":"\u0061"} ] `: `[1,{"a":"a","b":1}]`, `"x"`: `"x"`, " null\n": "null", "0": "0"} {
		if got, err := Canonical([]byte(raw)); err != nil || string(got) != want {
			t.Errorf("Canonical(%s) = %s, %v; want %s", raw, got, err, want)
		}
	}
	for _, raw := range []string{"", "  ", "{", `{"a":1,"A":2}`, "nul", "1 2"} {
		if got, err := Canonical([]byte(raw)); err == nil {
			t.Errorf("Canonical(%q) = %s", raw, got)
		}
	}
}

// All spellings of a value have one canonical form, which is
// that of encoding/json.
func TestCanonicalProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := any(drawObject(t, 3, rapid.IntRange(0, 24).Draw(t, "size")))
		raw := spell(t, value)
		before := strings.Clone(raw)
		got, err := Arguments([]byte(raw))
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		plain := oracle(oneSpelling(value))
		if want := string(EscapeJSON([]byte(plain))); string(got) != want {
			t.Fatalf("%q\n got %s\nwant %s", raw, got, want)
		}
		if raw != before {
			t.Fatal("the input was changed")
		}
		again, err := Arguments(got)
		if err != nil || !bytes.Equal(again, got) || &again[0] != &got[0] && string(got) == plain {
			t.Fatalf("canonical text is not returned itself: %s, %v", again, err)
		}
	})
}

// Accepted text is JSON, and text that is not JSON is rejected.
func TestCanonicalRejectsDamage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := []byte(spell(t, drawObject(t, 2, 4)))
		for range rapid.IntRange(1, 3).Draw(t, "faults") {
			at := rapid.IntRange(0, len(raw)-1).Draw(t, "at")
			switch rapid.IntRange(0, 2).Draw(t, "fault") {
			case 0:
				raw[at] = rapid.Byte().Draw(t, "byte")
			case 1:
				raw = slices.Delete(raw, at, min(at+2, len(raw)))
			default:
				raw = slices.Insert(raw, at, rapid.SampledFrom([]byte(`{}[],:"\u0e- `)).Draw(t, "byte"))
			}
			if len(raw) == 0 {
				return
			}
		}
		checkStrict(t, raw)
	})
}

type failer interface {
	Fatalf(format string, args ...any)
}

func checkStrict(t failer, raw []byte) {
	got, err := Canonical(raw)
	if err != nil {
		var ae *ArgumentError
		if !errors.As(err, &ae) || ae.Offset < 0 || ae.Offset > len(raw) || len(err.Error()) > 512 || got != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		return
	}
	if !validJSON(raw) || !validJSON(got) {
		t.Fatalf("%q was taken as %q", raw, got)
	}
	var a, b any
	if json.Unmarshal(raw, &a) == nil && json.Unmarshal(got, &b) == nil && oracle(oneSpelling(a)) != oracle(oneSpelling(b)) {
		t.Fatalf("%q means something else than %q", raw, got)
	}
	if again, err := Canonical(got); err != nil || !bytes.Equal(again, got) {
		t.Fatalf("%q is not stable: %q, %v", got, again, err)
	}
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{``, `{}`, `{"a":[1,2.5e-3,"\ud83d\ude00",null,true]}`, `{"b":1,"a":{"k":"\u2028"}}`, `{"a":1,"A":2}`, "\"\xff\"", `[[[[`, `{"s":1,"ſ":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		checkStrict(t, raw)
		if args, err := Arguments(raw); err == nil && args[0] != '{' {
			t.Fatalf("%q was taken as %q", raw, args)
		}
	})
}

func TestArgumentsOfCanonicalTextDoNotAllocate(t *testing.T) {
	raw := []byte(`{"content":"hello \"world\"\n日本","mode":"append","options":{"a":1,"b":[1,2,3],"c":null},"path":"notes/today.md"}`)
	if n := allocations(func() {
		if _, err := Arguments(raw); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkArguments(b *testing.B) {
	small := []byte(`{"content":"hello \"world\"\n","mode":"append","path":"notes/today.md"}`)
	large := []byte(`{"content":"` + strings.Repeat(`some text with a \"quote\" and a line\n`, MaxArgumentsBytes/50) + `","path":"a"}`)
	var many strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&many, `,"key %d" : %d`, 20_000-i, i)
	}
	for name, raw := range map[string][]byte{
		"small": small, "small unsorted": []byte(`{"path":"notes/today.md", "mode":"append","content":"hello"}`),
		"large": large, "20000 keys": []byte("{" + many.String()[1:] + "}"),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Arguments(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCleanJSON(b *testing.B) {
	raw := []byte(`{"path":"notes/today.md","lines":12,"text":"one line\nand another","more":[1,2,{"done":true}]}`)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		CleanJSON(raw)
	}
}

// FuzzValue reads any bytes: the value is that of the canonical form.
func FuzzValue(f *testing.F) {
	for _, s := range []string{
		` {"b" : [1, -2.5e3, 1.0, 12345678901234567890, "x\n\u00e9\ud83d\ude00", true, false, null, {}, [] ],"a\n":"\u0041" } `,
		`{"a":"\"\\\u202e"}`, `"\u00e9"`, `1e2`, `null`, `[]`, `{"a":1,"a":[2]}`, `{"a":1}{`, `[1,]`, `nul`, ` `, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		canonical, refused := Canonical(raw)
		got, err := JSONLimits{}.Value(raw)
		if (err == nil) != (refused == nil) {
			t.Fatalf("%q: %v, and its canonical form: %v", raw, err, refused)
		}
		if err != nil {
			return
		}
		var want any
		dec := json.NewDecoder(bytes.NewReader(canonical))
		dec.UseNumber()
		if err := dec.Decode(&want); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: %#v, want %#v, %v", raw, got, want, err)
		}
	})
}
