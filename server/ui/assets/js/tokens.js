// A new access token appears in the list, where it is shown once.
import { place } from "./dom.js";

export default function tokens(form) {
  form.addEventListener("toolcrib:done", (event) => {
    document.activeElement?.blur();
    place(event.detail.text);
    document.getElementById("new-token")?.focus();
  });
}
