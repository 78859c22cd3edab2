#include "server/tomography/loader.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <pthread.h>
#include <utility>

#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/storage/projections/prefetch.h"

namespace octavo::tomography {
namespace {

// One thread copies 4 to 8 GB/s from the page cache; the link to a device takes 50. Beyond six the
// memory is the limit, and page-locking more of it delays the start of every job.
constexpr int64_t kMostReaders = 6;
constexpr int64_t kUploads = 2;  // slabs on their way to the device
constexpr int64_t kSlabBytes = 8 << 20, kLeastSlabBytes = 256 << 10, kPinnedBytes = 96 << 20;

int64_t MostReaders() {
  return std::clamp<int64_t>(std::thread::hardware_concurrency() / 2, 1, kMostReaders);
}

// Rows of the detector between the first and the last one that is read.
int64_t Span(const BatchRows& rows) { return (rows.count - 1) * rows.step + 1; }

int64_t FrameBytes(const TomographyLayout& layout, const BatchRows& rows) {
  return Span(rows) * layout.raw_row_bytes();
}

// The boxes read for a batch, in this order: flats, darks, projections.
std::vector<storage::ProjectionBox> BoxesOf(const TomographyLayout& layout, const BatchRows& rows,
                                            int64_t slot_bytes) {
  using storage::FrameKind;
  std::vector<storage::ProjectionBox> boxes;
  const int64_t together = std::max<int64_t>(1, slot_bytes / FrameBytes(layout, rows));
  const auto add = [&](FrameKind kind, int64_t first, int64_t frames) {
    boxes.push_back({.kind = kind,
                     .first_frame = first,
                     .frames = frames,
                     .first_row = rows.first,
                     .rows = Span(rows),
                     .first_column = 0,
                     .columns = layout.columns()});
  };
  const auto add_all = [&](FrameKind kind, int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += together) add(kind, at, std::min(together, end - at));
  };
  add_all(FrameKind::kFlat, 0, layout.flats());
  add_all(FrameKind::kDark, 0, layout.darks());
  const model::IndexRange& range = layout.projections();
  if (range.step == 1) {
    add_all(FrameKind::kProjection, range.begin, range.end);
  } else {
    for (int64_t at = range.begin; at < range.end; at += range.step)
      add(FrameKind::kProjection, at, 1);
  }
  return boxes;
}

/// Slabs whose copies to the device are in progress: kUploads at most, so that the link never waits
/// for the thread that enqueues.
class UploadQueue {
 public:
  UploadQueue(Device& device, StreamRef stream) : device_(device), stream_(stream) {}
  ~UploadQueue() { (void)stream_.Synchronize(); }  // before the slabs are read into again

  /// Enqueues the copy of the slab's first `bytes`; waits for an earlier one if there are kUploads.
  absl::Status Add(storage::ProjectionPrefetch::Slab slab, void* to, int64_t bytes) {
    if (std::ssize(copies_) == kUploads) {
      OCTAVO_RETURN_IF_ERROR(copies_.front().done.Synchronize());
      copies_.pop_front();
    }
    Copy& copy = copies_.emplace_back();
    copy.slab = std::move(slab);
    OCTAVO_ASSIGN_OR_RETURN(copy.done, device_.NewEvent());
    OCTAVO_RETURN_IF_ERROR(device_.CopyToDevice(stream_, to, copy.slab.data(), bytes));
    return copy.done.Record(stream_);
  }
  /// Waits for all copies.
  absl::Status Finish() {
    OCTAVO_RETURN_IF_ERROR(stream_.Synchronize());
    copies_.clear();
    return absl::OkStatus();
  }

