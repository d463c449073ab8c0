// Pictures of the panels for the docs, and an audit of every state: `npm run gallery`.
// axe-core must find nothing, nothing may reach out of its panel, no page may fail or ask anything of the network.

import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { withGallery } from "./browser.mjs";
import { ROOT } from "./root.mjs";

const AXE = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const IMAGES = join(ROOT, "docs/images");
const PICTURES = { // name: [state, width, theme, more of the address]
  "room-light": ["room:answering", 1000, "light", ""],
  "room-dark": ["room:answering", 1000, "dark", ""],
  "room-narrow": ["room:worker", 320, "light", ""],
  "room-settings": ["room:online", 700, "light", "&open=Settings"],
  "waiting-light": ["room:silent", 1000, "light", ""],
  "waiting-dark": ["room:silent", 1000, "dark", ""],
  "degraded-light": ["room:degraded", 1000, "light", ""],
  "degraded-dark": ["room:degraded", 1000, "dark", ""],
  "degraded-narrow": ["room:degraded", 320, "light", ""],
  "away-light": ["room:away", 700, "light", ""],
  "away-dark": ["room:away", 700, "dark", ""],
  "away-narrow": ["room:apart", 320, "light", ""],
  "lobby-light": ["room:knocking", 1000, "light", ""],
  "lobby-dark": ["room:knocking", 700, "dark", ""],
  "lobby-narrow": ["room:knocking", 320, "light", ""],
  "download-light": ["room:asks", 1000, "light", ""],
  "download-dark": ["room:asks", 700, "dark", ""],
  "invite-light": ["room:online", 700, "light", "&open=Invite"],
  "invite-dark": ["room:online", 700, "dark", "&open=Invite"],
  "invite-narrow": ["room:online", 320, "light", "&open=Invite"],
  "network-light": ["room:lossy", 700, "light", "&open=Network"],
  "network-dark": ["room:lossy", 700, "dark", "&open=Network"],
  "network-narrow": ["room:lossy", 320, "light", "&open=Network"],
  "answer-light": ["answer:answering", 700, "light", ""],
  "answer-dark": ["answer:answering", 700, "dark", ""],
  "answer-waiting-light": ["answer:stalled", 700, "light", ""],
  "answer-waiting-dark": ["answer:stalled", 700, "dark", ""],
};
const problems = [];

/** Boxes that lie outside their panel, or words that are wider than their box and not cut on purpose. */
function outside() {
  const found = [];
  for (const panel of document.querySelectorAll(".pnb")) {
    const edge = panel.getBoundingClientRect();
    for (const el of panel.querySelectorAll("*")) {
      const box = el.getBoundingClientRect(), style = getComputedStyle(el);
      if (!box.width || el.closest(".pnb-sr, [data-off], defs, pre, .pnb-table")) continue;
      if (box.left < edge.left - 1 || box.right > edge.right + 1) found.push(`${el.tagName} ${el.className?.baseVal ?? el.className} leaves its panel`);
      else if (el instanceof HTMLElement && style.overflowX === "visible" && style.display !== "inline" && el.scrollWidth > el.clientWidth + 1 && el.clientWidth) found.push(`${el.tagName} ${el.className} is wider than its box`);
    }
  }
  return found;
}

/** One panel goes through states of one chain: its height must hold. */
async function jumps(open, look) {
  const page = await open({ ...look, only: "room:ready" });
  for (const names of [["ready", "loading", "asks", "online", "answering", "silent", "back", "degraded", "relay", "lossy", "knocking", "crowded", "open", "nosignal", "closed"], ["guest", "lost", "away"], ["worker", "apart"], ["opening", "alone", "one"]]) {
    const heights = await page.evaluate(async (states) => {
      const { ROOMS } = await import("./fixtures.mjs"), box = document.querySelector("#main > div"), out = {};
      for (const name of states) { box.model.set({ room: ROOMS[name] }); out[name] = box.firstElementChild.offsetHeight; }
      return out;
    }, names);
    if (new Set(Object.values(heights)).size > 1) problems.push(`${look.width}: the height jumps: ${JSON.stringify(heights)}`);
  }
  await page.close();
}

async function audit(open, look) {
  const page = await open({ height: 6000, ...look });
  await page.evaluate(AXE);
  // Rules about whole pages are the notebook's; the panels are in a page of their own here.
  const { violations, incomplete } = await page.evaluate(() => axe.run(document.getElementById("main"), { resultTypes: ["violations", "incomplete"] }));
  const where = Object.values(look).join(" ");
  for (const v of violations) for (const n of v.nodes) problems.push(`${where}: ${v.id}: ${n.target.join(" ")}: ${n.failureSummary}`);
  for (const words of await page.evaluate(outside)) problems.push(`${where}: ${words}`);
  problems.push(...page.faults.map((f) => `${where}: ${f}`));
  await page.close();
  return incomplete.reduce((n, v) => n + v.nodes.length, 0);
}

await withGallery(async (open) => {
  let unsure = 0, pages = 0;
  for (const width of [320, 700, 1000]) for (const theme of ["light", "dark"]) for (const front of ["jupyter", "plain"]) for (const extra of ["", "&open=Settings", "&open=Invite", "&open=Network", "&open=out"]) {
    unsure += await audit(open, { width: width + 24, theme, front, extra });
    pages += 1;
  }
  for (const width of [320, 480, 700, 1000, 1400]) await jumps(open, { width: width + 24 });
  console.log(`${pages} pages audited, ${problems.length} problems, ${unsure} that axe-core leaves to people.`);
  for (const [name, [only, width, theme, extra]] of Object.entries(PICTURES)) {
    const page = await open({ width: width + 24, theme, only, extra: `&bare${extra}`, deviceScaleFactor: 2 });
    await page.locator("#main").screenshot({ path: join(IMAGES, `panel-${name}.png`) });
    await page.close();
  }
});
for (const words of problems) console.error(words);
process.exitCode = problems.length ? 1 : 0;
