// The room panel: the code, the sentence with its buttons, the chain, the numbers, who is here.
// Python makes the words of the trait `room`; here is geometry, and a few fixed labels. A widget's module
// cannot import its neighbours, so each one begins with the same helpers. Whatever a device sent reaches the
// page through textContent or attributes, never as markup (DESIGN section 7).

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
const h = (tag, props, ...kids) => fill(document.createElement(tag), props, kids);
const s = (tag, props, ...kids) => fill(document.createElementNS(SVG, tag), props, kids);
const put = (el, text) => { if (el.textContent !== text) el.textContent = text; };
const attr = (el, name, v) => (v == null || v === "" ? el.removeAttribute(name) : el.getAttribute(name) !== String(v) && el.setAttribute(name, v));

const ICONS = {
  copy: "M5.5 5.5v-2a1 1 0 0 1 1-1h6a1 1 0 0 1 1 1v6a1 1 0 0 1-1 1h-2M3.5 5.5h6a1 1 0 0 1 1 1v6a1 1 0 0 1-1 1h-6a1 1 0 0 1-1-1v-6a1 1 0 0 1 1-1z",
  done: "M3 8.5l3.2 3.2L13 4.8",
  close: "M4 4l8 8M12 4l-8 8",
  phone: "M5 1.8h6a1 1 0 0 1 1 1v10.4a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1V2.8a1 1 0 0 1 1-1zM7 12h2",
  sliders: "M2.5 5h6M12 5h1.5M2.5 11H4M7.5 11h6M8.5 5a1.75 1.75 0 1 0 3.5 0a1.75 1.75 0 1 0-3.5 0M4 11a1.75 1.75 0 1 0 3.5 0a1.75 1.75 0 1 0-3.5 0",
};
const STROKE = { "aria-hidden": "true", fill: "none", stroke: "currentColor", "stroke-linecap": "round", "stroke-linejoin": "round" };
const icon = (name, size = 16) =>
  s("svg", { ...STROKE, viewBox: "0 0 16 16", width: size, height: size, "stroke-width": 1.5 }, s("path", { d: ICONS[name] }));

