#include "server/buffer/piece_to_host.h"

#include <new>

#include "gpu/base/status.h"

namespace octavo::buffer {

PieceToHost& PieceToHost::operator=(PieceToHost&& other) noexcept {
  std::swap(order_, other.order_);  // `other` ends what this piece held
  std::swap(device_, other.device_);
  std::swap(memory_, other.memory_);
  std::swap(passed_, other.passed_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PieceToHost::~PieceToHost() {
  if (passed_ == nullptr) return;
  try {
    order_->WhenPassed(device_, {passed_}, [memory = memory_](const absl::Status&) {});
  } catch (const std::bad_alloc&) {
    (void)passed_->Synchronize();  // the memory must outlive the copy, even a failed copy
  }
}

absl::StatusOr<std::shared_ptr<void>> PieceToHost::Wait() {
  if (passed_ != nullptr) OCTAVO_RETURN_IF_ERROR(passed_->Synchronize());
  passed_ = nullptr;
  return memory_;
}

}  // namespace octavo::buffer
