package celrule

import (
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"
)

// Bounds of what a condition makes.
const (
	maxText     = 4 << 20 // bytes of a text
	maxElements = 1 << 17 // elements of a list
)

// textFunctions are the functions on texts of CEL's strings extension, without format and
// quote. Five are made again: those of the library search in the square of the length, or
// have no bound on what they make, and its cost limit looks at the result only.
func textFunctions() []cel.EnvOption {
	s, i, list := cel.StringType, cel.IntType, cel.ListType(cel.StringType)
	function := func(name, id string, result *cel.Type, f func(...ref.Val) ref.Val, of ...*cel.Type) cel.EnvOption {
		binding := cel.FunctionBinding(f)
		switch len(of) {
		case 1:
			binding = cel.UnaryBinding(func(a ref.Val) ref.Val { return f(a) })
		case 2:
			binding = cel.BinaryBinding(func(a, b ref.Val) ref.Val { return f(a, b) })
		}
		return cel.Function(name, cel.MemberOverload(id, of, result, binding))
	}
	return []cel.EnvOption{
		ext.Strings(ext.StringsVersion(0)),
		function("indexOf", "string_index_of_string", i, indexOf, s, s),
		function("indexOf", "string_index_of_string_int", i, indexOf, s, s, i),
		function("lastIndexOf", "string_last_index_of_string", i, lastIndexOf, s, s),
		function("lastIndexOf", "string_last_index_of_string_int", i, lastIndexOf, s, s, i),
		function("replace", "string_replace_string_string", s, replace, s, s, s),
		function("replace", "string_replace_string_string_int", s, replace, s, s, s, i),
		function("split", "string_split_string", list, split, s, s),
		function("split", "string_split_string_int", list, split, s, s, i),
		function("join", "list_join", s, join, list),
		function("join", "list_join_string", s, join, list, s),
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

// position returns the number of characters in front of a byte; -1 in front of none.
func position(s string, at int) ref.Val {
	if at < 0 {
		return types.Int(-1)
	}
	return types.Int(utf8.RuneCountInString(s[:at]))
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
		at = len(s)
	}
	found := strings.Index(s[at:], text(args[1]))
	if found >= 0 {
		found += at
	}
	return position(s, found)
}

func lastIndexOf(args ...ref.Val) ref.Val {
	s, sub := text(args[0]), text(args[1])
	if len(args) > 2 {
		from := integer(args[2])
		if from < 0 {
			return outOfRange(from)
		}
		if at, ok := offset(s, from); (!ok || at == len(s)) && sub != "" {
			return types.Int(-1)
		}
		if end, ok := offset(s, from+int64(utf8.RuneCountInString(sub))); ok {
			s = s[:end]
		}
	}
	return position(s, strings.LastIndex(s, sub))
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
	times := strings.Count(s, old)
	if n >= 0 {
		times = min(times, n)
	}
	if grows := len(with) - len(old); times > 0 && grows > (maxText-len(s))/times {
		return tooLong()
	}
	return types.String(strings.Replace(s, old, with, n))
}

func split(args ...ref.Val) ref.Val {
	s, separator, n := text(args[0]), text(args[1]), limit(args, 2)
	if (n < 0 || n > maxElements) && strings.Count(s, separator) >= maxElements {
		return tooMany()
	}
	return types.NewStringList(types.DefaultTypeAdapter, strings.SplitN(s, separator, n))
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
		part, ok := element.(types.String)
		switch {
		case types.IsUnknown(element):
			return element
		case !ok:
			return types.NewErr("join: element %d is not a string", n)
		case n > 0:
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
