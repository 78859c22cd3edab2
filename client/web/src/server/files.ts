// The files of the page, read once: a request can name these and nothing else.
import { createHash } from "node:crypto";
import fs from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import path from "node:path";
import zlib from "node:zlib";

const TYPES: Record<string, string> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".txt": "text/plain; charset=utf-8",
};

interface PageFile {
  type: string;
  body: Buffer;
  packed: Buffer;
  tag: string;
}

export class PageFiles {
  private readonly files = new Map<string, PageFile>();

  constructor(folder: string) {
    for (const name of fs.readdirSync(folder)) {
      const type = TYPES[path.extname(name)];
      if (!type) continue;
      const body = fs.readFileSync(path.join(folder, name));
      const tag = `"${createHash("sha256").update(body).digest("hex").slice(0, 32)}"`;
      this.files.set(`/${name}`, { type, body, packed: zlib.gzipSync(body, { level: 9 }), tag });
    }
    const index = this.files.get("/index.html");
    if (!index) throw new Error(`${folder} has no index.html: install octavo again`);
    this.files.set("/", index);
  }

  /** Answers if there is such a file. */
  serve(pathname: string, request: IncomingMessage, response: ServerResponse): boolean {
    const file = this.files.get(pathname);
    if (!file) return false;
    const headers: Record<string, string | number> = { "Content-Type": file.type, ETag: file.tag, "Cache-Control": "no-cache", Vary: "Accept-Encoding" };
    if (request.headers["if-none-match"] === file.tag) {
      response.writeHead(304, headers).end();
      return true;
    }
    const packed = /\bgzip\b/.test(String(request.headers["accept-encoding"] ?? ""));
    const body = packed ? file.packed : file.body;
    if (packed) headers["Content-Encoding"] = "gzip";
    response.writeHead(200, { ...headers, "Content-Length": body.length }).end(request.method === "HEAD" ? undefined : body);
    return true;
  }
}
