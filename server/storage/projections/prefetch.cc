#include "server/storage/projections/prefetch.h"

#include <algorithm>
#include <limits>
#include <pthread.h>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"

namespace octavo::storage {

struct ProjectionPrefetch::Shared {
  std::shared_ptr<ProjectionInput> input;
  std::vector<ProjectionBox> boxes;
  std::vector<void*> slots;
  PixelForm form = PixelForm::kNumbers;

  Mutex mutex;
  CondVar cv;
  std::vector<size_t> free ABSL_GUARDED_BY(mutex);   // slots
  int64_t next ABSL_GUARDED_BY(mutex) = 0;           // box that the next free reader takes
  std::vector<size_t> ready ABSL_GUARDED_BY(mutex);  // slot of each box; kNoSlot: not yet
  int64_t given ABSL_GUARDED_BY(mutex) = 0;          // boxes
  int64_t failed ABSL_GUARDED_BY(mutex) = kNone;     // the first box that cannot be read
  absl::Status status ABSL_GUARDED_BY(mutex) = absl::OkStatus();  // why
  bool ends ABSL_GUARDED_BY(mutex) = false;

  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  static constexpr size_t kNoSlot = std::numeric_limits<size_t>::max();

  void Run();
  bool AllAreTaken() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return ends || failed != kNone || next == std::ssize(boxes);
  }
};

// One reader. It takes a box together with its slot, so the earliest box that is not given has a
// slot always, and the boxes behind it cannot take all of them.
void ProjectionPrefetch::Shared::Run() {
  for (;;) {
    int64_t box = 0;
    size_t slot = 0;
    {
      MutexLock lock(mutex);
      while (free.empty() && !AllAreTaken()) cv.Wait(lock);
      if (AllAreTaken()) return;
      box = next++;
      slot = free.back();
      free.pop_back();
    }
    absl::Status read = base::ExceptionToStatus(
        [&] { return input->Read(boxes[static_cast<size_t>(box)], slots[slot], form); });
    MutexLock lock(mutex);  // nothing here takes memory: an exception would end the process
    if (read.ok()) {
      ready[static_cast<size_t>(box)] = slot;
    } else if (box < failed) {
      failed = box;
      status = std::move(read);
    }
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
    std::vector<void*> slots, int64_t slot_bytes, int64_t readers, PixelForm form) {
  if (slots.size() < 2)
    return absl::InvalidArgumentError(absl::StrCat(slots.size(), " slots; allowed at least 2"));
  for (const auto& box : boxes) {
    const int64_t bytes = input->BytesOf(box, form);
    if (bytes > slot_bytes)
      return absl::InvalidArgumentError(
          absl::StrCat("a box of ", bytes, " bytes; slots have ", slot_bytes));
  }
  auto shared = std::make_shared<Shared>();
  shared->input = std::move(input);
  shared->boxes = std::move(boxes);
  shared->slots = std::move(slots);
  shared->form = form;
  {
    MutexLock lock(shared->mutex);
    for (size_t i = 0; i < shared->slots.size(); ++i) shared->free.push_back(i);
    shared->ready.assign(shared->boxes.size(), Shared::kNoSlot);
  }
  std::unique_ptr<ProjectionPrefetch> made(new ProjectionPrefetch(shared));
  for (int64_t i = 0; i < std::max<int64_t>(1, readers); ++i) {
    made->threads_.emplace_back([shared] {
      pthread_setname_np(pthread_self(), "oct-read");
      shared->Run();
    });
  }
  return made;
}

ProjectionPrefetch::~ProjectionPrefetch() {
  {
    MutexLock lock(shared_->mutex);
    shared_->ends = true;
    shared_->cv.NotifyAll();
  }
  threads_.clear();  // joins
}

absl::StatusOr<ProjectionPrefetch::Slab> ProjectionPrefetch::Next(std::stop_token stop) {
  Shared& s = *shared_;
  std::stop_callback wake(stop, [&s] {
    MutexLock lock(s.mutex);
    s.cv.NotifyAll();
  });
  MutexLock lock(s.mutex);
  const auto is_ready = [&s]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(s.mutex) {
    return s.given < std::ssize(s.boxes) &&
           s.ready[static_cast<size_t>(s.given)] != Shared::kNoSlot;
  };
  while (!is_ready() && s.failed != s.given && s.given < std::ssize(s.boxes) &&
         !stop.stop_requested())
    s.cv.Wait(lock);
  if (stop.stop_requested()) return absl::CancelledError("cancelled");
  Slab slab;
  if (!is_ready()) {
    if (s.failed == s.given) return s.status;
    return slab;
  }
  const int64_t index = s.given++;
  const size_t slot = s.ready[static_cast<size_t>(index)];
  slab.shared_ = shared_;
  slab.box_ = s.boxes[static_cast<size_t>(index)];
  slab.data_ = s.slots[slot];
  slab.bytes_ = s.input->BytesOf(slab.box_, s.form);
  slab.index_ = index;
  slab.slot_ = slot;
  return slab;
}

}  // namespace octavo::storage
