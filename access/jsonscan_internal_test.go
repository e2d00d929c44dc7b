package access

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"pgregory.net/rapid"
)

// slowMembers is what encoding/json sees in an object.
func slowMembers(t interface{ Fatal(...any) }, object []byte) (out [][2]string) {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			t.Fatal(err)
		}
		text, _ := key.(string)
		out = append(out, [2]string{text, string(raw)})
	}
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Fatal(err)
	}
	return out
}

func sameMembers(t interface {
	Fatal(...any)
	Fatalf(string, ...any)
}, object []byte,
) {
	want, n := slowMembers(t, object), 0
	for key, value := range members(object) {
		text, ok := unquote(key)
		if !ok || n >= len(want) || want[n] != [2]string{text, string(value)} {
			t.Fatalf("%q: member %d is %q %q (%v), want %q", object, n, text, value, ok, want)
		}
		if value[0] == '[' {
			var list []json.RawMessage
			if err := json.Unmarshal(value, &list); err != nil {
				t.Fatal(err)
			}
			i := 0
			for entry := range entries(value) {
				if i >= len(list) || !bytes.Equal(list[i], entry) {
					t.Fatalf("%q: entry %d is %q, want %q", value, i, entry, list)
				}
				i++
			}
			if i != len(list) {
				t.Fatalf("%q: %d entries", value, i)
			}
		}
		n++
	}
	if n != len(want) {
		t.Fatalf("%q: %d members, want %q", object, n, want)
	}
}

func TestM16_MembersAreThoseOfEncodingJSON(t *testing.T) {
	for _, object := range []string{
		`{}`, ` { } `, `{"a":1}`, `{"a":1,"b":"x"}`, "{\n\"a\" :\t1 ,\r\n \"a\" : [ 1 , \"]\" , { \"b\" : \"}\" } ] }", `{"a\"":"\\","\u0061":"\\\""}`,
		`{"a":[],"b":{},"c":[[],[{}]],"d":true,"e":null,"f":-1.5e3}`, `{"":"","a":{"b":[1,{"c":"]}"}]}}`, `{"a":[1 ]}`, `{"a":1 }`,
	} {
		if !isObject([]byte(object)) {
			t.Errorf("%q is no object", object)
			continue
		}
		sameMembers(t, []byte(object))
	}
	for _, text := range []string{``, ` `, `[]`, `1`, `{`, `{}{}`, `{"a":1,}`, "{\"a\":\"\xff\"}", `null`, "\ufeff{}"} {
		if isObject([]byte(text)) {
			t.Errorf("%q is an object", text)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("{}[]\",:\\ 1atruefalsn\n"))).Draw(r, "text")
		for _, object := range []string{text, "{" + text + "}", `{"a":` + text + `}`, `{"a":[` + text + `]}`, `{"` + text + `":[1],"b":"` + text + `"}`} {
			if isObject([]byte(object)) {
				sameMembers(r, []byte(object))
			}
		}
	})
}

func FuzzM16_Members(f *testing.F) {
	f.Add([]byte(`{"a":[1,"]",{"b":"}"}],"a\"":"\\"}`))
	f.Fuzz(func(t *testing.T, object []byte) {
		if isObject(object) {
			sameMembers(t, object)
		}
	})
}
