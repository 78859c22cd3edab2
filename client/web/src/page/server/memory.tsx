// The memory of the devices: who holds how much of each budget.
import type { DeviceRow, HolderRow, MemoryState, TierRow } from "../../wire/protocol";
import { bytes, inWords, shortName } from "../format";
import { NameLink } from "../parts/links";

const LEAST_SHOWN = 0.004; // of the budget: what is smaller is one segment together with its like
const KINDS: Record<string, { text: string; look: string }> = {
  RUNNING_SCAN: { text: "running scan", look: "scan" },
  RUNNING_JOB: { text: "running job", look: "job" },
  HELD_VOLUME: { text: "held volume", look: "held" },
  CLIENT_BUFFER: { text: "buffer", look: "buffer" },
  CACHED: { text: "kept for next scans", look: "cached" },
  DETACHED: { text: "kept alive by other processes", look: "detached" },
};
export const kindOf = (holder: HolderRow) => KINDS[holder.kind]?.text ?? inWords(holder.kind);

interface Segment {
  look: string;
  bytes: number;
  text: string;
}

/** The holders of a device, largest first; small ones of a kind together. */
function segmentsOf(device: DeviceRow, holders: HolderRow[]): Segment[] {
  const segments: Segment[] = [];
  const small = new Map<string, { bytes: number; count: number }>();
  for (const holder of holders) {
    const name = holder.name ? ` ${shortName(holder.name)}` : "";
    if (holder.bytes >= LEAST_SHOWN * device.budget) segments.push({ look: KINDS[holder.kind]?.look ?? "scan", bytes: holder.bytes, text: `${kindOf(holder)}${name}${holder.title ? `, ${holder.title}` : ""}: ${bytes(holder.bytes)}` });
    else {
      const sum = small.get(holder.kind) ?? { bytes: 0, count: 0 };
      small.set(holder.kind, { bytes: sum.bytes + holder.bytes, count: sum.count + 1 });
    }
  }
  for (const [kind, sum] of small) if (sum.bytes > 0) segments.push({ look: KINDS[kind]?.look ?? "scan", bytes: sum.bytes, text: `${sum.count} × ${KINDS[kind]?.text ?? inWords(kind)}: ${bytes(sum.bytes)}` });
  const order = Object.values(KINDS).map((kind) => kind.look);
  return segments.sort((a, b) => order.indexOf(a.look) - order.indexOf(b.look) || b.bytes - a.bytes);
}

function Bar({ device, holders }: { device: DeviceRow; holders: HolderRow[] }) {
  const figures: [string, string, number][] = [
    ["scan", "reserved", device.reserved], ["held", "held", device.held], ["buffer", "buffers", device.buffers], ["cached", "cached", device.cached], ["detached", "detached", device.detached], ["", "free", device.free],
  ];
  const text = figures.map(([, name, value]) => `${name} ${bytes(value)}`).join(", ");
  let x = 0;
  return (
    <div class="memory" data-device={device.name}>
      <p class="row"><b>{device.name}</b> <span class="dim">{device.model}</span> <span class="gap" /> <span>{bytes(device.budget - device.free)} of {bytes(device.budget)} in use, at most {bytes(device.peak)} so far</span></p>
      <svg class="memory-bar" viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" aria-label={`Memory of ${device.name}, of ${bytes(device.budget)}: ${text}`}>
        <rect class="ground" x="0" y="0" width="1000" height="20" />
        {segmentsOf(device, holders).map((segment, i) => {
          const width = (1000 * segment.bytes) / Math.max(1, device.budget);
          const left = x;
          x += width;
          return <rect key={i} class={`segment ${segment.look}`} x={left} y="0" width={width} height="20"><title>{segment.text}</title></rect>;
        })}
      </svg>
      <dl class="figures">
        {figures.map(([look, name, value]) => <div key={name} data-figure={name} data-bytes={value}><dt>{look && <i class={`swatch ${look}`} aria-hidden="true" />}{name}</dt><dd>{bytes(value)}</dd></div>)}
        {device.imported > 0 && <div><dt>lent by clients, beside the budget</dt><dd>{bytes(device.imported)}</dd></div>}
      </dl>
    </div>
  );
}

export function Memory({ memory }: { memory: MemoryState }) {
  const holders = [...memory.holders].sort((a, b) => b.bytes - a.bytes);
  const { host } = memory;
  return (
    <section class="panel" id="memory" aria-label="Memory">
      <h2>Memory</h2>
      {memory.devices.map((device) => <Bar key={device.name} device={device} holders={holders.filter((holder) => holder.device === device.name)} />)}
      {holders.length === 0 ? <p class="note">Nothing holds device memory.</p> : (
        <div class="scroll short" tabIndex={0} role="region" aria-label="Holders of memory, largest first">
          <table>
            <thead><tr><th scope="col">Holder</th><th scope="col">What</th><th scope="col" class="number">Memory</th>{memory.devices.length > 1 && <th scope="col">Device</th>}<th scope="col">Session</th></tr></thead>
            <tbody>
              {holders.map((holder, i) => (
                <tr key={`${holder.name} ${holder.device} ${holder.kind} ${i}`} data-holder={holder.name} data-bytes={holder.bytes}>
                  <td class="wrap">{holder.name ? <NameLink name={holder.name}>{holder.title ? `${holder.title} (${shortName(holder.name)})` : shortName(holder.name)}</NameLink> : "–"}</td>
                  <td>{kindOf(holder)}</td>
                  <td class="number">{bytes(holder.bytes)}</td>
                  {memory.devices.length > 1 && <td>{holder.device}</td>}
                  <td>{holder.session ? <span title={holder.session}>{shortName(holder.session)}</span> : "–"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <dl class="facts">
        {host && <div><dt>host memory</dt><dd>{bytes(host.available)} of {bytes(host.total)} available{host.limited_by && <span class="dim">; limited by {host.limited_by}</span>}</dd></div>}
        {memory.tiers.map((tier) => <Tier key={tier.tier} tier={tier} />)}
      </dl>
    </section>
  );
}

function Tier({ tier }: { tier: TierRow }) {
  const name = tier.tier === "HOST" ? "spilled to host" : "spilled to disk";
  if (tier.quota === 0) {
    const why = tier.tier === "HOST" ? "spill.host_bytes is 0, or the host has no memory left for it" : "spill.disk_bytes is 0";
    return <div data-tier={tier.tier}><dt>{name}</dt><dd>off <span class="dim">({why})</span></dd></div>;
  }
  return (
    <div data-tier={tier.tier} data-used={tier.used}>
      <dt>{name}</dt>
      <dd>
        {bytes(tier.used)} of {bytes(tier.quota)}, {tier.volumes === 1 ? "1 volume" : `${tier.volumes} volumes`}
        <span class="dim">{tier.path && `; ${tier.path}, ${bytes(tier.disk_free)} free on its disk`}; moved there {bytes(tier.spilled)}, back {bytes(tier.restored)}</span>
        {tier.failures > 0 && <span class="problem">; {tier.failures} failed</span>}
      </dd>
    </div>
  );
}
