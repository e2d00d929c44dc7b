package guard

import (
	"regexp"
	"strings"
	"sync"
)

// Redacted replaces text that looks like a secret.
const Redacted = "***redacted***"

// lazily returns a function that compiles an expression on first use: most runs of the program need none of them.
func lazily(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// secretName matches names whose values are never shown.
var secretName = lazily(`(?i)PASS|PWD|SECRET|TOKEN|KEY|SALT|CREDENTIAL|AUTH|PRIVATE|MASTER|ENCRYPT|DSN|DATABASE_URL|API_KEY`)

// IsSecretName reports whether a variable or field of this name is treated as a secret.
func IsSecretName(name string) bool { return secretName().MatchString(name) }

// RedactEnv returns the value of an environment variable as it may be shown:
// [Redacted] if its name is that of a secret ([IsSecretName]), else [RedactText] of it. An
// empty value stays empty.
func RedactEnv(name, value string) string {
	switch {
	case value == "":
		return ""
	case IsSecretName(name):
		return Redacted
	}
	return RedactText(value)
}

var (
	// The user information of a URL ends at the last @ before the path.
	userInfo = lazily(`([A-Za-z][A-Za-z0-9+.-]*:(?:\\?/){2})([^\s/?#"'<>\\]+)@`)
	// NAME=value, NAME: value and "NAME": "value", also as JSON inside JSON, where the
	// name ends with one of these words. They are fewer than those of secretName, because
	// KEY and AUTH are parts of everyday words. The first branch skips marks of secrets.
	assignment = lazily(`\[secret:[A-Za-z0-9._-]+\]|(?i)((?:passw(?:or)?d|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?|dsn|database_url)\\*["']?[ \t]*[=:][ \t]*(?:\\+["'])?)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;&"'<>{}\[\]\\]+)`)
	authScheme = lazily(`(?i)\b((?:Bearer|Basic|Digest|Token)[ \t]+)[A-Za-z0-9._~+/=-]{8,}`)
	authHeader = lazily(`(?i)((?:authorization|cookie|x-api-key)["']?[ \t]*[=:][ \t]*["']?)([^\r\n"']+)`)
	knownToken = lazily(`\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{20,}|xox[abeoprs]-[A-Za-z0-9-]{10,}|[sp]k-[A-Za-z0-9_-]{16,}|(?:sk|gsk|hf)_[A-Za-z0-9_]{16,}|xai-[A-Za-z0-9_-]{16,}|key-[A-Za-z0-9]{24,}|A(?:KIA|SIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+)|` +
		`(?:` + TokenPrefix + `|` + BusTokenPrefix + `)[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+|` +
		InvitePrefix + `[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+`)
	privateKey = lazily(`-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`)
)

// plainUser is the most bytes of user information without a password that is read as the
// name of a user ("git@") and not as a token.
const plainUser = 15

// RedactText replaces text that looks like a secret by [Redacted]: user
// information of URLs (scheme://user:pass@), values of authorization and cookie
// headers, values of names such as password, token or api_key, well-known shapes of
// tokens, and private keys. It catches secrets that are not known; known
// ones are replaced by value ([Masker]).
func RedactText(s string) string {
	if strings.Contains(s, "PRIVATE KEY-----") {
		s = privateKey().ReplaceAllString(s, Redacted)
	}
	if strings.Contains(s, "@") {
		s = redactUserInfo(s)
	}
	if strings.Contains(s, ":") || strings.Contains(s, "=") {
		s = authHeader().ReplaceAllString(s, "${1}"+Redacted)
		s = assignment().ReplaceAllStringFunc(s, redactAssignment)
	}
	if strings.Contains(s, " ") || strings.Contains(s, "\t") {
		s = authScheme().ReplaceAllString(s, "${1}"+Redacted)
	}
	if len(s) < shortestToken {
		return s
	}
	return knownToken().ReplaceAllString(s, Redacted)
}

// shortestToken is the length of the shortest text that knownToken matches (xoxb-…).
const shortestToken = 15

func redactAssignment(found string) string {
	at := assignment().FindStringSubmatchIndex(found)
	if at[4] < 0 {
		return found
	}
	value := found[at[4]:at[5]]
	if quote := value[:1]; len(value) > 1 && (quote == `"` || quote == `'`) {
		return found[:at[4]] + quote + Redacted + quote
	}
	return found[:at[4]] + Redacted
}

func redactUserInfo(s string) string {
	return userInfo().ReplaceAllStringFunc(s, func(found string) string {
		at := userInfo().FindStringSubmatchIndex(found)
		user := found[at[4]:at[5]]
		if !strings.Contains(user, ":") && !strings.Contains(strings.ToLower(user), "%3a") && len(user) <= plainUser {
			return found
		}
		return found[:at[4]] + Redacted + "@"
	})
}
