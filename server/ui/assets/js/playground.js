// The prompt of the playground: a draft is kept, files can be dropped and pasted, Ctrl+Enter sends.
import { announce, parse } from "./dom.js";

export default function playground(form) {
  const prompt = form.elements.prompt;
  const file = form.elements.file;
  const list = form.querySelector("#attached");
  const key = form.dataset.draft;

  // The draft stays over an error, a reload and an expired session.
  if (prompt.value !== prompt.defaultValue) sessionStorage.setItem(key, prompt.value); // typed while this was loading
  prompt.value ||= sessionStorage.getItem(key) ?? "";
  prompt.addEventListener("input", () => sessionStorage.setItem(key, prompt.value));
  form.dataset.part = "stay";
  form.addEventListener("toolcrib:done", (event) => {
    sessionStorage.removeItem(key);
    location.assign(event.detail.to);
  });
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit(form.querySelector(".primary"));
    }
  });

  // attach sets the files of the form, without those that are too large.
  function attach(files) {
    const all = new DataTransfer();
    list.replaceChildren();
    for (const one of files) {
      const item = document.createElement("li");
      item.textContent = one.name;
      if (one.size > Number(form.dataset.maxFile)) {
        item.className = "refused";
        item.append(` – ${form.dataset.tooLarge}`);
      } else {
        all.items.add(one);
        const remove = document.createElement("button");
        remove.type = "button";
        remove.className = "link";
        remove.textContent = form.dataset.remove;
        remove.addEventListener("click", () => attach([...file.files].filter((f) => f !== one)));
        item.append(" ", remove);
      }
      list.append(item);
    }
    file.files = all.files;
  }
  file.addEventListener("change", () => attach(file.files));
  prompt.addEventListener("paste", (event) => {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    attach([...file.files, ...event.clipboardData.files]);
  });
  form.addEventListener("dragover", (event) => event.preventDefault());
  form.addEventListener("drop", (event) => {
    if (event.dataTransfer.files.length === 0) return;
    event.preventDefault();
    attach([...file.files, ...event.dataTransfer.files]);
  });

  // What the run can use depends on its agent, model and skills.
  let newest = 0;
  form.addEventListener("change", async (event) => {
    if (!("reload" in event.target.dataset)) return;
    const turn = ++newest;
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(form)) {
      if (typeof value === "string" && !["prompt", "once", "with", "tool", "offered"].includes(name) && value) query.append(name, value);
    }
    if (event.target.name !== "agent") {
      for (const box of form.querySelectorAll("input[name=tool]:not(:checked)")) query.append("off", box.value);
    }
    const answer = await fetch(`/?${query}`, { headers: { "X-Toolcrib-Part": "yes" } }).catch(() => null);
    if (turn !== newest || !answer?.ok) return;
    const fresh = parse(await answer.text()).firstElementChild;
    const old = form.querySelector("#choices");
    for (const details of old.querySelectorAll("details[id]")) {
      const same = fresh.querySelector(`#${CSS.escape(details.id)}`);
      if (same) same.open = details.open;
    }
    old.replaceWith(fresh);
    fresh.querySelector(`#${CSS.escape(event.target.id)}`)?.focus();
    history.replaceState(null, "", `/?${query}`);
  });

  // While a run works, messages go into it; the next prompt waits for its end.
  const shown = () => {
    const head = document.querySelector(".run-head");
    const live = Boolean(head?.querySelector("form[action$='/cancel']"));
    for (const one of document.querySelectorAll("[data-while-live]")) one.hidden = !live;
    for (const one of document.querySelectorAll("[data-when-ended]")) one.hidden = live;
    for (const next of document.querySelectorAll(".story form.decide [name=next]")) next.value = location.pathname + location.search;
  };
  document.addEventListener("toolcrib:inserted", shown);
  document.querySelector(".say")?.addEventListener("toolcrib:done", (event) => {
    const sent = event.target.querySelector("[data-sent]");
    sent.hidden = false;
    announce(sent.textContent);
  });
  shown();
}
