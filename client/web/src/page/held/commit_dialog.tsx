// Where to, and in which format.
import { useRef, useState } from "preact/hooks";

import type { VolumeRow } from "../../wire/protocol";
import type { CallError } from "../connection";
import { bytes } from "../format";
import { Dialog } from "../parts/dialog";
import { Changes, useStillHeld } from "./still_held";
import { checkDestination, commit, runAll, titleOf } from "./verbs";

const FORMATS: [string, string][] = [
  ["FORMAT_OME_ZARR_05", "OME-Zarr (folder)"],
  ["FORMAT_NPY", "NumPy (.npy)"],
  ["FORMAT_NRRD", "NRRD (.nrrd)"],
  ["FORMAT_NIFTI", "NIfTI (.nii)"],
  ["FORMAT_OME_TIFF", "OME-TIFF (.ome.tif)"],
  ["FORMAT_HDF5", "HDF5 (.h5)"],
  ["FORMAT_MATLAB_V5", "MATLAB 5 (.mat)"],
  ["FORMAT_BIN", "voxels alone (.bin)"],
];

export function CommitDialog(props: { volumes: VolumeRow[]; close: () => void }) {
  const { volumes } = props;
  const [format, setFormat] = useState(FORMATS[0][0]);
  const [destination, setDestination] = useState("{title}_{scan}_{index:05}");
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const held = useStillHeld(volumes);
  const input = useRef<HTMLInputElement>(null);
  const refuse = (message: string) => {
    setProblem(message);
    input.current?.focus();
  };
  const submit = async () => {
    const given = destination.trim();
    if (given === "") return refuse("The destination is blank; give it a name.");
    if (held.length > 1 && !/\{index/.test(given)) return refuse("Several volumes need {index} in the destination, so that each gets a name of its own.");
    const options = { destination: given, format };
    setBusy(true);
    try {
      await checkDestination(options);
    } catch (error) {
      return refuse((error as CallError).message);
    } finally {
      setBusy(false);
    }
    props.close();
    await runAll(held, (volume) => commit(volume, options));
  };
  const all = held.reduce((sum, volume) => sum + volume.bytes, 0);
  return (
    <Dialog title={volumes.length === 1 ? `Commit ${titleOf(volumes[0])}` : `Commit ${volumes.length} volumes`} close={props.close} submit={() => void submit()}
      actions={<button type="submit" class="primary" disabled={busy || held.length === 0}>Commit {bytes(all)}</button>}>
      <p>The files are written to the server's storage. Then the memory is freed.</p>
      <label class="field">Format
        <select value={format} onChange={(event) => setFormat(event.currentTarget.value)}>
          {FORMATS.map(([value, text]) => <option key={value} value={value}>{text}</option>)}
        </select>
      </label>
      <label class="field">Destination
        <input ref={input} type="text" value={destination} required autofocus spellcheck={false} aria-invalid={problem !== ""} aria-describedby="destination-help destination-problem"
          onInput={(event) => (setDestination(event.currentTarget.value), setProblem(""))} />
      </label>
      <p id="destination-help" class="help">Below the storage root, or absolute inside of one. {"{title}, {scan}, {index}, {index:05} and {date} are filled in."}</p>
      <Changes volumes={volumes} held={held} />
      <p id="destination-problem" class="problem" role="alert">{problem}</p>
    </Dialog>
  );
}
