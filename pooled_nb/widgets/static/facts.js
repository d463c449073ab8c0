// The trait `room`, made safe to draw. Python makes its words; here each field gets its type and its bounds.

import { TONES, list, num, one, rec, recs, str } from "./typed.js";

function tidyDevice(x) {
  const lo = Number.isInteger(x.lo) ? num(x.lo, 0, 9999) : null, hi = Number.isInteger(x.hi) ? num(x.hi, 0, 9999) : null;
  return {
    id: str(x.id) || str(x.name), name: str(x.name, 200), tag: x.you === true ? "you" : x.host === true ? "host" : "",
    phone: x.kind === "phone", lo, size: lo == null || hi == null ? null : Math.max(0, hi - lo), layers: str(x.layers),
    state: one(x.state, ["held", "loading", "ready", "computing", "stopped", "dropped", "unknown"]), tone: one(x.tone, TONES),
    word: str(x.word), more: str(x.more), tip: str(x.tip, 400), pct: num(x.pct, 0, 100), used: num(x.used, 0, 1e6), lent: num(x.lent, 0, 1e6), memory: str(x.memory),
    kick: x.kick === true && Boolean(str(x.id)),
  };
}

// One at a time is shown; `number` is what the room calls it.
const tidyLobby = (x) => ({
  head: str(x.head, 120), note: str(x.note, 600), tone: one(x.tone, TONES),
  rows: recs(x.rows, 8).filter((d) => Number.isInteger(d.number) && d.number >= 0)
    .map((d) => ({ number: d.number, name: str(d.name, 200), what: str(d.what), digits: str(d.digits, 20), note: str(d.note, 600) })),
});

const tidyNetwork = (x) => ({
  may: x.may === true, relayOnly: x.relay_only === true, forget: x.forget === true, trouble: x.trouble === true, slow: str(x.slow, 400),
  rows: recs(x.rows, 6).map((q) => ({ label: str(q.label, 40), text: str(q.text, 600), tone: one(q.tone, TONES) })),
  links: recs(x.links, 100).map((q) => ({ name: str(q.name, 200), text: str(q.text, 120), path: one(q.path, ["unknown", "direct", "relay"]) })),
});

export function tidy(raw) {
  const r = rec(raw), say = rec(r.say), queue = rec(r.queue), strip = rec(r.strip), settings = rec(r.settings), gate = rec(r.gate), trust = rec(r.trust);
  const closed = r.state === "closed", chain = recs(r.chain, 100).map(tidyDevice), rest = Math.round(num(r.rest, 0, 9999));
  const lent = chain.reduce((n, d) => n + d.lent, 0), all = Math.max(1, num(r.layers, 0, 9999) - rest); // not dealt: wide as what each lends
  if (chain.some((d) => d.size == null)) for (const d of chain) Object.assign(d, { lo: null, size: all * (lent ? d.lent / lent : 1 / chain.length) });
  if (closed) for (const d of chain) d.kick = false;
  return {
    role: one(r.role, ["host", "worker", "guest"], null), code: str(r.code, 24), label: str(r.label), facts: str(r.facts), state: str(r.state), closed, join: closed ? "" : str(r.join), invite: !closed && r.invite === true,
    say: { tone: one(say.tone, TONES), what: str(say.what), about: str(say.about, 600) }, pct: num(r.pct, 0, 100, null),
    actions: closed ? [] : recs(r.actions, 4).map((a) => ({ cmd: str(a.cmd, 20), label: str(a.label, 40), main: a.main === true, careful: a.careful === true })).filter((a) => a.cmd && a.label),
    layers: Math.max(Math.round(num(r.layers, 0, 9999)), Math.round(chain.reduce((n, d) => n + d.size, rest))), chain, rest,
    hops: recs(r.hops, 100).map((x) => ({ path: one(x.path, ["unknown", "direct", "relay", "down"]), text: str(x.text), tip: str(x.tip) })),
    numbers: recs(r.numbers, 4).map((x) => ({ value: str(x.value, 24), unit: str(x.unit, 40), label: str(x.label, 40), tip: str(x.tip) })),
    strip: { left: str(strip.left, 60), right: str(strip.right, 60), mark: num(strip.mark, 0, 1, null),
      parts: recs(strip.parts, 101).map((p) => ({ w: num(p.w, 0, 1), kind: one(p.kind, ["lack", "full", "wire"]), i: num(p.i, 0, 100) })) },
    guests: recs(r.guests, 200).map((g) => ({ id: str(g.id), name: str(g.name, 200), state: str(g.state, 40), why: str(g.why), kick: !closed && g.kick === true && Boolean(str(g.id)) })),
    queue: { text: str(queue.text), names: list(queue.names, 100).map((x) => str(x, 200)).filter(Boolean) },
    may: settings.may === true, groups: closed ? [] : recs(settings.groups, 12).map((g) => ({ key: str(g.key, 40), label: str(g.label, 40), value: g.value ?? null,
      options: list(g.options, 8).filter((o) => Array.isArray(o)).map(([value, text]) => ({ value: value ?? null, text: str(text, 40) })) })),
    gate: !closed && gate.may === true ? { ask: gate.ask !== false, text: str(gate.text, 300) } : null,
    lobby: !closed && r.lobby && typeof r.lobby === "object" ? tidyLobby(r.lobby) : null,
    trust: { head: str(trust.head, 60), text: str(trust.text), digits: str(trust.digits, 20), tone: one(trust.tone, TONES) },
    network: { ...tidyNetwork(rec(r.network)), ...(closed && { may: false, trouble: false }) },
    promise: str(r.promise, 600), notice: str(r.saved, 600) || str(r.notice, 600),
  };
}
