// The gate of PROTOCOL section 4 in a page, by WebCrypto: written for these tests, after the text of the
// protocol alone. The page is the real PeerJS client of npm in a real browser; `say` tells the test.
const VERSION = 4;
const utf8 = new TextEncoder();
const hex = (buffer) => [...new Uint8Array(buffer)].map((b) => b.toString(16).padStart(2, "0")).join("");
const H = async (text) => hex(await crypto.subtle.digest("SHA-256", utf8.encode(text)));
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function MAC(key, text) {
  const how = { name: "HMAC", hash: "SHA-256" };
  const imported = await crypto.subtle.importKey("raw", utf8.encode(key), how, false, ["sign"]);
  return hex(await crypto.subtle.sign("HMAC", imported, utf8.encode(text)));
}

function secret(bytes) {
  const raw = crypto.getRandomValues(new Uint8Array(bytes));
  return btoa(String.fromCharCode(...raw)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

// A channel may open before both descriptions are set: 5 s, only then there is no binding.
async function binding(pc) {
  for (let i = 0; i < 250 && !(pc.localDescription && pc.remoteDescription); i++) await pause(20);
  const of = (description) => {
    const lines = description.sdp.split(/\r?\n/).filter((line) => /^a=fingerprint/i.test(line));
    return [...new Set(lines.map((line) => line.slice("a=fingerprint:".length).toLowerCase()))];
  };
  const ends = [of(pc.localDescription), of(pc.remoteDescription)];
  if (ends.some((found) => found.length !== 1)) throw new Error("no binding");
  return [...new Set(ends.flat())].sort().join(",");
}

async function digits(bound, jn, hn) {
  const number = parseInt((await H(`pooled-sas-v1\n${bound}\n${jn}\n${hn}`)).slice(0, 8), 16) % 1_000_000;
  const text = String(number).padStart(6, "0");
  return `${text.slice(0, 3)} ${text.slice(3)}`;
}

const gateText = (role, cred, bound, joiner, creator, jn, hn) =>
  ["pooled-auth-v1", `role=${role}`, `cred=${cred}`, `fp=${bound}`, `ids=${joiner},${creator}`,
    `jn=${jn}`, `hn=${hn}`].join("\n");

// One data connection: pings are answered, everything else waits to be taken by its type.
class Link {
  constructor(connection, dialed) {
    Object.assign(this, { connection, dialed, remote: connection.peer, queue: [], waiting: null });
    this.wire = this.channel("swarm-wire", { negotiated: true, id: 77, ordered: true });
    this.keepalive = this.channel("swarm-ka", { negotiated: true, id: 78, ordered: false, maxRetransmits: 0 });
    this.opened = new Promise((done) => connection.on("open", done));
    connection.on("data", (message) => this.take(message));
    connection.on("close", () => {
      say({ event: "closed", remote: this.remote, label: connection.label });
      this.take({ t: "closed" });
    });
  }
  // Pre-negotiated; what comes is told by its size and first two bytes, and said back by a page that echoes.
  channel(name, how) {
    const channel = this.pc.createDataChannel(name, how);
    channel.binaryType = "arraybuffer";
    channel.onmessage = ({ data }) => {
      const mark = data.byteLength > 1 ? new DataView(data).getUint16(0) : 0;
      say({ event: name, remote: this.remote, label: this.connection.label, size: data.byteLength, mark });
      if (page.echoes && name === "swarm-wire") channel.send(data);
    };
    return channel;
  }
  get pc() { return this.connection.peerConnection; }
  send(message) { this.connection.send(message); }
  take(message) {
    if (message?.t === "ping") return this.send({ t: "pong", ts: message.ts });
    this.queue.push(message);
    this.waiting?.();
  }
  // The next message of one of these types, also one that came before; others stay.
  async next(...types) {
    for (;;) {
      const at = this.queue.findIndex((m) => types.includes(m?.t) || m?.t === "closed");
      if (at >= 0) return this.queue.splice(at, 1)[0];
      await new Promise((done) => { this.waiting = done; });
    }
  }
  // From now on everything is told to the test.
  tell() {
    for (const message of this.queue.splice(0)) say({ event: "message", remote: this.remote, message });
    this.take = (message) => {
      if (message?.t === "ping") return this.send({ t: "pong", ts: message.ts });
      say({ event: "message", remote: this.remote, message });
    };
  }
}

const page = {
  links: {},

  // Register at a signaling server; every other device may dial this page from now on.
  open({ host, port, path, id }) {
    page.peer = new peerjs.Peer(id, { host, port, path, debug: 1, config: { iceServers: [] } });
    page.peer.on("error", (error) => say({ event: "error", type: error.type }));
    page.peer.on("connection", (connection) => page.dialed(new Link(connection, false)));
    return new Promise((done) => page.peer.on("open", done));
  },

  dial(remote, label) {
    const options = { serialization: "binary", reliable: true, ...(label ? { label } : {}) };
    const link = new Link(page.peer.connect(remote, options), true);
    if (!label) page.links[remote] = link;
    return link;
  },

  tell(remote, message) { page.links[remote].send(message); },
  hang(remote) { page.links[remote].send({ t: "leaving" }); },

  // -- this page knocks ------------------------------------------------------------------------------

  async join({ code, key, pass, name = "tab" }) {
    const creator = `pooled-room-${code}`;
    const link = page.dial(creator);
    await link.opened;
    const jn = secret(16);
    const ps = pass ? await H(pass) : null;
    const pid = ps ? { pid: (await H(`pooled-pass-id-v1\n${ps}`)).slice(0, 32) } : {};
    link.send({ t: "hello", name, meta: { webgpu: false, ua: "Device" }, v: VERSION, join: 1, auth: 1,
      jc: await H(`pooled-commit-v1\n${jn}`), ...(key ? { kc: 1 } : {}), ...pid });
    const hello = await link.next("hello");
    say({ event: "greeted", hello });
    const challenge = await link.next("auth", "bye");
    if (challenge.t !== "auth") return say({ event: "refused", reason: challenge.reason ?? "", how: challenge.t });
    const { hn } = challenge;
    const bound = await binding(link.pc);
    const text = (role, cred) => gateText(role, cred, bound, page.peer.id, creator, jn, hn);
    link.send({ t: "auth-proof", jn, ...(key ? { kp: await MAC(key, text("join", "key")) } : {}),
      ...(ps ? { pp: await MAC(ps, text("join", "pass")) } : {}) });
    let said = await link.next("lobby", "admit", "bye");
    if (said.t === "lobby") {
      say({ event: "lobby", digits: await digits(bound, jn, hn) });
      said = await link.next("admit", "bye");
    }
    if (said.t !== "admit") return say({ event: "refused", reason: said.reason ?? "", how: said.t });
    const held = { key, pass: ps }[said.via];
    const proved = Boolean(held) && said.hp === (await MAC(held, text("host", said.via)));
    if (said.pass) localStorage.setItem(`pass ${code}`, said.pass);
    page.mk = said.mk;
    say({ event: "admitted", via: said.via ?? null, proved, id: page.peer.id, pass: Boolean(said.pass) });
    link.tell();
  },

  // -- this page is the creator ----------------------------------------------------------------------

  // `lie`: "hp" forges its proof; "no-via" admits unasked what it did not recognise; "no-auth" proves nothing.
  host({ code, key, ask = true, lie = "" }) {
    Object.assign(page, { code, key, ask, lie, mk: secret(32), passes: {}, roster: [], decisions: {} });
    page.roster.push({ id: page.peer.id, name: "page", meta: { webgpu: false, ua: "Device" }, a: 1 });
    page.isCreator = true;
  },

  decide(remote, allow) { page.decisions[remote](allow); },

  async welcome(link) {
    const auth = page.lie === "no-auth" ? {} : { auth: 1 };
    link.send({ t: "hello", name: "page", meta: { webgpu: false, ua: "Device" }, v: VERSION, gate: 1,
      ...(page.ask ? { ask: 1 } : {}), ...auth });
    const hello = await link.next("hello");
    const hn = secret(16);
    let via = null, bound = "", jn = "", hp;
    if (auth.auth) {
      link.send({ t: "auth", v: 1, hn });
      const proof = await link.next("auth-proof");
      if (proof.t === "closed") return;
      jn = proof.jn;
      if ((await H(`pooled-commit-v1\n${jn}`)) !== hello.jc) return link.send({ t: "bye", reason: "nonce" });
      bound = await binding(link.pc);
      const text = (role, cred) => gateText(role, cred, bound, link.remote, page.peer.id, jn, hn);
      const ps = page.passes[hello.pid];
      if (ps && proof.pp === (await MAC(ps, text("join", "pass")))) via = "pass";
      else if (proof.kp === (await MAC(page.key, text("join", "key")))) via = "key";
      if (via) hp = await MAC(via === "pass" ? ps : page.key, text("host", via));
      say({ event: "proof", remote: link.remote, via, kc: hello.kc ?? 0, jc: hello.jc });
    }
    if (page.lie === "hp") { via = "key"; hp = await H("a guess"); }
    if (page.lie === "no-via") via = hp = null;
    if (!via && page.ask && page.lie !== "no-via") {
      link.send({ t: "lobby" });
      say({ event: "knock", remote: link.remote, digits: bound ? await digits(bound, jn, hn) : "" });
      const allow = await new Promise((done) => { page.decisions[link.remote] = done; });
      if (!allow) return link.send({ t: "bye", reason: "The page says no." });
    }
    const pass = secret(16);
    if (via !== "pass") {
      const ps = await H(pass);
      page.passes[(await H(`pooled-pass-id-v1\n${ps}`)).slice(0, 32)] = ps;
    }
    link.send({ t: "admit", mk: page.mk, ...(via ? { via, hp } : {}), ...(via === "pass" ? {} : { pass }) });
    page.roster = page.roster.filter((member) => member.id !== link.remote);
    page.roster.push({ id: link.remote, name: hello.name, meta: hello.meta, ...(hello.auth ? { a: 1 } : {}) });
    link.send({ t: "roster", members: page.roster });
    page.links[link.remote] = link;
    say({ event: "welcomed", remote: link.remote, via });
    link.tell();
  },

  // -- links between devices, and stripes ------------------------------------------------------------

  async dialed(link) {
    await link.opened;
    if (link.connection.label === "stripe") return page.prove(link, "stripe");
    if (page.isCreator) return page.welcome(link);
    page.links[link.remote] = link;
    return page.greet(link);
  },

  async meet(remote) {
    const link = page.dial(remote);
    await link.opened;
    return page.greet(link);
  },

  async stripe(remote, key) {
    const link = page.dial(remote, "stripe");
    await link.opened;
    return page.prove(link, "stripe", key);
  },

  async greet(link) {
    link.send({ t: "hello", name: "tab", meta: { webgpu: false, ua: "Device" }, v: VERSION });
    await link.next("hello");
    return page.prove(link, "link");
  },

  async prove(link, what, key = page.mk) {
    const bound = await binding(link.pc);
    const ids = link.dialed ? `${page.peer.id},${link.remote}` : `${link.remote},${page.peer.id}`;
    const proof = (role) => MAC(key, ["pooled-mesh-v1", `role=${role}`, `fp=${bound}`, `ids=${ids}`].join("\n"));
    const [mine, theirs] = link.dialed ? ["dial", "accept"] : ["accept", "dial"];
    link.send({ t: "mesh", v: 1, p: await proof(mine) });
    const said = await link.next("mesh");
    say({ event: "mesh", what, remote: link.remote, how: said.t, proved: said.p === (await proof(theirs)) });
    link.tell();
  },
};