// One mark per tone; its shape says it without the colour: [path, filled].
const ring = (r) => `M${5 - r} 5a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
const MARKS = {
  idle: [[ring(3.6)]], good: [[ring(4), 1]], work: [[ring(3.7)], [ring(1.7), 1]],
  warn: [["M5 1.2l4.2 7.6H.8zM5 4v1.9"]], bad: [["M1.8 1.8l6.4 6.4M8.2 1.8L1.8 8.2"]],
};
const mark = (tone) => s("svg", { ...STROKE, viewBox: "0 0 10 10", width: 10, height: 10, "stroke-width": 1.6 },
  MARKS[tone].map(([d, filled]) => s("path", filled ? { d, fill: "currentColor", stroke: "none" } : { d })));

async function copy(text) {
  try { await navigator.clipboard.writeText(text); return true; } catch { /* not allowed in this frame: the old way */ }
  const box = h("textarea", { style: "position: fixed; opacity: 0", text }), before = document.activeElement;
  document.body.append(box);
  box.select();
  try { return document.execCommand("copy"); } catch { return false; } finally { box.remove(); before?.focus?.(); }
}

function copyButton(text, label, live, words) {
  const b = h("button", { class: `pnb-btn ${words ? "pnb-words" : "pnb-icon"}`, type: "button", "aria-label": label, title: label }, icon("copy"), words);
  b.addEventListener("click", async () => {
    const ok = await copy(text());
    b.firstChild.replaceWith(icon(ok ? "done" : "close"));
    put(live, ok ? "Copied." : "This page may not copy. Select the text instead.");
    setTimeout(() => { b.firstChild.replaceWith(icon("copy")); put(live, ""); }, 1400);
  });
  return b;
}

// Nodes kept by key, so that focus and scroll survive an update. A focused node that goes hands the focus to
// `home`, never to the node that follows.
function keyed(box, items, key, make, update, home) {
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

// ---- what came, made safe to draw: every field has its type and its bounds ----------------------
const rec = (x) => (x && typeof x === "object" && !Array.isArray(x) ? x : {});
const list = (x, max) => (Array.isArray(x) ? x.slice(0, max) : []);
const recs = (x, max) => list(x, max).filter((y) => y && typeof y === "object");
const str = (x, max = 300) => (typeof x === "string" ? x : Number.isFinite(x) ? String(x) : "").slice(0, max);
const num = (x, lo, hi, none = lo) => (Number.isFinite(x) ? Math.min(hi, Math.max(lo, x)) : none);
const one = (x, names, none = names[0]) => (names.includes(x) ? x : none);
const TONES = ["idle", "good", "work", "warn", "bad"];

function tidyDevice(x) {
  const lo = Number.isInteger(x.lo) ? num(x.lo, 0, 9999) : null, hi = Number.isInteger(x.hi) ? num(x.hi, 0, 9999) : null;
  return {
    id: str(x.id) || str(x.name), name: str(x.name, 200), tag: x.you === true ? "you" : x.host === true ? "host" : "",
    phone: x.kind === "phone", lo, size: lo == null || hi == null ? null : Math.max(0, hi - lo), layers: str(x.layers),
    state: one(x.state, ["held", "loading", "ready", "computing", "stopped", "dropped"]), tone: one(x.tone, TONES),
    word: str(x.word), more: str(x.more), pct: num(x.pct, 0, 100), used: num(x.used, 0, 1e6), lent: num(x.lent, 0, 1e6), memory: str(x.memory),
  };
}

function tidy(raw) {
  const r = rec(raw), say = rec(r.say), queue = rec(r.queue), strip = rec(r.strip), settings = rec(r.settings);
  const closed = r.state === "closed", chain = recs(r.chain, 100).map(tidyDevice), rest = Math.round(num(r.rest, 0, 9999));
  const lent = chain.reduce((n, d) => n + d.lent, 0), all = Math.max(1, num(r.layers, 0, 9999) - rest); // not dealt: wide as what each lends
  if (chain.some((d) => d.size == null)) for (const d of chain) Object.assign(d, { lo: null, size: all * (lent ? d.lent / lent : 1 / chain.length) });
  return {
    code: str(r.code, 24), label: str(r.label), facts: str(r.facts), state: str(r.state), closed, join: closed ? "" : str(r.join),
    say: { tone: one(say.tone, TONES), what: str(say.what), about: str(say.about, 600) }, pct: num(r.pct, 0, 100, null),
    actions: closed ? [] : recs(r.actions, 4).map((a) => ({ cmd: str(a.cmd, 20), label: str(a.label, 40), main: a.main === true })).filter((a) => a.cmd && a.label),
    layers: Math.max(Math.round(num(r.layers, 0, 9999)), Math.round(chain.reduce((n, d) => n + d.size, rest))), chain, rest,
    hops: recs(r.hops, 100).map((x) => ({ path: one(x.path, ["unknown", "direct", "relay", "down"]), text: str(x.text), tip: str(x.tip) })),
    numbers: recs(r.numbers, 4).map((x) => ({ value: str(x.value, 24), unit: str(x.unit, 40), label: str(x.label, 40), tip: str(x.tip) })),
    strip: { left: str(strip.left, 60), right: str(strip.right, 60), mark: num(strip.mark, 0, 1, null),
      parts: recs(strip.parts, 101).map((p) => ({ w: num(p.w, 0, 1), kind: one(p.kind, ["lack", "full", "wire"]), i: num(p.i, 0, 100) })) },
    guests: recs(r.guests, 200).map((g) => ({ name: str(g.name, 200), state: str(g.state, 40), why: str(g.why) })),
    queue: { text: str(queue.text), names: list(queue.names, 100).map((x) => str(x, 200)).filter(Boolean) },
    may: settings.may === true, groups: closed ? [] : recs(settings.groups, 12).map((g) => ({ key: str(g.key, 40), label: str(g.label, 40), value: g.value ?? null,
      options: list(g.options, 8).filter((o) => Array.isArray(o)).map(([value, text]) => ({ value: value ?? null, text: str(text, 40) })) })),
    promise: str(r.promise, 600), notice: str(r.saved, 600) || str(r.notice, 600),
  };
}

// ---- the chain: one lap from left to right ------------------------------------------------------
const colour = (i) => `var(--pnb-d${i % 6})`;
const letter = (i) => (i > 25 ? letter(Math.floor(i / 26) - 1) : "") + String.fromCharCode(65 + (i % 26));
const HEIGHT = 38;

// Embedding, the host's layers, a hop, the next device, …, a hop back, the head.
function geometry(r, width) {
  const n = r.chain.length, narrow = width < 526, rest = r.rest || (n ? 0 : 1);
  const cap = narrow ? 12 : 48, lead = rest && n ? 8 : 0, wish = narrow ? Math.max(6, 20 - n) : Math.max(10, 34 - 2 * n);
  const gap = n < 2 ? 0 : Math.min(wish, (0.4 * (width - 2 * cap)) / n); // of very many devices the hops may not take it all
  const unit = Math.max(0, width - 2 * cap - (n < 2 ? 0 : n) * gap - lead - 2) / Math.max(1e-9, r.chain.reduce((sum, d) => sum + d.size, rest));
  let x = cap + 1;
  const segs = r.chain.map((d) => { const w = d.size * unit, seg = { x, w }; x += w + gap; return seg; });
  const end = n ? segs.at(-1).x + segs.at(-1).w : x, none = rest ? { x: end + lead, w: rest * unit } : null;
  segs.forEach((q, i) => { q.hop = i === n - 1 && none ? none.x + none.w : q.x + q.w; q.col = i === n - 1 ? width - cap - q.x : q.w + gap; });
  return { width, narrow, gap, cap, unit, segs, none, columns: n <= 6 && segs.every((q) => q.col >= 122) };
}

class Chain {
  constructor(el) { Object.assign(this, { el, key: "", id: `pnb${Math.random().toString(36).slice(2)}` }); } // ids differ across views and modules

  draw(r, width) {
    const key = JSON.stringify([width, r.layers, r.rest, r.chain.map((d) => [d.id, d.name, d.tag, d.phone, d.lo, d.size, d.layers])]);
    if (key !== this.key) { this.key = key; this.build(r, geometry(r, width)); }
    this.update(r);
  }

  build(r, g) {
    const top = g.columns ? 20 : 2, mid = top + HEIGHT / 2, n = r.chain.length, end = g.width - g.cap;
    Object.assign(this, { g, bar: s("svg", { class: "pnb-bar", width: g.width, height: top + HEIGHT + 2, role: "img" }, this.weaves()), hops: [] });
    this.bar.append(this.cap(g, 0.5, top, -1));
    this.segs = r.chain.map((d, i) => this.segment(d, i, g, top));
    this.bar.append(...this.segs.map((q) => q.el));
    if (n > 1) this.hops = g.segs.map((q, i) => {
      const last = i === n - 1, line = s("path", { class: "hop", d: `M${q.hop + 1} ${mid}h${Math.max(0, g.gap - 2)}` }), tip = s("title");
      const node = s("circle", { class: "node", cx: q.hop + g.gap / 2, cy: mid, r: Math.min(4, g.gap / 4) });
      const text = g.columns && s("text", { class: "hoptext", x: last ? g.width : q.hop + g.gap / 2, y: 11, "text-anchor": last ? "end" : "middle" });
      this.bar.append(s("g", null, tip, line, node, text));
      return { line, text, tip };
    });
    if (g.none) {
      const words = !r.rest ? "" : g.none.w > 170 ? `${r.rest} ${r.rest === 1 ? "layer" : "layers"} without a device` : g.none.w > 72 ? `${r.rest} left over` : g.none.w > 20 ? `${r.rest}` : "";
      this.bar.append(s("rect", { class: "none", x: g.none.x, y: top + 0.5, width: Math.max(1, g.none.w), height: HEIGHT - 1, rx: 3 }),
        s("text", { x: g.none.x + g.none.w / 2, y: mid + 4, "text-anchor": "middle", text: words }));
    }
    this.bar.append(this.cap(g, end + 0.5, top, 1));
    this.dot = h("i", { class: "pnb-dot", "aria-hidden": "true", vars: { "--y": `${mid}px`, "--a": `${g.cap / 2}px`, "--b": `${g.width - g.cap / 2}px` } });

    const style = g.columns ? `grid-template-columns: ${g.segs.map((q) => `${q.col}px`).join(" ")}; margin-left: ${g.cap + 1}px` : null;
    const heads = ["", "device", "layers", "memory used / lent", "next hop", "state"].map((text) => h("span", { text }));
    this.cells = r.chain.map((d, i) => this.cell(d, i, g.columns));
    const box = h("ul", { class: g.columns ? "pnb-cols" : "pnb-rows", style, "aria-label": "Devices in layer order" },
      !g.columns && h("li", { class: "pnb-rows-head pnb-label", "aria-hidden": "true" }, heads), this.cells.map((c) => c.el));
    this.el.replaceChildren(h("div", { class: "pnb-lap" }, this.bar, this.dot), box);
    attr(box, "tabindex", box.scrollHeight > box.clientHeight + 1 ? 0 : null); // a box that scrolls must be reachable
  }

  weaves() { // four patterns, so that colour is never alone
    const p = (k, size, kid) => s("pattern", { id: `${this.id}w${k}`, width: size, height: size, patternUnits: "userSpaceOnUse", class: "weave" }, kid);
    return s("defs", null,
      p(1, 7, s("path", { d: "M-1 8L8 -1M-2 2L2 -2M5 9L9 5", "stroke-width": 1.3 })),
      p(2, 7, s("circle", { cx: 3.5, cy: 3.5, r: 1.1, stroke: "none" })),
      p(3, 6, s("path", { d: "M0 3H6", "stroke-width": 1.2 })));
  }

  cap(g, x, top, side) { // both ends are the host's
    const w = g.cap - 1, r = 7, v = HEIGHT - 2 * r;
    const d = side < 0 ? `M${x + w} ${top}H${x + r}q${-r} 0 ${-r} ${r}v${v}q0 ${r} ${r} ${r}H${x + w}z` : `M${x} ${top}h${w - r}q${r} 0 ${r} ${r}v${v}q0 ${r} ${-r} ${r}h${r - w}z`;
    return s("g", { vars: { "--d": colour(0) } }, s("path", { d, class: "tint" }),
      !g.narrow && s("text", { class: "cap", x: x + w / 2, y: top + HEIGHT / 2 + 4, "text-anchor": "middle", text: side < 0 ? "embed" : "head" }));
  }

  segment(d, i, g, top) {
    const { x, w } = g.segs[i], wide = Math.max(1, w), rect = (cls, more) => s("rect", { class: cls, x, y: top, width: wide, height: HEIGHT, ...more });
    let ticks = "";
    if (d.lo != null && g.unit > 3.5) for (let k = 1; k < d.size; k++) ticks += `M${(x + k * g.unit).toFixed(2)} ${top}v${HEIGHT}`;
    const full = rect("full"), over = i % 4 ? rect("over", { fill: `url(#${this.id}w${i % 4})` }) : null;
    const el = s("g", { class: "seg", vars: { "--d": colour(i) } },
      rect("tint", { x: x + 0.5, y: top + 0.5, width: Math.max(1, w - 1), height: HEIGHT - 1 }), s("path", { class: "ticks soft", d: ticks }),
      full, over, s("path", { class: "ticks", d: ticks }), rect("ring", { x: x + 1, y: top + 1, width: Math.max(1, w - 2), height: HEIGHT - 2 }),
      w > 15 && s("text", { class: "letter", x: x + (w > 40 ? 10 : w / 2), y: top + HEIGHT / 2 + 5, "text-anchor": w > 40 ? "start" : "middle", text: letter(i) }));
    return { el, full, over, w: wide };
  }

  cell(d, i, column) {
    const w = (text) => h("span", { class: "w", text }); // always said; seen only where no column has it as its head
    const c = { text: h("span"), bar: h("i", { "aria-hidden": "true" }), st: h("span", { class: "pnb-st" }), next: w("next hop "), more: h("span") };
    const what = column ? "" : (d.layers.match(/^layers? /)?.[0] ?? "");
    const name = h("span", { class: "name" }, d.phone && icon("phone", 12), h("span", { class: "pnb-cut", text: d.name, title: d.name }), d.tag && h("span", { class: "pnb-you", text: d.tag }));
    const layers = h("span", { class: "pnb-2 pnb-cut layers", hidden: column && !d.layers }, what && w(what), d.layers.slice(what.length));
    const mem = h("span", { class: "pnb-mem pnb-2" }, c.bar, c.text), more = h("span", { class: "pnb-2 pnb-cut more" }, column ? "" : c.next, c.more);
    const key = h("span", { class: "key" }, h("span", { class: "pnb-key", text: letter(i) }));
    c.el = h("li", { class: column ? "pnb-col" : "pnb-row", vars: { "--d": colour(i) } }, column ? [name, layers, mem, c.st, more] : [key, name, layers, mem, more, c.st]);
    return c;
  }

  update(r) {
    r.chain.forEach((d, i) => {
      const q = this.segs[i], c = this.cells[i], hop = r.hops[i], line = this.hops[i];
      const part = d.state === "held" ? 0 : d.state === "loading" ? d.pct / 100 : 1;
      attr(q.el, "data-state", d.state);
      attr(q.el, "data-empty", part < 1 && part * q.w < 22 ? "yes" : null);
      for (const rect of [q.full, q.over]) if (rect) attr(rect, "width", (q.w * part).toFixed(1));
      put(c.text, d.memory);
      c.bar.style.setProperty("--p", `${d.lent ? Math.min(100, (100 * d.used) / d.lent).toFixed(1) : 0}%`);
      if (c.shown !== d.tone + d.word) {
        c.shown = d.tone + d.word;
        attr(c.st, "data-tone", d.tone);
        c.st.replaceChildren(mark(d.tone), h("span", { class: "pnb-cut", text: d.word, title: d.word }));
      }
      put(c.more, d.more || (this.g.columns ? "" : hop?.text) || "\u00a0");
      attr(c.more, "title", d.more);
      c.next.toggleAttribute("hidden", Boolean(d.more) || !hop?.text);
      if (!line || !hop) return;
      attr(line.line, "data-path", hop.path);
      if (line.text) { put(line.text, hop.text); attr(line.text, "data-path", hop.path); }
      put(line.tip, hop.tip || hop.text);
    });
    const said = r.chain.map((d) => [d.name, d.layers, d.word].filter(Boolean).join(", ")).concat(r.rest ? `${r.rest} without a device` : []);
    attr(this.bar, "aria-label", `Chain of ${r.layers} layers${said.length ? `: ${said.join("; ")}` : ""}`);
    // The dot runs while an answer does (CSS, and so off under reduced motion), or waits before a silent device.
    const silent = ["answering", "degraded"].includes(r.state) ? r.chain.findIndex((d) => d.state === "stopped") : -1;
    attr(this.dot, "data-go", silent >= 0 ? "held" : r.state === "answering" ? "lap" : null);
    this.dot.style.setProperty("--x", silent < 0 ? "" : `${this.g.segs[silent].x - (silent ? this.g.gap : this.g.cap) / 2}px`);
  }
}

