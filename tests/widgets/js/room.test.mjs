// The room panel (DESIGN section 7): every state, what it sends, what it refuses to break on.

import { describe, expect, it, vi } from "vitest";
import room from "../../../pooled_nb/widgets/static/room.js";
import { FakeModel, ROOMS, groups, room as make } from "./fixtures.mjs";
import { EVIL, ODD, button, inert, press, show } from "./help.mjs";
import { page, resize } from "./setup.mjs";

const open = (over) => show(room, { room: make(over) });
const change = (panel, over) => panel.model.set({ room: make(over) });
const sent = (panel) => panel.model.sent.filter((m) => m.cmd !== "here");

describe("every state is drawn", () => {
  it.each(Object.entries(ROOMS))("%s", (_, traits) => {
    const p = show(room, { room: traits });
    expect(p.text(".pnb-code b")).toBe(traits.code || "···-···");
    expect(p.text(".pnb-say-words b")).toBe(traits.say.what);
    expect(p.text(".pnb-say-words span")).toBe(traits.say.about);
    expect(p.$(".pnb-say-text").dataset.tone).toBe(traits.say.tone);
    expect(p.$$(".pnb-say-acts button").map((b) => b.textContent)).toEqual(traits.actions.map((a) => a.label));
    expect(p.$$(".pnb-bar .seg")).toHaveLength(traits.chain.length);
    expect(p.$$(".pnb-col, .pnb-row")).toHaveLength(traits.chain.length);
    for (const d of traits.chain) expect(p.$(".pnb-chain ul").textContent).toContain(d.word);
    expect(p.$$(".pnb-stats dd b").map((b) => b.textContent).filter(Boolean)).toEqual(traits.numbers.map((n) => n.value));
    expect(p.$$("[aria-label=Guests] li").map((li) => li.firstChild.textContent)).toEqual(traits.guests.map((g) => g.name));
    expect(p.$$(".pnb-people ol li").map((li) => li.firstChild.textContent)).toEqual(traits.queue.names);
    expect(p.text(".pnb-notice")).toBe(traits.notice);
    expect(p.text(".pnb-promise")).toBe(traits.promise);
  });

  it("goes through all of them in one panel and back, and draws each as a new panel would", () => {
    const p = open({}), plain = (q) => {
      const box = document.createElement("div"); // ids and what was spoken aside
      box.innerHTML = q.el.innerHTML.replace(/pnb[a-z0-9]{6,}/g, "id").replace(/<p class="pnb-sr".*?<\/p>/g, "").replaceAll(` style=""`, "");
      return box;
    };
    for (const state of [...Object.values(ROOMS), ...Object.values(ROOMS).reverse()]) {
      p.model.set({ room: state });
      const fresh = show(room, { room: state });
      expect(plain(p).isEqualNode(plain(fresh)) || plain(p).innerHTML).toBe(true);
      fresh.close();
    }
  });
});

