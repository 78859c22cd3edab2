// One live picture: the newest frame as pixels, with the present contrast and colours.
import type { FrameHeader, Interval, Schema, Topic } from "../../wire/protocol";
import { Store } from "../store";
import type { ColourMap } from "./colour_maps";
import { type Frame, FramePump } from "./frame_pump";
import { hasValues, type Histogram, histogram, jpeg, paint, percentiles, rangeOf, raw, type Samples, type Scale, scaleOf } from "./samples";

const HISTOGRAM_MS = 250;

export type Contrast = { kind: "display" } | { kind: "percentiles"; lo: number; hi: number } | { kind: "fixed"; window: Interval };

export interface Shown {
  topic: Topic;
  schema: Schema;
  header: FrameHeader;
  window: Interval;
  rows: number;
  columns: number;
}

interface Picture {
  topic: Topic;
  data: Samples;
  scale: Scale;
  schema: Schema;
  header: FrameHeader;
  rows: number;
  columns: number;
}

export class LivePicture {
  readonly pump: FramePump;
  readonly shown = new Store<Shown | null>(null);
  readonly histogram = new Store<Histogram | null>(null);
  contrast: Contrast = { kind: "display" };
  colourMap: ColourMap = "gray";

  private canvas: HTMLCanvasElement | null = null;
  private picture: Picture | null = null;
  private pixels: ImageData | null = null;
  private lastHistogram = 0;

  constructor(number: number) {
    this.pump = new FramePump(number, (frame) => this.show(frame), () => this.clear());
  }

  attach(canvas: HTMLCanvasElement | null): void {
    this.canvas = canvas;
    if (canvas) this.repaint();
  }

  private async show({ topic, header, schema, payload }: Frame): Promise<void> {
    const scale = scaleOf(schema);
    if (header.jpeg) {
      const { samples, rows, columns } = await jpeg(payload);
      if (!this.pump.follows(topic)) return; // another one was chosen meanwhile
      this.picture = { topic, data: samples, scale, schema, header, rows, columns };
    } else {
      const [rows, columns] = schema.shape;
      this.picture = { topic, data: raw(schema, payload), scale, schema, header, rows, columns };
    }
    const now = performance.now();
    if (now - this.lastHistogram >= HISTOGRAM_MS || !this.histogram.value) this.measure(this.picture, now);
    this.repaint();
  }

  private measure({ data, scale, schema }: Picture, now: number): void {
    this.lastHistogram = now;
    this.histogram.set(histogram(data, scale, rangeOf(schema, data)));
  }

  /** The window of the present contrast, in stored units. */
  private window({ schema }: Picture): Interval {
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
    const { canvas, picture } = this;
    if (!picture || !canvas) return;
    const { topic, data, scale, schema, header, rows, columns } = picture;
    if (!this.histogram.value) this.measure(picture, performance.now());
    const window = this.window(picture);
    if (canvas.width !== columns || canvas.height !== rows) [canvas.width, canvas.height] = [columns, rows];
    if (!this.pixels || this.pixels.width !== columns || this.pixels.height !== rows) this.pixels = new ImageData(columns, rows);
    paint(data, scale, window, this.colourMap, new Uint32Array(this.pixels.data.buffer));
    canvas.getContext("2d")!.putImageData(this.pixels, 0, 0);
    Object.assign(canvas.dataset, { parent: topic.parent, sequence: header.sequence });
    this.shown.set({ topic, schema, header, window, rows, columns });
  }

  /** Forgets the picture: what is shown next is of something else. */
  private clear(): void {
    this.picture = null;
    this.histogram.set(null);
    this.shown.set(null);
  }

  /** The value (not the stored number) of a pixel; null beside the picture, and where a picture has no values. */
  valueAt(row: number, column: number): number | null {
    const now = this.picture;
    if (!now || !hasValues(now.schema) || row < 0 || column < 0 || row >= now.rows || column >= now.columns) return null;
    const stored = now.scale.offset + now.data[row * now.columns + column] * now.scale.step;
    return now.schema.offset + stored * now.schema.step;
  }
}
