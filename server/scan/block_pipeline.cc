#include "server/scan/block_pipeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"

namespace octavo::scan {

BlockPipeline::BlockPipeline(const model::ResolvedScan& scan, Context context)
    : scan_(scan), context_(std::move(context)), record_average_(scan.chain.record_average) {}

void BlockPipeline::Run(const std::function<void()>& stop_acquiring) {
  BlockContext block;
  BlockRing::Part part;
  while (!context_.builder->over() &&
         context_.acquirer->ring().Pop(&part, context_.life->aborted())) {
    block = {.part = part};
    const absl::Status status = base::ExceptionToStatus([&] {
      (void)Failpoint("compute_turn");
      return Process(block);
    });
    if (!status.ok()) {
      FailForDevice(status);
      break;
    }
  }
  stop_acquiring();
  End(block);
}

// A block may span volumes: one segment for each.
absl::Status BlockPipeline::Process(BlockContext& block) {
  OCTAVO_RETURN_IF_ERROR(Upload(block));
  for (;;) {
    OCTAVO_ASSIGN_OR_RETURN(const bool placed, Place(block));
    if (!placed) break;
    OCTAVO_RETURN_IF_ERROR(RunChain(block));
    OCTAVO_RETURN_IF_ERROR(MakeProducts(block));
  }
  return Complete(block);
}

absl::Status BlockPipeline::Upload(BlockContext& block) {
  block.taken_ns = context_.clock->Now().monotonic_ns;
  context_.progress->BlockTaken(
      static_cast<double>(block.taken_ns - block.block().acquired.monotonic_ns) * 1e-9);
  block.data = context_.acquirer->DataOf(block.part);
  block.raw = static_cast<size_t>(blocks_++ % kRawBuffers);
  context_.builder->LookAt(block.data, block.block());
  OCTAVO_RETURN_IF_ERROR(context_.lanes->Upload(block.raw, block.data, block.block()));
  OCTAVO_RETURN_IF_ERROR(StampUpload(block));
  context_.events->TellMarkers(block.block(), context_.acquirer->source());
  return absl::OkStatus();
}

// The time stamp and the mark of the upload that may complete the volume.
absl::Status BlockPipeline::StampUpload(BlockContext& block) {
  const VolumeBuilder& builder = *context_.builder;
  const int64_t end = block.block().first_record + block.block().records;
  if (builder.active() != nullptr &&
      end - builder.active()->index * scan_.volume_records < builder.EndOfActive())
    return absl::OkStatus();
  const HostSpan<int64_t> stamp = context_.completions->stages().UploadStamp(blocks_);
  block.uploaded = stamp.data();
  OCTAVO_RETURN_IF_ERROR(context_.lanes->home().Stamp(context_.lanes->compute(), stamp));
  OCTAVO_ASSIGN_OR_RETURN(block.mark,
                          context_.completions->MarkLastBlock(context_.lanes->compute()));
  return absl::OkStatus();
}

// The next records of the block that belong to one volume, which is active if it has not ended
// already: the records of an ended one still count for a rolling background. False: none are left.
absl::StatusOr<bool> BlockPipeline::Place(BlockContext& block) {
  VolumeBuilder& builder = *context_.builder;
  while (block.done < block.block().records && !builder.over()) {
    if (const int64_t without = WithoutPlace(block); without > 0) {
      block.done += without;
      continue;
    }
    const int64_t record = block.block().first_record + block.done;
    const int64_t index = record / scan_.volume_records;
    if (builder.active() != nullptr && builder.active()->index != index)
      OCTAVO_RETURN_IF_ERROR(EndVolume(block, block.block().acquired));
    if (builder.over()) break;
    if (builder.active() == nullptr && index >= builder.next_volume())
      OCTAVO_RETURN_IF_ERROR(builder.Begin(index, block.block()));
    if (builder.over()) break;
    const int64_t in_volume = record - index * scan_.volume_records;
    int64_t count = std::min(block.block().records - block.done, scan_.volume_records - in_volume);
    int64_t active = 0;
    if (builder.active() != nullptr) {
      // Flyback records arrive after their volume has ended.
      const int64_t end = builder.EndOfActive();
      if (in_volume < end) count = std::min(count, end - in_volume);
      active =
          std::clamp<int64_t>(builder.active()->coverage.active_records() - in_volume, 0, count);
    }
    block.segment = {
        .volume = index, .first_record = in_volume, .records = count, .active = active};
    return true;
  }
  return false;
}

// The number of the next records of the block that have no place: those that arrived already (or
// too late, after their place was declared missing), and those below 0 or beyond the last volume.
// The pipeline counts them and drops them.
int64_t BlockPipeline::WithoutPlace(const BlockContext& block) {
  const int64_t left = block.block().records - block.done;
  const int64_t first = block.block().first_record + block.done;
  if (first < 0) {
    const int64_t below = std::min<int64_t>(-first, left);
    context_.progress->out_of_range_records += below;
    return below;
  }
  if (const int64_t volumes = scan_.spec.pattern.volumes;
      volumes > 0 && first / scan_.volume_records >= volumes) {
    context_.progress->out_of_range_records += left;
    return left;
  }
  const int64_t before = std::clamp<int64_t>(awaited_record_ - first, 0, left);
  context_.progress->duplicate_records += before;
  return before;
}

absl::Status BlockPipeline::RunChain(BlockContext& block) {
  VolumeBuilder& builder = *context_.builder;
  const Segment& segment = block.segment;
  const memory::VolumeSlot* const slot =
      builder.active() == nullptr ? nullptr : builder.active()->slot.get();
  if (context_.tap != nullptr && context_.tap->Wants(block.taken_ns)) {
    context_.tap->Take(builder.Origin(), block.data + block.done * RecordBytes(scan_.chain),
                       segment, builder.active().get(), block.block().acquired, block.taken_ns);
  }
  OCTAVO_RETURN_IF_ERROR(context_.lanes->Process(block.raw, block.block(), segment, slot));
  OCTAVO_ASSIGN_OR_RETURN(
      block.completes,
      builder.Add(segment, context_.lanes->RawAt(block.raw, block.done), block.block()));
  block.done += segment.records;
  awaited_record_ = block.block().first_record + block.done;
  return absl::OkStatus();
}

absl::Status BlockPipeline::MakeProducts(BlockContext& block) {
  return block.completes ? EndVolume(block, block.block().acquired) : absl::OkStatus();
}

absl::Status BlockPipeline::Complete(BlockContext& block) {
  OCTAVO_RETURN_IF_ERROR(MakePreview(block));
  OCTAVO_RETURN_IF_ERROR(context_.lanes->EndBlock(block.raw));
  Completion item;
  item.ring_slot = block.part.slot;
  item.loan = block.part.loan;
  item.records = block.block().records * record_average_;
  item.acquired = block.block().acquired;
  item.enqueued_ns = block.taken_ns;
  item.replaced = context_.lanes->TakeReplaced();
  item.event = context_.completions->TakeEvent();
  return context_.completions->Push(std::move(item), context_.lanes->compute());
}

absl::Status BlockPipeline::MakePreview(const BlockContext& block) {
  const ActiveVolume* const active = context_.builder->active().get();
  if (active == nullptr) return absl::OkStatus();
  context_.progress->VolumeAt(active->coverage.fraction());
  if (active->slot == nullptr) return absl::OkStatus();
  const int64_t now = context_.clock->Now().monotonic_ns;
  if (!context_.products->PreviewIsDue(now)) return absl::OkStatus();
  OCTAVO_RETURN_IF_ERROR(context_.lanes->Join());
  Completion item;
  item.acquired = block.block().acquired;
  item.enqueued_ns = now;
  OCTAVO_RETURN_IF_ERROR(context_.products->MakePreview(*active, &item));
  if (item.frames.empty()) return absl::OkStatus();
  item.event = context_.completions->TakeEvent();
  return context_.completions->Push(std::move(item), context_.lanes->compute());
}

// The active volume is complete or gets no more records.
absl::Status BlockPipeline::EndVolume(const BlockContext& block, TimePoint acquired) {
  const std::shared_ptr<ActiveVolume> volume = context_.builder->TakeActive();
  absl::Status status =
      base::ExceptionToStatus([&] { return FinishVolume(volume, block, acquired); });
  if (!status.ok()) {
    FailForDevice(status);
    FailVolume(*volume);
  }
  return status;
}

absl::Status BlockPipeline::FinishVolume(const std::shared_ptr<ActiveVolume>& volume,
                                         const BlockContext& block, TimePoint acquired) {
  OCTAVO_RETURN_IF_ERROR(context_.builder->End(*volume));
  if (volume->slot == nullptr) return absl::OkStatus();
  StageClock& stages = context_.completions->stages();
  const HostSpan<int64_t> processed = stages.ProcessedStamp(volumes_);
  const HostSpan<int64_t> on_host = stages.OnHostStamp(volumes_);
  ++volumes_;
  Completion item;
  item.volume = volume;
  item.acquired = acquired;
  item.enqueued_ns = block.taken_ns;
  item.last_block = block.mark;
  item.uploaded = block.uploaded;
  item.processed = processed.data();
  item.on_host = on_host.data();
  Device& home = context_.lanes->home();
  OCTAVO_RETURN_IF_ERROR(home.Stamp(context_.lanes->compute(), processed));
  item.event = context_.completions->TakeEvent();
  if (uint64_t* const counts = context_.completions->NonFiniteWords(item.event); counts != nullptr)
    OCTAVO_RETURN_IF_ERROR(context_.lanes->EnqueueNonFinite(counts));
  OCTAVO_RETURN_IF_ERROR(context_.products->Make(*volume, &item));
  OCTAVO_RETURN_IF_ERROR(home.Stamp(context_.products->stream(), on_host));
  return PushVolume(std::move(item));
}

// Pushes the volume with its seal words: the words of each device in turn, then the digest of its
// raw records.
absl::Status BlockPipeline::PushVolume(Completion item) {
  CompletionQueue& completions = *context_.completions;
  DeviceLanes& lanes = *context_.lanes;
  const StreamRef stream = context_.products->stream();
  const ActiveVolume& volume = *item.volume;
  OCTAVO_RETURN_IF_ERROR(
      lanes.EnqueueSeal(stream, *volume.slot, completions.SealWords(item.event)));
  if (volume.raw_slot != nullptr) {
    const memory::VolumeSlot& raw = *volume.raw_slot;
    OCTAVO_RETURN_IF_ERROR(
        lanes.home().Digest(stream, raw.volume.span<const uint8_t>().First(volume.raw_status.bytes),
                            raw.digest.span<uint64_t>()));
    OCTAVO_RETURN_IF_ERROR(lanes.home().CopyToHost(stream, completions.RawDigestWord(item.event),
                                                   raw.digest.data(), 8));
  }
  return completions.Push(std::move(item), stream);
}

// The volume will not be sealed. Nothing uses its slots any more when they are returned.
void BlockPipeline::FailVolume(const ActiveVolume& volume) {
  (void)context_.products->stream().Synchronize();
  (void)context_.lanes->Synchronize();
  context_.builder->Fail(volume);
}

void BlockPipeline::FailForDevice(const absl::Status& status) {
  const DeviceLanes::Failure failure = context_.lanes->FailureOf(status);
  context_.life->Fail(failure.code, failure.reason);
}

void BlockPipeline::End(const BlockContext& last) {
  VolumeBuilder& builder = *context_.builder;
  const bool aborted = context_.life->aborted().stop_requested();
  if (builder.active() != nullptr && !aborted &&
      builder.active()->coverage.all_seen()) {  // the volume waited for the end of a group
    (void)EndVolume(last, builder.active()->status.acquired_end);
  }
  const absl::Status source = context_.acquirer->ring().close_status();
  const bool all_acquired = !builder.over() && !aborted && context_.acquirer->all_acquired();
  if (!builder.over() && !aborted && !all_acquired) {
    if (!source.ok()) {
      const Reason reason = InfoOf(source).reason;
      context_.life->EndWith(model::ScanState::kFailed,
                             reason == Reason::kNone ? Reason::kSourceError : reason,
                             std::string(source.message()));
    } else {
      context_.life->EndWith(
          model::ScanState::kDone, Reason::kSourceEnded,
          absl::StrCat("the source ended after ", builder.next_volume(), " volumes"));
    }
  }
  if (builder.active() != nullptr) {
    if (aborted || builder.active()->slot == nullptr) {
      FailVolume(*builder.TakeActive());
    } else if (absl::Status status = EndVolume(last, builder.active()->status.acquired_end);
               !status.ok()) {
      Log(LogLevel::kError, "volume not finished",
          {{"scan", context_.scan}, {"error", std::string(status.message())}});
    }
  }
  if (all_acquired) {  // the last records were lost
    builder.CountLost();
    context_.life->EndWith(model::ScanState::kDone, Reason::kCompleted,
                           absl::StrCat("all ", scan_.spec.pattern.volumes, " volumes acquired"));
  }
}

}  // namespace octavo::scan
