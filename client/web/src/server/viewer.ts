// One web socket: its views with their credits, and the changes that it has not been told yet.
import type { RawData, WebSocket } from "ws";

import {
  type FromServer, IN_FLIGHT, type Link, type Look, MOST_VIEWS, type Open, PING_MS, parseFromPage, ProtocolError, SILENCE_MS, type State, writeHeader,
} from "../wire/protocol";
import { Bandwidth } from "./bandwidth";
import { Pings } from "./pings";
import { type Frame, IMAGES, type PlainEncoding, rawBytes, type Reader, type Topics } from "./topics";

const MOST_WAITING_BYTES = 256 << 10; // of state messages; what changes meanwhile is merged
export const TELL_MS = 250; // a fast scan makes volumes more often than anybody reads of them
const FAREWELL_MS = 2000;

/** What pages are told of as it changes. */
export const KINDS = ["scans", "volumes", "operations", "jobs", "leases"] as const;
export type Kind = (typeof KINDS)[number];

interface Sent {
  sequence: number;
  bytes: number;
  at: number;
}

/** One view: at most IN_FLIGHT frames on their way, and then the newest. */
class View implements Reader {
  private leave: () => void = () => {};
  private encoding: PlainEncoding = "RAW";
  private frame: Frame | null = null; // the newest; sent already if its sequence is the last one
  private inFlight: Sent[] = [];
  private last: { sequence: number; epoch: number } | null;
  private schema: { number: number; text: string } = { number: 0, text: "" };
  private notBefore = 0;
  private timer: NodeJS.Timeout | null = null;
  private closed = false;
  private ending: { reason: string; message: string } | null = null; // to be told behind the newest frame

  /** @param after the ping whose pong says that the frames of views before it are no longer on their way */
  constructor(
    readonly open: Open,
    private readonly viewer: Viewer,
    private readonly after: number,
  ) {
    this.last = open.resume === null ? null : { sequence: open.resume, epoch: -1 };
    this.encoding = this.wanted;
    this.leave = viewer.topics.join(open.topic, this.encoding, this);
  }

  private get wanted(): PlainEncoding {
    if (!IMAGES.includes(this.open.topic.product)) return "RAW";
    if (this.open.encoding !== "AUTO") return this.open.encoding;
    return this.frame ? this.viewer.bandwidth.choose(this.encoding, (8 * rawBytes(this.frame.schema) * this.open.rate_hz) / 1e6) : this.encoding;
  }

  offer(frame: Frame): void {
    this.frame = frame;
    this.send();
  }

  acknowledged(sequence: number, paintedMs: number): void {
    const now = performance.now();
    const at = this.inFlight.findIndex((sent) => sent.sequence === sequence);
    if (at < 0) return; // of a view of this number that was closed: its credits went with it
    for (const sent of this.inFlight.splice(0, at + 1)) if (sent.sequence === sequence) this.viewer.bandwidth.acknowledged(sent.bytes, now - sent.at, paintedMs);
    if (this.wanted !== this.encoding && !this.ending) {
      this.leave();
      this.encoding = this.wanted;
      this.frame = null;
      this.leave = this.viewer.topics.join(this.open.topic, this.encoding, this);
    }
    this.send();
  }

  /** The newest frame, if it was not sent. */
  private get unsent(): Frame | null {
    const { frame, last } = this;
    if (!frame || !last || frame.sequence > last.sequence) return frame;
    if (frame.sequence === last.sequence && last.epoch < 0) return null;
    return frame.epoch === last.epoch ? null : frame; // the topic began anew, for example because the daemon was restarted
  }

  /** Sends the newest frame if it may, and tells the end behind it: it is called again whenever that could have changed. */
  send(): void {
    if (this.closed) return;
    const frame = this.unsent;
    if (!frame) {
      if (this.ending) this.viewer.viewEnded(this, this.ending.reason, this.ending.message);
      return;
    }
    if (this.inFlight.length >= IN_FLIGHT || !this.viewer.pings.isBack(this.after)) return;
    const last = this.last;
    const goesOn = last !== null && frame.sequence > last.sequence;
    const now = performance.now();
    if (now < this.notBefore) {
      this.timer ??= setTimeout(() => {
        this.timer = null;
        this.send();
      }, this.notBefore - now);
      return;
    }
    const period = 1000 / this.open.rate_hz;
    this.notBefore = Math.max(this.notBefore + period, now);
    const text = JSON.stringify(frame.schema);
    if (text !== this.schema.text) {
      this.schema = { number: (this.schema.number + 1) & 0xffff, text };
      this.viewer.say({ type: "schema", view: this.open.view, topic: this.open.topic, number: this.schema.number, ...frame.schema });
    }
    const header = writeHeader({
      view: this.open.view,
      complete: frame.complete,
      jpeg: frame.schema.encoding === "JPEG",
      schema: this.schema.number,
      dropped: goesOn ? frame.sequence - last.sequence - 1 : 0,
      sequence: frame.sequence,
      volume: frame.volume,
      server_us: frame.serverUs,
      bridge_us: Number((process.hrtime.bigint() - frame.arrivedNs) / 1000n),
      length: frame.payload.length,
    });
    this.last = { sequence: frame.sequence, epoch: frame.epoch };
    this.inFlight.push({ sequence: frame.sequence, bytes: frame.payload.length, at: now });
    this.viewer.sendFrame(header, frame.payload);
    if (this.ending) this.send();
  }

  ended(reason: string, message: string): void {
    this.ending = { reason, message };
    this.send();
  }

  /** Whether frames were sent that nobody has acknowledged. */
  get onTheWay(): boolean {
    return this.inFlight.length > 0;
  }

