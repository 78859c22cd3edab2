// The scans that run: stop, cancel, and the dispersion while they do.
import { useEffect, useRef, useState } from "preact/hooks";

import type { ScanRow } from "../../wire/protocol";
import { call } from "../connection";
import { shortName } from "../format";
import { ScanFigures } from "../live/scan_figures";
import { Dialog } from "../parts/dialog";
import { say, tell } from "../parts/toasts";
import { useOwner } from "../rights";

const SEND_MS = 150;
const STEPS = 400;
const SPANS = { a2: 2e-4, a3: 1e-6 }; // of a slider to either side, at first

interface Dispersion {
  a2: number;
  a3: number;
}

export function Running({ scan, readOnly }: { scan: ScanRow; readOnly: boolean }) {
  const [asking, setAsking] = useState(false);
  const owner = useOwner(scan);
  const act = (method: string, done: string) => call(`ScanService/${method}`, { name: scan.name }).then(() => say(done), (error: Error) => tell(error.message));
  return (
    <section class="panel running" aria-label={`Scan ${scan.title || shortName(scan.name)}`}>
      <header class="row">
        <h2>{scan.title || "untitled"} <span class="dim">{shortName(scan.name)}</span>{owner && <span class="owner"> of {owner}</span>}</h2>
        <ScanFigures scan={scan} />
        <span class="gap" />
        {!readOnly && <button type="button" onClick={() => void act("StopScan", "The scan stops at the end of its volume")}>Stop</button>}
        {!readOnly && <button type="button" class="danger" onClick={() => setAsking(true)}>Cancel…</button>}
      </header>
      {!readOnly && <DispersionSliders scan={scan.name} />}
      {asking && (
        <Dialog title="Cancel the scan?" safe no="Let it run" close={() => setAsking(false)} submit={() => (setAsking(false), void act("CancelScan", "The scan is cancelled"))} actions={<button type="submit" class="danger">Cancel the scan</button>}>
          <p>It ends at once; the volume that is being acquired is lost. Complete volumes stay held. “Stop” ends it with the volume.</p>
        </Dialog>
      )}
    </section>
  );
}

/** Changes take effect at the next volume; no record is lost. */
function DispersionSliders({ scan }: { scan: string }) {
  const [value, setValue] = useState<Dispersion | null>(null);
  const [span, setSpan] = useState(SPANS);
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  useEffect(() => {
    call("ScanService/GetScan", { name: scan }).then(
      (answer) => {
        const { a2 = 0, a3 = 0 } = answer.scan.spec?.processing?.dispersion ?? {};
        setValue({ a2, a3 });
        setSpan({ a2: Math.max(SPANS.a2, 2 * Math.abs(a2)), a3: Math.max(SPANS.a3, 2 * Math.abs(a3)) });
      },
      () => {}, // it has just ended
    );
  }, [scan]);
  if (!value) return null;
  const change = (next: Dispersion) => {
    setValue(next);
    if (timer.current) clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      call("ScanService/UpdateScan", { name: scan, processing: { dispersion: next }, update_mask: { paths: ["dispersion"] } }).catch((error: Error) => tell(error.message));
    }, SEND_MS);
  };
  return (
    <div class="row">
      {(["a2", "a3"] as const).map((key) => (
        <label key={key} class="plane">dispersion {key}
          <input type="range" min={-span[key]} max={span[key]} step={span[key] / STEPS} value={value[key]} aria-valuetext={`${value[key].toExponential(2)} rad/sample${key === "a2" ? "²" : "³"}`} onInput={(event) => change({ ...value, [key]: Number(event.currentTarget.value) })} />
          <output>{value[key].toExponential(2)} rad/sample{key === "a2" ? "²" : "³"}</output>
        </label>
      ))}
    </div>
  );
}
