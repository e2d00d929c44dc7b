// walk follows the keyboard's focus over a page. Its functions are called between presses of the Tab key.
window.walk = (() => {
  const focusable = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]:not([tabindex='-1'])";
  const visited = [];
  const problems = [];
  let wraps = 0;
  const same = (a, b) => a === b || (!a.isConnected && a.outerHTML === b.outerHTML); // a live part may be replaced
  const known = (e) => visited.some((one) => same(one, e));
  const group = (e) => e.type === "radio" && [...document.querySelectorAll("input[type=radio]")].filter((o) => o.name === e.name && o.form === e.form);
  const reachable = (e) => e.checkVisibility({ visibilityProperty: true }) && !e.matches(":disabled") && !e.closest("[inert]");
  const shown = (e) => {
    const text = (e.getAttribute("aria-label") ?? e.innerText ?? "").trim().slice(0, 40);
    return `${e.tagName.toLowerCase()}${e.id && `#${e.id}`}${e.name ? `[name=${e.name}]` : ""} ${JSON.stringify(text)}`;
  };

  // ringed reports whether an element, something around it or its label has an outline.
  function ringed(e) {
    const around = [...(e.labels ?? [])];
    for (let at = e; at && at !== document.body; at = at.parentElement) around.push(at);
    return around.some((one) => {
      const style = getComputedStyle(one);
      return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    });
  }

  // covered reports whether the whole element is outside the window or behind something else.
  function covered(e) {
    const points = [...e.getClientRects()].flatMap((r) => [
      [r.left + r.width / 2, r.top + r.height / 2], [r.left + 3, r.top + 3], [r.right - 3, r.bottom - 3],
    ]);
    return !points.some(([x, y]) => {
      const top = document.elementFromPoint(x, y);
      return top && (top.contains(e) || e.contains(top) || [...(e.labels ?? [])].some((label) => label.contains(top)));
    });
  }

  return {
    // step looks at the element with the focus. It reports whether the walk is over, and whether to open the element.
    async step() {
      const e = document.activeElement;
      const last = visited.at(-1);
      if (!e || e === document.body || (last && same(last, e))) return ""; // fields for days have several parts
      if (known(e)) {
        if (!same(visited[0], e)) problems.push(`the focus returns to ${shown(e)} after ${shown(last)}`);
        return "over";
      }
      if (last?.isConnected && last.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_PRECEDING && ++wraps > 1) {
        problems.push(`${shown(e)} comes after ${shown(last)}`);
      }
      visited.push(e);
      if (!ringed(e)) problems.push(`${shown(e)} does not show that it has the focus`);
      for (let i = 0; i < 5 && covered(e); i++) await new Promise((done) => setTimeout(done, 50)); // until it has scrolled
      if (covered(e)) problems.push(`${shown(e)} is out of sight while it has the focus`);
      return e.matches("details:not([open]) > summary") ? "open" : "";
    },
    // back looks at the element with the focus on the way back.
    back() {
      const e = document.activeElement;
      if (e && same(visited[0], e)) return "over";
      return e && e !== document.body && !known(e) ? "strange" : "";
    },
    steps: () => visited.length,
    problems() {
      const missed = [...document.querySelectorAll(focusable)].filter((e) => reachable(e) && !known(e) && !(group(e) || []).some(known));
      return [...problems, ...missed.map((e) => `the Tab key does not lead to ${shown(e)}`)];
    },
  };
})();
