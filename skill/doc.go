// Package skill reads skills of the Agent Skills convention: folders with a
// SKILL.md, whose front matter names the skill and may say which tools it allows,
// and whose body is text for the model (rows N15, N16, N26; requirements 1b, 4b).
//
//   - [Parse] reads one SKILL.md, [Load] the folders that hold skills.
//   - [Library.Effective] chooses the skills that a run has: enabled, present,
//     approved by content, each once.
//   - [Set.AllowedTools] is what they allow, [Allowed] says whether a call is among it.
//   - [Set.Text] is what the model reads of them.
//
// A skill is text of somebody else, and a role of a message is no boundary of
// trust (N26). Three things follow. A skill counts only with the content that a
// person has looked at: its hash covers every file of its folder, and a file is
// given out only if it still has the hash it was loaded with. Its allowed-tools
// can only take tools away. Its text belongs into the conversation, as data, in a
// message of the user; whoever puts it into the system text breaks that.
//
// Whatever is unclear narrows: a key that looks like allowed-tools and is not
// quite it, an entry that cannot be read, a pattern that cannot be matched. All
// functions are safe for concurrent use, and none panics for bad input.
package skill
