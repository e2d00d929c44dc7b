// Package config reads toolcrib.yaml (contract §2): strictly, with file, line and
// key path in every error, and whole or not at all.
//
// The struct [Config] is the single source of what a configuration may hold: the
// loader, the defaults, the JSON Schema and the printed form are made from its
// fields and their tags:
//
//	yaml      the key
//	default   the value of a key that is absent
//	enum      the words that a string may be, separated by |
//	min, max  bounds of a number, a duration or of the length of a list
//	format    what a text must look like, and how it is read (see checkFormat)
//	keys      what the keys of a mapping must look like
//	required  an error if the key is absent
//	null      null is allowed, and is not the same as empty
//	words     true, false and numbers without quotes are taken as text
//	short     in a list: the key of an entry that a text alone stands for
//	secret    what is never shown: "all" of the value, the password of a "url",
//	          what a header or variable that is "named" like a secret holds,
//	          all but the scheme of a "notify" address, key=value in "args"
//
// What the contract leaves open is decided here as follows.
//
//   - A relative path that is written in a file is relative to that file's folder;
//     ~ is the home folder. The default of a path, and the workspace "." however
//     it came there, are relative to the folder that toolcrib was started in.
//   - An agent inherits nothing from agents.default but its model: a key that is
//     not written has the built-in default. An agent without a model has the model
//     and, if it names none, the fallback of agents.default; if that has none
//     either, the model is found as contract §4 says ([DetectModel]).
//   - PROVIDER in PROVIDER/MODEL, and a model's provider, may be a type that needs
//     no more than a key from the environment (openai, anthropic, gemini, ollama,
//     llamacpp, offline); an entry of providers with that name comes first.
//   - References such as ${env:NAME} are allowed in every value that is a text, path,
//     address or secret, and are filled in at use ([Value]). They are not allowed in
//     names, words of a fixed list, lists of tools or hosts, and rules. $${ is a
//     literal ${.
//   - A section, mapping or list that is null (all of it commented out, say) is as
//     if absent, except where null has a meaning of its own, and except for a list
//     whose default is not empty: that one wants [] or values.
package config