// ---- settings -----------------------------------------------------------------------------------
// A sheet lies inside the panel. `draw` again whenever the room says so; what it draws is what the room says.
function settings(send, close) {
  const id = `pnb${Math.random().toString(36).slice(2)}`, look = h("p", { class: "pnb-2 pnb-look", text: "The host sets these; you may look." }), set = h("div", { class: "pnb-set" });
  const x = h("button", { class: "pnb-btn pnb-icon", type: "button", "aria-label": "Close", onclick: close }, icon("close"));
  const el = h("div", { class: "pnb-sheet", role: "dialog", "aria-label": "Settings" },
    h("div", { class: "pnb-sheet-head" }, h("h3", { text: "Settings" }), x), look, set,
    h("p", { class: "pnb-label", text: "Counts from the next question. Text already shown stays as it is." }));
  let shape = "", inputs = [];
  const group = (g, i) => h("div", { class: "pnb-opt", role: "radiogroup", "aria-label": g.label }, h("span", { class: "pnb-2", text: g.label }),
    h("div", { class: "pnb-seg" }, g.options.map((o, k) => h("label", null, inputs[i][k], h("span", { text: o.text })))));
  function draw(r) {
    const now = JSON.stringify([r.may, r.groups.map((g) => [g.key, g.label, g.options])]);
    if (now !== shape) {
      shape = now;
      look.hidden = r.may;
      if (set.contains(document.activeElement)) x.focus();
      inputs = r.groups.map((g, i) => g.options.map((o) => h("input", { type: "radio", name: `${id}-${i}`, disabled: !r.may, onchange: () => send(g.key, o.value) })));
      set.replaceChildren(...r.groups.map(group));
    }
    r.groups.forEach((g, i) => g.options.forEach((o, k) => { inputs[i][k].checked = String(o.value) === String(g.value); }));
  }
  return { el, x, draw };
}

