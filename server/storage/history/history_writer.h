#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "server/storage/history/history_database.h"
#include "server/storage/history/history_row.h"

namespace octavo::storage {

/// Writes rows into the database on a thread of its own, so that whoever puts them never waits for
/// a disk. Of rows of one name that wait, the newest is written. A row that cannot be written (the
/// disk is full, or away) is tried again every second; those that find no place in the queue
/// meanwhile are dropped and counted. Thread-safe.
class HistoryWriter {
 public:
  static constexpr size_t kMostWaiting = 20'000;  // rows, a few kilobytes each

  HistoryWriter(std::unique_ptr<HistoryDatabase> database, const HistoryLimits& limits,
                size_t most_waiting = kMostWaiting);
  /// Close, with a second for the disk.
  ~HistoryWriter();

  void Put(HistoryRow row);
  /// Takes no more rows and waits until those that wait are written, for at most `patience`.
  /// Returns how many are not. A disk that hangs does not hold it up: its thread is left to itself.
  size_t Close(std::chrono::milliseconds patience);

  struct Counts {
    int64_t written = 0;   // rows
    int64_t dropped = 0;   // rows
    int64_t errors = 0;    // failed attempts to write
    int64_t waiting = 0;   // rows
    bool failing = false;  // the last attempt failed
    std::string error;     // of that attempt
  };
  Counts Count() const;

 private:
  struct State;
  static void Run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;  // the thread's, too, which may outlive this
  bool closed_ = false;
};

}  // namespace octavo::storage
