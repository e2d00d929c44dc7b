// Forms with data-part are sent without leaving the page: an error is shown in the form, with the input. Any form
// is sent once, however often its button is pressed.
import { parse } from "./dom.js";

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (form.dataset.sending) {
    event.preventDefault();
    return;
  }
  form.dataset.sending = "yes";
  if (!("part" in form.dataset)) return;
  event.preventDefault();
  const body = new FormData(form, event.submitter);
  const action = event.submitter?.getAttribute("formaction") ?? form.getAttribute("action");
  try {
    const answer = await fetch(action, {
      method: "POST", headers: { "X-Toolcrib-Part": "yes" }, redirect: "error",
      body: form.enctype === "multipart/form-data" ? body : new URLSearchParams(body),
    });
    await answered(form, answer);
  } catch {
    form.dispatchEvent(new CustomEvent("toolcrib:unsent", { bubbles: true }));
    show(form, null);
  } finally {
    delete form.dataset.sending;
  }
});

async function answered(form, answer) {
  if (!answer.ok) {
    show(form, await answer.text());
    return;
  }
  show(form, "");
  const to = answer.headers.get("X-Toolcrib-Location");
  if (form.dataset.part === "stay") {
    if (form.dataset.reset !== undefined) form.reset();
    const detail = { to, text: answer.status === 204 ? "" : await answer.text() };
    form.dispatchEvent(new CustomEvent("toolcrib:done", { bubbles: true, detail }));
  } else if (to) {
    location.assign(to);
  }
}

// show puts an error at the beginning of a form. null means that the server was not reached.
function show(form, html) {
  let box = form.querySelector(":scope > .form-error");
  if (!box) {
    box = document.createElement("div");
    box.className = "form-error";
    box.tabIndex = -1;
    form.prepend(box);
  }
  if (html === null) box.textContent = form.ownerDocument.body.dataset.unreachable;
  else box.replaceChildren(parse(html));
  mark(form, box);
  if (html !== "") box.focus();
}

// mark shows the errors that name a field, by its id in data-field, at that field.
function mark(form, box) {
  for (const old of form.querySelectorAll(".field-error")) old.remove();
  for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  for (const item of box.querySelectorAll("[data-field]")) {
    const field = document.getElementById(item.dataset.field);
    if (!field || !form.contains(field)) continue;
    const text = document.createElement("p");
    text.className = "field-error";
    text.id = `${field.id}-error`;
    text.textContent = item.dataset.text ?? item.textContent;
    field.setAttribute("aria-invalid", "true");
    field.setAttribute("aria-describedby", text.id);
    if (field.matches("fieldset")) field.append(text);
    else field.after(text);
  }
}

// Coming back with the browser's button, a form can be sent again.
window.addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sending]")) delete form.dataset.sending;
});
