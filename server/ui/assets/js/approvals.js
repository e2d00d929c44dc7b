// The inbox, and the page of an approval: they follow the decisions of others, have keyboard shortcuts, and can notify.
import { announce, parse, place } from "./dom.js";

const settle = 600; // milliseconds in which a key that is held does not decide about the next approval, as in the style

export default function (root) {
  const began = performance.now();
  const id = root.dataset.approval;
  const whole = !id && !location.search && !root.querySelector("#inbox a[rel=next]"); // the inbox shows all that wait
  let known = whole ? [...root.querySelectorAll("#inbox a[id]")].map((item) => item.id.slice("item-".length)) : null;
  let over = false;

  document.addEventListener("toolcrib:waiting", async ({ detail: ids }) => {
    const fresh = known ? ids.filter((one) => !known.includes(one)) : [];
    const changed = fresh.length > 0 || known?.length !== ids.length;
    known = ids;
    for (const one of fresh) notify(root, one);
    const all = ids.length < 200; // otherwise there may be older ones
    if (id && !over && all && !ids.includes(id) && root.dataset.open === "yes") await outcome();
    else if (!id && changed) await list();
    if (fresh.length > 0) announce(root.dataset.newWaiting);
  });

  // outcome shows a decision made elsewhere. The input is kept.
  async function outcome() {
    const html = await part(location.pathname);
    if (html === null || over) return;
    over = true;
    const slot = root.querySelector("[data-outcome]");
    slot.replaceChildren(parse(html));
    slot.dispatchEvent(new Event("toolcrib:inserted", { bubbles: true }));
    for (const button of root.querySelectorAll("[name=do]")) button.disabled = true;
    announce(slot.innerText);
  }

  async function list() {
    const html = await part(location.pathname + location.search);
    if (html !== null) place(html);
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const typing = event.target.closest("input:not([type=radio], [type=checkbox]), textarea, select");
    if (typing) {
      if (event.key === "Enter" && typing.name === "reason") {
        event.preventDefault();
        root.querySelector("[data-key=deny]")?.click();
      } else if (event.key === "Escape") {
        typing.blur();
      }
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    const does = keys(root)[event.key];
    if (!does) return;
    event.preventDefault();
    if (!event.repeat && (event.key !== "a" || performance.now() - began > settle)) does();
  });
  ways(root);
  root.dataset.ready = "yes";
}

// keys returns the actions of the keys. They do nothing without their buttons.
function keys(root) {
  const click = (name) => () => root.querySelector(`[data-key=${name}]:not([disabled])`)?.click();
  return {
    a: click("approve"), e: click("edit"), "?": click("help"),
    d: () => (root.querySelector("[name=reason]") ?? root.querySelector("[data-key=deny]"))?.focus(),
    j: () => step(root, 1), k: () => step(root, -1),
  };
}

// step goes to the next or previous approval: by its link or, in the inbox, by the focus.
function step(root, by) {
  const link = root.querySelector(by > 0 ? "a[rel=next]" : "a[rel=prev]");
  if (root.dataset.approval) {
    link?.click();
    return;
  }
  const items = [...root.querySelectorAll("#inbox a[id]")];
  const at = items.indexOf(document.activeElement);
  items[Math.max(0, Math.min(items.length - 1, at + by))]?.focus();
}

async function part(address) {
  try {
    const answer = await fetch(address, { headers: { "X-Toolcrib-Part": "yes" }, redirect: "error" });
    return answer.ok ? await answer.text() : null;
  } catch {
    return null;
  }
}

// ways connects the buttons for help and notifications.
function ways(root) {
  const dialog = document.getElementById("keys");
  root.querySelector("[data-key=help]")?.addEventListener("click", () => dialog.showModal());
  const button = root.querySelector("[data-notify]");
  if (!button || !("Notification" in window)) return;
  const on = () => Notification.permission === "granted" && localStorage.getItem("toolcrib-notify") === "on";
  const show = () => {
    button.hidden = false;
    button.setAttribute("aria-pressed", on());
  };
  button.addEventListener("click", async () => {
    const granted = on() || (await Notification.requestPermission()) === "granted";
    localStorage.setItem("toolcrib-notify", granted && !on() ? "on" : "off");
    if (!granted) announce(button.dataset.refused);
    document.dispatchEvent(new Event("toolcrib:notify"));
    show();
  });
  show();
}

// notify shows a notification of the browser, unless the person is looking at the page.
function notify(root, id) {
  const button = root.querySelector("[data-notify]");
  if (document.hasFocus() || !button || button.getAttribute("aria-pressed") !== "true") return;
  try {
    const one = new Notification("toolcrib", { body: root.dataset.newWaiting, tag: id });
    one.onclick = () => { window.focus(); location.assign(`/approvals/${id}`); };
  } catch {
    button.hidden = true; // telephones permit it to service workers only
  }
}

// Coming back with the browser's button, the page could be one from before the decision.
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
