package ui_test

import (
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib/internal/browsertest"
)

// hostile returns more than 200 texts that would run the canary, change the page, or hide what they say, if a page took
// them for anything but text.
func hostile() []string {
	call := browsertest.Canary + "(1)"
	elements := []string{
		"<script>" + call + "</script>", "<ScRiPt >" + call + "</sCrIpT>", "<script src=data:,%s></script>",
		"<script type=module>" + call + "</script>", "<img src=x onerror=" + call + ">", "<img src=x onerror='" + call + "'>",
		"<img/src=x/onerror=" + call + ">", "<image src=x onerror=" + call + ">", "<svg onload=" + call + ">",
		"<svg><script>" + call + "</script></svg>", "<svg><animate onbegin=" + call + " attributeName=x dur=1s>",
		"<svg><a href=javascript:" + call + "><text x=20 y=20>click</text></a></svg>",
		"<svg><use href=\"data:image/svg+xml,<svg id=x onload=" + call + ">#x\">", "<math href=javascript:" + call + ">click</math>",
		"<math><mtext><table><mglyph><style><img src=x onerror=" + call + ">", "<body onload=" + call + ">",
		"<iframe src=javascript:" + call + ">", "<iframe srcdoc='<script>parent." + call + "</script>'>",
		"<object data=javascript:" + call + ">", "<embed src=javascript:" + call + ">", "<video><source onerror=" + call + ">",
		"<audio src=x onerror=" + call + ">", "<details open ontoggle=" + call + ">", "<input autofocus onfocus=" + call + ">",
		"<select autofocus onfocus=" + call + ">", "<textarea autofocus onfocus=" + call + ">", "<marquee onstart=" + call + ">",
		"<style>@import 'javascript:" + call + "';*{display:none}</style>", "<link rel=stylesheet href=javascript:" + call + ">",
		"<base href=https://attacker.invalid/>", "<meta http-equiv=refresh content='0;url=javascript:" + call + "'>",
		"<form action=javascript:" + call + "><button>send</button></form>", "<button formaction=javascript:" + call + ">x</button>",
		"<a href=javascript:" + call + ">x</a>", "<a href=' \x01javascript:" + call + "'>x</a>", "<a href=\"java\tscript:" + call + "\">x</a>",
		"<a href=&#106;avascript:" + call + ">x</a>", "<a href=data:text/html,<script>" + call + "</script>>x</a>",
		"<noscript><p title=\"</noscript><img src=x onerror=" + call + ">\">", "<template><script>" + call + "</script></template>",
		"<x onclick=" + call + " tabindex=0 id=main>", "<dialog open onclose=" + call + ">", "<plaintext>", "<xmp>", "<!--",
		"<portal src=javascript:" + call + ">", "<p style='position:fixed;inset:0;background:red'>", "<frameset onload=" + call + ">",
		"<table background=javascript:" + call + ">", "<isindex type=image src=1 onerror=" + call + ">",
	}
	var all []string
	for _, e := range elements {
		all = append(all, e)
		for _, before := range []string{`">`, `'>`, "</textarea>", "</title></script>"} {
			all = append(all, before+e)
		}
	}
	return append(
		all,
		`" onmouseover="`+call+`" x="`, `' onfocus='`+call+`' autofocus='`, "` onerror="+call, "--></script><script>"+call+"</script>",
		"]]><script>"+call+"</script>", "</style><script>"+call+"</script>", "{{"+call+"}}", "${"+call+"}", "#{"+call+"}", "<%= "+call+" %>",
		"[x](javascript:"+call+")", "![x](javascript:"+call+")", `[x](x "onerror=`+call+`")`, "<javascript:"+call+">",
		"[x]: javascript:"+call+"\n\n[x]", "[x](data:text/html;base64,PHNjcmlwdD4=)", "[x](vbscript:"+call+")", "![x](https://attacker.invalid/pixel.png)",
		"```\n</code></pre><script>"+call+"</script>\n```", "`<img src=x onerror="+call+">`", "| a |\n| - |\n| <img src=x onerror="+call+"> |",
		"&lt;script&gt;"+call+"&lt;/script&gt;", "%3Cscript%3E"+call+"%3C/script%3E",
		"javascript:"+call, "data:text/html,<script>"+call+"</script>", "//attacker.invalid", "\\\\attacker.invalid",
		"\u202egnp.exe\u202c", "\u2066\u2067x\u2069", "a\u200bb\u00adc", "\u0000<script>"+call+"</script>", "\x1b]0;title\x07", "\x1b[2J",
		"\ufeff", "e\u0301\u0301\u0301", strings.Repeat("\u0336x", 50), "\U000e0041\U000e0042", strings.Repeat("A", 5000),
		strings.Repeat("<b>", 300), strings.Repeat("[", 500), strings.Repeat("> ", 200)+"x", "__proto__", "constructor", "toString",
		"'; DROP TABLE runs; --", "../../etc/passwd", "\r\nSet-Cookie: x=y", "%s%d%n%!s(MISSING)", "id=main name=forms class=primary",
		fmt.Sprintf("event: done\ndata: {}\n\n%s", "id: 99"),
	)
}