describe("the chain", () => {
  const width = (p, i) => Number(p.$$(".seg .tint")[i].getAttribute("width")) + 1;
  it("is as wide as the panel, each device as wide as its layers", () => {
    const p = open({});
    expect(Number(p.$(".pnb-bar").getAttribute("width"))).toBe(660);
    expect(width(p, 0) / width(p, 1)).toBeCloseTo(16 / 10, 5);
    expect(width(p, 1)).toBeCloseTo(width(p, 2), 5);
    const last = p.$$(".seg .tint")[2];
    expect(Number(last.getAttribute("x")) + width(p, 2)).toBeLessThan(660 - 48);
  });
  it.each([300, 560, 660, 1000, 1600])("never leaves a panel of %i px", (px) => {
    page.width = px;
    const p = show(room, { room: ROOMS.twelve });
    let end = 0;
    for (const tint of p.$$(".seg .tint")) {
      expect(Number(tint.getAttribute("x"))).toBeGreaterThanOrEqual(end - 1);
      end = Number(tint.getAttribute("x")) + Number(tint.getAttribute("width"));
    }
    expect(end).toBeLessThanOrEqual(px);
  });
  it.each([300, 700])("holds a hundred devices in %i px", (px) => {
    page.width = px;
    const chain = Array.from({ length: 100 }, (_, i) => ({ ...make().chain[1], id: `d${i}`, lo: i, hi: i + 1 })), p = open({ chain, layers: 100, hops: chain.map(() => ({ path: "direct", text: "1 ms" })) });
    const last = p.$$(".seg .tint").at(-1);
    expect(p.$$(".seg")).toHaveLength(100);
    expect(Number(last.getAttribute("x")) + Number(last.getAttribute("width"))).toBeLessThanOrEqual(px);
  });
  it("fills as a device loads; what is held is empty, what dropped is hollow", () => {
    const p = show(room, { room: ROOMS.loading }), full = p.$$(".seg .full").map((x) => Number(x.getAttribute("width")));
    expect(full[1]).toBeCloseTo(width(p, 1) * 0.62, 0);
    p.model.set({ room: ROOMS.ready });
    expect(p.$$(".seg .full").map((x) => Number(x.getAttribute("width")))).toEqual([0, 0, 0]);
    p.model.set({ room: ROOMS.degraded });
    expect(p.$$(".seg").map((x) => x.dataset.state)).toEqual(["ready", "ready", "dropped"]);
  });
  it("shows layers without a device, and says so to who cannot see", () => {
    const p = show(room, { room: ROOMS.alone });
    expect(p.$(".pnb-bar .none")).not.toBeNull();
    expect(p.$(".pnb-bar").textContent).toContain("10 left over");
    expect(p.$(".pnb-bar").getAttribute("aria-label")).toBe("Chain of 36 layers: studio, not dealt yet; 10 without a device");
  });
  it("is cut by memory lent where no layers are known", () => {
    const p = show(room, { room: ROOMS.short });
    expect(width(p, 0) / width(p, 1)).toBeCloseTo(8 / 4.3, 3);
    expect(width(p, 1) / width(p, 2)).toBeCloseTo(4.3 / 2, 3);
  });
  it("marks paths of hops by shape and word", () => {
    const p = show(room, { room: ROOMS.relay });
    expect(p.$$(".hop").map((x) => x.dataset.path)).toEqual(["direct", "relay", "relay"]);
    resize(1000);
    expect(p.$$(".hoptext").map((x) => x.textContent)).toEqual(["6.2 ms direct", "61 ms relay", "58 ms relay"]);
  });
  it("has columns where they fit and rows where they do not, with the same words", () => {
    const p = open({});
    resize(1000);
    expect(p.$$(".pnb-col")).toHaveLength(3);
    resize(300);
    expect(p.$$(".pnb-row")).toHaveLength(3);
    expect(p.text(".pnb-row")).toContain("layers 1–16");
    expect(p.text(".pnb-row .more")).toBe("next hop 6.2 ms direct");
  });
  it("gives each device letter, pattern and colour; the thirteenth differs from the first by letter", () => {
    const chain = Array.from({ length: 30 }, (_, i) => ({ ...make().chain[0], id: `d${i}`, name: `d${i}`, lo: i, hi: i + 1, you: false }));
    const p = open({ chain, hops: [], layers: 30 });
    const keys = p.$$(".pnb-key").map((k) => k.textContent);
    expect(new Set(keys).size).toBe(30);
    expect(keys[26]).toBe("AA");
    expect(new Set(p.$$(".seg").slice(0, 12).map((g) => g.style.getPropertyValue("--d") + g.querySelector(".over")?.getAttribute("fill"))).size).toBe(12);
  });
  it("moves its dot only while an answer runs, and holds it before a silent device", () => {
    const p = show(room, { room: ROOMS.online }), dot = () => p.$(".pnb-dot");
    expect(dot().dataset.go).toBeUndefined();
    p.model.set({ room: ROOMS.answering });
    expect(dot().dataset.go).toBe("lap");
    p.model.set({ room: ROOMS.silent });
    expect(dot().dataset.go).toBe("held");
    expect(parseFloat(dot().style.getPropertyValue("--x"))).toBeLessThan(Number(p.$$(".seg .tint")[2].getAttribute("x")));
    p.model.set({ room: ROOMS.closed });
    expect(dot().dataset.go).toBeUndefined();
  });
  it("keeps its nodes when only states change", () => {
    const p = show(room, { room: ROOMS.online }), bar = p.$(".pnb-bar");
    p.model.set({ room: ROOMS.answering });
    expect(p.$(".pnb-bar")).toBe(bar);
  });
});

