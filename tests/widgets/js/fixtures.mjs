// Every state of both panels, as Python sends it, and a model that is all a panel sees of a notebook.

import INVITE from "./invite.json" with { type: "json" };

/** What a kernel answers to a click on Invite: a made-up link, and its QR code as Python makes it. */
export const invited = (id, over = {}) => ({ ...INVITE, id, ...over });

export class FakeModel {
  constructor(traits, onsend) { Object.assign(this, { traits, onsend, heard: new Map(), sent: [] }); }
  get(name) { return this.traits[name]; }
  set(traits) { // as one sync of several traits: all are there before the first change is heard
    Object.assign(this.traits, traits);
    for (const name of Object.keys(traits)) this.fire(`change:${name}`);
  }
  on(name, f) { this.heard.set(name, [...(this.heard.get(name) ?? []), f]); }
  off(name, f) { this.heard.set(name, (this.heard.get(name) ?? []).filter((g) => g !== f)); }
  fire(name, ...rest) { for (const f of this.heard.get(name) ?? []) f(...rest); }
  send(message) { this.sent.push(message); this.onsend?.(message, this); }
  get listeners() { return [...this.heard.values()].reduce((n, fs) => n + fs.length, 0); }
}

// ---- rooms ----

const device = (name, lo, hi, used, lent, over = {}) => ({
  id: name, name, you: false, host: false, kind: "computer", lo, hi, layers: hi - lo === 1 ? `layer ${hi}` : `layers ${lo + 1}–${hi}`, state: "ready", tone: "good",
  word: "ready", more: "", tip: "", pct: 100, used, lent, memory: `${used.toFixed(1)} / ${lent.toFixed(1)} GB`, ...over,
});
const held = { state: "held", tone: "idle", word: "not dealt yet", pct: 0, used: 0, layers: "" };
const loading = (pct) => ({ state: "loading", tone: "work", word: `loading ${pct} %`, pct });
const stopped = { state: "stopped", tone: "warn", word: "stopped responding", more: "waiting, 6 of 15 s" };
const gone = { state: "dropped", tone: "bad", word: "dropped", pct: 0, used: 0, lent: 0, memory: "–" };
const apart = { state: "stopped", tone: "warn", word: "does not answer", more: "12 of 60 s silent" };
const unknown = { state: "unknown", tone: "idle", word: "no news" };
const computing = { state: "computing", tone: "work", word: "computing" };
const studio = (over) => device("studio", 0, 16, 7.9, 12, { you: true, host: true, ...over });
const mira = (over) => device("mira", 16, 26, 4.8, 6, over);
const basement = (over) => device("basement", 26, 36, 4.6, 6, over);
const hop = (text, path = "direct") => ({ path, text, tip: text });
const HOPS = [{ ...hop("6.2 ms direct"), tip: "studio to mira: 6.2 ms · direct · 4 connections" }, hop("–", "unknown"), { ...hop("19 ms direct"), tip: "basement to studio: 19 ms · direct" }];
const DOWN = [HOPS[0], hop("no link", "down"), hop("no link", "down")];
const number = (value, unit, label, tip = "") => ({ value, unit, label, tip });
const full = (...w) => w.map((x, i) => ({ w: x, kind: "full", i }));
const lack = (w) => ({ w, kind: "lack", i: null });
const STRIP = { left: "memory used by device", right: "17.3 of 24.0 GB lent", parts: full(0.33, 0.2, 0.19), mark: null };
const RUN = [number("25.6", "", "tokens per second", "Of the last answer, its first token aside"), number("3,120", "of 8,192", "context", "Tokens the caches hold"), number("3", "devices", "hold layers"), number("19", "ms", "slowest link", "Round trip from this device")];
const BEFORE = (lent, n) => [number("16.4", "GB", "needed"), number(lent, "GB", "lent"), number(String(n), n === 1 ? "device" : "devices", "can hold layers")];
export const groups = [
  { key: "style", label: "Style", value: "greedy", options: [["greedy", "Greedy"], ["focused", "Focused"], ["creative", "Creative"]] },
  { key: "max_tokens", label: "Length", value: "512", options: [["128", "Short"], ["512", "Medium"], ["2048", "Long"]] },
  { key: "persona", label: "Wording", value: "plain", options: [["plain", "Plain"], ["kind", "Kind"], ["expert", "Expert"]] },
  { key: "visibility", label: "Who sees it", value: "all", options: [["all", "Everyone"], ["asker", "Asker"], ["host", "Host"]] },
  { key: "thinking", label: "Thinking", value: "auto", options: [["auto", "Automatic"], ["on", "On"], ["off", "Off"]] },
  { key: "redeal", label: "After a drop", value: "on", options: [["on", "Re-deal in 60 s"], ["off", "Leave it to me"]] },
];
const others = { may: false, groups: groups.slice(0, -1) }; // the last stays on the host
const guest = (name, state = "", why = "asks only") => ({ id: name, name, state, why, kick: false });
export const knock = (number, name, digits, over = {}) => ({ number, name, what: "NVIDIA RTX 4090, lends 8.0 GB", digits, note: "", ...over });
export const lobby = (...rows) => ({ rows, more: 0, tone: "idle", head: rows.length ? `In the lobby${rows.length > 1 ? `, 1 of ${rows.length}` : ""}. Same digits on their screen?` : "Lobby", note: rows.length ? "" : "Nobody waits. New devices ask here first." });
const fact = (label, text, tone = "idle") => ({ label, text, tone });
export const network = (over = {}) => ({ may: true, relay_only: false, forget: false, trouble: false, slow: "", links: [{ name: "mira", path: "direct", text: "6.2 ms · direct · 4 connections" }, { name: "basement", path: "direct", text: "19 ms · direct" }],
  rows: [fact("Signaling", "0.peerjs.com answers", "good"), fact("STUN", "stun.l.google.com:19302 and stun.cloudflare.com:3478"), fact("Relay", "none")], ...over });
