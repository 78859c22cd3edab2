// Signal: a record as the digitizer gave it, with what is saturated, and the A-scan that becomes of it.
import { useMemo, useState } from "preact/hooks";

import type { Product, Topic } from "../../wire/protocol";
import { connection } from "../connection";
import { Counters } from "../live/counters";
import { useFollow } from "../live/follow";
import { FramePump } from "../live/frame_pump";
import { ScanFigures } from "../live/scan_figures";
import { chosenScan, emptyText, ScanSelect } from "../live/scan_select";
import { EarlierScan } from "../parts/earlier_run";
import { Plot } from "../parts/plot";
import { Store, useStore } from "../store";
import { type Trace, traceOf } from "./trace";

const SPECTRUM_VIEW = 3;
const ASCAN_VIEW = 4;
const WIDTH = 512; // without effect on records

export function Signal() {
  const scans = useStore(connection.scans);
  const [choice, setChoice] = useState("");
  const [column, setColumn] = useState(-1);
  const [frozen, setFrozen] = useState(false);
  const [form, setForm] = useState<Product>("SPECTRUM");
  const scan = chosenScan(scans, choice);
  const columns = scan && scan.shape.length === 2 ? scan.shape[1] : 0;
  const topic = (product: Product): Topic | null => (scan && !scan.earlier_run ? { parent: scan.name, product, axis: "Z", index: column < columns ? column : -1, slab: null, width: WIDTH } : null);
  return (
    <div class="live">
      <div class="bar row">
        <ScanSelect scans={scans} scan={scan} choice={choice} choose={setChoice} />
        <label class="plane">column x
          <input type="range" min="-1" max={Math.max(0, columns - 1)} value={Math.min(column, columns - 1)} disabled={columns === 0} aria-valuetext={column < 0 ? "any" : `x = ${column} of ${columns}`} onInput={(event) => setColumn(Number(event.currentTarget.value))} />
          <output>{column < 0 ? "any" : `${column} of ${columns}`}</output>
        </label>
        <button type="button" class="freeze" aria-pressed={frozen} onClick={() => setFrozen(!frozen)} title="Keep the lines that are shown now">Freeze</button>
        <span class="gap" />
        {scan && <ScanFigures scan={scan} />}
      </div>
      {scan && <EarlierScan scan={scan} />}
      <div class="panels stacked">
        <TracePanel id="spectrum" title="Spectrum" view={SPECTRUM_VIEW} topic={topic(form)} empty={emptyText(scan, "record")} frozen={frozen}
          controls={
            <label>Form
              <select value={form} onChange={(event) => setForm(event.currentTarget.value as Product)}>
                <option value="SPECTRUM">as the source delivered it</option>
                <option value="CORRECTED">as the transform gets it</option>
              </select>
            </label>
          } />
        <TracePanel id="ascan" title="A-scan" view={ASCAN_VIEW} topic={topic("ASCAN")} empty={emptyText(scan, "record")} frozen={frozen} />
      </div>
    </div>
  );
}

function TracePanel(props: { id: string; title: string; view: number; topic: Topic | null; empty: string; frozen: boolean; controls?: preact.ComponentChildren }) {
  const trace = useMemo(() => new Store<Trace | null>(null), []);
  const pump = useMemo(() => new FramePump(props.view, (frame) => trace.set(traceOf(frame)), () => trace.set(null)), []);
  const now = useStore(trace);
  const ended = useStore(pump.ended);
  const problem = useStore(pump.problem);
  useFollow(pump, props.topic, "RAW", props.frozen);
  const text = now ? `${props.title}: ${now.curve.x.length} samples${now.saturatedCount > 0 ? `, ${now.saturatedCount} saturated` : ""}` : props.title;
  return (
    <section class="panel" id={props.id} aria-label={props.title}>
      <header class="row">
        <h2>{props.title}</h2>
        {props.controls}
        <span class="gap" />
        {now?.curve.marked && <span class={now.saturatedCount > 0 ? "problem" : "note"} role="status">{now.saturatedCount === 0 ? "nothing saturated" : now.saturatedCount === 1 ? "1 sample saturated" : `${now.saturatedCount} samples saturated`}</span>}
      </header>
      {now ? <Plot curve={now.curve} label={text} data={{ samples: now.curve.x.length, saturated: now.saturatedCount }} /> : <p class="empty-page">{props.empty}</p>}
      {problem && <p class="problem" role="alert">{problem}</p>}
      <Counters pump={pump} />
      {ended && props.topic && <p class="note" role="status">{ended.reason === "FINISHED" ? "The scan has ended." : ended.message}</p>}
    </section>
  );
}
