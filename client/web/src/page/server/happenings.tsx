// What happened of late, and what is to be looked after.
import type { EventRow, JobRow, ScanRow } from "../../wire/protocol";
import { connection } from "../connection";
import { count, shortName } from "../format";
import { NameLink } from "../parts/links";
import { useStore } from "../store";

const clock = (time: number) => new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export function Events({ events, leftOut }: { events: EventRow[]; leftOut: number }) {
  return (
    <section class="panel" id="events" aria-label="Events">
      <h2>Events</h2>
      {events.length === 0 ? <p class="note">Nothing has happened since octavo web was started.</p> : (
        <div class="scroll short" tabIndex={0} role="region" aria-label="Events, the newest first">
          <table>
            <thead><tr><th scope="col">Time</th><th scope="col">Of</th><th scope="col">What</th></tr></thead>
            <tbody>
              {events.map((event, i) => (
                <tr key={`${event.time} ${event.parent} ${event.kind} ${i}`} data-event={event.kind} data-parent={event.parent}>
                  <td>{clock(event.time)}</td>
                  <td>{event.parent.startsWith("jobs/") ? "job" : "scan"} <NameLink name={event.parent} /></td>
                  <td class={event.bad ? "wrap warning" : "wrap"}>{event.text}{event.count > 1 && <span class="dim"> ({count(event.count)} times)</span>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {leftOut > 0 && <p class="warning">{count(leftOut)} events came faster than they could be told, and are left out.</p>}
    </section>
  );
}

interface Warning {
  name: string;
  title: string;
  text: string;
}

const ofScan = (scan: ScanRow): string[] => [
  ...(scan.state === "FAILED" && scan.reason ? [`failed: ${scan.reason}`] : []),
  ...(scan.blocks_dropped > 0 ? [`${count(scan.blocks_dropped)} blocks of records were dropped`] : []),
  ...(scan.missing_ascans > 0 ? [`${count(scan.missing_ascans)} A-scans are missing`] : []),
  ...(scan.waits_for ? [`waits for ${scan.waits_for}`] : []),
  ...scan.warnings,
];
const ofJob = (job: JobRow): string[] => [...(job.state === "FAILED" && job.reason ? [`failed: ${job.reason}`] : []), ...job.warnings];

export function Warnings() {
  const scans = [...useStore(connection.scans).values()].sort((a, b) => b.created - a.created);
  const jobs = [...useStore(connection.jobs).values()].sort((a, b) => b.created - a.created);
  const volumes = [...useStore(connection.volumes).values()].filter((volume) => volume.last_error).sort((a, b) => b.held - a.held);
  const all: Warning[] = [
    ...volumes.map((volume) => ({ name: volume.name, title: `${volume.title || "untitled"} #${volume.index}`, text: volume.last_error })),
    ...scans.flatMap((scan) => ofScan(scan).map((text) => ({ name: scan.name, title: scan.title, text }))),
    ...jobs.flatMap((job) => ofJob(job).map((text) => ({ name: job.name, title: job.title, text }))),
  ];
  return (
    <section class="panel" id="warnings" aria-label="Warnings">
      <h2>Warnings</h2>
      {all.length === 0 ? <p class="good">None of the scans, jobs and volumes has one.</p> : (
        <ul class="plain limited" tabIndex={0}>
          {all.map((warning) => (
            <li key={`${warning.name} ${warning.text}`} data-warning={warning.name}>
              {warning.name.split("/")[0].replace(/s$/, "")} <NameLink name={warning.name}>{warning.title || shortName(warning.name)}</NameLink>: <span class="warning">{warning.text}</span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
