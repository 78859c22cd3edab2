#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "gpu/base/unique_fd.h"

namespace octavo::memory {

/// Memory that another process may map by its descriptor. Its size is sealed, so that no process
/// can take pages away while the server uses them.
class SharedPages {
 public:
  SharedPages() = default;
  /// Allocates zeroed memory, all pages present (so that no access can fail later), mapped for
  /// reading and writing. `name` shows in /proc. ResourceExhausted if there is not enough.
  static absl::StatusOr<SharedPages> Create(const char* name, int64_t bytes);
  /// The same for memory that only this process writes: others can map it to read alone.
  static absl::StatusOr<SharedPages> CreateReadOnly(const char* name, int64_t bytes);
  SharedPages(SharedPages&& other) noexcept { *this = static_cast<SharedPages&&>(other); }
  SharedPages& operator=(SharedPages&& other) noexcept;
  ~SharedPages();

  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  /// For the other process. Open while this lives, or until CloseDescriptor.
  int fd() const { return fd_.get(); }
  /// The memory stays mapped here.
  void CloseDescriptor() { fd_ = UniqueFd(); }
  /// Gives the pages from this offset on back to the system, although other processes may map them:
  /// what those touch from then on are new pages of zeros. Nothing here may read them any more. Not
  /// for memory of CreateReadOnly.
  void DropPages(int64_t from) const;

 private:
  static absl::StatusOr<SharedPages> Allocate(const char* name, int64_t bytes, int seals);

  UniqueFd fd_;
  char* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace octavo::memory
