// Tells how operations end: on each page those that this page began, also before it was loaded again, and in the list
// of volumes all that it has seen at work.
import { useEffect } from "preact/hooks";

import type { OperationRow } from "../../wire/protocol";
import { connection } from "../connection";
import { shortName } from "../format";
import { say, tell } from "../parts/toasts";

const KEY = "octavo-begun";
const MOST = 100; // operations that are remembered

const seen = new Set<string>();
const begun = new Set<string>(kept());
const titles = new Map<string, string>(); // of the targets: a volume is gone when its commit has ended

function kept(): string[] {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? "[]") as string[];
  } catch {
    return []; // the browser keeps nothing
  }
}
function keep(): void {
  try {
    sessionStorage.setItem(KEY, JSON.stringify([...begun].slice(-MOST)));
  } catch {
    // then it is forgotten when the page is loaded again
  }
}

function titleOf(operation: OperationRow): string {
  const volume = connection.volumes.value.get(operation.target);
  const job = connection.jobs.value.get(operation.target);
  const title = volume ? `${volume.title || "untitled"} #${volume.index}` : (job?.title ?? "");
  if (title) titles.set(operation.target, title);
  return titles.get(operation.target) ?? "";
}

function look(operation: OperationRow | undefined, all: boolean): void {
  if (!operation) return;
  const title = titleOf(operation);
  if (!operation.done) return void (all && seen.add(operation.name));
  const own = begun.delete(operation.name);
  if (own) keep();
  if (!seen.delete(operation.name) && !own) return;
  titles.delete(operation.target);
  const what = `${operation.kind.toLowerCase()} of ${title ? `${title} (${shortName(operation.target)})` : shortName(operation.target)}`;
  if (operation.lost) tell(`The ${what} was lost with the server, which died before its end${operation.kind === "COMMIT" ? ": no file was written. If the volume was on disk, it is held again" : ""}`);
  else if (operation.state === "FAILED") tell(`The ${what} has failed: ${operation.error}`);
  else if (operation.state === "CANCELLED") say(`The ${what} was cancelled${operation.kind === "JOB" ? "" : "; the volume is still held"}`);
  else say(operation.path ? `${title ? `${title} was committed` : "Committed"} to ${operation.path}` : `The ${what} is done`);
}

/** An operation that this page began; it may have ended, and been heard of, already. */
export function began(name: string): void {
  begun.add(name);
  keep();
  look(connection.operations.value.get(name), false);
}

/** @param all those that others began, too */
export function useEndings(all: boolean, operations: ReadonlyMap<string, OperationRow>): void {
  useEffect(() => operations.forEach((operation) => look(operation, all)), [operations]);
}
