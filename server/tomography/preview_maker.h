#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

#include "server/job/job.h"
#include "server/publish/topic.h"
#include "server/tomography/scanned_object.h"

namespace octavo::tomography {

/// Slices [first, first + count) of a result of `slices`.
struct SliceRange {
  int64_t first = 0, count = 0, slices = 0;
};

/// A slice that a subscriber wants to see.
struct WantedSlice {
  publish::TopicKey key;
  int64_t slice = 0;
};

/// The previews of a job: which slice subscribers want, and the images for them. Used by the job's
/// thread only.
class PreviewMaker {
 public:
  explicit PreviewMaker(job::JobRun& run) : run_(run) {}

  /// Takes `bytes` of the workspace, for an image that is made for a preview only; 0: there is
  /// none.
  absl::Status Begin(int64_t bytes);
  float* image() const { return image_; }

  /// A slice of the range of which a subscriber wants previews.
  std::optional<WantedSlice> WantedOf(const SliceRange& range) const;
  /// The same, if a preview is due now.
  std::optional<WantedSlice> DueOf(const SliceRange& range) const {
    return run_.PreviewDue() ? WantedOf(range) : std::nullopt;
  }
  absl::Status Publish(const publish::TopicKey& key, const SliceImage& image,
                       const SliceSpacing& spacing);

 private:
  job::JobRun& run_;
  float* image_ = nullptr;
};

}  // namespace octavo::tomography
