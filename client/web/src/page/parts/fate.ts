// What became of a volume that is gone. The server remembers it for a while.
import { useEffect, useState } from "preact/hooks";

import { call } from "../connection";

export interface Fate {
  state: string; // without VOLUME_STATE_; empty = the server does not know it, or does not answer
  text: string; // "was discarded: its time to live of 9 s was over"
}

export async function fateOf(name: string): Promise<Fate> {
  try {
    const { volume } = await call("VolumeService/GetVolume", { name });
    const state = String(volume.state).replace("VOLUME_STATE_", "");
    if (state === "COMMITTED") return { state, text: `was committed${volume.commit?.path ? ` to ${volume.commit.path}` : ""}, and is no longer in memory` };
    const word = state.toLowerCase();
    const what = String(volume.reason).startsWith(word) ? volume.reason : `${word}${volume.reason ? `: ${volume.reason}` : ""}`; // "discarded by a client"
    return { state, text: `${["HELD", "ACQUIRING", "COMMITTING"].includes(state) ? "is" : "was"} ${what}` };
  } catch {
    return { state: "", text: "is gone" };
  }
}

/** In words; empty while it is asked, and for a name that is not `gone`. */
export function useFate(name: string, gone: boolean): string {
  const [fate, setFate] = useState("");
  useEffect(() => {
    setFate("");
    if (!gone) return;
    let wanted = true;
    void fateOf(name).then((told) => wanted && setFate(told.text));
    return () => {
      wanted = false;
    };
  }, [name, gone]);
  return fate;
}
