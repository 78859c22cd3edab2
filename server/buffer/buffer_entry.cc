#include "server/buffer/buffer_entry.h"

#include <algorithm>

#include "gpu/base/status.h"
#include "gpu/device/exportable_memory.h"

namespace octavo::buffer {

BufferReplica::~BufferReplica() {
  memory = DeviceBuffer();  // a charge must never end before its bytes are free
  if (ledger != nullptr) ledger->Release(charge);
}

int64_t BufferReplica::ChargedBytes(int64_t bytes) {
  return ClientMemory::Bytes(std::max<int64_t>(bytes, 256));
}

const std::string& HolderOf(const model::BufferStatus& buffer) {
  static const std::string* const private_one = new std::string("a private buffer");
  return buffer.is_private ? *private_one : buffer.name;
}

absl::StatusOr<std::shared_ptr<BufferReplica>> ReserveReplica(memory::Ledger* ledger, int device,
                                                              const std::string& holder,
                                                              int64_t bytes,
                                                              model::AdmissionReport* report,
                                                              const security::Owner& payer) {
  auto replica = std::make_shared<BufferReplica>();
  OCTAVO_ASSIGN_OR_RETURN(const auto charges,
                          ledger->Reserve(device, holder, "",
                                          {{.kind = model::NeedKind::kBuffer,
                                            .bytes = BufferReplica::ChargedBytes(bytes),
                                            .count = 1}},
                                          report, payer));
  replica->ledger = ledger;
  replica->charge = charges.front();
  replica->device = device;
  ledger->Move(replica->charge, memory::ChargeKind::kBuffer, holder);
  return replica;
}

uint64_t NewestVersion(const BufferEntry& buffer) {
  uint64_t newest = 0;
  for (const auto& replica : buffer.replicas) newest = std::max(newest, replica->version);
  return newest;
}

bool IsBeingWritten(const BufferEntry& buffer) {
  return std::any_of(buffer.replicas.begin(), buffer.replicas.end(), [](const auto& replica) {
    return replica->state == model::BufferState::kWriting;
  });
}

}  // namespace octavo::buffer
