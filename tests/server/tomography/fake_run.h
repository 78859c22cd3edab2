#pragma once

// A run of a job that notes what it is told, and a scan of a disc, for tests of the parts of a
// tomography run by themselves.

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "gpu/backend/open_devices.h"
#include "gpu/base/status.h"
#include "server/job/job.h"
#include "server/job/job_workspace.h"
#include "server/storage/projections/projection_input.h"
#include "server/tomography/layout.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine::testing {

/// Notes what a job says. Its device memory is that of a host device.
class FakeRun final : public JobRun {
 public:
  explicit FakeRun(int64_t workspace_bytes = 64 << 20)
      : opened_(OpenDevices("host").value()),
        stream_(opened_.devices[0]->NewStream(StreamPriority::kNormal).value()),
        workspace_(*opened_.devices[0], workspace_bytes) {}
  ~FakeRun() override { (void)stream_.ref().Synchronize(); }

  Device& device() override { return *opened_.devices[0]; }
  int device_index() const override { return 0; }
  StreamRef stream() override { return stream_.ref(); }
  const std::string& name() const override { return name_; }
  absl::Status WithoutDevice(const std::function<absl::Status()>& wait, std::stop_token) override {
    ++waits;
    return wait();
  }

  void Stage(job::JobStage stage, int64_t, double, double) override { stages.push_back(stage); }
  void Step(int64_t step, double residual_norm) override {
    steps.push_back(step);
    norms.push_back(residual_norm);
  }
  void Log(const std::string& text) override { log.push_back(text); }
  void Warn(const std::string& text) override { warnings.push_back(text); }
  void Found(JobFinding finding) override { found = std::move(finding); }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    auto data = workspace_.Allocate(bytes);
    if (data.ok()) used_[*data] = bytes;
    return data;
  }
  void Free(void* data) override {
    used_.erase(data);
    workspace_.Free(data);
  }
  absl::Status Charge(int64_t bytes) override {
    OCTAVO_RETURN_IF_ERROR(workspace_.Charge(bytes));
    charged_ += bytes;
    return absl::OkStatus();
  }
  void Discharge(int64_t bytes) override {
    charged_ -= bytes;
    workspace_.Discharge(bytes);
  }
  void Keep(std::shared_ptr<void> object) override { workspace_.Keep(std::move(object)); }
  /// Device memory of a result that is not stored.
  const void* result_data() const { return result_.data(); }
  /// Bytes of the workspace that are in use.
  int64_t used() const {
    int64_t sum = charged_;
    for (const auto& [data, bytes] : used_) sum += bytes;
    return sum;
  }

  absl::Status Buffer(const std::function<absl::Status(int64_t charge)>&) override {
    return absl::InternalError("no tomogram is a buffer");
  }
  absl::StatusOr<void*> Result(size_t, VolumeStatus volume) override {
    result = std::move(volume);
    result_ =
        device()
            .Allocate(result.shape[0] * result.shape[1] * result.shape[2] * SizeOf(result.dtype))
            .value();
    MakeMip();
    return result_.data();
  }
  absl::Status BeginStored(size_t, VolumeStatus volume) override {
    result = std::move(volume);
    MakeMip();
    return absl::OkStatus();
  }
  absl::Status Store(size_t, const void* data, int64_t bytes) override {
    stored.resize(stored.size() + static_cast<size_t>(bytes));
    OCTAVO_RETURN_IF_ERROR(device().CopyToHost(
        stream(), stored.data() + stored.size() - static_cast<size_t>(bytes), data, bytes));
    return stream().Synchronize();
  }
  bool MakesInOrder(size_t) override { return in_order; }
  absl::Status Made(size_t, int64_t bytes) override {
    made.push_back(bytes);
    return absl::OkStatus();
  }
  void SetDisplay(size_t, double lo, double hi) override {
    result.display_lo = lo;
    result.display_hi = hi;
  }
  void SetClipped(size_t, int64_t below, int64_t above) override {
    result.clipped_below = below;
    result.clipped_above = above;
  }
  void* ResultMip(size_t, bool) override { return mip_.data(); }
  absl::Status Complete(size_t index) override {
    EXPECT_EQ(index, completed.size());
    OCTAVO_RETURN_IF_ERROR(stream().Synchronize());
    const int64_t bytes =
        result.shape[0] * result.shape[1] * result.shape[2] * SizeOf(result.dtype);
    Completed& one =
        completed.emplace_back(Completed{.volume = result, .bytes = std::exchange(stored, {})});
    if (one.bytes.empty()) one.bytes = Download<char>(result_.data(), static_cast<size_t>(bytes));
    if (on_complete != nullptr) on_complete();
    return absl::OkStatus();
  }

  double PreviewDueIn() override { return preview_due ? 0 : 0.1; }
  std::vector<publish::Wanted> Wanted() override { return wanted; }
  absl::Status Publish(const Plane& plane) override {
    std::vector<float> values(static_cast<size_t>(plane.rows * plane.columns));
    OCTAVO_RETURN_IF_ERROR(
        device().CopyToHost(stream(), values.data(), plane.data, plane.rows * plane.columns * 4));
    OCTAVO_RETURN_IF_ERROR(stream().Synchronize());
    published.push_back(std::move(values));
    published_keys.push_back(plane.key);
    published_axes.push_back(plane.row_axis + plane.column_axis);
    spacings.push_back(plane.row_spacing_um);
    return absl::OkStatus();
  }

  template <class T = float>
  std::vector<T> Download(const void* data, size_t count) {
    std::vector<T> values(count);
    EXPECT_TRUE(
        device()
            .CopyToHost(stream(), values.data(), data, static_cast<int64_t>(count * sizeof(T)))
            .ok());
    EXPECT_TRUE(stream().Synchronize().ok());
    return values;
  }

  std::vector<job::JobStage> stages;
  std::vector<std::string> log, warnings;
  std::vector<int64_t> steps;
  std::vector<double> norms, spacings;
  JobFinding found;
  int waits = 0;
  bool preview_due = false;
  std::vector<publish::Wanted> wanted;
  std::vector<std::vector<float>> published;
  std::vector<publish::TopicKey> published_keys;
  std::vector<std::string> published_axes;  // "yx"
  VolumeStatus result;
  std::vector<char> stored;
  bool in_order = false;      // a commit writes the result while it is made
  std::vector<int64_t> made;  // then: the bytes that were told
  struct Completed {
    VolumeStatus volume;
    std::vector<char> bytes;
  };
  std::vector<Completed> completed;  // results of a series, in their order
  std::function<void()> on_complete;

 private:
  void MakeMip() {
    mip_ = device().Allocate(result.shape[1] * result.shape[2] * SizeOf(result.dtype)).value();
  }

  const std::string name_ = "jobs/a";
  OpenedDevices opened_;
  Stream stream_;
  JobWorkspace workspace_;
  std::map<void*, int64_t> used_;
  int64_t charged_ = 0;
  DeviceBuffer result_, mip_;
};

