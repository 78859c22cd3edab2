// The HTTP server: who may ask for what, and which part answers.
import http, { type IncomingMessage, type ServerResponse } from "node:http";
import https from "node:https";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";

import { WebSocketServer } from "ws";

import { version } from "../../package.json";
import { MOST_TEXT_BYTES, MOST_VIEWS, VERSION, type ViewerStatus } from "../wire/protocol";
import { picture, voxels } from "./bulk";
import { Catalogue } from "./catalogue";
import type { Daemon } from "./daemon";
import { Events } from "./events";
import type { PageFiles } from "./files";
import { Guard, Refusal } from "./guard";
import { JobWatches } from "./job_watches";
import type { Options } from "./options";
import type { Secrets } from "./secrets";
import { ServerWatch } from "./server_watch";
import { Topics } from "./topics";
import { Turns } from "./turns";
import { callVerb, failure, mostBytes } from "./verbs";
import { Viewer } from "./viewer";

const MOST_TOKEN_BYTES = 4 << 10;
const MOST_SOCKETS = 256;
const MOST_CONNECTIONS = 1024;
const RENEWAL_MS = 11 * 3600e3;
const STALLED_MS = 180_000; // longer than any call waits
// Pictures and voxel reads at once, those of one browser, and those that may wait.
const BULK = { most: 6, ofOne: 4, waiting: 64, waitingOfOne: 16 };

// No script, style or picture of another host, and none inside the page itself.
const SAFE_HEADERS: Record<string, string> = {
  "Content-Security-Policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
  "Referrer-Policy": "no-referrer",
  "X-Content-Type-Options": "nosniff",
};

function body(request: IncomingMessage, mostBytes: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    request.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > mostBytes) {
        request.pause();
        reject(new Refusal(413, "TOO_LARGE", `the body has more than ${mostBytes >> 10} KiB`));
      } else chunks.push(chunk);
    });
    request.on("end", () => resolve(Buffer.concat(chunks).toString()));
    request.on("error", reject);
  });
}

/** Waits until the answer is with the operating system, or its reader has gone. */
function sent(response: ServerResponse): Promise<void> {
  if (response.writableFinished || response.destroyed) return Promise.resolve();
  return new Promise((resolve) => response.once("finish", resolve).once("close", resolve));
}

export class WebServer {
  readonly topics: Topics;
  private readonly catalogue: Catalogue;
  private readonly events: Events;
  private readonly jobs: JobWatches;
  private readonly serverWatch: ServerWatch;
  private readonly bulk = new Turns(BULK.most, BULK.ofOne, BULK.waiting, BULK.waitingOfOne);
  private readonly viewers = new Set<Viewer>();
  private readonly server: http.Server | https.Server;
  private readonly sockets = new WebSocketServer({ noServer: true, maxPayload: MOST_TEXT_BYTES, perMessageDeflate: false, clientTracking: false, autoPong: false });
  private guard!: Guard;
  private renewal: NodeJS.Timeout | undefined;

