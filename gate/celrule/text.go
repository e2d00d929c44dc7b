package celrule

import (
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// Bounds of what a condition makes.
const (
	maxText     = 4 << 20 // bytes of a text
	maxElements = 1 << 17 // elements of a list
)

// textFunctions are the functions on texts of CEL's strings extension, by the same
// names and meanings; positions count characters. They are made anew because those
// of the library search in the square of the length and have no bound on what
// replace and join make.
func textFunctions() []cel.EnvOption {
	s, i, list := cel.StringType, cel.IntType, cel.ListType(cel.StringType)
	member := func(id string, result *cel.Type, f func(args ...ref.Val) ref.Val, of ...*cel.Type) cel.FunctionOpt {
		binding := cel.FunctionBinding(f)
		switch len(of) {
		case 1:
			binding = cel.UnaryBinding(func(a ref.Val) ref.Val { return f(a) })
		case 2:
			binding = cel.BinaryBinding(func(a, b ref.Val) ref.Val { return f(a, b) })
		}
		return cel.MemberOverload(id, of, result, binding)
	}
	onText := func(f func(string) string) func(...ref.Val) ref.Val {
		return func(args ...ref.Val) ref.Val { return types.String(f(text(args[0]))) }
	}
	return []cel.EnvOption{
		cel.Function("lowerAscii", member("string_lower_ascii", s, onText(lowerASCII), s)),
		cel.Function("upperAscii", member("string_upper_ascii", s, onText(upperASCII), s)),
		cel.Function("trim", member("string_trim", s, onText(strings.TrimSpace), s)),
		cel.Function("charAt", member("string_char_at_int", s, charAt, s, i)),
		cel.Function("indexOf", member("string_index_of_string", i, indexOf, s, s),
			member("string_index_of_string_int", i, indexOf, s, s, i)),
		cel.Function("lastIndexOf", member("string_last_index_of_string", i, lastIndexOf, s, s)),
		cel.Function("substring", member("string_substring_int", s, substring, s, i),
			member("string_substring_int_int", s, substring, s, i, i)),
		cel.Function("replace", member("string_replace_string_string", s, replace, s, s, s),
			member("string_replace_string_string_int", s, replace, s, s, s, i)),
		cel.Function("split", member("string_split_string", list, split, s, s),
			member("string_split_string_int", list, split, s, s, i)),
		cel.Function("join", member("list_join", s, join, list),
			member("list_join_string", s, join, list, s)),
	}
}

// text and integer read an argument whose type CEL has checked.
func text(v ref.Val) string {
	s, _ := v.(types.String)
	return string(s)
}

func integer(v ref.Val) int64 {
	i, _ := v.(types.Int)
	return int64(i)
}

func lowerASCII(s string) string { return mapASCII(s, 'A', 'Z', 'a'-'A') }

func upperASCII(s string) string { return mapASCII(s, 'a', 'z', 'A'-'a') }

func mapASCII(s string, from, to rune, by int) string {
	return strings.Map(func(r rune) rune {
		if r >= from && r <= to {
			return r + rune(by)
		}
		return r
	}, s)
}

// offset returns the byte at which the character at position n begins, where the
// position just behind the last character is one, too.
func offset(s string, n int64) (int, bool) {
	if n < 0 || n > int64(len(s)) {
		return 0, false
	}
	for at := range s {
		if n == 0 {
			return at, true
		}
		n--
	}
	return len(s), n == 0
}

func outOfRange(n int64) ref.Val { return types.NewErr("index out of range: %d", n) }

func charAt(args ...ref.Val) ref.Val {
	s := text(args[0])
	at, ok := offset(s, integer(args[1]))
	if !ok {
		return outOfRange(integer(args[1]))
	}
	_, size := utf8.DecodeRuneInString(s[at:])
	return types.String(s[at : at+size])
}

func indexOf(args ...ref.Val) ref.Val {
	s, from := text(args[0]), int64(0)
	if len(args) > 2 {
		from = integer(args[2])
	}
	if from < 0 {
		return outOfRange(from)
	}
	at, ok := offset(s, from)
	if !ok {
		return types.Int(-1)
	}
	found := strings.Index(s[at:], text(args[1]))
	if found < 0 {
		return types.Int(-1)
	}
	return types.Int(from + int64(utf8.RuneCountInString(s[at:at+found])))
}

func lastIndexOf(args ...ref.Val) ref.Val {
	s := text(args[0])
	found := strings.LastIndex(s, text(args[1]))
	if found < 0 {
		return types.Int(-1)
	}
	return types.Int(utf8.RuneCountInString(s[:found]))
}

func substring(args ...ref.Val) ref.Val {
	s := text(args[0])
	from, ok := offset(s, integer(args[1]))
	if !ok {
		return outOfRange(integer(args[1]))
	}
	to := len(s)
	if len(args) > 2 {
		if to, ok = offset(s, integer(args[2])); !ok || to < from {
			return outOfRange(integer(args[2]))
		}
	}
	return types.String(s[from:to])
}

// limit reads how often something is done at most; -1 = always.
func limit(args []ref.Val, at int) int {
	if len(args) <= at {
		return -1
	}
	return int(min(max(integer(args[at]), -1), maxText))
}

func replace(args ...ref.Val) ref.Val {
	s, old, with := text(args[0]), text(args[1]), text(args[2])
	n := limit(args, 3)
	if grows := len(with) - len(old); grows > 0 {
		times := strings.Count(s, old)
		if n >= 0 {
			times = min(times, n)
		}
		if times > 0 && grows > (maxText-len(s))/times {
			return tooLong()
		}
	}
	return types.String(strings.Replace(s, old, with, n))
}

func split(args ...ref.Val) ref.Val {
	s, separator, n := text(args[0]), text(args[1]), limit(args, 2)
	if n < 0 || n > maxElements {
		if strings.Count(s, separator) >= maxElements {
			return tooMany()
		}
	}
	parts := strings.SplitN(s, separator, n)
	list := make([]ref.Val, len(parts))
	for i, part := range parts {
		list[i] = types.String(part)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, list)
}

func join(args ...ref.Val) ref.Val {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(args[0])
	}
	separator := ""
	if len(args) > 1 {
		separator = text(args[1])
	}
	var b strings.Builder
	for n, size := int64(0), integer(list.Size()); n < size; n++ {
		element := list.Get(types.Int(n))
		if types.IsUnknown(element) {
			return element
		}
		part, ok := element.(types.String)
		if !ok {
			return types.NewErr("join: element %d is no string", n)
		}
		if n > 0 {
			b.WriteString(separator)
		}
		b.WriteString(string(part))
		if b.Len() > maxText {
			return tooLong()
		}
	}
	return types.String(b.String())
}

func tooLong() ref.Val { return types.NewErr("a text would be longer than %d bytes", maxText) }

func tooMany() ref.Val { return types.NewErr("a list would have more than %d elements", maxElements) }
