// The samples of a frame: from bytes to numbers, to a histogram, and to pixels.
import type { Interval, Schema } from "../../wire/protocol";
import { type ColourMap, table } from "./colour_maps";

export type Samples = Uint8Array | Int8Array | Uint16Array | Int16Array | Uint32Array | Int32Array | Float32Array | Float64Array;

const TYPES: Record<string, new (buffer: ArrayBuffer) => Samples> = {
  U8: Uint8Array, I8: Int8Array, U16: Uint16Array, I16: Int16Array, U32: Uint32Array, I32: Int32Array, F32: Float32Array,
};

/** Numbers of a raw payload. It is copied: the bytes of a message do not begin at a multiple of the size of a number. */
export function raw(schema: Schema, payload: Uint8Array<ArrayBuffer>): Samples {
  const Type = TYPES[schema.dtype];
  if (!Type) throw new Error(`this page does not show samples of type ${schema.dtype}`);
  return new Type(payload.slice().buffer);
}

let scratch: OffscreenCanvas | null = null;

/** Grey levels of a JPEG, and its size. */
export async function jpeg(payload: Uint8Array<ArrayBuffer>): Promise<{ samples: Uint8Array; rows: number; columns: number }> {
  const picture = await createImageBitmap(new Blob([payload], { type: "image/jpeg" }));
  const { width, height } = picture;
  if (!scratch || scratch.width !== width || scratch.height !== height) scratch = new OffscreenCanvas(width, height);
  const context = scratch.getContext("2d", { willReadFrequently: true })!;
  context.drawImage(picture, 0, 0);
  picture.close();
  const pixels = new Uint32Array(context.getImageData(0, 0, width, height).data.buffer);
  return { samples: Uint8Array.from(pixels, (pixel) => pixel & 255), rows: height, columns: width };
}

/** Whether values follow from the samples. Of the grey levels of a JPEG they do only if it says what black and white are. */
export const hasValues = (schema: Schema) => schema.encoding !== "JPEG" || schema.display !== null;

/** How the stored units of a sample follow from it: the identity, but of the grey levels of a JPEG. Without values its units are the grey levels. */
export interface Scale {
  offset: number;
  step: number;
}
export function scaleOf(schema: Schema): Scale {
  if (schema.encoding !== "JPEG" || !schema.display) return { offset: 0, step: 1 };
  return { offset: schema.display.lo, step: (schema.display.hi - schema.display.lo) / 255 };
}

const BINS = 256;

export interface Histogram {
  range: Interval; // in stored units, of the first bin's start and the last one's end
  counts: Uint32Array;
  total: number;
}

/** The range of a histogram that does not jump with the data: of the type, or around what is shown. */
export function rangeOf(schema: Schema, samples: Samples): Interval {
  if (schema.encoding === "JPEG" && schema.display) return schema.display;
  if (schema.encoding === "JPEG" || schema.dtype === "U8") return { lo: 0, hi: 255 };
  let [lo, hi] = schema.display ? [schema.display.lo, schema.display.hi] : [Infinity, -Infinity];
  for (let i = 0; i < samples.length; i += 7) {
    const value = samples[i];
    if (value < lo) lo = value;
    if (value > hi) hi = value;
  }
  return hi > lo ? { lo, hi } : { lo: Number.isFinite(lo) ? lo - 0.5 : 0, hi: Number.isFinite(lo) ? lo + 0.5 : 1 };
}

export function histogram(samples: Samples, scale: Scale, range: Interval): Histogram {
  const counts = new Uint32Array(BINS);
  const factor = (BINS * scale.step) / (range.hi - range.lo);
  const shift = ((scale.offset - range.lo) / (range.hi - range.lo)) * BINS;
  let total = 0;
  for (let i = 0; i < samples.length; i++) {
    const bin = Math.floor(samples[i] * factor + shift);
    if (!(bin >= 0)) continue; // NaN, too
    counts[bin < BINS ? bin : BINS - 1]++;
    total++;
  }
  return { range, counts, total };
}

/** The values below which these percentages of the samples lie. */
export function percentiles(of: Histogram, lo: number, hi: number): Interval {
  const width = (of.range.hi - of.range.lo) / BINS;
  const at = (percent: number) => {
    let left = (percent / 100) * of.total;
    for (let bin = 0; bin < BINS; bin++) {
      if (left <= of.counts[bin] && of.counts[bin] > 0) return of.range.lo + (bin + left / of.counts[bin]) * width;
      left -= of.counts[bin];
    }
    return of.range.hi;
  };
  const [a, b] = [at(lo), at(hi)];
  return b > a ? { lo: a, hi: b } : { lo: a, hi: a + width };
}

/** Paints the samples: `window` (stored units) from the darkest to the brightest colour. */
export function paint(samples: Samples, scale: Scale, window: Interval, map: ColourMap, pixels: Uint32Array): void {
  const colours = table(map);
  const factor = (255 * scale.step) / (window.hi - window.lo);
  const shift = ((scale.offset - window.lo) / (window.hi - window.lo)) * 255 + 0.5;
  const colour = (value: number) => {
    const level = value * factor + shift;
    return colours[level >= 256 ? 255 : level >= 0 ? level | 0 : 0]; // NaN is dark
  };
  if (samples.BYTES_PER_ELEMENT === 1) {
    const low = samples instanceof Int8Array ? -128 : 0;
    const all = Uint32Array.from({ length: 256 }, (_, i) => colour(i + low));
    for (let i = 0; i < pixels.length; i++) pixels[i] = all[samples[i] - low];
  } else {
    for (let i = 0; i < pixels.length; i++) pixels[i] = colour(samples[i]);
  }
}
