// What a dialog about volumes says of those that have changed since it was opened, and of those that are others'.
import type { VolumeRow } from "../../wire/protocol";
import { connection } from "../connection";
import { inWords } from "../format";
import { useFate } from "../parts/fate";
import { isAnothers, ownerText } from "../rights";
import { useStore } from "../store";
import { isHeld, titleOf } from "./verbs";

/** Those of the volumes that are held now, as they are now. While octavod is away nobody knows better. */
export function useStillHeld(volumes: VolumeRow[]): VolumeRow[] {
  const now = useStore(connection.volumes);
  const { up } = useStore(connection.daemon);
  if (!up) return volumes;
  return volumes.flatMap((volume) => now.get(volume.name) ?? []).filter(isHeld);
}

function Changed({ volume, now }: { volume: VolumeRow; now: VolumeRow | undefined }) {
  const fate = useFate(volume.name, !now);
  return <p class="warning">{titleOf(volume)} {now ? `is ${inWords(now.moving || now.state)}` : fate || "is no longer held"}.</p>;
}

export function Changes({ volumes, held }: { volumes: VolumeRow[]; held: VolumeRow[] }) {
  const now = useStore(connection.volumes);
  const { caller } = useStore(connection.daemon);
  const changed = volumes.filter((volume) => !held.some((row) => row.name === volume.name));
  const others = held.filter((volume) => isAnothers(volume, caller));
  return (
    <div role="status" class="changes">
      {changed.map((volume) => <Changed key={volume.name} volume={volume} now={now.get(volume.name)} />)}
      {others.map((volume) => <p key={volume.name} class="warning">{titleOf(volume)} belongs to {ownerText(volume)}: octavod will refuse it to {caller!.name}.</p>)}
    </div>
  );
}