inline constexpr int64_t kAngles = 60, kRows = 7, kColumns = 64;
inline constexpr double kAxis = 29.25, kPi = 3.14159265358979323846;

/// Sinograms of a disc beside the axis, the same in every row: minus logarithms, f32.
class DiscInput final : public storage::ProjectionInput {
 public:
  /// `radius` in columns.
  explicit DiscInput(double radius = 12) : ProjectionInput(Info()), radius_(radius) {}
  static storage::ProjectionInfo Info() {
    storage::ProjectionInfo info;
    info.format = "memory";
    info.dtype = DType::kF32;
    info.projections = kAngles;
    info.rows = kRows;
    info.columns = kColumns;
    for (int64_t a = 0; a < kAngles; ++a)
      info.angles_rad.push_back(kPi * static_cast<double>(a) / kAngles);
    return info;
  }
  static float Value(double radius, int64_t angle, int64_t column) {
    const double turned = kPi * static_cast<double>(angle) / kAngles;
    const double s = static_cast<double>(column) - kAxis - 8 * std::cos(turned);
    return static_cast<float>(0.02 * std::sqrt(std::max(0.0, radius * radius - s * s)));
  }

 protected:
  absl::Status ReadInside(const storage::ProjectionBox& box, void* out) override {
    auto* to = static_cast<float*>(out);
    for (int64_t a = box.first_frame; a < box.first_frame + box.frames; ++a) {
      for (int64_t r = 0; r < box.rows; ++r) {
        for (int64_t c = box.first_column; c < box.first_column + box.columns; ++c)
          *to++ = Value(radius_, a, c);
      }
    }
    return absl::OkStatus();
  }

 private:
  const double radius_;
};

/// The request for such a scan.
inline TomographySpec DiscSpec(TomographyAlgorithm algorithm = TomographyAlgorithm::kFbp) {
  TomographySpec spec;
  spec.input = ProjectionFileSpec{.path = "scan.npy", .options = {}};
  spec.preparation.config.minus_log = false;
  spec.preparation.ignore_fields = true;
  spec.reconstruction.algorithm = algorithm;
  spec.reconstruction.iterations = 3;
  spec.center.pixels = {kAxis};
  spec.json = "{}";
  return spec;
}
inline TomographyLayout DiscLayout(const TomographySpec& spec) {
  return TomographyLayout::Make(spec, DiscInput::Info(), 0).value();
}

}  // namespace octavo::engine::testing
