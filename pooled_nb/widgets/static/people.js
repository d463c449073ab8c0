// Who is here besides the chain, whose questions wait, and who waits to be let in (host) or how this device knows its
// host (everyone else). Each box keeps its height.

import { attr, h, keyed, mark, put } from "./dom.js";
import { outButton } from "./kick.js";

/** So long after something else came to a place, a click there was meant for what stood there before. */
export const SLIP_MS = 500;

/** The lobby, one request at a time: what was pressed goes, and the focus to the lobby's line. */
export class Lobby {
  constructor(send, live) {
    Object.assign(this, { send, live, said: "", since: -Infinity, head: h("h3"), list: h("ul"), note: h("p", { class: "pnb-2 pnb-note" }), digits: h("b", { class: "pnb-digits" }) });
    this.el = h("div", { class: "pnb-door", tabindex: -1, role: "group" }, this.head, this.list, this.note);
  }

  draw(r) {
    const host = r.lobby, rows = host?.rows.slice(0, 1) ?? [], first = rows[0], t = r.trust;
    attr(this.el, "aria-label", host ? "Lobby" : t.head);
    put(this.head, host ? host.head : t.head);
    this.head.toggleAttribute("hidden", !this.head.textContent);
    const other = this.list.firstChild && this.list.firstChild.dataset.key !== `${first?.number}\u00000`;
    if (other) this.since = performance.now(); // a click meant for the one before lets nobody else in
    keyed(this.list, rows, (d) => String(d.number), (d) => this.knock(d), (li, d) => this.update(li, d), this.el);
    this.list.toggleAttribute("hidden", !first);
    if (first && this.said !== String(first.number)) put(this.live, `${first.name} asks to join.${first.digits ? ` Digits ${[...first.digits.replace(/\s/g, "")].join(" ")}.` : ""}`);
    this.said = first ? String(first.number) : "";
    this.line(first ? "" : host ? host.note : t.text, host ? host.tone : t.tone, first || host ? "" : t.digits);
  }

  line(words, tone, digits) {
    const now = JSON.stringify([words, tone, digits]);
    this.note.toggleAttribute("hidden", !words);
    if (this.shown === now) return;
    this.shown = now;
    attr(this.note, "data-tone", words ? tone : null);
    put(this.digits, digits);
    attr(this.note, "title", words);
    this.note.replaceChildren(...(words ? [mark(tone), h("span", null, words, digits && " ", digits && this.digits)] : []));
  }

  knock(d) {
    const press = (cmd) => (e) => { if (e.detail < 2 && performance.now() - this.since >= SLIP_MS) this.send({ cmd, id: d.number }); };
    const b = (cmd, label, main) => h("button", { class: `pnb-btn${main ? " pnb-main" : ""}`, type: "button", text: label, "aria-label": `${label} ${d.name}`, onclick: press(cmd) });
    return h("li", { class: "pnb-knock" }, h("span", { class: "who" }, h("b", { class: "pnb-b pnb-cut" }), h("span", { class: "pnb-2 pnb-cut" })),
      h("span", { class: "pnb-digits" }), h("span", { class: "why pnb-label pnb-cut" }), h("span", { class: "acts" }, b("deny", "Deny"), b("allow", "Allow", true)));
  }

  update(li, d) {
    const [who, digits, why] = li.children;
    for (const [el, text] of [[who.firstChild, d.name], [who.lastChild, d.what], [why, d.note]]) { put(el, text); attr(el, "title", text); }
    put(digits, d.digits);
    digits.toggleAttribute("hidden", !d.digits);
  }
}

/** Guests, and those whose questions wait. */
export class People {
  constructor(lobby, home, onkick) {
    const guestHead = h("h3"), queueHead = h("h3");
    const guests = h("ul", { "aria-label": "Guests" }), queue = h("ol", { "aria-label": "Questions that wait" });
    Object.assign(this, { guestHead, queueHead, guests, queue, home, onkick });
    this.el = h("div", { class: "pnb-people" }, h("div", null, guestHead, guests), h("div", null, queueHead, queue), lobby.el);
  }

  chip(name, why, out) {
    return h("li", { class: "pnb-chip", title: why }, h("span", { class: "pnb-cut", text: name }), h("span", { class: "pnb-label", hidden: true }), out);
  }

  draw(r) {
    put(this.guestHead, r.guests.length ? `${r.guests.length} ${r.guests.length === 1 ? "guest" : "guests"}` : "No guests");
    keyed(this.guests, r.guests, (g) => `${g.id} ${g.name} ${g.kick}`, (g) => this.chip(g.name, null, g.kick && outButton({ ...g, layers: "" }, this.onkick)), (li, g) => {
      const state = li.children[1];
      attr(li, "data-on", g.state === "asking" ? "yes" : null);
      attr(li, "title", [g.name, g.why].filter(Boolean).join(", "));
      put(state, g.state);
      state.toggleAttribute("hidden", !g.state);
    }, this.home);
    put(this.queueHead, r.queue.text || "No questions wait.");
    keyed(this.queue, r.queue.names, (name) => name, (name) => this.chip(name, name));
    for (const box of [this.guests, this.queue]) box.toggleAttribute("hidden", !box.children.length);
  }
}
