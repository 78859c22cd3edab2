// What a volume's numbers are: of its coarsest level, read as they are. Contrast and coding follow from it.
import type { Interval } from "../../wire/protocol";
import { type Histogram, histogram, percentiles } from "../live/samples";
import type { Mode } from "./graphics";
import type { Numbers } from "./voxels";

export interface Survey {
  values: Numbers;
  shape: number[];
  range: Interval; // of the finite values
}

export function surveyOf(values: Numbers, shape: number[], dtype: string): Survey {
  if (dtype === "U8" || dtype === "I8") return { values, shape, range: dtype === "U8" ? { lo: 0, hi: 255 } : { lo: -128, hi: 127 } };
  let [lo, hi] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < lo && value > -Infinity) lo = value;
    if (value > hi && value < Infinity) hi = value;
  }
  if (hi > lo) return { values, shape, range: { lo, hi } };
  // Equal values everywhere, or none that is finite.
  const only = Number.isFinite(lo) ? lo : 0;
  return { values, shape, range: { lo: only, hi: only + Math.max(1, Math.abs(only) * 1e-3) } };
}

export const union = (a: Interval, b: Interval): Interval => ({ lo: Math.min(a.lo, b.lo), hi: Math.max(a.hi, b.hi) });

const scale = { offset: 0, step: 1 };
const binned = (values: Numbers, range: Interval) => histogram(values, scale, range);

export const histogramOf = (survey: Survey, range: Interval): Histogram => binned(survey.values, range);

/** The projection along one axis of the shape: the largest, or the mean of what is a number. */
function projected({ values, shape }: Survey, axis: number, mean: boolean): Float64Array {
  const inner = shape.slice(axis + 1).reduce((a, b) => a * b, 1);
  const outer = shape.slice(0, axis).reduce((a, b) => a * b, 1);
  return Float64Array.from({ length: inner * outer }, (_, at) => {
    const first = Math.floor(at / inner) * inner * shape[axis] + (at % inner);
    let [most, sum, number] = [NaN, 0, 0];
    for (let i = 0; i < shape[axis]; i++) {
      const value = values[first + i * inner];
      if (Number.isNaN(value)) continue;
      if (!(value <= most)) most = value;
      sum += value;
      number++;
    }
    return mean ? sum / number : most;
  });
}

/** The window that shows a mode well. `axis`: z, in the shape. */
export function automatic(survey: Survey, range: Interval, mode: Mode, axis: number): Interval {
  const voxels = binned(survey.values, range);
  if (mode === "shaded" || mode === "cut") return percentiles(voxels, 50, 99.9);
  if (mode === "slices") return percentiles(voxels, 1, 99.9);
  // Of the projection; but not so dark that the slices beside it show nothing.
  const projection = percentiles(binned(projected(survey, axis, mode === "average"), range), 1, 99.8);
  return { lo: (projection.lo + Math.min(projection.lo, percentiles(voxels, 50, 99.9).lo)) / 2, hi: projection.hi };
}
