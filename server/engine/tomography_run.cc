#include "server/engine/tomography_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/status.h"
#include "gpu/project.h"
#include "gpu/tomo_center.h"
#include "server/engine/projection_arrays.h"
#include "server/engine/resolve.h"
#include "server/engine/tomography_loader.h"

namespace octavo::engine {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kSearchPart = 0.05;                      // of the whole job, for its bar
constexpr int64_t kLeastPreview = 8;                      // projections
constexpr int64_t kMostDisplayed = int64_t{64} << 20;     // bytes that are looked at for what to show as black and white
constexpr double kDarkPart = 0.002, kBrightPart = 0.998;  // of the pixels

/// What is on a stream is over before what was declared before this goes.
class SynchroniseAtEnd {
 public:
  explicit SynchroniseAtEnd(StreamRef stream) : stream_(stream) {}
  ~SynchroniseAtEnd() { (void)stream_.Synchronize(); }

 private:
  StreamRef stream_;
};

class Runner {
 public:
  Runner(JobRun& run, std::stop_token stop, const TomographyTask& task)
      : run_(run), stop_(std::move(stop)), task_(task), spec_(*task.spec), layout_(*task.layout), input_(task.input) {}

  absl::Status Run() {
    OCTAVO_ASSIGN_OR_RETURN(preview_, run_.Allocate(task_.memory.preview));
    if (task_.port != nullptr) OCTAVO_RETURN_IF_ERROR(Collect());
    for (const std::string& note : input_->info().notes) run_.Log(note);
    report_.slices_per_batch = task_.slices_per_batch;
    OCTAVO_RETURN_IF_ERROR(FindAxis());
    OCTAVO_RETURN_IF_ERROR(Begin());
    OCTAVO_RETURN_IF_ERROR(layout_.tried().empty() ? Batches() : TryAxes());
    if (report_.outliers + report_.not_finite + report_.floored > 0) {
      run_.Log(absl::StrCat("preparation: ", report_.outliers, " outliers, ", report_.not_finite, " values that were not finite, ", report_.floored,
                            " transmissions below the floor"));
    }
    report_.residual_norm = squares_ < 0 ? kNone : std::sqrt(squares_);
    report_.relative_residual = first_squares_ > 0 ? std::sqrt(squares_ / first_squares_) : kNone;
    run_.Found(report_);
    return absl::OkStatus();
  }

 private:
  // -- input

  // Waits for pushed projections; who looks sees what can be made of those that are in.
  absl::Status Collect() {
    run_.Stage("projections", task_.port->spec().frames, 0, 0);
    for (int64_t seen = 0, previewed = 0;;) {  // who begins to look between two frames sees what is there, too
      OCTAVO_ASSIGN_OR_RETURN(const ProjectionsSoFar so_far, task_.port->Wait(seen, 0.1, stop_));
      if (so_far.counts.frames > seen) run_.Step(so_far.counts.frames, kNone);
      if (so_far.complete) break;
      if (so_far.counts.frames > previewed && so_far.counts.projections >= kLeastPreview && !layout_.stitched() &&
          WantedSlice(0, layout_.slices()).has_value() && run_.PreviewDue()) {
        previewed = so_far.counts.frames;
        // What is there may not do yet (no angles apart, say): the next one will.
        if (const absl::Status shown = PreviewSoFar(); absl::IsCancelled(shown) || absl::IsUnavailable(shown)) return shown;
      }
      seen = so_far.counts.frames;
    }
    OCTAVO_ASSIGN_OR_RETURN(input_, task_.port->Snapshot());
    const storage::ProjectionInfo& info = input_->info();
    run_.Log(absl::StrCat("all in: ", info.projections, " projections, ", info.flats, " flat and ", info.darks, " dark fields"));
    OCTAVO_ASSIGN_OR_RETURN(layout_, TomographyLayout::Make(spec_, info, 0));
    const int64_t fields = layout_.FieldBytes(layout_.RowsOf(0, 1)), planned = task_.layout->FieldBytes(task_.layout->RowsOf(0, 1));
    if (fields > planned) {
      return InvalidField("tomography.push", absl::StrCat("brought ", info.flats, " flat and ", info.darks, " dark fields; allowed are ",
                                                          task_.layout->flats() + task_.layout->darks(), " together"));
    }
    return absl::OkStatus();
  }

