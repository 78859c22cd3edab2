#include "gpu/tomography/reconstruct.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/tomography/fourier.h"
#include "gpu/tomography/projection_matrix.h"
#include "gpu/tomography/reconstruct_kernels.h"
#include "gpu/tomography/reconstruct_plan.h"
#include "gpu/tomography/tomopy_compat.h"

namespace octavo::inline gpu {
namespace {

constexpr int64_t kFloat = sizeof(float);

/// The memory on the device, in f32 elements unless stated otherwise.
struct Sizes {
  RayLayout layout;
  int64_t groups = 0, lanes = 1, weight_groups = 1;
  int64_t images = 0, image = 0;        // number of images, elements per image
  int64_t sinograms = 0, sinogram = 0;  // the same for sinograms
  int64_t row_weights = 0, column_weights = 0;
  int64_t cut = 0;     // one image, cut to the circle
  int64_t tables = 0;  // bytes
  int64_t sums = 0;    // doubles
  int64_t bytes() const {
    return kFloat * (images * image + sinograms * sinogram + row_weights + column_weights + cut) +
           tables + 8 * sums;
  }
};

bool HasWeights(const TomographyConfig& c) {
  return c.algorithm == TomographyAlgorithm::kSirt || c.algorithm == TomographyAlgorithm::kMlem ||
         c.algorithm == TomographyAlgorithm::kTv;
}

int64_t ImagesFor(TomographyAlgorithm algorithm) {
  switch (algorithm) {
    case TomographyAlgorithm::kFbp: return 1;
    case TomographyAlgorithm::kCgls: return 3;
    case TomographyAlgorithm::kTv: return 5;
    default: return 2;
  }
}

Sizes SizesOf(const TomographyConfig& c, const TomographyGrid& plan, const TomographyOps& ops) {
  Sizes s;
  s.layout = LayOutRays(c, plan, ops);
  s.lanes = s.layout.lanes;
  s.groups = s.layout.groups;
  s.weight_groups = plan.shared_center ? 1 : s.groups;
  s.images = ImagesFor(c.algorithm);
  s.image = s.layout.image();
  s.sinograms = c.algorithm == TomographyAlgorithm::kTv ? 4 : 2;
  s.sinogram = s.layout.sinogram();
  if (HasWeights(c)) {
    if (c.algorithm != TomographyAlgorithm::kMlem)
      s.row_weights = s.weight_groups * s.layout.one_sinogram;
    s.column_weights = c.subsets * s.weight_groups * s.layout.one_image;
  }
  if (plan.cut_radius > 0) s.cut = plan.image_size * (plan.image_size + 2 * math::kRayMargin);
  // Factors, and the filter's tables: a few bytes per detector and slice, padded to 256 bytes.
  s.tables = s.layout.table_bytes + kFloat * (2 * s.groups * s.lanes + 4 * c.detectors) + 4 * 256;
  s.sums = (c.algorithm == TomographyAlgorithm::kTv ? 5 : 4) * kSumParts * s.groups * s.lanes;
  return s;
}

class CorrectedReconstructor final : public Reconstructor {
 public:
  CorrectedReconstructor(const TomographyConfig& config, TomographyPlan plan, Device& device,
                         TomographyOps& ops)
      : config_(config),
        plan_(std::move(plan)),
        device_(device),
        ops_(ops),
        sizes_(SizesOf(config_, plan_, ops_)),
        matrix_(config_, plan_, device_, ops_) {}

