// The chain of a room: one lap of a token, from left to right.

import { attr, h, icon, mark, put, s } from "./dom.js";
import { outButton } from "./kick.js";

export const colour = (i) => `var(--pnb-d${i % 6})`;
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

export class Chain {
  constructor(el, home, onkick) { Object.assign(this, { el, home, onkick, key: "", id: `pnb${Math.random().toString(36).slice(2)}` }); } // ids differ across views and modules

  draw(r, width) {
    const key = JSON.stringify([width, r.layers, r.rest, r.chain.map((d) => [d.id, d.name, d.tag, d.phone, d.lo, d.size, d.layers, d.kick])]);
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
    if (this.el.contains(document.activeElement)) this.home?.focus();
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
    const out = d.kick && outButton(d, this.onkick);
    const name = h("span", { class: "name" }, d.phone && icon("phone", 12), h("span", { class: "pnb-cut", text: d.name, title: d.name }), d.tag && h("span", { class: "pnb-you", text: d.tag }), out);
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
      attr(c.more, "title", d.tip || d.more);
      c.next.toggleAttribute("hidden", Boolean(d.more) || !hop?.text);
      if (!line || !hop) return;
      attr(line.line, "data-path", hop.path);
      if (line.text) { put(line.text, hop.text); attr(line.text, "data-path", hop.path); }
      put(line.tip, hop.tip || hop.text);
    });
    const said = r.chain.map((d) => [d.name, d.layers, d.word].filter(Boolean).join(", ")).concat(r.rest ? `${r.rest} without a device` : []);
    attr(this.bar, "aria-label", `Chain of ${r.layers} layers${said.length ? `: ${said.join("; ")}` : ""}`);
    // The dot runs while an answer does (CSS, and so off under reduced motion), or waits before a silent device.
    const silent = ["answering", "waiting"].includes(r.state) ? r.chain.findIndex((d) => d.state === "stopped") : -1;
    attr(this.dot, "data-go", silent >= 0 ? "held" : r.state === "answering" ? "lap" : null);
    this.dot.style.setProperty("--x", silent < 0 ? "" : `${this.g.segs[silent].x - (silent ? this.g.gap : this.g.cap) / 2}px`);
  }
}
