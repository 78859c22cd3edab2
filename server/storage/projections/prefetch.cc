#include "server/storage/projections/prefetch.h"

#include <algorithm>
#include <exception>
#include <new>
#include <pthread.h>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::storage {

struct ProjectionPrefetch::Shared {
  std::shared_ptr<ProjectionInput> input;
  std::vector<ProjectionBox> boxes;
  std::vector<void*> slots;

  Mutex mutex;
  CondVar cv;
  std::vector<size_t> free ABSL_GUARDED_BY(mutex);                      // slots
  std::deque<std::pair<int64_t, size_t>> ready ABSL_GUARDED_BY(mutex);  // box, slot
  int64_t given ABSL_GUARDED_BY(mutex) = 0;
  absl::Status status ABSL_GUARDED_BY(mutex) = absl::OkStatus();
  bool ends ABSL_GUARDED_BY(mutex) = false;

  void Run();
};

void ProjectionPrefetch::Shared::Run() {
  for (size_t i = 0; i < boxes.size(); ++i) {
    size_t slot = 0;
    {
      MutexLock lock(mutex);
      while (free.empty() && !ends) cv.Wait(lock);
      if (ends) return;
      slot = free.back();
      free.pop_back();
    }
    absl::Status read = absl::OkStatus();
    try {
      read = input->Read(boxes[i], slots[slot]);
    } catch (const std::bad_alloc&) {
      read = absl::ResourceExhaustedError("no host memory left to read projections with");
    } catch (const std::exception& e) {
      read = absl::InternalError(e.what());
    }
    MutexLock lock(mutex);
    if (!read.ok()) {
      status = std::move(read);
      cv.NotifyAll();
      return;
    }
    ready.emplace_back(static_cast<int64_t>(i), slot);
    cv.NotifyAll();
  }
}

ProjectionPrefetch::Slab& ProjectionPrefetch::Slab::operator=(Slab&& other) noexcept {
  if (this == &other) return *this;
  Release();
  shared_ = std::move(other.shared_);
  box_ = other.box_;
  data_ = other.data_;
  bytes_ = other.bytes_;
  index_ = other.index_;
  slot_ = other.slot_;
  return *this;
}

void ProjectionPrefetch::Slab::Release() {
  if (shared_ == nullptr) return;
  {
    MutexLock lock(shared_->mutex);
    shared_->free.push_back(slot_);
    shared_->cv.NotifyAll();
  }
  shared_.reset();
}

absl::StatusOr<std::unique_ptr<ProjectionPrefetch>> ProjectionPrefetch::Start(
    std::shared_ptr<ProjectionInput> input, std::vector<ProjectionBox> boxes,
    std::vector<void*> slots, int64_t slot_bytes) {
  if (slots.size() < 2)
    return absl::InvalidArgumentError(absl::StrCat(slots.size(), " slots; allowed at least 2"));
  for (const auto& box : boxes) {
    const int64_t bytes = box.elements() * SizeOf(input->info().dtype);
    if (bytes > slot_bytes)
      return absl::InvalidArgumentError(
          absl::StrCat("a box of ", bytes, " bytes; slots have ", slot_bytes));
  }
  auto shared = std::make_shared<Shared>();
  shared->input = std::move(input);
  shared->boxes = std::move(boxes);
  shared->slots = std::move(slots);
  {
    MutexLock lock(shared->mutex);
    for (size_t i = 0; i < shared->slots.size(); ++i) shared->free.push_back(i);
  }
  std::unique_ptr<ProjectionPrefetch> made(new ProjectionPrefetch(shared));
  made->thread_ = std::jthread([shared] {
    pthread_setname_np(pthread_self(), "oct-read");
    shared->Run();
  });
  return made;
}

ProjectionPrefetch::~ProjectionPrefetch() {
  {
    MutexLock lock(shared_->mutex);
    shared_->ends = true;
    shared_->cv.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<ProjectionPrefetch::Slab> ProjectionPrefetch::Next(std::stop_token stop) {
  Shared& s = *shared_;
  std::stop_callback wake(stop, [&s] {
    MutexLock lock(s.mutex);
    s.cv.NotifyAll();
  });
  MutexLock lock(s.mutex);
  while (s.ready.empty() && s.status.ok() && s.given < std::ssize(s.boxes) &&
         !stop.stop_requested())
    s.cv.Wait(lock);
  if (stop.stop_requested()) return absl::CancelledError("cancelled");
  Slab slab;
  if (s.ready.empty()) {
    OCTAVO_RETURN_IF_ERROR(s.status);
    return slab;
  }
  const auto [index, slot] = s.ready.front();
  s.ready.pop_front();
  ++s.given;
  slab.shared_ = shared_;
  slab.box_ = s.boxes[static_cast<size_t>(index)];
  slab.data_ = s.slots[slot];
  slab.bytes_ = slab.box_.elements() * SizeOf(s.input->info().dtype);
  slab.index_ = index;
  slab.slot_ = slot;
  return slab;
}

std::vector<ProjectionBox> CoverRows(const ProjectionInfo& info, FrameKind kind, int64_t first_row,
                                     int64_t rows, int64_t slab_bytes) {
  std::vector<ProjectionBox> boxes;
  const int64_t row_bytes = info.columns * SizeOf(info.dtype), frames = info.frames(kind);
  const int64_t most_rows = std::clamp<int64_t>(slab_bytes / row_bytes, 1, rows);
  const int64_t most_frames =
      most_rows < rows ? 1 : std::max<int64_t>(1, slab_bytes / (rows * row_bytes));
  for (int64_t f = 0; f < frames; f += most_frames) {
    for (int64_t r = 0; r < rows; r += most_rows) {
      boxes.push_back({.kind = kind,
                       .first_frame = f,
                       .frames = std::min(most_frames, frames - f),
                       .first_row = first_row + r,
                       .rows = std::min(most_rows, rows - r),
                       .first_column = 0,
                       .columns = info.columns});
    }
  }
  return boxes;
}

}  // namespace octavo::storage
