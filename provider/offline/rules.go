package offline

import (
	"regexp"
	"slices"
	"strings"
)

// task answers one clause. It is carried out from its beginning at each request,
// asks tools by [turn.call], and says done once it has all that it needs.
// previous is the answer to the clause before.
type task func(t *turn, c clause, previous string) (answer string, done bool)

// The names of the tools that the rules know.
const (
	readFile      = "read_file"
	listDirectory = "list_directory"
	searchFiles   = "search_files"
	writeFile     = "write_file"
	editFile      = "edit_file"
	execShell     = "exec_shell"
	webFetch      = "web_fetch"
	memoryRead    = "memory_read"
	memoryWrite   = "memory_write"
)

func pattern(s string) *regexp.Regexp { return regexp.MustCompile(`(?is)` + s) }

const please = `^(?:please\s+|can you\s+|could you\s+|would you\s+|bitte\s+|kannst du\s+)*(?:please\s+|bitte\s+)?`

var (
	isCall     = regexp.MustCompile(`(?s)^(?:please\s+)?(?i:call|use)\s+(?:the\s+tool\s+)?([A-Za-z0-9_-]{1,64})[^{]*(\{.*\})\s*\.?$`)
	isReplace  = pattern(please + `(?:replace|change|substitute|ersetze)\b`)
	isWrite    = pattern(please + `(?:write|create|save|put|append|add|make\s+a\s+(?:new\s+)?file|schreibe?|erstelle?|speichere?|lege?)\b`)
	isAppend   = pattern(please + `(?:append|add)\b|\bto the end\b`)
	isRemember = pattern(please + `(?:remember|merke? dir)\b(?:\s+that|,?\s+dass)?[\s:]+(.+)$`)
	isRun      = pattern(please + `(?:run|execute|führe)\s+(?:the command\s+|the shell command\s+|den befehl\s+)?(.+?)(?:\s+aus)?$`)
	isRecall   = pattern(`\b(?:what do you remember|what did i (?:ask|tell) you to remember|was hast du dir gemerkt)\b`)
	isURL      = regexp.MustCompile(`https?://[^\s"'<>‹›]+`)
	isAbout    = pattern(`\b(?:who|what)\s+are\s+you\b|\bare\s+you\s+(?:an?|really|chatgpt|claude|gpt|human)\b|\bwhat(?:'s| is)\s+your\s+name\b|\b(?:which|what)\s+(?:language\s+)?model\b|\b(?:wer|was)\s+bist\s+du\b`)
	isHello    = pattern(`^(?:hi|hello|hey|hallo|moin|servus|good\s+(?:morning|evening|day)|guten\s+(?:tag|morgen)|thanks|thank\s+you|danke)\b[\s\w]{0,20}$`)
	isHelp     = pattern(`\b(?:(?:what|which)\s+tools|what\s+(?:else\s+)?can\s+(?:you|i)\s+(?:do|ask)|how\s+do\s+(?:you|i\s+use\s+you)|was\s+kannst\s+du|welche\s+werkzeuge)\b|^help\b|^hilfe\b`)

	isRuntime = pattern(`\b(?:runtime|system)\s+info|\bwhich\s+(?:version\s+of\s+)?toolcrib|\btoolcrib\s+version|\bversion\s+of\s+toolcrib|\b(?:which|what)\s+(?:operating\s+system|os|platform)\b|\bhow\s+many\s+cpus\b|\bmemory\s+usage\b`)
	isEnv     = pattern(`\benvironment\s+variables?\b|\bumgebungsvariablen?\b|\bget_env\b`)
	isUsers   = pattern(`\b(?:list|show|which|what)\b.*\b(users|groups)\b`)
	isLogs    = pattern(`\b(?:show|fetch|read|last|recent)\b.*\blogs?\b$`)

	isSum    = pattern(`\b(?:how\s+many|number\s+of|count|wie\s*viele?|anzahl|zähle?)\b`)
	isUnit   = pattern(`\b(lines?|zeilen|words?|wörter|worte|characters?|chars|letters|zeichen|bytes)\b`)
	isFiles  = pattern(`\b(?:files?|dateien|datei|scripts?)\b`)
	isFolder = pattern(`\b(?:how\s+many|number\s+of|count|wie\s*viele?|anzahl|zähle?|list|which|what|show|zeige?)\s+(?:the\s+|all\s+|all\s+the\s+)?(?:sub-?)?(?:folders|directories|ordner|verzeichnisse|packages)\b`)
	isTests  = pattern(`\b(?:how\s+many|number\s+of|count)\s+(?:the\s+|all\s+|all\s+the\s+)?(?:go\s+|unit\s+)?(?:tests|test\s+functions|test\s+cases)\b`)
	isSize   = pattern(`\bhow\s+(?:big|large)\b|\bsize\s+of\b|\bwie\s+groß\b`)
	isBig    = pattern(`\b(?:largest|biggest|größte[nr]?)\s+(?:files?|datei(?:en)?)\b|\bfiles?\s+(?:\w+\s+)?(?:bigger|larger)\b`)
	isLong   = pattern(`\blongest\s+(?:[\w+.*]+\s+)?files?\b|\bmost\s+lines\b`)

	isLicence  = pattern(`\b(?:which|what|under\s+what)\b.*\blicen[cs]e\b|\blicen[cs]e\s+(?:is|of|does)\b|\bwelche\s+lizenz\b`)
	isLanguage = pattern(`\b(?:programming\s+)?languages?\s+(?:is|are|does|do)\b.*|\bwritten\s+in\b|\bkinds?\s+of\s+files\b|\bfile\s+types\b|\bwelche\s+(?:programmier)?sprachen?\b`)
	isDepends  = pattern(`\bdependenc(?:y|ies)\b|\bdepends?\s+on\b|\babhängigkeiten\b|\b(?:which|what)\s+(?:libraries|modules)\b`)
	isGo       = pattern(`\b(?:which|what)\s+(?:go|golang)\s+version\b|\bversion\s+of\s+go\b|\bgo\s+version\b`)
	isProject  = pattern(`\b(?:this|the|my|our|dieses?)\s+(?:project|repo|repository|codebase|code\s+base|projekt)\b`)
	isTell     = pattern(`\b(?:what|about|overview|describe|explain|summar|tell|purpose|look\s+at|analy[sz]e|worum|beschreib|erklär)`)
	isBare     = pattern(`^(?:give\s+me\s+an?\s+)?(?:overview|summary|überblick)\b|^what\s+is\s+this\b|^what\s+am\s+i\s+looking\s+at|^worum\s+geht\s+es`)
	isHowTo    = pattern(`^(?:how\s+(?:do|can|should|would)\s+(?:i|we|you|one)\s+|how\s+to\s+|wie\s+kann\s+ich\s+|wie\s+)(.+)$`)

	isSpan    = pattern(`\b(?:(first|last|top|ersten?|letzten?)\s+(\d+)?\s*(?:lines?|zeilen?)|lines?\s+(\d+)(?:\s*(?:-|–|to|through|bis)\s*(\d+))?)`)
	isDigest  = pattern(`\b(?:summar|outline|headings?|sections?|table\s+of\s+contents|toc|explain|describe|about\b|overview|überschriften|zusammenfass|fasse|worum|gist|tl;?dr|functions|types)`)
	isReading = pattern(`\b(?:read|show|cat|open|display|print|view|say|says|contents?|inside|lies|zeige?|öffne|inhalt|steht|give\s+me|what(?:'s|\s+is)\s+in|head|tail|title)\b`)

	isTitle = pattern(`\b(?:title|titel)\b`)

	isDefined = pattern(`\b(?:definition|declaration|implementation)\s+of\s+(.+)$|\bfiles?\s+(?:defines?|declares?|implements?|has\s+the\s+definition\s+of)\s+(.+)$`)
	isThere   = pattern(`^(?:is|are)\s+there\s+(?:an?\s+|any\s+)?(.+)$|^(?:does|do|has|have)\s+.*?\b(?:have|contain)\s+(?:an?\s+|any\s+)?(.+)$|^gibt\s+es\s+(?:eine?n?\s+)?(.+)$`)
	isNamed   = pattern(`\bfiles?\b.*?\b(?:called|named|whose\s+name\s+(?:is|contains|has)|with\s+(?:the\s+)?name)\s+(.+)$`)
	isFileOf  = pattern(`\b(?:files?|dateien|datei|docs?|documents?)\b.*?\b(?:about|mention(?:s|ing)?|contain(?:s|ing)?|use|uses|using|import(?:s|ing)?|include(?:s|ing)?|refer(?:s|ring)?\s+to|talk(?:s|ing)?\s+about|deal(?:s|ing)?\s+with|have|has|with|call(?:s)?|about|enthalten|enthält|erwähnen|erwähnt|über)\s+(.+)$`)
	isTopic   = pattern(`\b(?:about|talk(?:s|ing)?\s+about|deal(?:s|ing)?\s+with|related\s+to|über)\s+‹?\S`)
	isWhere   = pattern(`^(?:where|wo)\s+(?:is|are|do(?:es)?|can\s+i\s+find|was|ist|sind|steht|wird)\s+(?:the\s+)?(?:function\s+|type\s+|class\s+|method\s+|variable\s+|constant\s+|we\s+|it\s+)?(.+)$`)
	isFind    = pattern(please + `(?:(?:find|search|grep|look|suche?|finde)(?:\s+(?:for|nach|me|through|in\s+the\s+files\s+for))*\s+)(.+)$`)
	isUse     = pattern(`^(?:who|what|which\s+\w+)\s+(?:uses?|calls?|imports?|mentions?|references?)\s+(.+)$`)
	isList    = pattern(`\b(?:list|ls|files|folders?|directory|directories|tree|structure|dateien|ordner|verzeichnis|liste|hier)\b|\bwhat(?:'s|\s+is)\s+(?:in\s+)?here\b|\bwhat\s+do\s+(?:you\s+see|we\s+have)\b`)
)

