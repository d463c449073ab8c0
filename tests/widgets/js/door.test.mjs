// Who comes in, and by which ways (PROTOCOL sections 2 and 4, DESIGN section 7): the lobby, the invite, the network
// box, throwing out. What is secret is in no attribute, no text and no store of the page.

import { afterEach, describe, expect, it, vi } from "vitest";
import room from "../../../pooled_nb/widgets/static/room.js";
import { ROOMS, invited, knock, lobby, network, room as make } from "./fixtures.mjs";
import { EVIL, button, inert, press, show } from "./help.mjs";
import { page } from "./setup.mjs";

const LINK = invited(1).link, KEY = LINK.split("#k=")[1];
const open = (over) => show(room, { room: make(over) });
const change = (p, over) => p.model.set({ room: make(over) });
const sent = (p) => p.model.sent.filter((m) => m.cmd !== "here");
const spoken = (p) => p.$$(".pnb-sr").at(-1).textContent;
const clipboard = () => { const writeText = vi.fn().mockResolvedValue(); vi.stubGlobal("navigator", { clipboard: { writeText } }); return writeText; };
/** Everything a script of the page could find: markup, properties of inputs, stores. */
const everything = () => [document.documentElement.outerHTML, ...[...document.querySelectorAll("input, textarea")].map((x) => x.value), JSON.stringify({ ...localStorage, ...sessionStorage }), location.href].join("\n");
afterEach(() => { localStorage.clear(); });

describe("the lobby", () => {
  const two = [knock(3, "leo", "482 019", { note: "It comes back without its pass." }), knock(4, "noor", "771 204")];
  it("shows one request: who, what it is, digits, note, and a button each", () => {
    const p = open({ lobby: lobby(...two) });
    expect(p.text(".pnb-door h3")).toBe("In the lobby, 1 of 2. Same digits on their screen?");
    expect(p.$$(".pnb-knock")).toHaveLength(1);
    expect(p.text(".pnb-knock .who")).toBe("leoNVIDIA RTX 4090, lends 8.0 GB");
    expect(p.text(".pnb-knock .pnb-digits")).toBe("482 019");
    expect(p.text(".pnb-knock .why")).toBe("It comes back without its pass.");
    expect(p.$$(".pnb-knock button").map((b) => [b.textContent, b.getAttribute("aria-label")])).toEqual([["Deny", "Deny leo"], ["Allow", "Allow leo"]]);
  });
  it("says one quiet line when nobody waits, and what matters there", () => {
    const p = open({});
    expect(p.text(".pnb-note")).toBe("Nobody waits. New devices ask here first.");
    p.model.set({ room: ROOMS.nosignal });
    expect([p.text(".pnb-note"), p.$(".pnb-note").dataset.tone]).toEqual(["Nobody new can join: no signaling server answers. The room goes on.", "warn"]);
  });
  it("sends what was pressed with the number, once", () => {
    const p = open({ lobby: lobby(...two) });
    for (const detail of [1, 2]) button(p, "Allow leo").dispatchEvent(new MouseEvent("click", { bubbles: true, detail }));
    button(p, "Deny leo").click();
    expect(sent(p)).toEqual([{ cmd: "allow", id: 3 }, { cmd: "deny", id: 3 }]);
  });
  it("a click meant for one that just left lets nobody else in", () => {
    let now = 10_000;
    vi.spyOn(performance, "now").mockImplementation(() => now);
    const p = open({ lobby: lobby(...two) });
    change(p, { lobby: lobby(two[1]) });
    now += 200;
    button(p, "Allow noor").click();
    expect(sent(p)).toEqual([]);
    now += 400;
    button(p, "Allow noor").click();
    expect(sent(p)).toEqual([{ cmd: "allow", id: 4 }]);
  });
  it("gives the focus to its line when the pressed button goes, never to the next request", () => {
    const p = open({ lobby: lobby(...two) });
    button(p, "Allow leo").focus();
    change(p, { lobby: lobby(two[1]) });
    expect(document.activeElement).toBe(p.$(".pnb-door"));
    button(p, "Deny noor").focus();
    change(p, { lobby: lobby(two[1]), say: { tone: "work", what: "Answering ana", about: "" } });
    expect(document.activeElement).toBe(button(p, "Deny noor")); // it stays: nothing moves
    change(p, {});
    expect(document.activeElement).toBe(p.$(".pnb-door"));
  });
  it("is spoken politely, with its digits one by one, each request once", () => {
    const p = open({});
    change(p, { lobby: lobby(...two) });
    expect([spoken(p), p.$$(".pnb-sr").at(-1).getAttribute("role")]).toEqual(["leo asks to join. Digits 4 8 2 0 1 9.", "status"]);
    p.$$(".pnb-sr").at(-1).textContent = "";
    change(p, { lobby: lobby(...two), numbers: [] });
    expect(spoken(p)).toBe("");
    change(p, { lobby: lobby(two[1]) });
    expect(spoken(p)).toBe("noor asks to join. Digits 7 7 1 2 0 4.");
    change(p, { lobby: lobby(knock(9, "old", "")) });
    expect(spoken(p)).toBe("old asks to join.");
  });
  it("who does not decide sees how it knows its host, with the digits to compare", () => {
    const p = show(room, { room: ROOMS.guest });
    expect([p.text(".pnb-door h3"), p.text(".pnb-note"), p.text(".pnb-digits")]).toEqual(["Your host", "Trust on first use: the host's lobby must have shown 482 019", "482 019"]);
    expect(p.$$(".pnb-door button")).toEqual([]);
    p.model.set({ room: ROOMS.worker });
    expect([p.text(".pnb-note"), p.$(".pnb-note").dataset.tone]).toEqual(["The host proved that it knows your invite link or pass.", "good"]);
    p.model.set({ room: ROOMS.closed });
    expect([p.$(".pnb-door h3").hidden, p.$(".pnb-note").hidden]).toEqual([true, true]);
  });
  it("a thousand requests and hostile ones stay text, and few", () => {
    const rows = Array.from({ length: 1000 }, (_, i) => knock(i, EVIL, EVIL, { what: EVIL, note: EVIL })), p = open({ lobby: { ...lobby(...rows), head: EVIL } });
    expect(inert(p)).toBe(true);
    expect(p.$$(".pnb-knock")).toHaveLength(1);
    for (let i = 0; i < 300; i++) change(p, { lobby: lobby(...rows.slice(i, i + 3)) });
    expect(p.$$("*").length).toBeLessThan(400);
  });
});

