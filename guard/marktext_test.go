package guard

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A mark is found by its form, however it is written, and nothing else is.
func TestFindMark(t *testing.T) {
	for text, want := range map[string]string{
		"":                                               "",
		"KEY=[secret:MYKEY]\nPORT=80":                    "[secret:MYKEY]",
		"[secret:env:MYKEY]":                             "[secret:env:MYKEY]",
		"[secret:providers.acme.api_key]":                "[secret:providers.acme.api_key]",
		"[secret:channels__my_room__.url]":               "[secret:channels__my_room__.url]",
		"[SECRET:mykey]":                                 "[secret:mykey]",
		"[ secret : MYKEY ]":                             "[secret:MYKEY]",
		"[secret:MY\r\n\tKEY]":                           "[secret:MYKEY]",
		"[sec\u200bret:\u2060MY\u00adKEY]":               "[secret:MYKEY]",
		"[secret:\u202eMYKEY]":                           "[secret:MYKEY]",
		"[secret:\u00a0MYKEY]":                           "[secret:MYKEY]",
		`sed s/x/\[secret\:MYKEY\]/`:                     "[secret:MYKEY]",
		`{"a":"\u005bsecret:\u004dYKEY]"}`:               "[secret:MYKEY]",
		`{"a":"{\"b\":\"\\u005bsecret:MYKEY\\u005D\"}"}`: "[secret:MYKEY]",
		`printf '\x5bsecret:MYKEY\x5d'`:                  "[secret:MYKEY]",
		"https://example.org/?k=%5Bsecret%3AMYKEY%5d":    "[secret:MYKEY]",
		"\uff3b\uff53\uff45\uff43\uff52\uff45\uff54\uff1a\uff2d\uff39\uff2b\uff25\uff39\uff3d": "[secret:MYKEY]",
		"[[[secret:MYKEY]]]":     "[secret:MYKEY]",
		"[secret:[secret:MYKEY]": "[secret:MYKEY]",
		"[secret:a b":            "",
		"[secret:]":              "",
		"[secret]":               "",
		"[secrets:a]":            "",
		"${secret:MYKEY}":        "",
		"secret:MYKEY]":          "",
		`["secret:read"]`:        "",
		"[secret: &default]":     "",
		"[secret:a, b]":          "",
		"[secret:é]":             "",
		"[secret:" + strings.Repeat("a", maxMarkText) + "]":   "[secret:" + strings.Repeat("a", maxMarkText) + "]",
		"[secret:" + strings.Repeat("a", maxMarkText+1) + "]": "",
		"%": "", "%5": "", `\`: "", `\u005`: "", `\x5`: "", "[": "", "[\xff": "",
	} {
		if got := FindMark(appendQuoted(nil, text)); got != want {
			t.Errorf("%q: found %q, want %q", text, got, want)
		}
	}
}

// A mark is found in the arguments of a call whatever the name of the secret.
func TestFindMarkProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mark := Mark(rapid.String().Draw(t, "name"))
		text := rapid.String().Draw(t, "before") + mark + rapid.String().Draw(t, "after")
		for range rapid.IntRange(0, 3).Draw(t, "depth") {
			text = string(appendQuoted(nil, text))
		}
		raw, err := json.Marshal(map[string]any{"x": []any{1, text}})
		if err != nil {
			t.Fatal(err)
		}
		canonical, err := Arguments(raw)
		if err != nil {
			t.Fatal(err)
		}
		if FindMark(canonical) == "" {
			t.Fatalf("not found in %s", canonical)
		}
	})
}

// Escapes that are not a bracket are skipped, however many there are: searching for a name
// after each of them would take minutes.
func TestFindMarkOfManyEscapes(t *testing.T) {
	from := time.Now()
	if got := FindMark([]byte(strings.Repeat(`\n`, 400_000))); got != "" {
		t.Errorf("found %q", got)
	}
	if took := time.Since(from); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

func BenchmarkFindMark(b *testing.B) {
	for name, text := range map[string]string{
		"code":  strings.Repeat("for i := range list { s[i] = `x\\n` } // 100%\n", 2000),
		"worst": strings.Repeat("[secret:aaaaaaaaaaaaaaaa", 4000), "backslashes": strings.Repeat(`\`, 100_000),
		"spaces": "[" + strings.Repeat(" ", 100_000),
	} {
		b.Run(name, func(b *testing.B) {
			raw := []byte(text)
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				FindMark(raw)
			}
		})
	}
}
