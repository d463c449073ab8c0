// The module that a notebook gets: the parts as one text (pooled_nb/widgets/bundle.py). It draws what the parts draw.

import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import answer from "../../../pooled_nb/widgets/static/answer.js";
import room from "../../../pooled_nb/widgets/static/room.js";
import { ROOT } from "./root.mjs";
import { ANSWERS, ROOMS } from "./fixtures.mjs";
import { show } from "./help.mjs";

const python = process.env.PYTHON ?? join(ROOT, ".venv", "bin", "python");
const text = (name) => execFileSync(python, ["-c", `import sys; sys.path.insert(0, "pooled_nb/widgets"); import bundle; sys.stdout.write(bundle.script("${name}"))`], { cwd: ROOT, encoding: "utf8" });
const load = async (name) => (await import(/* @vite-ignore */ `data:text/javascript;base64,${Buffer.from(text(name)).toString("base64")}`)).default;
const plain = (p) => p.el.innerHTML.replace(/pnb[a-z0-9]{8,}/g, "id");

describe.skipIf(!existsSync(python))("the module that a notebook gets", () => {
  it("draws every room as its parts do", async () => {
    const whole = await load("room.js");
    for (const state of Object.values(ROOMS)) expect(plain(show(whole, { room: state }))).toBe(plain(show(room, { room: state })));
  });
  it("draws every answer as its parts do", async () => {
    const whole = await load("answer.js");
    for (const traits of Object.values(ANSWERS)) expect(plain(show(whole, traits))).toBe(plain(show(answer, traits)));
  });
});