describe("what it sends", () => {
  it("says that it is here, once a view", () => {
    expect(open({}).model.sent).toEqual([{ cmd: "here" }]);
  });
  it.each(["start", "redeal", "stop", "continue", "regen", "reset", "close", "leave"])("%s, and nothing else", (cmd) => {
    const p = open({ actions: [{ cmd, label: "Do it", main: true }] });
    button(p, "Do it").click();
    expect(sent(p)).toEqual([{ cmd }]);
  });
  it("takes the second click of a double click for no second wish", () => {
    const p = open({ actions: [{ cmd: "stop", label: "Stop", main: false }] });
    for (const detail of [1, 2]) button(p, "Stop").dispatchEvent(new MouseEvent("click", { bubbles: true, detail }));
    expect(sent(p)).toEqual([{ cmd: "stop" }]);
  });
  it("a setting, and shows again what the room says when the room does not take it", () => {
    vi.useFakeTimers();
    const p = open({});
    button(p, "Settings").click();
    const radio = (label) => p.$$(".pnb-seg label").find((l) => l.textContent === label).firstChild;
    radio("Focused").click();
    radio("Long").click();
    expect(sent(p)).toEqual([{ cmd: "set", key: "style", value: "focused" }, { cmd: "set", key: "max_tokens", value: "2048" }]);
    expect(radio("Focused").checked).toBe(true);
    vi.advanceTimersByTime(4000);
    expect(radio("Focused").checked).toBe(false);
    expect(radio("Greedy").checked).toBe(true);
  });
  it("one sentence when the kernel is gone", () => {
    const p = open({ actions: [{ cmd: "stop", label: "Stop" }] });
    p.model.send = () => { throw new Error("disposed"); };
    button(p, "Stop").click();
    expect(p.text(".pnb-notice")).toBe("The kernel does not answer, so nothing was done. Run the cell again.");
  });
});

describe("a kernel that has ended, or began anew", () => {
  const end = (p) => { p.model.send = () => { throw new Error("Cannot send"); }; p.model.fire("comm_live_update"); };
  it("is said, nothing moves and nothing is left to press", () => {
    const p = open({ state: "answering", actions: [{ cmd: "stop", label: "Stop" }] });
    expect(p.$(".pnb-dot").dataset.go).toBe("lap");
    end(p);
    expect(p.text(".pnb-say-text")).toBe("The kernel has endedThis is how the room was last. Run the cell again.");
    expect(p.$$(".pnb-say-acts button")).toEqual([]);
    expect(p.$(".pnb-dot").dataset.go).toBe(undefined);
    expect(p.text(".pnb-code b")).toBe(make({}).code);
  });
  it("a connection that is new changes nothing", () => {
    const p = open({ state: "answering" }), before = p.el.innerHTML;
    p.model.fire("comm_live_update");
    expect(p.el.innerHTML).toBe(before);
    end(p);
    change(p, { state: "answering" }); // it is there after all
    expect(p.text(".pnb-say-words b")).toBe(make({}).say.what);
  });
});

describe("settings", () => {
  it("are radio groups, checked as the room says, and follow it while open", () => {
    const p = open({});
    button(p, "Settings").click();
    expect(p.$$("[role=radiogroup]").map((g) => g.getAttribute("aria-label"))).toEqual([...groups.map((g) => g.label), "Ask before new devices join"]);
    const checked = () => p.$$(".pnb-seg :checked").map((x) => x.nextSibling.textContent);
    expect(checked()).toEqual(["Greedy", "Medium", "Plain", "Everyone", "Automatic", "Re-deal in 60 s", "On"]);
    const node = p.$(".pnb-seg input");
    change(p, { settings: { may: true, groups: groups.map((g, i) => (i ? g : { ...g, value: "creative" })) } });
    expect(checked()[0]).toBe("Creative");
    expect(p.$(".pnb-seg input")).toBe(node); // not built again under the cursor
  });
  it("may be looked at by others", () => {
    const p = show(room, { room: ROOMS.guest });
    button(p, "Settings").click();
    expect(p.$$(".pnb-seg input").every((x) => x.disabled)).toBe(true);
    expect(p.text(".pnb-look")).toBe("The host sets these; you may look.");
    expect(p.$(".pnb-look").hidden).toBe(false);
  });
  it("open with the focus inside, close by Escape and give it back to their button", () => {
    const p = open({}), gear = button(p, "Settings");
    gear.focus();
    gear.click();
    expect(p.$(".pnb-sheet").contains(document.activeElement)).toBe(true);
    expect(gear.getAttribute("aria-expanded")).toBe("true");
    press("Escape", document.activeElement);
    expect(p.$(".pnb-sheet")).toBeNull();
    expect(document.activeElement).toBe(gear);
    expect(gear.getAttribute("aria-expanded")).toBe("false");
  });
  it("send the value as it was offered, be it a number or nothing", () => {
    const p = open({ settings: { may: true, groups: [{ key: "k", label: "K", value: null, options: [[null, "None"], [7, "Seven"]] }] } });
    button(p, "Settings").click();
    const [none, seven] = p.$$(".pnb-seg input");
    expect(none.checked).toBe(true);
    seven.click();
    expect(sent(p)).toEqual([{ cmd: "set", key: "k", value: 7 }]);
  });
  it("close with the room", () => {
    const p = open({});
    button(p, "Settings").click();
    p.model.set({ room: ROOMS.closed });
    expect(p.$(".pnb-sheet")).toBeNull();
  });
});