describe("the invite", () => {
  const asked = (p) => { button(p, "Invite").click(); return sent(p).at(-1).id; };
  const answered = (over) => { const p = open({}), id = asked(p); p.model.fire("msg:custom", invited(id, over), []); return p; };
  it("asks when it is opened, and only then", () => {
    const p = open({});
    change(p, {});
    expect(sent(p)).toEqual([]);
    const id = asked(p);
    expect(sent(p)).toEqual([{ cmd: "invite", id }]);
    expect(id).toBeGreaterThan(0);
    expect(button(p, "Copy the link").getAttribute("aria-disabled")).toBe("true");
    change(p, { say: { tone: "good", what: "Online", about: "1 question waits." } });
    expect(sent(p)).toHaveLength(1);
  });
  it("draws the picture as one path, dark on light, and names it", () => {
    const p = answered(), svg = p.$(".pnb-qr svg");
    expect(svg.querySelectorAll("path")).toHaveLength(1);
    expect(svg.querySelector("path").getAttribute("d")).toBe(invited(1).qr.d);
    expect([svg.getAttribute("viewBox"), svg.getAttribute("role"), svg.getAttribute("aria-label")]).toEqual(["0 0 53 53", "img", "QR code of the invite link"]);
  });
  it("copies the link, and the line that holds no key", async () => {
    const writeText = clipboard(), p = answered();
    button(p, "Copy the link").click();
    button(p, "Copy the magic").click();
    await vi.waitFor(() => expect(spoken(p)).toBe("Copied."));
    expect(writeText.mock.calls).toEqual([[LINK], ["%pooled join 4TK-G9P"]]);
    expect(p.text(".pnb-invite-words code")).toBe("%pooled join 4TK-G9P");
  });
  it("copies nothing before there is a link", () => {
    const writeText = clipboard(), p = open({});
    asked(p);
    button(p, "Copy the link").click();
    expect(writeText).not.toHaveBeenCalled();
  });
  it("copies the old way where the page may not, and leaves nothing behind", async () => {
    vi.stubGlobal("navigator", {});
    let copied = "";
    document.execCommand = () => { copied = document.querySelector("textarea").value; return true; };
    try {
      const p = answered();
      button(p, "Copy the link").click();
      await vi.waitFor(() => expect(spoken(p)).toBe("Copied."));
      expect(copied).toBe(LINK);
      expect(everything()).not.toContain(KEY);
      expect(document.activeElement).toBe(button(p, "Copy the link"));
    } finally { delete document.execCommand; }
  });
  it("says so where no way of copying is left", async () => {
    vi.stubGlobal("navigator", {});
    const p = answered();
    button(p, "Copy the link").click();
    await vi.waitFor(() => expect(spoken(p)).toBe("This page may not copy. Scan the picture instead."));
  });
  it("keeps the link in no text, attribute or store, and forgets it when it closes", () => {
    const p = answered();
    expect(everything()).not.toContain(KEY);
    expect(JSON.stringify(p.model.traits)).not.toContain(KEY);
    press("Escape", document.activeElement);
    expect([p.$(".pnb-sheet"), document.querySelector(".pnb-qr")]).toEqual([null, null]);
    const first = sent(p)[0].id, id = asked(p); // opened again it has to ask again
    expect(id).not.toBe(first);
    expect(button(p, "Copy the link").getAttribute("aria-disabled")).toBe("true");
    p.model.fire("msg:custom", invited(first)); // an answer to the first question is none to this
    expect(p.$(".pnb-qr svg")).toBeNull();
  });
  it("another view, a closed sheet and a reopened notebook have nothing of it", () => {
    const p = open({}), other = show(room, null, p.model), id = asked(p);
    other.$(".pnb-invites").click();
    p.model.fire("msg:custom", invited(id));
    expect([Boolean(p.$(".pnb-qr svg")), Boolean(other.$(".pnb-qr svg"))]).toEqual([true, false]);
    const q = open({});
    q.model.fire("msg:custom", invited(5));
    expect(q.$(".pnb-sheet")).toBeNull();
  });
  it("makes a new link when asked, and drops the old picture at once", async () => {
    const writeText = clipboard(), p = answered();
    button(p, "New link").click();
    const { cmd, id } = sent(p).at(-1);
    expect([cmd, p.$(".pnb-qr svg")]).toEqual(["renew", null]);
    p.model.fire("msg:custom", invited(id, { link: "pooled://new#k=n" }));
    expect(spoken(p)).toBe("There is a new link.");
    button(p, "Copy the link").click();
    await vi.waitFor(() => expect(writeText.mock.calls).toEqual([["pooled://new#k=n"]]));
  });
  it("says in place why there is none, and does not ask again by itself", () => {
    const p = open({}), id = asked(p);
    p.model.fire("msg:custom", { t: "invite", id, error: "This room gives out no link now." });
    expect([p.text(".pnb-err"), p.$(".pnb-err").hidden]).toEqual(["This room gives out no link now.", false]);
    change(p, { numbers: [] });
    expect(sent(p)).toHaveLength(1);
  });
  it("goes without a picture that is none, and stays inert", () => {
    for (const qr of [null, 5, {}, { n: 1e9, d: "M0 0h1v1h-1z" }, { n: 21, d: `M0 0"/>${EVIL}` }, { n: 21, d: 5 }]) {
      const p = answered({ qr, link: EVIL, code: EVIL });
      expect(p.$(".pnb-qr path")?.getAttribute("d") || null).toBeNull();
      expect(inert(p)).toBe(true);
      p.close();
    }
  });
  it("is not there for who may not invite, and closes when that ends", () => {
    expect(show(room, { room: ROOMS.guest }).$(".pnb-invites").hidden).toBe(true);
    const p = answered();
    change(p, { invite: false });
    expect(p.$(".pnb-sheet")).toBeNull();
    expect(p.$(".pnb-invites").hasAttribute("data-off")).toBe(true);
  });
  it.each([
    ["the sheet closes", () => press("Escape", document.activeElement)],
    ["the view goes", (p) => p.close()],
    ["the kernel ends", (p) => { p.model.send = () => { throw new Error("no comm"); }; p.model.fire("comm_live_update"); }],
  ])("forgets it when %s: not even a button that somebody kept has it", async (_, end) => {
    const writeText = clipboard(), p = answered(), copy = button(p, "Copy the link");
    copy.click();
    await vi.waitFor(() => expect(writeText).toHaveBeenCalledTimes(1));
    end(p);
    copy.click();
    expect(writeText).toHaveBeenCalledTimes(1);
    expect([document.querySelector(".pnb-sheet, .pnb-qr"), everything().includes(KEY)]).toEqual([null, false]);
  });
  it("leaves nothing on the page when the view goes", () => {
    const p = answered();
    p.close();
    expect([p.model.listeners, p.el.children.length]).toEqual([0, 0]);
  });
  it("makes one new link of a double click", () => {
    const p = answered();
    for (const detail of [1, 2]) button(p, "New link").dispatchEvent(new MouseEvent("click", { bubbles: true, detail }));
    expect(sent(p).filter((m) => m.cmd === "renew")).toHaveLength(1);
  });
  it("says in place that the kernel does not answer", () => {
    const p = open({});
    p.model.send = () => { throw new Error("no comm"); };
    button(p, "Invite").click();
    expect(p.text(".pnb-sheet .pnb-err")).toBe("The kernel does not answer, so nothing was done. Run the cell again.");
  });
});

