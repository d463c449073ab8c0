// Nodes, icons, copying and keys: what every panel is made of. Whatever a device sent reaches the page through
// textContent or attributes, never as markup (DESIGN section 7).

const SVG = "http://www.w3.org/2000/svg";

function fill(el, props, kids) {
  for (const [k, v] of Object.entries(props ?? {})) {
    if (v == null || v === false) continue;
    if (k === "text") el.textContent = v;
    else if (k.startsWith("on")) el.addEventListener(k.slice(2), v);
    else if (k === "vars") for (const [name, x] of Object.entries(v)) el.style.setProperty(name, x);
    else el.setAttribute(k, v === true ? "" : v);
  }
  el.append(...kids.flat().filter((kid) => kid != null && kid !== false));
  return el;
}
export const h = (tag, props, ...kids) => fill(document.createElement(tag), props, kids);
export const s = (tag, props, ...kids) => fill(document.createElementNS(SVG, tag), props, kids);
export const put = (el, text) => { if (el.textContent !== text) el.textContent = text; };
export const attr = (el, name, v) => (v == null || v === "" ? el.removeAttribute(name) : el.getAttribute(name) !== String(v) && el.setAttribute(name, v));

/** Words without what only counts on in them: sizes, shares, seconds. A name keeps its digits. */
export const still = (words) => words.replace(/\d[\d.,]*(?= (?:of [\d.,]+ )?(?:s|min|%|[MG]B)(?!\w))/g, "");

const ICONS = {
  copy: "M5.5 5.5v-2a1 1 0 0 1 1-1h6a1 1 0 0 1 1 1v6a1 1 0 0 1-1 1h-2M3.5 5.5h6a1 1 0 0 1 1 1v6a1 1 0 0 1-1 1h-6a1 1 0 0 1-1-1v-6a1 1 0 0 1 1-1z",
  done: "M3 8.5l3.2 3.2L13 4.8",
  close: "M4 4l8 8M12 4l-8 8",
  phone: "M5 1.8h6a1 1 0 0 1 1 1v10.4a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1V2.8a1 1 0 0 1 1-1zM7 12h2",
  sliders: "M2.5 5h6M12 5h1.5M2.5 11H4M7.5 11h6M8.5 5a1.75 1.75 0 1 0 3.5 0a1.75 1.75 0 1 0-3.5 0M4 11a1.75 1.75 0 1 0 3.5 0a1.75 1.75 0 1 0-3.5 0",
  links: "M6.2 3.8a1.8 1.8 0 1 0 3.6 0a1.8 1.8 0 1 0-3.6 0M1.9 12a1.8 1.8 0 1 0 3.6 0a1.8 1.8 0 1 0-3.6 0M10.5 12a1.8 1.8 0 1 0 3.6 0a1.8 1.8 0 1 0-3.6 0M7.1 5.4L4.6 10.4M8.9 5.4l2.5 5M5.5 12h5",
  out: "M9.5 2.5h-5a1 1 0 0 0-1 1v9a1 1 0 0 0 1 1h5M7 8h6.5M11 5.5L13.5 8 11 10.5",
};
const STROKE = { "aria-hidden": "true", fill: "none", stroke: "currentColor", "stroke-linecap": "round", "stroke-linejoin": "round" };
export const icon = (name, size = 16) =>
  s("svg", { ...STROKE, viewBox: "0 0 16 16", width: size, height: size, "stroke-width": size < 13 ? 1.8 : 1.5 }, s("path", { d: ICONS[name] }));

// One mark per tone; its shape says it without the colour: [path, filled].
const ring = (r) => `M${5 - r} 5a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
const MARKS = {
  idle: [[ring(3.6)]], good: [[ring(4), 1]], work: [[ring(3.7)], [ring(1.7), 1]],
  warn: [["M5 1.2l4.2 7.6H.8zM5 4v1.9"]], bad: [["M1.8 1.8l6.4 6.4M8.2 1.8L1.8 8.2"]],
};
export const mark = (tone) => s("svg", { ...STROKE, viewBox: "0 0 10 10", width: 10, height: 10, "stroke-width": 1.6 },
  MARKS[tone].map(([d, filled]) => s("path", filled ? { d, fill: "currentColor", stroke: "none" } : { d })));

async function copy(text) {
  try { await navigator.clipboard.writeText(text); return true; } catch { /* not allowed in this frame: the old way */ }
  const box = h("textarea", { style: "position: fixed; opacity: 0", text }), before = document.activeElement;
  document.body.append(box);
  box.select();
  try { return document.execCommand("copy"); } catch { return false; } finally { box.remove(); before?.focus?.(); }
}

const MAY_NOT = "This page may not copy. Select the text instead.";

/** A button that copies what `text()` gives then, if anything; `live` says how it went. */
export function copyButton(text, label, live, { words, cls = words ? "pnb-btn pnb-words" : "pnb-btn pnb-icon", size = 16, not = MAY_NOT } = {}) {
  const b = h("button", { class: cls, type: "button", "aria-label": label, title: label }, icon("copy", size), words);
  b.addEventListener("click", async () => {
    const now = text();
    if (!now) return;
    const ok = await copy(now);
    b.firstChild.replaceWith(icon(ok ? "done" : "close", size));
    put(live, ok ? "Copied." : not);
    setTimeout(() => { b.firstChild.replaceWith(icon("copy", size)); put(live, ""); }, 1400);
  });
  return b;
}

/** Nodes kept by key, so that focus and scroll survive an update. A focused node that goes hands the focus to
    `home`, never to the node that follows. */
export function keyed(box, items, key, make, update, home) {
  const old = new Map([...box.children].map((c) => [c.dataset.key, c])), seen = new Map();
  const next = items.map((item) => {
    const name = key(item), again = seen.get(name) ?? 0, k = `${name}\u0000${again}`, node = old.get(k) ?? make(item);
    seen.set(name, again + 1);
    attr(node, "data-key", k);
    old.delete(k);
    update?.(node, item);
    return node;
  });
  for (const node of old.values()) { if (node.contains(document.activeElement)) home?.focus(); node.remove(); }
  next.forEach((node, i) => { if (box.children[i] !== node) box.insertBefore(node, box.children[i] ?? null); });
}

/** A notebook listens on the document (a, b, d d), and must not hear keys pressed here: on the window, and early.
    What comes back ends it. */
export function ownKeys(root, heard) {
  const keys = (e) => {
    if (!root.contains(e.target) || ((e.ctrlKey || e.metaKey) && e.key !== "Enter")) return;
    e.stopPropagation();
    heard(e);
  };
  window.addEventListener("keydown", keys, true);
  return () => window.removeEventListener("keydown", keys, true);
}

export const NO_KERNEL = "The kernel does not answer, so nothing was done. Run the cell again.";
