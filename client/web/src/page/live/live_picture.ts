// One live picture: takes frames, paints the newest before the next screen, gives credits back, counts.
import type { Encoding, FrameHeader, Interval, Schema, Topic } from "../../wire/protocol";
import { connection, type ViewHandle } from "../connection";
import { Store } from "../store";
import type { ColourMap } from "./colour_maps";
import { type Histogram, histogram, jpeg, paint, percentiles, rangeOf, raw, type Samples, type Scale, scaleOf } from "./samples";

const HISTOGRAM_MS = 250;
const COUNT_MS = 500;
const RATE_SPAN_MS = 2000;
export const MOST_RATE_HZ = 60;

export type Contrast = { kind: "display" } | { kind: "percentiles"; lo: number; hi: number } | { kind: "fixed"; window: Interval };

export interface Counters {
  shown: number;
  dropped: number;
  fps: number;
  latencyMs: number | null; // from the last record to the painted pixel
  encoding: string;
  bytes: number; // of the last frame
}

export interface Shown {
  schema: Schema;
  header: FrameHeader;
  window: Interval;
  rows: number;
  columns: number;
}

interface Waiting {
  header: FrameHeader;
  schema: Schema;
  payload: Uint8Array<ArrayBuffer>;
  received: number;
}

export class LivePicture {
  readonly shown = new Store<Shown | null>(null);
  readonly counters = new Store<Counters>({ shown: 0, dropped: 0, fps: 0, latencyMs: null, encoding: "", bytes: 0 });
  readonly histogram = new Store<Histogram | null>(null);
  readonly ended = new Store<{ reason: string; message: string } | null>(null);
  readonly problem = new Store("");

  private canvas: HTMLCanvasElement | null = null;
  private view: ViewHandle | null = null;
  private schema: Schema | null = null;
  private waiting: Waiting | null = null;
  private painting = false;
  private frozen = false;
  private samples: { data: Samples; scale: Scale; schema: Schema; header: FrameHeader; rows: number; columns: number } | null = null;
  private pixels: ImageData | null = null;
  private paintTimes: number[] = [];
  private shownCount = 0;
  private droppedCount = 0;
  private latency: number | null = null;
  private lastHistogram = 0;
  private lastCount = 0;
  contrast: Contrast = { kind: "display" };
  colourMap: ColourMap = "gray";

  constructor(readonly number: number) {}

  attach(canvas: HTMLCanvasElement | null): void {
    this.canvas = canvas;
    if (canvas) this.repaint();
  }

  /** Shows a topic from now on; null: none. */
  follow(topic: Topic | null, encoding: Encoding): void {
    const other = JSON.stringify(topic ? [topic.parent, topic.product] : null) !== JSON.stringify(this.view ? [this.view.topic.parent, this.view.topic.product] : null);
    this.view?.close();
    this.view = null;
    this.schema = null;
    this.waiting = null;
    this.ended.set(null);
    if (other) {
      this.shownCount = this.droppedCount = 0;
      this.paintTimes = [];
      this.latency = null;
      this.count(0, true);
    }
    if (!topic) return;
    this.view = connection.show(this.number, topic, encoding, MOST_RATE_HZ, {
      schema: (schema) => (this.schema = schema),
      frame: (header, payload, received) => this.frame(header, payload, received),
      ended: (reason, message) => this.ended.set({ reason, message }),
    });
  }

  get topic(): Topic | null {
    return this.view?.topic ?? null;
  }

  freeze(frozen: boolean): void {
    this.frozen = frozen;
    if (!frozen) this.schedule();
  }

  private frame(header: FrameHeader, payload: Uint8Array<ArrayBuffer>, received: number): void {
    if (!this.schema) return;
    this.droppedCount += header.dropped;
    if (this.waiting) this.droppedCount++; // it is never painted
    this.waiting = { header, schema: this.schema, payload, received };
    this.schedule();
  }

  private schedule(): void {
    if (this.painting || this.frozen || !this.waiting) return;
    this.painting = true;
    requestAnimationFrame(() => void this.next());
  }

