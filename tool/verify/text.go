package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib/guard"
)

// values returns value and values as one list, which must not be empty.
func (c *check) values() ([]string, error) {
	values := c.Values
	if len(c.Value) > 0 && string(c.Value) != "null" {
		var value string
		if err := json.Unmarshal(c.Value, &value); err != nil {
			return nil, errors.New("value must be a string")
		}
		values = append([]string{value}, values...)
	}
	if len(values) == 0 {
		return nil, errors.New("value or values is missing")
	}
	return values, nil
}

// text makes the checks that search the target text.
func (c *check) text(values []string) error {
	if c.Kind == "regex_match" {
		return c.regex(values)
	}
	text, found := c.TargetText, 0
	if c.CaseInsensitive {
		text = strings.ToLower(text)
	}
	for _, value := range values {
		part := value
		if c.CaseInsensitive {
			part = strings.ToLower(part)
		}
		switch contains := strings.Contains(text, part); {
		case contains && c.Kind == "not_contains":
			return fmt.Errorf("target_text contains %s", quote(value))
		case contains:
			found++
		case c.Kind == "contains", c.Kind == "contains_all":
			return fmt.Errorf("target_text does not contain %s", quote(value))
		}
	}
	if found == 0 && c.Kind == "contains_any" {
		return fmt.Errorf("target_text contains none of the %d values", len(values))
	}
	return nil
}

func (c *check) regex(patterns []string) error {
	for _, pattern := range patterns {
		expression, err := compile(pattern, c.CaseInsensitive)
		if err != nil {
			return err
		}
		if !expression.MatchString(c.TargetText) {
			return fmt.Errorf("target_text does not match %s", quote(pattern))
		}
	}
	return nil
}

// compile compiles a regular expression of RE2, which matches in linear time.
func compile(pattern string, caseInsensitive bool) (*regexp.Regexp, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("the regular expression is longer than %d bytes", maxPattern)
	}
	if caseInsensitive {
		pattern = "(?i)" + pattern
	}
	return regexp.Compile(pattern)
}

func (c *check) minLength() error {
	var least int64
	if err := json.Unmarshal(c.Value, &least); err != nil {
		return errors.New("value must be a number of characters")
	}
	if length := utf8.RuneCountInString(c.TargetText); int64(length) < least {
		return fmt.Errorf("target_text has %d characters, fewer than %d", length, least)
	}
	return nil
}

func quote(s string) string { return fmt.Sprintf("%q", guard.Clip(s, 100)) }
