// The answer panel (DESIGN section 7): every state, the text kept in step, Markdown as nodes, what it sends.

import { describe, expect, it, vi } from "vitest";
import widget from "../../../pooled_nb/widgets/static/answer.js";
import { ANSWERS, CODE, FakeModel, SKY, answer } from "./fixtures.mjs";
import { EVIL, ODD, button, inert, press, show } from "./help.mjs";
import { page, paint } from "./setup.mjs";

const open = (traits) => show(widget, { answer: answer(), text: "", seq: 0, ...traits });
const done = (text, over = {}) => open({ answer: answer({ state: "done", actions: [], ...over }), text, seq: 1 });
const piece = (p, seq, text, id = 3) => p.model.fire("msg:custom", { id, seq, text }, []);
const whole = (p, seq, text, id = 3) => p.model.fire("msg:custom", { id, seq, whole: text }, []);
const shown = (p) => { paint(); return p.text(".pnb-a"); };
const asked = (p) => p.model.sent.filter((m) => m.cmd === "sync").length;
const spoken = (p) => p.$$(".pnb-sr")[0].textContent;
const html = (text) => { const p = done(text); return p.$(".pnb-a").innerHTML; };

describe("every state is drawn", () => {
  it.each(Object.entries(ANSWERS))("%s", (name, traits) => {
    const p = show(widget, traits), a = traits.answer, busy = ["waiting", "loading", "answering"].includes(a.state);
    expect(p.text(".pnb-words-of")).toBe(busy ? a.wait || a.line : a.line || a.wait);
    expect(p.$$(".pnb-acts button").map((b) => b.textContent)).toEqual(a.actions.map((x) => x.label));
    expect(p.$(".pnb-err").hidden).toBe(!a.problem);
    expect(p.text(".pnb-err")).toBe(a.problem);
    expect(Boolean(p.$(".pnb-caret"))).toBe(a.state === "answering");
    expect(p.$(".pnb-progress").dataset.on).toBe(a.state === "loading" ? "yes" : undefined);
    expect(button(p, "Copy the answer").hidden).toBe(busy || !traits.text);
    if (traits.text && name !== "markdown") expect(p.$$(".pnb-a p").map((x) => x.textContent).join("\n\n")).toBe(traits.text.replaceAll("*", ""));
  });
  it("the question is small, cut by the style, and whole in its title", () => {
    const p = show(widget, ANSWERS.markdown);
    expect(p.$(".pnb-q").title).toBe(ANSWERS.markdown.answer.question);
    expect(p.$(".pnb-q").classList.contains("pnb-cut")).toBe(true);
    expect(open({ answer: answer({ question: "" }) }).$(".pnb-q").hidden).toBe(true);
  });
  it("a hidden answer shows no text even when one came", () => {
    const p = open({ answer: answer({ state: "hidden", line: "answered" }), text: "secret", seq: 4 });
    expect(p.el.textContent).not.toContain("secret");
    expect(button(p, "Copy the answer").hidden).toBe(true);
  });
  it("the caret stands still while the answer waits for a device", () => {
    expect(show(widget, ANSWERS.stalled).$(".pnb-caret").dataset.held).toBe("yes");
    expect(show(widget, ANSWERS.answering).$(".pnb-caret").dataset.held).toBeUndefined();
  });
});

