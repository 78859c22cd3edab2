#include "server/engine/derived_volumes.h"

#include <memory>
#include <utility>

#include "gpu/base/log.h"
#include "gpu/base/status.h"
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
    if (memory == nullptr && deriver_->Pending() >= kMostChainsWaiting) {
      // On a worker: the other observers have not heard of the volume's change yet.
      workers_->Post([this, name = volume.name, chain = chain.name] {
        Skip(name, chain,
             WithInfo(absl::ResourceExhaustedError("too many volumes wait for their chains"),
                      {.reason = Reason::kBusy, .field = "", .numbers = {}}));
      });
      continue;
    }
    derive::DeriveSpec spec{.name = volume.name, .chain = chain.name, .memory = memory};
    spec.operations.assign(chain.operations.begin(), chain.operations.end());
    deriver_->Derive(spec, {}, nullptr,
                     [this, name = volume.name,
                      chain = chain.name](const absl::StatusOr<model::VolumeStatus>& made) {
                       if (!made.ok()) Skip(name, chain, made.status());
                     });
  }
}

void DerivedVolumes::Skip(const std::string& volume, const std::string& chain,
                          const absl::Status& why) {
  ++skipped_;
  std::string message(why.message());
  Log(LogLevel::kWarning, "volume without its chain",
      {{"volume", volume}, {"chain", chain}, {"error", message}});
  volumes_->AddSkippedChain(
      volume, {.chain = chain, .reason_code = ReasonOrCode(why), .reason = std::move(message)});
}

}  // namespace octavo::engine
