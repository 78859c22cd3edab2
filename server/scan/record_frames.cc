#include "server/scan/record_frames.h"

#include <algorithm>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/processing/record_view.h"

namespace octavo::scan {
namespace {

constexpr int kNice = 10;

model::Bytes BytesOf(std::vector<uint8_t> data) {
  auto owner = std::make_shared<const std::vector<uint8_t>>(std::move(data));
  return {.owner = owner, .data = owner->data(), .size = std::ssize(*owner)};
}

}  // namespace

std::unique_ptr<RecordCopy> RecordFrames::NewCopy(int64_t bytes) {
  std::vector<std::unique_ptr<RecordCopy>> small;  // ends after the lock
  MutexLock lock(mutex_);
  const auto fits = std::find_if(free_.begin(), free_.end(),
                                 [&](const auto& copy) { return copy->capacity >= bytes; });
  if (fits != free_.end()) {
    std::unique_ptr<RecordCopy> copy = std::move(*fits);
    free_.erase(fits);
    return copy;
  }
  for (auto& copy : free_) bytes_ -= copy->capacity;
  small.swap(free_);
  if (bytes_ + bytes > kMostBytes) return nullptr;
  auto copy = std::make_unique<RecordCopy>();
  copy->data = std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(bytes));
  copy->capacity = bytes;
  bytes_ += bytes;
  return copy;
}

void RecordFrames::Offer(std::unique_ptr<RecordCopy> copy) {
  std::unique_ptr<RecordCopy> older;
  {
    MutexLock lock(mutex_);
    const auto same = std::find_if(waiting_.begin(), waiting_.end(),
                                   [&](const auto& w) { return w->keys == copy->keys; });
    if (same != waiting_.end()) {
      older = std::exchange(*same, std::move(copy));
    } else {
      waiting_.push_back(std::move(copy));
    }
    cv_.NotifyAll();
  }
  if (older != nullptr) Drop(std::move(older), publish::Loss::kSuperseded);
}

void RecordFrames::Drop(std::unique_ptr<RecordCopy> copy, publish::Loss why) {
  Lose(*copy, why);
  TakeBack(std::move(copy));
}

void RecordFrames::TakeBack(std::unique_ptr<RecordCopy> copy) {
  copy->choice = nullptr;
  copy->keys.clear();
  copy->size = 0;
  copy->volume.clear();
  MutexLock lock(mutex_);
  if (closed_) return;
  free_.push_back(std::move(copy));
}

void RecordFrames::Lose(const RecordCopy& copy, publish::Loss why) {
  for (const publish::TopicKey& key : copy.keys) publisher_->Lost(scan_, key, why);
}

std::unique_ptr<RecordCopy> RecordFrames::Take() {
  MutexLock lock(mutex_);
  while (waiting_.empty() && !closed_) cv_.Wait(lock);
  if (waiting_.empty()) return nullptr;
  std::unique_ptr<RecordCopy> copy = std::move(waiting_.front());
  waiting_.pop_front();
  return copy;
}

void RecordFrames::Run() {
  // This thread starts the threads of the host device, and they inherit the priority.
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
  while (std::unique_ptr<RecordCopy> copy = Take()) {
    Make(*copy);
    TakeBack(std::move(copy));
  }
  single_ = nullptr;
  choice_ = nullptr;
}

void RecordFrames::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  free_.clear();
  cv_.NotifyAll();
}

void RecordFrames::Make(const RecordCopy& copy) {
  for (const publish::TopicKey& key : copy.keys) {
    absl::StatusOr<model::Frame> frame = base::ExceptionToStatus(
        [&]() -> absl::StatusOr<model::Frame> { return MakeFrame(copy, key); });
    if (frame.ok()) {
      publisher_->Publish(key, *std::move(frame));
      continue;
    }
    Log(LogLevel::kWarning, "the server could not make a frame of a record",
        {{"scan", scan_}, {"product", Name(key.product)}, {"error", frame.status().ToString()}});
    publisher_->Lost(scan_, key);
  }
}

absl::StatusOr<model::Frame> RecordFrames::MakeFrame(const RecordCopy& copy,
                                                     const publish::TopicKey& key) {
  const model::ResolvedScan& scan = *copy.choice->scan();
  const processing::RecordUnit& unit = copy.unit;
  if (choice_ != copy.choice) {
    single_ = nullptr;
    choice_ = copy.choice;
    single_ = std::make_unique<processing::SingleAscan>(*choice_);
  }
  auto info = std::make_shared<model::RecordInfo>();
  info->record = unit.record;
  info->row = unit.ascan / copy.choice->columns();
  info->column = unit.ascan % copy.choice->columns();
  info->corrected = key.corrected;
  model::Frame frame;
  frame.parent = scan_;
  frame.volume = copy.volume;
  frame.volume_index = unit.volume;
  frame.product = key.product;
  frame.axis = key.axis;
  frame.acquired = copy.acquired;
  const uint8_t* const records = copy.data.get();
  const uint8_t* const record = records + (unit.record - unit.need_first) * RecordBytes(scan.chain);
  const bool whole = key.product == model::Product::kSpectrum && !key.corrected;
  processing::FindSaturated(scan, record, whole, info.get());
  if (key.product == model::Product::kAscan) {
    OCTAVO_ASSIGN_OR_RETURN(std::vector<uint8_t> ascan, single_->Ascan(unit, records));
    frame.payload = BytesOf(std::move(ascan));
    frame.dtype = scan.chain.output;
    frame.shape = {scan.chain.depth};
    frame.axes = {"z"};
    frame.spacing_um = {scan.spacing_um[2]};
    frame.display_lo = copy.display_lo;
    frame.display_hi = copy.display_hi;
    frame.scale = copy.scale;
  } else if (key.corrected) {
    const std::vector<float> values = single_->Corrected(unit, records);
    const auto* const bytes = reinterpret_cast<const uint8_t*>(values.data());
    frame.payload = BytesOf({bytes, bytes + values.size() * sizeof(float)});
    frame.dtype = DType::kF32;
    frame.shape = {std::ssize(values)};
    frame.axes = {"sample"};
  } else {
    processing::RawRecordView view = processing::ViewRecord(scan, record);
    frame.payload = BytesOf(std::move(view.bytes));
    frame.dtype = view.dtype;
    frame.shape = std::move(view.shape);
    frame.axes = std::move(view.axes);
  }
  processing::FindRange(frame.dtype, static_cast<const uint8_t*>(frame.payload.data),
                        frame.payload.size, info.get());
  if (key.product == model::Product::kSpectrum) {
    frame.display_lo = info->saturation_low.value_or(
        info->saturation_high.has_value() ? 0 : info->minimum.value_or(0));
    frame.display_hi = info->saturation_high.value_or(info->maximum.value_or(1));
    if (key.corrected) {
      frame.display_lo = info->minimum.value_or(0);
      frame.display_hi = info->maximum.value_or(1);
    }
  }
  frame.record = std::move(info);
  return frame;
}

}  // namespace octavo::scan
