// Prints the licences of the packages that the two bundles contain. Fails for a licence that is not on the list.
import fs from "node:fs";
import path from "node:path";

const ALLOWED = ["MIT", "ISC", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "0BSD"];
// Packages that are in the bundles, beside what they need themselves.
const ROOTS = ["@grpc/grpc-js", "@grpc/proto-loader", "ws", "preact", "uplot"];
// Needed by a command of proto-loader that no bundle contains.
const LEFT_OUT = ["yargs"];

const read = (name) => JSON.parse(fs.readFileSync(path.join("node_modules", name, "package.json"), "utf8"));
const names = new Set();
const add = (name) => {
  if (names.has(name) || LEFT_OUT.includes(name) || name.startsWith("@types/")) return;
  names.add(name);
  Object.keys(read(name).dependencies ?? {}).forEach(add);
};
ROOTS.forEach(add);
console.log("octavo-web.mjs and page/ contain, beside Octavo's own sources (Apache-2.0), the packages below.\n");
for (const name of [...names].sort()) {
  const { version, license } = read(name);
  if (!ALLOWED.includes(license)) throw new Error(`${name} has the licence ${license}; allowed: ${ALLOWED.join(", ")}`);
  const folder = path.join("node_modules", name);
  const file = fs.readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  console.log(`==== ${name} ${version} (${license})\n`);
  if (file) console.log(`${fs.readFileSync(path.join(folder, file), "utf8").trim()}\n`);
}
