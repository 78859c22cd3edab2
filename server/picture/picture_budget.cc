#include "server/picture/picture_budget.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::picture {

absl::StatusOr<std::shared_ptr<PictureBudget::Share>> PictureBudget::Take(int64_t bytes) {
  // Made before it is counted: where there is no memory for it, nothing has changed.
  auto share = std::make_shared<Share>(state_);
  MutexLock lock(state_->mutex);
  const bool fits = bytes <= state_->most_bytes - state_->used;
  const bool alone = state_->making == 0 && state_->used < state_->most_bytes;
  if (!fits && !alone) {
    return WithInfo(absl::ResourceExhaustedError(absl::StrCat(
                        "the pictures that are made or sent now take ", state_->used, " of ",
                        state_->most_bytes, " bytes, and this one needs ", bytes, "; try again")),
                    {.reason = Reason::kBusy,
                     .field = "",
                     .numbers = {{"used_bytes", absl::StrCat(state_->used)},
                                 {"allowed_bytes", absl::StrCat(state_->most_bytes)},
                                 {"retryable", "true"}}});
  }
  share->bytes_ = bytes;
  share->making_ = true;
  state_->used += bytes;
  ++state_->making;
  return share;
}

int64_t PictureBudget::bytes() {
  MutexLock lock(state_->mutex);
  return state_->used;
}

PictureBudget::Share::~Share() {
  MutexLock lock(state_->mutex);
  state_->used -= bytes_;
  if (making_) --state_->making;
}

void PictureBudget::Share::Made(int64_t bytes) {
  MutexLock lock(state_->mutex);
  state_->used += bytes - bytes_;
  bytes_ = bytes;
  making_ = false;
  --state_->making;
}

}  // namespace octavo::picture
