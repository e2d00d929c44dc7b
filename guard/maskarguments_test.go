package guard

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A call whose arguments contain a mark, or the value of a secret of at least
// MinRefusedBytes, is found, however they are written.
func TestMaskerArguments(t *testing.T) {
	m := NewMasker(
		Secret{"key", "sk-live-0123456789"}, Secret{"short", "hunter22"}, Secret{"pem", "-----BEGIN\nabcdef\n-----END"},
		Secret{"providers.a.api_key", "digits: 5"}, Secret{"number", "123456789012"},
	)
	for in, want := range map[string][2]string{
		`{"a":"b"}`:                                   {`{"a":"b"}`, ""},
		`{"a":"hunter22"}`:                            {`{"a":"hunter22"}`, ""},
		`{"a":"[secret:other]"}`:                      {`{"a":"[secret:other]"}`, ""},
		`{"a":"see [secret:short]"}`:                  {`{"a":"see [secret:short]"}`, "short"},
		`{"a":"[secret:providers.a.api_key]"}`:        {`{"a":"[secret:providers.a.api_key]"}`, "providers.a.api_key"},
		`{"a":"x sk-live-0123456789 y"}`:              {`{"a":"x [secret:key] y"}`, "key"},
		`{"sk-live-0123456789":1}`:                    {`{"[secret:key]":1}`, "key"},
		`{"a":["-----BEGIN\nabcdef\n-----END"]}`:      {`{"a":["[secret:pem]"]}`, "pem"},
		`{"a":"{\"b\":\"x\\n\",\"c\":\"hunter22\"}"}`: {`{"a":"{\"b\":\"x\\n\",\"c\":\"hunter22\"}"}`, ""},
		`{"a":"\"-----BEGIN\\nabcdef\\n-----END\""}`:  {`{"a":"\"[secret:pem]\""}`, "pem"},
		`{"a":123456789012}`:                          {`{"a":"[secret:number]"}`, "number"},
		`{"a":"c2stbGl2ZS0wMTIzNDU2Nzg5"}`:            {`{"a":"[secret:key]"}`, "key"},
		`{"a":"` + TokenPrefix + `a.b.c"}`:            {`{"a":"[secret:access_token]"}`, "access_token"},
		`{"[secret:key]":1,"sk-live-0123456789":2}`:   {`{}`, "key"},
	} {
		kept, name := m.Arguments(json.RawMessage(in))
		if string(kept) != want[0] || name != want[1] {
			t.Errorf("%s: kept %s, secret %q, want %q", in, kept, name, want)
		}
	}
	for text, want := range map[string]bool{"hunter22": false, "[secret:short]": true, "sk-live-0123456789": true, "read_file": false} {
		if got := m.Contains(text); got != want {
			t.Errorf("Holds(%q) = %v", text, got)
		}
	}
	var none *Masker
	if kept, name := none.Arguments([]byte(`{"a":"[secret:key]"}`)); name != "" || string(kept) != `{"a":"[secret:key]"}` || none.Contains("[secret:key]") {
		t.Errorf("nil: %s, %q", kept, name)
	}
}

func TestMarkNames(t *testing.T) {
	for name, want := range map[string]string{
		"": "[secret:unnamed]", "OPENAI_API_KEY": "[secret:OPENAI_API_KEY]", `channels["my room"].url`: "[secret:channels__my_room__.url]",
		"é\n": "[secret:__]", strings.Repeat("n", 200): "[secret:" + strings.Repeat("n", 64) + "]",
	} {
		if got := Mark(name); got != want {
			t.Errorf("Mark(%q) = %q, want %q", name, got, want)
		}
		m := NewMasker(Secret{name, "some-secret-value"})
		if got := m.Mask("a some-secret-value"); got != "a "+want || m.Mask(got) != got {
			t.Errorf("%q: %q, %q", name, got, m.Mask(got))
		}
	}
	// A value with two names has the first of them, whichever was learned first.
	for _, m := range []*Masker{NewMasker(Secret{"b", "some-value"}, Secret{"a", "some-value"}), NewMasker(Secret{"a", "some-value"}, Secret{"b", "some-value"})} {
		if got := m.Mask("some-value [secret:b]"); got != "[secret:a] [secret:b]" {
			t.Errorf("got %q", got)
		}
	}
}

// A value that is an ordinary word, even one that occurs in marks, does not damage marks.
func TestMarksStay(t *testing.T) {
	m := NewMasker(Secret{"secret-key", "secret"}, Secret{"b", "secret-key-of-b"}, Secret{"c", "y] and on"})
	for in, want := range map[string]string{
		"my secret": "my [secret:secret-key]", "[secret:secret-key] [secret:b]": "[secret:secret-key] [secret:b]",
		"secret-key-of-b": "[secret:b]", "[secret:secret-key] and on": "[secret:secret-key]",
	} {
		if got := m.Mask(in); got != want || m.Mask(got) != got {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
		for size := 1; size < 9; size++ {
			s, out := m.Stream(), ""
			for rest := in; rest != ""; rest = rest[min(size, len(rest)):] {
				out += s.Write(rest[:min(size, len(rest))])
			}
			if out += s.Flush(); out != want {
				t.Errorf("in pieces of %d: %q", size, out)
			}
		}
	}
	if got := RedactText("secret: hunter2, [secret:key] stays"); got != "secret: "+Redacted+", [secret:key] stays" {
		t.Errorf("RedactText: %q", got)
	}
}

func TestMaskTwiceProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secrets, pieces := secretsAndText(t)
		m := newMasker(append(secrets, "secret", "et:x]")...)
		once := m.Mask(strings.Join(append(pieces, "my secret"), ""))
		if got := m.Mask(once); got != once {
			t.Fatalf("%q became %q", once, got)
		}
	})
}

