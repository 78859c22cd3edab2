// Held: the volumes in memory, and what becomes of them.
import { useEffect, useRef, useState } from "preact/hooks";

import type { LeaseRow, OperationRow, VolumeRow } from "../../wire/protocol";
import { connection } from "../connection";
import { bytes, inWords, shortName, span } from "../format";
import { useClock } from "../parts/clock";
import { fateOf, useFate } from "../parts/fate";
import { NameLink } from "../parts/links";
import { say, tell } from "../parts/toasts";
import { useOwner, useReadOnly } from "../rights";
import { useStore } from "../store";
import { objection } from "../volume3d/geometry";
import { addressOf } from "../volume3d/volume3d";
import { CommitDialog } from "./commit_dialog";
import { DiscardDialog } from "./discard_dialog";
import { useEndings } from "./endings";
import { cancelOperation, leaveHere, runAll, titleOf, type Verb, VERBS } from "./verbs";

const THUMBNAIL_PX = 128;
const OPEN_KEY = "3"; // opens the volume of the row in 3-D
const TIERS: Record<string, string> = { DEVICE: "device", HOST: "host memory", DISK: "disk" };

function Thumbnail({ volume }: { volume: VolumeRow }) {
  const [failed, setFailed] = useState(false);
  if (volume.state === "ACQUIRING" || volume.raw || failed) return <div class="thumbnail none" aria-hidden="true">{volume.state === "ACQUIRING" ? "…" : "–"}</div>;
  const address = `api/${volume.name}/picture?rendering=max&axis=z&size=${THUMBNAIL_PX}&digest=${encodeURIComponent(volume.digest)}`;
  return <img class="thumbnail" src={address} alt={`Maximum projection of ${titleOf(volume)}`} loading="lazy" onError={() => setFailed(true)} />;
}

/** What is going on with a volume, with its progress. */
function Status({ volume, operation, readOnly }: { volume: VolumeRow; operation: OperationRow | undefined; readOnly: boolean }) {
  if (operation && !operation.done) {
    const cancel = () => cancelOperation(operation.name).catch((error: Error) => tell(error.message));
    return (
      <div class="operation">
        <span>{operation.kind.toLowerCase()}: {inWords(operation.stage || "waiting")}, {Math.round(100 * operation.fraction)} %</span>
        <progress max="1" value={operation.fraction} aria-label={`${operation.kind.toLowerCase()} of ${titleOf(volume)}`} />
        {!readOnly && <button type="button" onClick={cancel} disabled={operation.state === "CANCELLING"}>Cancel</button>}
      </div>
    );
  }
  const parts = [volume.moving ? inWords(volume.moving) : inWords(volume.state)];
  if (volume.marked) parts.push("kept");
  if (volume.missing > 0) parts.push(`${volume.missing} A-scans missing`);
  return (
    <div>
      <span class={`state ${volume.state.toLowerCase()}`}>{parts.join(", ")}</span>
      {volume.last_error && <p class="problem">{volume.last_error}</p>}
    </div>
  );
}

/** Who leases a volume: the number, and the names and ends of the leases when it is opened. */
function Leases({ volume, leases, now }: { volume: VolumeRow; leases: LeaseRow[]; now: number }) {
  const count = Math.max(volume.leases, leases.length);
  if (leases.length === 0) return <>{count}</>;
  const words = leases.map((lease) => {
    const who = lease.client && lease.client !== lease.holder ? `${lease.holder || "unnamed"} (${lease.client})` : lease.holder || "unnamed";
    return `${who}: ${inWords(lease.mode)}, ${lease.expires ? `for ${span(lease.expires - now)} more` : lease.client ? "until its session ends" : "while its call runs"}`;
  });
  return (
    <details class="leases">
      <summary title={words.join("\n")} aria-label={`${count === 1 ? "1 lease" : `${count} leases`} of ${titleOf(volume)}`}>{count}</summary>
      <ul>{words.map((text, i) => <li key={i}>{text}</li>)}</ul>
    </details>
  );
}