  close(): void {
    this.closed = true;
    if (this.timer) clearTimeout(this.timer);
    this.leave();
  }
}

export class Viewer {
  readonly bandwidth = new Bandwidth();
  private readonly views = new Map<number, View>();
  private readonly changes = Object.fromEntries(KINDS.map((kind) => [kind, new Map()])) as Record<Kind, Map<string, unknown>>;
  private fresh = false;
  private scheduled = false;
  private over = false;
  private told = -TELL_MS;
  private heard = performance.now();
  private cleared = 0; // the ping after the last view that was closed with frames on their way
  readonly pings: Pings;
  private readonly timer: NodeJS.Timeout;

  constructor(
    private readonly socket: WebSocket,
    readonly topics: Topics,
    private readonly stillIn: () => boolean,
    private readonly gone: (viewer: Viewer) => void,
    private readonly looks: (viewer: Viewer, look: Look) => void,
  ) {
    this.pings = new Pings(socket);
    socket.on("message", (data, binary) => this.message(data, binary));
    socket.on("pong", (data) => this.pong(data));
    socket.on("ping", (data) => this.isBehind || socket.pong(data)); // who does not read gets no more to read
    socket.on("error", () => socket.terminate());
    socket.on("close", () => this.end());
    this.timer = setInterval(() => this.ping(), PING_MS);
    this.ping();
  }

  /** Ends the connection if its session has ended; returns whether it goes on. */
  checkSession(): boolean {
    if (this.stillIn()) return true;
    this.close(4401, "the session has ended");
    return false;
  }

  private ping(): void {
    if (!this.checkSession()) return;
    if (performance.now() - this.heard > SILENCE_MS) return this.socket.terminate();
    this.pings.send(true);
  }

  private pong(data: Buffer): void {
    const { known, ms } = this.pings.back(data);
    if (!known) return;
    this.heard = performance.now();
    if (ms !== null) {
      this.bandwidth.pinged(ms);
      this.say({ type: "link", rtt_ms: this.bandwidth.rttMs, mbit_s: this.bandwidth.mbitS } satisfies Link);
    }
    for (const view of this.views.values()) view.send();
  }

  private drop(view: View): void {
    view.close();
    this.views.delete(view.open.view);
    if (view.onTheWay) this.cleared = this.pings.send(false);
  }

  private message(data: RawData, binary: boolean): void {
    if (this.over) return;
    if (binary) return this.close(1003, "pages send text");
    try {
      const message = parseFromPage(data.toString());
      if (message.type === "look") return this.looks(this, message);
      const view = this.views.get(message.view);
      if (message.type === "ack") return view?.acknowledged(message.sequence, message.painted_ms);
      if (view) this.drop(view);
      if (message.type === "close") return;
      if (this.views.size >= MOST_VIEWS) throw new ProtocolError(`${MOST_VIEWS} views are open, and there may be no more on one socket`);
      this.views.set(message.view, new View(message, this, this.cleared));
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      // A close frame takes at most 123 bytes of text.
      this.close(1008, Buffer.from(error.message).subarray(0, 120).toString().replace(/\uFFFD$/, ""));
    }
  }

  say(message: FromServer): void {
    if (this.socket.readyState === this.socket.OPEN) this.socket.send(JSON.stringify(message));
  }

  /** The header and the shared payload as one message, without a copy. */
  sendFrame(header: Uint8Array, payload: Buffer): void {
    if (this.socket.readyState !== this.socket.OPEN) return;
    this.socket.send(header, { binary: true, fin: false });
    this.socket.send(payload, { binary: true, fin: true });
  }

  viewEnded(view: View, reason: string, message: string): void {
    if (this.views.get(view.open.view) !== view) return;
    this.drop(view);
    this.say({ type: "end", view: view.open.view, topic: view.open.topic, reason, message });
  }

  /** Forgets what was not told yet: `change` tells all that there is next. */
  restart(): void {
    this.fresh = true;
    for (const map of Object.values(this.changes)) map.clear();
    this.schedule();
  }

  /** To be told soon; a later change of the same name takes its place. */
  change(kind: Kind, name: string, row: unknown): void {
    this.changes[kind].set(name, row);
    this.schedule();
  }

  private schedule(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    setTimeout(() => this.flush(), Math.max(0, this.told + TELL_MS - performance.now()));
  }

  private flush(): void {
    this.scheduled = false;
    if (this.socket.readyState !== this.socket.OPEN) return;
    if (this.isBehind) {
      this.scheduled = true;
      setTimeout(() => this.flush(), 100).unref();
      return;
    }
    const state: State = { type: "state" };
    if (this.fresh) state.fresh = true;
    let any = this.fresh;
    for (const [kind, map] of Object.entries(this.changes)) {
      if (map.size === 0) continue;
      any = true;
      state[kind as "scans"] = Object.fromEntries(map) as State["scans"];
      map.clear();
    }
    this.fresh = false;
    this.told = performance.now();
    if (any) this.say(state);
  }

  /** Whether the page takes so little that texts had better wait. */
  get isBehind(): boolean {
    return this.socket.bufferedAmount > MOST_WAITING_BYTES;
  }
  get bufferedBytes(): number {
    return this.socket.bufferedAmount;
  }
  get viewCount(): number {
    return this.views.size;
  }

  /** Says why, and waits for no answer. */
  close(code: number, reason: string): void {
    this.socket.close(code, reason);
    setTimeout(() => this.socket.terminate(), FAREWELL_MS).unref();
    this.end();
  }

  private end(): void {
    if (this.over) return;
    this.over = true;
    clearInterval(this.timer);
    for (const view of this.views.values()) view.close();
    this.views.clear();
    this.gone(this);
  }
}