  private async next(): Promise<void> {
    const frame = this.waiting;
    const view = this.view;
    this.waiting = null;
    try {
      if (!frame || !view) return;
      if (this.frozen) {
        this.waiting = frame;
        return;
      }
      const scale = scaleOf(frame.schema);
      let [rows, columns] = frame.schema.shape;
      let data: Samples;
      if (frame.header.jpeg) ({ samples: data, rows, columns } = await jpeg(frame.payload));
      else data = raw(frame.schema, frame.payload);
      this.samples = { data, scale, schema: frame.schema, header: frame.header, rows, columns };
      const now = performance.now();
      if (now - this.lastHistogram >= HISTOGRAM_MS || !this.histogram.value) this.measure(now);
      this.repaint();
      const painted = performance.now();
      this.shownCount++;
      this.paintTimes.push(painted);
      const server = frame.header.server_us;
      if (server !== null) {
        const ms = (server + frame.header.bridge_us) / 1000 + connection.link.value.rtt_ms / 2 + (painted - frame.received);
        this.latency = this.latency === null ? ms : 0.8 * this.latency + 0.2 * ms;
      }
      this.problem.set("");
      view.acknowledge(frame.header.sequence, painted - frame.received);
      this.count(frame.payload.length, false);
    } catch (error) {
      this.problem.set((error as Error).message);
      if (frame && view) view.acknowledge(frame.header.sequence, performance.now() - frame.received);
    } finally {
      this.painting = false;
      this.schedule();
    }
  }

  private measure(now: number): void {
    const { data, scale, schema } = this.samples!;
    this.lastHistogram = now;
    this.histogram.set(histogram(data, scale, rangeOf(schema, data)));
  }

  /** The window of the present contrast, in stored units. */
  private window(): Interval {
    const { schema } = this.samples!;
    const contrast = this.contrast;
    if (contrast.kind === "fixed") return contrast.window;
    if (contrast.kind === "percentiles" || !schema.display) {
      const [lo, hi] = contrast.kind === "percentiles" ? [contrast.lo, contrast.hi] : [1, 99.8];
      return percentiles(this.histogram.value!, lo, hi);
    }
    return schema.display;
  }

  /** Paints what there is once more, with the present contrast and colours. */
  repaint(): void {
    const canvas = this.canvas;
    if (!this.samples || !canvas) return;
    const { data, scale, schema, header, rows, columns } = this.samples;
    if (!this.histogram.value) this.measure(performance.now());
    const window = this.window();
    if (canvas.width !== columns || canvas.height !== rows || !this.pixels || this.pixels.width !== columns || this.pixels.height !== rows) {
      [canvas.width, canvas.height] = [columns, rows];
      this.pixels = new ImageData(columns, rows);
    }
    paint(data, scale, window, this.colourMap, new Uint32Array(this.pixels.data.buffer));
    canvas.getContext("2d")!.putImageData(this.pixels, 0, 0);
    canvas.dataset.sequence = String(header.sequence);
    this.shown.set({ schema, header, window, rows, columns });
  }

  private count(bytes: number, now: boolean): void {
    const time = performance.now();
    if (!now && time - this.lastCount < COUNT_MS) return;
    this.lastCount = time;
    this.paintTimes = this.paintTimes.filter((at) => time - at <= RATE_SPAN_MS);
    const span = this.paintTimes.length > 1 ? time - this.paintTimes[0] : 0;
    this.counters.set({
      shown: this.shownCount,
      dropped: this.droppedCount,
      fps: span > 0 ? ((this.paintTimes.length - 1) / span) * 1000 : 0,
      latencyMs: this.latency,
      encoding: this.samples?.schema.encoding ?? "",
      bytes,
    });
  }

  /** The counters fall to rest where no frames come. */
  tick(): void {
    this.count(this.counters.value.bytes, false);
  }

  /** The samples that are shown, for a snapshot and for the value below the pointer. */
  valueAt(row: number, column: number): number | null {
    const now = this.samples;
    if (!now || row < 0 || column < 0 || row >= now.rows || column >= now.columns) return null;
    const stored = now.scale.offset + now.data[row * now.columns + column] * now.scale.step;
    return now.schema.offset + stored * now.schema.step;
  }
}