describe("kept in step", () => {
  it("says that it is here and asks for the whole, once a view", () => {
    const p = open({ text: "Sun", seq: 2 });
    expect(p.model.sent).toEqual([{ cmd: "here" }, { cmd: "sync", id: 3 }]);
    expect(shown(p)).toBe("Sun");
  });
  it("appends pieces in order and draws once a frame", () => {
    const p = open();
    for (let i = 1; i <= 5; i++) piece(p, i, `w${i} `);
    expect(p.text(".pnb-a")).toBe("");
    expect(page.frames.filter(Boolean)).toHaveLength(1);
    expect(shown(p)).toBe("w1 w2 w3 w4 w5 ");
  });
  it("a view that mounts late shows the trait at once, then the live tail, then the whole", () => {
    const p = open({ text: "one two ", seq: 20 });
    piece(p, 21, "three ");
    expect(shown(p)).toBe("one two three ");
    whole(p, 22, "one two three four ");
    piece(p, 23, "five");
    expect(shown(p)).toBe("one two three four five");
  });
  it("a gap asks once, waits for the whole, and goes on behind it", () => {
    const p = open(), before = asked(p);
    whole(p, 0, "");
    piece(p, 1, "a");
    for (const seq of [3, 4, 5]) piece(p, seq, "x");
    expect(asked(p)).toBe(before + 1);
    expect(shown(p)).toBe("a");
    whole(p, 5, "abcde");
    piece(p, 6, "f");
    expect(shown(p)).toBe("abcdef");
    expect(asked(p)).toBe(before + 1);
  });
  it("asks again when no answer comes, not with every piece", () => {
    let now = 1000;
    vi.spyOn(performance, "now").mockImplementation(() => now);
    const p = open();
    whole(p, 0, "");
    for (let seq = 2; seq < 100; seq++) { piece(p, seq, "x"); now += 50; }
    expect(asked(p)).toBeGreaterThanOrEqual(1 + 2);
    expect(asked(p)).toBeLessThanOrEqual(1 + 3);
  });
  it("a gap is healed by the trait too", () => {
    const p = open();
    piece(p, 1, "a");
    piece(p, 3, "c");
    p.model.set({ text: "abc", seq: 3 });
    piece(p, 4, "d");
    expect(shown(p)).toBe("abcd");
  });
  it("what came before is not taken twice; an older trait and an older whole are not taken at all", () => {
    const p = open();
    piece(p, 1, "a"); piece(p, 1, "a"); piece(p, 2, "b"); piece(p, 1, "a");
    p.model.set({ text: "a", seq: 1 });
    whole(p, 1, "a");
    expect(shown(p)).toBe("ab");
  });
  it("facts that change do not set the text back to the last trait", () => {
    const p = open({ text: "a", seq: 1 });
    piece(p, 2, "b");
    p.model.set({ answer: answer({ line: "3 tokens/s" }) });
    expect(shown(p)).toBe("ab");
  });
  it("nor does that in a view whose sync nobody answers", () => {
    const p = open({ text: "a", seq: 1 });
    p.model.set({ answer: answer({ wait: "Waiting for basement." }) });
    piece(p, 2, "b");
    p.model.set({ answer: answer({}) });
    expect(shown(p)).toBe("ab");
  });
  it("messages of another answer, of no answer and of no shape are ignored", () => {
    const p = open();
    piece(p, 1, "a");
    piece(p, 2, "b", 4); whole(p, 9, "other", 4);
    for (const m of [null, 3, "x", [], {}, { id: 3 }, { id: 3, seq: "2", text: "b" }, { id: 3, seq: 2, text: 5 }, { id: 3, seq: 1.5, text: "b" }, { seq: 2, text: "b" }]) p.model.fire("msg:custom", m);
    expect(shown(p)).toBe("a");
  });
  it("follows to the next answer: continued text goes on, a new one begins anew", () => {
    const p = open({ text: "Once", seq: 9 });
    whole(p, 9, "Once");
    p.model.set({ answer: answer({ id: 4 }), text: "Once", seq: 0 });
    expect(p.model.sent.at(-1)).toEqual({ cmd: "sync", id: 4 });
    piece(p, 1, " upon", 4);
    piece(p, 10, " lost");
    expect(shown(p)).toBe("Once upon");
    p.model.set({ answer: answer({ id: 5 }), text: "", seq: 0 });
    piece(p, 1, "Twice", 5);
    expect(shown(p)).toBe("Twice");
  });
  it("even when the traits of the next answer come one by one", () => {
    const p = open({ text: "Once", seq: 9 });
    whole(p, 9, "Once");
    p.model.set({ answer: answer({ id: 5 }) });
    p.model.set({ text: "" });
    p.model.set({ seq: 0 });
    piece(p, 1, "Twice", 5);
    expect(shown(p)).toBe("Twice");
  });
  it("ends with what the traits say", () => {
    const p = open();
    piece(p, 1, "ab");
    p.model.set({ answer: answer({ state: "done", line: "2 tokens", actions: [] }), text: "abc", seq: 2 });
    expect(shown(p)).toBe("abc");
    expect(p.$(".pnb-caret")).toBeNull();
  });
});

