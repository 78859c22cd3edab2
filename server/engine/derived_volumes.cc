#include "server/engine/derived_volumes.h"

#include <memory>

#include "gpu/base/log.h"
#include "server/model/volume_states.h"

namespace octavo::engine {
namespace {

constexpr int64_t kMostChainsWaiting = 8;

}  // namespace

void DerivedVolumes::OnVolumeChanged(const model::VolumeStatus& volume) {
  if (!model::IsComplete(volume.state)) {
    MutexLock lock(mutex_);
    asked_.erase(volume.name);  // a volume that has left memory no longer has its origin
    return;
  }
  if (volume.origin == nullptr || volume.origin->spec.chains == nullptr ||
      !volume.derived_from.empty() || volume.is_raw)
    return;
  {
    MutexLock lock(mutex_);
    if (!asked_.insert(volume.name).second)
      return;  // held again, after a commit or from another tier
  }
  const auto session = scans_->Find(volume.scan);
  const std::shared_ptr<processing::ChainState> memory =
      session.ok() ? (*session)->chain_memory() : nullptr;
  for (const model::DerivedVolumeRecipe& chain : volume.origin->spec.chains->chains) {
    const auto skipped = [name = volume.name, chain = chain.name](const absl::Status& status) {
      if (!status.ok())
        Log(LogLevel::kWarning, "volume without its chain",
            {{"volume", name}, {"chain", chain}, {"error", std::string(status.message())}});
    };
    if (memory == nullptr && deriver_->Pending() >= kMostChainsWaiting) {
      skipped(absl::ResourceExhaustedError("too many wait already"));
      continue;
    }
    derive::DeriveSpec spec{.name = volume.name, .chain = chain.name, .memory = memory};
    spec.operations.assign(chain.operations.begin(), chain.operations.end());
    deriver_->Derive(spec, {}, nullptr, [skipped](const absl::StatusOr<model::VolumeStatus>& made) {
      skipped(made.status());
    });
  }
}

}  // namespace octavo::engine
