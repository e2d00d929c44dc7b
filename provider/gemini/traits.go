package gemini

import "strings"

// traits are what differs between generations of models. They follow the name of
// the model; of a name that is not known the least is believed.
type traits struct {
	generation int // 205 = 2.5; 0 = not known
	gemini     bool
	pro, flash bool // families; lite ones are flash too
	lite       bool
	noSystem   bool // takes no system instruction: Gemma up to 3
}

// bareModel is the name without what stands before it: models/, a gateway's
// prefix.
func bareModel(model string) string {
	return strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
}

// traitsOf reads names such as gemini-2.5-flash-lite, gemini-3-pro-preview,
// gemini-flash-latest and gemma-3-27b-it.
func traitsOf(model string) traits {
	name := bareModel(model)
	var t traits
	if rest, ok := strings.CutPrefix(name, "gemma-"); ok {
		t.generation = generation(rest)
		t.noSystem = t.generation > 0 && t.generation < 400
		return t
	}
	rest, ok := strings.CutPrefix(name, "gemini-")
	if !ok {
		return t
	}
	t.gemini, t.generation = true, generation(rest)
	if t.generation == 0 && strings.HasSuffix(rest, "latest") {
		t.generation = latest
	}
	for word := range strings.SplitSeq(rest, "-") {
		switch word {
		case "pro":
			t.pro = true
		case "flash":
			t.flash = true
		case "lite":
			t.lite = true
		}
	}
	return t
}

// latest is what the names without a version stand for, such as
// gemini-flash-latest.
const latest = 305

// generation reads the version that a name begins with: 2.5-… is 205.
func generation(rest string) int {
	word, _, _ := strings.Cut(rest, "-")
	major, minor, _ := strings.Cut(word, ".")
	a, ok := digits(major)
	if !ok {
		return 0
	}
	b, _ := digits(minor)
	return a*100 + b
}

func digits(s string) (n int, ok bool) {
	if len(s) == 0 || len(s) > 2 {
		return 0, false
	}
	for _, r := range s {
		if r < '0' || r > '9' {
			return 0, false
		}
		n = n*10 + int(r-'0')
	}
	return n, true
}

// thinks reports whether the model can be told how much to reason.
func (t traits) thinks() bool {
	if t.gemini {
		return t.generation == 0 || t.generation >= 205
	}
	return t.generation == 0
}

// levels reports whether it is told so by a level; else by a budget of tokens. A
// name without a version gets a budget: generation 3 takes that too.
func (t traits) levels() bool { return t.gemini && t.generation >= 300 }

// signed reports whether the first call of a turn must carry a signature. A name
// without a version may stand for such a model.
func (t traits) signed() bool {
	return t.gemini && (t.generation == 0 || t.generation >= 300)
}

// schemaWithTools reports whether a schema of the answer goes together with tools.
func (t traits) schemaWithTools() bool { return t.levels() }

// takesSchema reports whether the model takes a JSON Schema of the answer at all.
func (t traits) takesSchema() bool {
	if t.gemini {
		return t.generation == 0 || t.generation >= 200
	}
	return t.generation == 0
}

// filesInResults reports whether the result of a function may hold files.
func (t traits) filesInResults() bool { return t.levels() }

// budget returns the tokens of reasoning for a level, and the least that the
// model takes but for 0.
func (t traits) budget(level string) (tokens, least int) {
	switch {
	case t.pro:
		least = 128
	case t.lite:
		least = 512
	case !t.flash:
		least = 512 // not known: what all take
	}
	switch level {
	case "low":
		return 1024, least
	case "high":
		return 24576, least
	}
	return 8192, least
}