  absl::Status Init() {
    OCTAVO_ASSIGN_OR_RETURN(Stream stream, device_.NewStream(StreamPriority::kNormal));
    for (int64_t i = 0; i < sizes_.images; ++i)
      OCTAVO_RETURN_IF_ERROR(Take(sizes_.image * kFloat, images_[i]));
    for (int64_t i = 0; i < sizes_.sinograms; ++i)
      OCTAVO_RETURN_IF_ERROR(Take(sizes_.sinogram * kFloat, sinograms_[i]));
    if (sizes_.cut > 0) OCTAVO_RETURN_IF_ERROR(Take(sizes_.cut * kFloat, cut_));
    OCTAVO_RETURN_IF_ERROR(Take(sizes_.sums * 8, sums_));
    OCTAVO_RETURN_IF_ERROR(device_.Fill(stream.ref(), sums_.data(), sums_.bytes(), 0));
    OCTAVO_ASSIGN_OR_RETURN(host_sums_, device_.AllocatePinned(sizes_.sums * 8));
    OCTAVO_ASSIGN_OR_RETURN(host_factors_,
                            device_.AllocatePinned(2 * sizes_.groups * sizes_.lanes * kFloat));
    OCTAVO_RETURN_IF_ERROR(matrix_.Init(stream.ref()));
    OCTAVO_RETURN_IF_ERROR(Upload(
        stream.ref(), std::vector<float>(static_cast<size_t>(2 * sizes_.groups * sizes_.lanes)),
        factors_));
    // Margins are zero and stay zero, because the operators write only between them.
    for (int64_t i = 0; i < sizes_.images; ++i)
      OCTAVO_RETURN_IF_ERROR(device_.Fill(stream.ref(), images_[i].data(), images_[i].bytes(), 0));
    for (int64_t i = 0; i < sizes_.sinograms; ++i)
      OCTAVO_RETURN_IF_ERROR(
          device_.Fill(stream.ref(), sinograms_[i].data(), sinograms_[i].bytes(), 0));
    if (config_.algorithm == TomographyAlgorithm::kFbp) {
      const ProjectionFilterTaps filter = DesignProjectionFilter(config_);
      OCTAVO_RETURN_IF_ERROR(Upload(stream.ref(), filter.taps, taps_));
      if (config_.extend_edges) {
        OCTAVO_RETURN_IF_ERROR(Upload(stream.ref(), filter.edge_left, edge_left_));
        OCTAVO_RETURN_IF_ERROR(Upload(stream.ref(), filter.edge_right, edge_right_));
      }
    }
    if (HasWeights(config_)) OCTAVO_RETURN_IF_ERROR(MakeWeights(stream.ref()));
    return stream.ref().Synchronize();
  }

  absl::StatusOr<TomographyResult> Run(StreamRef stream, const TomographyInput& input,
                                       DeviceSpan<const float> initial, DeviceSpan<float> images,
                                       const Callback& callback) override {
    if (input.slices < 1 || input.slices > config_.slices) {
      return FieldOutOfRange("slices", input.slices, 1, config_.slices);
    }
    slices_ = input.slices;
    matrix_.BeginRun(slices_);
    const int64_t angles = view_.angles, d = config_.detectors;
    const SinogramView in{.data = input.data.data(),
                          .slice_stride = input.angle_first ? d : angles * d,
                          .angle_stride = input.angle_first ? slices_ * d : d};
    OCTAVO_RETURN_IF_ERROR(
        ops_.PackSinograms(stream, view_, in, matrix_.order(), slices_, Measured()));
    OCTAVO_RETURN_IF_ERROR(CheckData(stream));
    const float start = config_.algorithm == TomographyAlgorithm::kMlem ? 1.0f : 0.0f;
    OCTAVO_RETURN_IF_ERROR(
        ops_.PackImages(stream, view_, initial, start, plan_.image_size, slices_, Image()));
    if (initial) OCTAVO_RETURN_IF_ERROR(CheckInitial(stream));
    TomographyResult result;
    switch (config_.algorithm) {
      case TomographyAlgorithm::kSirt:
      case TomographyAlgorithm::kMlem:
        OCTAVO_RETURN_IF_ERROR(Iterate(stream, callback, &result));
        break;
      case TomographyAlgorithm::kCgls:
        OCTAVO_RETURN_IF_ERROR(Cgls(stream, callback, &result));
        break;
      case TomographyAlgorithm::kTv: OCTAVO_RETURN_IF_ERROR(Tv(stream, callback, &result)); break;
      case TomographyAlgorithm::kFbp: OCTAVO_RETURN_IF_ERROR(Fbp(stream, callback)); break;
      case TomographyAlgorithm::kFourier:
      case TomographyAlgorithm::kAuto:
        return absl::InternalError("the projectors have no such algorithm");  // Create's mistake
    }
    OCTAVO_RETURN_IF_ERROR(
        ops_.UnpackImages(stream, view_, Image(), plan_.image_size, 0, slices_, images));
    OCTAVO_RETURN_IF_ERROR(Cut(stream, slices_, images));
    OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
    return result;
  }

