package guard

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// What is learned is masked by all that have the Masker already, in every way.
func TestMaskerLearns(t *testing.T) {
	for name, m := range map[string]*Masker{"zero": {}, "empty": NewMasker(), "other": NewMasker("first-secret")} {
		text, raw, s := "a late-secret b", []byte(`{"k":"late\u002dsecret"}`), m.Stream()
		if got := m.Mask(text); got != text {
			t.Errorf("%s: before: %q", name, got)
		}
		out := s.Write("begun late-")
		m.Learn("  late-secret\n", "short", "")
		if got := m.Mask(text); got != "a *** b" {
			t.Errorf("%s: Mask: %q", name, got)
		}
		if got := string(m.MaskBytes([]byte(text))); got != "a *** b" {
			t.Errorf("%s: MaskBytes: %q", name, got)
		}
		if got := string(m.MaskJSON(raw)); got != `{"k":"***"}` {
			t.Errorf("%s: MaskJSON: %q", name, got)
		}
		out += s.Write("secret and late-") + s.Write("secret") + s.Flush()
		if want := "begun late-secret and ***"; out != want {
			t.Errorf("%s: the stream shows %q, want %q", name, out, want)
		}
		if got := m.Mask("short"); got != "short" {
			t.Errorf("%s: %q", name, got)
		}
	}
	var none *Masker
	none.Learn("late-secret")
	if got := none.Mask("late-secret"); got != "late-secret" {
		t.Errorf("nil: %q", got)
	}
}

// What is held when a secret is learned is masked with it.
func TestMaskStreamLearnsOfWhatIsHeld(t *testing.T) {
	m := NewMasker("abcdefghij")
	s := m.Stream()
	if got := s.Write("x abcdef"); got != "x " {
		t.Fatalf("got %q", got)
	}
	m.Learn("abcdef")
	if got := s.Flush(); got != Mask {
		t.Errorf("got %q", got)
	}
}

func TestMaskerLearnsWhatItKnowsAtNoCost(t *testing.T) {
	m := NewMasker("first-secret", "second-secret")
	if n := testing.AllocsPerRun(10, func() { m.Learn("second-secret", "first-secret ", "abc") }); n > 0 {
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
				m.Learn(secrets[i])
				if got := m.Mask(secrets[i]); got != Mask {
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
		if got := m.Mask(secret); got != Mask {
			t.Errorf("%q became %q", secret, got)
		}
	}
}

// Whenever a stream's Masker learns, what the stream shows from then on has no secret
// of which nothing was shown before.
func TestMaskStreamLearnsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secrets, pieces := secretsAndText(t)
		at := rapid.IntRange(0, len(pieces)).Draw(t, "learned before")
		known := rapid.IntRange(0, len(secrets)).Draw(t, "known")
		m := NewMasker(secrets[:known]...)
		s := m.Stream()
		for _, p := range pieces[:at] {
			s.Write(p)
		}
		m.Learn(secrets[known:]...)
		if one := NewMasker(secrets...); !slices.Equal(formsOf(one).forms, formsOf(m).forms) || formsOf(one).longest != formsOf(m).longest {
			t.Fatalf("learned %q, want %q", formsOf(m).forms, formsOf(one).forms)
		}
		var out strings.Builder
		for _, p := range pieces[at:] {
			out.WriteString(s.Write(p))
			if len(s.held) > formsOf(m).longest {
				t.Fatalf("holds %q", s.held)
			}
		}
		out.WriteString(s.Flush())
		for _, f := range formsOf(m).forms {
			if strings.Contains(out.String(), f) {
				t.Fatalf("%q shows %q, which has %q", pieces, out.String(), f)
			}
		}
	})
}

// formsOf are what a Masker masks now.
func formsOf(m *Masker) *spellings {
	if k := m.now(); k != nil {
		return k
	}
	return new(spellings)
}
