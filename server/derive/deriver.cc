#include "server/derive/deriver.h"

#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"

#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/derive/internal.h"

namespace octavo::derive {

absl::Status Deriver::Derive(const DeriveSpec& spec,
                             std::function<void(absl::StatusOr<model::VolumeStatus>)> done) {
  std::string answered;
  {
    MutexLock lock(mutex_);
    OCTAVO_ASSIGN_OR_RETURN(answered, requests_.Begin(spec.request_id, spec.request_digest));
    if (answered.empty()) ++pending_;
  }
  absl::Cleanup not_begun = [&] {
    if (answered.empty()) Finish(spec, absl::AbortedError(""));
  };
  if (!answered.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(model::VolumeStatus volume, context_.volumes->Get(answered));
    done(std::move(volume));
    return absl::OkStatus();
  }
  // The worker also plans, because planning time grows with the tables.
  auto task = [this, spec, done = std::move(done)] {
    bool told = false;
    auto result = base::ExceptionToStatus([&]() -> absl::StatusOr<model::VolumeStatus> {
      OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<Work> work, Plan(spec));
      work->chain = spec.chain;
      if (spec.memory != nullptr) {
        work->granted = true;
        work->slot = spec.memory->TryTake(spec.chain);
      }
      return Run(*work, [&](const model::VolumeStatus& planned) {
        if (!spec.asynchronous) return;
        told = true;
        Remember(spec, planned.name);
        done(planned);
      });
    });
    Finish(spec, result);
    if (!told) done(std::move(result));
  };
  if (spec.memory != nullptr) {
    spec.memory->Post(context_.workers, spec.memory, std::move(task));
  } else {
    context_.workers->Post(std::move(task));
  }
  std::move(not_begun).Cancel();
  return absl::OkStatus();
}

void Deriver::Remember(const DeriveSpec& spec, const std::string& name) {
  MutexLock lock(mutex_);
  requests_.End(spec.request_id, name);
}

void Deriver::Finish(const DeriveSpec& spec, const absl::StatusOr<model::VolumeStatus>& result) {
  MutexLock lock(mutex_);
  --pending_;
  requests_.End(spec.request_id, result.ok() ? result->name : "");
}

int64_t Deriver::Pending() {
  MutexLock lock(mutex_);
  return pending_;
}

}  // namespace octavo::derive