 private:
  struct Copy {
    storage::ProjectionPrefetch::Slab slab;
    Event done;
  };
  Device& device_;
  const StreamRef stream_;
  std::deque<Copy> copies_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TomographyLoader>> TomographyLoader::Start(
    job::JobRun& run, const TomographyLayout& layout,
    std::shared_ptr<storage::ProjectionInput> input, std::vector<SliceBatch> batches,
    int64_t raw_bytes, int64_t field_bytes, ProjectionLight* light) {
  std::unique_ptr<TomographyLoader> loader(
      new TomographyLoader(layout, run.device(), std::move(input), std::move(batches), light));
  OCTAVO_ASSIGN_OR_RETURN(loader->stream_, run.device().NewStream(StreamPriority::kLow));
  // All readers have a part of a small input; large frames leave fewer readers.
  const int64_t most = MostReaders();
  loader->slot_bytes_ = std::clamp(raw_bytes / most, kLeastSlabBytes, kSlabBytes);
  for (const SliceBatch& batch : loader->batches_) {
    loader->slot_bytes_ = std::max(loader->slot_bytes_, FrameBytes(layout, batch.rows));
  }
  loader->readers_ = std::clamp<int64_t>(kPinnedBytes / loader->slot_bytes_ - kUploads, 1, most);
  for (int64_t i = 0; i < loader->readers_ + kUploads; ++i) {
    OCTAVO_ASSIGN_OR_RETURN(PinnedBuffer slot, run.device().AllocatePinned(loader->slot_bytes_));
    loader->slots_.push_back(std::move(slot));
  }
  OCTAVO_ASSIGN_OR_RETURN(loader->projections_, run.Allocate(raw_bytes));
  if (field_bytes > 0) {
    auto fields = run.Allocate(field_bytes);
    if (!fields.ok()) {
      run.Free(loader->projections_);
      return fields.status();
    }
    loader->fields_ = *fields;
  }
  loader->thread_ = std::jthread([l = loader.get()](std::stop_token stop) {
    pthread_setname_np(pthread_self(), "oct-load");
    l->Work(stop);
  });
  return loader;
}

TomographyLoader::~TomographyLoader() {
  thread_.request_stop();
  {
    MutexLock lock(mutex_);
    cv_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  if (stream_) (void)stream_.ref().Synchronize();
}

void TomographyLoader::Free(job::JobRun& run) {
  thread_.request_stop();
  {
    MutexLock lock(mutex_);
    cv_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  (void)stream_.ref().Synchronize();
  run.Free(std::exchange(projections_, nullptr));
  if (fields_ != nullptr) run.Free(std::exchange(fields_, nullptr));
}

absl::StatusOr<PrepareInput> TomographyLoader::Next(std::stop_token stop) {
  std::stop_callback wake(stop, [this] {
    MutexLock lock(mutex_);
    cv_.NotifyAll();
  });
  MutexLock lock(mutex_);
  while (loaded_ == released_ && status_.ok() && !stop.stop_requested()) cv_.Wait(lock);
  if (stop.stop_requested()) return absl::CancelledError("cancelled");
  if (loaded_ == released_) return status_;
  return PrepareInput{
      .projections = projections_,
      .flats = layout_.flats() > 0 ? fields_ : nullptr,
      .darks = layout_.darks() > 0 ? static_cast<char*>(fields_) + darks_offset_ : nullptr};
}

void TomographyLoader::Release() {
  MutexLock lock(mutex_);
  released_ = loaded_;
  cv_.NotifyAll();
}

void TomographyLoader::Work(std::stop_token stop) {
  absl::Status status = base::ExceptionToStatus([&] {
    OCTAVO_RETURN_IF_ERROR(Load(stop));
    return absl::InternalError("all batches were read");
  });
  MutexLock lock(mutex_);
  status_ = std::move(status);
  cv_.NotifyAll();
}

absl::Status TomographyLoader::Load(std::stop_token stop) {
  const int64_t row_bytes = layout_.raw_row_bytes();
  std::vector<storage::ProjectionBox> boxes;
  std::vector<int64_t> ends;  // of each batch, in boxes
  for (const SliceBatch& batch : batches_) {
    const auto of_batch = BoxesOf(layout_, batch.rows, slot_bytes_);
    boxes.insert(boxes.end(), of_batch.begin(), of_batch.end());
    ends.push_back(std::ssize(boxes));
  }
  std::vector<void*> slots;
  for (const PinnedBuffer& slot : slots_) slots.push_back(slot.data());
  OCTAVO_ASSIGN_OR_RETURN(const auto prefetch, storage::ProjectionPrefetch::Start(
                                                   input_, boxes, std::move(slots), slot_bytes_,
                                                   readers_, storage::PixelForm::kStored));
  UploadQueue uploads(device_, stream_.ref());
  int64_t next = 0;
  for (size_t b = 0; b < batches_.size(); ++b) {
    const BatchRows& rows = batches_[b].rows;
    const int64_t darks_offset = layout_.flats() * rows.count * row_bytes;
    {
      MutexLock lock(mutex_);
      while (released_ < static_cast<int64_t>(b) && !stop.stop_requested()) cv_.Wait(lock);
      if (stop.stop_requested()) return absl::CancelledError("cancelled");
      darks_offset_ = darks_offset;
    }
    char* places[3] = {static_cast<char*>(projections_), static_cast<char*>(fields_),
                       static_cast<char*>(fields_) + darks_offset};
    if (light_ != nullptr) light_->Begin(layout_, rows);
    for (; next < ends[b]; ++next) {
      OCTAVO_ASSIGN_OR_RETURN(storage::ProjectionPrefetch::Slab slab, prefetch->Next(stop));
      const storage::ProjectionBox& box = slab.box();
      auto* data = static_cast<char*>(const_cast<void*>(slab.data()));  // one of slots_
      if (rows.step > 1) {  // the selected rows move together
        for (int64_t i = 1; i < box.frames * rows.count; ++i) {
          std::memmove(data + i * row_bytes,
                       data + (i / rows.count * box.rows + i % rows.count * rows.step) * row_bytes,
                       static_cast<size_t>(row_bytes));
        }
      }
      if (light_ != nullptr) light_->Add(box.kind, box.first_frame, box.frames, data);
      char*& place = places[static_cast<size_t>(box.kind)];
      const int64_t bytes = box.frames * rows.count * row_bytes;
      OCTAVO_RETURN_IF_ERROR(uploads.Add(std::move(slab), place, bytes));
      place += bytes;
    }
    OCTAVO_RETURN_IF_ERROR(uploads.Finish());
    MutexLock lock(mutex_);
    loaded_ = static_cast<int64_t>(b) + 1;
    cv_.NotifyAll();
  }
  return absl::OkStatus();
}

}  // namespace octavo::tomography
