// What jsdom lacks: layout. A test says how wide the chain is, and frames come when it asks for them.

import { afterEach, beforeEach, vi } from "vitest";

export const page = { width: 660, watchers: new Set(), frames: [] };

class Watcher {
  constructor(changed) { this.changed = changed; }
  observe() { page.watchers.add(this); }
  disconnect() { page.watchers.delete(this); }
}
Object.defineProperty(HTMLElement.prototype, "clientWidth", { configurable: true, get: () => page.width });

/** The panel gets another width. */
export function resize(width) {
  page.width = width;
  for (const w of page.watchers) w.changed();
}

/** The browser paints once. */
export function paint() {
  for (const f of page.frames.splice(0)) f?.(0);
}

beforeEach(() => {
  Object.assign(page, { width: 660, frames: [] });
  page.watchers.clear();
  document.body.replaceChildren();
  vi.stubGlobal("ResizeObserver", Watcher);
  vi.stubGlobal("requestAnimationFrame", (f) => page.frames.push(f));
  vi.stubGlobal("cancelAnimationFrame", (id) => { delete page.frames[id - 1]; });
});
afterEach(() => { vi.unstubAllGlobals(); vi.useRealTimers(); });