const ASK = "Who holds the invite link, or was let in before, comes in without asking.", NOBODY = { head: "", text: "", digits: "", tone: "idle" };
const joiner = (tone, text, digits = "") => ({ invite: false, lobby: null, gate: { ask: true, text: ASK, may: false }, trust: { head: "Your host", text, digits, tone } });
const say = (tone, what, about) => ({ tone, what, about });
const button = (cmd, label, main = false) => ({ cmd, label, main });

export const room = (over = {}) => ({
  v: 1, code: "4TK-G9P", label: "Qwen3-8B", facts: "36 layers · bfloat16, exact · 16.4 GB · you host", role: "host", state: "online",
  say: say("good", "Online", "Nobody is asking."), actions: [button("reset", "New chat")], join: "%pooled join 4TK-G9P", layers: 36,
  chain: [studio(), mira(), basement()], hops: HOPS, rest: 0, numbers: RUN, strip: STRIP, guests: [guest("ana"), guest("joão"), guest("grading script", "", "API client")],
  queue: { waiting: 0, names: [], text: "" }, settings: { may: true, groups }, promise: "same text as one device", notice: "", saved: "",
  invite: true, lobby: lobby(), gate: { ask: true, text: ASK, may: true }, trust: NOBODY, network: network(), ...over,
});

const LOST = "8.2 % of the packets to basement are lost, so answers are slower. A cable or a nearer access point helps.";
const LONG = "a name that somebody made far too long to fit in any box of this panel, on purpose, to see it cut";
const TWELVE = ["studio", "mira", "basement", "lab-01", "lab-02", "lab-03", "joão", "library", "ana", "attic", "leo", "leo's phone"];
function twelve() {
  let lo = 0;
  const chain = TWELVE.map((name, i) => {
    const n = [14, 9, 8, 7, 7, 7, 6, 6, 5, 5, 4, 2][i], d = device(name, lo, lo + n, n * 0.49, Math.ceil(n * 0.49 + 0.4), { ...computing, you: i === 0, host: i === 0, kind: i === 11 ? "phone" : "computer" });
    lo += n;
    return d;
  });
  return { label: "Llama-3.3-70B-Instruct", facts: "80 layers · 4-bit · 40.6 GB · you host", layers: 80, chain, hops: chain.map((_, i) => (i === 3 ? hop("38 ms relay", "relay") : i === 0 ? hop("0.4 ms direct") : hop("–", "unknown"))),
    strip: { ...STRIP, parts: full(...chain.map((d) => d.used / 48)) } };
}

