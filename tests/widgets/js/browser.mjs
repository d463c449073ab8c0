// Chromium on the gallery page, with a small file server on loopback.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, normalize, resolve, sep } from "node:path";
import { chromium } from "playwright-core";
import { ROOT } from "./root.mjs";

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".json": "application/json" };
const QUIET = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

/** Calls `work(open)`; `open({width, theme, …})` gives a page of the gallery. All is closed afterwards. */
export async function withGallery(work) {
  const server = createServer(async (request, reply) => {
    const path = resolve(ROOT, `.${normalize(new URL(request.url, "http://localhost").pathname)}`);
    const type = TYPES[extname(path)];
    if (!type || !path.startsWith(ROOT + sep)) return void reply.writeHead(404).end();
    try { const data = await readFile(path); reply.writeHead(200, { "content-type": type }).end(data); } catch { reply.writeHead(404).end(); }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", chromiumSandbox: false, args: QUIET });
  const open = async ({ width, height = 900, theme = "light", front = "jupyter", only, extra = "", media = {}, ...context }) => {
    const page = await browser.newPage({ viewport: { width, height }, reducedMotion: "reduce", ...context });
    const faults = [];
    page.on("pageerror", (e) => faults.push(String(e)));
    page.on("console", (m) => { if (m.type() === "error") faults.push(m.text()); });
    if (Object.keys(media).length) await page.emulateMedia(media);
    await page.goto(`http://127.0.0.1:${server.address().port}/tests/widgets/js/gallery.html?theme=${theme}&front=${front}${only ? `&only=${only}` : ""}${extra}`);
    await page.waitForSelector("body[data-ready]");
    return Object.assign(page, { faults });
  };
  try { return await work(open); } finally { await browser.close(); server.close(); }
}
