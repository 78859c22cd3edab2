#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/cancellation.h"
#include "gpu/tomography/preprocess.h"
#include "gpu/tomography/reconstruct.h"
#include "server/job/job.h"
#include "server/source/push_projections.h"
#include "server/tomography/layout.h"
#include "server/volume/volume_store.h"

namespace octavo::buffer {
class BufferStore;
}  // namespace octavo::buffer

namespace octavo::tomography {

/// A planned tomography job on one device.
struct TomographyTask {
  const model::TomographySpec* spec = nullptr;
  const TomographyLayout* layout = nullptr;
  std::shared_ptr<storage::ProjectionInput> input;  // null: the frames of `port`
  source::ProjectionPort* port = nullptr;
  buffer::BufferStore* initial = nullptr;  // holds the initial volume or buffer; null: none
  int64_t slices_per_batch = 1;
  TomographyMemory memory;  // as planned
  bool on_disk = false;
};

/// Waits for pushed projections, finds the axis, and makes result 0 of the plan batch by batch.
absl::Status RunTomography(job::JobRun& run, std::stop_token stop, const TomographyTask& task);

// -- one run, for run.cc, run_input.cc and run_preview.cc alone

class TomographyLoader;

class TomographyRunner {
 public:
  TomographyRunner(job::JobRun& run, std::stop_token stop, const TomographyTask& task)
      : run_(run),
        stop_(std::move(stop)),
        task_(task),
        spec_(*task.spec),
        layout_(*task.layout),
        input_(task.input) {}
  absl::Status Run();

 private:
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  /// Its destructor waits for the streams before the members declared above are destroyed.
  class SynchroniseAtEnd {
   public:
    explicit SynchroniseAtEnd(StreamRef stream) : stream_(stream) {}
    ~SynchroniseAtEnd() { (void)stream_.Synchronize(); }

   private:
    StreamRef stream_;
  };
  struct Prepared {
    float* data = nullptr;  // allocated from the run
    PreparedShape shape;
    DeviceSpan<const float> sinograms() const { return {data, shape.elements()}; }
  };

  // run_input.cc: the input and its axis
  absl::Status Collect();
  absl::Status LookForMissing();
  absl::Status TellLeftOut();
  absl::Status AwaitProjections();
  absl::StatusOr<Prepared> PrepareSome(const TomographyLayout& layout,
                                       std::shared_ptr<storage::ProjectionInput> input,
                                       const BatchRows& rows, bool for_overlap);
  absl::StatusOr<Prepared> PrepareFrom(TomographyLoader& loader, const PrepareConfig& config);
  absl::Status Count(Preparer& preparer);
  absl::Status FindAxis();
  absl::Status CheckAxis();
  absl::Status CheckAxisIn(const Prepared& prepared);
  absl::StatusOr<std::vector<int64_t>> MendForSearch(const Prepared& prepared);
  absl::Status FindCenterIn(const Prepared& prepared);
  absl::Status FindOverlapIn(const Prepared& prepared);
  absl::Status LookForTruncation();
  absl::Status Doubt(const std::vector<std::string>& doubts);

  // run.cc: the result, batch by batch
  absl::Status Begin();
  double PixelUm() const;
  std::optional<double> DeclaredPixelUm() const;
  double SliceSpacingUm() const;  // between rows, and between columns
  absl::StatusOr<DeviceSpan<const float>> InitialOf(int64_t first, int64_t count);
  absl::Status Batches();
  absl::Status TryAxes();
  absl::Status MakeBatch(int64_t first, int64_t count, DeviceSpan<const float> sinograms);
  absl::Status Tell(const TomographyResult& result, const std::vector<double>& first_norms);
  float* ImagesOf(int64_t first) const {
    return static_cast<float*>(images_) + (task_.on_disk ? 0 : first * layout_.image_bytes() / 4);
  }

  // run_preview.cc: the previews
  absl::Status LookAt(const float* image);
  std::optional<std::pair<publish::TopicKey, int64_t>> WantedSlice(int64_t first, int64_t count);
  absl::Status Preview(const float* images);
  absl::Status PreviewSoFar();
  absl::Status Reconstruct(const TomographyConfig& config, DeviceSpan<const float> sinograms,
                           int64_t count, DeviceSpan<const float> initial, DeviceSpan<float> images,
                           const Reconstructor::Callback& callback);
  absl::Status PublishPreview(const publish::TopicKey& key, const void* image);

  job::JobRun& run_;
  const std::stop_token stop_;
  const CancelCheck goes_on_ = [this] { return !stop_.stop_requested(); };
  const TomographyTask& task_;
  const model::TomographySpec& spec_;
  TomographyLayout layout_;
  std::shared_ptr<storage::ProjectionInput> input_;
  std::vector<std::pair<int64_t, int64_t>> missing_frames_;  // missing pushed frames: first, count
  model::TomographyReport report_;
  int64_t transmissions_ = 0;  // that were prepared for the result
  double begin_ = 0;
  std::vector<double> centers_;
  void* preview_ = nullptr;
  void* images_ = nullptr;
  void* initial_ = nullptr;
  PinnedBuffer host_initial_;
  char* mip_ = nullptr;  // over the slices
  bool mip_begun_ = false;
  std::unique_ptr<Reconstructor> reconstructor_;
  int64_t batches_ = 0, iterations_ = 1, first_ = 0, count_ = 0;
  double squares_ = -1, first_squares_ = 0, last_norm_ = kNone;
  absl::Status preview_status_;
};

}  // namespace octavo::tomography
