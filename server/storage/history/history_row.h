#pragma once

#include <cstdint>
#include <string>

namespace octavo::storage {

/// What a row is about. The numbers are in databases: they do not change.
/// An older program leaves out rows of kinds that it does not know.
enum class HistoryKind : uint8_t { kScan = 1, kJob = 2, kCommit = 3, kVolume = 4 };
inline constexpr HistoryKind kHistoryKinds[] = {HistoryKind::kScan, HistoryKind::kJob,
                                                HistoryKind::kCommit, HistoryKind::kVolume};
const char* Name(HistoryKind kind);  // "scan"

/// What is remembered of one scan, job, commit or held volume. It has no secrets: of the request's
/// body only a digest.
struct HistoryRow {
  HistoryKind kind = HistoryKind::kScan;
  std::string name;  // scans/…, jobs/…, operations/…, volumes/…; the last also of a commit of the
                     // server's own
  uint64_t number = 0;  // in the order of the submissions of a kind, over all daemons
  std::string state;    // "RUNNING"
  bool ended = false;   // the state is final
  std::string reason_code, reason;
  std::string title, owner, project;
  std::string request_id;      // empty = none
  std::string request_digest;  // of the request's body: SHA-256, in hexadecimal digits
  int64_t created_unix_ns = 0, started_unix_ns = 0, ended_unix_ns = 0;  // 0 = not yet
  std::string details;  // JSON: what only this kind has

  bool operator==(const HistoryRow&) const = default;
};

}  // namespace octavo::storage
