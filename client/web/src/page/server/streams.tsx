// What browsers look at now, through octavo web.
import type { ViewerStatus } from "../../wire/protocol";
import { bytes, count, inWords } from "../format";
import { NameLink } from "../parts/links";

const ACRONYMS: Record<string, string> = { MIP: "MIP", AIP: "AIP", BSCAN: "B-scan", ASCAN: "A-scan" };

export function Streams({ viewer }: { viewer: ViewerStatus }) {
  return (
    <section class="panel" id="streams" aria-label="Streams">
      <h2>Streams</h2>
      <p>{viewer.viewers === 1 ? "1 browser page" : `${viewer.viewers} browser pages`} with {viewer.views === 1 ? "1 picture" : `${viewer.views} pictures`}; {bytes(viewer.buffered_bytes)} wait for slow ones</p>
      {viewer.subscriptions.length === 0 ? <p class="note">Nobody looks at a live picture.</p> : (
        <div class="scroll short" tabIndex={0} role="region" aria-label="Live streams">
          <table>
            <thead><tr><th scope="col">Of</th><th scope="col">Picture</th><th scope="col">Sent as</th><th scope="col" class="number">Shown by</th><th scope="col" class="number">Frames</th></tr></thead>
            <tbody>
              {viewer.subscriptions.map((stream) => (
                <tr key={JSON.stringify([stream.parent, stream.product, stream.axis, stream.index, stream.slab, stream.width, stream.encoding])} data-stream={stream.product}>
                  <td>{stream.parent.startsWith("jobs/") ? "job" : "scan"} <NameLink name={stream.parent} /></td>
                  <td>{ACRONYMS[stream.product] ?? inWords(stream.product)}{stream.product === "BSCAN" ? `, ${stream.index < 0 ? "the middle" : `${stream.axis.toLowerCase()} = ${stream.index}`}` : ""}{stream.slab ? `, z = ${stream.slab[0]} to ${stream.slab[1]}` : ""}</td>
                  <td>{stream.encoding === "RAW" ? "raw" : "JPEG"}</td>
                  <td class="number">{stream.views}</td>
                  <td class="number">{count(stream.frames)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
