import { defineConfig } from "vitest/config";

export default defineConfig({
  test: { environment: "jsdom", include: ["*.test.mjs"], setupFiles: ["./setup.mjs"], restoreMocks: true, testTimeout: 60_000 },
  server: { fs: { allow: ["../../.."] } }, // the panels lie outside this folder
});
