// A job to be submitted: what the server would do, before anybody agrees.
import { useState } from "preact/hooks";

import { call, type CallError } from "../connection";
import { began } from "../held/endings";
import { Dialog } from "../parts/dialog";
import { requestId } from "../parts/request_id";
import { say } from "../parts/toasts";
import { PlanView, usePlan } from "../scan/plan";
import { SERIES_LABELS, seriesProblem, type SeriesProblem, type SeriesText, seriesTextOf, withoutSeries, withSeries } from "./job_specs";

const MOST_EDITED = 100_000; // letters of JSON that a text field takes well

type Spec = { [key: string]: unknown };

/** @param note what is special about it */
export function SubmitDialog(props: { title: string; spec: Spec; note?: string; close: () => void }) {
  const [title, setTitle] = useState(String(props.spec.title ?? ""));
  const [series, setSeries] = useState(() => seriesTextOf(props.spec));
  const [text, setText] = useState(() => JSON.stringify({ ...withoutSeries(props.spec), title: undefined }, null, 1));
  const [edited, setEdited] = useState(false);
  const [refused, setRefused] = useState("");
  const [busy, setBusy] = useState(false);
  const { spec, problem } = parsed(edited ? text : null, props.spec, title, series);
  const { plan, error, current } = usePlan(spec, "JobService/PlanJob");
  const wrong = refused || problem || error?.message || "";
  const submit = async () => {
    if (!spec || !plan || !current || busy) return;
    setBusy(true);
    try {
      const { job } = await call("JobService/SubmitJob", { spec, request_id: requestId() });
      began(job.name.replace(/^jobs/, "operations"));
      say(`${title || "The job"} is queued`);
      props.close();
      location.hash = `#${job.name}`;
    } catch (told) {
      setRefused((told as CallError).message);
    } finally {
      setBusy(false);
    }
  };
  const change = (next: string) => (setEdited(true), setRefused(""), setText(next));
  return (
    <Dialog title={props.title} close={props.close} submit={() => void submit()} actions={<button type="submit" class="primary" disabled={!plan || !current || busy || !spec}>Submit the job</button>}>
      {props.note && <p class="note">{props.note}</p>}
      <label class="field">Title <input type="text" value={title} autofocus onInput={(event) => (setRefused(""), setTitle(event.currentTarget.value))} /></label>
      {series && <SeriesFields series={series} wrong={seriesProblem(series)} change={(next) => (setRefused(""), setSeries(next))} />}
      <details>
        <summary>Fields of JobSpec as JSON</summary>
        {text.length > MOST_EDITED ? <p class="note">They are {Math.round(text.length / 1000)} k letters long: too many to be edited here.</p> : (
          <textarea rows={10} spellcheck={false} value={text} aria-label="Fields of JobSpec as JSON" aria-invalid={problem !== ""} aria-describedby="job-problem" onInput={(event) => change(event.currentTarget.value)} />
        )}
      </details>
      {plan ? <PlanView plan={plan} of="job" /> : <p class="note" role="status">{wrong ? "" : "The server plans it …"}</p>}
      <p id="job-problem" class="problem" role="alert">{wrong}</p>
    </Dialog>
  );
}

/** Several volumes of a window of projections each, or one of all. */
function SeriesFields({ series, wrong, change }: { series: SeriesText; wrong: SeriesProblem | null; change: (next: SeriesText) => void }) {
  const part = (member: keyof SeriesText, otherwise: string) => (
    <input type="text" inputMode="numeric" value={series[member]} placeholder={otherwise} aria-label={SERIES_LABELS[member]} aria-invalid={wrong?.field === member} aria-describedby="job-problem"
      onInput={(event) => change({ ...series, [member]: event.currentTarget.value })} />
  );
  return (
    <div class="field series">
      <span class="dim">Series</span>
      <span class="row">{part("projections", "all")} projections a volume, one every {part("step", series.projections.trim() || "–")}</span>
    </div>
  );
}

function parsed(text: string | null, given: Spec, title: string, series: SeriesText | null): { spec: Spec | null; problem: string } {
  let spec = given;
  if (text !== null) {
    try {
      spec = JSON.parse(text) as Spec;
      if (typeof spec !== "object" || spec === null || Array.isArray(spec)) throw new Error("it is no object");
    } catch (error) {
      return { spec: null, problem: `no JSON: ${(error as Error).message}` };
    }
  }
  if (!series || !spec.tomography) return { spec: { ...spec, title }, problem: "" };
  if (text !== null && (spec.tomography as Spec).series) return { spec: null, problem: "tomography.series is in the JSON; allowed is the field Series" };
  const wrong = seriesProblem(series);
  return wrong ? { spec: null, problem: wrong.text } : { spec: { ...withSeries(spec, series), title }, problem: "" };
}