describe("what it sends", () => {
  it.each([["stop", "Stop"], ["continue", "Continue"], ["regen", "Regenerate"]])("%s, and nothing else", (cmd, label) => {
    const p = open({ answer: answer({ actions: [{ cmd, label, main: false }] }) });
    button(p, label).click();
    button(p, label).dispatchEvent(new MouseEvent("click", { detail: 2 }));
    expect(p.model.sent.slice(2)).toEqual([{ cmd }]);
  });
  it("one sentence when the kernel is gone", () => {
    const p = open();
    p.model.send = () => { throw new Error("disposed"); };
    button(p, "Stop").click();
    expect(p.text(".pnb-err")).toBe("The kernel does not answer, so nothing was done. Run the cell again.");
  });
  it("a kernel that has ended, or began anew, ends what grew there; a new connection does not", () => {
    const p = open({ text: "so far", seq: 1 });
    p.model.fire("comm_live_update");
    expect(p.root.hasAttribute("data-busy")).toBe(true);
    p.model.send = () => { throw new Error("Cannot send"); };
    p.model.fire("comm_live_update");
    expect(shown(p)).toBe("so far");
    expect(p.text(".pnb-words-of")).toBe("The kernel has ended. Run the cell again.");
    expect([p.root.hasAttribute("data-busy"), p.$(".pnb-caret"), p.$$(".pnb-acts button").length]).toEqual([false, null, 0]);
    const whole = done("all of it", { line: "3 tokens", actions: [{ cmd: "regen", label: "Regenerate" }] });
    whole.model.send = p.model.send;
    whole.model.fire("comm_live_update");
    expect([whole.text(".pnb-words-of"), whole.$$(".pnb-acts button").length]).toEqual(["3 tokens", 0]);
  });
  it("Escape stops what may be stopped", () => {
    const p = open();
    press("Escape", button(p, "Stop"));
    p.model.set({ answer: answer({ actions: [] }) });
    press("Escape", p.$(".pnb-a"));
    expect(p.model.sent.slice(2)).toEqual([{ cmd: "stop" }]);
  });
  it("the whole text to the clipboard, as it came", async () => {
    const writeText = vi.fn().mockResolvedValue();
    vi.stubGlobal("navigator", { clipboard: { writeText } });
    const p = done(CODE);
    button(p, "Copy the answer").click();
    button(p, "Copy the code").click();
    await vi.waitFor(() => expect(p.$$(".pnb-sr")[1].textContent).toBe("Copied."));
    expect(writeText.mock.calls[0]).toEqual([CODE]);
    expect(writeText.mock.calls[1][0]).toMatch(/^def variance\(xs\):\n[\s\S]*no mean$/);
  });
});

describe("focus and keys", () => {
  it("a pressed button that goes gives the focus to its line, never to the one that follows", () => {
    const p = open();
    button(p, "Stop").focus();
    p.model.set({ answer: answer({ state: "stopped", actions: [{ cmd: "continue", label: "Continue" }] }) });
    expect(document.activeElement).toBe(p.$(".pnb-foot"));
    button(p, "Continue").focus();
    p.model.set({ answer: answer({ state: "stopped", line: "2 tokens", actions: [{ cmd: "continue", label: "Continue" }] }) });
    expect(document.activeElement).toBe(button(p, "Continue"));
  });
  it("plain keys never reach the notebook", () => {
    const p = open(), heard = [], notebook = (e) => heard.push(e.key);
    document.addEventListener("keydown", notebook, true);
    try { for (const key of ["a", "b", "d"]) press(key, button(p, "Stop")); press("s", button(p, "Stop"), { metaKey: true }); } finally { document.removeEventListener("keydown", notebook, true); }
    expect(heard).toEqual(["s"]);
  });
});