  TomographyAlgorithm algorithm() const override { return config_.algorithm; }

  absl::Status CopyImage(StreamRef stream, int64_t slice, DeviceSpan<float> image) override {
    if (slice < 0 || slice >= slices_) return FieldOutOfRange("slice", slice, 0, slices_ - 1);
    OCTAVO_RETURN_IF_ERROR(
        ops_.UnpackImages(stream, view_, Image(), plan_.image_size, slice, 1, image));
    return Cut(stream, 1, image);
  }

 private:
  DeviceSpan<float> Image() const { return images_[0].span<float>(); }
  DeviceSpan<float> Work() const { return images_[1].span<float>(); }
  DeviceSpan<float> Measured() const { return sinograms_[0].span<float>(); }
  DeviceSpan<float> Projected() const { return sinograms_[1].span<float>(); }
  SharedWeights Rows() const {
    return {.data = row_weights_.as<float>(), .group_stride = GroupStride(sizes_.row_weights)};
  }
  DeviceSpan<float> ColumnWeights(size_t subset) const {
    const int64_t each = sizes_.column_weights / static_cast<int64_t>(plan_.subsets.size());
    return column_weights_.span<float>().From(static_cast<int64_t>(subset) * each).First(each);
  }
  SharedWeights Columns(size_t subset) const {
    const DeviceSpan<float> weights = ColumnWeights(subset);
    return {.data = weights.data(), .group_stride = GroupStride(weights.count())};
  }
  int64_t GroupStride(int64_t all) const { return plan_.shared_center ? 0 : all / sizes_.groups; }

  // Pixels outside the field of view only absorbed what the rays met there, and are not part of the
  // result.
  absl::Status Cut(StreamRef stream, int64_t slices, DeviceSpan<float> images) {
    if (sizes_.cut == 0) return absl::OkStatus();
    RayView circle = view_;
    circle.groups = circle.lanes = 1;
    circle.size = plan_.image_size;
    circle.radius = plan_.cut_radius;
    for (int64_t i = 0; i < slices; ++i) {
      const DeviceSpan<float> image = images.From(i * circle.size * circle.size);
      OCTAVO_RETURN_IF_ERROR(
          ops_.PackImages(stream, circle, image, 0, circle.size, 1, cut_.span<float>()));
      OCTAVO_RETURN_IF_ERROR(
          ops_.UnpackImages(stream, circle, cut_.span<float>(), circle.size, 0, 1, image));
    }
    return absl::OkStatus();
  }

  absl::Status Take(int64_t bytes, DeviceBuffer& buffer) {
    OCTAVO_ASSIGN_OR_RETURN(buffer, device_.Allocate(bytes));
    return absl::OkStatus();
  }
  template <class T>
  absl::Status Upload(StreamRef stream, const std::vector<T>& values, DeviceBuffer& buffer) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    OCTAVO_RETURN_IF_ERROR(Take(bytes, buffer));
    OCTAVO_RETURN_IF_ERROR(device_.Upload(stream, buffer.span<T>(), values));
    return stream.Synchronize();  // after this the caller may free `values`
  }

