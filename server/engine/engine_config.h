#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/base/clock.h"
#include "server/engine/resume_book.h"
#include "server/memory/quota.h"
#include "server/security/audit_log.h"
#include "server/security/grant_book.h"
#include "server/security/root_rights.h"
#include "server/session/client_sessions.h"
#include "server/storage/direct/cufile.h"
#include "server/storage/history/history_writer.h"
#include "server/storage/spill/spill_folder.h"

namespace octavo::handoff {
class FdSocket;  // server/handoff/fd_socket.h
}

namespace octavo::engine {

struct EngineConfig {
  double memory_fraction = 0.8;  // share of a device's free memory at start for volumes and scans
  int64_t memory_bytes = 0;      // budget per device; overrides the fraction if > 0
  bool host_for_jobs = false;    // the last device is devices/host, only for jobs that name it
  int64_t host_for_jobs_bytes = 0;       // its budget; 0 = by the fraction
  int64_t frame_pool_bytes = 512 << 20;  // page-locked host memory per device for frames (at most
                                         // three quarters of it), reads and commits
  int commit_threads = 2;                // commits at once
  std::vector<std::string> replay_roots;
  storage::ReadSetting read_setting = storage::ReadSetting::kAuto;  // files into devices
  storage::CuFile::Options cufile;
  std::vector<std::string> camera_interfaces = {
      "GigEVision", "USB3Vision"};   // where the server looks for cameras; also "Fake"
  int64_t buffer_quota_bytes = 0;    // of device memory for the buffers of one client; 0 = no limit
  memory::QuotaRules quotas;         // of principals
  security::RootRights root_rights;  // which storage roots they may name
  std::string server_id;             // [a-z0-9]{8}: ids start with it
  std::string software;              // "octavo 0.1.0", for committed files
  const Clock* clock = nullptr;      // null = system clock
  int64_t slot_cache_bytes = int64_t{1}
                             << 30;  // memory of ended scans kept for the next ones, per device
  int64_t projection_bytes =
      0;  // host memory for projections that clients push; 0 = half of the machine's
  int64_t shared_frame_bytes = int64_t{1} << 30;  // host memory of frames that clients map
  int64_t spill_host_bytes = 0;  // page-locked host memory for spilled volumes; 0 = no tier HOST
  int spill_threads = 2;
  bool mirror = false;  // held volumes are copied into the tier DISK while the disk is idle
  storage::SpillFolder* spill_folder = nullptr;      // null = no tier DISK; must outlive the engine
  std::vector<storage::SpillFolder::Found> spilled;  // found at the start: held again
  session::SessionConfig sessions;
  int64_t most_leases = 65'536;                // granted ones and waiters
  int64_t history_entries = 1000;              // ended scans that stay listed
  int64_t history_bytes = int64_t{256} << 20;  // host memory for them; topics: an eighth besides
  storage::HistoryWriter* history = nullptr;   // null = no history; must outlive the engine
  security::AuditLog* audit = nullptr;         // null = no audit log; must outlive the engine
  security::GrantBook* grants = nullptr;       // null = grants end with the engine; must outlive it
  std::vector<storage::HistoryRow> earlier;    // of earlier daemons, settled (SettleEarlier)
  storage::ResumeFolder* resume =
      nullptr;                  // null = no scan can be resumed; must outlive the engine
  ResumeBook::Found to_resume;  // what earlier daemons left there
  handoff::FdSocket* handoff =
      nullptr;  // null = no hand-over of descriptors; must be stopped before the engine ends
};

}  // namespace octavo::engine
