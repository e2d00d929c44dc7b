package anthropic

import "strings"

// traits are what differs between generations of Claude. They follow the name
// of the model; of a name that is not known nothing special is believed.
type traits struct {
	known      bool
	thinks     bool // has reasoning at all
	adaptive   bool // thinking.type adaptive with output_config.effort; else a budget
	thinksDef  bool // reasons unless told not to
	alwaysOn   bool // cannot be told not to
	noSampling bool // refuses temperature
	noForce    bool // refuses tool_choice any and tool
	structured bool // takes output_config.format
	small      bool // writes at most 4096 tokens
}

// traitsOf reads names such as claude-opus-4-6, claude-haiku-4-5-20251001,
// claude-3-7-sonnet-latest and anthropic.claude-sonnet-5-v1:0.
func traitsOf(model string) traits {
	i := strings.Index(model, "claude-")
	if i < 0 {
		return traits{thinks: true}
	}
	var family string
	var version []int
	for _, word := range strings.FieldsFunc(model[i+len("claude-"):],
		func(r rune) bool { return r == '-' || r == '@' || r == ':' || r == '.' }) {
		if n, ok := small(word); ok && len(version) < 2 {
			version = append(version, n)
			continue
		}
		switch word {
		case "opus", "sonnet", "haiku", "fable", "mythos":
			family = word
		default:
			// A date or a suffix ends the version.
			for len(version) > 0 && len(version) < 2 {
				version = append(version, 0)
			}
		}
	}
	if family == "" || len(version) == 0 {
		return traits{thinks: true}
	}
	if len(version) == 1 {
		version = append(version, 0)
	}
	return ofVersion(family, version[0]*100+version[1])
}

func ofVersion(family string, v int) traits {
	top := family == "fable" || family == "mythos" // above the other families
	t := traits{
		known: true, thinks: v >= 307, adaptive: v >= 406, noSampling: v >= 407, structured: v >= 405,
		small: v < 305,
	}
	t.thinksDef = v >= 500
	t.alwaysOn = top || v >= 505
	t.noForce = top && v >= 501 || v >= 505
	return t
}

// small reads a number of one or two digits; longer ones are dates.
func small(word string) (n int, ok bool) {
	if len(word) == 0 || len(word) > 2 {
		return 0, false
	}
	for _, r := range word {
		if r < '0' || r > '9' {
			return 0, false
		}
		n = n*10 + int(r-'0')
	}
	return n, true
}

// budgets are the tokens of reasoning for models that want a number.
func budget(reasoning string) int {
	switch reasoning {
	case "low":
		return 2048
	case "high":
		return 16384
	}
	return 8192
}

// minBudget is the smallest budget that the API takes.
const minBudget = 1024