  absl::Status PreviewSoFar() {
    const std::optional<std::pair<TopicKey, int64_t>> wanted = WantedSlice(0, layout_.slices());
    if (!wanted.has_value() || !layout_.tried().empty()) return absl::OkStatus();
    OCTAVO_ASSIGN_OR_RETURN(const auto input, task_.port->Snapshot());
    OCTAVO_ASSIGN_OR_RETURN(const TomographyLayout layout, TomographyLayout::Make(spec_, input->info(), 0));
    OCTAVO_ASSIGN_OR_RETURN(const Prepared prepared, PrepareSome(layout, input, layout.RowsOf(wanted->second, 1), false));
    std::vector<double> centers = layout.GivenCenters();
    if (centers.size() > 1) centers = {centers[static_cast<size_t>(wanted->second)]};
    TomographyConfig config = layout.ReconstructFor(0, 1, centers);
    config.algorithm = TomographyAlgorithm::kFbp;
    config.form = TomographyForm::kCorrected;
    config.subsets = 1;
    const absl::Status made = Reconstruct(config, prepared.data, 1, nullptr, static_cast<float*>(preview_), nullptr);
    run_.Free(prepared.data);
    OCTAVO_RETURN_IF_ERROR(made);
    return PublishPreview(wanted->first, preview_);
  }

  struct Prepared {
    float* data = nullptr;  // allocated from the run
    PreparedShape shape;
  };
  // Sinograms of a few rows.
  absl::StatusOr<Prepared> PrepareSome(const TomographyLayout& layout, std::shared_ptr<storage::ProjectionInput> input, const BatchRows& rows,
                                       bool for_overlap) {
    const PrepareConfig config = layout.PrepareFor(rows, for_overlap);
    OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, Preparer::DeviceBytes(config, run_.device()));
    OCTAVO_ASSIGN_OR_RETURN(const auto loader, TomographyLoader::Start(run_, layout, std::move(input), {{.first = 0, .count = 1, .rows = rows}},
                                                                       layout.RawBytes(rows), layout.FieldBytes(rows)));
    OCTAVO_RETURN_IF_ERROR(run_.Charge(bytes));
    OCTAVO_ASSIGN_OR_RETURN(const auto preparer, Preparer::Create(config, run_.device()));
    OCTAVO_ASSIGN_OR_RETURN(void* const data, run_.Allocate(preparer->shape().elements() * 4));
    const SynchroniseAtEnd over(run_.stream());
    OCTAVO_ASSIGN_OR_RETURN(const PrepareInput raw, loader->Next(stop_));
    OCTAVO_RETURN_IF_ERROR(preparer->Run(run_.stream(), raw, static_cast<float*>(data)));
    OCTAVO_RETURN_IF_ERROR(Count(*preparer));
    loader->Free(run_);
    run_.Discharge(bytes);
    return Prepared{.data = static_cast<float*>(data), .shape = preparer->shape()};
  }

  absl::Status Count(Preparer& preparer) {
    OCTAVO_ASSIGN_OR_RETURN(const PrepareCounts counts, preparer.Counts(run_.stream()));
    report_.outliers += counts.outliers;
    report_.not_finite += counts.not_finite;
    report_.floored += counts.floored;
    return absl::OkStatus();
  }

  // -- the axis

