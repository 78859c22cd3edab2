// What a scan or a job would need, as the server plans it while the form is filled in.
import { useEffect, useRef, useState } from "preact/hooks";

import { call, CallError } from "../connection";
import { bytes, span } from "../format";

const WAIT_MS = 400;

interface Report {
  admitted: boolean;
  device: string;
  wanted_bytes: string;
  free_bytes: string;
  budget_bytes: string;
  advice: string;
  volume_bytes: string;
  volumes_per_second: number;
  time_to_memory_full: { seconds: string } | null;
}
export interface Plan {
  report: Report;
  plan: string;
  warnings: string[];
}

/**
 * The plan of a spec, a moment after it last changed; `error` instead of one that cannot be meant. Until it comes, the one before stays,
 * and `current` is false.
 */
export function usePlan(spec: object | null, method = "ScanService/PlanScan"): { plan: Plan | null; error: CallError | null; current: boolean } {
  const text = JSON.stringify(spec);
  const [state, setState] = useState<{ plan: Plan | null; error: CallError | null; text: string }>({ plan: null, error: null, text: "" });
  useEffect(() => {
    if (!spec) return setState({ plan: null, error: null, text });
    let over = false;
    const timer = setTimeout(() => {
      call(method, { spec }).then(
        (plan: Plan) => over || setState({ plan, error: null, text }),
        (error: CallError) => over || setState({ plan: null, error, text }),
      );
    }, WAIT_MS);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [text]);
  return { ...state, current: state.text === text };
}

export function PlanView({ plan, of = "scan" }: { plan: Plan; of?: "scan" | "job" }) {
  const { report } = plan;
  const [wanted, free, budget, volume] = [report.wanted_bytes, report.free_bytes, report.budget_bytes, report.volume_bytes].map(Number);
  return (
    <div class="plan">
      <p class={report.admitted ? "good" : "problem"} role="status">{report.admitted ? `It fits: ${bytes(wanted)} of ${bytes(free)} free on ${report.device}.` : `It does not fit: ${bytes(wanted)} wanted, ${bytes(free)} free on ${report.device}.`}</p>
      <meter min="0" max={budget} value={Math.min(budget, budget - free + wanted)} high={budget} aria-label={`Device memory with this ${of}`} />
      <dl class="figures">
        {volume > 0 && <div><dt>a volume</dt><dd>{bytes(volume)}</dd></div>}
        {report.volumes_per_second > 0 && <div><dt>rate</dt><dd>{Number(report.volumes_per_second.toPrecision(3))} volumes/s</dd></div>}
        {report.time_to_memory_full && <div><dt>memory is full after</dt><dd>{span(1000 * Number(report.time_to_memory_full.seconds))}</dd></div>}
      </dl>
      {report.advice && <p class="problem">{report.advice}</p>}
      {plan.warnings.map((text) => <p key={text} class="warning">{text}</p>)}
      <details open={of === "job"}>
        <summary>{of === "job" ? "Steps" : "Steps of the chain"}</summary>
        <ol>{plan.plan.trim().split("\n").map((step) => <li key={step}>{step}</li>)}</ol>
      </details>
    </div>
  );
}

/** The path of the beam as a picture, drawn by the server when it is asked for. */
export function WaveformPlot({ spec }: { spec: object }) {
  const [address, setAddress] = useState("");
  const [problem, setProblem] = useState("");
  useEffect(() => () => URL.revokeObjectURL(address), [address]);
  const text = JSON.stringify(spec);
  const latest = useRef(text);
  latest.current = text;
  useEffect(() => {
    setAddress("");
    setProblem("");
  }, [text]);
  const show = async () => {
    try {
      const { png } = (await call("ScanService/PlotWaveform", { spec })) as { png: string };
      if (latest.current !== text) return; // it is of a form that has changed meanwhile
      setAddress(URL.createObjectURL(new Blob([Uint8Array.from(atob(png), (letter) => letter.charCodeAt(0))], { type: "image/png" })));
      setProblem("");
    } catch (error) {
      if (latest.current === text) setProblem((error as Error).message);
    }
  };
  return (
    <div>
      {address ? <img class="waveform" src={address} alt="Positions of the scanner over time, and the path of the beam" /> : <button type="button" onClick={() => void show()}>Plot the waveform</button>}
      {problem && <p class="problem" role="alert">{problem}</p>}
    </div>
  );
}
