// A planned chain of operations, from its memory to the new volume.

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/array/gather_ascans.h"
#include "gpu/base/status.h"
#include "gpu/device/exportable_memory.h"
#include "server/base/exception_to_status.h"
#include "server/base/resource_names.h"
#include "server/derive/internal.h"
#include "server/processing/display_scale.h"
#include "server/processing/replay_records.h"

namespace octavo::derive {

absl::StatusOr<model::VolumeStatus> Deriver::Run(
    Work& work, const std::function<void(const model::VolumeStatus&)>& planned) {
  const model::VolumeStatus& source = work.source.status;
  model::VolumeStatus result = work.steps.back().out;
  int64_t between = 0;
  for (const Step& step : work.steps) {
    between += step.table_bytes() + (&step == &work.steps.back() ? 0 : step.out.bytes);
    if (step.chain == nullptr) continue;
    OCTAVO_ASSIGN_OR_RETURN(const int64_t scratch,
                            ScratchBytes(*step.chain, context_.devices.device(work.source.device)));
    between += scratch;
  }
  std::vector<model::AdmissionReport::Item> needs;
  if (work.slot == nullptr)
    needs.push_back(
        {.what = "derived volume", .bytes = ClientMemory::Bytes(result.bytes) + 256, .count = 1});
  if (!work.granted)
    needs.push_back({.what = "tables and volumes between",
                     .bytes = std::max<int64_t>(between, 256),
                     .count = 1});
  const absl::Cleanup charged = [&] {
    for (const auto id : work.charges) context_.ledger->Release(id);
  };
  if (!needs.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(work.charges, context_.ledger->Reserve(work.source.device, source.scan,
                                                                   source.title, needs, nullptr));
  }
  Device& device = context_.devices.device(work.source.device);
  const auto pool = std::make_shared<memory::SlotPool>(context_.ledger);
  const absl::Status status = [&]() -> absl::Status {
    if (work.slot != nullptr) return absl::OkStatus();
    auto slot = std::make_unique<memory::VolumeSlot>();
    slot->charge = work.charges[0];
    OCTAVO_ASSIGN_OR_RETURN(slot->volume, ClientMemory::Allocate(device, result.bytes));
    OCTAVO_ASSIGN_OR_RETURN(slot->digest, device.Allocate(256));
    // From here on the slot's charge ends with the slot.
    pool->Add(std::move(slot));
    work.slot = pool->TryTake();
    work.charges.erase(work.charges.begin());
    return absl::OkStatus();
  }();
  pool->Close();
  result.name = absl::StrCat("volumes/", base::NewId(context_.server_id));
  result.derived_from = source.derived_from.empty() ? source.name : source.derived_from;
  result.chain = work.chain;
  result.state = model::VolumeState::kAcquiring;
  result.has_commit = false;
  result.tier = model::Tier::kDevice;
  result.moving = model::Move::kNone;
  result.marked = result.orphaned = result.recovered = false;
  result.last_error.clear();
  result.held_seconds = 0;
  result.clipped_below = result.clipped_above = 0;
  const AscanRanges& missing = work.steps.back().missing;
  result.missing_ascans = 0;
  for (const auto& range : missing) result.missing_ascans += range.second;
  result.missing.assign(missing.begin(),
                        missing.begin() + std::min<std::ptrdiff_t>(32, std::ssize(missing)));
  result.all_missing = missing.size() > 32 ? std::make_shared<const AscanRanges>(missing) : nullptr;
  absl::Status computed = status;
  if (status.ok()) {
    context_.volumes->Add(result, work.slot, work.source.device);
    computed = base::ExceptionToStatus([&]() -> absl::Status {
      planned(result);
      OCTAVO_RETURN_IF_ERROR(Compute(work, device, &result));
      OCTAVO_ASSIGN_OR_RETURN(PinnedBuffer word, device.AllocatePinned(8));
      OCTAVO_ASSIGN_OR_RETURN(Stream stream, device.NewStream(StreamPriority::kLow));
      OCTAVO_RETURN_IF_ERROR(device.Digest(stream.ref(), work.slot->volume.data(), result.bytes,
                                           work.slot->digest.as<uint64_t>()));
      OCTAVO_RETURN_IF_ERROR(
          device.CopyToHost(stream.ref(), word.data(), work.slot->digest.data(), 8));
      OCTAVO_RETURN_IF_ERROR(stream.ref().Synchronize());
      result.digest = absl::StrFormat("sum64:%016x", *word.as<uint64_t>());
      return absl::OkStatus();
    });
    work.slot = nullptr;
    if (computed.ok()) {
      context_.volumes->Seal(result, /*kept=*/true);
    } else {
      context_.volumes->Fail(result.name, std::string(computed.message()));
    }
  }
  OCTAVO_RETURN_IF_ERROR(Annotate(computed, absl::StrCat("while deriving from ", source.name)));
  return context_.volumes->Get(result.name);
}

// All steps run on one stream; intermediate arrays live until it has finished.
absl::Status Deriver::Compute(Work& work, Device& device, model::VolumeStatus* result) {
  std::vector<DeviceBuffer> buffers;  // declared before the stream: freed after its work is done
  std::unique_ptr<processing::Reprocessor> reprocessor;
  std::vector<std::unique_ptr<ChainRun>> runs;
  OCTAVO_ASSIGN_OR_RETURN(Stream stream, device.NewStream(StreamPriority::kLow));
  const auto upload = [&](const void* data, size_t bytes) -> absl::StatusOr<const void*> {
    OCTAVO_ASSIGN_OR_RETURN(DeviceBuffer buffer, device.Allocate(static_cast<int64_t>(bytes)));
    OCTAVO_RETURN_IF_ERROR(
        device.CopyToDevice(stream.ref(), buffer.data(), data, static_cast<int64_t>(bytes)));
    buffers.push_back(std::move(buffer));
    return buffers.back().data();
  };
  const void* in = work.source.slot->volume.data();
  for (const Step& step : work.steps) {
    void* out = work.slot->volume.data();
    if (&step != &work.steps.back()) {
      OCTAVO_ASSIGN_OR_RETURN(DeviceBuffer between, device.Allocate(step.out.bytes));
      buffers.push_back(std::move(between));
      out = buffers.back().data();
    }
    const int64_t rows = step.in.shape[0], columns = step.in.shape[1], depth = step.in.shape[2];
    if (step.scan != nullptr) {
      OCTAVO_ASSIGN_OR_RETURN(reprocessor, processing::Reprocessor::Create(*step.scan, work.source,
                                                                           device, stream.ref()));
      OCTAVO_RETURN_IF_ERROR(reprocessor->Run(stream.ref(), {.volume = out}, nullptr));
    } else if (step.chain != nullptr) {
      OCTAVO_ASSIGN_OR_RETURN(auto run, ChainRun::Create(step.chain, device));
      runs.push_back(std::move(run));
      OCTAVO_RETURN_IF_ERROR(runs.back()->Run(stream.ref(), in, {}, out));
    } else if (std::holds_alternative<pattern::CartesianGrid>(step.operation)) {
      OCTAVO_ASSIGN_OR_RETURN(const void* index,
                              upload(step.taps.index.data(), step.taps.index.size() * 4));
      OCTAVO_ASSIGN_OR_RETURN(const void* weight,
                              upload(step.taps.weight.data(), step.taps.weight.size() * 4));
      OCTAVO_RETURN_IF_ERROR(GatherAscans(
          stream.ref(), device,
          {.data = in, .dtype = step.in.dtype, .ascans = rows * columns, .depth = depth},
          {.index = static_cast<const int32_t*>(index),
           .weight = static_cast<const float*>(weight),
           .ascans = step.out.shape[0] * step.out.shape[1],
           .taps = step.taps.taps},
          out));
    } else {
      RepeatView view{.data = in,
                      .dtype = step.in.dtype,
                      .rows = rows,
                      .columns = columns,
                      .depth = depth,
                      .order = nullptr,
                      .bscans = step.pattern.bscans_per_volume,
                      .repeats = step.pattern.repeats()};
      if (!step.order.empty()) {
        OCTAVO_ASSIGN_OR_RETURN(const void* order,
                                upload(step.order.data(), step.order.size() * 4));
        view.order = static_cast<const int32_t*>(order);
      }
      const DeviceSpan<float> phases{static_cast<float*>(out),
                                     step.out.bytes / static_cast<int64_t>(sizeof(float))};
      if (const auto* angiography = std::get_if<AngiographyOperation>(&step.operation)) {
        OCTAVO_RETURN_IF_ERROR(Angiogram(stream.ref(), device, angiography->method, view,
                                         processing::ScaleOf(step.in), phases));
      } else {
        const auto& doppler = std::get<DopplerOperation>(step.operation);
        OCTAVO_RETURN_IF_ERROR(
            doppler.between == DopplerBetween::kRepeats
                ? DopplerOverRepeats(stream.ref(), device, view, doppler.half_window, phases)
                : DopplerOverAscans(stream.ref(), device, view, doppler.half_window, phases));
      }
      // Integers and phases cannot show that a part of them was missing.
      for (const auto& [first, count] : step.missing) {
        OCTAVO_RETURN_IF_ERROR(device.Fill(stream.ref(),
                                           phases.From(first * step.out.shape[2]).data(),
                                           count * step.out.shape[2] * 4, 0x7FC00000u));
      }
    }
    in = out;
  }
  // The result of further steps on a reprocessed volume has no levels to clip at.
  if (work.steps.back().scan != nullptr) return reprocessor->ReadClipped(stream.ref(), result);
  return stream.ref().Synchronize();
}

}  // namespace octavo::derive
