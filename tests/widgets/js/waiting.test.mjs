// A device that is waited for, that is gone, a host that does not answer (PROTOCOL section 8), as both panels show it.

import { describe, expect, it } from "vitest";
import answers from "../../../pooled_nb/widgets/static/answer.js";
import room from "../../../pooled_nb/widgets/static/room.js";
import { ANSWERS, ROOMS, answer, room as make } from "./fixtures.mjs";
import { button, show } from "./help.mjs";
import { page } from "./setup.mjs";

const say = (tone, what, about) => ({ tone, what, about });
const spoken = (p) => p.$$(".pnb-sr").at(-1).textContent;
/** What a screen reader hears, each change once. */
function hears(p) {
  const heard = [];
  for (const live of p.$$("[role=status]")) new MutationObserver(() => heard.push(live.textContent)).observe(live, { childList: true, characterData: true, subtree: true });
  return async () => { await Promise.resolve(); return heard.splice(0).filter(Boolean); };
}

describe("the chain", () => {
  const segs = (p) => p.$$(".seg").map((x) => x.dataset.state);
  const words = (p) => p.$$(".pnb-col, .pnb-row").map((x) => x.querySelector(".pnb-st").textContent);
  it("a silent device is framed, says its seconds, and the dot waits before it", () => {
    const p = show(room, { room: ROOMS.silent });
    expect(segs(p)).toEqual(["ready", "ready", "stopped"]);
    expect(words(p)).toEqual(["ready", "ready", "stopped responding"]);
    expect(p.$$(".more").at(-1).textContent).toContain("waiting, 6 of 15 s");
    expect(p.$(".pnb-dot").dataset.go).toBe("held");
    const x = parseFloat(p.$(".pnb-dot").style.getPropertyValue("--x")), edge = (i) => Number(p.$$(".seg .tint")[i].getAttribute("x"));
    expect(x).toBeLessThan(edge(2));
    expect(x).toBeGreaterThan(edge(1) + Number(p.$$(".seg .tint")[1].getAttribute("width")));
    p.model.set({ room: ROOMS.back });
    expect(p.$(".pnb-dot").dataset.go).toBeUndefined(); // it loads: nothing stands before it
  });
  it("a device that is back fills again, in the place it had", () => {
    const p = show(room, { room: ROOMS.silent }), bar = p.$(".pnb-bar"), full = (i) => Number(p.$$(".seg .full")[i].getAttribute("width"));
    const whole = full(2);
    p.model.set({ room: ROOMS.back });
    expect(p.$(".pnb-bar")).toBe(bar); // nothing was built again
    expect(full(2)).toBeCloseTo(whole * 0.62, 0);
  });
  it("what is gone is hollow and has no link, for the host and for everyone else", () => {
    for (const name of ["degraded", "lost"]) {
      const p = show(room, { room: ROOMS[name] });
      expect(segs(p)).toEqual(["ready", "ready", "dropped"]);
      expect(p.$$(".hop").map((x) => x.dataset.path)).toEqual(["direct", "down", "down"]);
      expect(p.$(".pnb-dot").dataset.go).toBeUndefined();
      expect(p.$(".pnb-bar").getAttribute("aria-label")).toContain("basement, layers 27–36, dropped");
    }
    page.width = 320; // and in rows
    expect(words(show(room, { room: ROOMS.degraded })).at(-1)).toBe("dropped");
  });
  it("without its host a device shows what it knows, and no more", () => {
    const p = show(room, { room: ROOMS.apart });
    expect(segs(p)).toEqual(["stopped", "unknown", "ready"]);
    expect(words(p)).toEqual(["does not answer", "no news", "keeps its layers"]);
    expect(p.$(".pnb-dot").dataset.go).toBeUndefined();
  });
});

