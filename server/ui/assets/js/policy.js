// The policy lab: while rules are typed, the calls of stored runs are judged under them.
import { parse, place } from "./dom.js";

const pause = 400; // ms without a key before the rules are tried

export default function lab(form) {
  const text = form.elements.rules;
  const gutter = form.querySelector(".gutter");
  const out = form.querySelector(".lab-out");
  const first = Number(gutter.dataset.first);
  const tab = form.querySelector("#tab-indents");
  tab.closest("[hidden]").hidden = false;
  let waiting = 0;
  let trying = null;

  function number() {
    const bad = new Set([...out.querySelectorAll("[data-line]")].map((item) => Number(item.dataset.line)));
    gutter.replaceChildren(...text.value.split("\n").map((_, i) => {
      const line = document.createElement("div");
      line.textContent = String(first + i);
      if (bad.has(first + i)) line.className = "bad-line";
      return line;
    }));
    gutter.scrollTop = text.scrollTop;
  }

  // send posts the form to an address, and returns the answer, or null after a later request.
  async function send(address, signal, button) {
    const body = new URLSearchParams(new FormData(form));
    if (button) body.set(button.name, button.value);
    try {
      const answer = await fetch(address, { method: "POST", headers: { "X-Toolcrib-Part": "yes" }, body, signal, redirect: "error" });
      return { ok: answer.ok, status: answer.status, html: await answer.text() };
    } catch (error) {
      if (error.name === "AbortError") return null;
      return { ok: false, status: 0, html: "" };
    }
  }

  function failed(answer) {
    const box = document.createElement("div");
    if (answer.status === 0) box.textContent = document.body.dataset.unreachable;
    else box.append(parse(answer.html));
    out.querySelector(".lab-failed")?.remove();
    box.className = "lab-failed";
    out.prepend(box);
  }

  async function attempt() {
    clearTimeout(waiting);
    trying?.abort();
    const own = trying = new AbortController();
    out.setAttribute("aria-busy", "true");
    const answer = await send("/policy/test", own.signal);
    if (own !== trying || !answer) return;
    out.removeAttribute("aria-busy");
    out.querySelector(".lab-failed")?.remove();
    if (answer.ok) place(answer.html, out);
    else failed(answer);
    number();
  }

  function later() {
    clearTimeout(waiting);
    waiting = setTimeout(attempt, pause);
  }

  text.addEventListener("input", () => { number(); later(); });
  text.addEventListener("scroll", () => { gutter.scrollTop = text.scrollTop; });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Escape") tab.checked = false;
    if (event.key !== "Tab" || event.shiftKey || !tab.checked) return;
    event.preventDefault();
    text.setRangeText("  ", text.selectionStart, text.selectionEnd, "end");
    text.dispatchEvent(new Event("input"));
  });

  out.addEventListener("click", (event) => {
    const at = event.target.closest("[data-line]");
    if (!at) return;
    const lines = text.value.split("\n");
    const before = lines.slice(0, Number(at.dataset.line) - first).reduce((sum, line) => sum + line.length + 1, 0);
    text.focus();
    text.setSelectionRange(before, before + (lines[Number(at.dataset.line) - first] ?? "").length);
  });

  form.addEventListener("submit", async (event) => {
    const button = event.submitter;
    const action = button?.getAttribute("formaction") ?? "/policy/test";
    if (action === "/policy/download") {
      setTimeout(() => delete form.dataset.sending); // the page stays
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    if (action === "/policy/test") { attempt(); return; }
    const answer = await send(action, undefined, button);
    if (!answer.ok) { failed(answer); return; }
    if (action === "/policy/add") {
      text.value = parse(answer.html).querySelector("textarea").value;
      button.closest("li").remove();
      text.dispatchEvent(new Event("input"));
      text.focus();
    } else {
      place(answer.html, form);
    }
  });
  number();
}
