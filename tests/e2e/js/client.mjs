// The real PeerJS client over libwebrtc. Commands as lines of JSON on standard input, events on standard output.
//   {"do": "dial", "remote", "options"}   {"do": "send", "value"}   {"do": "bytes", "size"}   {"do": "close"}
import { createRequire } from "node:module";
import readline from "node:readline";

const require = createRequire(import.meta.url);
const wrtc = require("@roamhq/wrtc");
Object.assign(globalThis, wrtc);
globalThis.WebSocket = require("ws");
globalThis.window = globalThis;
globalThis.location = { protocol: "http:" };
if (!globalThis.navigator) globalThis.navigator = { userAgent: "Node" };
const { Peer } = require("peerjs");

const [host, port, path, id] = process.argv.slice(2);
const sized = (_, value) => (typeof value?.byteLength === "number" ? { bytes: value.byteLength } : value);
const say = (event, more = {}) => process.stdout.write(JSON.stringify({ event, ...more }, sized) + "\n");
const peer = new Peer(id, { host, port: Number(port), path, debug: 1, config: { iceServers: [] } });
let connection = null;

function take(next) {
  connection = next;
  const pc = next.peerConnection;
  const wire = pc.createDataChannel("swarm-wire", { negotiated: true, id: 77, ordered: true });
  wire.binaryType = "arraybuffer";
  wire.onmessage = (event) => { say("wire", { size: event.data.byteLength }); wire.send(event.data); };
  next.on("open", () => say("connection-open", { remote: next.peer, label: next.label, id: next.connectionId,
    reliable: next.reliable, serialization: next.serialization }));
  next.on("data", (data) => say("data", { value: data }));
  next.on("close", () => say("connection-close"));
}

peer.on("open", (own) => say("open", { id: own }));
peer.on("error", (error) => say("error", { type: error.type }));
peer.on("connection", take);

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const command = JSON.parse(line);
  if (command.do === "dial") take(peer.connect(command.remote, command.options));
  if (command.do === "send") connection.send(command.value);
  if (command.do === "bytes") connection.send(new Uint8Array(command.size).fill(7));
  if (command.do === "close") connection.close();
}).on("close", () => process.exit(0));
