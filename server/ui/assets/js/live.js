// The live part of a run: its story or its timeline grows while the run is active. A lost stream continues where it was.
import { announce, place } from "./dom.js";

const most = 400; // entries on a page; the oldest are left to a link

export default function live(root) {
  const list = root.querySelector(".ledger");
  const state = root.querySelector(".live");
  let last = root.dataset.after;
  let tries = 0;

  const atEnd = () => scrollY + innerHeight >= document.documentElement.scrollHeight - 120;
  const follow = (change) => {
    const end = atEnd();
    change();
    if (end) scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
  };

  const events = {
    parts({ html, say }) {
      follow(() => {
        for (const one of html) {
          const into = one.match(/^<li id="[^"]+" data-in="([^"]+)"/);
          place(one, into ? document.getElementById(into[1]) : one.startsWith("<li") ? list : null);
        }
        trim();
        stay();
      });
      if (say) announce(say);
    },
    text(pieces) {
      follow(() => {
        for (const [id, text] of pieces) document.getElementById(id)?.append(text);
      });
    },
  };

  // A decision leaves the page where it is: the stream shows the rest.
  function stay() {
    for (const form of root.querySelectorAll("form[data-decide]")) form.dataset.part = "stay";
  }
  root.addEventListener("toolcrib:done", (event) => event.target.reset());
  stay();

  function trim() {
    const extra = (list?.children.length ?? 0) - most; // a timeline has no list
    const link = root.querySelector("[data-earlier]");
    if (extra < 50 || !atEnd() || !link) return;
    for (let i = 0; i < extra; i++) list.firstElementChild.remove();
    link.href = link.dataset.earlier + list.firstElementChild.dataset.seq;
    link.closest("nav").hidden = false;
  }

  function tell(kind) {
    state.textContent = kind ? state.dataset[kind] : "";
    state.classList.toggle("live-shown", Boolean(kind));
  }

  async function connect() {
    const stop = new AbortController();
    const { signal } = stop;
    let silence, away;
    const heard = () => { // pings come every 15 seconds
      clearTimeout(silence);
      silence = setTimeout(() => stop.abort(), 40000);
    };
    signal.addEventListener("abort", () => [silence, away].forEach(clearTimeout));
    addEventListener("pagehide", () => stop.abort(), { signal });
    document.addEventListener("visibilitychange", () => { // a browser has few connections to a server
      clearTimeout(away);
      if (document.hidden) away = setTimeout(() => stop.abort(), 30000);
    }, { signal });
    heard();
    try {
      return await read(signal, heard);
    } finally {
      stop.abort();
    }
  }

  async function read(signal, heard) {
    const answer = await fetch(root.dataset.live, {
      headers: { Accept: "text/event-stream", "X-Toolcrib-Part": "yes", "Last-Event-ID": last }, signal,
      cache: "no-store",
    });
    if (!answer.ok) return answer.status;
    if (tries > 0) {
      tell("back");
      setTimeout(() => tell(""), 3000);
    }
    tries = 0;
    root.dataset.state = "open";
    let rest = "";
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return 0;
      heard();
      const all = (rest + value).split("\n\n");
      rest = all.pop();
      for (const one of all) if (take(one) === "end") return 204;
    }
  }

  // take handles an event and returns its name.
  function take(text) {
    const field = {};
    for (const line of text.split("\n")) {
      const i = line.indexOf(": ");
      if (i > 0) field[line.slice(0, i)] = line.slice(i + 2);
    }
    events[field.event]?.(JSON.parse(field.data));
    if (field.id) last = field.id;
    return field.event;
  }

  (async () => {
    for (;;) {
      if (document.hidden && tries > 0) await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
      const status = await connect().catch(() => 0);
      if (status === 204) return tell("");
      if (status === 404) return tell("gone");
      tries++;
      root.dataset.state = "lost";
      tell(status === 401 || status === 403 ? "signin" : "lost");
      await new Promise((done) => setTimeout(done, Math.min(10000, 300 * 2 ** tries) * (0.7 + 0.6 * Math.random())));
    }
  })();
}
