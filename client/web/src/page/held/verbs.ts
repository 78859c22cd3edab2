// What can be done with volumes, and which of them it can be done with.
import type { VolumeRow } from "../../wire/protocol";
import { call, CallError } from "../connection";
import { shortName } from "../format";
import { requestId } from "../parts/request_id";
import { say, tell } from "../parts/toasts";
import { began } from "./endings";

export const titleOf = (volume: VolumeRow) => `${volume.title || "untitled"} #${volume.index}${volume.raw ? " (raw spectra)" : ""}`;
export const isHeld = (volume: VolumeRow) => volume.state === "HELD" && volume.moving === "";

export interface Verb {
  name: string;
  text: string;
  key: string; // pressed in the list; empty = none
  help: string;
  can: (volume: VolumeRow) => boolean;
  // Unset: the verb asks first, in a dialog of its own.
  run?: (volume: VolumeRow) => Promise<unknown>;
  done?: string;
}

/** Volumes that leave by this page's doing, which tells that by itself. */
export const leaveHere = new Set<string>();

async function leaving<T>(volume: VolumeRow, call: Promise<T>): Promise<T> {
  leaveHere.add(volume.name);
  try {
    return await call;
  } catch (error) {
    leaveHere.delete(volume.name);
    throw error;
  }
}

async function begin(method: string, volume: VolumeRow, more: object): Promise<void> {
  const answer = await call(`VolumeService/${method}`, { name: volume.name, request_id: requestId(), wait: { seconds: 0 }, ...more });
  began(answer.operation.name);
}

export const VERBS: Verb[] = [
  { name: "commit", text: "Commit…", key: "c", help: "Write to storage, then free the memory", can: isHeld },
  { name: "discard", text: "Discard…", key: "Delete", help: "Free the memory; the data are gone", can: isHeld },
  {
    name: "hold", text: "Hold", key: "h", help: "Keep it: nothing overwrites it, and it never expires", can: (volume) => isHeld(volume) && !volume.marked,
    run: (volume) => call("VolumeService/HoldVolume", { name: volume.name }), done: "is kept",
  },
  {
    name: "release", text: "Release", key: "r", help: "Take the hold back", can: (volume) => isHeld(volume) && volume.marked,
    run: (volume) => call("VolumeService/ReleaseVolume", { name: volume.name }), done: "is released",
  },
  {
    name: "spill-host", text: "Spill to host", key: "", help: "Move it from device memory to host memory", can: (volume) => isHeld(volume) && volume.tier === "DEVICE",
    run: (volume) => begin("SpillVolume", volume, { tier: "TIER_HOST" }),
  },
  {
    name: "spill-disk", text: "Spill to disk", key: "", help: "Move it from device memory to a private file", can: (volume) => isHeld(volume) && volume.tier !== "DISK",
    run: (volume) => begin("SpillVolume", volume, { tier: "TIER_DISK" }),
  },
  {
    name: "restore", text: "Restore", key: "", help: "Move it back to device memory", can: (volume) => isHeld(volume) && volume.tier !== "DEVICE",
    run: (volume) => begin("RestoreVolume", volume, {}),
  },
];

/** Runs a verb on each volume; what fails is told with its volume, and the others go on. */
export async function runAll(volumes: VolumeRow[], run: (volume: VolumeRow) => Promise<unknown>, done?: string): Promise<number> {
  const results = await Promise.allSettled(volumes.map(run));
  let failed = 0;
  results.forEach((result, i) => {
    if (result.status === "fulfilled") return;
    failed++;
    const error = result.reason as CallError;
    tell(`${titleOf(volumes[i])} (${shortName(volumes[i].name)}): ${error.message}`);
  });
  const good = volumes.length - failed;
  if (done && good > 0) say(good === 1 && volumes.length === 1 ? `${titleOf(volumes[0])} ${done}` : `${good} of ${volumes.length} volumes: ${done}`);
  return failed;
}

export const discard = (volume: VolumeRow) => leaving(volume, call("VolumeService/DiscardVolume", { name: volume.name }));
export const commit = (volume: VolumeRow, options: object) => begin("CommitVolume", volume, { options });
/** Throws CallError if the destination is not allowed, or is taken. */
export const checkDestination = (options: object) => call("VolumeService/CommitVolume", { options, validate_only: true });
export const cancelOperation = (name: string) => call("OperationService/CancelOperation", { name });
