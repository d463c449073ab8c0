// The settings sheet: how the room answers, and whether it asks before somebody comes in. What it draws is what the
// room says; the host's person sets it.

import { h, put } from "./dom.js";
import { frame, unique } from "./sheet.js";

export function settingsSheet(send, close) {
  const id = unique(), look = h("p", { class: "pnb-2 pnb-look", text: "The host sets these; you may look." }), set = h("div", { class: "pnb-set" });
  const radio = (name, props) => h("input", { type: "radio", name: `${id}-${name}`, ...props });
  const segment = (inputs, words) => h("div", { class: "pnb-seg" }, inputs.map((input, k) => h("label", null, input, h("span", { text: words[k] }))));
  const asks = [true, false].map((on) => radio("ask", { onchange: () => say({ cmd: "gate", key: "ask", value: on ? "on" : "off" }) })), about = h("p", { class: "pnb-label", id: `${id}-about` });
  const gate = h("div", { class: "pnb-gate" }, h("div", { class: "pnb-opt", role: "radiogroup", "aria-label": "Ask before new devices join", "aria-describedby": `${id}-about` },
    h("span", { text: "Ask before new devices join" }), segment(asks, ["On", "Off"])), about);
  const { el, x } = frame("Settings", close, look, set, h("p", { class: "pnb-label", text: "Counts from the next question. Text already shown stays as it is." }));
  let shape = "", inputs = [], room = null, settle = 0;
  const group = (g, i) => h("div", { class: "pnb-opt", role: "radiogroup", "aria-label": g.label }, h("span", { class: "pnb-2", text: g.label }), segment(inputs[i], g.options.map((o) => o.text)));

  function say(m) {
    send(m);
    clearTimeout(settle); // what the room refuses changes no trait, so after a while its word counts again
    settle = setTimeout(() => draw(room), 3000);
  }

  function draw(r) {
    room = r;
    if (!r.groups.length) return false;
    const now = JSON.stringify([r.may, r.groups.map((g) => [g.key, g.label, g.options])]);
    if (now !== shape) {
      shape = now;
      look.hidden = r.may;
      if (set.contains(document.activeElement)) x.focus();
      inputs = r.groups.map((g, i) => g.options.map((o) => radio(i, { disabled: !r.may, onchange: () => say({ cmd: "set", key: g.key, value: o.value }) })));
      set.replaceChildren(...r.groups.map(group));
    }
    r.groups.forEach((g, i) => g.options.forEach((o, k) => { inputs[i][k].checked = String(o.value) === String(g.value); }));
    if (!r.gate && gate.contains(document.activeElement)) x.focus();
    if (!r.gate) gate.remove(); else if (!gate.isConnected) el.append(gate);
    asks.forEach((input, k) => { input.checked = Boolean(r.gate) && r.gate.ask === !k; });
    put(about, r.gate?.text ?? "");
    return true;
  }
  return { el, first: x, draw, gone: () => clearTimeout(settle) };
}
