package web

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/html"

	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// Text that is not visible to a person who opens the page is left out, because pages use it to give instructions to
// models without their readers' knowledge. Visibility follows from the elements themselves and from the simplest
// rules of the page's own style sheets; scripts and external style sheets are ignored.

// color is 1 + RGB, or 0 if unknown.
type color int

const (
	white color = 1 + 0xFFFFFF
	clear color = -1 // invisible
)

// near reports whether text of a color is invisible in front of another color.
func (c color) near(behind color) bool {
	if c <= 0 || behind <= 0 {
		return c == clear
	}
	a, b := int(c-1), int(behind-1)
	for range 3 {
		if d := a&0xFF - b&0xFF; d < -10 || d > 10 {
			return false
		}
		a, b = a>>8, b>>8
	}
	return true
}

// look is the style of text at one place.
type look struct {
	color, behind color
	rules         map[string]map[string]string
}

// backdrops matches parts of a style sheet that may change the background of the page.
var backdrops = lazyregexp.New(`background|@import|color-scheme`)

// lookOf returns the initial style of a page: on white, unless a style sheet may change it.
func lookOf(doc *html.Node) look {
	l := look{behind: white, rules: map[string]map[string]string{}}
	for n := range doc.Descendants() {
		sheet := func(a html.Attribute) bool { return a.Key == "rel" && strings.Contains(a.Val, "stylesheet") }
		switch own := n.Type == html.ElementNode && n.Data == "style"; {
		case own && n.FirstChild != nil:
			l.read(n.FirstChild.Data)
			if text := strings.ToLower(n.FirstChild.Data); backdrops.MatchString(text) {
				l.behind = 0
			}
		case slices.ContainsFunc(n.Attr, sheet):
			l.behind = 0
		}
	}
	return l
}

// read records the rules of a style sheet for single element names, classes and IDs, outside of @-rules. It ignores
// colors and opacity, because rules that are not read, and scripts, often make such elements visible.
func (l *look) read(sheet string) {
	sheet = cssAt.ReplaceAllString(cssComment.ReplaceAllString(sheet, " "), "")
	for _, rule := range cssRule.FindAllStringSubmatch(sheet, -1) {
		set := declarations(rule[2])
		for selector := range strings.SplitSeq(rule[1], ",") {
			selector = strings.TrimSpace(selector)
			if !cssPlain.MatchString(selector) || len(l.rules) >= maxRules {
				continue
			}
			of := l.rules[selector]
			if of == nil {
				of = map[string]string{}
				l.rules[selector] = of
			}
			for _, name := range []string{"display", "visibility", "font-size", "position", "left", "text-indent"} {
				if value := set[name]; value != "" {
					of[name] = value
				}
			}
		}
	}
}

// styles returns the declarations for an element: those of the rules for its name, classes and ID, then its own.
func (l *look) styles(name, classes, id, own string) map[string]string {
	set := map[string]string{}
	maps.Copy(set, l.rules[name])
	for class := range strings.FieldsSeq(classes) {
		maps.Copy(set, l.rules["."+class])
		maps.Copy(set, l.rules[name+"."+class])
	}
	maps.Copy(set, l.rules["#"+id])
	maps.Copy(set, declarations(own))
	return set
}

// veil removes invisible content from a node, and returns the number of removed pieces with text.
func veil(n *html.Node, l look) (left int) {
	if n.Data == "script" || n.Data == "style" {
		return 0
	}
	for c := n.FirstChild; c != nil; {
		next, own := c.NextSibling, l
		var out bool
		switch c.Type {
		case html.TextNode:
			out = l.color.near(l.behind) && hasText(c)
		case html.ElementNode:
			out = unseen(c, &own)
		}
		if out {
			if hasText(c) {
				left++
			}
			n.RemoveChild(c)
		} else {
			left += veil(c, own)
		}
		c = next
	}
	return left
}

