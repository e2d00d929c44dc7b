// Package config reads toolcrib.yaml (contract §2): strictly, with file, line and
// key path in every error, and whole or not at all.
//
// The struct [Config] is the single source of what a configuration may hold: the
// loader, the defaults, the JSON Schema and the printed form are made from its
// fields and their tags ([yamltree.Field] lists them).
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
