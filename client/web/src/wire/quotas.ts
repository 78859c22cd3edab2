// What octavod counts of each principal, in words, and its refusals.
import { bytes } from "./size";

interface Kind {
  text: string; // what is counted
  advice: string; // what gives room again
}
const AT_ONCE = "Try again in a moment.";
const KINDS: Record<string, Kind> = {
  DEVICE_BYTES: { text: "device memory", advice: "Commit, spill or discard volumes, or stop scans." },
  SCANS: { text: "scans, queued and running", advice: "Wait until one ends, or stop one." },
  JOBS: { text: "jobs, queued and running", advice: "Wait until one ends, or cancel one." },
  WATCHES: { text: "open watches and streams", advice: "All pages of octavo web count together, with every other program of the same login: close what is no longer looked at, or ask for a larger quota (quota.watches)." },
  PLANS: { text: "plans at once", advice: AT_ONCE },
  SUBMITS: { text: "submissions at once", advice: AT_ONCE },
  RENDERINGS: { text: "pictures of volumes at once", advice: AT_ONCE },
  MOSAICS: { text: "mosaic calls at once", advice: AT_ONCE },
};

export const quotaText = (kind: string) => KINDS[kind]?.text ?? kind.toLowerCase().replaceAll("_", " ");
/** So much of what a kind counts. */
export const amount = (kind: string, value: number) => (kind === "DEVICE_BYTES" ? bytes(value) : String(value));

/** A refusal (QUOTA) by the metadata of the error; empty if it is of another quota, which octavod's own words tell. */
export function refusalText(of: Record<string, string>): string {
  const kind = (of.kind ?? "").toUpperCase();
  const [used, wanted, allowed] = [of.used, of.wanted, of.allowed].map(Number);
  if (!KINDS[kind] || ![used, wanted, allowed].every(Number.isFinite)) return "";
  const { text, advice } = KINDS[kind];
  const memory = kind === "DEVICE_BYTES";
  if (wanted > allowed) return `This needs ${amount(kind, wanted)}${memory ? " of" : ""} ${text}, and ${of.principal} may use ${amount(kind, allowed)}: it can never fit. Make it smaller, or ask for a larger quota.`;
  if (memory) return `The quota of ${of.principal} has no room: ${bytes(used)} of ${bytes(allowed)} of device memory are in use, and this needs ${bytes(wanted)} more. ${advice}`;
  return `The quota of ${of.principal} is used up: ${used} of ${allowed} ${text}. ${advice}`;
}
