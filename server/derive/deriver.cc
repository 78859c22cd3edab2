#include "server/derive/deriver.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/device/exportable_memory.h"
#include "server/base/exception_to_status.h"
#include "server/base/resource_names.h"
#include "server/derive/derivation_run.h"

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
      return Make(spec, [&](const model::VolumeStatus& planned) {
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

absl::StatusOr<volume::VolumeHold> Deriver::HoldSource(const std::string& name) {
  auto hold = context_.volumes->Hold(name, volume::HoldKind::kDevice);
  if (InfoOf(hold.status()).reason != Reason::kSpilled) return hold;
  OCTAVO_RETURN_IF_ERROR(context_.spiller->RestoreNow(name).status());
  return context_.volumes->Hold(name, volume::HoldKind::kDevice);
}

absl::StatusOr<model::VolumeStatus> Deriver::Make(const DeriveSpec& spec, const Planned& planned) {
  OCTAVO_ASSIGN_OR_RETURN(const volume::VolumeHold source, HoldSource(spec.name));
  Device& device = context_.devices.device(source.device);
  OCTAVO_ASSIGN_OR_RETURN(const DerivationPlan plan,
                          PlanDerivation(source.status, spec.operations, device));
  // With memory granted to the scan, that is charged for the arrays between, and for the slot if
  // one is free.
  std::shared_ptr<memory::VolumeSlot> slot;
  if (spec.memory != nullptr) slot = spec.memory->TryTake(spec.chain);
  std::vector<model::AdmissionReport::Item> needs;
  if (slot == nullptr)
    needs.push_back({.kind = model::NeedKind::kDerivedVolume,
                     .bytes = ClientMemory::Bytes(plan.result.bytes) + 256,
                     .count = 1});
  if (spec.memory == nullptr)
    needs.push_back({.kind = model::NeedKind::kDerivationScratch,
                     .bytes = std::max<int64_t>(plan.bytes_between, 256),
                     .count = 1});
  std::vector<memory::Ledger::ChargeId> charges;
  const absl::Cleanup charged = [&] {
    for (const auto id : charges) context_.ledger->Release(id);
  };
  if (!needs.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(charges, context_.ledger->Reserve(source.device, source.status.scan,
                                                              source.status.title, needs, nullptr));
  }
  model::VolumeStatus result = plan.result;
  result.name = absl::StrCat("volumes/", base::NewId(context_.server_id));
  result.chain = spec.chain;
  absl::Status computed;
  if (slot == nullptr) {
    auto made = MakeSlot(device, result.bytes, &charges);
    computed = made.status();
    if (made.ok()) slot = *std::move(made);
  }
  if (computed.ok()) computed = Fill(plan, source, std::move(slot), result, planned);
  OCTAVO_RETURN_IF_ERROR(
      Annotate(computed, absl::StrCat("while deriving from ", source.status.name)));
  return context_.volumes->Get(result.name);
}

absl::StatusOr<std::shared_ptr<memory::VolumeSlot>> Deriver::MakeSlot(
    Device& device, int64_t bytes, std::vector<memory::Ledger::ChargeId>* charges) {
  const auto pool = std::make_shared<memory::SlotPool>(context_.ledger);
  auto slot = std::make_unique<memory::VolumeSlot>();
  slot->charge = charges->front();
  OCTAVO_ASSIGN_OR_RETURN(slot->volume, ClientMemory::Allocate(device, bytes));
  OCTAVO_ASSIGN_OR_RETURN(slot->digest, device.Allocate(256));
  // From here on the slot's charge ends with the slot.
  pool->Add(std::move(slot));
  std::shared_ptr<memory::VolumeSlot> taken = pool->TryTake();
  charges->erase(charges->begin());
  pool->Close();
  return taken;
}

absl::Status Deriver::Fill(const DerivationPlan& plan, const volume::VolumeHold& source,
                           std::shared_ptr<memory::VolumeSlot> slot, model::VolumeStatus result,
                           const Planned& planned) {
  Device& device = context_.devices.device(source.device);
  context_.volumes->Add(result, slot, source.device);
  absl::Status computed = base::ExceptionToStatus([&]() -> absl::Status {
    planned(result);
    {
      OCTAVO_ASSIGN_OR_RETURN(const auto run, DerivationRun::Create(plan, source, device));
      OCTAVO_RETURN_IF_ERROR(run->Run(slot->volume.data(), &result));
    }
    OCTAVO_ASSIGN_OR_RETURN(result.digest, DigestOf(device, *slot, result.bytes));
    return absl::OkStatus();
  });
  slot = nullptr;
  if (computed.ok()) {
    context_.volumes->Seal(result, /*kept=*/true);
  } else {
    context_.volumes->Fail(result.name, std::string(computed.message()));
  }
  return computed;
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
