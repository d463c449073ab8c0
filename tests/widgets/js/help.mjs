// A panel on the page, as a notebook shows it.

import { FakeModel } from "./fixtures.mjs";

export function show(widget, traits, model = new FakeModel(structuredClone(traits))) {
  const el = document.createElement("div");
  document.body.append(el);
  const close = widget.render({ model, el });
  const $ = (css) => el.querySelector(css), $$ = (css) => [...el.querySelectorAll(css)];
  return { el, model, close, $, $$, root: el.firstElementChild, text: (css) => $(css)?.textContent };
}
export const button = (panel, label) => panel.$$("button").find((b) => b.textContent === label || b.getAttribute("aria-label") === label);
export const press = (key, target, more = {}) => target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));
/** Nothing that came as text has become an element or runs. */
export const inert = (panel) => panel.$$("img, script, iframe, a, style, object, embed, link, base, form").length === 0
  && panel.$$("*").every((e) => [...e.attributes].every((a) => !/^on/i.test(a.name) && !/^(href|src|srcdoc|action)$/i.test(a.name)));
export const EVIL = `<img src=x onerror="globalThis.hit=1"><script>globalThis.hit=1</script>`;

/** Values that no field should have: whole dicts of them must draw something and throw nothing. */
export const ODD = [undefined, null, true, -1, 1e308, Number.NaN, "", "x".repeat(5000), EVIL, [], [null, 1, "a", []], {}, { a: 1 }, [[1, 2], [3]], "\u202eabc\u0000\n"];