describe("buttons", () => {
  it.each([["silent", "Stop", "stop"], ["degraded", "Re-deal now", "redeal"], ["degraded", "Stop", "stop"], ["away", "Leave", "leave"]])("of %s: %s", (state, label, cmd) => {
    const p = show(room, { room: ROOMS[state] });
    button(p, label).click();
    expect(p.model.sent).toEqual([{ cmd: "here" }, { cmd }]);
  });
  it("a button under the cursor stays the same one while the seconds count down", () => {
    const p = show(room, { room: ROOMS.degraded }), redeal = button(p, "Re-deal now");
    redeal.focus();
    for (let left = 41; left > 35; left--) p.model.set({ room: { ...ROOMS.degraded, say: say("bad", "basement dropped", `Layers 27–36 have no device. Deals again in ${left} s, then the answer goes on.`) } });
    expect(button(p, "Re-deal now")).toBe(redeal);
    expect(document.activeElement).toBe(redeal);
    expect(p.text(".pnb-say-words")).toContain("in 36 s");
  });
});

describe("screen readers hear each state once", () => {
  it("while a device is waited for, dropped, and the layers are dealt again", async () => {
    const p = show(room, { room: ROOMS.answering }), heard = hears(p);
    const counts = (n) => ({ ...ROOMS.silent, chain: ROOMS.silent.chain.map((d) => ({ ...d, more: d.more && `waiting, ${n} of 15 s` })) });
    for (let n = 4; n < 15; n++) p.model.set({ room: counts(n) });
    expect(await heard()).toEqual(["Waiting for basement. It stopped responding. The answer goes on where it is when basement is back."]);
    expect(p.$$(".more").at(-1).textContent).toContain("14 of 15 s");
    for (let left = 60; left > 0; left--) p.model.set({ room: { ...ROOMS.degraded, say: say("bad", "basement dropped", `Deals again by itself in ${left} s.`) } });
    expect(await heard()).toEqual(["basement dropped. Deals again by itself in 60 s."]);
    p.model.set({ room: ROOMS.loading });
    expect((await heard()).filter((x) => x.startsWith("Loading"))).toEqual(["Loading. 1 of 3 devices ready."]);
  });
  it("while a device knocks", async () => {
    const p = show(room, { room: ROOMS.lost }), heard = hears(p);
    for (let n = 1; n < 60; n++) p.model.set({ room: { ...ROOMS.away, say: say("warn", "studio does not answer", `This device knocks (${n} of 60 s).`) } });
    expect(await heard()).toEqual(["studio does not answer. This device knocks (1 of 60 s)."]);
  });
  it("a name's own digits are no count: another device is another state", () => {
    const p = show(room, { room: make({ state: "waiting", say: say("warn", "Waiting for lab-01", "") }) });
    p.model.set({ room: make({ state: "waiting", say: say("warn", "Waiting for lab-02", "It stopped responding.") }) });
    expect(spoken(p)).toBe("Waiting for lab-02. It stopped responding.");
  });
});

describe("an answer that waits", () => {
  it("keeps its text, stills its caret, and says why in amber, with Stop", () => {
    const p = show(answers, ANSWERS.stalled);
    expect(p.text(".pnb-a")).toContain("Sunlight holds every colour.");
    expect(p.$(".pnb-caret").dataset.held).toBe("yes");
    expect(p.$(".pnb-words-of").dataset.tone).toBe("warn");
    expect(p.text(".pnb-words-of")).toBe(ANSWERS.stalled.answer.wait);
    expect(button(p, "Stop")).toBeTruthy();
  });
  it("goes on where it was: the same nodes, a moving caret, no word of the wait left", () => {
    const p = show(answers, ANSWERS.stalled), first = p.$(".pnb-a").firstElementChild;
    p.model.set({ answer: answer() });
    p.model.fire("msg:custom", { id: 3, seq: 21, text: " and on" });
    expect(p.$(".pnb-a").firstElementChild).toBe(first);
    expect(p.$(".pnb-caret").dataset.held).toBeUndefined();
    expect(p.$(".pnb-words-of").dataset.tone).toBeUndefined();
    expect(p.text(".pnb-words-of")).toBe("");
  });
  it("is told once to who cannot see, and again when it waits again", async () => {
    const p = show(answers, ANSWERS.answering), heard = hears(p), wait = (n) => p.model.set({ answer: answer({ wait: `basement stopped responding; waiting for it, ${n} of 15 s (Stop gives up).` }) });
    for (let n = 4; n < 15; n++) wait(n);
    expect((await heard()).filter((x) => x.includes("stopped responding"))).toHaveLength(1);
    p.model.set({ answer: answer() });
    wait(4);
    expect((await heard()).filter((x) => x.includes("4 of 15 s"))).toHaveLength(1);
  });
});
