// Tells how operations end: those that this page began, and those that it has seen at work.
import { useEffect } from "preact/hooks";

import type { OperationRow } from "../../wire/protocol";
import { connection } from "../connection";
import { shortName } from "../format";
import { say, tell } from "../parts/toasts";

const open = new Set<string>();

function look(operation: OperationRow | undefined): void {
  if (!operation) return;
  if (!operation.done) return void open.add(operation.name);
  if (!open.delete(operation.name)) return;
  const what = `${operation.kind.toLowerCase()} of ${shortName(operation.target)}`;
  if (operation.state === "FAILED") tell(`The ${what} has failed: ${operation.error}`);
  else if (operation.state === "CANCELLED") say(`The ${what} was cancelled; the volume is still held`);
  else say(operation.path ? `Committed to ${operation.path}` : `The ${what} is done`);
}

/** An operation that this page began; it may have ended, and been heard of, already. */
export function began(name: string): void {
  open.add(name);
  look(connection.operations.value.get(name));
}

export function useEndings(operations: ReadonlyMap<string, OperationRow>): void {
  useEffect(() => operations.forEach(look), [operations]);
}
