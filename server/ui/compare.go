package ui

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/toolcrib/toolcrib/service"
)

// maxCompared bounds the runs side by side.
const maxCompared = 4

// compareView is the data of the template compare.
type compareView struct {
	Prompt  string
	Runs    []runHead
	Address string // of the columns
	Live    bool
}

// compareRuns shows runs side by side: those that the address names.
func compareRuns(p *page) error {
	ids := p.R.URL.Query()["run"]
	if len(ids) < 1 || len(ids) > maxCompared {
		return bad("give 2 to %d runs to compare", maxCompared)
	}
	v := compareView{Address: p.R.URL.RequestURI()}
	for _, id := range ids {
		run, err := p.Service.Run(p, p.Who, id)
		if err != nil {
			return err
		}
		v.Runs = append(v.Runs, headOf(run))
		v.Live = v.Live || !run.Status.Ended()
		if run.PrunedAt == nil && v.Prompt == "" {
			if v.Prompt, err = p.promptOf(run); err != nil {
				return err
			}
		}
	}
	if p.enhanced() {
		return p.part("compare", "columns", http.StatusOK, v)
	}
	return p.render("compare", http.StatusOK, v)
}

// promptOf returns the prompt of a run.
func (p *page) promptOf(run service.Run) (string, error) {
	s := newStory(run.ID, 0)
	for e, err := range p.Service.JournalAfter(p, p.Who, run.ID, 0) {
		if err != nil {
			return "", err
		}
		s.take(e)
		break
	}
	if len(s.Items) > 0 && s.Items[0].Start != nil {
		return s.Items[0].Start.Prompt, nil
	}
	return "", nil
}

// startCompared starts a run of the same prompt with each of the models that were chosen.
func startCompared(p *page) error {
	c, err := p.formChoice()
	var compared []string
	if err == nil {
		compared, err = p.beginEach(c)
	}
	if err != nil {
		return p.playgroundAgain(c, err)
	}
	return p.done(compareAddress(compared))
}

func (p *page) beginEach(c choice) (ids []string, err error) {
	models := slices.Compact(slices.Clone(c.With))
	if len(models) < 2 || len(models) > maxCompared {
		return nil, bad("%s", p.texts.text(p.language, "playground.with_count", maxCompared))
	}
	once := c.Once
	for _, c.Model = range models {
		if c.Session = ""; once != "" {
			c.Once = once + " " + c.Model
		}
		run, err := p.begin(c)
		if err != nil {
			return nil, err // sent again, the form gets the runs that have begun
		}
		ids = append(ids, string(run.ID))
	}
	return ids, nil
}

func compareAddress(ids []string) string { return "/compare?" + url.Values{"run": ids}.Encode() }

// runAgain runs the prompt of a run again with another model, and shows both.
func runAgain(p *page) error {
	id, model := p.R.PostFormValue("run"), p.R.PostFormValue("model")
	if model == "" {
		return bad("choose a model")
	}
	drive, err := p.Pool.Fork(context.WithoutCancel(p), p.Who, service.ForkRequest{
		Run: id, Round: 1, Model: model, Once: service.Once(p.Who, p.R.PostFormValue("once"), "/compare/again", id, model),
	})
	if err != nil {
		return err
	}
	return p.done(compareAddress([]string{id, string(drive.ID())}))
}