  absl::Status FindAxis() {
    static constexpr const char* kMethods[] = {"vo", "entropy", "phase_correlation"};
    centers_ = layout_.GivenCenters();
    report_.center_method = spec_.try_centers.has_value() || !spec_.center.pixels.empty() ? "given" : "middle";
    const bool find = spec_.center.find && !layout_.stitched() && layout_.tried().empty();
    if (find || layout_.overlap_unknown()) {
      begin_ = kSearchPart;
      run_.Stage("axis", 1, 0, begin_);
      const bool overlap = layout_.overlap_unknown();
      const BatchRows rows = layout_.RowsOf(layout_.center_slice(), layout_.search_slices());
      OCTAVO_ASSIGN_OR_RETURN(const Prepared prepared, PrepareSome(layout_, input_, rows, overlap));
      OCTAVO_RETURN_IF_ERROR(overlap ? FindOverlapIn(prepared) : FindCenterIn(prepared));
      run_.Free(prepared.data);
      if (!overlap) report_.center_method = kMethods[static_cast<int>(spec_.center.search.method)];
      run_.Step(1, kNone);
      report_.outliers = report_.not_finite = report_.floored = 0;  // they are counted again
    }
    if (layout_.stitched()) {
      centers_ = {layout_.PreparedCenterOf(0)};
      report_.center_method = "overlap";
      run_.Log(absl::StrCat("axis at column ", centers_[0], " of the joined projections"));
    }
    report_.centers = centers_;
    return stop_.stop_requested() ? absl::CancelledError("cancelled") : absl::OkStatus();
  }

