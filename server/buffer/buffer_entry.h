#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/buffer/import_loan.h"
#include "server/buffer/stream_ordering.h"
#include "server/memory/ledger.h"
#include "server/model/buffer_types.h"
#include "server/model/status_types.h"

namespace octavo::buffer {

/// Memory of a buffer on one device, and the order of its reads and writes. The last reference
/// frees the memory and ends its charge. The buffer and the work in progress hold references.
struct BufferReplica {
  ~BufferReplica();
  /// What the ledger counts for memory of `bytes`.
  static int64_t ChargedBytes(int64_t bytes);
  memory::Ledger* ledger = nullptr;  // null: the memory is lent, and charged to no budget
  memory::Ledger::ChargeId charge = 0;
  std::shared_ptr<ImportLoan> loan;  // of lent memory; it ends after the memory
  int device = 0;
  DeviceBuffer memory;
  AccessTracker order;
  uint64_t version = 0;
  model::BufferState state = model::BufferState::kUninitialized;
};

/// A buffer as the table keeps it. What may change is guarded by the table's lock.
struct BufferEntry {
  uint64_t number = 0;         // in the order they were made
  model::BufferStatus status;  // name, type, labels, owner ...; replicas: filled in on demand
  std::string key;             // of a private buffer
  std::vector<std::shared_ptr<BufferReplica>> replicas;
  double ttl_seconds = 0;
  int64_t expires_ns = 0;  // 0 = never
  int64_t expires_unix_ns = 0;
  bool warned = false;
  uint64_t revision = 0;
};
using BufferPtr = std::shared_ptr<BufferEntry>;

/// What the ledger, whose holders everybody sees, calls the memory of a buffer: the name of the
/// buffer, or "a private buffer", whoever asks.
const std::string& HolderOf(const model::BufferStatus& buffer);
/// A replica with the charge for `bytes` bytes under `holder` (of HolderOf), and without memory
/// yet. The errors of Ledger::Reserve; `report` (may be null) gets its account. `payer`: none = the
/// server's, until Ledger::SetPayer.
absl::StatusOr<std::shared_ptr<BufferReplica>> ReserveReplica(memory::Ledger* ledger, int device,
                                                              const std::string& holder,
                                                              int64_t bytes,
                                                              model::AdmissionReport* report,
                                                              const security::Owner& payer = {});
/// The newest version of all replicas.
uint64_t NewestVersion(const BufferEntry& buffer);
/// Whether a client's write to a replica is in progress.
bool IsBeingWritten(const BufferEntry& buffer);

}  // namespace octavo::buffer