/** Whose a volume is, if it is somebody else's. */
function Owner({ volume }: { volume: VolumeRow }) {
  const owner = useOwner(volume);
  return owner ? <><br /><span class="owner">of {owner}</span></> : null;
}

/** Selected volumes that leave without this page's doing do not vanish in silence. */
function useLosses(selected: ReadonlySet<string>, volumes: ReadonlyMap<string, VolumeRow>, up: boolean, select: (names: ReadonlySet<string>) => void): void {
  const last = useRef(new Map<string, VolumeRow>());
  useEffect(() => {
    for (const name of selected) if (volumes.has(name)) last.current.set(name, volumes.get(name)!);
    const lost = up ? [...selected].filter((name) => !volumes.has(name)) : [];
    if (lost.length === 0) return;
    select(new Set([...selected].filter((name) => volumes.has(name))));
    for (const name of lost) {
      const row = last.current.get(name);
      last.current.delete(name);
      if (leaveHere.delete(name) || !row) continue;
      // How a commit ends is told of its operation.
      void fateOf(name).then((fate) => fate.state !== "COMMITTED" && say(`${titleOf(row)} (${shortName(name)}) ${fate.text}`));
    }
  }, [selected, volumes, up]);
}

/** The selection outlives a look at another page. */
let lastSelected: ReadonlySet<string> = new Set();