// The arguments that are shown while they arrive are the ones that are stored, however they are
// escaped and split, and no more is shown in between.
func TestArgumentStreamProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMasker("abcdefghijkl", "é\"b\\c/d\nf ghi", "1234567890123", "short-one")
		text := rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
				"abcdefghijkl", "abcdef", "ghijkl", "é\"b\\c/d\nf ghi", "é\"b", "[secret:x]", "[sec", "short-one", "x", "日", "1234567890123", `"`, `\`,
			}), 0, 4).Draw(t, "pieces"), "")
		})
		value := map[string]any{text.Draw(t, "key"): []any{
			text.Draw(t, "one"), text.Draw(t, "two"), json.Number("1"), json.Number("1234567890123"), true, nil,
		}}
		raw := spell(t, value)
		canonical, err := Arguments([]byte(raw))
		if err != nil {
			t.Skip(err)
		}
		kept, secret := m.Arguments(canonical)
		if string(kept) == "{}" {
			t.Skip("two keys have become one")
		}
		s := m.ArgumentStream()
		var out strings.Builder
		for rest := raw; rest != ""; {
			n := min(rapid.IntRange(1, 9).Draw(t, "size"), len(rest))
			out.WriteString(s.Write(rest[:n]))
			rest = rest[n:]
			if strings.Contains(out.String(), "abcdefghijkl") {
				t.Fatalf("shows %q", out.String())
			}
		}
		out.WriteString(s.Flush())
		var shown, want any
		if err := json.Unmarshal([]byte(out.String()), &shown); err != nil {
			t.Fatalf("%q shows %q: %v", raw, out.String(), err)
		}
		if err := json.Unmarshal(kept, &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(shown, want) {
			t.Fatalf("%q shows %q, kept %s (%s)", raw, out.String(), kept, secret)
		}
	})
}

// Text that is not JSON passes, except for secrets, wherever it is split.
func TestArgumentStreamOfOtherText(t *testing.T) {
	m := newMasker("abcdefghijkl")
	for in, want := range map[string]string{
		"":                                 "",
		"no JSON":                          "no JSON",
		`{"a":"\q abcdefghijkl"`:           `{"a":"\q ***"`,
		`{"a":"\u0061bcdefghijkl", oops`:   `{"a":"***", oops`,
		`{"a":"\u0061bcdefghijkl\`:         `{"a":"***\`,
		`{"a":"abcdefghijk`:                `{"a":"abcdefghijk`,
		`{"a":"\ud83d`:                     "{\"a\":\"\uFFFD",
		`{"a":"\ud83d\ude00 abcdefghijkl"`: `{"a":"😀 ***"`,
		"abcdefghijkl":                     "***",
		"[1.5e3, true]":                    "[1.5e3, true]",
		strings.Repeat("1", 300):           strings.Repeat("1", 300),
	} {
		want = marked(want)
		if got := m.ArgumentText(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
		s, out := m.ArgumentStream(), ""
		for i := range len(in) {
			out += s.Write(in[i : i+1])
		}
		if out += s.Flush(); out != want {
			t.Errorf("%q, byte by byte, became %q, want %q", in, out, want)
		}
	}
}

// A secret of several lines is also found line by line, as programs and searches show it.
func TestMaskPartsOfLongSecrets(t *testing.T) {
	const pem = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nEFAASCBKcwggSjAgEAAoIBAQ==\nshort\n-----END PRIVATE KEY-----"
	m := NewMasker(Secret{"pem", pem}, Secret{"line", "MIIE one line of words"})
	for in, want := range map[string]string{
		pem:                                     "[secret:pem]",
		"key.pem:2: MIIEvQIBADANBgkqhkiG9w0BAQ": "key.pem:2: [secret:pem]",
		"+MIIEvQIBADANBgkqhkiG9w0BAQ\n EFAASCBKcwggSjAgEAAoIBAQ==": "+[secret:pem]\n [secret:pem]",
		"-----BEGIN PRIVATE KEY-----":                              "-----BEGIN PRIVATE KEY-----",
		"short MIIE words":                                         "short MIIE words",
	} {
		if got := m.Mask(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	if m.Contains("-----BEGIN PRIVATE KEY-----") || !m.Contains(pem) {
		t.Error("arguments hold the whole value, or they do not")
	}
}
