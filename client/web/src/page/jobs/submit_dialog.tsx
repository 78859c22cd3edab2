// A job to be submitted: what the server would do, before anybody agrees.
import { useState } from "preact/hooks";

import { call, type CallError } from "../connection";
import { began } from "../held/endings";
import { Dialog } from "../parts/dialog";
import { requestId } from "../parts/request_id";
import { say } from "../parts/toasts";
import { PlanView, usePlan } from "../scan/plan";

const MOST_EDITED = 100_000; // letters of JSON that a text field takes well

type Spec = { [key: string]: unknown };

/** @param note what is special about it */
export function SubmitDialog(props: { title: string; spec: Spec; note?: string; close: () => void }) {
  const [title, setTitle] = useState(String(props.spec.title ?? ""));
  const [text, setText] = useState(() => JSON.stringify({ ...props.spec, title: undefined }, null, 1));
  const [edited, setEdited] = useState(false);
  const [refused, setRefused] = useState("");
  const [busy, setBusy] = useState(false);
  const { spec, problem } = parsed(edited ? text : null, props.spec, title);
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

function parsed(text: string | null, given: Spec, title: string): { spec: Spec | null; problem: string } {
  let spec = given;
  if (text !== null) {
    try {
      spec = JSON.parse(text) as Spec;
      if (typeof spec !== "object" || spec === null || Array.isArray(spec)) throw new Error("it is no object");
    } catch (error) {
      return { spec: null, problem: `no JSON: ${(error as Error).message}` };
    }
  }
  return { spec: { ...spec, title }, problem: "" };
}
