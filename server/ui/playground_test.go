package ui_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/internal/browsertest"
)

// A newcomer without a key gets a first answer with one click, and approves a call with the next.
func TestPlayground_Newcomer(t *testing.T) {
	for name, o := range map[string]browsertest.Options{
		"desktop": {}, "phone": browsertest.Options{Dark: true}.Phone(), "without-script": {NoScript: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := &house{t: t, dir: t.TempDir()}
			h.write("toolcrib.yaml", "agents:\n  default: {model: offline}\n")
			h.start("127.0.0.1:0")
			t.Cleanup(func() { h.stop() })
			tab := h.tab("boss", o)
			tab.Visit(h.url + "/")
			tab.WaitText(".notice", "offline model")
			h.fits(tab)
			if !o.NoScript {
				tab.Axe()
			}
			tab.Shot("play-first-" + name)
			tab.Click(".examples form:last-of-type button")
			if o.NoScript {
				tab.Until(`location.search.includes("session=")`)
				for range 20 {
					tab.Visit(browsertest.Eval[string](tab, "location.href"))
					if browsertest.Eval[bool](tab, `document.body.innerText.includes("fixed rules, not a language model. I cannot")`) {
						return
					}
				}
				t.Error("no answer")
			}
			tab.WaitText(".answer", "I cannot reason")
			tab.Wait("#ask")
			h.fits(tab)
			tab.Axe()
			tab.Shot("play-answer-" + name)
		})
	}
}

// talk is what the models of these tests say.
var talk = map[string]string{
	"default": "- {text: first answer}\n- {text: second answer}\n- {text: third answer}\n",
	"other":   "- {text: the other answer}\n- {text: the other answer}\n",
	"slow":    "- {tool_calls: [{name: list_directory, arguments: {path: .}}], delay: 2s}\n- {text: never, delay: 60s}\n",
	"writes":  "- {tool_calls: [{name: write_file, arguments: {path: a.txt, content: hi}}]}\n- {text: written}\n",
	"reads":   "- {tool_calls: [{name: list_directory, arguments: {path: .}}]}\n- {text: looked}\n",
}

