package guard

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// All who have a Masker mask a secret that it learns, in every way.
func TestMaskerLearns(t *testing.T) {
	for name, m := range map[string]*Masker{"zero": {}, "empty": NewMasker(), "other": newMasker("first-secret")} {
		text, raw, s := "a late-secret b", []byte(`{"k":"late\u002dsecret"}`), m.Stream()
		if got := m.Mask(text); got != text {
			t.Errorf("%s: before: %q", name, got)
		}
		out := s.Write("begun late-")
		m.Learn(Secret{"x", "  late-secret\n"}, Secret{"x", "short"}, Secret{})
		if got := m.Mask(text); got != marked("a *** b") {
			t.Errorf("%s: Mask: %q", name, got)
		}
		if got := string(m.MaskBytes([]byte(text))); got != marked("a *** b") {
			t.Errorf("%s: MaskBytes: %q", name, got)
		}
		if got := string(m.MaskJSON(raw)); got != marked(`{"k":"***"}`) {
			t.Errorf("%s: MaskJSON: %q", name, got)
		}
		out += s.Write("secret and late-") + s.Write("secret") + s.Flush()
		if want := marked("begun late-secret and ***"); out != want {
			t.Errorf("%s: the stream shows %q, want %q", name, out, want)
		}
		if got := m.Mask("short"); got != "short" {
			t.Errorf("%s: %q", name, got)
		}
	}
	var none *Masker
	none.Learn(Secret{"x", "late-secret"})
	if got := none.Mask("late-secret"); got != "late-secret" {
		t.Errorf("nil: %q", got)
	}
}

// Text that is held back when a secret is learned is masked with it.
func TestMaskStreamLearnsOfWhatIsHeld(t *testing.T) {
	m := newMasker("abcdefghij")
	s := m.Stream()
	if got := s.Write("x abcdef"); got != "x " {
		t.Fatalf("got %q", got)
	}
	m.Learn(Secret{"x", "abcdef"})
	if got := s.Flush(); got != markX {
		t.Errorf("got %q", got)
	}
}

func TestMaskerLearnsWhatItKnowsAtNoCost(t *testing.T) {
	m := newMasker("first-secret", "second-secret")
	if n := testing.AllocsPerRun(10, func() { m.Learn(Secret{"x", "second-secret"}, Secret{"x", "first-secret "}, Secret{"x", "abc"}) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestMaskerLearnsWhileInUse(t *testing.T) {
	m := new(Masker)
	secrets := make([]string, 40)
	for i := range secrets {
		secrets[i] = "secret-" + strings.Repeat(string(rune('A'+i)), 4)
	}
	var all sync.WaitGroup
	for half := range 2 {
		all.Go(func() {
			for i := half; i < len(secrets); i += 2 {
				m.Learn(Secret{"x", secrets[i]})
				if got := m.Mask(secrets[i]); got != markX {
					t.Errorf("%q became %q", secrets[i], got)
				}
			}
		})
		all.Go(func() {
			s := m.Stream()
			for _, secret := range secrets {
				m.MaskJSON([]byte(`{"k":"` + secret + `"}`))
				s.Write(secret)
			}
			s.Flush()
		})
	}
	all.Wait()
	for _, secret := range secrets {
		if got := m.Mask(secret); got != markX {
			t.Errorf("%q became %q", secret, got)
		}
	}
}

// Whenever a stream's Masker learns, its further output contains no secret
// of which nothing was shown before.
func TestMaskStreamLearnsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secrets, pieces := secretsAndText(t)
		at := rapid.IntRange(0, len(pieces)).Draw(t, "learned before")
		known := rapid.IntRange(0, len(secrets)).Draw(t, "known")
		m := newMasker(secrets[:known]...)
		s := m.Stream()
		for _, p := range pieces[:at] {
			s.Write(p)
		}
		for _, v := range secrets[known:] {
			m.Learn(Secret{"x", v})
		}
		if one := newMasker(secrets...); !slices.Equal(one.now().forms, m.now().forms) || one.now().longest != m.now().longest {
			t.Fatalf("learned %q, want %q", m.now().forms, one.now().forms)
		}
		var out strings.Builder
		for _, p := range pieces[at:] {
			out.WriteString(s.Write(p))
			if len(s.held) > m.now().longest {
				t.Fatalf("holds %q", s.held)
			}
		}
		out.WriteString(s.Flush())
		for _, f := range m.now().forms {
			if strings.Contains(out.String(), f.text) && f.text != Mark(f.name) {
				t.Fatalf("%q shows %q, which has %q", pieces, out.String(), f)
			}
		}
	})
}