  // Reciprocals of the row sums and the column sums of A within the circle. The projectors compute
  // them with one lane.
  absl::Status MakeWeights(StreamRef stream) {
    OCTAVO_RETURN_IF_ERROR(Take(sizes_.row_weights * kFloat, row_weights_));
    OCTAVO_RETURN_IF_ERROR(Take(sizes_.column_weights * kFloat, column_weights_));
    OCTAVO_RETURN_IF_ERROR(
        device_.Fill(stream, row_weights_.data(), sizes_.row_weights * kFloat, 0));
    OCTAVO_RETURN_IF_ERROR(
        device_.Fill(stream, column_weights_.data(), sizes_.column_weights * kFloat, 0));
    RayView one = view_;
    one.groups = sizes_.weight_groups;
    one.lanes = 1;
    const float least = 1e-3f * view_.pixel_size;  // a smaller sum is rounding error: the ray meets
                                                   // no pixel, or the pixel no ray
    OCTAVO_RETURN_IF_ERROR(
        ops_.PackSinograms(stream, one, {}, matrix_.order(), one.groups, Projected()));
    for (size_t s = 0; s < plan_.subsets.size(); ++s) {
      OCTAVO_RETURN_IF_ERROR(
          ops_.Back(stream, one, plan_.subsets[s], Projected(), ColumnWeights(s)));
    }
    OCTAVO_RETURN_IF_ERROR(
        ops_.Reciprocal(stream, column_weights_.span<float>(), sizes_.column_weights, least));
    if (sizes_.row_weights > 0) {
      OCTAVO_RETURN_IF_ERROR(
          ops_.PackImages(stream, one, nullptr, 1.0f, one.size, one.groups, Image()));
      OCTAVO_RETURN_IF_ERROR(ops_.Transpose(stream, one, Image(), Work()));
      for (const AngleRange& range : plan_.subsets) {
        OCTAVO_RETURN_IF_ERROR(
            ops_.Forward(stream, one, range, Image(), Work(), row_weights_.span<float>()));
      }
      OCTAVO_RETURN_IF_ERROR(
          ops_.Reciprocal(stream, row_weights_.span<float>(), sizes_.row_weights, least));
    }
    // The margins of one lane lie elsewhere than those of several lanes, so the ones must be
    // cleared.
    for (auto* buffer : {&images_[0], &images_[1], &sinograms_[1]})
      OCTAVO_RETURN_IF_ERROR(device_.Fill(stream, buffer->data(), buffer->bytes(), 0));
    return absl::OkStatus();
  }

  absl::Status CheckData(StreamRef stream) {
    auto* counts = host_sums_.as<int64_t>();
    OCTAVO_RETURN_IF_ERROR(
        ops_.Inspect(stream, Measured(), view_.sinogram_elements(), sums_.span<int64_t>()));
    OCTAVO_RETURN_IF_ERROR(device_.CopyToHost(stream, counts, sums_.data(), 2 * 8));
    OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
    OCTAVO_RETURN_IF_ERROR(CheckProjectionsFinite(counts[0]));
    if (config_.algorithm != TomographyAlgorithm::kMlem || counts[1] == 0) return absl::OkStatus();
    if (!config_.negative_data_to_zero) {
      return InvalidField(
          "projections",
          absl::StrCat(
              counts[1],
              " values are negative; mlem allows 0 or more, or ask for negative data to become 0"));
    }
    return ops_.DropNegative(stream, Measured(), view_.sinogram_elements());
  }

  absl::Status CheckInitial(StreamRef stream) {
    auto* counts = host_sums_.as<int64_t>();
    OCTAVO_RETURN_IF_ERROR(
        ops_.Inspect(stream, Image(), view_.image_elements(), sums_.span<int64_t>()));
    OCTAVO_RETURN_IF_ERROR(device_.CopyToHost(stream, counts, sums_.data(), 2 * 8));
    OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
    if (counts[0] > 0)
      return InvalidField(
          "initial", absl::StrCat(counts[0], " values are not finite; allowed are finite values"));
    if (config_.algorithm == TomographyAlgorithm::kMlem && counts[1] > 0) {
      return InvalidField("initial",
                          absl::StrCat(counts[1], " values are negative; mlem allows 0 or more"));
    }
    return absl::OkStatus();
  }

  /// Copies the sums of all lanes to the host, waits, and adds up their parts.
  absl::Status FetchSums(StreamRef stream) {
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyToHost(stream, host_sums_.data(), sums_.data(), sums_.bytes()));
    return stream.Synchronize();
  }
  double Total(int64_t kind, int64_t value, int64_t values) const {
    const double* parts = host_sums_.as<double>() + kind * kSumParts * sizes_.groups * sizes_.lanes;
    double total = 0;
    for (int64_t part = 0; part < kSumParts; ++part) total += parts[part * values + value];
    return total;
  }
  double Sum(int64_t kind, int64_t slice) const {
    return Total(kind, slice, view_.groups * view_.lanes);
  }
  double Pair(int64_t kind, int64_t slice, int64_t which) const {
    return Total(kind, 2 * slice + which, 2 * view_.groups * view_.lanes);
  }
  DeviceSpan<double> DeviceSums(int64_t kind) const {
    return sums_.span<double>().From(kind * kSumParts * sizes_.groups * sizes_.lanes);
  }