func TestPlayground(t *testing.T) {
	h := open(t, talk, "skills: {dirs: [skills]}\n")
	tab := h.tab("boss", browsertest.Options{})
	tab.Visit(h.url + "/")
	tab.Type("#prompt", "kept over a reload")
	tab.Visit(h.url + "/")
	tab.Until(`document.querySelector("#prompt").value === "kept over a reload"`)

	// A file goes with the prompt; Ctrl+Enter sends it.
	name := filepath.Join(t.TempDir(), "<img src=x onerror=toolcribCanary(1)>.txt")
	if err := os.WriteFile(name, []byte("attached"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.attach(tab, name)
	tab.WaitText("#attached", "onerror")
	tab.Do(chromedp.Focus("#prompt"), chromedp.KeyEvent(kb.Enter, chromedp.KeyModifiers(2)))
	tab.WaitText(".answer", "first answer")
	tab.WaitText(".story", "onerror")
	if browsertest.Eval[string](tab, `document.querySelector("#prompt").value`) != "" {
		t.Error("the draft stays although it was sent")
	}

	// The session continues.
	tab.Type("#prompt", "go on")
	tab.Click("#ask .primary")
	tab.WaitText(".turns", "first answer")
	tab.WaitText(".story", "go on")
	tab.Wait(".answer")
	tab.Shot("play-session")
	browsertest.Eval[bool](tab, "scrollTo(0, 0), true") // the bar covers nothing that it checks
	tab.Axe()

	// The same prompt with another model, side by side.
	tab.Do(chromedp.SetValue("#again-model", "other/x"))
	tab.Click(".again button")
	tab.WaitText(".columns", "the other answer")
	if n := browsertest.Eval[int](tab, `document.querySelectorAll(".column").length`); n != 2 {
		t.Errorf("%d columns", n)
	}
	tab.Axe()
	tab.Shot("play-compare")
	tab.Visit(h.url + "/sessions")
	tab.WaitText(".sessions", "2 runs")
	tab.Shot("play-sessions")
}

func TestPlayground_SideBySide(t *testing.T) {
	h := open(t, talk, "")
	tab := h.tab("ann", browsertest.Options{}.Phone())
	tab.Expect("400")
	tab.Visit(h.url + "/")
	tab.Type("#prompt", "compare")
	tab.Click("#with summary")
	tab.Click("input[name=with][value='default/x']")
	tab.Click("button[formaction='/compare']")
	tab.WaitText(".form-error", "2 to 4")
	tab.Click("input[name=with][value='other/x']")
	tab.Click("button[formaction='/compare']")
	tab.WaitText(".columns", "the other answer")
	tab.WaitText(".columns", "answer")
	h.fits(tab)
}

// A message goes into a run that works, and it can be cancelled.
func TestPlayground_Running(t *testing.T) {
	h := open(t, talk, "")
	tab := h.tab("ann", browsertest.Options{})
	tab.Visit(h.url + "/?agent=slow")
	tab.Type("#prompt", "take your time")
	tab.Click("#ask .primary")
	tab.Wait("#say")
	if browsertest.Eval[bool](tab, `document.querySelector("#ask").checkVisibility()`) {
		t.Error("another prompt can be sent while the run works")
	}
	tab.Type("#say", "one more thing <b>")
	tab.Click(".say button")
	tab.WaitText(".story", "one more thing <b>")
	tab.Shot("play-running")
	tab.Click("form[action$='/cancel'] button")
	tab.WaitText(".run-head", "Cancelled")
	tab.Wait("#ask")
}

// A call is approved where the run is shown: for a newcomer after two clicks, and in the playground again afterwards.
func TestPlayground_Approve(t *testing.T) {
	h := open(t, talk, "  tour: {model: offline}\n")
	tab := h.tab("ann", browsertest.Options{})
	tab.Visit(h.url + "/?agent=tour")
	tab.Click(".examples form button")
	tab.Click(".story form.decide [data-key=approve]")
	tab.WaitText(".run-head", "Completed")
	if path := browsertest.Eval[string](tab, "location.pathname"); path != "/" {
		t.Errorf("after a decision: %s", path)
	}
	tab.Wait(".answer")
	tab.Visit(h.url + "/?agent=writes")
	tab.Type("#prompt", "write")
	tab.Click("#ask .primary")
	tab.Wait(".story form.decide [data-key=approve]")
	tab.Shot("play-approve")
	tab.Click(".story form.decide [data-key=deny]")
	tab.WaitText(".answer", "written")
	tab.Wait(".story .status-refused")
}

// A tool that is switched off for one run is refused in it, and read only refuses all that change something.
func TestPlayground_Tools(t *testing.T) {
	h := open(t, talk, "")
	tab := h.tab("ann", browsertest.Options{})
	tab.Visit(h.url + "/?agent=reads")
	tab.Click("#tools summary")
	tab.Click("input[name=tool][value=list_directory]")
	tab.Click("#readonly")
	tab.Until(`location.search.includes("readonly=yes")`)
	tab.Until(`!document.querySelector("input[name=tool][value=list_directory]").checked`)
	tab.Click("#without > summary")
	tab.WaitText("#without", "get_env")
	tab.WaitText(".pick-list", "no changes")
	tab.Shot("play-tools")
	tab.Axe()
	tab.Type("#prompt", "look")
	tab.Click("#ask .primary")
	tab.WaitText(".answer", "looked")
	tab.WaitText(".story", "list_directory")
	tab.Wait(".story .status-refused")
	tab.Until(`document.querySelector("#readonly").checked`)
}

func TestPlayground_Files(t *testing.T) {
	h := open(t, talk, "server: {max_body_bytes: 100000}\n")
	dir := t.TempDir()
	for name, data := range map[string]string{
		"large.txt": strings.Repeat("x", 200_000), "zero.bin": "\x00\x01\x02", "good.txt": "good",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, o := range map[string]browsertest.Options{"script": {}, "without-script": {NoScript: true, Language: "de"}} {
		t.Run(name, func(t *testing.T) {
			h := *h
			h.t = t
			tab := h.tab("ann", o)
			tab.Expect("413")
			tab.Expect("400")
			tab.Visit(h.url + "/")
			tab.Type("#prompt", "typed text")
			h.attach(tab, filepath.Join(dir, "zero.bin"))
			tab.Click("#ask .primary")
			tab.WaitText(".form-error", "zero.bin")
			tab.Until(`document.querySelector("#prompt").value.includes("typed text")`)
			if !o.NoScript { // without it, the browser may not read the answer to a form that is too large
				h.attach(tab, filepath.Join(dir, "large.txt"))
				tab.Click("#ask .primary")
				tab.WaitText(".form-error", "at most")
				tab.Shot("play-too-large")
			}
			h.attach(tab, filepath.Join(dir, "good.txt"))
			tab.Click("#ask .primary")
			tab.Until(`location.search.includes("session=")`)
			tab.WaitText(".story", "good.txt")
		})
	}
}

// The server ends, and comes back; the right to use it ends. What was typed stays.
func TestPlayground_Interrupted(t *testing.T) {
	h := open(t, talk, "")
	tab := h.tab("ann", browsertest.Options{})
	for _, text := range []string{"ERR_CONNECTION", "401"} {
		tab.Expect(text)
	}
	tab.Visit(h.url + "/")
	tab.Wait("#ask[data-part=stay]") // by the module
	tab.Type("#prompt", "typed while the server is away")
	tab.Until("sessionStorage.length > 0")
	h.stop()
	tab.Click("#ask .primary")
	tab.WaitText(".form-error", "cannot be reached")
	h.start(strings.TrimPrefix(h.url, "http://"))
	tab.Click("#ask .primary")
	tab.WaitText(".answer", "first answer")

	tab.Wait("#ask[data-part=stay]")
	tab.Type("#prompt", "typed without rights")
	if _, _, err := h.service.People.EditUser(t.Context(), root, "ann", access.Edit{Disabled: new(true)}); err != nil {
		t.Fatal(err)
	}
	tab.Click("#ask .primary")
	tab.WaitText(".form-error", "sign in")
	if text := browsertest.Eval[string](tab, `document.querySelector("#prompt").value`); text != "typed without rights" {
		t.Errorf("the prompt is lost: %q", text)
	}
}

// Whatever a prompt, an answer, a file or a session is called is shown as text.
func TestPlayground_Hostile(t *testing.T) {
	texts := hostile()
	answer, err := json.Marshal(strings.Join(texts, "\n\n"))
	if err != nil {
		t.Fatal(err)
	}
	script := "- {text: " + string(answer) + "}\n"
	h := open(t, map[string]string{"default": script, "other": script}, "")
	var run struct {
		ID      string
		Session string `json:"session_id"`
	}
	for i := 0; i < len(texts); i += 50 { // the first line of a prompt is the title of its session
		prompt := strings.Join(texts[i:min(i+50, len(texts))], "\n")
		input, err := json.Marshal(map[string]any{"input": prompt, "continue": i == 50})
		if err != nil {
			t.Fatal(err)
		}
		h.api("ann", http.MethodPost, "/api/runs", string(input), &run)
		if i == 50 {
			h.calm(h.tab("ann", browsertest.Options{}), "/?session="+run.Session)
		}
	}
	tab := h.tab("boss", browsertest.Options{}.Phone())
	for _, path := range []string{
		"/sessions", "/compare?run=" + run.ID, "/audit", "/usage?by=session",
		"/?agent=default&skill=" + url.QueryEscape(texts[0]) + "&off=" + url.QueryEscape(texts[5]),
	} {
		h.calm(tab, path)
	}
}

// calm opens a page and checks that it has no element of a hostile text, and fits.
func (h *house) calm(tab *browsertest.Tab, path string) {
	h.t.Helper()
	tab.Visit(h.url + path)
	tab.Until(`document.readyState === "complete"`)
	h.fits(tab)
	tab.Shot("hostile" + strings.ReplaceAll(path[:min(len(path), 8)], "/", "-"))
	if n := browsertest.Eval[int](tab, `document.querySelectorAll("iframe, object, embed, img, video, audio, base, "
		+ "main script, main style, main link, [onerror], [onload], [onclick], a[href^='javascript' i], a[href^='data' i]")
		.length`); n > 0 {
		h.t.Errorf("%s: %d elements of a hostile text", path, n)
	}
}

// attach chooses a file in the form.
func (h *house) attach(tab *browsertest.Tab, name string) {
	h.t.Helper()
	tab.Do(chromedp.SetUploadFiles("#file", []string{name}))
}

// A form sent twice starts one run, and hostile values are shown as text.
func TestPlayground_Bad(t *testing.T) {
	h := open(t, talk, "")
	token := h.token("ann")
	post := func(v url.Values) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+"/", strings.NewReader(v.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Toolcrib-Part", "yes")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode, answer.Header.Get("X-Toolcrib-Location")
	}
	v := url.Values{"prompt": {"once"}, "once": {"one"}, "agent": {"default"}}
	_, first := post(v)
	status, second := post(v)
	if status != http.StatusNoContent || first != second || !strings.Contains(first, "session=") {
		t.Errorf("sent twice: %d, %s and %s", status, first, second)
	}
	v.Set("prompt", "another")
	if status, _ := post(v); status != http.StatusConflict {
		t.Errorf("another form with the same key: %d", status)
	}
	for _, bad := range []url.Values{
		{"prompt": {" "}},
		{"prompt": {"x"}, "agent": {"<b>"}},
		{"prompt": {"x"}, "model": {"none/at-all"}},
		{"prompt": {"x"}, "skill": {"none"}},
	} {
		if status, _ := post(bad); status < 400 || status >= 500 {
			t.Errorf("%v: %d", bad, status)
		}
	}
	var sessions struct{ Sessions []struct{ ID string } }
	h.api("boss", http.MethodGet, "/api/sessions", "", &sessions)
	for path, want := range map[string]int{
		"/?session=" + sessions.Sessions[0].ID: http.StatusOK, "/?session=none": http.StatusNotFound,
		"/compare": http.StatusBadRequest, "/compare?run=run_none": http.StatusNotFound,
		"/?agent=none": http.StatusBadRequest, "/?skill=none": http.StatusOK,
	} {
		if status, _, body := h.get(token, path); status != want {
			t.Errorf("%s: %d, want %d: %.300s", path, status, want, body)
		}
	}
	if status, _, _ := h.get(h.token("eve"), "/?session="+sessions.Sessions[0].ID); status != http.StatusNotFound {
		t.Errorf("the session of another user: %d", status)
	}
}
