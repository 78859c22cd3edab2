// The server's own picture of a volume: for browsers that cannot draw it.
import { useEffect, useState } from "preact/hooks";

import type { VolumeRow } from "../../wire/protocol";
import { AXES } from "./geometry";

const SIZE = 1024;
const RENDERINGS = [["max", "maximum"], ["mean", "average"], ["plane", "middle slice"]] as const;

export function ServerPicture({ volume }: { volume: VolumeRow }) {
  const [rendering, setRendering] = useState<string>("max");
  const [axis, setAxis] = useState("z");
  const [problem, setProblem] = useState("");
  const offered = AXES.filter((name) => volume.axes.includes(name));
  const address = `api/${volume.name}/picture?rendering=${rendering}&axis=${axis}&size=${SIZE}&digest=${encodeURIComponent(volume.digest)}`;
  useEffect(() => setProblem(""), [address]);
  // An image does not tell why it failed; the same request does.
  const failed = () =>
    fetch(address).then(
      async (answer) => setProblem(answer.ok ? "this browser cannot show the picture" : (await answer.json()).error.message),
      () => setProblem("octavo web does not answer"),
    );
  return (
    <div class="server-picture">
      <div class="row">
        <label>Picture
          <select value={rendering} onChange={(event) => setRendering(event.currentTarget.value)}>
            {RENDERINGS.map(([value, text]) => <option key={value} value={value}>{text}</option>)}
          </select>
        </label>
        <label>along
          <select value={axis} onChange={(event) => setAxis(event.currentTarget.value)}>
            {offered.map((name) => <option key={name} value={name}>{name}</option>)}
          </select>
        </label>
      </div>
      {problem ? <p class="problem" role="alert">The server makes no picture of it: {problem}.</p> : <img src={address} alt={`${RENDERINGS.find(([value]) => value === rendering)![1]} along ${axis}, made by the server`} onError={() => void failed()} />}
    </div>
  );
}
