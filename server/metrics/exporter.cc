#include "server/metrics/exporter.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <iterator>
#include <limits>
#include <netdb.h>
#include <optional>
#include <sys/socket.h>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "prometheus/collectable.h"
#include "prometheus/exposer.h"
#include "prometheus/metric_family.h"

#include "gpu/base/unique_fd.h"
#include "server/buffer/buffer_store.h"
#include "server/metrics/label_values.h"
#include "server/metrics/process_metrics.h"

namespace octavo::metrics {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<std::pair<std::string, std::string>>;

// Counts unknown label values as kOther.
std::map<std::string, int64_t> Folded(const LabelValues& known,
                                      const std::map<std::string, int64_t>& counted) {
  std::map<std::string, int64_t> all;
  for (const std::string& value : known) all[value] = 0;
  for (const auto& [value, n] : counted) {
    const auto it = all.find(value);
    (it == all.end() ? all[kOther] : it->second) += n;
  }
  return all;
}

class Page final : public prometheus::Collectable {
 public:
  explicit Page(PageSource source) : source_(std::move(source)) {}

  std::vector<MetricFamily> Collect() const override {
    const model::Stats stats = source_.engine->Snapshot();
    const auto quarantines = source_.engine->Quarantines();
    // A deque: families are filled after others were added behind them, and must stay where they
    // are.
    std::deque<MetricFamily> page;
    for (MetricFamily& one : ProcessMetrics()) page.push_back(std::move(one));
    const auto family = [&](const char* name, const char* help, MetricType type) -> MetricFamily& {
      page.push_back({.name = name, .help = help, .type = type, .metric = {}});
      return page.back();
    };
    const auto value = [](MetricFamily& to, const Labels& labels, double v) {
      ClientMetric metric;
      for (const auto& [name, text] : labels) metric.label.push_back({.name = name, .value = text});
      if (to.type == MetricType::Counter) {
        metric.counter.value = v;
      } else {
        metric.gauge.value = v;
      }
      to.metric.push_back(std::move(metric));
    };
    const auto each = [&](const char* name, const char* help, MetricType type, const char* label,
                          const std::map<std::string, int64_t>& values) {
      MetricFamily& to = family(name, help, type);
      for (const auto& [key, n] : values) value(to, {{label, key}}, static_cast<double>(n));
    };
    // Writes all values that the label can have, 0 if there is none yet.
    const auto every = [&](const char* name, const char* help, MetricType type, const char* label,
                           const LabelValues& values, std::map<std::string, int64_t> counted) {
      for (const std::string& known : values) counted.try_emplace(known, 0);
      each(name, help, type, label, counted);
    };
    // The same for reasons, which are an open set.
    const auto reasons = [&](const char* name, const char* help, const LabelValues& values,
                             const std::map<std::string, int64_t>& counted) {
      each(name, help, MetricType::Counter, "reason", Folded(values, counted));
    };
    const auto one = [&](const char* name, const char* help, MetricType type, double v) {
      value(family(name, help, type), {}, v);
    };
    const auto histogram = [](MetricFamily& to, const Labels& labels,
                              const model::Histogram& from) {
      ClientMetric metric;
      for (const auto& [name, text] : labels) metric.label.push_back({.name = name, .value = text});
      metric.histogram.sample_count = static_cast<uint64_t>(from.count);
      metric.histogram.sample_sum = from.sum;
      uint64_t sum = 0;
      for (size_t i = 0; i < from.counts.size(); ++i) {
        sum += static_cast<uint64_t>(from.counts[i]);
        const double bound = i < model::kSecondsBounds.size()
                                 ? model::kSecondsBounds[i]
                                 : std::numeric_limits<double>::infinity();
        metric.histogram.bucket.push_back({.cumulative_count = sum, .upper_bound = bound});
      }
      to.metric.push_back(std::move(metric));
    };
    const auto histograms = [&](MetricFamily& to, const char* label, const LabelValues& values,
                                std::map<std::string, model::Histogram> counted) {
      for (const std::string& known : values) counted.try_emplace(known);
      for (const auto& [key, from] : counted) histogram(to, {{label, key}}, from);
    };
    constexpr auto kCounter = MetricType::Counter, kGauge = MetricType::Gauge,
                   kHistogram = MetricType::Histogram;

    value(family("octavo_build_info", "Version and backend of this server", kGauge),
          {{"version", source_.version}, {"backend", source_.backend}}, 1);
    const auto told = [](const std::atomic<int64_t>* n) {
      return n == nullptr ? 0.0 : static_cast<double>(n->load());
    };
    one("octavo_config_reloads_total", "Times that the configuration was read again", kCounter,
        told(source_.reloads));
    one("octavo_config_reload_errors_total", "Configuration reloads that failed", kCounter,
        told(source_.reload_errors));
    const auto tokens =
        source_.tokens == nullptr ? security::TokenStore::Counts{} : source_.tokens->Count();
    one("octavo_tokens", "Bearer tokens that the server takes, expired ones included", kGauge,
        static_cast<double>(tokens.tokens));
    one("octavo_token_reloads_total", "Times that a changed file of tokens was taken over",
        kCounter, static_cast<double>(tokens.reloads));
    one("octavo_token_reload_errors_total",
        "Times that a changed file of tokens could not be used, and the tokens before it stayed",
        kCounter, static_cast<double>(tokens.reload_errors));
    const auto tls = source_.tls == nullptr ? security::TlsStore::Counts{} : source_.tls->Count();
    one("octavo_tls_certificate_not_after_seconds",
        "When the server's certificates expire, seconds since 1970; 0 without TLS", kGauge,
        static_cast<double>(tls.not_after));
    one("octavo_tls_reloads_total", "Times that changed certificates and keys were taken over",
        kCounter, static_cast<double>(tls.reloads));
    one("octavo_tls_reload_errors_total",
        "Times that changed certificates and keys could not be used, and those before them stayed",
        kCounter, static_cast<double>(tls.reload_errors));
    std::map<std::string, int64_t> tls_failures;
    const auto failed = source_.tls_failures == nullptr ? security::TlsFailures::Counts{}
                                                        : source_.tls_failures->Count();
    for (size_t i = 0; i < failed.size(); ++i)
      tls_failures[std::string(security::Name(static_cast<security::TlsFailure>(i)))] = failed[i];
    each("octavo_tls_failures_total", "Connections that failed at TLS, by reason", kCounter,
         "reason", tls_failures);
    const auto certificates = source_.certificates == nullptr ? security::CertificateTable::Counts{}
                                                              : source_.certificates->Count();
    one("octavo_certificate_lines", "Lines of the table of clients' certificates", kGauge,
        static_cast<double>(certificates.lines));
    one("octavo_certificate_reloads_total",
        "Times that a changed table of clients' certificates was taken over", kCounter,
        static_cast<double>(certificates.reloads));
    one("octavo_certificate_reload_errors_total",
        "Times that a changed table of clients' certificates could not be used, and the one before "
        "it stayed",
        kCounter, static_cast<double>(certificates.reload_errors));
    every("octavo_scans", "Scans the server knows, by state", kGauge, "state",
          NamesOf<model::ScanState>(model::Name), stats.scans_by_state);
    reasons("octavo_scans_finished_total", "Scans that ended, by reason", ScanEnds(),
            stats.scans_finished);
    reasons("octavo_scan_rejected_total", "Scans refused, by reason", ScanRejections(),
            stats.scans_rejected);
    one("octavo_scans_resumed_total",
        "Scans of earlier daemons that this one has begun again (on_restart = RESUME)", kCounter,
        static_cast<double>(stats.scans_resumed));
    one("octavo_scans_not_resumed",
        "Scans of earlier daemons that this one was to begin again and could not", kGauge,
        static_cast<double>(stats.scans_not_resumed));
    one("octavo_records_total", "Records processed", kCounter, static_cast<double>(stats.records));
    every("octavo_blocks_dropped_total", "Blocks of records lost, by reason", kCounter, "reason",
          {"overrun"}, stats.blocks_dropped);
    every("octavo_records_without_place_total",
          "Records that came again, too late or for no volume of the scan, by reason", kCounter,
          "reason", {"duplicate", "out_of_range"}, stats.records_without_place);
    one("octavo_records_not_finite_total",
        "Records of 32-bit numbers with a NaN or an infinite sample", kCounter,
        static_cast<double>(stats.records_not_finite));
    one("octavo_source_overruns_total", "Times a source found no free slot", kCounter,
        static_cast<double>(stats.source_overruns));
    every("octavo_source_records_lost_total",
          "Records that never came from the source (gap) or could not be used, by reason", kCounter,
          "reason", {"gap", "overrun", "duplicate", "out_of_range"}, stats.source_records_lost);
    one("octavo_ring_producers", "Processes that feed a ring now", kGauge,
        static_cast<double>(stats.ring_producers));
    one("octavo_ring_broken_blocks_total", "Invalid blocks in producers' rings", kCounter,
        static_cast<double>(stats.ring_blocks_broken));
    every("octavo_camera_frames_lost_total",
          "Camera frames that never came (lost) or came incomplete (broken)", kCounter, "reason",
          {"lost", "broken"}, stats.camera_frames_lost);
    one("octavo_ring_occupancy_ratio", "Share of ring slots in use, fullest ring", kGauge,
        stats.ring_occupancy);
    {
      MetricFamily& to =
          family("octavo_stage_seconds", "Time of a block in each stage", kHistogram);
      histograms(to, "stage", {"wait", "upload", "process", "download", "publish"},
                 stats.stage_seconds);
    }
    histogram(family("octavo_volume_latency_seconds", "Last record in host memory to volume held",
                     kHistogram),
              {}, stats.volume_latency_seconds);
    {
      MetricFamily& to =
          family("octavo_frame_latency_seconds", "Last record to frame published", kHistogram);
      histograms(to, "product", NamesOf<model::Product>(model::Name), stats.frame_latency_seconds);
    }
    every("octavo_volumes", "Volumes the server holds in any tier, by state", kGauge, "state",
          {"ACQUIRING", "HELD", "COMMITTING"}, stats.volumes_by_state);
    every("octavo_volumes_finished_total", "Volumes that left memory or never came, by reason",
          kCounter, "reason",
          {"committed", "discarded", "failed", "dropped", "overwritten", "expired"},
          stats.volumes_finished);
    one("octavo_chains_skipped_total",
        "Results of chains that scans asked for and did not get (Volume.skipped_chains)", kCounter,
        static_cast<double>(stats.chains_skipped));
    one("octavo_volume_missing_ascans_total", "A-scans that no record reached", kCounter,
        static_cast<double>(stats.missing_ascans));
    one("octavo_voxels_total", "Voxels of volumes that scans completed", kCounter,
        static_cast<double>(stats.voxels));
    each("octavo_voxels_clipped_total",
         "Of those, voxels that were clipped, by the end of the levels that they lie beyond",
         kCounter, "kind", stats.voxels_clipped);
    one("octavo_oldest_held_seconds", "Age of the oldest held volume", kGauge,
        stats.oldest_held_seconds);
    histogram(family("octavo_commit_seconds", "Duration of commits", kHistogram), {},
              stats.commit_seconds);
    one("octavo_commit_bytes_total", "Bytes written by commits", kCounter,
        static_cast<double>(stats.commit_bytes));
    reasons("octavo_commit_errors_total", "Failed commits, by reason", CommitErrors(),
            stats.commit_errors);
    each("octavo_operations_running", "Operations of volumes that clients began, by kind", kGauge,
         "kind", stats.operations_running);
    {
      MetricFamily& to = family("octavo_operations_finished_total",
                                "Those that ended, by kind and by how they ended", kCounter);
      for (const auto& [key, n] : stats.operations_finished)
        value(to, {{"kind", key.first}, {"result", key.second}}, static_cast<double>(n));
    }
    one("octavo_operations_kept", "Ended operations that can still be looked up", kGauge,
        static_cast<double>(stats.operations_kept));
    one("octavo_operations_forgotten_total", "Ended operations that no longer can", kCounter,
        static_cast<double>(stats.operations_forgotten));
    every("octavo_lost_at_start",
          "Scans, jobs, commits and held volumes that died with the last daemon, as this start "
          "found, "
          "by kind",
          kGauge, "kind", {"scan", "job", "commit", "volume"}, source_.lost);
    one("octavo_history_up",
        "1: scans, jobs, commits and held volumes are recorded for the next daemon; 0: there is no "
        "history, or "
        "it cannot be written now",
        kGauge, stats.history.on && !stats.history.failing ? 1 : 0);
    one("octavo_history_waiting_rows", "Rows of the history that wait to be written", kGauge,
        static_cast<double>(stats.history.waiting));
    one("octavo_history_rows_total", "Rows written into the history", kCounter,
        static_cast<double>(stats.history.written));
    one("octavo_history_dropped_total", "Rows that the history had no place for", kCounter,
        static_cast<double>(stats.history.dropped));
    one("octavo_history_errors_total", "Attempts to write the history that failed", kCounter,
        static_cast<double>(stats.history.errors));
    one("octavo_audit_up",
        "1: the audit log has a line for each change and refusal; 0: there is no audit log, or it "
        "cannot be written now",
        kGauge, stats.audit.on && !stats.audit.failing ? 1 : 0);
    one("octavo_audit_waiting_lines", "Lines of the audit log that wait to be written", kGauge,
        static_cast<double>(stats.audit.waiting));
    one("octavo_audit_lines_total", "Lines written into the audit log", kCounter,
        static_cast<double>(stats.audit.written));
    one("octavo_audit_dropped_total", "Lines that the audit log had no place for", kCounter,
        static_cast<double>(stats.audit.dropped));
    one("octavo_audit_left_out_total",
        "Failed calls without a line, because their principal had too many of them", kCounter,
        static_cast<double>(stats.audit.left_out));
    one("octavo_audit_errors_total", "Attempts to write the audit log that failed", kCounter,
        static_cast<double>(stats.audit.errors));
    const LabelValues products = NamesOf<model::Product>(model::Name);
    every("octavo_subscribers", "Subscriptions, by product", kGauge, "product", products,
          stats.subscribers);
    every("octavo_frames_published_total", "Frames published, by product", kCounter, "product",
          products, stats.frames_published);
    every("octavo_frames_sent_total", "Frames taken by subscribers, by product", kCounter,
          "product", products, stats.frames_sent);
    {
      MetricFamily& to =
          family("octavo_frames_dropped_total", "Frames that a subscriber did not get", kCounter);
      LabelValues policies = NamesOf<model::Delivery>(model::Name);
      policies.insert(policies.end(), {"no_memory", "yielded", "superseded"});
      auto dropped = stats.frames_dropped;
      for (const auto& product : products) {
        for (const auto& policy : policies) dropped.try_emplace({product, policy}, 0);
      }
      for (const auto& [key, n] : dropped)
        value(to, {{"product", key.first}, {"policy", key.second}}, static_cast<double>(n));
    }
    every("octavo_streams_cut_total", "Streams the server ended, by reason", kCounter, "reason",
          {"frame_lost", "no_first_message", "no_message", "slow_subscriber", "stalled"},
          stats.streams_cut);
    every("octavo_jobs", "Jobs the server knows, by state", kGauge, "state",
          NamesOf<job::JobState>(job::Name), stats.jobs_by_state);
    {
      MetricFamily& to =
          family("octavo_jobs_finished_total", "Jobs that ended, by kind and reason", kCounter);
      std::map<std::string, std::map<std::string, int64_t>> ends;  // by kind
      for (const auto& kind : JobKinds()) ends[kind];
      for (const auto& [key, n] : stats.jobs_finished) ends[key.first][key.second] = n;
      for (const auto& [kind, counted] : ends) {
        for (const auto& [reason, n] : Folded(JobEnds(), counted))
          value(to, {{"kind", kind}, {"reason", reason}}, static_cast<double>(n));
      }
    }
    histogram(family("octavo_job_queue_seconds", "Job submitted to begun", kHistogram), {},
              stats.job_queue_seconds);
    {
      MetricFamily& to =
          family("octavo_job_run_seconds", "Job begun to ended, by kind", kHistogram);
      histograms(to, "kind", JobKinds(), stats.job_run_seconds);
    }
    LabelValues devices;
    for (const auto& device : stats.devices) devices.push_back(device.name);
    every("octavo_allocation_failures_total", "Failed device allocations", kCounter, "device",
          devices, stats.allocation_failures);
    every("octavo_admission_refusals_total",
          "Requests for device memory that were refused, by reason", kCounter, "reason",
          {"DEVICE_FULL", "EXCEEDS_BUDGET", "QUOTA"}, stats.admission_refusals);
    LabelValues quotas;
    for (const auto& [kind, n] : stats.quota_refusals) quotas.push_back(kind);
    every("octavo_quota_refusals_total",
          "Requests that would have exceeded the quota of their principal, by what it counts",
          kCounter, "kind", quotas, stats.quota_refusals);
    {
      const model::StopForecast stop = source_.stop ? source_.stop(stats) : model::StopForecast{};
      one("octavo_stop_volumes", "Held volumes that a stop of the server would have to write",
          kGauge, static_cast<double>(stop.volumes));
      each("octavo_stop_bytes",
           "Their bytes (unwritten), and those for which there is room on the disk (room)", kGauge,
           "kind", {{"unwritten", stop.bytes}, {"room", stop.room_bytes}});
      one("octavo_stop_disk_bytes_per_second",
          "Speed of that disk as measured, 0 if it is not known", kGauge, stop.bytes_per_second);
      one("octavo_stop_expected_seconds", "Time that writing them would take at this speed", kGauge,
          stop.seconds);
      one("octavo_stop_limit_seconds",
          "Time that it may take (drain.spill_seconds), 0 without a "
          "limit",
          kGauge, stop.limit_seconds);
    }
    every("octavo_held_volumes", "Held volumes, by the tier that their bytes are in", kGauge,
          "tier", NamesOf<model::Tier>(model::Name), stats.volumes_by_tier);
    {
      MetricFamily& bytes =
          family("octavo_spill_tier_bytes", "Tiers that volumes are spilled to, by kind", kGauge);
      MetricFamily& failures =
          family("octavo_spill_failures_total",
                 "Spills that did not work; the volumes stayed on the device", kCounter);
      MetricFamily& spilled = family("octavo_spilled_bytes_total",
                                     "Bytes moved out of device memory, by tier", kCounter);
      MetricFamily& restored = family("octavo_restored_bytes_total",
                                      "Bytes moved back to device memory, by tier", kCounter);
      for (const auto& t : stats.tiers) {
        value(bytes, {{"tier", Name(t.tier)}, {"kind", "quota"}},
              static_cast<double>(t.quota_bytes));
        value(bytes, {{"tier", Name(t.tier)}, {"kind", "used"}}, static_cast<double>(t.used_bytes));
        value(failures, {{"tier", Name(t.tier)}}, static_cast<double>(t.failures));
        value(spilled, {{"tier", Name(t.tier)}}, static_cast<double>(t.spilled_bytes));
        value(restored, {{"tier", Name(t.tier)}}, static_cast<double>(t.restored_bytes));
      }
      model::TierUse disk;
      for (const auto& t : stats.tiers) {
        if (t.tier == model::Tier::kDisk) disk = t;
      }
      one("octavo_mirrored_volumes",
          "Held volumes of other tiers that have a copy in the tier DISK (spill.mirror)", kGauge,
          static_cast<double>(disk.mirrors));
      one("octavo_mirrored_bytes", "Bytes of those copies", kGauge,
          static_cast<double>(disk.mirror_bytes));
      one("octavo_unmirrored_volumes",
          "Held volumes that could have such a copy, and are not in the tier DISK either: lost if "
          "the server were killed now",
          kGauge, static_cast<double>(disk.unmirrored));
      one("octavo_unmirrored_bytes", "Bytes of those volumes", kGauge,
          static_cast<double>(disk.unmirrored_bytes));
      one("octavo_mirror_room_bytes", "Bytes of volumes for which there is room in such copies",
          kGauge, static_cast<double>(stats.mirror_room_bytes));
      one("octavo_mirror_failures_total",
          "Such copies that could not be made; they are tried again", kCounter,
          static_cast<double>(stats.mirror_failures));
      one("octavo_mark_failures_total",
          "Marks (HoldVolume) that could not be written into the file of a spilled or mirrored "
          "volume; they are tried again",
          kCounter, static_cast<double>(stats.mark_failures));
      MetricFamily& spill =
          family("octavo_spill_seconds", "Duration of spills, by tier", kHistogram);
      histograms(spill, "tier", {"DISK", "HOST"}, stats.spill_seconds);
      MetricFamily& restore =
          family("octavo_restore_seconds", "Duration of restores, by tier", kHistogram);
      histograms(restore, "tier", {"DISK", "HOST"}, stats.restore_seconds);
    }
    {
      MetricFamily& entries =
          family("octavo_quarantine_entries",
                 "What recoveries moved to .octavo-quarantine, by storage root", kGauge);
      for (const auto& [root, use] : quarantines)
        value(entries, {{"root", root}}, static_cast<double>(use.entries));
      MetricFamily& bytes =
          family("octavo_quarantine_bytes", "Bytes in .octavo-quarantine, by storage root", kGauge);
      for (const auto& [root, use] : quarantines)
        value(bytes, {{"root", root}}, static_cast<double>(use.bytes));
    }
    {
      MetricFamily& backend = family(
          "octavo_storage_backend",
          "1 for the way by which files of a storage root come into devices, and why", kGauge);
      MetricFamily& errors =
          family("octavo_storage_cufile_errors_total",
                 "Reads that cuFile failed and another way repeated, by storage root", kCounter);
      for (const storage::RootReads& root : source_.engine->devices().StorageRoots()) {
        value(backend, {{"root", root.root}, {"backend", Name(root.way)}, {"reason", root.word}},
              1);
        value(errors, {{"root", root.root}}, static_cast<double>(root.cufile_errors));
      }
    }
    one("octavo_sessions", "Client sessions that are alive", kGauge,
        static_cast<double>(stats.sessions));
    one("octavo_sessions_expired_total", "Client sessions that expired", kCounter,
        static_cast<double>(stats.sessions_expired));
    one("octavo_grants", "Grants that have not ended", kGauge, static_cast<double>(stats.grants));
    each("octavo_leases", "Leases held, by mode, and requests that wait", kGauge, "mode",
         stats.leases);
    one("octavo_leases_granted_total", "Leases granted", kCounter,
        static_cast<double>(stats.leases_granted));
    one("octavo_leases_expired_total", "Leases that expired", kCounter,
        static_cast<double>(stats.leases_expired));
    one("octavo_lease_refusals_total", "Requests for leases refused at once", kCounter,
        static_cast<double>(stats.lease_refusals));
    one("octavo_lease_waits_total", "Requests for leases that stood in the queue", kCounter,
        static_cast<double>(stats.lease_waits));
    one("octavo_lease_wait_seconds_total", "Time that granted leases were waited for", kCounter,
        stats.lease_wait_seconds);
    {
      const auto exports = source_.engine->exports().store().Count();
      MetricFamily& now =
          family("octavo_exports",
                 "Memory that other processes have or have a ticket for, by state", kGauge);
      for (const auto& [state, count] :
           {std::pair{"waiting", exports.waiting},
            std::pair{"open", exports.exports - exports.waiting - exports.revoked},
            std::pair{"revoked", exports.revoked}, std::pair{"overdue", exports.overdue}}) {
        value(now, {{"state", state}}, static_cast<double>(count));
      }
      one("octavo_export_detached_bytes", "Memory that only exports keep", kGauge,
          static_cast<double>(exports.detached_bytes));
      one("octavo_exports_granted_total", "Exports granted", kCounter,
          static_cast<double>(exports.granted));
      one("octavo_export_descriptors_sent_total",
          "Descriptors handed over; the other exports used a mapping that the client had", kCounter,
          static_cast<double>(exports.descriptors_sent));
      one("octavo_export_relocations_total",
          "Volumes and buffers that were moved out of memory that was not given back in time",
          kCounter, static_cast<double>(exports.moved));
      one("octavo_export_relocation_failures_total",
          "Such moves that failed, for lack of memory or because of a lease", kCounter,
          static_cast<double>(exports.not_moved));
      const auto feeds = source_.engine->exports().feeds().Count();
      one("octavo_volume_feeds", "Clients with a feed of the volumes of a scan as they complete",
          kGauge, static_cast<double>(feeds.feeds));
      one("octavo_volume_feed_told_total", "Volumes announced to them", kCounter,
          static_cast<double>(feeds.told));
      one("octavo_volume_feed_skipped_total",
          "Volumes left out, because a client had as many as it may", kCounter,
          static_cast<double>(feeds.skipped));
      const auto frames = source_.engine->exports().frames().Count();
      one("octavo_frame_feeds", "Subscriptions whose frames go by memory that the client maps",
          kGauge, static_cast<double>(frames.feeds));
      one("octavo_frame_feed_memory_bytes", "Host memory of these frames", kGauge,
          static_cast<double>(frames.memory_bytes));
      one("octavo_frame_feed_frames_total", "Frames that went by it", kCounter,
          static_cast<double>(frames.frames));
      one("octavo_frame_feed_bytes_total", "Data of these frames", kCounter,
          static_cast<double>(frames.frame_bytes));
      reasons("octavo_export_refusals_total", "Exports and tickets refused, by reason",
              ExportRefusals(), exports.refused);
    }
    {
      MetricFamily& memory = family("octavo_device_memory_bytes", "Device memory, by kind", kGauge);
      for (const auto& d : stats.devices) {
        for (const auto& [kind, bytes] :
             {std::pair{"total", d.total_bytes}, std::pair{"budget", d.budget_bytes},
              std::pair{"reserved", d.reserved_bytes}, std::pair{"used", d.used_bytes},
              std::pair{"held", d.held_bytes}, std::pair{"cached", d.cached_bytes},
              std::pair{"detached", d.detached_bytes}, std::pair{"buffers", d.buffer_bytes},
              std::pair{"peak", d.peak_bytes}}) {
          value(memory, {{"device", d.name}, {"kind", kind}}, static_cast<double>(bytes));
        }
      }
    }
    {
      const auto& b = stats.buffers;
      one("octavo_buffers", "Buffers that clients made", kGauge, static_cast<double>(b.count));
      one("octavo_buffer_owners", "Clients that have buffers", kGauge,
          static_cast<double>(b.owners));
      one("octavo_buffer_largest_owner_bytes",
          "Device memory in the buffers of the client that has most", kGauge,
          static_cast<double>(b.largest_owner_bytes));
      one("octavo_buffer_quota_bytes",
          "Device memory that the buffers of one client may take; 0 without a limit", kGauge,
          static_cast<double>(b.quota_bytes));
      each("octavo_buffer_replicas", "Replicas of buffers, by device", kGauge, "device",
           b.replicas);
      each("octavo_buffer_bytes", "Bytes in replicas of buffers, by device", kGauge, "device",
           b.bytes);
      one("octavo_buffer_written_bytes_total",
          "Bytes written to buffers by clients, once each however many replicas", kCounter,
          static_cast<double>(b.written_bytes));
      one("octavo_buffer_forwarded_bytes_total", "Bytes of buffers copied from device to device",
          kCounter, static_cast<double>(b.forwarded_bytes));
      one("octavo_buffer_read_bytes_total",
          "Bytes of buffers and of volumes read through BufferService", kCounter,
          static_cast<double>(b.read_bytes));
      one("octavo_buffer_operations_total", "Operations on buffers", kCounter,
          static_cast<double>(b.operations));
      every("octavo_buffers_finished_total", "Buffers that are gone, by reason", kCounter, "reason",
            {"destroyed", "expired", "revoked"}, b.gone);
      one("octavo_buffer_imports",
          "Memory that clients lend to buffers, that of buffers that are gone included until it is "
          "unmapped",
          kGauge, static_cast<double>(b.imports));
      each("octavo_buffer_imported_bytes", "Its bytes, by device", kGauge, "device",
           b.imported_bytes);
      reasons("octavo_buffer_refusals_total", "Calls of BufferService that were refused, by reason",
              BufferRefusals(), b.refusals);
    }
    {
      MetricFamily& healthy =
          family("octavo_device_healthy", "1 if the device can be used", kGauge);
      for (const auto& d : stats.devices)
        value(healthy, {{"device", d.name}, {"backend", d.backend}}, d.healthy ? 1 : 0);
    }
    return {std::make_move_iterator(page.begin()), std::make_move_iterator(page.end())};
  }

