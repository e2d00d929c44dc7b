// Runs side by side: the columns are fetched again until all runs have ended.
import { parse } from "./dom.js";

export default function compare(columns) {
  const again = async () => {
    try {
      const answer = await fetch(columns.dataset.compare, { headers: { "X-Toolcrib-Part": "yes" } });
      const fresh = answer.ok && parse(await answer.text()).firstElementChild;
      if (fresh && columns.isConnected && !columns.contains(document.activeElement)) {
        columns.replaceWith(fresh);
        columns = fresh;
        fresh.dispatchEvent(new Event("toolcrib:inserted", { bubbles: true })); // starts this again if one still runs
        return;
      }
      if (answer.status === 401 || answer.status === 404) return;
    } catch {
      // The server is not there at the moment.
    }
    setTimeout(again, 1000);
  };
  setTimeout(again, 500);
}