describe("the network box", () => {
  const TURN = "turn:ana:p4ssw0rd@turn.example.org:3478";
  const opened = (over) => { const p = open(over); button(p, "Network").click(); return p; };
  const field = (p) => p.$(".pnb-input"), checks = (p) => p.$$(".pnb-check input");
  const save = (p) => { button(p, "Save").click(); return sent(p).at(-1); };
  it("shows the facts and the path to each device, in words and with a mark", () => {
    const p = opened(ROOMS.nosignal);
    expect(p.$$(".pnb-facts > div").map((d) => [d.firstChild.textContent, d.lastChild.textContent, d.lastChild.dataset.tone])).toEqual([
      ["Signaling", "0.peerjs.com does not answer. Nobody new can join; the room goes on.", "bad"], ["STUN", "stun.l.google.com:19302", "idle"],
      ["Relay", "turn.example.org:3478, from your settings; every connection goes through it", "good"]]);
    expect(p.$$(".pnb-links li").map((li) => [li.textContent, li.dataset.path])).toEqual([["basement61\u00a0ms\u00a0(at\u00a0times\u00a0140)\u00a0· relayed", "relay"], ["mirapath\u00a0not\u00a0known\u00a0here", "unknown"]]);
    expect(checks(p)[0].checked).toBe(true);
  });
  it("says which link makes answers slower, with a mark, and takes it back", () => {
    const p = opened(ROOMS.lossy), slow = p.$(".pnb-slow");
    expect([slow.textContent, slow.hidden, slow.dataset.tone, slow.querySelectorAll("svg").length]).toEqual([ROOMS.lossy.network.slow, false, "warn", 1]);
    const mark = slow.firstChild;
    p.model.set({ room: make(ROOMS.lossy) });
    expect(slow.firstChild).toBe(mark); // nothing is drawn anew where nothing changed
    p.model.set({ room: make({ network: network() }) });
    expect([slow.textContent, slow.hidden]).toEqual(["", true]);
    expect(slow.closest("[role=status], [aria-live]")).toBe(null); // it is there to be read, and interrupts nobody
  });
  it("sends what was set once, and keeps nothing of it when it was taken", () => {
    const p = opened({});
    expect([field(p).type, field(p).autocomplete, field(p).maxLength]).toEqual(["password", "off", 1000]);
    field(p).value = ` ${TURN} `;
    checks(p)[0].click();
    checks(p)[1].click();
    const { id, ...choice } = save(p);
    expect(choice).toEqual({ cmd: "network", turn: TURN, relay_only: true, remember: true });
    p.model.fire("msg:custom", { t: "done", id: id + 1, error: "" });
    expect(field(p).value).toBe(` ${TURN} `); // not the answer to this
    p.model.fire("msg:custom", { t: "done", id, error: "", said: "Saved. It counts for connections made from now on." });
    expect([field(p).value, p.text(".pnb-form .pnb-err")]).toEqual(["", "Saved. It counts for connections made from now on."]);
    expect(everything()).not.toContain("p4ssw0rd");
  });
  it("says in place what is wrong, and leaves the text to be mended", () => {
    const p = opened({});
    field(p).value = "turn:oops";
    p.model.fire("msg:custom", { t: "done", id: save(p).id, error: "That is no relay that can be read." });
    expect([p.text(".pnb-form .pnb-err"), p.$(".pnb-form .pnb-err").dataset.tone, field(p).value]).toEqual(["That is no relay that can be read.", "bad", "turn:oops"]);
    expect(document.querySelector(`#${field(p).getAttribute("aria-describedby")}`)).toBe(p.$(".pnb-form .pnb-err"));
  });
  it("forgets what was typed when it closes", () => {
    const p = opened({}), input = field(p);
    input.value = TURN;
    press("Escape", input);
    expect([p.$(".pnb-sheet"), input.value, document.activeElement]).toEqual([null, "", button(p, "Network")]);
    expect(sent(p)).toEqual([]);
  });
  it("leaves the relay as it is where nothing was typed, and takes it away by its button", () => {
    const p = opened(ROOMS.nosignal);
    expect(save(p)).toEqual({ cmd: "network", id: expect.any(Number), relay_only: true, remember: false });
    button(p, "Use no relay").click();
    expect(sent(p).at(-1)).toEqual({ cmd: "network", id: expect.any(Number), turn: "", relay_only: false, remember: false });
    p.model.set({ room: make({ network: network() }) });
    expect(button(p, "Use no relay").hidden).toBe(true);
  });
  it("saves by Enter in its field, whose key the notebook never hears", () => {
    const p = opened({}), heard = [], notebook = (e) => heard.push(e.key);
    document.addEventListener("keydown", notebook, true);
    try { field(p).value = TURN; for (const key of ["t", "Enter"]) press(key, field(p)); } finally { document.removeEventListener("keydown", notebook, true); }
    expect([sent(p).at(-1).turn, heard]).toEqual([TURN, []]);
  });
  it("sends a double click or a held Enter once, and says when the kernel does not answer", () => {
    const p = opened({});
    field(p).value = TURN;
    for (const detail of [1, 2]) button(p, "Save").dispatchEvent(new MouseEvent("click", { bubbles: true, detail }));
    expect(sent(p)).toHaveLength(1);
    press("Enter", field(p), { repeat: true });
    expect(sent(p)).toHaveLength(1);
    p.model.send = () => { throw new Error("no comm"); };
    button(p, "Save").click();
    expect([p.text(".pnb-form .pnb-err"), p.$(".pnb-form .pnb-err").dataset.tone]).toEqual(["The kernel does not answer, so nothing was done. Run the cell again.", "bad"]);
  });
  it("a choice under way stays when the room's facts change", () => {
    const p = opened({});
    checks(p)[0].click();
    change(p, { network: network({ links: [] }) });
    expect(checks(p)[0].checked).toBe(true);
    expect(p.$(".pnb-links").hidden).toBe(true);
  });
  it("opens by itself when a join found no path, takes no focus, and leaves another sheet alone", () => {
    const trouble = { notice: "There is no path to mira. Name a TURN server in the network box.", network: network({ trouble: true }) };
    const first = open(trouble);
    expect(first.$(".pnb-sheet")).toBeNull(); // what was there before this view is no news
    const p = open({});
    p.$(".pnb-say").focus();
    change(p, trouble);
    expect([p.$(".pnb-sheet").getAttribute("aria-label"), document.activeElement]).toEqual(["Network", p.$(".pnb-say")]);
    p.$(".pnb-sheet [aria-label=Close]").click();
    change(p, { ...trouble, numbers: [] });
    expect(p.$(".pnb-sheet")).toBeNull(); // the same notice again
    const q = open({});
    button(q, "Settings").click();
    change(q, trouble);
    expect(q.$(".pnb-sheet").getAttribute("aria-label")).toBe("Settings");
  });
  it("is not there where nothing may be set", () => {
    const p = opened({});
    change(p, { network: network({ may: false }) });
    expect([p.$(".pnb-sheet"), button(p, "Network").hasAttribute("data-off")]).toEqual([null, true]);
  });
});

