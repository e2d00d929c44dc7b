package guard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestC10_TruncateText(t *testing.T) {
	cut, ok := Truncate(Content{Text: strings.Repeat("a", 1000)}, 300, "")
	note := "... [truncated, original size: 1002 bytes]"
	if want := strings.Repeat("a", 298-len(note)) + note; !ok || cut.Text != want || cut.IsJSON() {
		t.Errorf("got %q, %v", cut.Text, ok)
	}
	cut, ok = Truncate(Content{Text: strings.Repeat("a", 1000)}, 300, "res_1")
	note = "... [truncated, original size: 1002 bytes, ref: res_1]"
	if want := strings.Repeat("a", 298-len(note)) + note; !ok || cut.Text != want {
		t.Errorf("with ref: got %q, %v", cut.Text, ok)
	}
	// Exactly as long as allowed, and one byte longer.
	if cut, ok = Truncate(Content{Text: strings.Repeat("a", 298)}, 300, ""); ok || len(cut.Text) != 298 {
		t.Errorf("cut what fits: %v, %d bytes", ok, len(cut.Text))
	}
	if cut, ok = Truncate(Content{Text: strings.Repeat("a", 299)}, 300, ""); !ok || len(cut.Text) != 298 {
		t.Errorf("kept what is too long: %v, %d bytes", ok, len(cut.Text))
	}
	// The length is that of the JSON: each quote has two bytes, and HTML is not escaped.
	if _, ok = Truncate(Content{Text: strings.Repeat(`"`, 150)}, 300, ""); !ok {
		t.Error("escapes are not counted")
	}
	if _, ok = Truncate(Content{Text: strings.Repeat(`<`, 298)}, 300, ""); ok {
		t.Error("HTML escapes are counted")
	}
	// Characters stay whole.
	cut, _ = Truncate(Content{Text: strings.Repeat("日", 1000)}, 256, "")
	if prefix := strings.TrimSuffix(cut.Text, "... [truncated, original size: 3002 bytes]"); prefix != strings.Repeat("日", len(prefix)/3) || len(prefix) < 200 {
		t.Errorf("got %q", cut.Text)
	}
}

func TestC10_JSONStringIsText(t *testing.T) {
	raw := json.RawMessage(oracle(strings.Repeat("a\n", 1000)))
	cut, ok := Truncate(Content{JSON: raw}, 300, "")
	if !ok || cut.IsJSON() || !strings.HasSuffix(cut.Text, "... [truncated, original size: 3002 bytes]") || !strings.HasPrefix(cut.Text, "a\na\n") {
		t.Errorf("got %+v, %v", cut, ok)
	}
	cut, ok = Truncate(Content{JSON: json.RawMessage(`"a\"b\u00e9"`)}, 300, "")
	if ok || cut.IsJSON() || cut.Text != `a"bé` {
		t.Errorf("got %+v, %v", cut, ok)
	}
}

func TestC10_TruncateArray(t *testing.T) {
	list := make([]int, 1000)
	for i := range list {
		list[i] = i
	}
	raw, _ := json.Marshal(list)
	cut, ok := Truncate(Content{JSON: raw}, 256, "")
	sentinel := `,{"_truncated":true,"original_count":1000}]`
	got := string(cut.JSON)
	if !ok || !strings.HasPrefix(got, "[0,1,2,3,") || !strings.HasSuffix(got, sentinel) {
		t.Fatalf("got %s", got)
	}
	// As many elements as fit: the next one has at most four bytes with its comma.
	if len(got) > 256 || len(got) <= 256-4 {
		t.Errorf("%d bytes", len(got))
	}
	var back []any
	if err := json.Unmarshal(cut.JSON, &back); err != nil {
		t.Fatal(err)
	}
	for i, e := range back[:len(back)-1] {
		if e != float64(i) {
			t.Errorf("element %d is %v", i, e)
		}
	}
	cut, _ = Truncate(Content{JSON: raw}, 256, `r"1`)
	if !strings.HasSuffix(string(cut.JSON), `,{"_truncated":true,"original_count":1000,"ref":"r\"1"}]`) {
		t.Errorf("with ref: %s", cut.JSON)
	}
	// If the first element does not fit, only the note is left; brackets, commas
	// and quotes in strings are not structure.
	raw = []byte(`[{"a":["` + strings.Repeat(`],\"{,`, 100) + `"]},2,"x,]"]`)
	if cut, ok = Truncate(Content{JSON: raw}, 256, ""); !ok || string(cut.JSON) != `[{"_truncated":true,"original_count":3}]` {
		t.Errorf("got %s", cut.JSON)
	}
	raw = []byte(`[[1,2],"],[",{"a":[]},"` + strings.Repeat("x", 300) + `"]`)
	if cut, ok = Truncate(Content{JSON: raw}, 256, ""); !ok || string(cut.JSON) != `[[1,2],"],[",{"a":[]},{"_truncated":true,"original_count":4}]` {
		t.Errorf("got %s", cut.JSON)
	}
}

