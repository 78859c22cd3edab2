#include "gpu/device/exportable_memory.h"

#include <algorithm>
#include <atomic>
#include <sys/random.h>

#include "gpu/device/alignment.h"

namespace octavo::inline gpu {
namespace {

std::atomic<bool>& Shared() {
  static std::atomic<bool> shared{false};
  return shared;
}

}  // namespace

ExportableMemory* ExportableOf(Device& device) { return dynamic_cast<ExportableMemory*>(&device); }

void ClientMemory::MakeExportable(bool on) { Shared() = on; }

int64_t ClientMemory::Bytes(int64_t bytes) {
  if (!Shared()) return bytes;
  return std::max(kGranule, RoundUp(bytes, kGranule));
}

absl::StatusOr<DeviceBuffer> ClientMemory::Allocate(Device& device, int64_t bytes) {
  if (ExportableMemory* shareable = Shared() ? ExportableOf(device) : nullptr;
      shareable != nullptr) {
    auto memory = shareable->AllocateExportable(Bytes(bytes));
    if (memory.ok() || !absl::IsUnimplemented(memory.status())) return memory;
  }
  return device.Allocate(Bytes(bytes));
}

uint64_t RandomMemoryId() {
  uint64_t id = 0;
  while (id == 0) (void)!::getrandom(&id, sizeof id, 0);
  return id;
}

}  // namespace octavo::inline gpu