// ---- the panel ----------------------------------------------------------------------------------
const GONE = { state: "closed", say: { tone: "idle", what: "The kernel has ended", about: "This is how the room was last. Run the cell again." } };
function render({ model, el }) {
  let room = tidy(model.get("room")), sheet, settle = 0, width = 0, said = "", shown = "";
  const live = h("p", { class: "pnb-sr", role: "status" }), notice = h("p", { class: "pnb-notice", role: "status" }), promise = h("p", { class: "pnb-promise pnb-cut pnb-label" });
  const send = (m) => { try { model.send(m); } catch { put(notice, "The kernel does not answer, so nothing was done. Run the cell again."); } };
  const code = h("b", { role: "img" }), title = h("span", { class: "pnb-b pnb-cut" }), facts = h("span", { class: "pnb-label" }), magic = h("code");
  const copyCode = copyButton(() => room.code, "Copy the code", live), join = copyButton(() => room.join, "Copy the line that joins", live, magic);
  const gear = h("button", { class: "pnb-btn pnb-icon pnb-gear", type: "button", "aria-label": "Settings", title: "Settings", "aria-expanded": "false", onclick: () => toggle(!sheet) }, icon("sliders"));
  const head = h("header", { class: "pnb-head" }, h("div", { class: "pnb-code" }, code, copyCode), join, h("div", { class: "pnb-model" }, title, facts), gear);
  const text = h("p", { class: "pnb-say-text" }), acts = h("div", { class: "pnb-say-acts" }), way = h("i", { class: "pnb-way", "aria-hidden": "true" });
  const line = h("div", { class: "pnb-say", tabindex: -1 }, text, acts, way), chainBox = h("div", { class: "pnb-chain-in" }), chain = new Chain(chainBox);
  const slot = (b, unit, dt) => ({ b, unit, dt, el: h("div", null, dt, h("dd", null, b, unit)) });
  const slots = [0, 1, 2, 3].map(() => slot(h("b"), h("span", { class: "pnb-2" }), h("dt", { class: "pnb-label" })));
  const strip = s("svg", { preserveAspectRatio: "none", viewBox: "0 0 1000 10", "aria-hidden": "true" }), ends = [h("span"), h("span")], stripBox = h("div", { class: "pnb-strip" }, h("dt", { class: "pnb-label" }, ends), h("dd", null, strip));
  const stats = h("dl", { class: "pnb-stats" }, slots.map((x) => x.el), stripBox), guestHead = h("h3"), guestList = h("ul", { "aria-label": "Guests" }), queueHead = h("h3"), queueList = h("ol", { "aria-label": "Questions that wait" });
  const people = h("div", { class: "pnb-people" }, h("div", null, guestHead, guestList), h("div", null, h("div", { class: "pnb-asks" }, queueHead, promise), queueList));
  const root = h("section", { class: "pnb pnb-room", role: "group" }, head, line, h("div", { class: "pnb-chain" }, chainBox), stats, people, h("footer", { class: "pnb-last" }, notice), live);

  function toggle(open) {
    const inside = sheet?.el.contains(document.activeElement); // else whoever types elsewhere goes on there
    sheet = void sheet?.el.remove();
    attr(gear, "aria-expanded", String(open));
    if (!open) return void (inside && (gear.hasAttribute("data-off") ? line : gear).focus());
    sheet = settings((key, value) => {
      send({ cmd: "set", key, value });
      clearTimeout(settle); // what the room refuses changes no trait, so after a while its word counts again
      settle = setTimeout(() => sheet?.draw(room), 3000);
    }, () => toggle(false));
    sheet.draw(room);
    root.append(sheet.el);
    sheet.x.focus();
  }

  function drawHead(r) {
    attr(root, "aria-label", `Room ${r.code}`);
    put(code, r.code || "···-···");
    code.toggleAttribute("data-none", !r.code);
    attr(code, "aria-label", r.code ? `Room code ${[...r.code].join(" ")}` : "No room code yet");
    put(magic, r.join || "\u00a0");
    attr(join, "aria-label", `Copy ${r.join}`);
    put(title, r.label || "\u00a0");
    put(facts, r.facts || "\u00a0");
    for (const [button, off] of [[copyCode, !r.code || r.closed], [join, !r.join], [gear, !r.groups.length]]) {
      if (off && button === document.activeElement) line.focus();
      button.toggleAttribute("data-off", off); // keeps its place, so that nothing beside it moves
    }
    if (r.groups.length) sheet?.draw(r); else if (sheet) toggle(false);
  }

  function drawSay(r) {
    const { tone, what, about } = r.say, now = r.state + what.replace(/\d+/g, ""); // spoken once a state, not once a number
    if (shown !== tone + what + about) {
      shown = tone + what + about;
      attr(text, "data-tone", tone);
      text.replaceChildren(mark(tone), h("span", { class: "pnb-say-words" }, h("b", { class: "pnb-b", text: what }), h("span", { class: "pnb-2", text: about })));
    }
    if (said !== now) { if (said) put(live, `${what}. ${about}`); said = now; }
    way.style.width = `${r.pct ?? 0}%`;
    keyed(acts, r.actions, (a) => `${a.cmd} ${a.label} ${a.main}`, (a) =>
      h("button", { class: `pnb-btn${a.main ? " pnb-main" : ""}`, type: "button", text: a.label, onclick: (e) => { if (e.detail < 2) send({ cmd: a.cmd }); } }), null, line);
  }

  function drawNumbers(r) {
    slots.forEach((x, i) => {
      const { value = "", unit = "", label = "", tip = "" } = r.numbers[i] ?? {};
      put(x.b, value); put(x.unit, unit); put(x.dt, label); attr(x.el, "title", tip);
      x.el.toggleAttribute("data-off", !label && !value);
    });
    const { parts, mark: at } = r.strip, key = JSON.stringify([parts, at]);
    stripBox.toggleAttribute("data-off", !parts.length);
    put(ends[0], r.strip.left); put(ends[1], r.strip.right);
    stats.toggleAttribute("data-past", r.closed); stats.hidden = r.closed && !r.numbers.length && !parts.length; // as they were last
    if (strip.dataset.key === key) return;
    strip.dataset.key = key;
    const empty = 1 - parts.reduce((sum, p) => sum + p.w, 0);
    let x = 0;
    strip.replaceChildren(...parts.concat(parts.length && empty > 0.005 ? { w: empty, kind: "lack", i: 0 } : []).map((p) => {
      const low = p.kind === "lack", q = s("rect", { class: p.kind, x, y: low ? 1 : 0, height: low ? 8 : 10, width: Math.max(1, p.w * 1000 - 3), vars: { "--d": colour(p.i) } });
      x += p.w * 1000;
      return q;
    }), at == null ? "" : s("rect", { class: "mark", x: Math.min(997, at * 1000 - 1), y: 0, width: 2.5, height: 10 }));
  }

  function drawPeople(r) {
    const chip = (name, why) => h("li", { class: "pnb-chip", title: why }, h("span", { class: "pnb-cut", text: name }), h("span", { class: "pnb-label", hidden: true }));
    put(guestHead, r.guests.length ? `${r.guests.length} ${r.guests.length === 1 ? "guest" : "guests"}` : "No guests");
    keyed(guestList, r.guests, (g) => g.name, (g) => chip(g.name), (li, g) => {
      attr(li, "data-on", g.state === "asking" ? "yes" : null);
      attr(li, "title", [g.name, g.why].filter(Boolean).join(", "));
      put(li.lastChild, g.state);
      li.lastChild.toggleAttribute("hidden", !g.state);
    });
    put(queueHead, r.queue.text || "No questions wait.");
    keyed(queueList, r.queue.names, (name) => name, (name) => chip(name, name));
    for (const box of [guestList, queueList]) box.toggleAttribute("hidden", !box.children.length);
    put(promise, r.promise); attr(promise, "title", r.promise); put(notice, r.notice);
    reach();
  }

  const cut = (x) => x === document.activeElement || x.scrollHeight > x.clientHeight + 1 || x.scrollWidth > x.clientWidth + 1; // scrolls, or shows all when focused
  const reach = () => { for (const box of [guestList, queueList, notice]) attr(box, "tabindex", cut(box) ? 0 : null); };
  const drawChain = () => { if (width > 40) chain.draw(room, width); };
  const take = (raw) => { room = tidy(raw); drawHead(room); drawSay(room); drawChain(); drawNumbers(room); drawPeople(room); };
  const update = () => take(model.get("room"));
  const lost = () => { try { model.send({ cmd: "ping" }); } catch { take({ ...rec(model.get("room")), ...GONE }); } }; // or only the connection is new
  const measure = () => { if (chainBox.clientWidth !== width) { width = chainBox.clientWidth; drawChain(); reach(); } };
  // On the window and early: a notebook listens on the document (a, b, d d), and must not hear keys pressed here.
  const keys = (e) => {
    if (!root.contains(e.target) || ((e.ctrlKey || e.metaKey) && e.key !== "Enter")) return;
    e.stopPropagation();
    if (e.key === "Escape" && sheet) toggle(false);
  };

  el.replaceChildren(root);
  const watch = new ResizeObserver(measure);
  watch.observe(chainBox);
  window.addEventListener("keydown", keys, true);
  model.on("change:room", update); model.on("comm_live_update", lost);
  update(); measure();
  send({ cmd: "here" });
  return () => {
    model.off("change:room", update); model.off("comm_live_update", lost);
    window.removeEventListener("keydown", keys, true);
    watch.disconnect(); clearTimeout(settle); root.remove();
  };
}

export default { render };