  absl::Status MeasuredNorms(StreamRef stream) {
    OCTAVO_RETURN_IF_ERROR(ops_.SquareSum(stream, view_, Measured(),
                                          view_.sinogram_elements() / view_.groups, DeviceSums(0)));
    OCTAVO_RETURN_IF_ERROR(FetchSums(stream));
    measured_norms_.clear();
    for (int64_t i = 0; i < slices_; ++i) measured_norms_.push_back(std::sqrt(Sum(0, i)));
    return absl::OkStatus();
  }

  IterationReport Begun(int64_t iteration) const {
    IterationReport report;
    report.iteration = iteration;
    report.iterations = config_.iterations;
    return report;
  }
  // Whether to continue after the iteration that `report` describes.
  bool Continues(const IterationReport& report, const Callback& callback,
                 TomographyResult* result) {
    matrix_.BeginPiece();
    result->last = report;
    bool change = config_.stop_change > 0, residual = config_.stop_residual > 0;
    for (size_t i = 0; i < report.residual_norms.size(); ++i) {
      change = change && report.changes[i] < config_.stop_change;
      residual = residual && report.residual_norms[i] <= config_.stop_residual * measured_norms_[i];
    }
    const bool wanted = !callback || callback(report);
    result->stop = change     ? TomographyStop::kChange
                   : residual ? TomographyStop::kResidual
                              : TomographyStop::kIterations;
    if (!wanted) result->stop = TomographyStop::kCallback;
    return wanted && !change && !residual;
  }

  UpdateOptions UpdateOf(UpdateKind kind) const {
    constexpr float kMost = std::numeric_limits<float>::max();
    return {.kind = kind,
            .relaxation = static_cast<float>(config_.relaxation),
            .lo = config_.has_min ? static_cast<float>(config_.min_value) : -kMost,
            .hi = config_.has_max ? static_cast<float>(config_.max_value) : kMost};
  }

  static double Ratio(double change, double before) {
    if (before > 0) return std::sqrt(change / before);
    return change > 0 ? std::numeric_limits<double>::infinity() : 0;
  }