describe("throwing out", () => {
  const kick = ROOMS.knocking;
  it("has a button for each who may be thrown out, and asks first, saying what it does", () => {
    const p = show(room, { room: kick });
    expect(p.$$(".pnb-out").map((b) => b.getAttribute("aria-label"))).toEqual(["Throw mira out", "Throw basement out", "Throw ana out", "Throw joão out"]);
    button(p, "Throw mira out").click();
    expect(p.$$(".pnb-sheet p").map((x) => x.textContent)).toEqual(["mira leaves the room at once, and has to ask to come back.", "Its layers 17–26 will have no device until you deal again.", "Invite links given out before then only lead to the lobby, since it may hold one."]);
    expect(document.activeElement).toBe(button(p, "Keep it")); // Enter by mistake throws nobody out
    expect(sent(p)).toEqual([]);
    button(p, "Throw out").click();
    expect([sent(p), p.$(".pnb-sheet")]).toEqual([[{ cmd: "kick", key: "mira" }], null]);
  });
  it("of a guest says nothing of layers; keeping it does nothing", () => {
    const p = show(room, { room: kick }), out = button(p, "Throw ana out");
    out.click();
    expect(p.$$(".pnb-sheet p")).toHaveLength(2);
    button(p, "Keep it").click();
    expect([sent(p), document.activeElement]).toEqual([[], out]);
  });
  it("closes when that one has left by itself", () => {
    const p = show(room, { room: kick });
    button(p, "Throw ana out").click();
    p.model.set({ room: { ...kick, guests: kick.guests.slice(1) } });
    expect([p.$(".pnb-sheet"), document.activeElement]).toEqual([null, p.$(".pnb-say")]);
  });
  it("is offered to nobody else", () => {
    for (const state of [ROOMS.guest, ROOMS.worker, ROOMS.closed, { ...kick, state: "closed" }]) expect(show(room, { room: state }).$$(".pnb-out")).toEqual([]);
  });
});

