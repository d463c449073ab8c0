// The room panel: the code, the sentence with its buttons, the chain, the numbers, who is here and who wants in.
// Python makes the words of the trait `room`; here is geometry, and a few fixed labels.

import { Chain, colour } from "./chain.js";
import { NO_KERNEL, attr, copyButton, h, icon, keyed, mark, ownKeys, put, s, still } from "./dom.js";
import { tidy } from "./facts.js";
import { inviteSheet } from "./invite.js";
import { kickSheet } from "./kick.js";
import { networkSheet } from "./network.js";
import { Lobby, People, SLIP_MS } from "./people.js";
import { settingsSheet } from "./settings.js";
import { Sheets } from "./sheet.js";
import { rec } from "./typed.js";

const GONE = { state: "closed", say: { tone: "idle", what: "The kernel has ended", about: "This is how the room was last. Run the cell again." } };

function render({ model, el }) {
  let room = tidy(model.get("room")), width = 0, said = "", shown = "", noted = null;
  const live = h("p", { class: "pnb-sr", role: "status" }), notice = h("p", { class: "pnb-notice", role: "status" }), promise = h("p", { class: "pnb-promise pnb-cut pnb-label" });
  const send = (m) => { try { model.send(m); return true; } catch { put(notice, NO_KERNEL); return false; } };
  const code = h("b", { role: "img" }), title = h("span", { class: "pnb-b pnb-cut" }), facts = h("span", { class: "pnb-label" }), magic = h("code");
  const copyCode = copyButton(() => room.code, "Copy the code", live), join = copyButton(() => room.join, "Copy the line that joins", live, { words: magic });
  const opener = (name, make, props, ...kids) => {
    const b = h("button", { type: "button", "aria-expanded": "false", ...props, onclick: () => sheets.toggle(name, b, make, room) }, kids);
    return b;
  };
  const network = (close) => networkSheet(send, close);
  const invite = opener("invite", (close) => inviteSheet(send, close, live), { class: "pnb-btn pnb-invites", text: "Invite" });
  const net = opener("network", network, { class: "pnb-btn pnb-icon pnb-net", "aria-label": "Network", title: "Network" }, icon("links"));
  const gear = opener("settings", (close) => settingsSheet(send, close), { class: "pnb-btn pnb-icon pnb-gear", "aria-label": "Settings", title: "Settings" }, icon("sliders"));
  const head = h("header", { class: "pnb-head" }, h("div", { class: "pnb-code" }, code, copyCode, invite), join, h("div", { class: "pnb-model" }, title, facts), h("div", { class: "pnb-tools" }, net, gear));
  const text = h("p", { class: "pnb-say-text" }), acts = h("div", { class: "pnb-say-acts" }), way = h("i", { class: "pnb-way", "aria-hidden": "true" });
  const line = h("div", { class: "pnb-say", tabindex: -1 }, text, acts, way), chainBox = h("div", { class: "pnb-chain-in" });
  const kick = (who, from) => sheets.open("kick", from, (close) => kickSheet(send, close, who), room);
  const chain = new Chain(chainBox, line, kick), lobby = new Lobby(send, live), people = new People(lobby, line, kick);
  const slot = (b, unit, dt) => ({ b, unit, dt, el: h("div", null, dt, h("dd", null, b, unit)) });
  const slots = [0, 1, 2, 3].map(() => slot(h("b"), h("span", { class: "pnb-2" }), h("dt", { class: "pnb-label" })));
  const strip = s("svg", { preserveAspectRatio: "none", viewBox: "0 0 1000 10", "aria-hidden": "true" }), ends = [h("span"), h("span")], stripBox = h("div", { class: "pnb-strip" }, h("dt", { class: "pnb-label" }, ends), h("dd", null, strip));
  const stats = h("dl", { class: "pnb-stats" }, slots.map((x) => x.el), stripBox);
  const root = h("section", { class: "pnb pnb-room", role: "group" }, head, line, h("div", { class: "pnb-chain" }, chainBox), stats, people.el, h("footer", { class: "pnb-last" }, notice, promise), live);
  const sheets = new Sheets(root, line);

  function drawHead(r) {
    attr(root, "aria-label", `Room ${r.code}`);
    root.toggleAttribute("data-invites", r.invite);
    invite.toggleAttribute("hidden", r.role != null && r.role !== "host"); // a host's keeps its place while it is off
    put(code, r.code || "···-···");
    code.toggleAttribute("data-none", !r.code);
    attr(code, "aria-label", r.code ? `Room code ${[...r.code].join(" ")}` : "No room code yet");
    put(magic, r.join || "\u00a0");
    attr(join, "aria-label", `Copy ${r.join}`);
    put(title, r.label || "\u00a0");
    put(facts, r.facts || "\u00a0");
    attr(facts, "title", r.facts); // a narrow panel cuts it
    for (const [button, off] of [[copyCode, !r.code || r.closed], [invite, !r.invite], [join, !r.join], [net, !r.network.may], [gear, !r.groups.length]]) {
      if (off && button === document.activeElement) line.focus();
      button.toggleAttribute("data-off", off); // keeps its place, so that nothing beside it moves
    }
  }

  const action = (a, since) => h("button", { class: `pnb-btn${a.main ? " pnb-main" : ""}`, type: "button", text: a.label, onclick: (e) => {
    if (e.detail > 1 || (a.careful && performance.now() - since < SLIP_MS)) return; // a click meant for what stood there before
    send(a.careful ? { cmd: a.cmd, key: a.label } : { cmd: a.cmd });
  } });
  function drawSay(r) {
    const { tone, what, about } = r.say, now = r.state + still(what); // spoken once a state, not once a number
    if (shown !== tone + what + about) {
      shown = tone + what + about;
      attr(text, "data-tone", tone);
      text.replaceChildren(mark(tone), h("span", { class: "pnb-say-words" }, h("b", { class: "pnb-b", text: what }), h("span", { class: "pnb-2", text: about })));
    }
    if (said !== now) { if (said) put(live, `${what}${what.endsWith("?") ? "" : "."} ${about}`); said = now; }
    way.style.width = `${r.pct ?? 0}%`;
    const asks = r.actions.some((a) => a.careful);
    attr(acts, "role", asks ? "group" : null); attr(acts, "aria-label", asks ? what : null); // its buttons answer it
    keyed(acts, r.actions, (a) => `${a.cmd} ${a.label} ${a.main}`, (a) => action(a, performance.now()), null, line);
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

  function drawLast(r) { // a join that found no path opens the network box (PROTOCOL section 2); who works there is left alone
    put(notice, r.notice);
    put(promise, r.promise); attr(promise, "title", r.promise);
    if (noted != null && noted !== r.notice && r.network.trouble && !sheets.now) sheets.open("network", net, network, room, true);
    noted = r.notice;
  }

  const cut = (x) => x === document.activeElement || x.scrollHeight > x.clientHeight + 1 || x.scrollWidth > x.clientWidth + 1; // scrolls, or shows all when focused
  const reach = () => { for (const box of [people.guests, people.queue, notice]) attr(box, "tabindex", cut(box) ? 0 : null); };
  const drawChain = () => { if (width > 40) chain.draw(room, width); };
  const take = (raw) => {
    room = tidy(raw);
    drawHead(room); drawSay(room); drawChain(); drawNumbers(room); people.draw(room); lobby.draw(room); sheets.draw(room); drawLast(room);
    reach();
  };
  const update = () => take(model.get("room")), message = (m) => sheets.message(rec(m));
  const lost = () => { try { model.send({ cmd: "ping" }); } catch { take({ ...rec(model.get("room")), ...GONE }); } }; // or only the connection is new
  const measure = () => { if (chainBox.clientWidth !== width) { width = chainBox.clientWidth; drawChain(); reach(); } };

  el.replaceChildren(root);
  const watch = new ResizeObserver(measure), noKeys = ownKeys(root, (e) => sheets.key(e));
  watch.observe(chainBox);
  model.on("change:room", update); model.on("msg:custom", message); model.on("comm_live_update", lost);
  update(); measure();
  send({ cmd: "here" });
  return () => {
    model.off("change:room", update); model.off("msg:custom", message); model.off("comm_live_update", lost);
    noKeys(); watch.disconnect(); root.remove(); sheets.close(); // in this order: the focus goes nowhere
  };
}

export default { render };
