// Two bundles: `vite build --mode server` makes dist/octavo-web.mjs, `--mode page` dist/page/.
import { defineConfig } from "vite";

export default defineConfig(({ mode }) =>
  mode === "server"
    ? {
        build: {
          ssr: "src/server/main.ts",
          target: "node18",
          outDir: "dist",
          emptyOutDir: false,
          minify: true,
          rollupOptions: { output: { format: "es", entryFileNames: "octavo-web.mjs", codeSplitting: false } },
        },
        ssr: { noExternal: true, target: "node" },
      }
    : {
        root: "src/page",
        base: "./",
        build: {
          target: "es2022",
          outDir: "../../dist/page",
          emptyOutDir: true,
          assetsInlineLimit: 0,
          modulePreload: false,
          rollupOptions: { output: { entryFileNames: "page.js", chunkFileNames: "[name].js", assetFileNames: "[name][extname]" } },
        },
        oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
      },
);
