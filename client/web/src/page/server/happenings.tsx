// What happened of late, and what is to be looked after.
import type { EventRow, JobRow, ScanRow, ServerInfo } from "../../wire/protocol";
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

/** Lines of what the last end of the server lost: GetInfo says it in words, most of them behind a name. */
export const losses = (info: ServerInfo | undefined) => (info?.recovered ?? []).filter((line) => / LOST(: |: the log )|: lost at /.test(line));

function Loss({ line }: { line: string }) {
  const [, name = "", text = line] = /^((?:scans|jobs)\/\S+) \((.*)$/.exec(line) ?? [];
  const [, what = "", was = "", why = ""] = /^(?:scan|job) ?(.*), was (\w+)\): LOST: (.*)$/.exec(text) ?? [];
  if (!why) return <li class="lost" data-lost="">{line}</li>;
  return <li data-lost={name}>{name.split("/")[0].replace(/s$/, "")} <NameLink name={name}>{what.replace(/^'(.*)'$/, "$1") || shortName(name)}</NameLink>: <span class="lost">lost with the server; it was {was.toLowerCase()}</span></li>;
}

/** Of scans and jobs of this run: those of earlier ones were warned of in their time. */
export function Warnings({ info }: { info: ServerInfo | undefined }) {
  const scans = [...useStore(connection.scans).values()].filter((scan) => !scan.earlier_run).sort((a, b) => b.created - a.created);
  const jobs = [...useStore(connection.jobs).values()].filter((job) => !job.earlier_run).sort((a, b) => b.created - a.created);
  const lost = losses(info);
  const volumes = [...useStore(connection.volumes).values()].filter((volume) => volume.last_error).sort((a, b) => b.held - a.held);
  const all: Warning[] = [
    ...volumes.map((volume) => ({ name: volume.name, title: `${volume.title || "untitled"} #${volume.index}`, text: volume.last_error })),
    ...scans.flatMap((scan) => ofScan(scan).map((text) => ({ name: scan.name, title: scan.title, text }))),
    ...jobs.flatMap((job) => ofJob(job).map((text) => ({ name: job.name, title: job.title, text }))),
  ];
  return (
    <section class="panel" id="warnings" aria-label="Warnings">
      <h2>Warnings</h2>
      {lost.length > 0 && <p class="lost">At its start, the server found that the one before had lost work:</p>}
      {lost.length > 0 && <ul class="plain limited" tabIndex={0} aria-label="Lost with the server before">{lost.map((line) => <Loss key={line} line={line} />)}</ul>}
      {all.length === 0 ? <p class="good">None of the scans, jobs and volumes{lost.length > 0 ? " since then" : ""} has a warning.</p> : (
        <ul class="plain limited" tabIndex={0} aria-label="Warnings of scans, jobs and volumes">
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
