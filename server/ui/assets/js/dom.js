// The only place that makes HTML of a text: parts of pages that this server rendered, where all foreign text is escaped.
const policy = window.trustedTypes?.createPolicy("toolcrib", { createHTML: (text) => text }) ?? { createHTML: (text) => text };

// parse returns the nodes of a part of a page.
export function parse(html) {
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(html);
  return template.content;
}

// place puts a part of a page where the element with its id is, or else at the end of a list. Open details stay
// open, and the focus and the input are kept. Returns the new element.
export function place(html, list) {
  const fresh = parse(html).firstElementChild;
  if (!fresh) return null;
  const old = fresh.id && document.getElementById(fresh.id);
  if (!old) {
    list?.append(fresh);
  } else if (typing(old)) {
    return old;
  } else {
    for (const details of old.querySelectorAll("details[id]")) {
      const same = fresh.querySelector(`#${CSS.escape(details.id)}`);
      if (same) same.open = details.open;
    }
    const focus = old.contains(document.activeElement) ? document.activeElement : null;
    old.replaceWith(fresh);
    if (focus) [...fresh.querySelectorAll(focus.tagName)].find((e) => mark(e) === mark(focus))?.focus({ preventScroll: true });
  }
  if (fresh.isConnected) fresh.dispatchEvent(new Event("toolcrib:inserted", { bubbles: true }));
  return fresh;
}

// mark returns a text that only one of the links, buttons and summaries of a part has.
function mark(e) {
  return e.id || e.getAttribute("href") || (e.matches("summary") && e.parentNode.id) || `${e.name} ${e.value} ${e.textContent}`;
}

// typing reports whether somebody is typing in an element, or has typed something.
function typing(element) {
  return [...element.querySelectorAll("input:not([type=hidden]), textarea, select")].some(
    (field) => field === document.activeElement || (field.defaultValue ?? field.value) !== field.value,
  );
}

// announce tells a text to screen readers.
export function announce(text) {
  document.getElementById("announce").textContent = text;
}
