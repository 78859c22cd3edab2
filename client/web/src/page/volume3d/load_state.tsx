// How much of the volume is shown, what is being loaded, and what went wrong.
import type { VolumeRow } from "../../wire/protocol";
import { useStore } from "../store";
import type { Geometry } from "./geometry";
import { coarser } from "./levels";
import type { Scene } from "./scene";

export function LoadState({ scene, volume, geometry, snapshot }: { scene: Scene; volume: VolumeRow; geometry: Geometry; snapshot: () => void }) {
  const { level, loading, limit, error } = useStore(scene.status);
  const drawn = useStore(scene.drawn);
  const shape = (factor: number) => coarser(volume.shape, factor).join(" × ");
  return (
    <div class="row load-state" data-level={level?.factor ?? 0} data-loading={loading?.factor ?? 0}>
      <span role="status">
        {!level ? "" : level.factor === 1 ? `All ${shape(1)} voxels are shown.` : `Shown are ${shape(level.factor)} of ${shape(1)} voxels${limit ? `: ${limit}` : ""}.`}
        {/^C/.test(volume.dtype) && " Complex numbers are shown by their magnitude."}
        {geometry.guessed.length > 0 && ` Nobody gave a length along ${geometry.guessed.join(", ")}: it is drawn with voxels as long as the others.`}
      </span>
      {loading && <span>{level ? "Loading" : "Reading"} {shape(loading.factor)} <progress max="1" value={loading.part} aria-label={`Loading ${shape(loading.factor)} voxels`} /> {Math.round(100 * loading.part)} %</span>}
      {drawn < 1 && <span>The 3-D picture gets finer <progress max="1" value={drawn} aria-label="Drawing the fine 3-D picture" /> {Math.round(100 * drawn)} %</span>}
      {error && <span class="problem" role="alert">The voxels do not come: {error}. <button type="button" onClick={() => scene.load()}>Try again</button></span>}
      <span class="gap" />
      <button type="button" onClick={snapshot} disabled={!level} title="Save the 3-D picture as PNG, with its metadata">Snapshot</button>
    </div>
  );
}
