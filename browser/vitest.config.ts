import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["src/**/*.test.ts"],
    environment: "node",
    isolate: false, // a process for each file took nine tenths of the time
    passWithNoTests: true,
    setupFiles: ["vitest.setup.ts"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
