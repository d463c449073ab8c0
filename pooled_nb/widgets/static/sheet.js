// Sheets lie inside their panel, so no output area clips them and nothing below moves. One at a time; who opened
// one has the focus again when it closes, unless somebody types elsewhere by then.

import { attr, h, icon } from "./dom.js";

export class Sheets {
  /** `home`: who gets the focus where the button that opened a sheet is gone. */
  constructor(root, home) { Object.assign(this, { root, home, now: null }); }

  /** `make(close)` gives `{el, first, draw(room), message(m), enter(), gone()}`, all but `el` optional; `draw` that
      gives false closes it. `quiet`: nobody asked for it, so it takes no focus. */
  open(name, from, make, room, quiet = false) {
    this.close();
    const sheet = make(() => this.close());
    this.now = { ...sheet, name, from };
    this.root.append(sheet.el);
    if (sheet.draw?.(room) === false) return void this.close();
    attr(from, "aria-expanded", "true");
    if (!quiet) (sheet.first ?? sheet.el.querySelector("button")).focus();
  }

  toggle(name, from, make, room) { if (this.now?.name === name) this.close(); else this.open(name, from, make, room); }

  close() {
    if (!this.now) return;
    const { el, from, gone } = this.now, inside = el.contains(document.activeElement);
    this.now = null;
    gone?.();
    el.remove();
    if (from?.hasAttribute("aria-expanded")) attr(from, "aria-expanded", "false");
    if (inside) (from?.isConnected && !from.matches("[data-off], [hidden]") ? from : this.home).focus();
  }

  draw(room) { if (this.now?.draw?.(room) === false) this.close(); }
  message(m) { this.now?.message?.(m); }

  key(e) {
    if (e.key === "Escape") this.close();
    else if (e.key === "Enter" && this.now?.el.contains(e.target) && e.target.matches("input")) { e.preventDefault(); if (!e.repeat) this.now.enter?.(); }
  }
}

export function frame(title, close, ...kids) {
  const x = h("button", { class: "pnb-btn pnb-icon", type: "button", "aria-label": "Close", title: "Close", onclick: close }, icon("close"));
  return { x, el: h("div", { class: "pnb-sheet", role: "dialog", "aria-label": title }, h("div", { class: "pnb-sheet-head" }, h("h3", { text: title }), x), kids) };
}

/** Names that no other sheet on the page has. */
export const unique = () => `pnb${Math.random().toString(36).slice(2)}`;

/** Tells the answer to one question of this view from those of others: a kernel speaks to all views at once. */
export const ticket = () => 1 + Math.floor(Math.random() * (2 ** 31 - 2));
