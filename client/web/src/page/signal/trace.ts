// The lines of a record or an A-scan, from its frame.
import type { Schema } from "../../wire/protocol";
import type { Frame } from "../live/frame_pump";
import { raw } from "../live/samples";
import type { Curve } from "../parts/plot";

const MOST_CHANNELS = 4;

export interface Trace {
  curve: Curve; // what is marked are the saturated samples
  saturatedCount: number;
}

/** Values of one channel of the first record: the samples lie along the axis "sample", or along z. */
function channel(schema: Schema, samples: ArrayLike<number>, which: number, channels: number): Float64Array {
  const along = Math.max(0, schema.axes.findIndex((axis) => axis === "sample" || axis === "z"));
  const count = schema.shape[along];
  return Float64Array.from({ length: count }, (_, i) => schema.offset + samples[i * channels + which] * schema.step);
}

export function traceOf({ schema, payload }: Frame): Trace {
  const samples = raw(schema, payload);
  const channels = schema.axes.at(-1) === "channel" ? schema.shape.at(-1)! : 1;
  const lines = Array.from({ length: Math.min(channels, MOST_CHANNELS) }, (_, i) => ({ text: channels > 1 ? `channel ${i}` : schema.unit || "value", values: channel(schema, samples, i, channels) }));
  const length = schema.axes[0] === "z" && schema.spacing_um[0] > 0;
  const step = length ? schema.spacing_um[0] : 1;
  const x = Float64Array.from(lines[0].values, (_, i) => i * step);
  const limits = schema.product === "SPECTRUM" ? schema.saturation : null;
  let saturatedCount = 0;
  const mark = (value: number) => {
    const over = limits !== null && ((limits.hi !== null && value >= limits.hi) || (limits.lo !== null && value <= limits.lo));
    if (over) saturatedCount++;
    return over ? value : NaN;
  };
  const marked = limits ? { text: "saturated", values: lines[0].values.map(mark) } : null;
  const yText = schema.unit ? `value, ${schema.unit}` : "value, stored units";
  const top = schema.product === "SPECTRUM" ? (schema.saturation?.hi ?? null) : null; // that of the digitizer, where it is known
  return { curve: { x, xText: length ? "depth, µm" : "sample", yText, lines, marked, top }, saturatedCount };
}
