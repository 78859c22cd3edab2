#include "server/exports/shared_frames.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"

#include "gpu/base/descriptors.h"
#include "gpu/base/size_text.h"
#include "gpu/base/status.h"

namespace octavo::exports {
namespace {

constexpr int64_t kLeast = 64 << 10;  // of a frame's memory
constexpr int64_t kStep = 2 << 20;    // larger memory is whole steps

absl::Status NoMemory(const std::string& what, int64_t wanted, int64_t used, int64_t allowed) {
  return WithInfo(absl::ResourceExhaustedError(what),
                  {.reason = Reason::kOutOfMemory,
                   .field = "",
                   .numbers = {{"wanted", absl::StrCat(wanted)},
                               {"used", absl::StrCat(used)},
                               {"allowed", absl::StrCat(allowed)}}});
}

int64_t RoomFor(int64_t bytes) {
  if (bytes > kStep) return (bytes + kStep - 1) / kStep * kStep;
  return std::max(kLeast, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))));
}

}  // namespace

absl::Status FrameBudget::Take(const std::string& payer, int64_t bytes) {
  MutexLock lock(mutex_);
  const auto it = of_payer_.find(payer);
  const int64_t of_payer = it == of_payer_.end() ? 0 : it->second;
  if (!payer.empty() && bytes > most_bytes_ / 2 - of_payer) {
    return NoMemory(
        absl::StrCat("frames in shared memory: ", payer, " has ", SizeText(of_payer), " and needs ",
                     SizeText(bytes), " more; allowed to one principal ", SizeText(most_bytes_ / 2),
                     ", half of the server's budget; have "
                     "fewer slots, or use Subscribe"),
        bytes, of_payer, most_bytes_ / 2);
  }
  if (bytes > most_bytes_ - used_) {
    return NoMemory(absl::StrCat("frames in shared memory: all clients have ", SizeText(used_),
                                 ", and ", SizeText(bytes), " more are needed; allowed ",
                                 SizeText(most_bytes_), "; try again later, or use Subscribe"),
                    bytes, used_, most_bytes_);
  }
  used_ += bytes;
  of_payer_[payer] = of_payer + bytes;
  return absl::OkStatus();
}

void FrameBudget::GiveBack(const std::string& payer, int64_t bytes) noexcept {
  MutexLock lock(mutex_);
  used_ -= bytes;
  const auto it = of_payer_.find(payer);
  if ((it->second -= bytes) == 0) of_payer_.erase(it);
}

int64_t FrameBudget::used() const {
  MutexLock lock(mutex_);
  return used_;
}

absl::StatusOr<std::shared_ptr<SharedFrame>> SharedFrame::Make(
    const std::shared_ptr<FrameBudget>& budget, const std::string& payer, int64_t bytes) {
  const int64_t room = RoomFor(bytes);
  OCTAVO_RETURN_IF_ERROR(budget->Take(payer, room));
  // From here on its end gives back what was taken.
  std::shared_ptr<SharedFrame> frame(new SharedFrame(budget, payer, room));
  auto pages = memory::SharedPages::CreateReadOnly("octavo-frame", room);
  if (!pages.ok()) return NoMemory(std::string(pages.status().message()), room, 0, 0);
  if (!LeavesDescriptors(pages->fd())) {
    return WithInfo(absl::ResourceExhaustedError(
                        "the server has no file descriptor left for a frame in shared memory"),
                    {.reason = Reason::kNoDescriptors, .field = "", .numbers = {}});
  }
  frame->pages_ = *std::move(pages);
  return frame;
}

SharedFrame::~SharedFrame() { budget_->GiveBack(payer_, charged_); }

}  // namespace octavo::exports