func TestC10_TruncateObject(t *testing.T) {
	raw := []byte(`{"text":"` + strings.Repeat("x", 1000) + `"}`)
	cut, ok := Truncate(Content{JSON: raw}, 256, "")
	tail := `...","original_bytes":1011}`
	if got := string(cut.JSON); !ok || len(got) != 256 || !strings.HasPrefix(got, `{"_truncated_json":"{\"text\":\"xxx`) || !strings.HasSuffix(got, "x"+tail) {
		t.Errorf("got %s", got)
	}
	cut, _ = Truncate(Content{JSON: raw}, 256, "res_1")
	if got := string(cut.JSON); len(got) != 256 || !strings.HasSuffix(got, `x...","original_bytes":1011,"ref":"res_1"}`) {
		t.Errorf("with ref: %s", got)
	}
	number := []byte(strings.Repeat("1", 70_000))
	cut, ok = Truncate(Content{JSON: number}, 65536, "")
	if got := string(cut.JSON); !ok || len(got) != 65536 || !strings.HasPrefix(got, `{"_truncated_json":"111`) || !strings.HasSuffix(got, `1...","original_bytes":70000}`) {
		t.Errorf("a number: %.60s", got)
	}
}

func TestC10_TruncateBounds(t *testing.T) {
	for _, c := range []Content{
		{Text: strings.Repeat("a", 10_000)},
		{JSON: []byte("[" + strings.Repeat("1,", 5000) + "1]")},
		{JSON: []byte(`{"a":"` + strings.Repeat("b", 10_000) + `"}`)},
	} {
		for _, limit := range []int{-1, 0, 1, 255, 256} {
			for _, ref := range []string{"", strings.Repeat("r", 94), strings.Repeat("r", 95), strings.Repeat("\x00", 1000)} {
				cut, ok := Truncate(c, limit, ref)
				if !ok || cut.SerializedLen() > MinResultBytes {
					t.Errorf("limit %d: %d bytes", limit, cut.SerializedLen())
				}
				if has := strings.Contains(cut.String(), "rrr"); has != (len(ref) == 94) {
					t.Errorf("limit %d, ref of %d bytes: %s", limit, len(ref), cut)
				}
			}
		}
	}
}

