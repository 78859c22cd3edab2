// The lengths of a picture's pixels.
import type { VolumeRow } from "../../wire/protocol";
import type { Shown } from "./live_picture";

/** um of each pixel along rows and columns; null where nobody gave a length. */
export type Spacing = [number, number] | null;

/** `volume`: one of those that the picture is of; where nobody gave a length, its spacing counts samples. */
export function spacingOf(shown: Shown, volume: VolumeRow | undefined): Spacing {
  const counted = (name: string) => volume !== undefined && volume.axes.includes(name) && !volume.lengths[volume.axes.indexOf(name)];
  const [rows, columns] = shown.schema.spacing_um;
  return rows > 0 && columns > 0 && !shown.schema.axes.some(counted) ? [rows, columns] : null;
}