export const ROOMS = {
  opening: room({ state: "opening", role: null, code: "", label: "", facts: "", join: "", say: say("work", "Opening the room", "Reading the model's list of tensors, 62 %."), pct: 62, actions: [], layers: 0, chain: [], hops: [], numbers: [], strip: { left: "", right: "", parts: [], mark: null }, guests: [], settings: others, promise: "", invite: false, lobby: null, gate: { ask: true, text: "", may: false }, network: network({ may: false, rows: [], links: [] }) }),
  alone: room({ state: "open", say: say("idle", "Only you are here", "Qwen3-8B needs 16.4 GB, you lend 12.0 GB. Read the code aloud, or start alone."), actions: [], chain: [studio({ ...held, hi: 26, memory: "0.0 / 12.0 GB" })], hops: [], rest: 10, numbers: BEFORE("12.0", 1), strip: { left: "lent by device", right: "4.4 GB short", parts: [...full(0.73), lack(0.27)], mark: null }, guests: [], promise: "" }),
  short: room({ state: "open", say: say("warn", "Short by 2.1 GB", "Qwen3-8B needs 16.4 GB, the room lends 14.3 GB. Invite a device or lend more."), actions: [], chain: [studio({ ...held, lo: null, hi: null, lent: 8, memory: "0.0 / 8.0 GB" }), mira({ ...held, lo: null, hi: null, lent: 4.3, memory: "0.0 / 4.3 GB" }), basement({ ...held, lo: null, hi: null, lent: 2, memory: "0.0 / 2.0 GB" })], numbers: BEFORE("14.3", 3), strip: { left: "lent by device", right: "2.1 GB short", parts: [...full(0.49, 0.26, 0.12), lack(0.13)], mark: null }, guests: [guest("ana")], promise: "" }),
  ready: room({ state: "open", say: say("good", "Ready to start", "3 devices lend 24.0 GB, Qwen3-8B needs 16.4 GB."), actions: [button("start", "Start", true)], chain: [studio(held), mira(held), basement(held)], numbers: BEFORE("24.0", 3), strip: { left: "lent by device", right: "7.6 GB to spare", parts: full(0.5, 0.25, 0.25), mark: 0.68 }, promise: "" }),
  loading: room({ state: "loading", say: say("work", "Loading", "1 of 3 devices ready."), actions: [button("stop", "Cancel")], chain: [studio(), mira({ ...loading(62), more: "48 MB/s", used: 3, memory: "3.0 / 6.0 GB" }), basement({ ...loading(8), more: "11 MB/s", used: 1, memory: "1.0 / 6.0 GB" })], numbers: [number("68", "%", "loaded"), number("1", "of 3", "devices ready"), number("16.4", "GB", "needed")], strip: { left: "loaded by device", right: "68 %", parts: [...full(0.48, 0.18, 0.06), lack(0.28)], mark: null }, promise: "" }),
  online: room({}),
  asks: room({ state: "loading", say: say("warn", "May this device download 12 GB?", "For layers 1–16 of Qwen3-8B; 80 GB are free."), actions: [{ ...button("download", "Download 12 GB", true), careful: true }, { ...button("refuse", "Refuse"), careful: true }], pct: 8, chain: [studio({ ...loading(0), tone: "warn", word: "asks its person", more: "" }), mira({ ...loading(62), more: "", used: 3, memory: "3.0 / 6.0 GB" }), basement({ ...loading(8), more: "", used: 1, memory: "1.0 / 6.0 GB" })], numbers: [number("8", "%", "loaded"), number("0", "of 3", "devices ready"), number("16.4", "GB", "needed")], strip: { left: "loaded by device", right: "8 %", parts: [...full(0.02, 0.18, 0.06), lack(0.74)], mark: null }, promise: "" }),
  answering: room({ state: "answering", say: say("work", "Answering ana", "2 questions wait."), actions: [button("stop", "Stop")], chain: [studio(computing), mira(computing), basement(computing)], guests: [guest("ana", "asking"), guest("joão", "waits"), guest("grading script", "waits", "API client")], queue: { waiting: 2, names: ["joão", "grading script"], text: "2 questions wait." } }),
  silent: room({ state: "waiting", say: say("warn", "Waiting for basement", "It stopped responding. The answer goes on where it is when basement is back."), actions: [button("stop", "Stop")], chain: [studio(), mira(), basement(stopped)], guests: [guest("ana", "asking"), guest("joão", "waits")], queue: { waiting: 1, names: ["joão"], text: "1 question waits." } }),
  back: room({ state: "waiting", say: say("work", "basement is back", "It loads its layers, 62 %. The answer goes on after that."), actions: [button("stop", "Stop")], chain: [studio(), mira(), basement({ ...loading(62), used: 2.9, memory: "2.9 / 6.0 GB" })], guests: [guest("ana", "asking"), guest("joão", "waits")], queue: { waiting: 1, names: ["joão"], text: "1 question waits." } }),
  degraded: room({ state: "degraded", say: say("bad", "basement dropped", "Layers 27–36 have no device. Deals again in 42 s, then the answer goes on."), actions: [button("redeal", "Re-deal now", true), button("stop", "Stop")], chain: [studio(), mira(), basement(gone)], hops: DOWN, numbers: RUN.with(2, number("2", "devices", "hold layers")), strip: { ...STRIP, right: "12.7 of 18.0 GB lent", parts: full(0.44, 0.27) }, guests: [guest("ana", "asking"), guest("joão")], promise: "" }),
  lost: room({ ...joiner("good", "The host proved that it knows your invite link or pass."), state: "degraded", role: "guest", facts: "36 layers · bfloat16, exact · 17.3 GB · you are a guest", say: say("bad", "basement dropped", "Layers 27–36 have no device until it is back, or the host deals again."), actions: [], chain: [device("studio", 0, 16, 7.9, 12, { host: true }), mira(), basement(gone)], hops: DOWN, numbers: RUN.with(2, number("2", "devices", "hold layers")), strip: { ...STRIP, right: "12.7 of 18.0 GB lent", parts: full(0.44, 0.27) }, guests: [guest("ana"), guest("joão")], settings: others, promise: "" }),
  away: room({ ...joiner("good", "The host proved that it knows your invite link or pass."), state: "away", role: "guest", facts: "36 layers · bfloat16, exact · 17.3 GB · you are a guest", say: say("warn", "studio does not answer", "This device knocks (12 of 60 s) and keeps your question. It goes on by itself when the host is back."), actions: [button("leave", "Leave")], chain: [device("studio", 0, 16, 7.9, 12, { host: true, ...apart }), mira(unknown), basement(unknown)], hops: [hop("–", "unknown"), hop("–", "unknown"), hop("–", "unknown")], guests: [guest("ana", "asking"), guest("joão")], settings: others, promise: "" }),
  apart: room({ ...joiner("good", "The host proved that it knows your invite link or pass."), state: "away", role: "worker", facts: "30 layers · float32, exact · 0.5 GB · you hold layers 29–30", label: "SmolLM2-135M-Instruct", layers: 30, say: say("warn", "studio does not answer", "This device knocks (48 of 60 s) and keeps its layers. It goes on by itself when the host is back."), actions: [button("leave", "Leave")], chain: [device("studio", 0, 18, 0.3, 4, { host: true, ...apart, more: "48 of 60 s silent" }), device("mira", 18, 28, 0.2, 2, unknown), device("leo's phone", 28, 30, 0.1, 0.8, { you: true, kind: "phone", word: "keeps its layers" })], hops: [hop("–", "unknown"), hop("–", "unknown"), hop("no link", "down")], settings: others, promise: "" }),
  relay: room({ state: "answering", say: say("work", "Answering joão", "Nobody waits."), actions: [button("stop", "Stop")], chain: [studio(computing), mira(computing), basement({ ...computing, more: "relayed" })], hops: [HOPS[0], hop("61 ms relay", "relay"), hop("58 ms relay", "relay")], promise: "text may differ by split", notice: "A device with the name “mira” asked to join and was refused: the name is taken. Ask its person to choose another one." }),
  lossy: room({ state: "answering", say: say("work", "Answering joão", "Nobody waits."), actions: [button("stop", "Stop")], chain: [studio(computing), mira(computing), basement({ ...computing, more: "8.2 % lost", tip: LOST })], numbers: RUN.with(3, number("48", "ms", "slowest link", "Round trip from this device")), hops: [HOPS[0], HOPS[1], { ...hop("48 ms direct"), tip: "basement to studio: 48 ms (at times 210) · direct · 8.2 % lost · 4 connections" }], promise: "",
    network: network({ links: [{ name: "mira", path: "direct", text: "6.2 ms · direct · 4 connections" }, { name: "basement", path: "direct", text: "48 ms (at times 210) · direct · 8.2 % lost · 4 connections" }, { name: "ana", path: "direct", text: "31 ms · direct" }, { name: "joão", path: "unknown", text: "path not known here" }],
      slow: LOST }) }),
  knocking: room({ say: say("good", "Online", "leo waits in the lobby."), lobby: lobby(knock(1, "leo", "482 019")), guests: [guest("ana"), guest("joão")] }),
  crowded: room({ lobby: lobby(knock(3, LONG, "000 117", { what: LONG, note: "It comes back under the name of a device that is in the room, without its pass." }), knock(4, "noor", ""), knock(5, "ida", "771 204")), guests: [guest(LONG), guest("ana")] }),
  open: room({ gate: { ask: false, text: "Anyone who knows or guesses the code comes in, and can read what is asked.", may: true }, lobby: { ...lobby(), tone: "warn", note: "Anyone with the code comes in. Asking is off." } }),
  nosignal: room({ lobby: { ...lobby(), tone: "warn", note: "Nobody new can join: no signaling server answers. The room goes on." }, notice: "0.peerjs.com does not answer.", network: network({ rows: [fact("Signaling", "0.peerjs.com does not answer. Nobody new can join; the room goes on.", "bad"), fact("STUN", "stun.l.google.com:19302"), fact("Relay", "turn.example.org:3478, from your settings; every connection goes through it", "good")], relay_only: true, forget: true, links: [{ name: "basement", path: "relay", text: "61 ms (at times 140) · relayed" }, { name: "mira", path: "unknown", text: "path not known here" }] }) }),
  worker: room({ ...joiner("good", "The host proved that it knows your invite link or pass."), state: "answering", role: "worker", facts: "30 layers · float32, exact · 0.5 GB · you hold layers 29–30", label: "SmolLM2-135M-Instruct", layers: 30, say: say("work", "Answering mira", "Nobody waits."), actions: [], chain: [device("studio", 0, 18, 0.3, 4, { ...computing, host: true }), device("mira", 18, 28, 0.2, 2, computing), device("leo's phone", 28, 30, 0.1, 0.8, { ...computing, you: true, kind: "phone" })], hops: [hop("–", "unknown"), hop("38 ms relay", "relay"), hop("33 ms relay", "relay")], settings: others }),
  guest: room({ ...joiner("warn", "Trust on first use: the host's lobby must have shown", "482 019"), state: "answering", role: "guest", facts: "36 layers · bfloat16, exact · 16.4 GB · you are a guest", say: say("work", "Answering you", "1 question waits."), actions: [button("stop", "Stop")], chain: [device("studio", 0, 16, 7.9, 12, { host: true, ...computing }), mira(computing), basement(computing)], guests: [guest("ana", "asking"), guest("joão", "waits")], queue: { waiting: 1, names: ["joão"], text: "1 question waits." }, settings: others }),
  one: room({ code: "7QM-2XD", join: "%pooled join 7QM-2XD --signal wss://rooms.example.org:443/pooled", label: "SmolLM2-135M-Instruct", facts: "30 layers · bfloat16, exact · 0.3 GB · you host", layers: 30, chain: [device("studio", 0, 30, 0.3, 6, { you: true, host: true })], hops: [], numbers: [number("18.2", "", "tokens per second"), number("30", "of 8,192", "context"), number("1", "device", "holds layers"), number("–", "", "slowest link")], strip: { left: "memory used by device", right: "0.3 of 6.0 GB lent", parts: full(0.05), mark: null }, guests: [] }),
  twelve: room({ state: "answering", say: say("work", "Answering joão", "3 questions wait."), actions: [button("stop", "Stop")], ...twelve(), queue: { waiting: 3, names: ["noor", "ida", LONG], text: "3 questions wait." }, guests: [guest(LONG, "waits"), ..."noor ida sam yuki olu pia tom zoe max lin ava kai eli uma ben fay gus".split(" ").map((n) => guest(n))] }),
  closed: room({ state: "closed", say: say("idle", "Room closed", "studio closed it. What was asked stays in this notebook."), actions: [], join: "", chain: [studio({ state: "held", tone: "idle", word: "room closed", pct: 0 }), mira({ state: "held", tone: "idle", word: "room closed", pct: 0 }), basement({ state: "held", tone: "idle", word: "room closed", pct: 0 })], guests: [], promise: "", invite: false, lobby: null, gate: { ask: true, text: "", may: false }, network: network({ may: false }) }),
};
// A host may throw out whoever is there.
for (const r of Object.values(ROOMS)) if (r.role === "host" && r.state !== "closed") {
  r.chain = r.chain.map((d) => ({ ...d, kick: !d.you && d.state !== "dropped" }));
  r.guests = r.guests.map((g) => ({ ...g, kick: true }));
}

