// How a scan is getting on.
import type { ScanRow } from "../../wire/protocol";
import { count } from "../format";
import { StateWord } from "../parts/earlier_run";
import { running } from "./scan_select";

export function ScanFigures({ scan }: { scan: ScanRow }) {
  return (
    <dl class="figures" aria-label="Figures of the scan">
      <div><dt>state</dt><dd><StateWord of={scan} /></dd></div>
      {running(scan) && <div><dt>A-scans</dt><dd>{count(scan.records_per_second)}/s</dd></div>}
      {running(scan) && scan.current_volume >= 0 && <div><dt>volume {scan.current_volume}</dt><dd><progress max="1" value={scan.fraction} aria-label={`volume ${scan.current_volume}`} /> {Math.round(100 * scan.fraction)} %</dd></div>}
      <div><dt>done</dt><dd>{scan.volumes_done}</dd></div>
      <div><dt>held</dt><dd>{scan.volumes_held}</dd></div>
      {running(scan) && <div><dt>ring</dt><dd>{Math.round(100 * scan.ring)} %</dd></div>}
      {scan.blocks_dropped > 0 && <div class="warn"><dt>lost blocks</dt><dd>{count(scan.blocks_dropped)}</dd></div>}
    </dl>
  );
}
