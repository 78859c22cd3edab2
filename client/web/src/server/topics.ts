// Subscriptions to the daemon: one for each topic and encoding, whatever the number of views.
import type { ClientReadableStream, ServiceError } from "@grpc/grpc-js";

import { SAMPLE_BYTES } from "../wire/dtypes";
import { MOST_RATE_HZ, type Schema, type Topic, type ViewerStatus } from "../wire/protocol";
import { type Daemon, DaemonError, type Message } from "./daemon";

const MOST_FRAME_BYTES = 64 << 20;
const RETRY_MS = [200, 500, 1000, 2000];
const LINGER_MS = 2000;
const MOST_FEEDS = 512; // the daemon takes 4096 streams of one connection
const MOST_LINGERING = 32;
const JPEG_QUALITY = 85;
const JPEG_PERCENTILES = { lo: 1, hi: 99.8 };

export type PlainEncoding = "RAW" | "JPEG";

/** A whole frame, shared by all views. */
export interface Frame {
  sequence: number;
  epoch: number; // of the daemon: after it was away, its sequences may begin anew
  complete: boolean;
  volume: number;
  serverUs: number | null;
  arrivedNs: bigint;
  schema: Schema;
  schemaNumber: number;
  payload: Buffer;
}

/** A view, as its feed knows it. */
export interface Reader {
  offer(frame: Frame): void;
  ended(reason: string, message: string): void;
}

export const IMAGES: readonly string[] = ["MIP", "AIP", "BSCAN", "ANGIOGRAM"];

function requestOf(topic: Topic, encoding: PlainEncoding): Message {
  const request: Message = {
    parent: topic.parent,
    products: [`PRODUCT_${topic.product === "CORRECTED" ? "SPECTRUM" : topic.product}`],
    delivery: "DELIVERY_LATEST",
    max_rate_hz: MOST_RATE_HZ,
  };
  if (topic.slab) request.slab = { begin: String(topic.slab[0]), end: String(topic.slab[1]) };
  if (topic.index >= 0) request.index = String(topic.index);
  if (topic.product === "CORRECTED") request.spectrum = "SPECTRUM_FORM_CORRECTED";
  if (!IMAGES.includes(topic.product)) return request;
  if (topic.product === "MIP" || topic.product === "BSCAN") request.axis = `AXIS_${topic.axis}`;
  request.encoding = `ENCODING_${encoding}`;
  // Depth runs down the rows, as people draw it.
  request.image = { max_width: topic.width, max_height: topic.width, depth_down: true };
  if (encoding !== "JPEG") return request;
  request.image.quality = JPEG_QUALITY;
  // The same levels for all frames of a scan. The previews of jobs have no levels of their own: theirs follow from each frame.
  // The answer tells those that were used, so the page can undo them and choose its own contrast.
  if (topic.parent.startsWith("jobs/")) request.image.percentiles = JPEG_PERCENTILES;
  else request.image.display_levels = true;
  return request;
}

function schemaOf(topic: Topic, head: Message): Schema {
  const record = head.record;
  const display = head.display_levels;
  return {
    product: topic.product,
    axis: head.axis === "AXIS_UNSPECIFIED" ? "" : head.axis.replace("AXIS_", ""),
    shape: head.shape.map(Number),
    axes: head.axes,
    spacing_um: head.spacing_um,
    dtype: head.dtype.replace("DTYPE_", ""),
    encoding: head.encoding === "ENCODING_JPEG" ? "JPEG" : "RAW",
    unit: head.unit,
    offset: head.value_offset,
    step: head.value_step,
    display: display && display.hi > display.lo ? { lo: display.lo, hi: display.hi } : null, // previews of jobs have levels of no width
    saturation: record ? { lo: record.saturation_low ?? null, hi: record.saturation_high ?? null } : null,
  };
}

/** The size of a frame of this schema if it is sent raw. */
export const rawBytes = (schema: Schema) => schema.shape.reduce((a, b) => a * b, 1) * (SAMPLE_BYTES[schema.dtype] ?? 4);

/** One subscription with its readers. */
class Feed {
  readonly readers = new Set<Reader>();
  latest: Frame | null = null;
  frames = 0;
  private call: ClientReadableStream<Message> | null = null;
  private timer: NodeJS.Timeout | null = null;
  private failures = 0;
  private askedAgain = false;
  private schemaText = "";
  private schemaNumber = 0;

  constructor(
    private readonly daemon: Daemon,
    readonly topic: Topic,
    readonly encoding: PlainEncoding,
    private readonly topics: Topics,
    private readonly done: () => void,
  ) {
    this.subscribe();
  }

