package service

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/project"
	"github.com/toolcrib/toolcrib/internal/trust"
)

// notesAgain ends the text of notes where other ones were given before.
const notesAgain = "\nThey take the place of the notes that stand above.\n"

// What a message is that the user has not written ([toolcrib.Message.Background]).
const (
	backgroundNotes     = "notes"
	backgroundSkills    = "skills"
	backgroundSkillList = "skill_list"
)

// background puts a text of a kind into the conversation: as data, in a message of the
// user's side before the prompt, never into the system text (N26). A session that has the
// same text already does not get it twice; where it has another one of that kind, again says
// that this one counts now.
func (s *Service) background(task *agent.Task, kind, text, again string) {
	text = s.Mask.Mask(text)
	before := ""
	for i := range task.History {
		if task.History[i].Background == kind {
			before = task.History[i].Text()
		}
	}
	switch {
	case strings.TrimSuffix(before, again) == text:
		return
	case before != "":
		text += again
	}
	history := slices.Clone(task.History) // others may hold it
	said := toolcrib.TextMessage(toolcrib.RoleUser, text)
	said.Background = kind
	task.History = append(history, said)
}

// giveProject tells the model of a run where it works, in the system text, and gives it
// the notes of the project around the workspace (contract §2, notes), as data. Notes of a
// folder that this user has not trusted are not read.
func (s *Service) giveProject(task *agent.Task, tell func(string)) {
	if task.Given != nil || task.Compact || task.Workspace == "" {
		return
	}
	p, err := project.Find(task.Workspace)
	if err != nil {
		return // the tools of the run will say that the workspace is gone
	}
	if task.Agent.System != "" {
		task.Agent.System += "\n\n"
	}
	task.Agent.System += project.Environment(p, task.Workspace, time.Now())

	tell = s.Once(tell)
	names := p.Names(s.Config.Notes.Files)
	if len(names) == 0 {
		return
	}
	trusted, left := s.trustedProject(p, names)
	if len(left) > 0 {
		tell(fmt.Sprintf("%s: not read, because %s is not trusted yet; review it, then run: toolcrib trust %s",
			pathTexts(left), PathText(p.Root), PathText(p.Root)))
	}
	if trusted == nil {
		return
	}
	notes, problems := trusted.Read(s.Config.Notes.Files, s.Config.Notes.MaxBytes)
	for _, text := range problems {
		tell(PathText(text))
	}
	if cut := slices.IndexFunc(notes, func(n project.Note) bool { return n.Cut }); cut >= 0 {
		tell(fmt.Sprintf("%s does not fit into notes.max_bytes (%d): the rest of it is left out",
			PathText(notes[cut].Path), s.Config.Notes.MaxBytes))
	}
	if len(notes) > 0 {
		s.background(task, backgroundNotes, project.NotesText(notes), notesAgain)
	}
}

// trustedProject returns what of a project this user trusts, and which of its notes are not in
// it: all of it, or the folder that the run works in with what is below. If nothing is trusted,
// it returns nil.
func (s *Service) trustedProject(p project.Project, names []string) (trusted *project.Project, left []string) {
	folder := project.Project{Root: filepath.Join(p.Root, filepath.FromSlash(p.Folder)), Folder: "."}
	switch {
	case s.hasSeenNotes(p):
		return &p, nil
	case p.Folder == "." || !s.hasSeenNotes(folder):
		return nil, names
	}
	return &folder, slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return path.Dir(name) == p.Folder
	})
}

// hasSeenNotes reports whether this user trusts the folder that a project begins with, and
// has looked at the notes in it: init trusts only what it has written itself.
func (s *Service) hasSeenNotes(p project.Project) bool {
	trusted, err := TrustStore()
	if err != nil {
		return false
	}
	folders, err := trusted.Folders()
	if err != nil || !slices.Contains(folders, p.Root) {
		return false
	}
	names := p.Names(s.Config.Notes.Files)
	if len(names) == 0 || !slices.Contains(trust.Names(), names[0]) {
		return true
	}
	state, _, err := trusted.Check(p.Root, names[0])
	return err == nil && (state == trust.Trusted || state == trust.Changed)
}
