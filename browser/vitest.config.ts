import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["src/**/*.test.ts"],
    environment: "node",
    passWithNoTests: true,
    setupFiles: ["vitest.setup.ts"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
