// Devices, storage and sources: what the server can work with.
import type { DeviceRow, RootRow, ServerInfo } from "../../wire/protocol";
import { bytes, inWords } from "../format";

const WAYS: Record<string, string> = { BUFFERED: "buffered", DIRECT: "O_DIRECT", CUFILE: "GPUDirect (cuFile)" };
const MODES: Record<string, string> = { READ_WRITE: "read and write", READ_ONLY: "read only", MISSING: "missing", NO_ACCESS: "no access" };

const many = (count: number, what: string) => `${count} ${what}${count === 1 ? "" : "s"}`;

export function Devices({ devices, info }: { devices: DeviceRow[]; info: ServerInfo | undefined }) {
  return (
    <section class="panel" id="devices" aria-label="Devices">
      <h2>Devices</h2>
      <ul class="plain">
        {devices.map((device) => (
          <li key={device.name} data-device={device.name}>
            <b>{device.name}</b> {device.model} <span class="dim">{device.backend}, {bytes(device.total)}</span>, {many(device.running_scans, "scan")}, {many(device.running_jobs, "job")},{" "}
            {device.healthy ? <span class="good">healthy</span> : <span class="problem">not healthy: {device.reason}</span>}
            <br /><span class="dim">{device.uuid}</span>
          </li>
        ))}
      </ul>
      {info?.backends.map((backend) => (
        <p key={backend.name}>{backend.name} {backend.chosen ? "is used" : backend.available ? "could be used" : "is not there"}{backend.reason && <span class="dim">: {backend.reason}</span>}</p>
      ))}
    </section>
  );
}

export function Storage({ roots }: { roots: RootRow[] }) {
  return (
    <section class="panel" id="storage" aria-label="Storage">
      <h2>Storage</h2>
      {roots.length === 0 && <p class="note">No root is configured: nothing can be committed.</p>}
      <ul class="plain">
        {roots.map((root) => (
          <li key={`${root.use} ${root.path}`} data-root={root.path}>
            <code class="wrap">{root.path}</code>, {root.use === "COMMIT" ? "for commits" : "for replay"}: {" "}
            <span class={root.mode === "MISSING" || root.mode === "NO_ACCESS" ? "problem" : ""}>{MODES[root.mode] ?? inWords(root.mode)}</span>, {bytes(root.free)} free
            {root.quarantine_entries > 0 && <span class="warning">; {root.quarantine_entries} damaged or unfinished files set aside, {bytes(root.quarantine_bytes)}</span>}
            <br />
            <span class="dim">
              into a device: {root.way ? WAYS[root.way] ?? inWords(root.way) : `buffered (${root.way_reason || "not measured yet"})`}
              {root.rates.map((rate) => `; ${WAYS[rate.way] ?? inWords(rate.way)} ${bytes(rate.bytes_per_s)}/s`).join("")}
              {root.way && root.way_reason && `; ${root.way_reason}`}
              {root.cufile && `; no cuFile: ${root.cufile}`}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

export function Sources({ sources }: { sources: ServerInfo["sources"] }) {
  return (
    <section class="panel" id="sources" aria-label="Sources">
      <h2>Sources</h2>
      <ul class="plain">
        {sources.map((source) => (
          <li key={source.name} data-source={source.name}><b>{source.name}</b> <span class={source.available ? "good" : "warning"}>{source.available ? "available" : "not available"}</span>{source.reason && <span class="dim">: {source.reason}</span>}</li>
        ))}
      </ul>
    </section>
  );
}
