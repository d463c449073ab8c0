// Markdown, the small part that answers use, made of nodes and never of markup (DESIGN section 7).
// A block is {kind, from, to, …} over the text. A later line changes the last two blocks at most (a list goes on
// after an empty line), so a growing text is parsed again from there only.

import { copyButton, h } from "./dom.js";

const FENCE = /^ {0,3}(?:```+|~~~+)\s*([^\s`]*)[^`]*$/, FENCE_END = /^ {0,3}(?:```+|~~~+)\s*$/;
const HEAD = /^(#{1,6})\s+/, ITEM = /^(\s*)(?:([-*+])|(\d{1,9})[.)])\s+/, RULE = /^ {0,3}(?:-{3,}|\*{3,}|_{3,})\s*$/;
const ROW = /^\s*\|.*\|\s*$/, QUOTE = /^ {0,3}> ?/;

function blocks(text, start = 0) {
  const out = [];
  let at = start, block = null, gap = false;
  const open = (kind, from, to, more) => { block = { kind, from, to, ...more }; out.push(block); };
  for (const line of text.slice(start).split("\n")) {
    const from = at, to = at + line.length;
    at = to + 1;
    if (block?.kind === "code" && !block.closed) {
      if (FENCE_END.test(line)) block.closed = true; else block.body = [block.body?.[0] ?? from, to];
      block.to = to;
      continue;
    }
    let m = null;
    if (!line.trim()) { gap = true; continue; }
    if ((m = line.match(FENCE))) open("code", from, to, { lang: m[1].slice(0, 30), body: null, closed: false });
    else if ((m = line.match(HEAD))) open("head", from, to, { level: m[1].length, parts: [[from + m[0].length, to]] });
    else if (RULE.test(line)) open("rule", from, to);
    else if ((m = line.match(ITEM))) {
      const depth = Math.min(4, Math.floor(m[1].replace(/\t/g, "    ").length / 2)), n = m[3] == null ? null : Number(m[3]);
      const part = { from: from + m[0].length, to, depth, n };
      const joins = block?.kind === "list" && (depth > 0 || (block.items[0].n == null) === (n == null));
      if (joins) { block.items.push(part); block.to = to; } else open("list", from, to, { items: [part] });
    } else if (ROW.test(line)) {
      if (block?.kind === "table" && !gap) { block.rows.push([from, to]); block.to = to; } else open("table", from, to, { rows: [[from, to]] });
    } else if (QUOTE.test(line)) {
      const part = [from + line.match(QUOTE)[0].length, to];
      if (block?.kind === "quote" && !gap) { block.parts.push(part); block.to = to; } else open("quote", from, to, { parts: [part] });
    } else if (block?.kind === "list" && (!gap || /^\s{2,}/.test(line))) { block.items.at(-1).to = to; block.to = to; }
    else if (block?.kind === "p" && !gap) { block.parts[0][1] = to; block.to = to; }
    else open("p", from, to, { parts: [[from, to]] });
    gap = false;
  }
  return out;
}

// While the text grows, a mark that has not closed yet counts as closed at the end: nothing flickers.
const span = (end, tail) => new RegExp(
  String.raw`\`([^\`\n]+)(?:\`${end})|\*\*\*(?=\S)([^*]+)\*\*\*|\*\*(?=\S)((?:[^*]|\*(?!\*))+)(?:\*\*${tail})|\*(?=\S)([^*\n]+)\*`, "g");
const SPAN = span("", ""), GROWING = span("|$", "|\\*?$");

function inline(parent, text, live) {
  let at = 0;
  for (const m of text.matchAll(live ? GROWING : SPAN)) {
    const [all, code, both, strong, em] = m;
    parent.append(text.slice(at, m.index));
    if (code != null) parent.append(h("code", { text: code }));
    else if (both != null) parent.append(h("strong", null, inline(h("em"), both, false)));
    else parent.append(strong != null ? inline(h("strong"), strong, live) : inline(h("em"), em, false));
    at = m.index + all.length;
  }
  parent.append(text.slice(at));
  return parent;
}

// A list that grows keeps its items: only the last one can have changed, the ones after it are new.
class List {
  constructor(items, text, live) {
    Object.assign(this, { base: items[0].depth, stack: [], rows: [] }); // one open list per depth
    items.forEach((item) => this.add(item));
    this.last(text, live, 0);
    this.el = this.stack[0].el;
  }

  add(item) {
    const depth = Math.max(0, item.depth - this.base), ordered = item.n != null, stack = this.stack, li = h("li");
    while (stack.length > 1 && (stack.at(-1).depth > depth || (stack.at(-1).depth === depth && stack.at(-1).ordered !== ordered))) stack.pop();
    if (!stack.length || stack.at(-1).depth < depth) {
      const el = h(ordered ? "ol" : "ul", { start: item.n > 1 ? item.n : null });
      stack.at(-1)?.el.lastChild.append(el);
      stack.push({ depth, ordered, el });
    }
    stack.at(-1).el.append(li);
    this.rows.push({ item, li });
  }

  last(text, live, from) { // its words go before lists within it
    this.rows.slice(from).forEach(({ item, li }, i, rows) => {
      const words = inline(document.createDocumentFragment(), text.slice(item.from, item.to), live && i === rows.length - 1);
      li.replaceChildren(words, ...[...li.children].filter((kid) => kid.matches("ul, ol")));
    });
  }

  grow(items, text, live) {
    const at = this.rows.length - 1, old = this.rows[at].item, now = items[at];
    if (!now || now.from !== old.from || now.depth !== old.depth || now.n !== old.n) return false;
    this.rows[at].item = now;
    items.slice(at + 1).forEach((item) => this.add(item));
    this.last(text, live, at);
    return true;
  }
}

function drawTable(rows, text) {
  const cells = ([from, to]) => text.slice(from, to).trim().slice(1, -1).split("|").map((c) => c.trim());
  const parted = rows.length > 1 && cells(rows[1]).every((c) => /^:?-+:?$/.test(c));
  const row = (r, tag) => h("tr", null, cells(r).map((c) => inline(h(tag), c, false)));
  return h("div", { class: "pnb-table", tabindex: 0, role: "group", "aria-label": "Table" },
    h("table", null, parted && h("thead", null, row(rows[0], "th")), h("tbody", null, rows.slice(parted ? 2 : 0).map((r) => row(r, "td")))));
}

const body = (b, text) => (b.body ? text.slice(...b.body) : "");

function drawBlock(b, text, live, say, above) {
  switch (b.kind) {
    case "code": {
      const code = h("code", { text: body(b, text) });
      return h("div", { class: "pnb-pre" },
        h("div", { class: "pnb-pre-head" }, h("span", { class: "pnb-label", text: b.lang || "text" }), copyButton(() => code.textContent, "Copy the code", say)),
        h("pre", { tabindex: 0, role: "group", "aria-label": `Code, ${b.lang || "text"}` }, code));
    }
    case "rule": return h("hr");
    case "table": return drawTable(b.rows, text);
    case "head": return inline(h("p", { class: b.level < 3 ? "pnb-h pnb-h1" : "pnb-h", role: "heading", "aria-level": Math.min(b.level + 2, above + 1, 6) }), text.slice(...b.parts[0]), live);
    case "quote": return inline(h("blockquote"), b.parts.map((p) => text.slice(...p)).join("\n"), live);
    default: return inline(h("p"), text.slice(...b.parts[0]), live);
  }
}

// A text that grows: only blocks that changed are drawn again, earlier ones keep their nodes and a selection in them.
export class Grown {
  constructor(box, say) { Object.assign(this, { box, say, text: "", drawn: [], caret: h("span", { class: "pnb-caret", "aria-hidden": "true" }) }); }

  draw(text, live) {
    if (!text.startsWith(this.text)) this.cut(0);
    this.text = text;
    const base = Math.max(0, this.drawn.length - 2), parsed = blocks(text, this.drawn[base]?.block.from ?? 0);
    parsed.forEach((b, i) => this.block(base + i, b, live && i === parsed.length - 1));
    this.cut(base + parsed.length);
    if (live) this.tail().append(this.caret); else this.caret.remove();
  }

  cut(n) { while (this.drawn.length > n) this.drawn.pop().el.remove(); }

  block(i, b, live) {
    const old = this.drawn[i], same = old && old.block.kind === b.kind && old.block.from === b.from;
    if (same && old.block.to === b.to && old.live === live) return;
    if (same && b.kind === "code" && old.block.lang === b.lang) { // a long listing is appended to, not drawn again
      const code = old.el.querySelector("code"), was = code.firstChild, now = body(b, this.text);
      if (was?.nodeType === 3 && now.startsWith(was.data)) was.appendData(now.slice(was.data.length)); else code.textContent = now;
    } else if (!same || !old.list?.grow(b.items, this.text, live)) {
      const above = this.drawn.slice(0, i).findLast((x) => x.block.kind === "head")?.el.getAttribute("aria-level") ?? 2; // levels never skip one
      const list = b.kind === "list" ? new List(b.items, this.text, live) : null, el = list?.el ?? drawBlock(b, this.text, live, this.say, Number(above));
      if (old) old.el.replaceWith(el); else this.box.append(el);
      this.drawn[i] = { el, list };
    }
    Object.assign(this.drawn[i], { block: b, live });
  }

  tail() {
    const el = this.drawn.at(-1)?.el;
    return !el ? this.box : el.matches(".pnb-pre") ? el.querySelector("code") : [...el.querySelectorAll("li, td")].at(-1) ?? (el.matches("hr") ? this.box : el);
  }
}
