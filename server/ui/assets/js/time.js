// Times of the server, in UTC, are shown in the time zone of the browser.
const today = new Intl.DateTimeFormat(document.documentElement.lang, { timeStyle: "medium" });
const full = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "medium", timeStyle: "medium" });

function show(root) {
  for (const element of root.querySelectorAll?.("time[datetime]:not([title])") ?? []) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    element.title = element.textContent;
    element.textContent = (at.toDateString() === new Date().toDateString() ? today : full).format(at);
  }
}

document.addEventListener("toolcrib:inserted", (event) => show(event.target.parentNode ?? document));
show(document);