export function Held(props: { chosen: string }) {
  const volumes = useStore(connection.volumes);
  const leases = useStore(connection.leases);
  const operations = useStore(connection.operations);
  const whyReadOnly = useReadOnly();
  const readOnly = whyReadOnly !== "";
  const phase = useStore(connection.phase);
  const up = useStore(connection.daemon).up && phase.name === "open";
  const now = useClock(1000);
  const [selected, setSelected] = useState(lastSelected);
  lastSelected = selected;
  const [asking, setAsking] = useState<{ verb: string; volumes: VolumeRow[] } | null>(null);
  useEndings(true, operations);
  const there = volumes.has(`volumes/${props.chosen}`);
  useEffect(() => {
    if (there) document.querySelector<HTMLElement>(`tr[data-volume='volumes/${CSS.escape(props.chosen)}'] input`)?.focus();
  }, [props.chosen, there]);
  const fate = useFate(`volumes/${props.chosen}`, up && props.chosen !== "" && !there);
  useLosses(selected, volumes, up, setSelected);

  const rows = [...volumes.values()].sort((a, b) => (b.held || Infinity) - (a.held || Infinity) || b.index - a.index);
  const running = new Map([...operations.values()].filter((operation) => !operation.done).map((operation) => [operation.target, operation]));
  const chosen = rows.filter((row) => selected.has(row.name));
  const all = rows.length > 0 && chosen.length === rows.length;

  const run = (verb: Verb, on: VolumeRow[]) => {
    const able = on.filter((volume) => verb.can(volume) && !running.has(volume.name));
    if (able.length === 0) return;
    if (verb.run) void runAll(able, verb.run, verb.done);
    else setAsking({ verb: verb.name, volumes: able });
  };
  const select = (name: string, on: boolean) => {
    const next = new Set(selected);
    if (on) next.add(name);
    else next.delete(name);
    setSelected(next);
  };
  // The keys of the list: arrows go from row to row, those of the verbs act on the selected ones, or on this one.
  const key = (volume: VolumeRow) => (event: KeyboardEvent) => {
    const row = event.currentTarget as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const next = (event.key === "ArrowDown" ? row.nextElementSibling : row.previousElementSibling) as HTMLElement | null;
      next?.querySelector<HTMLElement>("input[type=checkbox]")?.focus();
      event.preventDefault();
    } else if (event.key === OPEN_KEY && objection(volume) === "") {
      event.preventDefault();
      location.hash = addressOf(volume.name);
    } else if (!readOnly) {
      const verb = VERBS.find((entry) => entry.key === event.key);
      if (!verb) return;
      event.preventDefault();
      run(verb, selected.has(volume.name) ? chosen : [volume]);
    }
  };
  const total = rows.reduce((sum, row) => sum + row.bytes, 0);
  return (
    <div class="held">
      <div class="bar row" role="toolbar" aria-label="What to do with the selected volumes">
        {!readOnly && VERBS.map((verb) => (
          <button key={verb.name} type="button" data-verb={verb.name} title={verb.key ? `${verb.help} (key: ${verb.key})` : verb.help} disabled={!chosen.some((row) => verb.can(row) && !running.has(row.name))}
            class={verb.name === "discard" ? "danger" : ""} onClick={() => run(verb, chosen)}>{verb.text}</button>
        ))}
        <button type="button" class="open-3d" title={`Show the selected volume in 3-D (key: ${OPEN_KEY})`} disabled={chosen.length !== 1 || objection(chosen[0]) !== ""} onClick={() => (location.hash = addressOf(chosen[0].name))}>Open in 3-D</button>
        {readOnly && <span class="note">{whyReadOnly}</span>}
        <span class="gap" />
        <span role="status">{rows.length === 1 ? "1 volume" : `${rows.length} volumes`}, {bytes(total)}{chosen.length > 0 ? `; ${chosen.length} selected, ${bytes(chosen.reduce((sum, row) => sum + row.bytes, 0))}` : ""}</span>
      </div>
      {/^(is|was) /.test(fate) && <p class="banner mild above" role="status">The volume {shortName(`volumes/${props.chosen}`)} {fate}.</p>}
      {rows.length === 0 ? (
        <p class="empty-page">No volume is held. Scans leave volumes here as they complete them.</p>
      ) : (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th scope="col"><input type="checkbox" aria-label="Select all volumes" checked={all} onChange={() => setSelected(all ? new Set() : new Set(rows.map((row) => row.name)))} /></th>
                <th scope="col"><span class="hidden">Picture</span></th>
                <th scope="col">Volume</th>
                <th scope="col">State</th>
                <th scope="col">Voxels</th>
                <th scope="col" class="number">Size</th>
                <th scope="col" class="number">Held for</th>
                <th scope="col" class="number">Expires in</th>
                <th scope="col">Where</th>
                <th scope="col" class="number">Leases</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={row.name} data-volume={row.name} class={selected.has(row.name) ? "selected" : ""} onKeyDown={key(row)}>
                  <td><input type="checkbox" aria-label={`Select ${titleOf(row)}`} checked={selected.has(row.name)} onChange={(event) => select(row.name, event.currentTarget.checked)} /></td>
                  <td><Thumbnail key={row.state === "ACQUIRING" ? "no" : row.digest} volume={row} /></td>
                  <td><b>{titleOf(row)}</b><br /><span class="dim" title={row.name}>{shortName(row.name)} of {row.parent.replace(/\/.*/, "").replace(/s$/, "")} <NameLink name={row.parent} /></span><Owner volume={row} /></td>
                  <td class="status"><Status volume={row} operation={running.get(row.name)} readOnly={readOnly} /></td>
                  <td>{row.shape.join(" × ")}<br /><span class="dim">{row.axes.join(", ")}; {row.dtype.toLowerCase()}</span></td>
                  <td class="number">{bytes(row.bytes)}</td>
                  <td class="number">{row.held ? span(now - row.held) : "–"}</td>
                  <td class="number">{row.expires ? span(row.expires - now) : "never"}</td>
                  <td>{TIERS[row.tier] ?? "–"}{row.tier === "DEVICE" && <><br /><span class="dim">{row.device}</span></>}</td>
                  <td class="number"><Leases volume={row} leases={leases.get(row.name) ?? []} now={now} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {asking?.verb === "commit" && <CommitDialog volumes={asking.volumes} close={() => setAsking(null)} />}
      {asking?.verb === "discard" && <DiscardDialog volumes={asking.volumes} close={() => setAsking(null)} />}
    </div>
  );
}