describe("a closed room", () => {
  it("has no button that could be pressed, whatever Python says", () => {
    const p = open({ state: "closed", actions: [{ cmd: "start", label: "Start" }] });
    expect(p.$$("button").filter((b) => !b.hasAttribute("data-off"))).toEqual([]);
  });
});

describe("its last band and its numbers", () => {
  it("a room that closes keeps its last numbers, as past ones", () => {
    const p = show(room, { room: ROOMS.online }), numbers = () => p.$$(".pnb-stats dd b").map((b) => b.textContent);
    const before = numbers();
    expect(p.$(".pnb-stats").hasAttribute("data-past")).toBe(false);
    p.model.set({ room: ROOMS.closed });
    expect(numbers()).toEqual(before);
    expect(p.$(".pnb-stats").hasAttribute("data-past")).toBe(true);
    expect(p.$(".pnb-stats").hidden).toBe(false);
  });
  it("has no empty band when it is closed and no numbers are known", () => {
    const p = open({ state: "closed", numbers: [], strip: {} });
    expect(p.$(".pnb-stats").hidden).toBe(true);
    change(p, { state: "opening", numbers: [], strip: {} });
    expect(p.$(".pnb-stats").hidden).toBe(false);
  });
  it("a notice that is cut can be reached by keyboard, as long as it is cut or focused", () => {
    const p = open({ notice: "a long notice" }), notice = p.$(".pnb-notice");
    expect(notice.hasAttribute("tabindex")).toBe(false);
    let wide = 9000;
    Object.defineProperty(notice, "scrollWidth", { get: () => wide });
    resize(500);
    expect(notice.getAttribute("tabindex")).toBe("0");
    notice.focus();
    wide = 0; // all of it is shown now
    change(p, { notice: "a long notice", say: { tone: "good", what: "Online", about: "1 question waits." } });
    expect(document.activeElement).toBe(notice);
    notice.blur();
    change(p, { notice: "short" });
    expect(notice.hasAttribute("tabindex")).toBe(false);
  });
});

