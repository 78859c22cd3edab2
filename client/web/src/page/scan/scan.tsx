// Scan: a form for a scan, planned by the server while it is filled in, and the scans that run.
import { useRef, useState } from "preact/hooks";

import { call, CallError, connection } from "../connection";
import { shortName } from "../format";
import { running } from "../live/scan_select";
import { requestId } from "../parts/request_id";
import { say, tell } from "../parts/toasts";
import { useReadOnly } from "../rights";
import { Store, useStore } from "../store";
import { applies, type Field, fieldOf, GROUPS, specOf, START, type Values } from "./fields";
import { PlanView, usePlan, WaveformPlot } from "./plan";
import { Running } from "./running";
import { forget, keep, saved } from "./saved";

const DOUBLE_CLICK_MS = 600; // the second click of one is no second scan

// The form stays as it is when another page is looked at.
const form = new Store<{ values: Values; further: string }>({ values: START, further: "" });

export function Scan() {
  const { values, further } = useStore(form);
  const scans = [...useStore(connection.scans).values()].filter(running);
  const whyReadOnly = useReadOnly();
  const readOnly = whyReadOnly !== "";
  const [refused, setRefused] = useState<CallError | null>(null);
  const [busy, setBusy] = useState(false);
  const sending = useRef(false); // at once, while `busy` is of the next picture
  const { spec, errors } = specOf(values, further);
  const complete = Object.keys(errors).length === 0;
  const { plan, error } = usePlan(complete ? spec : null);
  // What the server says belongs to its field; what is about none of the form is told below it.
  const answer = refused ?? error;
  const at = answer ? fieldOf(answer.field) : "";
  const told: Record<string, string> = answer && at ? { ...errors, [at]: answer.message } : errors;

  const set = (path: string, value: string) => {
    setRefused(null);
    form.set({ ...form.value, values: { ...form.value.values, [path]: value } }); // of now: several fields may change before the next picture
  };
  const submit = async () => {
    if (sending.current) return;
    sending.current = true;
    setBusy(true);
    const rested = new Promise((resolve) => setTimeout(resolve, DOUBLE_CLICK_MS));
    try {
      const { scan } = await call("ScanService/SubmitScan", { spec, request_id: requestId() });
      say(`Scan ${shortName(scan.name)} is submitted`);
      setRefused(null);
    } catch (problem) {
      setRefused(problem as CallError);
      if (!(problem as CallError).field) tell((problem as Error).message);
    } finally {
      await rested;
      sending.current = false;
      setBusy(false);
    }
  };
  return (
    <div class="scan-page">
      {scans.map((scan) => <Running key={scan.name} scan={scan} readOnly={readOnly} />)}
      <form class="columns" onSubmit={(event) => (event.preventDefault(), void submit())} noValidate>
        <div class="groups">
          {GROUPS.map((group) => (
            <fieldset key={group.text}>
              <legend>{group.text}</legend>
              {group.fields.filter((field) => applies(field, values)).map((field) => <Input key={field.path} field={field} value={values[field.path] ?? ""} error={told[field.path] ?? ""} set={(value) => set(field.path, value)} />)}
            </fieldset>
          ))}
          <fieldset>
            <legend>Further fields</legend>
            <label class="wide" for="further">Fields of ScanSpec as JSON; they win over the form</label>
            <textarea id="further" rows={4} spellcheck={false} value={further} aria-invalid={errors.further !== undefined} aria-describedby="further-problem" placeholder={'{"queue": {"name": "night"}}'} onInput={(event) => (setRefused(null), form.set({ ...form.value, further: event.currentTarget.value }))} />
            <p id="further-problem" class="problem" role="alert">{errors.further ?? ""}</p>
          </fieldset>
        </div>
        <aside class="panel" aria-label="Plan">
          <h2>Plan</h2>
          {plan ? <PlanView plan={plan} /> : <p class="note">{complete ? (answer ? "" : "…") : "Fill in what is needed."}</p>}
          {answer && !at && <p class="problem" role="alert">{answer.message}</p>}
          {plan && <WaveformPlot spec={spec} />}
          {readOnly ? <p class="note">{whyReadOnly}</p> : <button type="submit" class="primary" disabled={!complete || busy}>Start the scan</button>}
          <SavedSpecs values={values} further={further} />
        </aside>
      </form>
    </div>
  );
}

function Input({ field, value, error, set }: { field: Field; value: string; error: string; set: (value: string) => void }) {
  const id = `field-${field.path.replaceAll(".", "-")}`;
  const common = { id, "data-path": field.path, "aria-invalid": error !== "", "aria-describedby": `${id}-told`, required: field.required };
  return (
    <div class="field">
      <label for={id}>{field.text}{field.required ? " *" : ""}</label>
      <span class="input">
        {field.kind === "choice" ? (
          <select {...common} value={value} onChange={(event) => set(event.currentTarget.value)}>
            {!field.required && <option value="">{field.otherwise}</option>}
            {field.choices!.map(([word, text]) => <option key={word} value={word}>{text}</option>)}
          </select>
        ) : field.kind === "check" ? (
          <input {...common} type="checkbox" checked={value === "true"} onChange={(event) => set(event.currentTarget.checked ? "true" : "")} />
        ) : (
          <input {...common} type="text" inputMode={field.kind === "number" ? "decimal" : "text"} value={value} placeholder={field.otherwise ?? ""} spellcheck={false} onInput={(event) => set(event.currentTarget.value)} />
        )}
        {field.unit && <span class="dim">{field.unit}</span>}
      </span>
      <p id={`${id}-told`} class={error ? "problem" : "help"} role={error ? "alert" : undefined}>{error || field.help || ""}</p>
    </div>
  );
}

function SavedSpecs({ values, further }: { values: Values; further: string }) {
  const all = useStore(saved);
  const [name, setName] = useState("");
  const names = Object.keys(all).sort();
  return (
    <div class="saved">
      <h3>Saved in this browser</h3>
      {names.map((one) => (
        <div key={one} class="row">
          <span class="name">{one}</span>
          <span class="gap" />
          <button type="button" onClick={() => form.set(all[one])} aria-label={`Load ${one}`}>Load</button>
          <button type="button" onClick={() => forget(one)} aria-label={`Remove ${one}`}>Remove</button>
        </div>
      ))}
      <div class="row">
        <input type="text" value={name} aria-label="Name to save the form as" placeholder="name" onInput={(event) => setName(event.currentTarget.value)} />
        <button type="button" disabled={name.trim() === ""} onClick={() => (keep(name.trim(), { values, further }), setName(""))}>{Object.hasOwn(all, name.trim()) ? "Replace" : "Save"}</button>
      </div>
    </div>
  );
}
