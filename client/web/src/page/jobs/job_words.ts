// Words for what a job is, does and waits for.
import type { JobRow, Series } from "../../wire/protocol";
import { count, inWords, span } from "../format";

const KINDS: Record<string, string> = {
  REPROCESS: "reprocessing", DISPERSION_AUTOFOCUS: "dispersion autofocus", K_CALIBRATION: "k-calibration", TOMOGRAPHY: "tomography", IMPORT: "import",
  PROJECTION: "projection",
};
// What it does, and what its steps are.
const STAGES: Record<string, [string, string]> = {
  PROJECTIONS: ["waits for projections", "frames"],
  AXIS: ["searches the axis", "steps"],
  RECONSTRUCT: ["reconstructs", "iterations"],
  REPROCESS: ["processes the spectra", "blocks"],
  SWEEP: ["coarse search", "pairs"],
  REFINE: ["finer search", "pairs"],
  PHASE: ["measures the phase", "records"],
  DERIVE: ["operations after the chain", "operations"],
  IMPORT: ["reads the file", "planes"],
  PREPARE: ["prepares sinograms", "batches"],
  PROJECT: ["projects", "slices"],
};

export const kindOf = (job: JobRow) => KINDS[job.kind] ?? inWords(job.kind);
export const titleOf = (job: JobRow) => job.title || `untitled ${kindOf(job)}`;
export const stageWords = (stage: string) => STAGES[stage]?.[0] ?? (stage ? inWords(stage) : "begins");
export const isAtWork = (job: JobRow) => ["QUEUED", "RUNNING", "CANCELLING"].includes(job.state);
export const isRunning = (job: JobRow) => job.state === "RUNNING" || job.state === "CANCELLING";

/** "reconstructs, iteration 12 of 300, 4 %, 12 s left". */
export function progressOf(job: JobRow): string {
  const [, unit] = STAGES[job.stage] ?? ["", "steps"];
  const parts = [job.state === "CANCELLING" ? "is being cancelled" : stageWords(job.stage)];
  if (job.steps > 0) parts.push(`${count(job.step)} of ${count(job.steps)} ${unit}`);
  else if (job.step > 0) parts.push(`${count(job.step)} ${unit}`);
  parts.push(`${Math.round(100 * job.fraction)} %`);
  if (job.eta_ms !== null && job.state === "RUNNING") parts.push(`${span(job.eta_ms)} left`);
  return parts.join(", ");
}

/** "volumes of 24 projections, one every 12". */
export const seriesWords = (series: Series) => `volumes of ${count(series.projections)} projections, one every ${count(series.step)}`;

/** What a queued job waits for. */
export function waitOf(job: JobRow): string {
  const words = job.reason || inWords(job.reason_code) || "waits for its turn";
  return job.queue_position > 0 ? `${job.queue_position === 1 ? "next" : `number ${job.queue_position}`} in the queue; ${words}` : words;
}
