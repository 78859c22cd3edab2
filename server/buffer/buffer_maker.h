#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/array/array_ops.h"
#include "gpu/base/mutex.h"
#include "server/buffer/buffer_draft.h"
#include "server/buffer/buffer_entry.h"
#include "server/buffer/buffer_table.h"
#include "server/buffer/stream_ordering.h"
#include "server/memory/ledger.h"
#include "server/model/buffer_types.h"

namespace octavo::buffer {

/// Makes buffers: checks what is asked for, reserves memory on all devices or on none, allocates
/// and clears it. Thread-safe; calls take milliseconds.
class BufferMaker {
 public:
  struct Limits {
    std::string server_id;  // of the new names
    int64_t most_elements = int64_t{1} << 30;
    int64_t quota_bytes = 0;  // device memory of one owner; 0 = no limit
  };
  BufferMaker(BufferTable& table, StreamOrdering& order, memory::Ledger* ledger, Limits limits)
      : table_(table), order_(order), ledger_(ledger), limits_(std::move(limits)) {}

  const Limits& limits() const { return limits_; }
  /// Buffers may be on the numbered ones.
  const base::DeviceNames& names() const { return ledger_->names(); }
  /// InvalidArgument (BAD_PLACEMENT) if the array that `field` names is on devices/host: what is
  /// made of it would be a buffer there.
  absl::Status CheckMayHold(int device, const std::string& field) const;
  /// What can be said about a request without doing anything: the type of the buffer, or
  /// InvalidArgument.
  absl::StatusOr<ArrayType> Check(const model::BufferSpec& spec, const model::Caller& caller) const;
  /// A new buffer of `type`, which Check returned, in the table. InvalidArgument (BAD_PLACEMENT),
  /// Unavailable (DEVICE_DOWN), and the errors of Make.
  absl::StatusOr<model::BufferStatus> Create(const ArrayType& type, const model::BufferSpec& spec,
                                             const model::Caller& caller);
  /// A new buffer that is not in the table yet. `ready`: its zeros count as written.
  /// `is_private`: with the caller's key.
  /// ResourceExhausted (QUOTA, DEVICE_FULL, EXCEEDS_BUDGET).
  absl::StatusOr<BufferPtr> Make(const ArrayType& type, const std::vector<int>& devices,
                                 const model::Caller& caller, bool ready, bool is_private = false);

  /// A buffer on one device, in no table. `charge`: what the ledger has granted for its memory
  /// (BufferReplica::ChargedBytes); it belongs to the draft unless this fails. Errors of Check;
  /// ResourceExhausted (QUOTA), and errors of the device.
  absl::StatusOr<std::unique_ptr<BufferDraft>> Draft(const model::BufferSpec& spec,
                                                     const model::Caller& caller, int device,
                                                     memory::Ledger::ChargeId charge);
  /// The draft's buffer is in the table, READY and whole, for as long as its time to live.
  model::BufferStatus Insert(BufferDraft& draft);

  /// A name that no buffer has had.
  std::string NewName() const;
  /// The number of owners whose buffers are being made now.
  size_t owners_served() const {
    MutexLock lock(table_.mutex());
    return being_made_.size();
  }

 private:
  friend class BufferDraft;
  absl::StatusOr<ArrayType> CheckType(Scalar scalar, uint64_t lanes,
                                      const std::vector<uint64_t>& shape) const;
  absl::StatusOr<std::vector<int>> CheckDevices(const std::vector<uint32_t>& devices) const;
  /// Counts the bytes as the owner's until the buffer is made or not.
  absl::Status BeginBytes(const std::string& client, int64_t bytes);
  void EndBytes(const std::string& client, int64_t bytes);
  void EndBytesLocked(const std::string& client, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex());
  absl::Status AllocateAndClear(const std::vector<int>& devices, int64_t bytes, bool ready,
                                BufferEntry* buffer);

  BufferTable& table_;
  StreamOrdering& order_;
  memory::Ledger* const ledger_;
  const Limits limits_;
  std::map<std::string, int64_t> being_made_ ABSL_GUARDED_BY(table_.mutex());  // bytes, by owner
};

}  // namespace octavo::buffer
