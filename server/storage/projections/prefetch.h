#pragma once

#include <cstdint>
#include <deque>
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

/// Reads boxes of an input one after the other on its own thread, into a fixed number of slabs of
/// memory, so that it reads the next box while the caller uploads the previous one. Next, and the
/// destruction of its slabs, may come from any thread.
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
    const void* data() const { return data_; }  // packed [frame, row, column]
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

  /// Begins to read `boxes` in this order. `slots`: at least 2 pieces of memory (page-locked where
  /// they are to be uploaded) of `slot_bytes` each, which every box must fit into; they must
  /// outlive this and all Slabs. InvalidArgument.
  static absl::StatusOr<std::unique_ptr<ProjectionPrefetch>> Start(
      std::shared_ptr<ProjectionInput> input, std::vector<ProjectionBox> boxes,
      std::vector<void*> slots, int64_t slot_bytes);
  ~ProjectionPrefetch();  // stops the thread; waits for the read in progress

  /// Waits for the next box. After all boxes before a failed read it returns that error, and again
  /// in every later call; Cancelled once `stop` is requested. It waits for ever if the caller holds
  /// every slab: hold fewer slabs than there are slots.
  absl::StatusOr<Slab> Next(std::stop_token stop);

 private:
  explicit ProjectionPrefetch(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  const std::shared_ptr<Shared> shared_;
  std::jthread thread_;
};

/// Boxes of at most `slab_bytes` (but at least one row of one frame) that cover rows [first_row,
/// first_row + rows) of all frames of `kind`, all columns: for a batch of slices. A box holds as
/// many whole ranges of rows of successive frames as fit; frames come in order. Concatenate the
/// boxes of several kinds and batches in the order in which they shall come.
std::vector<ProjectionBox> CoverRows(const ProjectionInfo& info, FrameKind kind, int64_t first_row,
                                     int64_t rows, int64_t slab_bytes);

}  // namespace octavo::storage
