// The form for other arguments: a preview is shown in the form, and after the decision the next page follows.
import { parse } from "./dom.js";

export default function (form) {
  form.addEventListener("toolcrib:done", ({ detail }) => {
    if (detail.to) {
      location.assign(detail.to);
      return;
    }
    const slot = form.querySelector("[data-preview]");
    slot.replaceChildren(parse(detail.text));
    slot.scrollIntoView({ block: "nearest" });
  });
}