type rule struct {
	fits func(c clause) bool
	do   task
}

// rules are tried in order; the first that fits answers the clause.
func rules() []rule {
	return []rule{
		{func(c clause) bool { return isCall.MatchString(c.raw) }, callTool},
		{func(c clause) bool { return isReplace.MatchString(c.text) && len(c.files) > 0 }, replaceText},
		{func(c clause) bool { return isWrite.MatchString(c.text) && len(c.files) > 0 }, writeText},
		{func(c clause) bool { return isRecall.MatchString(c.text) }, recallText},
		{func(c clause) bool { return isRemember.MatchString(c.text) }, rememberText},
		{func(c clause) bool { return isRun.MatchString(c.text) && command(c) != "" }, runCommand},
		{func(c clause) bool { return isURL.MatchString(c.raw) }, fetchPage},
		{func(c clause) bool { return isAbout.MatchString(c.text) || isHello.MatchString(c.text) }, introduce},
		{func(c clause) bool { return c.plain }, showFile},
		{func(c clause) bool { return isWorking.MatchString(c.text) && aboutWhat(c) != "" }, askReadme},
		{func(c clause) bool { return isHelp.MatchString(c.text) }, capabilities},

		{func(c clause) bool { return isRuntime.MatchString(c.text) }, ask("get_runtime_info")},
		{func(c clause) bool { return isEnv.MatchString(c.text) }, ask("get_env")},
		{func(c clause) bool { return isUsers.MatchString(c.text) }, askUsers},
		{func(c clause) bool { return isLogs.MatchString(c.text) && len(c.files) == 0 }, ask("fetch_logs")},

		{func(c clause) bool { return isLong.MatchString(c.text) }, longestFile},
		{func(c clause) bool { return isBig.MatchString(c.text) }, largestFile},
		{func(c clause) bool {
			return isSum.MatchString(c.text) && isUnit.MatchString(c.text) && !countsMatches(c)
		}, countUnits},
		{func(c clause) bool { return isTests.MatchString(c.text) }, countTests},
		{func(c clause) bool { return isFolder.MatchString(c.text) }, countFolders},
		{func(c clause) bool { return isSum.MatchString(c.text) && isFiles.MatchString(c.text) }, countFiles},
		{func(c clause) bool { return isSize.MatchString(c.text) && len(c.files) > 0 }, fileSize},
		{func(c clause) bool { return isSum.MatchString(c.text) }, countMatches},

		{func(c clause) bool {
			return isLicence.MatchString(c.text) && !strings.Contains(strings.Join(c.files, ""), ".")
		}, licence},
		{func(c clause) bool { return isGo.MatchString(c.text) }, goVersion},
		{func(c clause) bool { return isDepends.MatchString(c.text) }, dependencies},
		{func(c clause) bool { return isLanguage.MatchString(c.text) && len(c.files) == 0 }, fileKinds},

		{func(c clause) bool { return isSpan.MatchString(c.text) && len(c.files) > 0 }, readSpan},
		{func(c clause) bool { return isTitle.MatchString(c.text) && len(c.files) > 0 }, showTitle},
		{func(c clause) bool { return isTell.MatchString(c.text) && packageName(c) != "" && len(c.files) == 0 }, aboutPackage},
		{func(c clause) bool { return isDefined.MatchString(c.text) }, whereIs},
		{func(c clause) bool { return isThere.MatchString(c.text) && !isVague(c) }, existence},
		{func(c clause) bool { return isNamed.MatchString(c.text) }, findNamed},
		{func(c clause) bool { return isWhere.MatchString(c.text) }, whereIs},
		{func(c clause) bool { return isFileOf.MatchString(c.text) && subject(c, isFileOf) != "" }, filesAbout},
		{func(c clause) bool { return isUse.MatchString(c.text) }, whereIs},
		{func(c clause) bool { return isFind.MatchString(c.text) }, find},
		{func(c clause) bool { return isDigest.MatchString(c.text) && len(c.files) > 0 }, outlineFile},
		{func(c clause) bool { return len(c.files) > 0 && (isReading.MatchString(c.text) || onlyFiles(c)) }, showFile},
		{func(c clause) bool {
			return isBare.MatchString(c.text) || isProject.MatchString(c.text) && isTell.MatchString(c.text)
		}, overview},
		{func(c clause) bool { return isHowTo.MatchString(c.text) }, howTo},
		{func(c clause) bool { return isList.MatchString(c.text) || c.glob != "" || c.folder != "" }, list},
		{func(c clause) bool { return len(c.files) > 0 }, showFile},
		{func(c clause) bool { return len(c.words) > 0 }, showWords},
		{func(c clause) bool { return isWhatIs.MatchString(c.text) && aboutWhat(c) != "" }, askReadme},
	}
}