 private:
  const PageSource source_;
};

// Connects and hangs up, without waiting for an answer.
void Knock(std::string host, const std::string& port) {
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return;
  const UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  (void)::connect(fd.get(), found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
}

// The library does not say why: report the system's error for the same address, or else the
// library's message.
std::string WhyNot(const std::string& address, const std::string& library) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error =
          ::getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &wanted, &found);
      error != 0)
    return ::gai_strerror(error);
  const UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int error = ::bind(fd.get(), found->ai_addr, found->ai_addrlen) == 0 ? 0 : errno;
  ::freeaddrinfo(found);
  if (error == EADDRINUSE)
    return "another program uses it; allowed is a free port, 0 for any, or none";
  return error == 0 ? library : std::strerror(error);
}

class ExporterImpl final : public Exporter {
 public:
  // A connection that sends nothing holds a thread until the time-out: a few threads and a short
  // time-out keep it from blocking the scraper.
  ExporterImpl(const std::string& address, std::shared_ptr<Page> page)
      : page_(std::move(page)),
        exposer_(std::in_place, std::vector<std::string>{"listening_ports", address, "num_threads",
                                                         "4", "request_timeout_ms", "2000"}),
        host_(address.substr(0, address.rfind(':'))),
        port_(exposer_->GetListeningPorts()[0]) {
    exposer_->RegisterCollectable(page_);
  }
  // The library's listener checks whether it should stop only when its poll ends: every 2 s, or
  // when a client connects.
  ~ExporterImpl() override {
    const std::jthread knocking([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        Knock(host_, absl::StrCat(port_));
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    });
    exposer_.reset();
  }
  std::string address() const override { return absl::StrCat(host_, ":", port_); }

 private:
  const std::shared_ptr<Page> page_;
  std::optional<prometheus::Exposer> exposer_;
  const std::string host_;
  const int port_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Exporter>> Exporter::Start(const std::string& address,
                                                          PageSource source) {
  try {  // the library throws when it cannot listen
    return std::make_unique<ExporterImpl>(address, std::make_shared<Page>(std::move(source)));
  } catch (const std::exception& e) {
    return absl::FailedPreconditionError(absl::StrCat("metrics.listen: cannot listen on ", address,
                                                      ": ", WhyNot(address, e.what())));
  }
}

}  // namespace octavo::metrics