  /** @param invited called with the address for one more browser, at the start and when one was used */
  constructor(
    private readonly options: Options,
    private readonly daemon: Daemon,
    private readonly files: PageFiles,
    private readonly secrets: Secrets,
    private readonly invited: (url: string) => void,
  ) {
    this.topics = new Topics(daemon);
    this.events = new Events(daemon);
    this.jobs = new JobWatches(daemon);
    this.catalogue = new Catalogue(daemon, this.events, () => {
      this.jobs.again();
      this.events.again();
    });
    this.serverWatch = new ServerWatch(daemon, this.events, () => this.viewerStatus());
    const limits = { maxHeaderSize: 16 << 10, headersTimeout: 10000, requestTimeout: 30000, keepAliveTimeout: 15000, connectionsCheckingInterval: 5000 };
    this.server = options.tls ? https.createServer({ ...limits, ...options.tls, minVersion: "TLSv1.2" }) : http.createServer(limits);
    this.server.maxConnections = MOST_CONNECTIONS;
    this.server.setTimeout(STALLED_MS); // a peer that neither reads nor sends; sockets of pages have their own pings
    this.server.on("request", (request, response) => void this.request(request, response));
    this.server.on("upgrade", (request, socket, head) => this.upgrade(request, socket, head));
    this.server.on("clientError", (_error, socket) => {
      if (socket.writable) socket.end("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
      else socket.destroy();
    });
  }

  /** Begins to listen; returns the port. */
  async listen(): Promise<number> {
    await new Promise<void>((resolve, reject) => {
      this.server.once("error", reject);
      this.server.listen(this.options.port, this.options.host, () => resolve());
    });
    const port = (this.server.address() as AddressInfo).port;
    // A printed address lives for twelve hours: there is always one that lets somebody in.
    this.renewal = setInterval(() => this.invited(this.address()), RENEWAL_MS).unref();
    this.guard = new Guard(this.secrets, this.options.host, port, this.options.tls !== null, this.options.names);
    return port;
  }

  /** The address for one more browser: the token is behind the #, which browsers send nowhere. */
  address(): string {
    const { port } = this.server.address() as AddressInfo;
    const wild = this.options.host === "0.0.0.0" || this.options.host === "::";
    const host = this.options.names[0] ?? (wild ? "localhost" : this.options.host);
    return `${this.options.tls ? "https" : "http"}://${host.includes(":") ? `[${host}]` : host}:${port}/#token=${this.secrets.invite()}`;
  }

  private async request(request: IncomingMessage, response: ServerResponse): Promise<void> {
    // Behind another answer of the connection, which no browser does: such an answer never says that its reader has gone.
    if (!response.socket) return void request.socket.destroy();
    for (const [name, value] of Object.entries(SAFE_HEADERS)) response.setHeader(name, value);
    try {
      this.guard.checkHost(request);
      await this.route(request, response);
    } catch (error) {
      if (response.headersSent) return void response.destroy(); // the reader sees that the data end too early
      const { status, body: told } = failure(error);
      if (status === 413) response.setHeader("Connection", "close");
      if (status === 429 || status === 503) response.setHeader("Retry-After", "1");
      const text = JSON.stringify(told);
      response.writeHead(status, { "Content-Type": "application/json", "Cache-Control": "no-store", "Content-Length": Buffer.byteLength(text) }).end(text);
    }
  }

  private async route(request: IncomingMessage, response: ServerResponse): Promise<void> {
    // The part before the first ? as it was sent: names are compared, never resolved.
    const [pathname, search = ""] = (request.url ?? "").split(/\?(.*)/s);
    const reads = request.method === "GET" || request.method === "HEAD";
    this.guard.checkOrigin(request, !reads);
    if (reads && this.files.serve(pathname, request, response)) return;
    if (pathname === "/session" && request.method === "POST") return this.enter(await body(request, MOST_TOKEN_BYTES), response);
    this.guard.checkSession(request);
    if (pathname === "/session" && request.method === "DELETE") {
      this.secrets.end(this.guard.secretOf(request));
      for (const viewer of this.viewers) viewer.checkSession();
      return void response.writeHead(204, { "Set-Cookie": this.guard.setCookie("") }).end();
    }
    if (pathname === "/session/invitation" && request.method === "POST") return this.json(response, { url: this.address() });
    if (pathname === "/api/status" && reads) return this.json(response, this.status());
    const volume = /^\/api\/(volumes\/[0-9A-Za-z_-]{1,64})\/(picture|voxels)$/.exec(pathname);
    if (volume && request.method === "GET") return this.bulkRead(volume[2] === "picture" ? picture : voxels, volume[1], search, request, response);
    const verb = /^\/api\/(\w+\/\w+)$/.exec(pathname);
    if (verb && request.method === "POST") {
      if (!/^application\/json\b/.test(request.headers["content-type"] ?? "")) throw new Refusal(415, "NO_JSON", "the body of a call is application/json");
      return this.json(response, await callVerb(this.daemon, this.options.readOnly, verb[1], await body(request, mostBytes(verb[1]))));
    }
    throw new Refusal(404, "NO_PAGE", `there is nothing at ${request.method} ${pathname.slice(0, 80)}`);
  }

  private async bulkRead(read: typeof picture, name: string, search: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const over = await this.bulk.take(this.guard.secretOf(request), response);
    if (!over) return;
    try {
      await read(this.daemon, name, new URLSearchParams(search), request, response);
      await sent(response);
    } finally {
      over();
    }
  }

  private enter(text: string, response: ServerResponse): void {
    let token: unknown;
    try {
      token = JSON.parse(text).token;
    } catch {
      token = undefined;
    }
    if (typeof token !== "string" || !/^[0-9A-Za-z_-]{43}$/.test(token)) throw new Refusal(400, "BAD_TOKEN", "the body is no {\"token\": …} with a token of 43 letters");
    const secret = this.secrets.exchange(token);
    if (secret === null) throw new Refusal(403, "BAD_TOKEN", "this address was used already, or is too old: each lets one browser in. octavo web has printed the next one");
    response.setHeader("Set-Cookie", this.guard.setCookie(secret));
    this.json(response, {});
    this.invited(this.address());
  }

  private json(response: ServerResponse, answer: unknown): void {
    const text = JSON.stringify(answer);
    response.writeHead(200, { "Content-Type": "application/json", "Cache-Control": "no-store", "Content-Length": Buffer.byteLength(text) }).end(text);
  }

  private viewerStatus(): ViewerStatus {
    const sum = (of: (viewer: Viewer) => number) => [...this.viewers].reduce((all, viewer) => all + of(viewer), 0);
    return {
      version,
      node: process.version,
      viewers: this.viewers.size,
      views: sum((viewer) => viewer.viewCount),
      buffered_bytes: sum((viewer) => viewer.bufferedBytes),
      resident_bytes: process.memoryUsage.rss(),
      subscriptions: this.topics.list(),
    };
  }

  private status() {
    const { subscriptions: topics, ...status } = this.viewerStatus();
    return { ...status, subscriptions: topics.length, topics, job_watches: this.jobs.count, bulk: this.bulk.counts, daemon_calls: this.daemon.calls, daemon_up: this.catalogue.up };
  }

  private upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    // Nobody reads the socket from here on: it is closed for good once the answer is out, or after the time below.
    const refuse = (status: number, text: string) =>
      socket.once("finish", () => socket.destroy()).end(`HTTP/1.1 ${status} ${http.STATUS_CODES[status]}\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`);
    socket.on("error", () => socket.destroy());
    try {
      this.guard.checkHost(request);
      this.guard.checkOrigin(request, true);
      this.guard.checkSession(request);
      if (request.url !== "/socket") throw new Refusal(404, "NO_PAGE", "web sockets are at /socket");
      if (this.viewers.size >= MOST_SOCKETS) throw new Refusal(503, "BUSY", `${MOST_SOCKETS} pages are connected, and there may be no more`);
    } catch (error) {
      const { status, body: told } = failure(error);
      return void refuse(status, told.error.message);
    }
    const secret = this.guard.secretOf(request);
    this.sockets.handleUpgrade(request, socket, head, (web) => {
      const viewer = new Viewer(web, this.topics, () => this.secrets.isSession(secret), (gone) => {
        this.viewers.delete(gone);
        this.catalogue.remove(gone);
        this.jobs.look(gone, "");
        this.serverWatch.look(gone, false);
      }, (looking, look) => {
        this.jobs.look(looking, look.job);
        this.serverWatch.look(looking, look.server);
      });
      this.viewers.add(viewer);
      viewer.say({ type: "hello", version: VERSION, read_only: this.options.readOnly, most_views: MOST_VIEWS, daemon: this.daemon.address });
      this.catalogue.add(viewer);
    });
  }

  async stop(): Promise<void> {
    clearInterval(this.renewal);
    for (const viewer of this.viewers) viewer.close(1001, "the viewer ends");
    this.topics.stop();
    this.catalogue.stop();
    this.jobs.stop();
    this.serverWatch.stop();
    this.events.stop();
    this.daemon.close();
    this.server.close();
    this.server.closeAllConnections();
  }
}