describe("asking before new devices join", () => {
  it("is a setting of the host, and says what it means", () => {
    vi.useFakeTimers();
    const p = open({});
    button(p, "Settings").click();
    const [on, off] = p.$$(".pnb-gate input");
    expect([on.checked, off.checked, p.text(".pnb-gate .pnb-label")]).toEqual([true, false, "Who holds the invite link, or was let in before, comes in without asking."]);
    off.click();
    expect(sent(p)).toEqual([{ cmd: "gate", key: "ask", value: "off" }]);
    vi.advanceTimersByTime(4000); // the room did not take it
    expect(on.checked).toBe(true);
    p.model.set({ room: ROOMS.open });
    expect(off.checked).toBe(true);
  });
  it("is not shown to others", () => {
    const p = show(room, { room: ROOMS.guest });
    button(p, "Settings").click();
    expect(p.$(".pnb-gate")).toBeNull();
  });
});

describe("sheets", () => {
  it("one at a time, each under its own button, all by keyboard", () => {
    const p = open({}), names = ["Invite", "Network", "Settings"];
    for (const name of names) {
      button(p, name).focus();
      button(p, name).click();
      expect(p.$$(".pnb-sheet")).toHaveLength(1);
      expect([p.$(".pnb-sheet").getAttribute("aria-label"), p.$(".pnb-sheet").getAttribute("role")]).toEqual([name, "dialog"]);
      expect(names.map((n) => button(p, n).getAttribute("aria-expanded"))).toEqual(names.map((n) => String(n === name)));
      expect(p.$(".pnb-sheet").contains(document.activeElement)).toBe(true);
    }
    press("Escape", document.activeElement);
    expect([p.$(".pnb-sheet"), document.activeElement]).toEqual([null, button(p, "Settings")]);
    button(p, "Invite").click();
    button(p, "Invite").click();
    expect(p.$(".pnb-sheet")).toBeNull();
  });
  it("every control in them has a name and is a native one", () => {
    page.width = 300;
    for (const [name, state] of [["Invite", ROOMS.online], ["Network", ROOMS.nosignal], ["Settings", ROOMS.online], ["Throw mira out", ROOMS.knocking]]) {
      const p = show(room, { room: state });
      button(p, name).click();
      for (const b of p.$$(".pnb-sheet button")) { expect(b.type).toBe("button"); expect(b.getAttribute("aria-label") || b.textContent).toBeTruthy(); }
      for (const x of p.$$(".pnb-sheet input")) expect(x.labels[0].textContent).toBeTruthy();
      p.close();
    }
  });
  it("close when the kernel ends", () => {
    for (const name of ["Invite", "Network", "Settings"]) {
      const p = open({});
      button(p, name).click();
      p.model.send = () => { throw new Error("Cannot send"); };
      p.model.fire("comm_live_update");
      expect(p.$(".pnb-sheet")).toBeNull();
      expect(p.$$("button").filter((b) => !b.hasAttribute("data-off") && !b.hidden)).toEqual([]);
      p.close();
    }
  });
  it("messages of no shape do nothing", () => {
    const p = open({});
    for (const name of ["Invite", "Network"]) {
      button(p, name).click();
      const id = sent(p).at(-1)?.id ?? 0, before = p.el.innerHTML;
      for (const m of [null, 3, "x", [], {}, { t: "invite" }, { t: "done" }, { t: "invite", id: String(id) }, { t: "done", id: 0 }, { t: "invite", id: 0, link: LINK }]) p.model.fire("msg:custom", m);
      expect(p.el.innerHTML).toBe(before);
    }
  });
});
