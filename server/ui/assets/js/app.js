// The entry of all pages: each element with data-module names the modules that make it live. Pages work without them.
import "./time.js";
import "./forms.js";

const started = new WeakMap();

export async function start(root) {
  for (const element of root.querySelectorAll("[data-module]")) {
    for (const name of element.dataset.module.split(" ")) {
      if (!/^[a-z-]+$/.test(name) || started.get(element)?.has(name)) continue;
      if (!started.has(element)) started.set(element, new Set());
      started.get(element).add(name);
      const module = await import(`./${name}.js`);
      module.default(element);
    }
  }
}

document.addEventListener("toolcrib:inserted", (event) => start(event.target.parentNode ?? document));
start(document);
