// Jobs: those that run, that wait and that have ended, and the one that is looked at.
import { useEffect, useState } from "preact/hooks";

import type { JobRow } from "../../wire/protocol";
import { connection } from "../connection";
import { bytes, span } from "../format";
import { useClock } from "../parts/clock";
import { lossText, stateText } from "../parts/earlier_run";
import { useReadOnly } from "../rights";
import { useStore } from "../store";
import { Details } from "./details";
import { isRunning, kindOf, progressOf, titleOf, waitOf } from "./job_words";

const newest = (a: JobRow, b: JobRow) => b.created - a.created;

export function Jobs(props: { chosen: string }) {
  const jobs = [...useStore(connection.jobs).values()];
  const seen = useStore(connection.job);
  const readOnly = useReadOnly() !== "";
  const groups = [
    { text: "Running", jobs: jobs.filter(isRunning).sort(newest) },
    // as the queue has them: higher priorities first
    { text: "Waiting", jobs: jobs.filter((job) => job.state === "QUEUED").sort((a, b) => a.queue_position - b.queue_position) },
    { text: "Ended", jobs: jobs.filter((job) => job.ended > 0 && !job.earlier_run).sort((a, b) => b.ended - a.ended) },
    { text: "Of earlier runs of the server", jobs: jobs.filter((job) => job.earlier_run).sort((a, b) => b.ended - a.ended) },
  ].filter((group) => group.jobs.length > 0);
  // The one of the address, or else the first of the list, which stays when the list changes.
  const [picked, setPicked] = useState("");
  const first = groups[0]?.jobs[0]?.name ?? "";
  useEffect(() => {
    if (picked === "" && first !== "") setPicked(first);
  }, [picked, first]);
  const name = props.chosen ? `jobs/${props.chosen}` : picked;
  useEffect(() => connection.lookAt({ job: name }), [name]);
  useEffect(() => () => connection.lookAt({ job: "" }), []);

  const key = (event: KeyboardEvent) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const links = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("a")];
    const next = links[links.indexOf(document.activeElement as HTMLElement) + (event.key === "ArrowDown" ? 1 : -1)];
    if (!next) return;
    event.preventDefault();
    next.focus();
  };
  if (jobs.length === 0 && !props.chosen) return <p class="empty-page">No job has been submitted. Programs and the command line submit jobs: reprocessing, searches, tomography, imports.</p>;
  return (
    <div class="jobs">
      <nav class="job-list" aria-label="Jobs" onKeyDown={key}>
        {groups.map((group) => (
          <section key={group.text} aria-label={group.text}>
            <h2>{group.text} <span class="dim">{group.jobs.length}</span></h2>
            <ul class="plain">{group.jobs.map((job) => <Card key={job.name} job={job} shown={job.name === name} />)}</ul>
          </section>
        ))}
      </nav>
      {seen?.name === name ? <Details key={name} seen={seen} readOnly={readOnly} /> : <p class="empty-page" role="status">…</p>}
    </div>
  );
}

function Card({ job, shown }: { job: JobRow; shown: boolean }) {
  const now = useClock(1000);
  const about = [kindOf(job), job.device, job.memory_bytes > 0 ? bytes(job.memory_bytes) : "", job.warnings.length === 1 ? "1 warning" : job.warnings.length > 1 ? `${job.warnings.length} warnings` : ""].filter(Boolean).join(" · ");
  return (
    <li>
      <a href={`#${job.name}`} class="card" data-job={job.name} aria-current={shown ? "true" : undefined}>
        <span class="row"><b class="name">{titleOf(job)}</b><span class="gap" /><span class={`state ${job.state.toLowerCase()}`}>{stateText(job.state)}</span></span>
        <span class={job.warnings.length > 0 ? "warning" : "dim"}>{about}</span>
        {isRunning(job) && <><progress class="wide" max="1" value={job.fraction} aria-label={`Progress of ${titleOf(job)}`} /><span>{progressOf(job)}</span></>}
        {job.state === "QUEUED" && <span>{waitOf(job)}</span>}
        {job.ended > 0 && <span class={job.state === "FAILED" ? "problem" : "dim"}>{job.state === "FAILED" ? job.reason : job.state === "LOST" ? lossText(job) : `ended ${span(now - job.ended)} ago`}</span>}
      </a>
    </li>
  );
}