describe("screen readers", () => {
  it("hear whole sentences of the own answer, each once, and the rest at its end", () => {
    const p = open(), heard = [];
    whole(p, 0, "");
    ["It is ", "3.14 at", " most. And", " then **more**", ". The e", "nd"].forEach((text, i) => { piece(p, i + 1, text); paint(); if (heard.at(-1) !== spoken(p)) heard.push(spoken(p)); });
    expect(heard).toEqual(["", "It is 3.14 at most.", "And then more."]);
    p.model.set({ answer: answer({ state: "done", actions: [] }), text: "It is 3.14 at most. And then **more**. The end", seq: 7 });
    expect(spoken(p)).toBe("The end");
    expect(p.$(".pnb-a").getAttribute("aria-live")).toBe("off");
  });
  it("do not hear again what was there before the view, nor the answers of others", () => {
    const p = open({ text: "Old words. ", seq: 1 });
    whole(p, 2, "Old words. More old words. ");
    paint();
    expect(spoken(p)).toBe("");
    piece(p, 3, "New words. ");
    paint();
    expect(spoken(p)).toBe("New words.");
    const q = open({ answer: answer({ who: "mira" }) });
    piece(q, 1, "Not yours. ");
    paint();
    expect(spoken(q)).toBe("");
  });
  it("hear what is waited for once, not each number, and a problem", () => {
    const p = open({ answer: answer({ state: "waiting", wait: "Waiting for its turn, place 3." }) });
    p.model.set({ answer: answer({ state: "loading", wait: "Loading, 3 %." }) });
    expect(spoken(p)).toBe("Loading, 3 %.");
    p.model.set({ answer: answer({ state: "loading", wait: "Loading, 4 %." }) });
    expect(spoken(p)).toBe("Loading, 3 %.");
    p.model.set({ answer: answer({ state: "failed", problem: "basement left. Deal again." }) });
    expect(spoken(p)).toBe("basement left. Deal again.");
  });
});

