// Part of a page that is fetched again from time to time, while somebody looks at it.
import { place } from "./dom.js";

export default function refresh(root) {
  const timer = setInterval(async () => {
    if (!root.isConnected) return clearInterval(timer);
    if (document.hidden || root.contains(document.activeElement)) return;
    try {
      const answer = await fetch(root.dataset.refresh, { headers: { "X-Toolcrib-Part": "yes" } });
      if (answer.ok) place(await answer.text(), null);
    } catch {
      // The server is not there at the moment; the next time it may be.
    }
  }, 4000);
}
