// The curve of a job: the residual after each iteration, or what a search maximises.
import type { JobStep } from "../../wire/protocol";
import type { Curve } from "../parts/plot";

const RESIDUAL = "norm of the residual";
const LOGARITHMIC_FROM = 20; // ratio of the largest to the smallest value
const SEARCHES: Record<string, string> = { SWEEP: "coarse search", REFINE: "finer search" };

/** Null if no step had a value. */
export function curveOf(steps: JobStep[]): Curve | null {
  const valued = steps.filter((step) => step.value !== null);
  if (valued.length === 0) return null;
  const stages = [...new Set(valued.map((step) => step.stage))];
  const search = stages.some((stage) => stage in SEARCHES);
  // Steps count within their stage: of several stages one goes on behind the other.
  const x = Float64Array.from(valued, (step, i) => (stages.length === 1 && isRising(valued) ? step.step : i + 1));
  const lines = stages.map((stage) => ({ text: SEARCHES[stage] ?? RESIDUAL, values: Float64Array.from(valued, (step) => (step.stage === stage ? step.value! : NaN)) }));
  const values = valued.map((step) => step.value!);
  const [lo, hi] = [Math.min(...values), Math.max(...values)];
  return {
    x, xText: search ? "trial" : "iteration", yText: search ? "sharpness" : RESIDUAL, lines, marked: null, top: null, grows: true, counts: true,
    logarithmic: !search && lo > 0 && hi / lo > LOGARITHMIC_FROM,
  };
}

const isRising = (steps: JobStep[]) => steps.every((step, i) => i === 0 || step.step > steps[i - 1].step);