// ---- answers ----

export const SKY = "Sunlight holds every colour. Air molecules are far smaller than its wavelengths, so they scatter short waves much more than long ones: in proportion to 1/λ⁴, which makes blue light about **five times** as likely to be scattered as red.\n\nSo when you look away from the sun, the light that reaches you was scattered *at least once*, and it is mostly blue.\n\nAt sunset the light crosses far more air. The blue is gone by then, and what is left is red.";
export const CODE = "## One pass\n\nKeep a running sum of the squared differences, as Welford does; it is stable and needs one pass:\n\n```python\ndef variance(xs):\n    n, mean, m2 = 0, 0.0, 0.0\n    for x in xs:\n        n += 1\n        d = x - mean\n        mean += d / n\n        m2 += d * (x - mean)\n    return m2 / (n - 1) if n > 1 else float(\"nan\")  # one value has no variance, and none has no mean\n```\n\nTwo things to know:\n\n- `n - 1` gives the sample variance; use `n` for a whole population.\n- For several kernels:\n  1. combine their `(n, mean, m2)`,\n  2. not their lists.\n\n| method | passes | stable |\n|---|---|---|\n| naive | 1 | no |\n| Welford | 1 | **yes** |\n\n> Never add squares of large numbers.\n\n---\n\nThat is all.";
export const answer = (over = {}) => ({ id: 3, question: "Why is the sky blue?", who: "", state: "answering", wait: "", pct: null, line: "", problem: "", actions: [button("stop", "Stop")], ...over });
const again = [button("regen", "Regenerate")], more = [button("continue", "Continue"), ...again];

