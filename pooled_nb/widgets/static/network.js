// The network box: by which ways this device reaches the others, and the relay it may use. A relay's text is a secret:
// it goes to the kernel once, by a message, and nothing of it ever comes back (DESIGN section 7).

import { NO_KERNEL, attr, h, keyed, mark, put } from "./dom.js";
import { frame, ticket, unique } from "./sheet.js";
import { str } from "./typed.js";

export function networkSheet(send, close) {
  const id = unique();
  let waits = 0, room = null, touched = false;
  const facts = h("dl", { class: "pnb-facts" }), links = h("ul", { class: "pnb-links", "aria-label": "Link to each device" }), slow = h("p", { class: "pnb-slow", "data-tone": "warn" });
  const turn = h("input", { type: "password", id: `${id}t`, class: "pnb-input", autocomplete: "off", autocapitalize: "off", spellcheck: "false", maxlength: 1000, placeholder: "turn:user:password@host:3478", "aria-describedby": `${id}s` });
  const check = (label, onchange) => { const input = h("input", { type: "checkbox", onchange }); return { input, el: h("label", { class: "pnb-check" }, input, h("span", { text: label })) }; };
  const only = check("Only through the relay", () => { touched = true; }), keep = check("Remember on this machine");
  const save = h("button", { class: "pnb-btn pnb-main", type: "button", text: "Save", onclick: (e) => tell(e, { ...(turn.value.trim() && { turn: turn.value.trim() }), relay_only: only.input.checked, remember: keep.input.checked }) });
  const forget = h("button", { class: "pnb-btn", type: "button", text: "Use no relay", onclick: (e) => tell(e, { turn: "", relay_only: false, remember: keep.input.checked }) });
  const said = h("p", { class: "pnb-err", id: `${id}s`, role: "status" });
  const form = h("div", { class: "pnb-form" }, h("label", { class: "pnb-2", for: `${id}t`, text: "TURN server (a relay, for when no direct path is found)" }), turn, h("div", { class: "pnb-checks" }, only.el, keep.el),
    h("div", { class: "pnb-form-acts" }, save, forget), said);
  const { el, x } = frame("Network", close, facts, links, slow, form);

  function tell(e, choice) {
    if (e.detail > 1) return; // the second half of a double click
    waits = ticket();
    say("", "");
    if (send({ cmd: "network", id: waits, ...choice })) return;
    waits = 0;
    say("bad", NO_KERNEL);
  }

  function say(tone, words) {
    attr(said, "data-tone", tone);
    said.replaceChildren(...(words ? [mark(tone), h("span", { text: words })] : []));
  }

  return {
    el, first: x,
    enter: () => save.click(),
    message(m) {
      if (m.t !== "done" || m.id !== waits || !waits) return;
      waits = 0;
      const error = str(m.error, 400);
      if (!error) { turn.value = ""; touched = false; }
      say(error ? "bad" : "good", error || str(m.said, 400));
      if (room) only.input.checked = touched ? only.input.checked : room.network.relayOnly;
    },
    draw(r) {
      room = r;
      const n = r.network;
      if (!n.may) return false;
      keyed(facts, n.rows, (q) => q.label, (q) => h("div", null, h("dt", { class: "pnb-2", text: q.label }), h("dd")), (node, q) => {
        const dd = node.lastChild;
        if (dd.dataset.key === q.tone + q.text) return;
        dd.dataset.key = q.tone + q.text;
        attr(dd, "data-tone", q.tone);
        dd.replaceChildren(mark(q.tone), h("span", { text: q.text }));
      }, x);
      keyed(links, n.links, (q) => q.name, (q) => h("li", null, h("span", { class: "pnb-cut", text: q.name, title: q.name }), h("span", { class: "pnb-2" })), (li, q) => {
        attr(li, "data-path", q.path);
        put(li.lastChild, q.text.split(" · ").map((part) => part.replaceAll(" ", "\u00a0")).join("\u00a0· ")); // no part is broken
      }, x);
      links.toggleAttribute("hidden", !n.links.length);
      if (slow.dataset.key !== n.slow) {
        slow.dataset.key = n.slow;
        slow.replaceChildren(...(n.slow ? [mark("warn"), h("span", { text: n.slow })] : []));
        slow.toggleAttribute("hidden", !n.slow);
      }
      attr(links, "tabindex", links.scrollHeight > links.clientHeight + 1 ? 0 : null);
      if (!touched && !waits) only.input.checked = n.relayOnly;
      if (!n.forget && forget === document.activeElement) turn.focus();
      forget.toggleAttribute("hidden", !n.forget);
      return true;
    },
    gone() { turn.value = ""; },
  };
}
