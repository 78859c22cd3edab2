// One row of the detector with many rotation axes, side by side; a click on one reconstructs with it.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import type { VolumeRow } from "../../wire/protocol";
import { paint } from "../live/samples";
import { contrastOf, edgeSpread, shrunk, type Tile } from "./trials";

const TILE_PX = 192;
const MOST_PX = 1024; // a side of a slice as it is read; larger ones are read coarsely
const AT_ONCE = 3; // reads
const PLAIN = { offset: 0, step: 1 };

interface Trial {
  axis: number;
  score: number;
  tile: Tile;
}

// A held volume never changes: what was read of one stays.
const known = new Map<string, Trial[]>();
const MOST_KNOWN = 4;

async function readTrial(volume: VolumeRow, index: number, axis: number, stop: AbortSignal): Promise<Trial> {
  const downsample = 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(volume.shape[1], volume.shape[2]) / MOST_PX)));
  const answer = await fetch(`api/${volume.name}/voxels?plane=${index}&downsample=${downsample}&method=mean`, { signal: stop });
  if (!answer.ok) throw new Error((await answer.json()).error.message);
  const [, rows, columns] = answer.headers.get("X-Shape")!.split(",").map(Number);
  const values = new Float32Array(await answer.arrayBuffer());
  return { axis, score: edgeSpread(values, rows, columns), tile: shrunk(values, rows, columns, TILE_PX) };
}

/** The trials as they are read. */
function useTrials(volume: VolumeRow | undefined, axes: number[]): { trials: Trial[]; problem: string } {
  const key = volume ? `${volume.name} ${volume.digest}` : "";
  const [state, setState] = useState<{ key: string; trials: Trial[]; problem: string }>({ key: "", trials: [], problem: "" });
  useEffect(() => {
    if (!volume) return;
    const stop = new AbortController();
    const trials = known.get(key) ?? [];
    const tell = (problem: string) => setState({ key, trials: [...trials], problem });
    known.delete(key);
    known.set(key, trials);
    if (known.size > MOST_KNOWN) known.delete(known.keys().next().value!);
    tell("");
    void (async () => {
      try {
        const count = Math.min(volume.shape[0], axes.length);
        while (trials.length < count) {
          const next = Array.from({ length: Math.min(AT_ONCE, count - trials.length) }, (_, i) => trials.length + i);
          const read = await Promise.all(next.map((i) => readTrial(volume, i, axes[i], stop.signal)));
          if (stop.signal.aborted) return;
          trials.push(...read);
          tell("");
        }
      } catch (error) {
        if (!stop.signal.aborted) tell((error as Error).message);
      }
    })();
    return () => stop.abort();
  }, [key, axes.length]);
  return state.key === key ? state : { trials: [], problem: "" };
}

function Picture({ tile, contrast }: { tile: Tile; contrast: { lo: number; hi: number } }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [rows, columns] = tile.side;
  useEffect(() => {
    const pixels = new ImageData(columns, rows);
    paint(tile.values, PLAIN, contrast, "gray", new Uint32Array(pixels.data.buffer));
    canvas.current!.getContext("2d")!.putImageData(pixels, 0, 0);
  }, [tile, contrast.lo, contrast.hi]);
  return <canvas ref={canvas} width={columns} height={rows} aria-hidden="true" />;
}

/**
 * @param choose reconstruct with this axis; null: nobody may
 * @param look the trial that the keyboard or the pointer is at
 */
export function TrialAxes(props: { volume: VolumeRow | undefined; axes: number[]; choose: ((axis: number) => void) | null; look: (index: number) => void }) {
  const { trials, problem } = useTrials(props.volume, props.axes);
  const contrast = useMemo(() => contrastOf(trials.map((trial) => trial.tile)), [trials]);
  if (!props.volume) return <p class="note">The slices are no longer in memory: submit the job again to see them.</p>;
  const all = trials.length === Math.min(props.volume.shape[0], props.axes.length);
  const best = trials.reduce((least, trial, i) => (trial.score < trials[least].score ? i : least), 0);
  const atEdge = all && trials.length > 1 && (best === 0 || best === trials.length - 1);
  return (
    <>
      <p class="note">{props.choose ? "Choose one to reconstruct with its axis. " : ""}The score says how spread the edges of a slice are: the least is the sharpest.</p>
      {atEdge && <p class="warning" role="status">The sharpest is at an end of the range: try axes beyond it.</p>}
      <ul class="tiles" data-trials={trials.length} data-complete={all ? 1 : 0}>
        {trials.map((trial, i) => {
          const text = `axis ${Number(trial.axis.toFixed(3))} score ${trial.score.toFixed(5)}${all && i === best ? " least" : ""}`;
          const inside = (
            <>
              <Picture tile={trial.tile} contrast={contrast} />
              <span>axis <b>{Number(trial.axis.toFixed(3))}</b></span>{" "}
              <span class="dim">score {trial.score.toFixed(5)}{all && i === best && <b class="good"> least</b>}</span>
            </>
          );
          return (
            <li key={i} data-axis={trial.axis} data-score={trial.score} class={all && i === best ? "best" : ""}>
              {props.choose
                ? <button type="button" class="tile" title="Reconstruct with this axis…" onFocus={() => props.look(i)} onClick={() => props.choose!(trial.axis)}>{inside}</button>
                : <div class="tile" role="img" aria-label={text}>{inside}</div>}
            </li>
          );
        })}
      </ul>
      {!all && !problem && <p class="note" role="status">{trials.length} of {Math.min(props.volume.shape[0], props.axes.length)} slices are read …</p>}
      {problem && <p class="problem" role="alert">{problem}</p>}
    </>
  );
}