export const ANSWERS = {
  waiting: { answer: answer({ state: "waiting", wait: "Waiting for its turn, place 2." }), text: "", seq: 0 },
  loading: { answer: answer({ state: "loading", wait: "Loading the model, 62 %.", pct: 62 }), text: "", seq: 0 },
  answering: { answer: answer(), text: SKY.slice(0, 452), seq: 12 },
  stalled: { answer: answer({ wait: "basement stopped responding; waiting for it, 6 of 15 s (Stop gives up)." }), text: SKY.slice(0, 300), seq: 20 },
  behind: { answer: answer({ state: "waiting", wait: "Waiting for its turn, place 1. A device is gone. Answers go on once its layers are dealt again." }), text: "", seq: 0 },
  done: { answer: answer({ state: "done", line: "131 tokens · 25.6 tokens/s", actions: again }), text: SKY, seq: 40 },
  markdown: { answer: answer({ state: "done", question: "How do I compute the variance of a long stream in one pass, and what do I have to know about it before I use it on several kernels at once?", line: "164 tokens · 27.9 tokens/s", actions: again }), text: CODE, seq: 40 },
  stopped: { answer: answer({ state: "stopped", line: "41 tokens · stopped", actions: more }), text: SKY.slice(0, 210), seq: 9 },
  capped: { answer: answer({ state: "capped", line: "96 tokens · stopped at its length · 25.1 tokens/s", actions: more }), text: SKY.slice(0, 412), seq: 31 },
  failed: { answer: answer({ state: "failed", problem: "basement has been away for 6 minutes, so this answer stopped here. Deal its layers to the devices that are here, then continue.", actions: [{ ...more[0], main: true }, ...again] }), text: "Chapter two follows the two sisters to the harbour, where", seq: 9 },
  hidden: { answer: answer({ state: "hidden", question: "", line: "Its asker and the host see it.", actions: [] }), text: "", seq: 0 },
  other: { answer: answer({ who: "mira", actions: [] }), text: SKY.slice(0, 120), seq: 4 },
};
