// What came from the kernel, made safe to draw: every field has its type and its bounds.

export const rec = (x) => (x && typeof x === "object" && !Array.isArray(x) ? x : {});
export const list = (x, max) => (Array.isArray(x) ? x.slice(0, max) : []);
export const recs = (x, max) => list(x, max).filter((y) => y && typeof y === "object");
export const str = (x, max = 300) => (typeof x === "string" ? x : Number.isFinite(x) ? String(x) : "").slice(0, max);
export const num = (x, lo, hi, none = lo) => (Number.isFinite(x) ? Math.min(hi, Math.max(lo, x)) : none);
export const one = (x, names, none = names[0]) => (names.includes(x) ? x : none);
export const TONES = ["idle", "good", "work", "warn", "bad"];
