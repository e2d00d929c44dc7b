// The number of approvals that wait, in the navigation. While the page is visible, or notifications are on, a stream
// says which they are; other modules hear of it by the event toolcrib:waiting.
let source, again;
const wanted = () => document.visibilityState === "visible" || localStorage.getItem("toolcrib-notify") === "on";

function show(ids) {
  const count = document.getElementById("waiting-count");
  count.textContent = ids.length > 99 ? "99+" : ids.length;
  count.parentNode.hidden = ids.length === 0;
  document.dispatchEvent(new CustomEvent("toolcrib:waiting", { detail: ids }));
}

function open() {
  clearTimeout(again);
  if (source || !wanted()) return;
  source = new EventSource("/approvals/live");
  source.addEventListener("waiting", (event) => show(JSON.parse(event.data)));
  source.onerror = () => {
    if (source.readyState !== EventSource.CLOSED) return; // it connects again by itself
    source = undefined;
    again = setTimeout(open, 10000);
  };
}

function close() {
  if (!source || wanted()) return;
  source.close();
  source = undefined;
}

export default function () {
  document.addEventListener("visibilitychange", () => (wanted() ? open() : close()));
  document.addEventListener("toolcrib:notify", () => (wanted() ? open() : close()));
  addEventListener("pagehide", () => { source?.close(); source = undefined; });
  addEventListener("pageshow", open);
  open();
}
