// Which programs these are, since when, and where they can be reached.
import type { ServerInfo, ViewerStatus } from "../../wire/protocol";
import { connection } from "../connection";
import { bytes, inWords, span } from "../format";
import { useClock } from "../parts/clock";
import { useStore } from "../store";
import { losses } from "./happenings";

export function Versions({ info, viewer, address }: { info: ServerInfo; viewer: ViewerStatus | undefined; address: string }) {
  const now = useClock(1000);
  const { caller } = useStore(connection.daemon);
  const lost = losses(info).length;
  return (
    <section class="panel" id="versions" aria-label="Versions">
      <h2>Versions</h2>
      {info.draining && <p class="warning" role="status">It ends: it finishes its work and takes no new one.</p>}
      {info.insecure_listening.length > 0 && <p class="problem" role="alert">Other hosts can reach {info.insecure_listening.join(" and ")} without TLS or login (security.insecure): anybody on the network can change everything.</p>}
      <dl class="facts">
        <div><dt>octavod</dt><dd data-version={info.version}>{info.version}</dd></div>
        <div><dt>build</dt><dd class="wrap">{info.build}</dd></div>
        <div><dt>server</dt><dd>{info.server_id} at {address}</dd></div>
        <div><dt>listens at</dt><dd class="wrap">{info.listening.join(", ")}</dd></div>
        {caller && <div><dt>logged in as</dt><dd>{caller.name}, {inWords(caller.role)}{caller.project && `, project ${caller.project}`}</dd></div>}
        <div><dt>runs for</dt><dd>{span(now - info.started)}, since {new Date(info.started).toLocaleString()}</dd></div>
        {viewer && <div><dt>octavo web</dt><dd>{viewer.version}, Node {viewer.node.replace(/^v/, "")}, {bytes(viewer.resident_bytes)} of host memory</dd></div>}
      </dl>
      <details>
        <summary>Recovered at the start: {info.recovered.length === 0 ? "nothing" : info.recovered.length === 1 ? "1 line" : `${info.recovered.length} lines`}{lost > 0 && <span class="lost">, {lost === 1 ? "1 tells of a loss" : `${lost} tell of losses`}</span>}</summary>
        <ul>{info.recovered.map((line) => <li key={line}>{line}</li>)}</ul>
      </details>
    </section>
  );
}
