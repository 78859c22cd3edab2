#include "server/processing/chain_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/device/exportable_memory.h"
#include "server/model/volume_operation.h"

namespace octavo::processing {
namespace {

constexpr int64_t kDigest = 256;

/// The result of a chain for a volume of the scan, and its intermediate arrays.
struct Planned {
  int64_t result = 0, scratch = 0;
};

absl::StatusOr<Planned> PlanOf(const model::ResolvedScan& scan,
                               const model::DerivedVolumeRecipe& chain, Device& device) {
  model::VolumeStatus volume;
  std::copy(scan.shape, scan.shape + 3, volume.shape);
  std::copy(scan.spacing_um, scan.spacing_um + 3, volume.spacing_um);
  volume.dtype = scan.chain.output;
  Planned planned;
  for (size_t i = 0; i < chain.operations.size(); ++i) {
    if (i > 0) planned.scratch += planned.result;
    OCTAVO_ASSIGN_OR_RETURN(
        const auto plan, model::PlanVolumeOperation(chain.operations[i],
                                                    absl::StrCat("operations[", i, "]"), &volume));
    OCTAVO_ASSIGN_OR_RETURN(const int64_t scratch, ScratchBytes(*plan, device));
    planned.scratch += scratch;
    planned.result = volume.shape[0] * volume.shape[1] * volume.shape[2] * SizeOf(volume.dtype);
  }
  return planned;
}

}  // namespace

std::vector<model::AdmissionReport::Item> ChainState::Needs(const model::ResolvedScan& scan,
                                                            Device& device, int64_t slots) {
  std::vector<model::AdmissionReport::Item> needs;
  if (scan.spec.chains == nullptr) return needs;
  int64_t scratch = kDigest;
  for (const model::DerivedVolumeRecipe& chain : scan.spec.chains->chains) {
    const auto planned = PlanOf(scan, chain, device);
    if (!planned.ok()) continue;  // refused before anything is planned
    needs.push_back({.kind = model::NeedKind::kChainResults,
                     .bytes = slots * (ClientMemory::Bytes(planned->result) + kDigest),
                     .count = slots,
                     .chain = chain.name});
    scratch = std::max(scratch, planned->scratch);
  }
  needs.push_back({.kind = model::NeedKind::kChainScratch, .bytes = scratch, .count = 1});
  return needs;
}

absl::StatusOr<std::shared_ptr<ChainState>> ChainState::Create(
    const model::ResolvedScan& scan, Device& device, int64_t slots, memory::Ledger* ledger,
    std::vector<memory::Ledger::ChargeId> charges) {
  if (scan.spec.chains == nullptr) return nullptr;
  std::shared_ptr<ChainState> memory(new ChainState);
  memory->ledger_ = ledger;
  size_t charge = 0;
  for (const model::DerivedVolumeRecipe& chain : scan.spec.chains->chains) {
    OCTAVO_ASSIGN_OR_RETURN(const Planned planned, PlanOf(scan, chain, device));
    for (int64_t i = 0; i < slots; ++i) {
      auto slot = std::make_unique<memory::VolumeSlot>();
      slot->charge = charges[charge++];
      OCTAVO_ASSIGN_OR_RETURN(slot->volume, ClientMemory::Allocate(device, planned.result));
      OCTAVO_ASSIGN_OR_RETURN(slot->digest, device.Allocate(kDigest));
      memory->made_[chain.name].push_back(std::move(slot));
    }
    memory->pools_[chain.name] = std::make_shared<memory::SlotPool>(ledger);
  }
  memory->scratch_ = charges[charge];
  return memory;
}

void ChainState::Begin() {
  begun_ = true;
  for (auto& [chain, slots] : made_) {
    for (auto& slot : slots) pools_[chain]->Add(std::move(slot));
  }
  made_.clear();
}

ChainState::~ChainState() {
  if (!begun_) return;
  for (const auto& [chain, pool] : pools_) pool->Close();
  ledger_->Release(scratch_);
}

std::shared_ptr<memory::VolumeSlot> ChainState::TryTake(const std::string& chain) {
  const auto pool = pools_.find(chain);
  return pool == pools_.end() ? nullptr : pool->second->TryTake();
}

void ChainState::Post(base::WorkerPool* workers, const std::shared_ptr<ChainState>& self,
                      std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    waiting_.push_back(std::move(task));
    if (std::exchange(busy_, true)) return;
  }
  // Post one task to the pool for each queued task, so that other users of the pool get their turn.
  struct Next {
    static void Run(base::WorkerPool* pool, const std::shared_ptr<ChainState>& memory) {
      pool->Post([pool, memory] {
        std::function<void()> first;
        {
          MutexLock lock(memory->mutex_);
          first = std::move(memory->waiting_.front());
          memory->waiting_.pop_front();
        }
        first();
        first = nullptr;
        bool more = false;
        {
          MutexLock lock(memory->mutex_);
          more = memory->busy_ = !memory->waiting_.empty();
        }
        if (more) Run(pool, memory);
      });
    }
  };
  Next::Run(workers, self);
}

}  // namespace octavo::processing
