package gate

import (
	"strings"

	"github.com/toolcrib/toolcrib"
)

// SkillArguments reports whether the allowed-tools of the run's skills allow a call
// with these arguments: entries may narrow a tool, as exec_shell(git:*) does
// (requirements N15). An error means no, and its text is fit for the model.
type SkillArguments func(entries []string, call toolcrib.Call, targets []toolcrib.Target) (bool, error)

// readSkill is the tool that reads the skills of a run (contract §11).
const readSkill = "read_skill"

// entryName is the name or glob of an entry of allowed-tools, without what narrows
// its arguments.
func entryName(entry string) string {
	name, _, _ := strings.Cut(entry, "(")
	return name
}

// skillStep holds the arguments against the entries of the run's own skills.
func (j *judgement) skillStep() *refusal {
	return j.entriesAllow(j.scope.SkillTools, toolcrib.ReasonSkillAllowlist,
		" is not allowed with these arguments by the skills of this run. Use it as they say.")
}

// aboveStep holds the arguments against the entries of the skills of each run above:
// what a run may not do it cannot let another one do for it.
func (j *judgement) aboveStep() *refusal {
	for _, entries := range j.scope.AboveSkills {
		r := j.entriesAllow(entries, toolcrib.ReasonWorkerAllowlist,
			" is not allowed with these arguments by the skills of the calling agent. Continue without it, or with others.")
		if r != nil {
			return r
		}
	}
	return nil
}

// entriesAllow holds the arguments against a list of skills' entries; not says, after
// the name of the tool, that they are not allowed. The layer of the reason has seen to
// the name; where an entry has no pattern for the tool, the name was enough.
func (j *judgement) entriesAllow(entries []string, reason toolcrib.Reason, not string) *refusal {
	if entries == nil {
		return nil
	}
	patterned := false
	for _, e := range entries {
		if !Match(entryName(e), j.entry.spec.Name) {
			continue
		}
		if !strings.Contains(e, "(") {
			return nil
		}
		patterned = true
	}
	if !patterned {
		return refuse(j.layerMessage(reason))
	}
	text := j.name() + not
	if j.gate.skillArguments == nil {
		return refuse(text)
	}
	ok, err := j.gate.skillArguments(entries, j.judged(), j.targets)
	if err != nil {
		return refuse(text + " " + err.Error())
	}
	if !ok {
		return refuse(text)
	}
	return nil
}