// hasText reports whether a node contains text of a page.
func hasText(n *html.Node) bool {
	if n.Type == html.TextNode {
		return strings.TrimSpace(n.Data) != ""
	}
	if n.Data == "script" || n.Data == "style" {
		return false
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		if hasText(c) {
			return true
		}
	}
	return false
}

// unseen reports whether an element and its content are invisible. Otherwise it sets l to the style of the element.
func unseen(n *html.Node, l *look) bool {
	var open bool
	var style, classes, id string
	for _, a := range n.Attr {
		switch value := strings.ToLower(strings.TrimSpace(a.Val)); a.Key {
		case "hidden":
			if value != "until-found" { // a search on the page reveals it
				return true
			}
		case "style":
			style = a.Val
		case "class":
			classes = a.Val
		case "id":
			id = a.Val
		case "open":
			open = true
		case "bgcolor":
			l.over(colorOf(value))
		case "color":
			if n.Data == "font" {
				l.color = colorOf(value)
			}
		}
	}
	switch n.Data {
	case "template", "datalist", "noframes", "noembed":
		return true
	// shown only as fallbacks
	case "canvas", "video", "audio", "rp", "desc", "metadata", "annotation", "annotation-xml":
		return true
	case "dialog":
		if !open {
			return true
		}
	}
	// Pages that begin hidden as a whole are shown by scripts.
	return hides(l.styles(n.Data, classes, id, style), l) && n.Data != "body" && n.Data != "html"
}

// maxRules bounds the rules that are kept of a page.
const maxRules = 10_000

var (
	cssComment = lazyregexp.New(`(?s)/\*.*?(\*/|$)`)
	cssEscape  = lazyregexp.New(`\\([0-9a-fA-F]{1,6}[ \t\n]?|.)`)
	cssNumber  = lazyregexp.New(`^([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,3})?)([a-z%]*)$`)
	cssClip    = lazyregexp.New(`^(rect\(\s*(0|1px)\D|inset\(\s*(50|100)%|(circle|ellipse)\(\s*0)`)
	cssMoved   = lazyregexp.New(`translate(x|y|3d)?\([^)]*-\d{4,}px|scale(x|y|3d)?\(\s*0*\.?0*\s*[,)]`)
	cssAt      = lazyregexp.New(`@[^{};]*(;|\{([^{}]*\{[^{}]*\})*[^{}]*\})`)
	cssRule    = lazyregexp.New(`([^{}]*)\{([^{}]*)\}`)
	cssPlain   = lazyregexp.New(`^[a-zA-Z0-9]*([.#][\w-]+)?$`)
	cssImage   = lazyregexp.New(`url\(|gradient\(|image`)
)

