// Which scan is looked at.
import type { ScanRow } from "../../wire/protocol";
import { inWords, shortName } from "../format";

export const running = (scan: ScanRow) => ["QUEUED", "RUNNING", "DRAINING"].includes(scan.state);

/** The chosen scan, or else the newest one that runs, or else the newest one. */
export function chosenScan(scans: ReadonlyMap<string, ScanRow>, choice: string): ScanRow | null {
  const all = [...scans.values()].sort((a, b) => b.created - a.created);
  return scans.get(choice) ?? all.find(running) ?? all[0] ?? null;
}

export function ScanSelect(props: { scans: ReadonlyMap<string, ScanRow>; scan: ScanRow | null; choice: string; choose: (name: string) => void }) {
  const name = (of: ScanRow) => `${of.title || "untitled"} · ${shortName(of.name)} · ${inWords(of.state)}`;
  return (
    <label>Scan
      <select value={props.scans.has(props.choice) ? props.choice : ""} onChange={(event) => props.choose(event.currentTarget.value)}>
        <option value="">{props.scan ? `newest: ${name(props.scan)}` : "the newest"}</option>
        {[...props.scans.values()].sort((a, b) => b.created - a.created).map((row) => <option key={row.name} value={row.name}>{name(row)}</option>)}
      </select>
    </label>
  );
}