  private subscribe(): void {
    this.timer = null;
    const call = this.daemon.stream("StreamService", "Subscribe", requestOf(this.topic, this.encoding));
    this.call = call;
    let head: Message = null;
    let parts: Buffer[] = [];
    let size = 0;
    let arrived = 0n;
    call.on("data", (part: Message) => {
      if (part.frame) {
        [head, parts, size, arrived] = [part.frame, [], 0, process.hrtime.bigint()];
      }
      if (!head) return;
      parts.push(part.data);
      size += part.data.length;
      if (size > MOST_FRAME_BYTES) return this.end("TOO_LARGE", `a frame of more than ${MOST_FRAME_BYTES >> 20} MiB: ask for a smaller width`);
      if (size < Number(part.total_bytes)) return;
      this.failures = 0;
      this.publish(head, parts.length === 1 ? parts[0] : Buffer.concat(parts, size), arrived);
      head = null;
    });
    call.on("error", (error: ServiceError) => {
      if (this.call === call) this.failed(this.daemon.explained(error));
    });
    call.on("end", () => {
      // An error is told by itself, after the end.
      setImmediate(() => {
        if (this.call !== call) return;
        // It ended while it was subscribed to, and no frame came any more. Of what has ended, the daemon shows the last frame.
        if (!this.latest && !this.askedAgain) {
          this.askedAgain = true;
          this.subscribe();
        } else this.end("FINISHED", "it has ended");
      });
    });
  }

  private publish(head: Message, payload: Buffer, arrivedNs: bigint): void {
    const schema = schemaOf(this.topic, head);
    const text = JSON.stringify(schema);
    if (text !== this.schemaText) [this.schemaText, this.schemaNumber] = [text, this.schemaNumber + 1];
    const acquired = BigInt(head.acquire_monotonic_ns);
    const published = BigInt(head.publish_monotonic_ns);
    this.latest = {
      sequence: Number(head.sequence),
      epoch: this.topics.epoch,
      complete: head.complete,
      volume: Number(head.volume_index),
      serverUs: acquired > 0n && published >= acquired ? Number((published - acquired) / 1000n) : null,
      arrivedNs,
      schema,
      schemaNumber: this.schemaNumber,
      payload,
    };
    this.frames++;
    for (const reader of this.readers) reader.offer(this.latest);
  }

  private failed(error: DaemonError): void {
    this.call = null;
    if (error.away) this.topics.epoch++;
    // The daemon is away, or has no memory for the frame now: ask again. What else is wrong stays wrong.
    if (error.away || error.reason === "NO_FRAME" || error.reason === "SLOW_SUBSCRIBER") {
      this.timer = setTimeout(() => this.subscribe(), RETRY_MS[Math.min(this.failures++, RETRY_MS.length - 1)]);
      return;
    }
    this.end(error.reason || "FAILED", error.message);
  }

  private end(reason: string, message: string): void {
    this.stop();
    this.done();
    for (const reader of this.readers) reader.ended(reason, message);
  }

  stop(): void {
    const call = this.call;
    this.call = null;
    if (this.timer) clearTimeout(this.timer);
    call?.cancel();
  }
}

/** All feeds by topic and encoding. */
export class Topics {
  epoch = 0;
  private readonly feeds = new Map<string, Feed>();

  constructor(private readonly daemon: Daemon) {}

  /** Subscribes the reader; it gets the latest frame at once, if there is one. Returns how it leaves. */
  join(topic: Topic, encoding: PlainEncoding, reader: Reader): () => void {
    const key = JSON.stringify([topic.parent, topic.product, topic.axis, topic.index, topic.slab, topic.width, encoding]);
    let feed = this.feeds.get(key);
    if (!feed) {
      if (this.feeds.size >= MOST_FEEDS) {
        queueMicrotask(() => reader.ended("BUSY", `octavo web shows ${MOST_FEEDS} different pictures already, and there may be no more`));
        return () => {};
      }
      const made: Feed = new Feed(this.daemon, topic, encoding, this, () => {
        if (this.feeds.get(key) === made) this.feeds.delete(key);
      });
      feed = made;
      this.feeds.set(key, feed);
    }
    const joined = feed;
    joined.readers.add(reader);
    if (joined.latest) reader.offer(joined.latest);
    return () => {
      joined.readers.delete(reader);
      if (joined.readers.size > 0) return;
      const forget = () => {
        if (joined.readers.size > 0 || this.feeds.get(key) !== joined) return;
        joined.stop();
        this.feeds.delete(key);
      };
      // A page that reloads or reconnects soon finds its subscription; one that opens others all the time keeps none of them.
      if ([...this.feeds.values()].filter((other) => other.readers.size === 0).length > MOST_LINGERING) forget();
      else setTimeout(forget, LINGER_MS).unref();
    };
  }

  get count(): number {
    return this.feeds.size;
  }

  /** What is subscribed to, with the number of its views and of the frames that came. */
  list(): ViewerStatus["subscriptions"] {
    return [...this.feeds.values()].map((feed) => ({ ...feed.topic, encoding: feed.encoding, views: feed.readers.size, frames: feed.frames }));
  }

  stop(): void {
    for (const feed of this.feeds.values()) feed.stop();
    this.feeds.clear();
  }
}