  absl::Status Iterate(StreamRef stream, const Callback& callback, TomographyResult* result) {
    const bool mlem = config_.algorithm == TomographyAlgorithm::kMlem;
    const UpdateOptions update = UpdateOf(mlem ? UpdateKind::kMlem : UpdateKind::kSirt);
    OCTAVO_RETURN_IF_ERROR(MeasuredNorms(stream));
    for (int64_t i = 1; i <= config_.iterations; ++i) {
      OCTAVO_RETURN_IF_ERROR(device_.Fill(stream, sums_.data(), sums_.bytes(), 0));
      for (size_t s = 0; s < plan_.subsets.size(); ++s) {
        const AngleRange& range = plan_.subsets[s];
        // The forward step has finished with the transposed image, so the back step overwrites it.
        if (range.split < range.end)
          OCTAVO_RETURN_IF_ERROR(ops_.Transpose(stream, view_, Image(), Work()));
        OCTAVO_RETURN_IF_ERROR(Forward(stream, callback, range, Image(), Work(), Projected()));
        OCTAVO_RETURN_IF_ERROR(ops_.Residual(
            stream, view_, range, mlem ? ResidualKind::kRatio : ResidualKind::kWeighted, Measured(),
            Rows(), static_cast<float>(config_.ratio_floor), Projected(), DeviceSums(0)));
        OCTAVO_RETURN_IF_ERROR(Back(stream, callback, range, Projected(), Work()));
        OCTAVO_RETURN_IF_ERROR(
            ops_.Update(stream, view_, update, Work(), Columns(s), Image(), DeviceSums(1)));
      }
      OCTAVO_RETURN_IF_ERROR(FetchSums(stream));
      IterationReport report = Begun(i);
      for (int64_t k = 0; k < slices_; ++k) {
        report.residual_norms.push_back(std::sqrt(Sum(0, k)));
        report.changes.push_back(Ratio(Pair(1, k, 0), Pair(1, k, 1)));
      }
      if (!Continues(report, callback, result)) return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  absl::Status UploadFactors(StreamRef stream) {
    return device_.CopyToDevice(stream, factors_.data(), host_factors_.data(), factors_.bytes());
  }
  DeviceSpan<float> Factors(int64_t kind) const {
    return factors_.span<float>().From(kind * sizes_.groups * sizes_.lanes);
  }
  float& Factor(int64_t kind, int64_t slice) const {
    return host_factors_.as<float>()[kind * sizes_.groups * sizes_.lanes + slice];
  }

  // Hestenes and Stiefel 1952 on the normal equations (Björck 1996, algorithm 7.4.1), each slice
  // with its own factors.
  absl::Status Cgls(StreamRef stream, const Callback& callback, TomographyResult* result) {
    const AngleRange& all = plan_.subsets[0];
    const DeviceSpan<float> x = Image(), p = Work(), s = images_[2].span<float>(), r = Measured(),
                            q = Projected();
    const int64_t lanes = view_.groups * view_.lanes;
    const int64_t image = view_.image_elements() / view_.groups,
                  sinogram = view_.sinogram_elements() / view_.groups;
    const auto project = [&](DeviceSpan<float> from, DeviceSpan<float> scratch) -> absl::Status {
      if (all.split < all.end) OCTAVO_RETURN_IF_ERROR(ops_.Transpose(stream, view_, from, scratch));
      return Forward(stream, callback, all, from, scratch, q);
    };
    OCTAVO_RETURN_IF_ERROR(MeasuredNorms(stream));
    OCTAVO_RETURN_IF_ERROR(project(x, s));
    // r = b − A x: the residual replaces A x in its memory, and is copied to b from there.
    OCTAVO_RETURN_IF_ERROR(
        ops_.Residual(stream, view_, all, ResidualKind::kPlain, r, {}, 0, q, nullptr));
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyOnDevice(stream, r.data(), q.data(), view_.sinogram_elements() * kFloat));
    OCTAVO_RETURN_IF_ERROR(Back(stream, callback, all, r, p));
    OCTAVO_RETURN_IF_ERROR(ops_.SquareSum(stream, view_, p, image, DeviceSums(0)));
    OCTAVO_RETURN_IF_ERROR(FetchSums(stream));
    std::vector<double> gamma(static_cast<size_t>(lanes));
    for (int64_t k = 0; k < lanes; ++k) gamma[static_cast<size_t>(k)] = Sum(0, k);
    for (int64_t i = 1; i <= config_.iterations; ++i) {
      OCTAVO_RETURN_IF_ERROR(project(p, s));
      OCTAVO_RETURN_IF_ERROR(ops_.SquareSum(stream, view_, r, sinogram, DeviceSums(0)));
      OCTAVO_RETURN_IF_ERROR(ops_.SquareSum(stream, view_, q, sinogram, DeviceSums(1)));
      OCTAVO_RETURN_IF_ERROR(ops_.SquareSum(stream, view_, p, image, DeviceSums(2)));
      OCTAVO_RETURN_IF_ERROR(ops_.SquareSum(stream, view_, x, image, DeviceSums(3)));
      OCTAVO_RETURN_IF_ERROR(FetchSums(stream));
      IterationReport report = Begun(i);
      for (int64_t k = 0; k < lanes; ++k) {
        const double alpha = Sum(1, k) > 0 ? gamma[static_cast<size_t>(k)] / Sum(1, k) : 0;
        Factor(0, k) = static_cast<float>(alpha);
        Factor(1, k) = 1;
        if (k >= slices_) continue;
        report.residual_norms.push_back(std::sqrt(Sum(0, k)));
        report.changes.push_back(Ratio(alpha * alpha * Sum(2, k), Sum(3, k)));
      }
      OCTAVO_RETURN_IF_ERROR(UploadFactors(stream));
      OCTAVO_RETURN_IF_ERROR(ops_.ScaledAdd(stream, view_, Factors(0), p, Factors(1), x, image));
      OCTAVO_RETURN_IF_ERROR(
          stream.Synchronize());  // the page-locked memory of the factors will be overwritten
      for (int64_t k = 0; k < lanes; ++k) Factor(0, k) = -Factor(0, k);
      OCTAVO_RETURN_IF_ERROR(UploadFactors(stream));
      OCTAVO_RETURN_IF_ERROR(ops_.ScaledAdd(stream, view_, Factors(0), q, Factors(1), r, sinogram));
      if (!Continues(report, callback, result)) return absl::OkStatus();
      OCTAVO_RETURN_IF_ERROR(Back(stream, callback, all, r, s));
      OCTAVO_RETURN_IF_ERROR(ops_.SquareSum(stream, view_, s, image, DeviceSums(0)));
      OCTAVO_RETURN_IF_ERROR(FetchSums(stream));
      for (int64_t k = 0; k < lanes; ++k) {
        auto& before = gamma[static_cast<size_t>(k)];
        Factor(0, k) = 1;
        Factor(1, k) = before > 0 ? static_cast<float>(Sum(0, k) / before) : 0;
        before = Sum(0, k);
      }
      OCTAVO_RETURN_IF_ERROR(UploadFactors(stream));
      OCTAVO_RETURN_IF_ERROR(ops_.ScaledAdd(stream, view_, Factors(0), s, Factors(1), p, image));
      OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
    }
    return absl::OkStatus();
  }

  // ½ ‖A x − b‖² + w N p² Σ |∇x| by the primal-dual iterations of Chambolle and Pock 2011 (for
  // tomography: Sidky, Jørgensen, Pan 2012), with the steps of Pock and Chambolle 2011: 1 / the sum
  // of each row and each column of the matrix [A; s ∇]. With s = N p / 4, a quarter of the sum of a
  // column of A, both parts of it have the same weight in the steps, and neither waits for the
  // other.
  absl::Status Tv(StreamRef stream, const Callback& callback, TomographyResult* result) {
    const AngleRange& all = plan_.subsets[0];
    const DeviceSpan<float> bar = images_[2].span<float>(), right = images_[3].span<float>(),
                            down = images_[4].span<float>(), dual = sinograms_[2].span<float>(),
                            projected = sinograms_[3].span<float>();
    // In pixels the matrix is A / p and the image p x: the iterations are those of p = 1, whatever
    // the unit of length. Some weights of the cubic are negative: the sums of their amounts are up
    // to 1.25 times as large.
    const double p = config_.pixel_size,
                 safety = config_.interpolation == math::RayInterpolation::kCubic ? 0.75 : 1;
    const TvSteps steps{
        .rays = static_cast<float>(safety * p),
        .columns = static_cast<float>(safety),
        .slopes = static_cast<float>(0.5 * p),
        .limit = static_cast<float>(4 * config_.tv_weight * p),
        .strength = static_cast<float>(0.25 * static_cast<double>(view_.angles) * p),
        .image = static_cast<float>(1 / p)};
    const auto strength = static_cast<double>(steps.strength);
    const UpdateOptions update = UpdateOf(UpdateKind::kSirt);
    OCTAVO_RETURN_IF_ERROR(MeasuredNorms(stream));
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyOnDevice(stream, bar.data(), Image().data(), view_.image_elements() * kFloat));
    for (const DeviceSpan<float>& slopes : {right, down})
      OCTAVO_RETURN_IF_ERROR(
          device_.Fill(stream, slopes.data(), view_.image_elements() * kFloat, 0));
    for (int64_t i = 1; i <= config_.iterations; ++i) {
      OCTAVO_RETURN_IF_ERROR(device_.Fill(stream, sums_.data(), sums_.bytes(), 0));
      if (all.split < all.end) OCTAVO_RETURN_IF_ERROR(ops_.Transpose(stream, view_, bar, Work()));
      OCTAVO_RETURN_IF_ERROR(Forward(stream, callback, all, bar, Work(), Projected()));
      OCTAVO_RETURN_IF_ERROR(ops_.DualRays(stream, view_, Rows(), steps, i == 1, Measured(),
                                           Projected(), dual, projected, DeviceSums(0)));
      OCTAVO_RETURN_IF_ERROR(
          ops_.DualSlopes(stream, view_, Columns(0), steps, bar, right, down, DeviceSums(3)));
      OCTAVO_RETURN_IF_ERROR(Back(stream, callback, all, dual, Work()));
      OCTAVO_RETURN_IF_ERROR(ops_.PrimalStep(stream, view_, update, steps, Work(), Columns(0),
                                             right, down, Image(), bar, DeviceSums(1)));
      OCTAVO_RETURN_IF_ERROR(FetchSums(stream));
      IterationReport report = Begun(i);
      for (int64_t k = 0; k < slices_; ++k) {
        report.residual_norms.push_back(std::sqrt(Sum(0, k)));
        report.changes.push_back(Ratio(Pair(1, k, 0), Pair(1, k, 1)));
        report.variation_gaps.push_back(std::max(0.0, strength * Pair(3, k, 0)));
        report.objectives.push_back(0.5 * Sum(0, k) + strength * Pair(3, k, 1));
      }
      if (!Continues(report, callback, result)) return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  absl::Status Fbp(StreamRef stream, const Callback& callback) {
    const RowFilter filter{.taps = taps_.as<float>(),
                           .edge_left = edge_left_.as<float>(),
                           .edge_right = edge_right_.as<float>()};
    const int64_t row = view_.sinogram_pitch() * view_.lanes,
                  samples = ops_.FilterSamples(config_.detectors) * view_.lanes;
    for (int64_t group = 0; group < view_.groups; ++group) {
      const auto filter_rows = [&](int64_t begin, int64_t end) {
        RayView rows = view_;
        rows.groups = 1;
        rows.angles = end - begin;
        const int64_t first = (group * view_.angles + begin) * row;
        return ops_.FilterRows(stream, rows, filter, Measured().From(first),
                               Projected().From(first));
      };
      OCTAVO_RETURN_IF_ERROR(
          matrix_.InPieces(stream, GoesOn(callback), {0, view_.angles}, 2, samples, filter_rows));
    }
    return Back(stream, callback, plan_.subsets[0], Projected(), Image());
  }

  // Asks the callback between pieces of work.
  static CancelCheck GoesOn(const Callback& callback) {
    if (!callback) return {};
    return [&callback] { return callback({}); };
  }
  absl::Status Forward(StreamRef stream, const Callback& callback, const AngleRange& range,
                       DeviceSpan<const float> image, DeviceSpan<const float> transposed,
                       DeviceSpan<float> sinogram) {
    return matrix_.Forward(stream, GoesOn(callback), range, image, transposed, sinogram);
  }
  absl::Status Back(StreamRef stream, const Callback& callback, const AngleRange& range,
                    DeviceSpan<const float> sinogram, DeviceSpan<float> image) {
    return matrix_.Back(stream, GoesOn(callback), range, sinogram, image);
  }

  const TomographyConfig config_;
  const TomographyPlan plan_;
  Device& device_;
  TomographyOps& ops_;
  const Sizes sizes_;
  ProjectionMatrix matrix_;
  const RayView& view_ = matrix_.view();
  int64_t slices_ = 0;
  DeviceBuffer images_[5], sinograms_[4], cut_, row_weights_, column_weights_, factors_, taps_,
      edge_left_, edge_right_, sums_;
  PinnedBuffer host_sums_, host_factors_;
  std::vector<double> measured_norms_;
};

TomographyConfig Chosen(const TomographyConfig& config, Device& device) {
  TomographyConfig chosen = config;
  chosen.algorithm = ChooseAlgorithm(config, device);
  return chosen;
}

}  // namespace

absl::StatusOr<int64_t> Reconstructor::DeviceBytes(const TomographyConfig& config, Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckTomography(config));
  if (config.form == TomographyForm::kTomopy) return TomopyFormBytes(config);
  const TomographyConfig chosen = Chosen(config, device);
  if (chosen.algorithm == TomographyAlgorithm::kFourier) return FourierBytes(chosen, device);
  OCTAVO_ASSIGN_OR_RETURN(TomographyOps* const ops, FindOperators<TomographyOps>(device));
  return SizesOf(chosen, PlanGrid(chosen), *ops).bytes();
}

absl::StatusOr<std::unique_ptr<Reconstructor>> Reconstructor::Create(const TomographyConfig& config,
                                                                     Device& device,
                                                                     SharedTables* shared) {
  OCTAVO_RETURN_IF_ERROR(CheckTomography(config));
  if (config.form == TomographyForm::kTomopy) return MakeTomopyForm(config, device);
  const TomographyConfig chosen = Chosen(config, device);
  if (chosen.algorithm == TomographyAlgorithm::kFourier) return MakeFourier(chosen, device, shared);
  OCTAVO_ASSIGN_OR_RETURN(TomographyOps* const ops, FindOperators<TomographyOps>(device));
  auto reconstructor =
      std::make_unique<CorrectedReconstructor>(chosen, PlanTomography(chosen), device, *ops);
  OCTAVO_RETURN_IF_ERROR(reconstructor->Init());
  return reconstructor;
}

}  // namespace octavo::inline gpu