describe("focus and keys", () => {
  it("a sheet that the room closes takes no focus from where a person types", () => {
    const p = open({}), cell = document.createElement("input");
    document.body.append(cell);
    button(p, "Settings").click();
    cell.focus();
    p.model.set({ room: ROOMS.closed });
    expect(p.$(".pnb-sheet")).toBeNull();
    expect(document.activeElement).toBe(cell);
    const q = open({});
    button(q, "Settings").click();
    q.model.set({ room: ROOMS.closed });
    expect(document.activeElement).toBe(q.$(".pnb-say")); // it was within, and its button is off
  });
  it("a button that goes gives the focus to its line, never to the one that follows", () => {
    const p = open({ actions: [{ cmd: "start", label: "Start", main: true }] });
    button(p, "Start").focus();
    change(p, { actions: [{ cmd: "stop", label: "Cancel" }] });
    expect(document.activeElement).toBe(p.$(".pnb-say"));
  });
  it("a button that stays keeps the focus", () => {
    const p = open({ actions: [{ cmd: "stop", label: "Stop" }] }), stop = button(p, "Stop");
    stop.focus();
    change(p, { say: { tone: "work", what: "Answering ana", about: "1 question waits." }, actions: [{ cmd: "stop", label: "Stop" }] });
    expect(document.activeElement).toBe(stop);
  });
  it("plain keys never reach the notebook; its shortcuts with Ctrl do", () => {
    const p = open({ actions: [{ cmd: "stop", label: "Stop" }] }), heard = [];
    const notebook = (e) => heard.push(e.key);
    document.addEventListener("keydown", notebook, true);
    try {
      for (const key of ["a", "b", "d", "Escape", "Enter", "ArrowDown"]) press(key, button(p, "Stop"));
      press("Enter", button(p, "Stop"), { shiftKey: true });
      press("Enter", button(p, "Stop"), { ctrlKey: true });
      expect(heard).toEqual([]);
      press("s", button(p, "Stop"), { ctrlKey: true });
      press("a", document.body);
      expect(heard).toEqual(["s", "a"]);
    } finally { document.removeEventListener("keydown", notebook, true); }
  });
  it("every button is a native one with words", () => {
    for (const state of Object.values(ROOMS)) {
      const p = show(room, { room: state });
      for (const b of p.$$("button")) { expect(b.type).toBe("button"); expect(b.getAttribute("aria-label") || b.textContent).toBeTruthy(); }
      p.close();
    }
  });
});

describe("screen readers", () => {
  const spoken = (p) => p.$$(".pnb-sr").at(-1).textContent;
  it("hear a state once, not each number", () => {
    const p = open({ state: "loading", say: { tone: "work", what: "Loading 3 %", about: "0 of 3 devices ready." } });
    expect(spoken(p)).toBe("");
    change(p, { state: "loading", say: { tone: "work", what: "Loading 4 %", about: "1 of 3 devices ready." } });
    expect(spoken(p)).toBe("");
    change(p, { state: "online", say: { tone: "good", what: "Online", about: "Nobody is asking." } });
    expect(spoken(p)).toBe("Online. Nobody is asking.");
  });
  it("get the code letter by letter and the chain as one image with a list after it", () => {
    const p = open({});
    expect(p.$(".pnb-code b").getAttribute("aria-label")).toBe("Room code 4 T K - G 9 P");
    expect(p.$(".pnb-bar").getAttribute("role")).toBe("img");
    expect(p.$(".pnb-bar").getAttribute("aria-label")).toBe("Chain of 36 layers: studio, layers 1–16, ready; mira, layers 17–26, ready; basement, layers 27–36, ready");
    expect(p.$(".pnb-chain ul").getAttribute("aria-label")).toBe("Devices in layer order");
    expect(p.$(".pnb-notice").getAttribute("role")).toBe("status");
  });
});

describe("copying", () => {
  it("takes the code, and the line that joins", async () => {
    const writeText = vi.fn().mockResolvedValue();
    vi.stubGlobal("navigator", { clipboard: { writeText } });
    const p = open({});
    button(p, "Copy the code").click();
    button(p, "Copy %pooled join 4TK-G9P").click();
    await vi.waitFor(() => expect(p.$$(".pnb-sr").at(-1).textContent).toBe("Copied."));
    expect(writeText.mock.calls).toEqual([["4TK-G9P"], ["%pooled join 4TK-G9P"]]);
  });
  it("says so where a page may not copy", async () => {
    vi.stubGlobal("navigator", {});
    const p = open({});
    button(p, "Copy the code").click();
    await vi.waitFor(() => expect(p.$$(".pnb-sr").at(-1).textContent).toBe("This page may not copy. Select the text instead."));
  });
});

