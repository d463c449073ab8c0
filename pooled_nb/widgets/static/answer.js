// The answer panel: one answer as it grows, what it waits for, and what one may do with it.

import { NO_KERNEL, attr, copyButton, h, mark, ownKeys, put } from "./dom.js";
import { Grown } from "./markdown.js";
import { rec, recs, str } from "./typed.js";

const STATES = ["waiting", "loading", "answering", "done", "stopped", "capped", "failed", "hidden"];

function tidy(raw) {
  const a = rec(raw), state = STATES.includes(a.state) ? a.state : "waiting";
  return {
    id: Number.isInteger(a.id) || typeof a.id === "string" ? a.id : null, question: str(a.question, 4000), who: str(a.who, 200), state,
    busy: ["waiting", "loading", "answering"].includes(state), wait: str(a.wait, 600), line: str(a.line, 600), problem: str(a.problem, 600),
    pct: Number.isFinite(a.pct) ? Math.min(100, Math.max(0, a.pct)) : null,
    actions: recs(a.actions, 4)
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
    if (now !== this.said) put(this.live, now && words); // emptied, so that the same words are heard again
    this.said = now;
  }
}

// ---- the panel ----------------------------------------------------------------------------------
function render({ model, el }) {
  let answer = tidy(model.get("answer")), frame = 0, timer = 0, pause = 0, first = true, foot = "";
  const live = h("p", { class: "pnb-sr", role: "status" }), note = h("p", { class: "pnb-sr", role: "status" }), voice = new Voice(live);
  const send = (m) => { try { model.send(m); } catch { problem(NO_KERNEL); } };
  const question = h("p", { class: "pnb-q pnb-cut" }), text = h("div", { class: "pnb-a", role: "log", "aria-live": "off", "aria-label": "Answer" });
  const bad = h("p", { class: "pnb-err" }), way = h("i"), bar = h("div", { class: "pnb-progress", "aria-hidden": "true" }, way);
  const words = h("span", { class: "pnb-words-of" }), copyAll = copyButton(() => sync.text, "Copy the answer", note, { words: "Copy", cls: "pnb-quiet", size: 13 }), acts = h("span", { class: "pnb-acts" });
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
    if (bad.textContent !== words) bad.replaceChildren(mark(answer.state === "failed" ? "bad" : "warn"), h("span", { text: words }));
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
      words.replaceChildren(...(tone ? [mark(tone)] : []), h("span", { text: said }));
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

  el.replaceChildren(root);
  const noKeys = ownKeys(root, (e) => { if (e.key === "Escape") acts.querySelector("[data-cmd=stop]")?.click(); });
  const traits = ["change:answer", "change:text", "change:seq"];
  for (const name of traits) model.on(name, update);
  model.on("msg:custom", message); model.on("comm_live_update", lost);
  send({ cmd: "here" });
  update();
  return () => {
    for (const name of traits) model.off(name, update);
    model.off("msg:custom", message); model.off("comm_live_update", lost);
    noKeys(); cancelAnimationFrame(frame); clearTimeout(timer); root.remove();
  };
}

export default { render };
