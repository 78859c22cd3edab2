// What a job found and left: volumes, a buffer, estimates, the report of a reconstruction.
import { useState } from "preact/hooks";

import type { JobDetails, JobResults, TomographyFindings, VolumeRow } from "../../wire/protocol";
import { bytes, count, inWords, shortName } from "../format";
import { In3d, NameLink } from "../parts/links";
import { type Curve, Plot } from "../parts/plot";

const short = (value: number, digits = 5) => String(Number(value.toPrecision(digits)));
const isGiven = (source: string) => ["GIVEN", "FILE", "MIDDLE"].includes(source);
const SOURCES: Record<string, string> = {
  GIVEN: "given", FILE: "as the file says", MIDDLE: "the middle of the columns", OVERLAP: "from the overlap of both halves", VO: "found by Vo's method", ENTROPY: "found by entropy",
  PHASE_CORRELATION: "found by phase correlation", PAIRS: "found by pairs of opposite projections",
};

const ALGORITHMS: Record<string, string> = { FBP: "filtered back projection (FBP)", FOURIER: "Fourier reconstruction (gridding)", SIRT: "SIRT", MLEM: "MLEM", CGLS: "CGLS", TV: "total variation (TV)" };

export function Results(props: { job: JobDetails; results: JobResults; volumes: ReadonlyMap<string, VolumeRow>; choose: ((axis: number) => void) | null }) {
  const { job, results } = props;
  const { dispersion, k_linearisation: k, tomography, buffer } = results;
  if (job.volumes.length === 0 && !dispersion && !k && !tomography && !buffer) return null;
  return (
    <section class="panel" aria-label="Results">
      <h2>Results</h2>
      {job.volumes.length > 0 && (
        <ul class="plain">
          {job.volumes.map((name) => {
            const volume = props.volumes.get(name);
            return (
              <li key={name} class="row" data-result={name}>
                {volume ? <>volume <NameLink name={name} /> <span class="dim">{volume.shape.join(" × ")}, {inWords(volume.dtype)}, {bytes(volume.bytes)}, {inWords(volume.state)}</span> {!job.trial && <In3d volume={name} />}</> : <span class="dim">volume {shortName(name)}: no longer in memory</span>}
              </li>
            );
          })}
        </ul>
      )}
      {buffer && <p>buffer <code>{buffer}</code></p>}
      {dispersion && (
        <dl class="facts">
          <div><dt>a2</dt><dd>{dispersion.a2.toExponential(4)} rad/sample²</dd></div>
          <div><dt>a3</dt><dd>{dispersion.a3.toExponential(4)} rad/sample³</dd></div>
          <div><dt>sharpness</dt><dd>{short(dispersion.sharpness)}; without {short(dispersion.sharpness_before)}</dd></div>
          <div><dt>pairs tried</dt><dd>{count(dispersion.evaluations)}</dd></div>
        </dl>
      )}
      {k && (
        <dl class="facts">
          <div><dt>polynomial</dt><dd><code>[{k.polynomial.map((value) => short(value, 8)).join(", ")}]</code></dd></div>
          <div><dt>residual</dt><dd>{short(k.residual_rms_rad, 3)} rad rms</dd></div>
          <div><dt>peak</dt><dd>bin {short(k.peak_bin)}</dd></div>
          <div><dt>non-linearity</dt><dd>{short(k.nonlinearity_samples, 3)} samples</dd></div>
        </dl>
      )}
      {tomography && <Report report={tomography} trial={job.trial} choose={props.choose} />}
    </section>
  );
}

function Report({ report, trial, choose }: { report: TomographyFindings; trial: boolean; choose: ((axis: number) => void) | null }) {
  const axis = report.centers[0];
  const trouble: [string, number][] = [["pixels replaced as outliers", report.outliers], ["values that were not finite", report.not_finite], ["transmissions below the floor", report.floored], ["transmissions where the flat field is dark", report.unlit]];
  return (
    <>
      <dl class="facts">
        {report.algorithm in ALGORITHMS && <div><dt>algorithm</dt><dd>{ALGORITHMS[report.algorithm]}</dd></div>}
        {!trial && report.center_count > 0 && (
          <div><dt>rotation axis</dt><dd>{report.center_count === 1 ? `column ${short(axis, 7)}` : `one for each of ${report.center_count} slices`}{report.uncertainty !== null && ` ± ${short(report.uncertainty, 2)}`}, {SOURCES[report.center_source] ?? inWords(report.center_source)}</dd></div>
        )}
        {report.check !== null && <div><dt>checked</dt><dd>column {short(report.check, 7)} by {inWords(report.check_method)}</dd></div>}
        {report.series_planned > 0 && <div><dt>volumes of the series</dt><dd>{count(report.series_volumes)} of {count(report.series_planned)}</dd></div>}
        {report.overlap > 0 && <div><dt>overlap</dt><dd>{short(report.overlap)} columns</dd></div>}
        {report.iterations > 0 && <div><dt>iterations</dt><dd>{count(report.iterations)}{report.stop === "CHANGE" ? ", ended by the small change" : report.stop === "RESIDUAL" ? ", ended by the small residual" : ""}</dd></div>}
        {report.relative_residual !== null && report.iterations > 0 && <div><dt>residual</dt><dd>{report.residual_norm === null ? "" : `${short(report.residual_norm, 4)}, `}{short(100 * report.relative_residual, 3)} % of the first</dd></div>}
        {trouble.filter(([, n]) => n > 0).map(([text, n]) => <div key={text} class="warn"><dt>{text}</dt><dd>{count(n)}</dd></div>)}
      </dl>
      {report.at_edge && <p class="warning">The best axis is at an end of the search.</p>}
      {report.tried.length > 1 && <Scores report={report} />}
      {choose && !trial && !isGiven(report.center_source) && axis !== undefined && <AnotherAxis axis={axis} choose={choose} />}
    </>
  );
}

/** The scores of the axes that a search tried. */
function Scores({ report }: { report: TomographyFindings }) {
  const order = report.tried.map((_, i) => i).sort((a, b) => report.tried[a] - report.tried[b]);
  const greatest = report.center_source === "PHASE_CORRELATION" || report.center_source === "PAIRS";
  const curve: Curve = {
    x: Float64Array.from(order, (i) => report.tried[i]), xText: "axis, column", yText: `score (${greatest ? "greatest" : "least"} is best)`,
    lines: [{ text: "score", values: Float64Array.from(order, (i) => report.scores[i]) }], marked: null, top: null,
  };
  return <Plot key={report.tried.length} curve={curve} label={`Scores of ${report.tried.length} rotation axes`} data={{ points: report.tried.length }} />;
}

function AnotherAxis({ axis, choose }: { axis: number; choose: (axis: number) => void }) {
  const [text, setText] = useState(String(Number(axis.toFixed(3))));
  const value = Number(text);
  const good = text.trim() !== "" && Number.isFinite(value);
  return (
    <div class="row">
      <label>Axis <input type="text" inputMode="decimal" class="narrow" value={text} aria-invalid={!good} onInput={(event) => setText(event.currentTarget.value)} /> column</label>
      <button type="button" disabled={!good} onClick={() => choose(value)}>Reconstruct with this axis…</button>
    </div>
  );
}