describe("untrusted", () => {
  it("text of others stays text, in every field", () => {
    globalThis.hit = 0;
    const evil = (x) => (typeof x === "string" ? EVIL : Array.isArray(x) ? x.map(evil) : x && typeof x === "object" ? Object.fromEntries(Object.entries(x).map(([k, v]) => [k, ["state", "cmd"].includes(k) ? v : evil(v)])) : x);
    for (const state of Object.values(ROOMS)) {
      const p = show(room, { room: evil(state) });
      button(p, "Settings").click();
      expect(inert(p)).toBe(true);
      expect(p.text(".pnb-say-words b")).toBe(EVIL);
      if (state.guests.length) expect(p.text(".pnb-people li span")).toBe(EVIL);
      p.close();
    }
    expect(globalThis.hit).toBe(0);
  });
  it.each(ODD.map((x, i) => [i, x]))("a trait of no shape: number %i", (_, x) => {
    const p = show(room, { room: x });
    expect(p.$(".pnb-say")).not.toBeNull();
    p.model.set({ room: ROOMS.online });
    expect(p.text(".pnb-say-words b")).toBe("Online");
    p.model.set({ room: x });
    p.close();
  });
  it.each(["answering", "loading", "short", "crowded"])("any field of any kind, alone or within a list: %s", (state) => {
    const p = open({}), bad = vi.spyOn(console, "error"), base = ROOMS[state];
    button(p, "Settings").click();
    for (const key of Object.keys(base)) for (const x of ODD) {
      p.model.set({ room: { ...base, [key]: x } });
      const value = base[key];
      if (Array.isArray(value) && value.length) for (const k of Object.keys(value[0])) p.model.set({ room: { ...base, [key]: value.map((d, i) => (i ? d : { ...d, [k]: x })) } });
      else if (value && typeof value === "object") for (const k of Object.keys(value)) p.model.set({ room: { ...base, [key]: { ...value, [k]: x } } });
      expect(inert(p)).toBe(true);
      expect(p.el.innerHTML).not.toMatch(/NaN|undefined|Infinity|\[object/);
    }
    expect(bad).not.toHaveBeenCalled();
  });
  it("is bounded: ten thousand devices, guests and letters draw a page that stays small", () => {
    const many = (x) => Array.from({ length: 10_000 }, () => x), p = open({ chain: many(make().chain[0]), guests: many({ name: "g".repeat(9999) }), hops: many({}), numbers: many({ label: "n" }), actions: many({ cmd: "stop", label: "s" }) });
    expect(p.$$("*").length).toBeLessThan(5000);
    expect(p.el.textContent.length).toBeLessThan(100_000);
  });
});

describe("views", () => {
  it("two of one model stay in step, with ids of their own", () => {
    const model = new FakeModel({ room: make() }), a = show(room, null, model), b = show(room, null, model);
    model.set({ room: ROOMS.answering });
    for (const p of [a, b]) { expect(p.text(".pnb-say-words b")).toBe("Answering ana"); button(p, "Settings").click(); }
    const ids = [a, b].flatMap((p) => p.$$("[id]").map((e) => e.id)), names = (p) => new Set(p.$$("input").map((x) => x.name));
    expect(new Set(ids).size).toBe(ids.length);
    expect([...names(a)].some((n) => names(b).has(n))).toBe(false);
    expect(b.$(".over").getAttribute("fill")).toContain(b.$("pattern").id.slice(0, -2));
  });
  it("leave nothing behind", () => {
    vi.useFakeTimers();
    const add = vi.spyOn(window, "addEventListener"), off = vi.spyOn(window, "removeEventListener");
    const p = open({});
    button(p, "Settings").click();
    const before = vi.getTimerCount();
    p.$$(".pnb-seg input")[1].click();
    expect(vi.getTimerCount()).toBe(before + 1);
    p.close();
    expect(p.model.listeners).toBe(0);
    expect(page.watchers.size).toBe(0);
    expect(vi.getTimerCount()).toBe(before);
    expect(off.mock.calls.map(([name, f, capture]) => [name, f, capture])).toEqual(add.mock.calls.map(([name, f, capture]) => [name, f, capture]));
    expect(p.el.children).toHaveLength(0);
    p.model.set({ room: ROOMS.closed });
    expect(p.el.children).toHaveLength(0);
  });
  it("an update that changes nothing touches nothing", async () => {
    const p = show(room, { room: ROOMS.answering }), seen = [];
    const watch = new MutationObserver((records) => seen.push(...records));
    watch.observe(p.el, { subtree: true, childList: true, attributes: true, characterData: true });
    for (let i = 0; i < 5; i++) p.model.set({ room: structuredClone(ROOMS.answering) });
    await Promise.resolve();
    expect(seen.map((r) => `${r.type} ${r.target.className?.baseVal ?? r.target.className} ${r.attributeName}`)).toEqual([]);
  });
});
