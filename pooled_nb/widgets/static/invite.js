// The invite sheet. The link is a secret: it comes by a message when the sheet opens, lives in this closure while the
// sheet is open, and is forgotten with it. It is no text and no attribute of the page, and no trait; the picture of it
// goes with the sheet (DESIGN section 7).

import { NO_KERNEL, attr, copyButton, h, mark, put, s } from "./dom.js";
import { frame, ticket } from "./sheet.js";
import { rec, str } from "./typed.js";

const PATH = /^M[Mhvz0-9 -]*$/;

export function inviteSheet(send, close, live) {
  let link = "", id = 0, renewed = false;
  const box = h("div", { class: "pnb-qr" }), magic = h("code"), bad = h("p", { class: "pnb-err", role: "alert", hidden: true });
  const copyLink = copyButton(() => link, "Copy the link", live, { words: "Copy the link", cls: "pnb-btn pnb-main", not: "This page may not copy. Scan the picture instead." });
  const copyMagic = copyButton(() => magic.textContent, "Copy the magic", live, { words: "Copy the magic", cls: "pnb-btn" });
  const fresh = h("button", { class: "pnb-btn", type: "button", text: "New link", onclick: (e) => { if (e.detail < 2) { renewed = true; ask("renew"); } } });
  const where = h("p", { class: "pnb-label", hidden: true });
  const about = h("p", { class: "pnb-label" }, magic, " holds no key: who types it waits in the lobby until you let them in.");
  const { el } = frame("Invite", close, h("div", { class: "pnb-invite" }, box, h("div", { class: "pnb-invite-words" },
    h("p", { class: "pnb-2", text: "The link lets its holder in without asking. Give it only to people you want in this room." }),
    h("div", { class: "pnb-form-acts" }, copyLink, copyMagic), where, about)),
    h("div", { class: "pnb-renew" }, fresh, h("span", { class: "pnb-label", text: "Links given out before then only lead to the lobby." })), bad);

  function ask(cmd) {
    forget();
    id = ticket();
    if (send({ cmd, id })) return;
    id = 0;
    problem(NO_KERNEL);
  }

  function forget() {
    link = "";
    id = 0;
    box.replaceChildren();
    attr(copyLink, "aria-disabled", "true");
    problem("");
  }

  function problem(words) {
    bad.hidden = !words;
    bad.replaceChildren(...(words ? [mark("bad"), h("span", { text: words })] : []));
  }

  function message(m) {
    if (m.t !== "invite" || m.id !== id || !id) return;
    id = 0;
    const error = str(m.error, 400), qr = rec(m.qr), n = Number.isInteger(qr.n) && qr.n > 0 && qr.n < 200 ? qr.n : 0, d = str(qr.d, 100_000);
    if (error) return void problem(error);
    link = str(m.link, 2000);
    put(where, str(m.note, 200));
    where.hidden = !m.note;
    attr(copyLink, "aria-disabled", link ? null : "true");
    if (n && PATH.test(d)) box.append(s("svg", { viewBox: `0 0 ${n} ${n}`, role: "img", "aria-label": "QR code of the invite link", "shape-rendering": "crispEdges" }, s("path", { d })));
    if (renewed) put(live, "There is a new link.");
    renewed = false;
  }

  return {
    el, first: copyLink, message,
    draw(r) {
      if (!r.invite) return false;
      put(magic, r.join);
      for (const x of [copyMagic, about]) x.toggleAttribute("hidden", !r.join);
      if (!link && !id && bad.hidden) ask("invite");
      return true;
    },
    gone: forget,
  };
}
