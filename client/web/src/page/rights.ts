// Whose things are, and what this page may change.
import type { Caller, Owned } from "../wire/protocol";
import { connection } from "./connection";
import { useStore } from "./store";

/** "ada (project retina)". */
export const ownerText = (of: Owned) => `${of.owner}${of.project ? ` (project ${of.project})` : ""}`;

/** Whether a thing is another's, so that octavod refuses changes of it. */
export function isAnothers(of: Owned, caller: Caller | null): boolean {
  if (!caller || caller.role === "ADMIN" || of.owner === "" || of.owner === caller.name) return false;
  return of.project === "" || of.project !== caller.project;
}

/** The owner of a thing, if that is somebody else than this page's caller; else empty. */
export function useOwner(of: Owned): string {
  const { caller } = useStore(connection.daemon);
  return caller && of.owner !== "" && of.owner !== caller.name ? ownerText(of) : "";
}

/** Why this page changes nothing, in words; empty: it may. */
export function useReadOnly(): string {
  const hello = useStore(connection.hello);
  const { caller } = useStore(connection.daemon);
  if (!hello) return "It is not connected yet.";
  if (hello.read_only) return "This viewer only shows.";
  return caller && ["NONE", "VIEWER"].includes(caller.role) ? `octavod lets ${caller.name} only look.` : "";
}
