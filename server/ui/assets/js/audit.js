// The result of a verification appears below its button.
import { parse } from "./dom.js";

export default function (form) {
  form.addEventListener("toolcrib:done", (event) => {
    form.querySelector(".result").replaceChildren(parse(event.detail.text));
  });
}