  absl::Status FindCenterIn(const Prepared& prepared) {
    const CenterConfig config = layout_.CenterSearch(prepared.shape.slices);
    OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, FindCenterBytes(config, run_.device()));
    OCTAVO_RETURN_IF_ERROR(run_.Charge(bytes));
    auto found = FindCenter(run_.stream(), config, {.data = prepared.data, .angle_first = false}, run_.device());
    run_.Discharge(bytes);
    if (!found.ok()) return AtField("tomography.center.", found.status());
    centers_ = {layout_.RawCenter(found->center)};
    for (const double center : found->centers) report_.tried_centers.push_back(layout_.RawCenter(center));
    report_.scores = found->scores;
    report_.center_at_edge = found->at_edge;
    run_.Log(absl::StrFormat("axis found at column %.3f%s", centers_[0], found->at_edge ? ", at the end of the search: widen it" : ""));
    return absl::OkStatus();
  }

  absl::Status FindOverlapIn(const Prepared& prepared) {
    OverlapConfig config = layout_.OverlapSearch();
    config.slices = prepared.shape.slices;
    OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, FindOverlapBytes(config, run_.device()));
    OCTAVO_RETURN_IF_ERROR(run_.Charge(bytes));
    auto found = FindOverlap(run_.stream(), config, {.data = prepared.data, .angle_first = false}, run_.device());
    run_.Discharge(bytes);
    if (!found.ok()) return AtField("tomography.preparation.stitching.", found.status());
    report_.overlap = found->overlap;
    report_.center_at_edge = found->at_edge;
    run_.Log(absl::StrFormat("overlap of %.2f columns, correlation %.4f%s", found->overlap, found->correlation,
                             found->at_edge ? ", at the end of the search" : ""));
    // The result keeps the size that was planned.
    TomographySpec spec = spec_;
    spec.reconstruction.image_size = layout_.image_size();
    OCTAVO_ASSIGN_OR_RETURN(layout_, TomographyLayout::Make(spec, input_->info(), found->overlap));
    return absl::OkStatus();
  }

  // -- the result

  absl::Status Begin() {
    VolumeStatus volume;
    const int64_t size = layout_.image_size();
    volume.shape[0] = layout_.slices();
    volume.shape[1] = volume.shape[2] = size;
    volume.dtype = DType::kF32;
    volume.axes[0] = "z";
    volume.axes[1] = "y";
    volume.axes[2] = "x";
    const double pixel = spec_.pixel_size_um > 0 ? spec_.pixel_size_um : input_->info().pixel_size_um > 0 ? input_->info().pixel_size_um : 1;
    const PrepareConfig& p = spec_.preparation.config;
    volume.spacing_um[0] =
        layout_.tried().empty() ? pixel * static_cast<double>(p.bin_rows * std::max<int64_t>(spec_.rows.step, 1)) : spec_.try_centers->step;
    volume.spacing_um[1] = volume.spacing_um[2] = pixel * static_cast<double>(p.bin_columns);
    volume.quantity = "attenuation";
    volume.complete = true;
    if (const auto* arrays = std::get_if<ProjectionArraysSpec>(&spec_.input);
        arrays != nullptr && absl::StartsWith(arrays->projections, "volumes/")) {
      volume.derived_from = arrays->projections;
    }
    if (task_.on_disk) {
      OCTAVO_RETURN_IF_ERROR(run_.BeginStored(0, volume));
      OCTAVO_ASSIGN_OR_RETURN(images_, run_.Allocate(task_.slices_per_batch * layout_.image_bytes()));
    } else {
      OCTAVO_ASSIGN_OR_RETURN(images_, run_.Result(0, volume));
    }
    mip_ = static_cast<char*>(run_.ResultMip(0, /*made=*/true));
    batches_ = (layout_.slices() + task_.slices_per_batch - 1) / task_.slices_per_batch;
    iterations_ = spec_.reconstruction.algorithm == TomographyAlgorithm::kFbp ? 1 : spec_.reconstruction.iterations;
    return absl::OkStatus();
  }

  float* ImagesOf(int64_t first) const { return static_cast<float*>(images_) + (task_.on_disk ? 0 : first * layout_.image_bytes() / 4); }
  // What the slices start from, on the device; null = as the algorithm has it.
  absl::StatusOr<const float*> InitialOf(int64_t first, int64_t count) {
    if (task_.initial == nullptr) return nullptr;
    const int64_t bytes = count * layout_.image_bytes();
    if (initial_ == nullptr) {
      OCTAVO_ASSIGN_OR_RETURN(initial_, run_.Allocate(task_.slices_per_batch * layout_.image_bytes()));
      OCTAVO_ASSIGN_OR_RETURN(host_initial_, run_.device().AllocatePinned(task_.slices_per_batch * layout_.image_bytes()));
    }
    const std::vector<int64_t> shape = {layout_.slices(), layout_.image_size(), layout_.image_size()};
    OCTAVO_RETURN_IF_ERROR(ReadPlanes(*task_.initial, spec_.initial_volume, first, count, shape, host_initial_.data()));
    OCTAVO_RETURN_IF_ERROR(run_.device().CopyToDevice(run_.stream(), initial_, host_initial_.data(), bytes));
    OCTAVO_RETURN_IF_ERROR(run_.stream().Synchronize());
    return static_cast<const float*>(initial_);
  }

  absl::Status Batches() {
    // The batch that somebody looks at is the first one; what is stored comes in order.
    std::vector<SliceBatch> batches;
    for (int64_t first = 0; first < layout_.slices(); first += task_.slices_per_batch) {
      const int64_t count = std::min(task_.slices_per_batch, layout_.slices() - first);
      batches.push_back({.first = first, .count = count, .rows = layout_.RowsOf(first, count)});
    }
    const auto wanted = WantedSlice(0, layout_.slices());
    if (wanted.has_value() && !task_.on_disk) {
      std::rotate(batches.begin(), batches.begin() + wanted->second / task_.slices_per_batch, batches.end());
    }
    run_.Stage("reconstruct", batches_ * iterations_, begin_, 1);
    int64_t raw = 0, fields = 0, sinograms = 0, prepare = 0;
    for (const SliceBatch& batch : batches) {
      OCTAVO_ASSIGN_OR_RETURN(const PreparedShape shape, layout_.PreparedFor(batch.rows, false));
      OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, Preparer::DeviceBytes(layout_.PrepareFor(batch.rows, false), run_.device()));
      raw = std::max(raw, layout_.RawBytes(batch.rows));
      fields = std::max(fields, layout_.FieldBytes(batch.rows));
      sinograms = std::max(sinograms, shape.elements() * 4);
      prepare = std::max(prepare, bytes);
    }
    OCTAVO_RETURN_IF_ERROR(run_.Charge(prepare));
    OCTAVO_ASSIGN_OR_RETURN(void* const data, run_.Allocate(sinograms));
    OCTAVO_ASSIGN_OR_RETURN(const auto loader, TomographyLoader::Start(run_, layout_, input_, batches, raw, fields));
    std::unique_ptr<Preparer> preparer;
    const SynchroniseAtEnd over(run_.stream());
    std::optional<BatchRows> prepared;
    for (const SliceBatch& batch : batches) {
      OCTAVO_ASSIGN_OR_RETURN(const PrepareInput input, loader->Next(stop_));
      if (!prepared.has_value() || prepared->count != batch.rows.count || prepared->crop != batch.rows.crop ||
          prepared->crop_rows != batch.rows.crop_rows) {
        preparer.reset();  // the stream has passed it
        OCTAVO_ASSIGN_OR_RETURN(preparer, Preparer::Create(layout_.PrepareFor(batch.rows, false), run_.device()));
        prepared = batch.rows;
      }
      OCTAVO_RETURN_IF_ERROR(preparer->Run(run_.stream(), input, static_cast<float*>(data)));
      OCTAVO_RETURN_IF_ERROR(Count(*preparer));  // waits: the raw data may go
      loader->Release();
      OCTAVO_RETURN_IF_ERROR(MakeBatch(batch.first, batch.count, static_cast<const float*>(data)));
    }
    return absl::OkStatus();
  }

  // The same sinogram with one axis after the other: they are slices of their own to the reconstructor.
  absl::Status TryAxes() {
    run_.Stage("reconstruct", batches_ * iterations_, begin_, 1);
    OCTAVO_ASSIGN_OR_RETURN(const Prepared one, PrepareSome(layout_, input_, layout_.RowsOf(layout_.center_slice(), 1), false));
    const int64_t bytes = one.shape.elements() * 4;
    OCTAVO_ASSIGN_OR_RETURN(void* const copies, run_.Allocate(task_.slices_per_batch * bytes));
    const SynchroniseAtEnd over(run_.stream());
    for (int64_t i = 0; i < task_.slices_per_batch; ++i) {
      OCTAVO_RETURN_IF_ERROR(run_.device().CopyOnDevice(run_.stream(), static_cast<char*>(copies) + i * bytes, one.data, bytes));
    }
    for (int64_t first = 0; first < layout_.slices(); first += task_.slices_per_batch) {
      OCTAVO_RETURN_IF_ERROR(MakeBatch(first, std::min(task_.slices_per_batch, layout_.slices() - first), static_cast<const float*>(copies)));
    }
    return absl::OkStatus();
  }

  // -- one batch

  absl::Status MakeBatch(int64_t first, int64_t count, const float* sinograms) {
    // With one axis for all the plan of the reconstruction serves all batches.
    const bool shared = centers_.size() == 1;
    if (reconstructor_ == nullptr || !shared) {
      const TomographyConfig config = layout_.ReconstructFor(shared ? 0 : first, shared ? task_.slices_per_batch : count, centers_);
      if (reconstructor_ == nullptr) OCTAVO_RETURN_IF_ERROR(run_.Charge(task_.memory.reconstruct));
      reconstructor_.reset();
      auto made = Reconstructor::Create(config, run_.device());
      if (!made.ok()) return AtField("tomography.", made.status());
      reconstructor_ = *std::move(made);
    }
    first_ = first;
    count_ = count;
    const int64_t before = report_.batches * iterations_;
    std::vector<double> first_norms;
    const auto on_iteration = [&](const IterationReport& report) {
      if (stop_.stop_requested()) return false;
      double squares = 0;
      for (const double norm : report.residual_norms) squares += norm * norm;
      if (first_norms.empty()) first_norms = report.residual_norms;
      run_.Step(before + report.iteration, report.residual_norms.empty() ? kNone : std::sqrt(squares));
      preview_status_ = Preview(nullptr);
      return preview_status_.ok();
    };
    float* const images = ImagesOf(first);
    OCTAVO_ASSIGN_OR_RETURN(const float* const initial, InitialOf(first, count));
    auto result = reconstructor_->Run(run_.stream(), {.data = sinograms, .angle_first = false, .slices = count}, initial, images, on_iteration);
    if (!result.ok()) return AtField("tomography.", result.status());
    if (stop_.stop_requested()) return absl::CancelledError("cancelled");
    OCTAVO_RETURN_IF_ERROR(preview_status_);
    OCTAVO_RETURN_IF_ERROR(Tell(*result, first_norms));
    OCTAVO_RETURN_IF_ERROR(Preview(images));
    const VolumeView view{.data = images, .dtype = DType::kF32, .shape = {count, layout_.image_size(), layout_.image_size()}};
    OCTAVO_RETURN_IF_ERROR(
        Mip(run_.stream(), run_.device(), view, Axis::kZ, 0, count, /*accumulate=*/false, mip_ + first * layout_.image_size() * 4));
    const int64_t middle = layout_.slices() / 2;
    if (middle >= first && middle < first + count) OCTAVO_RETURN_IF_ERROR(LookAt(images + (middle - first) * layout_.image_bytes() / 4));
    if (task_.on_disk) OCTAVO_RETURN_IF_ERROR(run_.Store(0, images, count * layout_.image_bytes()));
    ++report_.batches;
    run_.Step(report_.batches * iterations_, last_norm_);
    return absl::OkStatus();
  }

  // A reconstruction by itself.
  absl::Status Reconstruct(const TomographyConfig& config, const float* sinograms, int64_t count, const float* initial, float* images,
                           const Reconstructor::Callback& callback) {
    OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, Reconstructor::DeviceBytes(config, run_.device()));
    OCTAVO_RETURN_IF_ERROR(run_.Charge(bytes));
    absl::Status status;
    {
      auto made = Reconstructor::Create(config, run_.device());
      status = made.status();
      if (made.ok())
        status = (*made)->Run(run_.stream(), {.data = sinograms, .angle_first = false, .slices = count}, initial, images, callback).status();
      (void)run_.stream().Synchronize();
    }
    run_.Discharge(bytes);
    return status;
  }

  absl::Status Tell(const TomographyResult& result, const std::vector<double>& first_norms) {
    static constexpr const char* kStops[] = {"iterations", "change", "residual", "callback"};
    last_norm_ = kNone;
    if (spec_.reconstruction.algorithm == TomographyAlgorithm::kFbp) return absl::OkStatus();
    report_.stop = kStops[static_cast<int>(result.stop)];
    report_.iterations = std::max(report_.iterations, result.last.iteration);
    double squares = 0, first = 0;
    for (const double norm : result.last.residual_norms) squares += norm * norm;
    for (const double norm : first_norms) first += norm * norm;
    squares_ = std::max(squares_, 0.0) + squares;
    first_squares_ += first;
    last_norm_ = std::sqrt(squares);
    run_.Log(absl::StrFormat("slices %d to %d: %d iterations, residual %.6g%s", first_, first_ + count_ - 1, result.last.iteration, last_norm_,
                             result.stop == TomographyStop::kIterations ? "" : absl::StrCat(", stopped by ", report_.stop)));
    return absl::OkStatus();
  }

  // Levels from a slice in the middle of the result.
  absl::Status LookAt(const float* image) {
    const int64_t size = layout_.image_size(), rows = std::clamp<int64_t>(kMostDisplayed / (size * 4), 1, size);
    OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer host, run_.device().AllocatePinned(rows * size * 4));
    const absl::Status copied = run_.device().CopyToHost(run_.stream(), host.data(), image + (size - rows) / 2 * size, rows * size * 4);
    OCTAVO_RETURN_IF_ERROR(run_.stream().Synchronize());
    OCTAVO_RETURN_IF_ERROR(copied);
    auto* const values = host.as<float>();
    const auto n = static_cast<double>(rows * size - 1);
    const auto at = [&](double part) {
      auto* const nth = values + static_cast<int64_t>(std::lround(part * n));
      std::nth_element(values, nth, values + rows * size);
      return static_cast<double>(*nth);
    };
    const double lo = at(kDarkPart), hi = at(kBrightPart);
    run_.SetDisplay(0, lo, hi > lo ? hi : lo + 1);
    return absl::OkStatus();
  }

  // -- what subscribers see: slices, as B-scans across the first axis

  // A slice in [first, first + count) that somebody looks at.
  std::optional<std::pair<TopicKey, int64_t>> WantedSlice(int64_t first, int64_t count) {
    for (const Publisher::Wanted& wanted : run_.Wanted()) {
      if (!wanted.previews || wanted.key.product != Product::kBscan || wanted.key.axis != FrameAxis::kY) continue;
      const int64_t slice = wanted.key.plane_index < 0 ? layout_.slices() / 2 : wanted.key.plane_index;
      if (slice >= first && slice < first + count) return std::pair{wanted.key, slice};
    }
    return std::nullopt;
  }

  // `images`: of the batch, or null within an iteration.
  absl::Status Preview(const float* images) {
    if (!run_.PreviewDue()) return absl::OkStatus();
    const auto wanted = WantedSlice(first_, count_);
    if (!wanted.has_value()) return absl::OkStatus();
    const int64_t at = wanted->second - first_;
    if (images != nullptr) return PublishPreview(wanted->first, images + at * layout_.image_bytes() / 4);
    OCTAVO_RETURN_IF_ERROR(reconstructor_->CopyImage(run_.stream(), at, static_cast<float*>(preview_)));
    return PublishPreview(wanted->first, preview_);
  }

  absl::Status PublishPreview(const TopicKey& key, const void* image) {
    const int64_t size = layout_.image_size();
    return run_.Publish({.key = key,
                         .data = image,
                         .dtype = DType::kF32,
                         .rows = size,
                         .columns = size,
                         .row_axis = "y",
                         .column_axis = "x",
                         .row_spacing_um = 1,
                         .column_spacing_um = 1,
                         .display_lo = 0,
                         .display_hi = 0});
  }

  JobRun& run_;
  const std::stop_token stop_;
  const TomographyTask& task_;
  const TomographySpec& spec_;
  TomographyLayout layout_;
  std::shared_ptr<storage::ProjectionInput> input_;
  TomographyReport report_;
  double begin_ = 0;
  std::vector<double> centers_;
  void* preview_ = nullptr;
  void* images_ = nullptr;
  void* initial_ = nullptr;
  PinnedBuffer host_initial_;
  char* mip_ = nullptr;
  std::unique_ptr<Reconstructor> reconstructor_;
  int64_t batches_ = 0, iterations_ = 1, first_ = 0, count_ = 0;
  double squares_ = -1, first_squares_ = 0, last_norm_ = kNone;
  absl::Status preview_status_;
};

}  // namespace

absl::Status RunTomography(JobRun& run, std::stop_token stop, const TomographyTask& task) {
  Runner runner(run, std::move(stop), task);
  const absl::Status status = runner.Run();
  (void)run.stream().Synchronize();  // before the reconstructor goes
  return status;
}

}  // namespace octavo::engine
