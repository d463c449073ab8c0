// Throwing a device out: the sheet says what it does before it is done.

import { h, icon } from "./dom.js";
import { frame } from "./sheet.js";

/** Opens that sheet by `open(who, from)`. */
export function outButton(who, open) {
  const b = h("button", { class: "pnb-out", type: "button", "aria-label": `Throw ${who.name} out`, title: `Throw ${who.name} out`, "aria-expanded": "false", onclick: () => open(who, b) }, icon("out", 13));
  return b;
}

/** `who`: `{id, name, layers}` of a device or a guest. */
export function kickSheet(send, close, who) {
  const keep = h("button", { class: "pnb-btn", type: "button", text: "Keep it", onclick: close });
  const out = h("button", { class: "pnb-btn pnb-danger", type: "button", text: "Throw out", onclick: (e) => { if (e.detail < 2) { send({ cmd: "kick", key: who.id }); close(); } } });
  const { el } = frame("Throw out?", close,
    h("p", null, h("b", { class: "pnb-b pnb-name", text: who.name }), " leaves the room at once, and has to ask to come back."),
    who.layers && h("p", { text: `Its ${who.layers} will have no device until you deal again.` }),
    h("p", { class: "pnb-2", text: "Invite links given out before then only lead to the lobby, since it may hold one." }),
    h("div", { class: "pnb-form-acts" }, out, keep));
  const there = (r) => [...r.chain, ...r.guests].some((d) => d.id === who.id && d.kick);
  return { el, first: keep, draw: there };
}
