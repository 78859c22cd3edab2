// One job: what it does, how it gets on, its picture, and what it left.
import { useMemo, useState } from "preact/hooks";

import type { JobDetails, Topic, VolumeRow } from "../../wire/protocol";
import { call, type CallError, connection, type SeenJob } from "../connection";
import { bytes, shortName, span } from "../format";
import { LivePicture } from "../live/live_picture";
import { Panel } from "../live/panel";
import { spacingOf } from "../live/spacing";
import { useClock } from "../parts/clock";
import { Dialog } from "../parts/dialog";
import { EarlierJob, StateWord } from "../parts/earlier_run";
import { Plot } from "../parts/plot";
import { say, tell } from "../parts/toasts";
import { useOwner } from "../rights";
import { useStore } from "../store";
import { curveOf } from "./job_curve";
import { again, withAxis } from "./job_specs";
import { isAtWork, isRunning, kindOf, progressOf, seriesWords, titleOf, waitOf } from "./job_words";
import { Results } from "./results";
import { SubmitDialog } from "./submit_dialog";
import { TrialAxes } from "./trial_axes";

export const JOB_VIEW = 10;
const WIDTH = 512;
type CutAxis = "Z" | "Y" | "X";

type Asked = { title: string; spec: { [key: string]: unknown }; note: string } | null;

const at = (time: number) => new Date(time).toLocaleString();

/** The spec of a job as the server kept it. */
async function specOf(name: string): Promise<object> {
  const { job } = await call("JobService/GetJob", { name });
  if (!job.spec?.work) throw new Error("the server has dropped the spec of this job, which ended long ago");
  return job.spec;
}

export function Details({ seen, readOnly }: { seen: SeenJob; readOnly: boolean }) {
  const { job, results } = seen;
  const volumes = useStore(connection.volumes);
  const [asked, setAsked] = useState<Asked>(null);
  const [cancelling, setCancelling] = useState(false);
  const [axis, setAxis] = useState<CutAxis>("Z");
  const [plane, setPlane] = useState(-1);
  const curve = useMemo(() => curveOf(seen.steps), [seen.steps]);
  if (seen.gone) return <p class="empty-page" role="alert">{seen.gone}</p>;
  if (!job) return <p class="empty-page" role="status">…</p>;

  const note = [job.pushed ? "Its projections come from a client that pushes them: the new job waits for that." : "", job.session ? "The new job belongs to no session: its volumes stay until somebody decides." : ""].join(" ").trim();
  const ask = (title: string, change: (spec: object) => { [key: string]: unknown }) =>
    specOf(job.name).then((spec) => setAsked({ title, spec: change(spec), note }), (error: CallError) => tell(error.message));
  const choose = readOnly || !job.work ? null : (axis: number) => void ask(`Reconstruct with the axis at column ${Number(axis.toFixed(3))}?`, (spec) => withAxis(spec, axis));
  const cancel = () => {
    setCancelling(false);
    call("JobService/CancelJob", { name: job.name }).then(() => say(`${titleOf(job)} is cancelled`), (error: CallError) => tell(error.message));
  };
  const tomography = job.kind === "TOMOGRAPHY";
  const pictured = !job.earlier_run && ((tomography && isRunning(job)) || job.volumes.length > 0); // the daemon has no pictures of earlier runs
  const result = volumes.get(job.volumes[0]) ?? [...volumes.values()].find((volume) => volume.parent === job.name);
  return (
    <div class="details" data-job={job.name} data-state={job.state}>
      <header class="row">
        <h2 class="long">{titleOf(job)}</h2>
        <StateWord of={job} />
        <span class="gap" />
        {!readOnly && job.work && <button type="button" onClick={() => void ask(`Submit ${titleOf(job)} again?`, again)}>Submit again…</button>}
        {!readOnly && isAtWork(job) && <button type="button" class="danger" disabled={job.state === "CANCELLING"} onClick={() => setCancelling(true)}>Cancel…</button>}
      </header>
      <Facts job={job} />
      <EarlierJob job={job} />
      {["FAILED", "CANCELLED"].includes(job.state) && job.reason && <p class={job.state === "FAILED" ? "problem" : "note"} role={job.state === "FAILED" ? "alert" : undefined}>{job.state === "FAILED" ? "It has failed: " : ""}{job.reason}</p>}
      {job.state === "QUEUED" && <p class="note" role="status">{waitOf(job)}</p>}
      {isRunning(job) && <p><progress class="wide" max="1" value={job.fraction} aria-label={`Progress of ${titleOf(job)}`} /> {progressOf(job)}</p>}
      {job.warnings.length > 0 && <div class="warnings">{job.warnings.map((text) => <p key={text}>{text}</p>)}</div>}
      {results && job.trial && job.state === "DONE" && (
        <section class="panel" aria-label="Trial axes">
          <h2>Trial axes</h2>
          <TrialAxes volume={volumes.get(job.volumes[0])} axes={results.tomography?.centers ?? []} choose={choose} look={setPlane} />
        </section>
      )}
      <div class="panels">
        {curve && (
          <section class="panel" id="curve" aria-label={curve.yText}>
            <h2>{curve.yText[0].toUpperCase() + curve.yText.slice(1)}</h2>
            <Plot curve={curve} label={`${curve.yText} of ${curve.x.length} steps, the last ${Number(curve.lines.at(-1)!.values.at(-1)!.toPrecision(4))}`} data={{ points: curve.x.length }} />
          </section>
        )}
        {pictured && <Slice key={job.name} job={job} tomography={tomography} across={axis} turn={(next) => (setAxis(next), setPlane(-1))} plane={plane} choose={setPlane} volume={result} />}
      </div>
      {results && <Results job={job} results={results} volumes={volumes} choose={choose} />}
      <div class="panels">
        <section class="panel" aria-label="Plan">
          <h2>Plan</h2>
          <ol class="steps">{job.plan.trim().split("\n").filter(Boolean).map((step) => <li key={step}>{step}</li>)}</ol>
        </section>
        <section class="panel" aria-label="Log">
          <h2>Log</h2>
          {seen.lines.length === 0 ? <p class="note">{job.earlier_run ? "It is not kept beyond a run of the server." : "No line yet."}</p> : (
            <ol class="log" tabIndex={0} aria-label={`${Math.max(job.line_count, seen.lines.length)} lines`}>
              {job.line_count > seen.lines.length && <li class="dim">{job.line_count - seen.lines.length} earlier lines are no longer kept</li>}
              {seen.lines.map((line, i) => <li key={job.line_count - seen.lines.length + i}><span class="dim">{(line.ms / 1000).toFixed(1)} s</span> {line.text}</li>)}
            </ol>
          )}
        </section>
      </div>
      {asked && <SubmitDialog {...asked} close={() => setAsked(null)} />}
      {cancelling && (
        <Dialog title={`Cancel ${titleOf(job)}?`} safe no="Let it run" close={() => setCancelling(false)} submit={cancel} actions={<button type="submit" class="danger">Cancel the job</button>}>
          <p>It ends before its next step, frees its memory, and leaves no volume.</p>
        </Dialog>
      )}
    </div>
  );
}

