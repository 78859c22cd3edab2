#include "server/source/projection_memory.h"

#include <sys/mman.h>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::source {
namespace {

absl::Status Refused(const ProjectionMemory::Claim& claim, const std::string& why,
                     std::vector<std::pair<std::string, std::string>> numbers) {
  numbers.insert(numbers.begin(), {"wanted", absl::StrCat(claim.bytes)});
  return WithInfo(
      absl::ResourceExhaustedError(absl::StrCat(claim.field, ": ", why)),
      {.reason = Reason::kHostMemory, .field = claim.field, .numbers = std::move(numbers)});
}

}  // namespace

int64_t ProjectionMemory::AllowedTo(const std::string& payer) const {
  if (payer.empty()) return limit_;
  return several_ ? limit_ - limit_ / 2 : limit_ - limit_ / 8;
}

absl::Status ProjectionMemory::TakeLocked(const Claim& claim) {
  const std::string& payer = claim.payer;
  if (first_.empty()) first_ = payer;
  several_ = several_ || (!payer.empty() && payer != first_);
  const std::string wanted = absl::StrCat(claim.what, " ", claim.bytes, " bytes of host memory; ");
  if (const int64_t free = limit_ - used_; claim.bytes > free) {
    return Refused(
        claim, absl::StrCat(wanted, "of ", limit_, " for pushed projections ", free, " are free"),
        {{"free", absl::StrCat(free)},
         {"limit", absl::StrCat(limit_)},
         {"retryable", claim.bytes <= limit_ ? "true" : "false"}});
  }
  if (!payer.empty()) {
    const auto it = held_.find(payer);
    const int64_t held = it == held_.end() ? 0 : it->second, allowed = AllowedTo(payer);
    const bool ever = claim.bytes <= allowed;
    if (claim.bytes > allowed - held) {
      return Refused(
          claim,
          absl::StrCat(wanted, payer, " holds ", held, ", and one principal may hold ", allowed,
                       " of ", limit_, " for pushed projections",
                       several_ ? "" : ", because others may want some; ", several_ ? "; " : "",
                       ever ? "cancel a job, or wait for one to end"
                            : "it can never fit: push fewer or smaller frames, or ask for a larger "
                              "device.projection_bytes"),
          {{"principal", payer},
           {"held", absl::StrCat(held)},
           {"allowed", absl::StrCat(allowed)},
           {"limit", absl::StrCat(limit_)},
           {"retryable", ever ? "true" : "false"}});
    }
    held_[payer] += claim.bytes;
  }
  used_ += claim.bytes;
  return absl::OkStatus();
}

void ProjectionMemory::GiveBack(int64_t bytes, const std::string& payer) {
  MutexLock lock(mutex_);
  used_ -= bytes;
  if (const auto it = held_.find(payer); it != held_.end() && (it->second -= bytes) == 0)
    held_.erase(it);
}

absl::StatusOr<std::shared_ptr<char>> ProjectionMemory::Take(const Claim& claim) {
  OCTAVO_ASSIGN_OR_RETURN(std::shared_ptr<void> reserved, Reserve(claim));
  const auto bytes = static_cast<size_t>(claim.bytes);
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return Refused(claim, absl::StrCat("the system gives no ", bytes, " bytes of host memory"),
                   {{"limit", absl::StrCat(limit_)}, {"retryable", "true"}});
  }
  // Only a hint. The thread that puts a frame in its place touches each page of it first: with
  // small ones that takes as long as the copy.
  (void)::madvise(data, bytes, MADV_HUGEPAGE);
  return std::shared_ptr<char>(
      static_cast<char*>(data),
      [bytes, reserved = std::move(reserved)](char* memory) { ::munmap(memory, bytes); });
}

absl::StatusOr<std::shared_ptr<void>> ProjectionMemory::Reserve(const Claim& claim) {
  {
    MutexLock lock(mutex_);
    OCTAVO_RETURN_IF_ERROR(TakeLocked(claim));
  }
  return std::shared_ptr<void>(
      this, [this, bytes = claim.bytes, payer = claim.payer](void*) { GiveBack(bytes, payer); });
}

std::shared_ptr<void> ProjectionMemory::Reserve(int64_t bytes) {
  auto reserved = Reserve(Claim{.bytes = bytes, .payer = "", .field = "", .what = ""});
  return reserved.ok() ? *std::move(reserved) : nullptr;
}

int64_t ProjectionMemory::used_bytes() {
  MutexLock lock(mutex_);
  return used_;
}

}  // namespace octavo::source
