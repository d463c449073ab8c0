// May this device download so much: the sentence of the panel asks, its two buttons answer (PROTOCOL section 6).

import { describe, expect, it, vi } from "vitest";
import room from "../../../pooled_nb/widgets/static/room.js";
import { ROOMS, room as make } from "./fixtures.mjs";
import { EVIL, button, inert, press, show } from "./help.mjs";

const sent = (p) => p.model.sent.filter((m) => m.cmd !== "here");
const spoken = (p) => p.$$(".pnb-sr").at(-1).textContent;
const time = () => {
  const at = { now: 10_000 };
  vi.spyOn(performance, "now").mockImplementation(() => at.now);
  return at;
};
const asks = (over) => make({ ...ROOMS.asks, ...over });

describe("the question of a download", () => {
  it("is the panel's sentence, with its answers as native buttons in one group", () => {
    const p = show(room, { room: ROOMS.asks });
    expect(p.text(".pnb-say-text b")).toBe("May this device download 12 GB?");
    expect(p.$(".pnb-say-text").dataset.tone).toBe("warn");
    expect(p.$$(".pnb-say-acts button").map((b) => b.textContent)).toEqual(["Download 12 GB", "Refuse"]);
    expect([p.$(".pnb-say-acts").getAttribute("role"), p.$(".pnb-say-acts").getAttribute("aria-label")]).toEqual(["group", "May this device download 12 GB?"]);
    p.model.set({ room: ROOMS.loading });
    expect([p.$(".pnb-say-acts").hasAttribute("role"), p.$(".pnb-say-acts").hasAttribute("aria-label")]).toEqual([false, false]);
  });
  it("posts the answer with what it was about, once", () => {
    const at = time(), p = show(room, { room: ROOMS.asks });
    at.now += 600;
    for (const detail of [1, 2]) button(p, "Download 12 GB").dispatchEvent(new MouseEvent("click", { bubbles: true, detail }));
    button(p, "Refuse").click();
    expect(sent(p)).toEqual([{ cmd: "download", key: "Download 12 GB" }, { cmd: "refuse", key: "Refuse" }]);
  });
  it("takes no click that was meant for what stood there before", () => {
    const at = time(), p = show(room, { room: ROOMS.ready });
    button(p, "Start").click();
    p.model.set({ room: ROOMS.asks });
    at.now += 300;
    button(p, "Download 12 GB").click();
    expect(sent(p)).toEqual([{ cmd: "start" }]);
    at.now += 300;
    p.model.set({ room: asks({ pct: 9 }) }); // numbers go on, the buttons are the same
    button(p, "Download 12 GB").click();
    expect(sent(p)).toEqual([{ cmd: "start" }, { cmd: "download", key: "Download 12 GB" }]);
    p.model.set({ room: asks({ actions: [{ cmd: "download", label: "Download 20 GB", main: true, careful: true }] }) });
    button(p, "Download 20 GB").click();
    expect(sent(p)).toHaveLength(2); // another question: nobody has read it yet
  });
  it("is spoken once, with its sizes, and gives the focus to its line when it is answered", () => {
    const p = show(room, { room: ROOMS.loading });
    p.model.set({ room: ROOMS.asks });
    expect(spoken(p)).toMatch(/^May this device download 12 GB\? For layers 1–16 of Qwen3-8B; 80 GB are free/);
    p.$$(".pnb-sr").at(-1).textContent = "";
    p.model.set({ room: asks({ pct: 20 }) });
    expect(spoken(p)).toBe("");
    button(p, "Refuse").focus();
    p.model.set({ room: ROOMS.loading });
    expect(document.activeElement).toBe(p.$(".pnb-say"));
  });
  it("keeps its keys from the notebook", () => {
    const p = show(room, { room: ROOMS.asks }), heard = vi.fn();
    document.addEventListener("keydown", heard);
    for (const key of ["a", "d", "Enter"]) press(key, button(p, "Refuse"));
    document.removeEventListener("keydown", heard);
    expect(heard).not.toHaveBeenCalled();
  });
  it("what is hostile stays text", () => {
    const p = show(room, { room: asks({ say: { tone: "warn", what: EVIL, about: EVIL }, actions: [{ cmd: "download", label: EVIL, careful: true }] }) });
    expect(inert(p)).toBe(true);
  });
});
