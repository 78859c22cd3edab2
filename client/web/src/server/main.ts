// octavo-web: shows a running octavod in browsers. `octavo web` starts it; README.md beside the sources
// says what it is made of.
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { Daemon, findProtos } from "./daemon";
import { PageFiles } from "./files";
import { HELP, isLoopback, type Options, parseOptions, UsageError } from "./options";
import { Secrets } from "./secrets";
import { WebServer } from "./web_server";

const USAGE = 2;
const FAILED = 1;

function complain(text: string, code: number): never {
  process.stderr.write(`octavo web: ${text}\n`);
  process.exit(code);
}

function optionsOf(args: string[]): Options {
  try {
    const options = parseOptions(args);
    if (options !== "help") return options;
    process.stdout.write(HELP);
    process.exit(0);
  } catch (error) {
    if (error instanceof UsageError) complain(error.message, USAGE);
    throw error;
  }
}

async function main(): Promise<void> {
  const options = optionsOf(process.argv.slice(2));
  const daemon = new Daemon(options.address, findProtos(), options.token, options.daemonTls);
  const files = new PageFiles(path.join(path.dirname(fileURLToPath(import.meta.url)), "page"));
  const server = new WebServer(options, daemon, files, new Secrets(), (url) => process.stdout.write(`for one more browser: ${url}\n`));
  let port: number;
  try {
    port = await server.listen();
  } catch (error) {
    complain(`cannot listen on ${options.host}:${options.port}: ${(error as Error).message}`, FAILED);
  }
  const url = server.address();
  process.stdout.write(`octavod at ${options.address}; open in a browser, this address works once:\n${url}\n`);
  if (!options.tls && !isLoopback(options.host)) process.stderr.write("octavo web: without TLS anybody on the way can read along (--insecure)\n");
  if (options.readyFd !== null) {
    fs.writeSync(options.readyFd, `${JSON.stringify({ url, port })}\n`);
    fs.closeSync(options.readyFd);
  }
  let ending = false;
  const end = () => {
    if (ending) process.exit(0);
    ending = true;
    setTimeout(() => process.exit(0), 3000).unref();
    void server.stop().then(() => process.exit(0));
  };
  process.on("SIGTERM", end);
  process.on("SIGINT", end);
}

void main().catch((error: unknown) => complain(error instanceof Error ? error.message : String(error), FAILED));