describe("Markdown, as nodes", () => {
  it("paragraphs, emphasis and code", () => {
    expect(html("One **two** *three* `4*5*6`.\nnext line\n\nlast")).toBe("<p>One <strong>two</strong> <em>three</em> <code>4*5*6</code>.\nnext line</p><p>last</p>");
    expect(html("**a `b` *c* d** e")).toBe("<p><strong>a <code>b</code> <em>c</em> d</strong> e</p>");
    expect(html("***a b*** c")).toBe("<p><strong><em>a b</em></strong> c</p>");
    expect(html("2 * 3 * 4 and 5*6")).toBe("<p>2 * 3 * 4 and 5*6</p>");
    expect(html("**not closed")).toBe("<p>**not closed</p>");
  });
  it("headings", () => {
    const p = done("# A\ntext\n#### B `c`\n# C\n## D");
    expect(p.$$(".pnb-h").map((x) => x.innerHTML)).toEqual(["A", "B <code>c</code>", "C", "D"]);
    expect(p.$$("[role=heading]").map((x) => x.getAttribute("aria-level"))).toEqual(["3", "4", "3", "4"]); // none is skipped
    expect(done("### x").$(".pnb-h").getAttribute("aria-level")).toBe("3");
    expect(html("#hashtag")).toBe("<p>#hashtag</p>");
  });
  it("lists: of both kinds, nested, loose, with a start", () => {
    expect(html("- a\n- b **c**")).toBe("<ul><li>a</li><li>b <strong>c</strong></li></ul>");
    expect(html("3. a\n\n4. b")).toBe(`<ol start="3"><li>a</li><li>b</li></ol>`);
    expect(html("- a\n  1. b\n  2. c\n- d")).toBe("<ul><li>a<ol><li>b</li><li>c</li></ol></li><li>d</li></ul>");
    expect(html("- a\n1. b")).toBe("<ul><li>a</li></ul><ol><li>b</li></ol>");
    expect(html("- a\n\nafter")).toBe("<ul><li>a</li></ul><p>after</p>");
    expect(html("    - deep\n- shallow")).toBe("<ul><li>deep</li><li>shallow</li></ul>");
  });
  it("fenced code, with its name, and open to the end while it comes", () => {
    const p = done("```python\nx = 1\n\n# no heading\n```\nafter");
    expect(p.text(".pnb-pre code")).toBe("x = 1\n\n# no heading");
    expect(p.text(".pnb-pre-head .pnb-label")).toBe("python");
    expect(p.$("pre").tabIndex).toBe(0);
    expect(p.text(".pnb-a > p")).toBe("after");
    expect(done("```\nno end\n- x").text(".pnb-pre code")).toBe("no end\n- x");
    expect(done("```\n```").text(".pnb-pre code")).toBe("");
  });
  it("tables, quotes and rules", () => {
    const p = done("| a | b |\n|---|:-:|\n| 1 | **2** |\n\n> q1\n> q2\n\n---");
    expect(p.$$("th").map((x) => x.textContent)).toEqual(["a", "b"]);
    expect(p.$$("td").map((x) => x.innerHTML)).toEqual(["1", "<strong>2</strong>"]);
    expect(p.text("blockquote")).toBe("q1\nq2");
    expect(p.$("hr")).not.toBeNull();
  });
  it("no markup, no link, no image ever comes of it", () => {
    globalThis.hit = 0;
    for (const text of [EVIL, `[x](javascript:hit=1)`, `![x](http://127.0.0.1/x.png)`, `<a href="javascript:hit=1">x</a>`, `**${EVIL}**`, `- ${EVIL}`, `# ${EVIL}`, `> ${EVIL}`, `| ${EVIL} |`, "```" + `${EVIL}\n${EVIL}\n` + "```", "`" + EVIL + "`", `<svg onload=hit=1>`, `&lt;script&gt;`]) {
      const p = done(text, { question: EVIL, who: EVIL, line: EVIL, problem: EVIL, actions: [{ cmd: "stop", label: EVIL }] });
      expect(inert(p)).toBe(true);
      const plain = text.replace(/^(?:[-#>|] |\*\*|`(?!`))|(?: \||\*\*|`)$/g, "");
      if (!text.startsWith("```")) expect(p.text(".pnb-a")).toBe(plain);
      p.close();
    }
    expect(globalThis.hit).toBe(0);
  });

  // A text that grows by pieces must look as the same text drawn at once, whatever the pieces are.
  const HARD = [CODE, SKY, "- a\n\n- b\n\n\n1. c\n   more\n\n2. d\n\nend", "a\n```js\nb\n```\n```\nc", "| a |\n|---|\n| b |\n\n| c |\n", "> a\n\n> b\nc\n---\nd", "**a\nb** *c* `d", "1\n\n2. x\n\n3. y\n - z\n\n   w\n```\nq\n\n", "#\n# a\n##b\n\n* *\n***\n* x", "~~~\na\n~~~\n\n\n\n-\n- a\n-b"];
  it.each(HARD.map((text) => [text]))("piece by piece: %j", (text) => {
    let seed = 7;
    const random = () => (seed = (seed * 1664525 + 1013904223) >>> 0) / 2 ** 32;
    for (const most of [1, 3, 17]) {
      const p = open();
      for (let at = 0, seq = 1; at < text.length; seq++) {
        const next = at + 1 + Math.floor(random() * most);
        piece(p, seq, text.slice(at, next));
        at = next;
        if (random() < 0.7) paint();
        if (random() < 0.2) { paint(); const q = show(widget, { answer: answer(), text: text.slice(0, at), seq }); expect(p.$(".pnb-a").innerHTML).toBe(q.$(".pnb-a").innerHTML); q.close(); }
      }
      paint();
      p.model.set({ answer: answer({ state: "done", actions: [] }), text, seq: 1e6 });
      expect(p.$(".pnb-a").innerHTML).toBe(html(text));
    }
  });
  it("draws again only what changed: earlier blocks and a growing listing keep their nodes", () => {
    const p = open();
    piece(p, 1, "first\n\nsecond\n\n```\nx = 1\n");
    paint();
    const [first, second] = p.$$(".pnb-a p"), code = p.$("pre code").firstChild;
    piece(p, 2, "y = 2\n```\n\nthird\n\nfourth");
    paint();
    expect(p.$$(".pnb-a p").slice(0, 2)).toEqual([first, second]);
    expect(p.$("pre code").firstChild).toBe(code);
    expect(code.data).toBe("x = 1\ny = 2");
  });
  it("an unclosed mark at the live end does not flicker", () => {
    const p = open();
    piece(p, 1, "so **five");
    paint();
    expect(p.text(".pnb-a strong")).toBe("five");
    piece(p, 2, " times** as `co");
    paint();
    expect(p.text(".pnb-a strong")).toBe("five times");
    expect(p.text(".pnb-a code")).toBe("co");
  });
  it("a text that costs much to lay out is drawn less often, and whole in the end", () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    let now = 0;
    vi.spyOn(performance, "now").mockImplementation(() => now);
    vi.spyOn(HTMLElement.prototype, "offsetHeight", "get").mockImplementation(() => { now += 100; return 1; }); // a slow page
    const p = open();
    piece(p, 1, "a ");
    paint();
    for (let i = 2; i < 20; i++) piece(p, i, "b ");
    expect(page.frames.filter(Boolean)).toHaveLength(0);
    vi.advanceTimersByTime(299);
    expect(p.text(".pnb-a")).toBe("a ");
    vi.advanceTimersByTime(1);
    expect(p.text(".pnb-a")).toBe("a " + "b ".repeat(18));
    piece(p, 20, "c");
    p.close();
    expect(vi.getTimerCount()).toBe(0);
  });
  it("a list that grows keeps its items", () => {
    const p = open();
    piece(p, 1, "- a\n- b\n  - c\n- d");
    paint();
    const before = p.$$(".pnb-a li");
    piece(p, 2, "d\n- e\n  1. f");
    paint();
    expect(p.$$(".pnb-a li").slice(0, 4)).toEqual(before);
    expect(p.$$(".pnb-a > ul > li").map((li) => li.firstChild.textContent)).toEqual(["a", "b", "dd", "e"]);
    expect(p.text(".pnb-a ol")).toBe("f");
  });
  it("work a frame does not grow with the text: the last blocks only are parsed and drawn", () => {
    const p = open({ text: "A paragraph of words.\n\n".repeat(2000), seq: 1 });
    let added = 0;
    const made = vi.spyOn(document, "createElement");
    for (let i = 2; i < 52; i++) { piece(p, i, "word "); paint(); added++; }
    expect(made.mock.calls.length).toBeLessThanOrEqual(added * 3);
  });
});

describe("untrusted", () => {
  it.each(ODD.map((x, i) => [i, x]))("traits of no shape: number %i", (_, x) => {
    const p = show(widget, { answer: x, text: x, seq: x });
    p.model.set({ answer: answer({ state: "done", line: "ok", actions: [] }), text: "fine", seq: 5 });
    expect(shown(p)).toBe("fine");
    p.model.set({ answer: x, text: x, seq: x });
    p.close();
  });
  it("any field of any kind", () => {
    const p = open({ text: SKY, seq: 3 });
    for (const key of Object.keys(answer())) for (const x of ODD) {
      p.model.set({ answer: answer({ [key]: x }) });
      if (key === "actions") for (const k of ["cmd", "label", "main"]) p.model.set({ answer: answer({ actions: [{ cmd: "stop", label: "Stop", [k]: x }] }) });
      expect(inert(p)).toBe(true);
      expect(p.el.innerHTML).not.toMatch(/NaN|undefined|Infinity|\[object/);
    }
  });
  it("patterns that could take long do not", () => {
    for (const text of ["*".repeat(30_000), "`".repeat(30_000), "**a".repeat(8000), "[".repeat(30_000), "|".repeat(30_000), "> ".repeat(15_000), "- ".repeat(15_000), " ".repeat(30_000) + "x", ("a".repeat(30_000) + "."), "```".repeat(9000), "\n".repeat(30_000), "1. ".repeat(9000)]) {
      const p = open();
      piece(p, 1, text);
      expect(shown(p).length).toBeLessThanOrEqual(text.length);
      p.close();
    }
  }, 10_000);
});

describe("views", () => {
  it("two of one model show the same", () => {
    const model = new FakeModel({ answer: answer(), text: "a", seq: 1 }), a = show(widget, null, model), b = show(widget, null, model);
    piece(a, 2, "b");
    whole(a, 3, "abc");
    paint();
    for (const p of [a, b]) expect(p.text(".pnb-a")).toBe("abc");
    a.close();
    piece(b, 4, "d");
    paint();
    expect(b.text(".pnb-a")).toBe("abcd");
  });
  it("leave nothing behind", () => {
    const add = vi.spyOn(window, "addEventListener"), off = vi.spyOn(window, "removeEventListener");
    const p = open();
    piece(p, 1, "a");
    p.close();
    expect(p.model.listeners).toBe(0);
    expect(page.frames.filter(Boolean)).toHaveLength(0);
    expect(off.mock.calls).toEqual(add.mock.calls);
    expect(p.el.children).toHaveLength(0);
  });
});
