#pragma once

// What was done to the server's scans, jobs, volumes and buffers, by whom, from where, and how it
// ended; and what was refused. One JSON object a line, in a file that is only appended to:
//
//   <dir>/audit.jsonl                         the current file
//   <dir>/audit-20261127T231502Z-0000.jsonl   earlier ones, put aside when they have `bytes`
//
// The newest `kept` of those put aside stay. When an older one is removed, a line says which.
//
// Whoever writes a line never waits for a disk: a thread writes what has come, and with `fsync`
// waits until the disk has it, before it writes the next lines. What may be lost is thus what came
// in the last moments before a kill -9 or a power cut, never what lies before it. Lines that cannot
// be written (the disk is full, or away) wait and are tried again every second; lines that find no
// place in the queue meanwhile are dropped and counted, and the file says how many. Each line has a
// number, so that a gap is seen.
//
// A caller whose calls fail again and again must not fill the disk, nor push out the lines of
// others. So the log writes only some lines a second about failures of one principal, counts the
// rest, and says in a line how many it left out (`AuditLog::Limits`). It writes every success.
//
// Secrets (tokens, lease tokens, session secrets, owner keys) are in no line.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace octavo::security {

/// The fields of a line in their order, without time and number.
using AuditLine = nlohmann::ordered_json;

/// Sets a field unless there is nothing to say.
inline void Put(AuditLine* line, const char* field, const std::string& value) {
  if (!value.empty()) (*line)[field] = value;
}

/// Thread-safe.
class AuditLog {
 public:
  struct Limits {
    int64_t bytes = 64 << 20;          // of a file before it is put aside
    int64_t kept = 16;                 // files that were put aside; 0 = all
    bool fsync = true;                 // lines are on the disk before the next ones are written
    size_t most_waiting = 20'000;      // lines
    double failures_per_second = 100;  // of one principal; ten times as many at once. A long line
                                       // counts as several
  };
  /// Makes the folder (mode 0700) if it is missing. FailedPrecondition if another process has it,
  /// or it is another user's; Unavailable with the reason if it cannot be used.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& folder,
                                                        const Limits& limits);
  /// Close, with a second for the disk.
  ~AuditLog();

  /// Queues a line. `principal`: whose it is, if it tells of something that did not succeed; such
  /// lines are limited. Does not wait.
  void Write(const AuditLine& line) { Write(line, nullptr); }
  void WriteFailure(const AuditLine& line, const std::string& principal) {
    Write(line, &principal);
  }
  /// Takes no more lines and waits until those that wait are written, for at most `patience`.
  /// Returns how many are not.
  size_t Close(std::chrono::milliseconds patience);

  struct Counts {
    int64_t written = 0;   // lines
    int64_t dropped = 0;   // lines that found no place in the queue
    int64_t left_out = 0;  // lines about failures, beyond the limit of a principal
    int64_t errors = 0;    // failed attempts to write
    int64_t waiting = 0;   // lines
    bool failing = false;  // the last attempt failed
    std::string error;     // why; empty unless it fails
  };
  Counts Count() const;

 private:
  struct State;
  explicit AuditLog(std::shared_ptr<State> state);
  void Write(const AuditLine& line, const std::string* failing);
  static void Run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;  // the thread's, too, which may outlive this
  bool closed_ = false;
};

}  // namespace octavo::security
