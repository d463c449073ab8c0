import { resolve } from "node:path";
import { fileURLToPath } from "node:url";

/** The repository. */
export const ROOT = resolve(fileURLToPath(import.meta.url), "../../../..");
