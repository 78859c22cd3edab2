// Words for scans and jobs of earlier runs of the server: what became of them, what is known of them.
import type { JobRow, ScanRow } from "../../wire/protocol";
import { inWords } from "../format";

type Work = Pick<ScanRow | JobRow, "state" | "earlier_run">;

export const stateText = (state: string) => (state === "LOST" ? "lost with the server" : inWords(state));
/** Why it is lost, with states as they are written here. */
export const lossText = (of: { reason: string }) => of.reason.replace(/\b[A-Z]{4,}\b/g, inWords);
/** The state, and that it is one of an earlier run. */
export const stateLine = (of: Work) => `${stateText(of.state)}${of.earlier_run && of.state !== "LOST" ? ", earlier run" : ""}`;

export function StateWord({ of }: { of: Work }) {
  return <span class={`state ${of.state.toLowerCase()}`}>{stateText(of.state)}{of.earlier_run && of.state !== "LOST" && <span class="dim">, earlier run</span>}</span>;
}

/** What there is to say of a scan of an earlier run; nothing of another one. */
export function EarlierScan({ scan }: { scan: ScanRow }) {
  if (!scan.earlier_run) return null;
  const lost = scan.state === "LOST";
  return (
    <div class={`earlier-run ${lost ? "lost" : ""}`} role="status">
      {lost && <p class="lost"><b>This scan was lost with the server:</b> {lossText(scan)}. Volumes of it that were not on disk are gone; its counts may lack the last ones.</p>}
      <p class="dim">
        {lost ? "It is" : "This scan is"} of an earlier run of the server. Known are its title, labels, times and counts; its other settings, its events and its pictures are not kept.{" "}
        {scan.volumes_held > 0 ? <a href="#held">{scan.volumes_held === 1 ? "One volume of it is held." : `${scan.volumes_held} volumes of it are held.`}</a> : "None of its volumes is held."}
      </p>
    </div>
  );
}

/** The same of a job. */
export function EarlierJob({ job }: { job: JobRow }) {
  if (!job.earlier_run) return null;
  const lost = job.state === "LOST";
  return (
    <div class={`earlier-run ${lost ? "lost" : ""}`} role="status">
      {lost && <p class="lost"><b>This job was lost with the server:</b> {lossText(job)}. It left no volume; the program that submitted it can submit it again.</p>}
      <p class="dim">{lost ? "It is" : "This job is"} of an earlier run of the server. Known are its title, labels, times, plan and warnings; its settings, steps, log and findings are not kept{lost ? "" : ", and its volumes may be gone"}.</p>
    </div>
  );
}
