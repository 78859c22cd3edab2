// Asks before volumes are discarded.
import type { VolumeRow } from "../../wire/protocol";
import { bytes } from "../format";
import { Dialog } from "../parts/dialog";
import { Changes, useStillHeld } from "./still_held";
import { discard, runAll, titleOf } from "./verbs";

const MOST_LISTED = 12;

export function DiscardDialog(props: { volumes: VolumeRow[]; close: () => void }) {
  const { volumes } = props;
  const held = useStillHeld(volumes);
  const submit = () => {
    props.close();
    void runAll(held, discard, "discarded");
  };
  return (
    <Dialog title={volumes.length === 1 ? `Discard ${titleOf(volumes[0])}?` : `Discard ${volumes.length} volumes?`} safe close={props.close} submit={submit}
      actions={<button type="submit" class="danger" disabled={held.length === 0}>Discard {bytes(held.reduce((sum, row) => sum + row.bytes, 0))}</button>}>
      {held.length > 0 && <p>{held.length === 1 ? "It has" : "They have"} not been written to storage. The data are gone for good.</p>}
      {volumes.length > 1 && <ul>{held.slice(0, MOST_LISTED).map((row) => <li key={row.name}>{titleOf(row)}, {bytes(row.bytes)}</li>)}{held.length > MOST_LISTED && <li>and {held.length - MOST_LISTED} more</li>}</ul>}
      <Changes volumes={volumes} held={held} />
    </Dialog>
  );
}
