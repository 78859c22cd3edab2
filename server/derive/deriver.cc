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

void Deriver::Derive(const DeriveSpec& spec, model::WorkControl control, Planned planned,
                     Done done) {
  ++pending_;
  absl::Cleanup not_begun = [&] { --pending_; };
  // The worker also plans, because planning time grows with the tables.
  auto task = [this, spec, control = std::move(control), planned = std::move(planned),
               done = std::move(done)] {
    auto result = base::ExceptionToStatus([&] { return Make(spec, control, planned); });
    --pending_;
    done(std::move(result));
  };
  if (spec.memory != nullptr) {
    spec.memory->Post(context_.workers, spec.memory, std::move(task));
  } else {
    context_.workers->Post(std::move(task));
  }
  std::move(not_begun).Cancel();
}

absl::StatusOr<volume::VolumeHold> Deriver::HoldSource(const std::string& name) {
  auto hold = context_.volumes->Hold(name, volume::HoldKind::kDevice);
  if (InfoOf(hold.status()).reason != Reason::kSpilled) return hold;
  OCTAVO_RETURN_IF_ERROR(context_.spiller->RestoreNow(name).status());
  return context_.volumes->Hold(name, volume::HoldKind::kDevice);
}

absl::StatusOr<model::VolumeStatus> Deriver::Make(const DeriveSpec& spec,
                                                  const model::WorkControl& control,
                                                  const Planned& planned) {
  control.Report({.stage = model::WorkStage::kPreparing});
  OCTAVO_ASSIGN_OR_RETURN(const volume::VolumeHold source, HoldSource(spec.name));
  Device& device = context_.devices.device(source.device);
  OCTAVO_ASSIGN_OR_RETURN(const DerivationPlan plan,
                          PlanDerivation(source.status, spec.operations));
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes_between, BytesBetween(plan, device));
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
                     .bytes = std::max<int64_t>(bytes_between, 256),
                     .count = 1});
  const security::Owner& owner = spec.owner.has_value() ? *spec.owner : source.status.owner;
  std::vector<memory::Ledger::ChargeId> charges;
  const absl::Cleanup charged = [&] {
    for (const auto id : charges) context_.ledger->Release(id);
  };
  if (!needs.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(
        charges, context_.ledger->Reserve(source.device, source.status.scan, source.status.title,
                                          needs, nullptr, owner));
  }
  model::VolumeStatus result = plan.result;
  result.name = absl::StrCat("volumes/", base::NewId(context_.server_id));
  result.chain = spec.chain;
  if (spec.owner.has_value()) result.owner = *spec.owner;
  absl::Status computed;
  if (slot == nullptr) {
    auto made = MakeSlot(device, result.bytes, &charges);
    computed = made.status();
    if (made.ok()) slot = *std::move(made);
  }
  if (computed.ok()) computed = Fill(plan, source, std::move(slot), result, control, planned);
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
                           const model::WorkControl& control, const Planned& planned) {
  Device& device = context_.devices.device(source.device);
  context_.volumes->Add(result, slot, source.device);
  absl::Status computed = base::ExceptionToStatus([&]() -> absl::Status {
    if (planned) planned(result);
    if (control.stop.stop_requested()) return DerivationCancelled();
    {
      OCTAVO_ASSIGN_OR_RETURN(const auto run, DerivationRun::Create(plan, device));
      OCTAVO_RETURN_IF_ERROR(run->Run(source.slot->volume.data(), slot->volume.data(), control));
    }
    OCTAVO_ASSIGN_OR_RETURN(result.digest, DigestOf(device, *slot, result.bytes));
    return absl::OkStatus();
  });
  slot = nullptr;
  if (computed.ok()) {
    context_.volumes->Seal(result, /*kept=*/true);
  } else {
    context_.volumes->Fail(result.name, ReasonOrCode(computed), std::string(computed.message()));
  }
  return computed;
}

}  // namespace octavo::derive
