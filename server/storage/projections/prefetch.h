#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "server/storage/projections/projection_input.h"

namespace octavo::storage {

/// Reads boxes of an input ahead, several at a time, on threads of its own, into a fixed number of
/// slabs of memory, and gives them in their order: one thread cannot copy from the page cache as
/// fast as a device takes uploads. Next, and the destruction of its slabs, may come from any
/// thread.
///
///   for (;;) {
///     OCTAVO_ASSIGN_OR_RETURN(ProjectionPrefetch::Slab slab, prefetch->Next(stop));
///     if (!slab) break;                                                    // all boxes were given
///     device.CopyToDevice(stream, dst, slab.data(), slab.bytes()); event.Record(stream); …
/// in_flight.push_back({std::move(slab), event}); // freed when the event has passed
///   }
class ProjectionPrefetch {
 private:
  struct Shared;

 public:
  /// A box in memory; the memory is reused once the Slab is destroyed. Empty = the end.
  class Slab {
   public:
    Slab() = default;
    Slab(Slab&& other) noexcept { *this = std::move(other); }
    Slab& operator=(Slab&& other) noexcept;
    ~Slab() { Release(); }
    explicit operator bool() const { return shared_ != nullptr; }
    const ProjectionBox& box() const { return box_; }
    const void* data() const { return data_; }  // as ProjectionInput::Read gives the box
    int64_t bytes() const { return bytes_; }
    int64_t index() const { return index_; }  // of the box, in the order given

   private:
    friend class ProjectionPrefetch;
    void Release();
    std::shared_ptr<Shared> shared_;
    ProjectionBox box_;
    void* data_ = nullptr;
    int64_t bytes_ = 0, index_ = 0;
    size_t slot_ = 0;
  };

  /// Begins to read `boxes` in this order, by `readers` threads (at least 1; of use are as many as
  /// there are slots). `slots`: at least 2 pieces of memory (page-locked where they are to be
  /// uploaded) of `slot_bytes` each, which every box must fit into; they must outlive this and all
  /// Slabs. InvalidArgument.
  static absl::StatusOr<std::unique_ptr<ProjectionPrefetch>> Start(
      std::shared_ptr<ProjectionInput> input, std::vector<ProjectionBox> boxes,
      std::vector<void*> slots, int64_t slot_bytes, int64_t readers = 1,
      PixelForm form = PixelForm::kNumbers);
  ~ProjectionPrefetch();  // stops the threads; waits for the reads in progress

  /// Waits for the next box. After all boxes before a failed read it returns that error, and again
  /// in every later call; Cancelled once `stop` is requested. It waits for ever if the caller holds
  /// every slab: hold fewer slabs than there are slots.
  absl::StatusOr<Slab> Next(std::stop_token stop);

 private:
  explicit ProjectionPrefetch(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  const std::shared_ptr<Shared> shared_;
  std::vector<std::jthread> threads_;
};

}  // namespace octavo::storage