// declarations parses a style attribute. The last declaration of each property is used, but important
// ones have precedence.
func declarations(style string) map[string]string {
	style = cssEscape.ReplaceAllStringFunc(cssComment.ReplaceAllString(style, " "), func(e string) string {
		if n, err := strconv.ParseInt(strings.TrimSpace(e[1:]), 16, 32); err == nil {
			return string(rune(n))
		}
		return e[1:]
	})
	set, important := map[string]string{}, map[string]bool{}
	for one := range strings.SplitSeq(strings.ToLower(style), ";") {
		name, value, _ := strings.Cut(one, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		value, first := strings.CutSuffix(value, "important")
		if first {
			value = strings.TrimRight(value, "! \t\n")
		}
		if value != "" && (first || !important[name]) {
			set[name], important[name] = value, first
		}
	}
	return set
}

// hides reports whether declarations hide an element. Otherwise it sets l to the style of the element.
func hides(set map[string]string, l *look) bool {
	less := func(name string, most float64, units string) bool {
		n, unit, ok := length(set[name])
		return ok && (n == 0 || n < most && strings.Contains(units, " "+unit+" "))
	}
	clipped := strings.HasPrefix(set["overflow"], "hidden") || strings.HasPrefix(set["overflow"], "clip")
	away := false
	for _, name := range []string{
		"left", "right", "top", "bottom", "margin-left", "margin-top", "margin-right", "text-indent",
	} {
		n, unit, ok := length(set[name])
		moved := set["position"] != "" && set["position"] != "static" || strings.ContainsRune(name, '-')
		away = away || ok && moved && (n <= -900 || n <= -60 && (unit == "em" || unit == "rem") || n <= -100 &&
			(unit == "vw" || unit == "vh"))
	}
	switch {
	case set["display"] == "none", set["visibility"] == "hidden", set["visibility"] == "collapse",
		set["content-visibility"] == "hidden", away, less("opacity", 0.05, "  "), less("font-size", 2, " px pt "),
		less("font-size", 0.12, " em rem "), less("font-size", 12, " % "), cssClip.MatchString(set["clip"]),
		cssClip.MatchString(set["clip-path"]), cssMoved.MatchString(set["transform"]):
		return true
	case clipped:
		for _, name := range []string{"width", "height", "max-width", "max-height"} {
			if less(name, 2, " px ") {
				return true
			}
		}
	}
	for part := range strings.FieldsSeq(set["font"]) {
		size, _, _ := strings.Cut(part, "/")
		if n, unit, ok := length(size); ok && n == 0 && (unit != "" || size != part) {
			return true
		}
	}
	if text := set["color"]; text != "" && text != "inherit" {
		l.color = colorOf(text)
	}
	for _, text := range []string{set["background"], set["background-color"], set["background-image"]} {
		if cssImage.MatchString(text) {
			l.behind = 0
		} else if text != "" {
			l.over(colorOf(text))
		}
	}
	return false
}

// over sets the background of text, unless it is transparent.
func (l *look) over(c color) {
	if c != clear {
		l.behind = c
	}
}

// length parses a CSS number with its unit.
func length(text string) (n float64, unit string, ok bool) {
	m := cssNumber.FindStringSubmatch(text)
	if m == nil {
		return 0, "", false
	}
	n, err := strconv.ParseFloat(m[1], 64)
	return n, m[2], err == nil
}

var colorNames = map[string]color{
	"white": white, "black": 1, "red": 1 + 0xFF0000, "lime": 1 + 0x00FF00, "blue": 1 + 0x0000FF, "gray": 1 + 0x808080,
	"grey": 1 + 0x808080, "silver": 1 + 0xC0C0C0, "yellow": 1 + 0xFFFF00, "snow": 1 + 0xFFFAFA, "ivory": 1 + 0xFFFFF0,
	"ghostwhite": 1 + 0xF8F8FF, "whitesmoke": 1 + 0xF5F5F5, "transparent": clear, "none": clear,
}

// colorOf parses a color.
func colorOf(text string) color {
	if c, known := colorNames[text]; known {
		return c
	}
	if kind, inside, ok := strings.Cut(strings.TrimSuffix(text, ")"), "("); ok {
		return colorBy(kind, strings.FieldsFunc(inside, func(r rune) bool { return strings.ContainsRune(" ,/\t\n", r) }))
	}
	hex, ok := strings.CutPrefix(text, "#")
	if len(hex) == 3 || len(hex) == 4 {
		long := ""
		for _, c := range hex {
			long += string([]rune{c, c})
		}
		hex = long
	}
	n, err := strconv.ParseUint(hex, 16, 32)
	switch {
	case !ok || err != nil || len(hex) != 6 && len(hex) != 8:
		return 0
	case len(hex) == 6:
		return 1 + color(n)
	case n&0xFF == 0:
		return clear
	}
	return 1 + color(n>>8)
}

// colorBy returns the color described by a function.
func colorBy(function string, parts []string) color {
	if len(parts) == 4 {
		if alpha, _, ok := length(parts[3]); ok && alpha == 0 {
			return clear
		}
	}
	if function != "rgb" && function != "rgba" || len(parts) < 3 {
		return 0
	}
	var c color
	for _, part := range parts[:3] {
		n, unit, ok := length(part)
		if unit == "%" {
			n *= 2.55
		}
		if !ok || n < 0 || n > 255 {
			return 0
		}
		c = c<<8 | color(n+0.5)
	}
	return 1 + c
}