func taskFor(c clause) task {
	for _, rule := range rules() {
		if rule.fits(c) {
			return rule.do
		}
	}
	return nil
}

// onlyFiles tells whether the clause is little more than the name of a file.
func onlyFiles(c clause) bool { return len(strings.Fields(c.text)) <= len(c.files)+1 }

// countsMatches tells whether what is counted are the lines or words that mention
// something, not all of a file.
func countsMatches(c clause) bool {
	return len(c.quotes) > 0 && !isPath(c.quotes[0]) && !slices.Contains(c.files, c.quotes[0]) || lineWith.MatchString(c.text)
}

var lineWith = pattern(`\b(?:lines|zeilen)\s+(?:that\s+|which\s+|with\s+|die\s+|mit\s+)*(?:mention|contain|have|include|match|with)\w*\s+`)

// fillers stand around what is searched for and do not belong to it.
var (
	leading  = pattern(`^(?:(?:the|a|an|any|all|word|words|string|text|term|phrase|name|line|lines|function|occurrences?|uses?|places?|mentions?|of|where|with|that|which|contains?|containing|mentions?|mentioning|nach|das wort|den text|dem)\s+)+`)
	trailing = pattern(`(?:\s*,?\s*(?:\b(?:here|anywhere|there|hier|please|bitte|exactly|defined|declared|implemented|used|mentioned|imported|called|located|stored|written|definiert|verwendet|benutzt|in\s+it|(?:in|of|from|inside|under|im|in)\s+(?:this|the|my|our|all|any|every|diesem|dem|der|den|which|what)\b.*|(?:in|under|inside)\s+(?:\S+\s+(?:folder|directory|package|files?|ordner)|\S+/|\S+\.\w+|go|golang|markdown|[\w*.]+\s+files?))))+\s*$`)
)

// subject is what a clause asks about: its first quoted text, or what the rule
// found, without fillers.
func subject(c clause, rule interface {
	FindStringSubmatch(string) []string
},
) string {
	for _, q := range c.quotes {
		return q
	}
	m := rule.FindStringSubmatch(c.text)
	for i := 1; i < len(m); i++ {
		if found := bare(m[i]); found != "" {
			return found
		}
	}
	return ""
}

func bare(s string) string {
	s = strings.Trim(strings.TrimSpace(s), endMarks)
	s = trailing.ReplaceAllString(s, "")
	s = leading.ReplaceAllString(s, "")
	return strings.Trim(strings.TrimSpace(s), endMarks)
}
