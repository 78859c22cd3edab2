// Jobs as pages get them: the row of a list, the details, and the results. Never the spec, which can
// have 65535 angles: who wants it asks for it (JobService.GetJob).
import { type JobDetails, type JobResults, type JobRow, type JobStep, MOST_CENTERS } from "../wire/protocol";
import { duration, known, ms, without } from "./convert";
import type { Message } from "./daemon";

const MOST_SCORES = 8192;

export function jobRow(job: Message): JobRow {
  return {
    name: job.name,
    title: job.spec?.title ?? "",
    kind: without(job.kind, "JOB_KIND_"),
    state: without(job.state, "JOB_STATE_"),
    reason: job.reason,
    reason_code: without(job.reason_code, "REASON_"),
    created: ms(job.create_time),
    started: ms(job.start_time),
    ended: ms(job.end_time),
    earlier_run: job.earlier_run,
    device: job.device,
    queue_position: job.queue_position,
    memory_bytes: Number(job.memory_bytes),
    stage: without(job.stage, "JOB_STAGE_"),
    fraction: job.fraction,
    step: Number(job.step),
    steps: Number(job.steps),
    eta_ms: duration(job.eta),
    warnings: job.warnings,
    volumes: job.volumes,
    session: job.session,
    owner: job.owner,
    project: job.project,
  };
}

export function jobDetails(job: Message): JobDetails {
  const spec = job.spec ?? {};
  return {
    ...jobRow(job),
    plan: job.plan,
    labels: spec.labels ?? {},
    group: spec.group ?? "",
    priority: spec.priority ?? 0,
    work: job.earlier_run ? "" : spec.work ?? "",
    trial: (spec.tomography?.try_centers ?? null) !== null,
    pushed: (spec.tomography?.push ?? null) !== null,
    series: seriesOf(spec.tomography?.series ?? null),
    step_count: Number(job.step_count),
    line_count: Number(job.log_lines_total),
  };
}

const seriesOf = (series: Message | null) => series && { projections: Number(series.projections), step: Number(series.step) };

export const jobStep = (step: Message): JobStep => ({ stage: without(step.stage, "JOB_STAGE_"), step: Number(step.step), value: known(step.residual_norm) });

export function jobResults(job: Message): JobResults {
  const dispersion = job.dispersion;
  const k = job.k_linearisation;
  return {
    buffer: job.buffer,
    dispersion: dispersion && { a2: dispersion.a2, a3: dispersion.a3, sharpness: dispersion.sharpness, sharpness_before: dispersion.sharpness_before, evaluations: dispersion.evaluations },
    k_linearisation: k && { polynomial: k.polynomial, residual_rms_rad: k.residual_rms_rad, peak_bin: k.peak_bin, nonlinearity_samples: k.nonlinearity_samples },
    tomography: job.tomography && findings(job.tomography),
  };
}

function findings(report: Message): JobResults["tomography"] {
  return {
    algorithm: without(report.algorithm, "ALGORITHM_"),
    centers: report.centers.slice(0, MOST_CENTERS),
    center_count: report.centers.length,
    center_source: without(report.center_source, "CENTER_SOURCE_"),
    tried: report.tried_centers.slice(0, MOST_SCORES),
    scores: report.scores.slice(0, MOST_SCORES),
    at_edge: report.center_at_edge,
    check: known(report.center_check),
    check_method: without(report.center_check_method, "METHOD_"),
    uncertainty: known(report.center_uncertainty),
    iterations: Number(report.iterations),
    stop: without(report.stop, "STOP_"),
    residual_norm: known(report.residual_norm),
    relative_residual: known(report.relative_residual),
    series_volumes: Number(report.series_volumes),
    series_planned: Number(report.series_planned),
    overlap: report.overlap,
    outliers: Number(report.outliers),
    not_finite: Number(report.not_finite),
    floored: Number(report.floored),
    unlit: Number(report.unlit),
  };
}