function Facts({ job }: { job: JobDetails }) {
  const now = useClock(1000);
  const labels = Object.entries(job.labels);
  const owner = useOwner(job);
  return (
    <dl class="facts">
      <div><dt>kind</dt><dd>{kindOf(job)}</dd></div>
      <div><dt>name</dt><dd title={job.name}>{shortName(job.name)}</dd></div>
      {job.memory_bytes > 0 && <div><dt>memory</dt><dd>{bytes(job.memory_bytes)}</dd></div>}
      {job.device && <div><dt>on</dt><dd>{job.device}</dd></div>}
      <div><dt>queued</dt><dd>{at(job.created)}</dd></div>
      {job.started > 0 && job.state !== "LOST" && <div><dt>{job.ended ? "ran for" : "runs for"}</dt><dd>{span((job.ended || now) - job.started)}</dd></div>}
      {job.ended > 0 && <div><dt>{job.state === "LOST" ? "found lost" : "ended"}</dt><dd>{at(job.ended)}</dd></div>}
      {job.series && <div><dt>series</dt><dd>{seriesWords(job.series)}</dd></div>}
      {job.priority !== 0 && <div><dt>priority</dt><dd>{job.priority}</dd></div>}
      {job.group && !/^(ipv[46]|unix):/.test(job.group) && <div><dt>group</dt><dd>{job.group}</dd></div>}
      {owner && <div><dt>owner</dt><dd>{owner}</dd></div>}
      {job.session && <div><dt>session</dt><dd>{shortName(job.session)}</dd></div>}
      {labels.map(([key, value]) => <div key={key}><dt>{key}</dt><dd>{value}</dd></div>)}
    </dl>
  );
}

/** The slice as it converges, and of what the job left; planes across y and x of a tomogram, whose voxels are all there. */
function Slice(props: { job: JobDetails; tomography: boolean; across: CutAxis; turn: (axis: CutAxis) => void; plane: number; choose: (plane: number) => void; volume: VolumeRow | undefined }) {
  const { job, tomography, volume } = props;
  const picture = useMemo(() => new LivePicture(JOB_VIEW), []);
  const turns = tomography && !job.trial;
  const axis = turns ? props.across : "Z";
  const cut = axis.toLowerCase();
  const along = tomography && volume ? Math.max(0, volume.axes.indexOf(cut)) : 0;
  const planes = volume?.shape[along] ?? 0;
  const plane = props.plane < 0 ? Math.floor(planes / 2) : Math.min(props.plane, planes - 1);
  const topic: Topic = { parent: job.name, product: "BSCAN", axis: tomography ? axis : "Y", index: planes > 0 && props.plane >= 0 ? plane : -1, slab: null, width: WIDTH };
  const waits = axis !== "Z" && isRunning(job) && !job.pushed; // of those that are pushed the server shows planes across all axes
  return (
    <Panel picture={picture} id="slice" title={!tomography ? "B-scan" : axis === "Z" ? "Slice" : `Plane across ${cut}`} topic={topic} encoding="AUTO" frozen={false} spacing={(shown) => spacingOf(shown, volume)} of="job"
      empty={waits ? "Planes across y and x are shown when the volume is complete." : "No picture yet."}
      about={({ topic: { index } }) => ({ job: job.name, title: job.title, index: index >= 0 ? index : planes > 0 ? Math.floor(planes / 2) : null, planes })} failed={tell}
      controls={
        <>
          {turns && (
            <label>across
              <select value={axis} onChange={(event) => props.turn(event.currentTarget.value as CutAxis)}>
                <option value="Z">z</option>
                <option value="Y">y</option>
                <option value="X">x</option>
              </select>
            </label>
          )}
          {planes > 1 && (
            <label class="plane">{!tomography ? "plane" : job.trial ? "axis" : axis === "Z" ? "slice" : "plane"}
              <input type="range" min="0" max={planes - 1} value={plane} aria-valuetext={`${plane} of ${planes}`} onInput={(event) => props.choose(Number(event.currentTarget.value))} />
              <output>{plane} of {planes}</output>
            </label>
          )}
        </>
      } />
  );
}
