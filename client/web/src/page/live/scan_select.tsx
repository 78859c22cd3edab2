// Which scan is looked at.
import type { ScanRow } from "../../wire/protocol";
import { shortName } from "../format";
import { stateLine } from "../parts/earlier_run";

export const running = (scan: ScanRow) => ["QUEUED", "RUNNING", "DRAINING"].includes(scan.state);

/** The chosen scan, or else the newest one that runs, or else the newest one. */
export function chosenScan(scans: ReadonlyMap<string, ScanRow>, choice: string): ScanRow | null {
  const all = [...scans.values()].sort((a, b) => b.created - a.created);
  return scans.get(choice) ?? all.find(running) ?? all[0] ?? null;
}

/** What a panel says that has no picture. */
export const emptyText = (scan: ScanRow | null, what: string) => (!scan ? "No scan has been submitted yet." : scan.earlier_run ? "An earlier run of the server made it: nothing of it can be watched." : `No ${what} yet.`);

export function ScanSelect(props: { scans: ReadonlyMap<string, ScanRow>; scan: ScanRow | null; choice: string; choose: (name: string) => void }) {
  const name = (of: ScanRow) => `${of.title || "untitled"} · ${shortName(of.name)} · ${stateLine(of)}`;
  return (
    <label>Scan
      <select value={props.scans.has(props.choice) ? props.choice : ""} onChange={(event) => props.choose(event.currentTarget.value)}>
        <option value="">{props.scan ? `newest: ${name(props.scan)}` : "the newest"}</option>
        {[...props.scans.values()].sort((a, b) => b.created - a.created).map((row) => <option key={row.name} value={row.name}>{name(row)}</option>)}
      </select>
    </label>
  );
}
