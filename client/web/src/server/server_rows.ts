// Memory, devices and versions of the daemon as pages get them.
import type { DeviceRow, HolderRow, MemoryState, RootRow, ServerInfo, TierRow } from "../wire/protocol";
import { ms, without } from "./convert";
import type { Message } from "./daemon";

function deviceRow(device: Message): DeviceRow {
  return {
    name: device.name,
    backend: device.backend,
    model: device.model,
    uuid: device.uuid,
    healthy: device.healthy,
    reason: device.reason,
    total: Number(device.total_bytes),
    budget: Number(device.budget_bytes),
    reserved: Number(device.reserved_bytes),
    held: Number(device.held_bytes),
    buffers: Number(device.buffer_bytes),
    cached: Number(device.cached_bytes),
    detached: Number(device.detached_bytes),
    free: Number(device.free_bytes),
    peak: Number(device.peak_bytes),
    imported: Number(device.imported_bytes),
    running_scans: device.running_scans,
    running_jobs: device.running_jobs,
  };
}

const holderRow = (holder: Message): HolderRow => ({
  name: holder.name, kind: without(holder.kind, "KIND_"), device: holder.device, bytes: Number(holder.bytes), title: holder.title, session: holder.session,
});

const tierRow = (tier: Message): TierRow => ({
  tier: without(tier.tier, "TIER_"), quota: Number(tier.quota_bytes), used: Number(tier.used_bytes), volumes: Number(tier.volumes), path: tier.path, disk_free: Number(tier.disk_free_bytes),
  spilled: Number(tier.spilled_bytes), restored: Number(tier.restored_bytes), failures: Number(tier.failures),
});

export function memoryState(memory: Message): MemoryState {
  const host = memory.host;
  return {
    devices: memory.devices.map(deviceRow),
    holders: memory.holders.map(holderRow),
    tiers: memory.tiers.map(tierRow),
    host: host && { total: Number(host.total_bytes), available: Number(host.available_bytes), machine: Number(host.machine_bytes), limited_by: host.limited_by },
  };
}

function rootRow(root: Message): RootRow {
  const way = root.backend ?? {};
  const rates = ["buffered", "direct", "cufile"].map((name) => ({ way: name.toUpperCase(), bytes_per_s: Number(way[`${name}_bytes_per_s`] ?? 0) }));
  return {
    path: root.path,
    use: without(root.use, "USE_"),
    mode: without(root.mode, "MODE_"),
    free: Number(root.free_bytes),
    quarantine_entries: Number(root.quarantine_entries),
    quarantine_bytes: Number(root.quarantine_bytes),
    way: without(way.kind ?? "", "STORAGE_BACKEND_KIND_"),
    way_reason: way.reason ?? "",
    cufile: way.cufile ?? "",
    rates: rates.filter((rate) => rate.bytes_per_s > 0),
    measured: ms(way.probe_time),
  };
}

export function serverInfo(info: Message): ServerInfo {
  return {
    version: info.version,
    build: info.build,
    server_id: info.server_id,
    started: ms(info.start_time),
    draining: info.draining,
    listening: info.listening,
    insecure_listening: info.insecure_listening,
    recovered: info.recovered,
    backends: info.backends.map((backend: Message) => ({ name: backend.name, available: backend.available, chosen: backend.chosen, reason: backend.reason, devices: backend.devices })),
    sources: info.sources.map((source: Message) => ({ name: source.name, available: source.available, reason: source.reason })),
    storage: info.storage.map(rootRow),
    quotas: (info.caller?.quotas ?? []).map((quota: Message) => ({ kind: without(quota.kind, "KIND_"), used: Number(quota.used), allowed: Number(quota.allowed) })),
    storage_roots: info.caller?.storage_roots ?? [],
  };
}
