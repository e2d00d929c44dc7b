package celrule

import (
	"bytes"
	"encoding/json"
	"testing"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"pgregory.net/rapid"
)

// slow reads JSON by way of the standard library.
func slow(t *rapid.T, raw []byte) ref.Val {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return slowValue(v)
}

func slowValue(v any) ref.Val {
	switch v := v.(type) {
	case string:
		return types.String(v)
	case json.Number:
		return number(v.String())
	case bool:
		return types.Bool(v)
	case []any:
		list := make([]ref.Val, len(v))
		for i := range v {
			list[i] = slowValue(v[i])
		}
		return types.NewRefValList(types.DefaultTypeAdapter, list)
	case map[string]any:
		members := map[string]ref.Val{}
		for key := range v {
			members[key] = slowValue(v[key])
		}
		return types.NewMap(types.DefaultTypeAdapter, members)
	}
	return types.NullValue
}

func drawJSON(t *rapid.T, depth int) any {
	kind := rapid.IntRange(0, 7).Draw(t, "kind")
	if depth == 0 {
		kind %= 5
	}
	switch kind {
	case 0:
		return rapid.String().Draw(t, "string")
	case 1:
		return rapid.Int64().Draw(t, "int")
	case 2:
		return rapid.Float64Range(-1e20, 1e20).Draw(t, "float")
	case 3:
		return rapid.Bool().Draw(t, "bool")
	case 4:
		return nil
	case 5:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, drawJSON(t, depth-1))
		}
		return list
	}
	return drawObject(t, depth)
}

func drawObject(t *rapid.T, depth int) map[string]any {
	object := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "members") {
		object[rapid.String().Draw(t, "key")] = drawJSON(t, depth-1)
	}
	return object
}

// TestProperty_ArgumentsAsTheyAre reads generated arguments, with and without
// spaces, and finds what the standard library finds.
func TestProperty_ArgumentsAsTheyAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var raw bytes.Buffer
		enc := json.NewEncoder(&raw)
		enc.SetEscapeHTML(rapid.Bool().Draw(t, "escapes"))
		if rapid.Bool().Draw(t, "spaces") {
			enc.SetIndent(" ", "\t")
		}
		if err := enc.Encode(drawObject(t, 4)); err != nil {
			t.Fatal(err)
		}
		got, err := arguments(raw.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if want := slow(t, raw.Bytes()); types.Equal(got, want) != types.True {
			t.Fatalf("%s: %v, want %v", raw.Bytes(), got, want)
		}
	})
}

// FuzzArguments reads any bytes: what the standard library refuses is refused, and
// nothing else.
func FuzzArguments(f *testing.F) {
	for _, s := range []string{`{}`, ` {"a" : [1, -2.5e3, "x\n\u00e9\ud83d\ude00", true, false, null, {}, [] ] } `, `{"a":"\"\\"}`, `{"a":"` + "\xff" + `"}`, `[1]`, `{"a":1}{`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := arguments(raw)
		var want map[string]any
		if wrong := json.Unmarshal(raw, &want); (err != nil) != (want == nil) {
			t.Fatalf("%q: %v, and for the standard library %v", raw, err, wrong)
		}
		if err == nil && got.(interface{ Size() ref.Val }).Size() != types.Int(len(want)) {
			t.Fatalf("%q: %v members, want %d", raw, got, len(want))
		}
	})
}