// The result is always valid, fits and has the documented form.
func TestC10_TruncateProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Content
		if rapid.Bool().Draw(t, "text") {
			c.Text = Clean(strings.Repeat(drawText(t, "unit"), rapid.IntRange(0, 60).Draw(t, "times")))
		} else {
			v := drawValue(t, 3)
			if n := rapid.IntRange(0, 30).Draw(t, "times"); n > 0 {
				list := make([]any, n)
				for i := range list {
					list[i] = v
				}
				v = list
			}
			if rapid.Bool().Draw(t, "object") {
				v = map[string]any{"v": v}
			}
			c.JSON = CleanJSON([]byte(oracle(v)))
		}
		limit := rapid.IntRange(0, 2000).Draw(t, "limit")
		ref := rapid.SampledFrom([]string{"", "res_01J", `a"b\`, "日本"}).Draw(t, "ref")
		checkTruncated(t, c, limit, ref)
	})
}

func checkTruncated(t failer, c Content, limit int, ref string) {
	text, isText := c.Text, !c.IsJSON()
	var value any
	if !isText {
		if err := json.Unmarshal(c.JSON, &value); err != nil {
			t.Fatalf("%v", err)
		}
		text, isText = value.(string)
	}
	size := len(c.JSON)
	if isText {
		size = len(oracle(text))
	}
	out, cut := Truncate(c, limit, ref)
	limit = max(limit, MinResultBytes)
	if cut != (size > limit) {
		t.Fatalf("%d bytes, limit %d: cut %v", size, limit, cut)
	}
	if isText {
		if out.IsJSON() || len(oracle(out.Text)) > limit || !utf8.ValidString(out.Text) {
			t.Fatalf("%q is too long or no text", out)
		}
		note := "... [truncated, original size: " + strconv.Itoa(size) + " bytes]"
		if ref != "" {
			note = strings.Replace(note, "]", ", ref: "+ref+"]", 1)
		}
		note = note[strings.Index(note, "..."):]
		if !cut {
			note = ""
		}
		if !strings.HasSuffix(out.Text, note) || !strings.HasPrefix(text, strings.TrimSuffix(out.Text, note)) {
			t.Fatalf("%q is no cut of %q", out.Text, text)
		}
		return
	}
	if !validJSON(out.JSON) || len(out.JSON) > limit {
		t.Fatalf("%d bytes of %d: %s", len(out.JSON), limit, out.JSON)
	}
	if !cut {
		if !bytes.Equal(out.JSON, c.JSON) {
			t.Fatalf("%s became %s", c.JSON, out.JSON)
		}
		return
	}
	checkShape(t, c, out, value, ref)
}

func checkShape(t failer, c, out Content, value any, ref string) {
	var got any
	if err := json.Unmarshal(out.JSON, &got); err != nil {
		t.Fatalf("%v", err)
	}
	tail := "}"
	if ref != "" {
		tail = `,"ref":` + oracle(ref) + "}"
	}
	if list, ok := value.([]any); ok {
		kept := got.([]any)
		kept = kept[:len(kept)-1]
		if oracle(kept) != oracle(list[:len(kept)]) {
			t.Fatalf("%s does not begin %s", out.JSON, c.JSON)
		}
		if end := fmt.Sprintf(`{"_truncated":true,"original_count":%d%s]`, len(list), tail); !strings.HasSuffix(string(out.JSON), end) {
			t.Fatalf("%s does not end with %s", out.JSON, end)
		}
		return
	}
	object := got.(map[string]any)
	prefix, ok := strings.CutSuffix(object["_truncated_json"].(string), "...")
	if !ok || !strings.HasPrefix(string(c.JSON), prefix) {
		t.Fatalf("%s does not begin %s", out.JSON, c.JSON)
	}
	if end := fmt.Sprintf(`...","original_bytes":%d%s`, len(c.JSON), tail); !strings.HasSuffix(string(out.JSON), end) {
		t.Fatalf("%s does not end with %s", out.JSON, end)
	}
}

// The result is valid and short even if the content is neither clean nor JSON.
func FuzzTruncate(f *testing.F) {
	f.Add([]byte(`[1,2,3]`), true, 256, "r")
	f.Add([]byte(`[1,2`+strings.Repeat("]", 300)), true, 0, "")
	f.Add([]byte("\"\\"+strings.Repeat("\xff", 300)), true, 256, "")
	f.Add([]byte(strings.Repeat("日", 300)), false, 300, "")
	f.Add([]byte(`{"a":"`+strings.Repeat(`\u0000`, 300)+`"}`), true, 300, "ref")
	f.Fuzz(func(t *testing.T, raw []byte, isJSON bool, limit int, ref string) {
		limit = min(limit, 1<<16)
		if isJSON {
			out, _ := Truncate(Content{JSON: raw}, limit, ref)
			if out.SerializedLen() > max(limit, MinResultBytes) {
				t.Fatalf("%d bytes of %d", out.SerializedLen(), limit)
			}
			raw = CleanJSON(raw)
			checkTruncated(t, Content{JSON: raw}, limit, "")
			return
		}
		checkTruncated(t, Content{Text: Clean(string(raw))}, limit, "")
		if out, _ := Truncate(Content{Text: string(raw)}, limit, ref); out.SerializedLen() > max(limit, MinResultBytes) {
			t.Fatalf("%d bytes of %d", out.SerializedLen(), limit)
		}
	})
}

func BenchmarkTruncate(b *testing.B) {
	unit := `{"id":12345,"text":"some \"text\" with a line\n"}`
	for name, c := range map[string]Content{
		"text":   {Text: strings.Repeat("some ordinary text with \"quotes\" and a line\n", 1<<20/44)},
		"array":  {JSON: []byte("[" + strings.Repeat(unit+",", 1<<20/len(unit)) + "1]")},
		"object": {JSON: []byte(`{"a":[` + strings.Repeat(unit+",", 1<<20/len(unit)) + "1]}")},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(c.SerializedLen()))
			b.ReportAllocs()
			for b.Loop() {
				if _, cut := Truncate(c, 65536, "res_1"); !cut {
					b.Fatal("not cut")
				}
			}
		})
	}
}
