#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "gpu/device/device.h"
#include "server/job/job.h"
#include "server/storage/projections/projection_input.h"
#include "server/tomography/layout.h"
#include "server/tomography/projection_light.h"

namespace octavo::tomography {

/// Some slices of a result.
struct SliceBatch {
  int64_t first = 0, count = 0;
  BatchRows rows;
};

/// Loads the raw data of batches onto a device: several threads read ahead into page-locked memory,
/// another uploads a batch while the job computes the one before. The device holds the raw data of
/// only one batch, because preparing a batch is quick and then frees that memory. Packed counts are
/// uploaded as they are; the preparation unpacks them.
class TomographyLoader {
 public:
  /// Allocates device memory from the run's workspace: at most `raw_bytes` for projections and
  /// `field_bytes` for flats and darks, given back by Free. `layout` must outlive the loader. The
  /// batches come in this order. `light`, if not null, sees the raw rows, and must live until Free.
  static absl::StatusOr<std::unique_ptr<TomographyLoader>> Start(
      job::JobRun& run, const TomographyLayout& layout,
      std::shared_ptr<storage::ProjectionInput> input, std::vector<SliceBatch> batches,
      int64_t raw_bytes, int64_t field_bytes, ProjectionLight* light = nullptr);
  ~TomographyLoader();  // ends the threads; waits for copies

  /// Waits for the next batch. Errors of reading; Cancelled.
  absl::StatusOr<PrepareInput> Next(std::stop_token stop);
  /// Releases the data of Next: the stream that used them has passed.
  void Release();
  /// Ends the threads and gives the device memory back.
  void Free(job::JobRun& run);

 private:
  TomographyLoader(const TomographyLayout& layout, Device& device,
                   std::shared_ptr<storage::ProjectionInput> input, std::vector<SliceBatch> batches,
                   ProjectionLight* light)
      : layout_(layout),
        device_(device),
        input_(std::move(input)),
        batches_(std::move(batches)),
        light_(light) {}
  void Work(std::stop_token stop);
  absl::Status Load(std::stop_token stop);

  const TomographyLayout& layout_;
  Device& device_;
  const std::shared_ptr<storage::ProjectionInput> input_;
  const std::vector<SliceBatch> batches_;
  ProjectionLight* const light_;  // may be null
  Stream stream_;
  std::vector<PinnedBuffer> slots_;
  int64_t slot_bytes_ = 0, readers_ = 1;
  void* projections_ = nullptr;
  void* fields_ = nullptr;
  Mutex mutex_;
  CondVar cv_;
  int64_t loaded_ ABSL_GUARDED_BY(mutex_) = 0, released_ ABSL_GUARDED_BY(mutex_) = 0;  // batches
  int64_t darks_offset_ ABSL_GUARDED_BY(mutex_) = 0;  // of the batch that was loaded last
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace octavo::tomography
