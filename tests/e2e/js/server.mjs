// The real PeerJS server. Prints its port as one line of JSON, ends with its standard input.
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const { PeerServer } = require("peer");

const [path = "/", port = "0"] = process.argv.slice(2);
const peers = PeerServer({ host: "127.0.0.1", port: Number(port), path }, (server) =>
  console.log(JSON.stringify({ port: server.address().port })),
);
peers.on("error", (error) => console.error(String(error)));

process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
