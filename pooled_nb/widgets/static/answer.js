// The answer panel: one answer as it grows, what it waits for, and what one may do with it.
// A widget's module cannot import its neighbours, so each one begins with the same helpers. The model's text
// becomes nodes, never markup (DESIGN section 7).

const SVG = "http://www.w3.org/2000/svg";

function fill(el, props, kids) {
  for (const [k, v] of Object.entries(props ?? {})) {
    if (v == null || v === false) continue;
    if (k === "text") el.textContent = v;
    else if (k.startsWith("on")) el.addEventListener(k.slice(2), v);
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
  bad: "M4 4l8 8M12 4l-8 8",
  warn: "M8 2.5l6 10.8H2zM8 6.8v2.8",
  work: "M2.5 8a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0-11 0M7.5 8h1",
  idle: "M2.5 8a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0-11 0",
};
const icon = (name, size = 16) => s("svg", { viewBox: "0 0 16 16", width: size, height: size, "aria-hidden": "true", fill: "none", stroke: "currentColor",
  "stroke-width": size < 13 ? 2 : 1.5, "stroke-linecap": "round", "stroke-linejoin": "round" }, s("path", { d: ICONS[name] }));

async function copy(text) {
  try { await navigator.clipboard.writeText(text); return true; } catch { /* not allowed in this frame: the old way */ }
  const box = h("textarea", { style: "position: fixed; opacity: 0", text }), before = document.activeElement;
  document.body.append(box);
  box.select();
  try { return document.execCommand("copy"); } catch { return false; } finally { box.remove(); before?.focus?.(); }
}

function copyButton(text, label, live, words) {
  const size = words ? 13 : 16;
  const b = h("button", { class: words ? "pnb-quiet" : "pnb-btn pnb-icon", type: "button", "aria-label": label, title: label }, icon("copy", size), words);
  b.addEventListener("click", async () => {
    const ok = await copy(text());
    b.firstChild.replaceWith(icon(ok ? "done" : "bad", size));
    put(live, ok ? "Copied." : "This page may not copy. Select the text instead.");
    setTimeout(() => { b.firstChild.replaceWith(icon("copy", size)); put(live, ""); }, 1400);
  });
  return b;
}

// ---- Markdown, the small part that answers use --------------------------------------------------
// A block is {kind, from, to, …} over the text. A later line changes the last two blocks at most (a list goes on
// after an empty line), so a growing text is parsed again from there only.

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
class Grown {
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

// ---- what came, made safe to draw ---------------------------------------------------------------
const rec = (x) => (x && typeof x === "object" && !Array.isArray(x) ? x : {});
const str = (x, max = 600) => (typeof x === "string" ? x : Number.isFinite(x) ? String(x) : "").slice(0, max);
const STATES = ["waiting", "loading", "answering", "done", "stopped", "capped", "failed", "hidden"];

function tidy(raw) {
  const a = rec(raw), state = STATES.includes(a.state) ? a.state : "waiting";
  return {
    id: Number.isInteger(a.id) || typeof a.id === "string" ? a.id : null, question: str(a.question, 4000), who: str(a.who, 200), state,
    busy: ["waiting", "loading", "answering"].includes(state), wait: str(a.wait), line: str(a.line), problem: str(a.problem),
    pct: Number.isFinite(a.pct) ? Math.min(100, Math.max(0, a.pct)) : null,
    actions: (Array.isArray(a.actions) ? a.actions : []).slice(0, 4).map(rec)
      .map((x) => ({ cmd: str(x.cmd, 20), label: str(x.label, 40), main: x.main === true })).filter((x) => x.cmd && x.label),
  };
}

// ---- the text, kept in step: traits now and then, pieces every 50 ms, the whole after a gap ------
class Sync {
  constructor(send, changed) { Object.assign(this, { send, changed, id: null, seq: 0, text: "", fresh: true, asked: 0 }); }

  // Traits count when they are not behind. They always do right after another answer took the place.
  traits(id, text, seq) {
    if (id !== this.id) Object.assign(this, { id, fresh: true, asked: 0 });
    if (this.fresh || seq >= this.seq) this.take(text, seq, false);
  }

  take(text, seq, late) {
    const was = this.text;
    Object.assign(this, { text, seq });
    if (text !== was) this.changed(text.startsWith(was), late);
  }

  message(m) {
    if (m.id !== this.id || this.id == null || !Number.isInteger(m.seq)) return;
    const next = m.seq === this.seq + 1, late = this.fresh;
    if (typeof m.whole === "string" && (this.fresh || m.seq >= this.seq)) {
      Object.assign(this, { asked: 0, fresh: false });
      this.take(m.whole, m.seq, late);
    } else if (typeof m.text === "string" && next) {
      Object.assign(this, { asked: 0, fresh: false });
      this.take(this.text + m.text, m.seq, false);
    } else if (typeof m.text === "string" && m.seq > this.seq) this.ask();
  }

  ask() { // once a gap; again when no answer comes
    const now = performance.now();
    if (this.id == null || (this.asked && now - this.asked < 2000)) return;
    this.asked = now;
    this.send({ cmd: "sync", id: this.id });
  }
}

// Own answers are read out by whole sentences: a screen reader never hears half a word.
class Voice {
  constructor(live) { this.live = live; this.at = 0; this.said = ""; }
  skip(text) { this.at = text.length; }
  sentences(text, end) {
    if (this.at > text.length) this.at = 0;
    const rest = text.slice(this.at), stops = [...rest.matchAll(/[.!?:…][)"'\]]*(?=\s)|[。！？]|\n/g)];
    const upTo = end ? rest.length : stops.length ? stops.at(-1).index + stops.at(-1)[0].length : 0;
    const words = rest.slice(0, upTo).replace(/```\w*|[*`#|]+/g, "").replace(/\s+/g, " ").trim();
    this.at += upTo;
    if (words) put(this.live, words);
  }
  state(words) { // once a state, not once a number
    const now = words.replace(/\d+/g, "");
    if (now && now !== this.said) put(this.live, words);
    this.said = now;
  }
}

// ---- the panel ----------------------------------------------------------------------------------
function render({ model, el }) {
  let answer = tidy(model.get("answer")), frame = 0, timer = 0, pause = 0, first = true, foot = "";
  const live = h("p", { class: "pnb-sr", role: "status" }), note = h("p", { class: "pnb-sr", role: "status" }), voice = new Voice(live);
  const send = (m) => { try { model.send(m); } catch { problem("The kernel does not answer, so nothing was done. Run the cell again."); } };
  const question = h("p", { class: "pnb-q pnb-cut" }), text = h("div", { class: "pnb-a", role: "log", "aria-live": "off", "aria-label": "Answer" });
  const bad = h("p", { class: "pnb-err" }), way = h("i"), bar = h("div", { class: "pnb-progress", "aria-hidden": "true" }, way);
  const words = h("span", { class: "pnb-words-of" }), copyAll = copyButton(() => sync.text, "Copy the answer", note, "Copy"), acts = h("span", { class: "pnb-acts" });
  const line = h("div", { class: "pnb-foot", tabindex: -1 }, words, copyAll, acts);
  const root = h("section", { class: "pnb pnb-answer", role: "group", "aria-label": "Answer" }, question, text, bad, bar, line, live, note);
  const grown = new Grown(text, note);
  const sync = new Sync(send, (grows, late) => {
    if (late) voice.skip(sync.text); else if (!grows) voice.skip("");
    if (pause) timer ||= setTimeout(paint, pause); else frame ||= requestAnimationFrame(paint);
  });

  function paint() { // a text that costs much to lay out is drawn less often, so that the page stays smooth
    const start = performance.now();
    frame = timer = 0;
    drawText();
    drawLine();
    const cost = root.offsetHeight && performance.now() - start;
    pause = cost > 16 ? Math.min(1000, 3 * cost) : 0;
  }

  function problem(words) {
    bad.hidden = !words;
    if (bad.textContent !== words) bad.replaceChildren(icon(answer.state === "failed" ? "bad" : "warn", 12), h("span", { text: words }));
    attr(bad, "data-tone", answer.state === "failed" ? "bad" : "warn");
  }

  function drawText() {
    const shown = answer.state === "hidden" ? "" : sync.text;
    grown.draw(shown, answer.busy && (answer.state === "answering" || Boolean(shown)));
    attr(grown.caret, "data-held", answer.state !== "answering" || answer.wait ? "yes" : null);
    if (answer.who || answer.state === "hidden") voice.skip(shown); else voice.sentences(shown, !answer.busy);
  }

  function drawLine() {
    const a = answer, tone = { waiting: "idle", loading: "work" }[a.state] ?? (a.busy && a.wait ? "warn" : null);
    const said = a.busy ? a.wait || a.line : a.line || a.wait;
    if (foot !== tone + said) {
      foot = tone + said;
      words.replaceChildren(...(tone ? [icon(tone, 12)] : []), h("span", { text: said }));
      attr(words, "data-tone", tone);
    }
    way.style.width = `${a.pct ?? 0}%`;
    attr(bar, "data-on", a.busy && a.pct != null ? "yes" : null);
    const off = a.busy || a.state === "hidden" || !sync.text;
    if (off && document.activeElement === copyAll) line.focus();
    copyAll.hidden = off;
    buttons(a.actions);
  }

  function buttons(list) { // a pressed button that goes gives the focus to its line, never to the one that follows
    const old = new Map([...acts.children].map((b) => [b.dataset.key, b]));
    const next = list.map((x) => {
      const key = `${x.cmd} ${x.label} ${x.main}`, cls = x.cmd === "stop" || x.main ? `pnb-btn${x.main ? " pnb-main" : ""}` : "pnb-quiet";
      const b = old.get(key) ?? h("button", { class: cls, type: "button", "data-cmd": x.cmd, text: x.label, onclick: (e) => { if (e.detail < 2) send({ cmd: x.cmd }); } });
      b.dataset.key = key;
      old.delete(key);
      return b;
    });
    for (const b of old.values()) { if (b === document.activeElement) line.focus(); b.remove(); }
    next.forEach((b, i) => { if (acts.children[i] !== b) acts.insertBefore(b, acts.children[i] ?? null); });
  }

  function update() {
    answer = tidy(model.get("answer"));
    const other = answer.id !== sync.id, seq = model.get("seq");
    sync.traits(answer.id, str(model.get("text"), 4e6), Number.isInteger(seq) ? seq : 0);
    if (first) voice.skip(sync.text);
    root.toggleAttribute("data-busy", answer.busy);
    question.hidden = !answer.question && !answer.who;
    put(question, [answer.who, answer.question].filter(Boolean).join(": "));
    text.hidden = answer.state === "hidden";
    attr(question, "title", answer.question);
    drawText();
    problem(answer.problem);
    drawLine();
    if (!first) voice.state(answer.problem || answer.wait);
    if (other) sync.ask();
    first = false;
  }

  const lost = () => { // the kernel has ended or begun anew, or only the connection is new
    try { model.send({ cmd: "ping" }); } catch {
      answer = { ...answer, actions: [], ...(answer.busy && { busy: false, state: "stopped", wait: "", line: "The kernel has ended. Run the cell again." }) };
      root.toggleAttribute("data-busy", false); drawText(); drawLine();
    }
  };
  const message = (m) => sync.message(rec(m));
  // On the window and early: a notebook listens on the document (a, b, d d), and must not hear keys pressed here.
  const keys = (e) => {
    if (!root.contains(e.target) || ((e.ctrlKey || e.metaKey) && e.key !== "Enter")) return;
    e.stopPropagation();
    if (e.key === "Escape") acts.querySelector("[data-cmd=stop]")?.click();
  };

  el.replaceChildren(root);
  window.addEventListener("keydown", keys, true);
  const traits = ["change:answer", "change:text", "change:seq"];
  for (const name of traits) model.on(name, update);
  model.on("msg:custom", message); model.on("comm_live_update", lost);
  send({ cmd: "here" });
  update();
  return () => {
    for (const name of traits) model.off(name, update);
    model.off("msg:custom", message); model.off("comm_live_update", lost);
    window.removeEventListener("keydown", keys, true);
    cancelAnimationFrame(frame); clearTimeout(timer); root.remove();
  };
}

export default { render };
