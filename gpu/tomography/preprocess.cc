#include "gpu/tomography/preprocess.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/tomography/families.h"
#include "gpu/tomography/preprocess_plan.h"
#include "gpu/tomography/ring_removal.h"

namespace octavo::inline gpu {
namespace {

constexpr int64_t kFloat = sizeof(float), kCount = sizeof(uint16_t),
                  kWorkBytes = int64_t{512} << 20, kUnpackedBytes = int64_t{64} << 20;
constexpr int64_t kMedianSamples =
    16;  // cost of one value of a median's window, about, in interpolated values

class DevicePreparer final : public Preparer {
 public:
  DevicePreparer(const PrepareConfig& config, Device& device, const TomographyFamilies& families)
      : config_(config),
        plan_(PlanPrepare(config)),
        device_(device),
        arrays_(families.arrays),
        tomography_(families.tomography),
        ops_(families.prepare),
        sinograms_(families.sinograms) {}

  /// Allocates the memory, or only counts it.
  absl::Status Init(bool only_count) {
    only_count_ = only_count;
    const PrepareConfig& c = config_;
    const int64_t frame = c.rows * c.columns,
                  series = std::max<int64_t>(1, static_cast<int64_t>(c.flat_series.size()));
    OCTAVO_RETURN_IF_ERROR(Take(math::kPrepareFlags * 8, counts_));
    if (c.darks > 0) OCTAVO_RETURN_IF_ERROR(Take(frame * kFloat, dark_));
    if (c.flats > 0) OCTAVO_RETURN_IF_ERROR(Take(series * frame * kFloat, flats_));
    if (Cleans() && c.flats + c.darks > 0)
      OCTAVO_RETURN_IF_ERROR(Take(std::max(c.flats, c.darks) * frame * kFloat, clean_fields_));
    // Some projections at a time if the steps need scratch memory.
    int64_t per_angle = 0;
    if (Cleans()) per_angle += c.bin_angles * frame * kFloat;
    if (Turns()) per_angle += frame * kFloat;
    if (Stages()) per_angle += (plan_.work_rows * plan_.work_columns + 2 * plan_.rows) * kFloat;
    if (c.phase.enabled) per_angle += 2 * Padded() * static_cast<int64_t>(sizeof(ComplexF));
    batch_ = plan_.angles;
    if (per_angle > 0) {
      const int64_t most = std::max<int64_t>(1, kWorkBytes / per_angle),
                    batches = (plan_.angles + most - 1) / most;
      batch_ = (plan_.angles + batches - 1) / batches;
    }
    OCTAVO_RETURN_IF_ERROR(TakeUnpacked());
    if (Cleans()) OCTAVO_RETURN_IF_ERROR(Take(batch_ * c.bin_angles * frame * kFloat, clean_));
    if (Turns()) OCTAVO_RETURN_IF_ERROR(Take(batch_ * frame * kFloat, leaning_));
    if (Stages())
      OCTAVO_RETURN_IF_ERROR(
          Take(batch_ * plan_.work_rows * plan_.work_columns * kFloat, transmissions_));
    if (Air()) OCTAVO_RETURN_IF_ERROR(Take(batch_ * plan_.rows * 2 * kFloat, air_));
    if (c.phase.enabled) {
      OCTAVO_RETURN_IF_ERROR(
          Take(batch_ * Padded() * static_cast<int64_t>(sizeof(ComplexF)), complex_));
      OCTAVO_RETURN_IF_ERROR(
          Take(batch_ * Padded() * static_cast<int64_t>(sizeof(ComplexF)), turned_));
      int64_t bytes = 0;
      for (const int64_t frames : {batch_, plan_.angles - (plan_.angles - 1) / batch_ * batch_}) {
        for (const FftSpec& spec : {RowFft(frames), ColumnFft(frames)}) {
          OCTAVO_ASSIGN_OR_RETURN(const int64_t work, arrays_.PrepareFft(spec));
          bytes = std::max(bytes, work);
        }
      }
      OCTAVO_RETURN_IF_ERROR(Take(bytes, fft_work_));
    }
    if (c.stitching.enabled)
      OCTAVO_RETURN_IF_ERROR(Take(plan_.rows * plan_.angles * plan_.columns * kFloat, full_turn_));
    if (!c.rings.empty()) {
      if (only_count) {
        OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes,
                                RingChain::DeviceBytes(c.rings, FullTurn(), device_));
        bytes_ += bytes;
      } else {
        OCTAVO_ASSIGN_OR_RETURN(rings_, RingChain::Create(c.rings, FullTurn(), device_));
      }
    }
    OCTAVO_RETURN_IF_ERROR(TakeFlatComponents());
    OCTAVO_RETURN_IF_ERROR(TakeShifts());
    return TakeFlatTable(series);
  }
  int64_t bytes() const { return bytes_; }

  const PreparedShape& shape() const override { return plan_.shape; }

  absl::Status Run(StreamRef stream, const PrepareInput& input,
                   DeviceSpan<float> sinograms) override {
    if (input.projections == nullptr) return InvalidField("projections", "are missing");
    if (config_.flats > 0 && input.flats == nullptr)
      return InvalidField("flats", absl::StrCat("are missing; ", config_.flats, " were announced"));
    if (config_.darks > 0 && input.darks == nullptr)
      return InvalidField("darks", absl::StrCat("are missing; ", config_.darks, " were announced"));
    OCTAVO_RETURN_IF_ERROR(device_.Fill(stream, counts_.data(), counts_.bytes(), 0));
    OCTAVO_RETURN_IF_ERROR(Fields(stream, input));
    const DeviceSpan<float> out = config_.stitching.enabled ? full_turn_.span<float>() : sinograms;
    OCTAVO_RETURN_IF_ERROR(CheckCancelled(stream, input.goes_on));
    // Transforms are planned for whole batches. Medians take longest, so they may check for
    // cancellation more often.
    int64_t step = step_;
    if (input.goes_on && Cleans() && !config_.phase.enabled) {
      const int64_t values = config_.rows * config_.columns * config_.bin_angles *
                             config_.outliers.window * config_.outliers.window;
      step = std::clamp<int64_t>(tomography_.PieceSamples() / (kMedianSamples * values), 1, step_);
    }
    for (int64_t first = 0; first < plan_.angles; first += step) {
      OCTAVO_RETURN_IF_ERROR(
          Projections(stream, input.projections, first, std::min(step, plan_.angles - first), out));
      OCTAVO_RETURN_IF_ERROR(CheckCancelled(stream, input.goes_on));
    }
    // Ring removal precedes stitching, because the fault of a column is the same over the whole
    // turn.
    if (rings_ != nullptr) OCTAVO_RETURN_IF_ERROR(rings_->Run(stream, out, input.goes_on));
    if (!config_.stitching.enabled) return absl::OkStatus();
    const StitchSpec spec{.slices = plan_.rows,
                          .angles = plan_.angles,
                          .columns = plan_.columns,
                          .half_turn = plan_.shape.angles,
                          .width = plan_.shape.detectors,
                          .overlap = config_.stitching.overlap,
                          .right = config_.stitching.axis_right};
    return ops_.Stitch(stream, spec, out, sinograms);
  }

  absl::StatusOr<PrepareCounts> Counts(StreamRef stream) override {
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyToHost(stream, host_counts_.data(), counts_.data(), math::kPrepareFlags * 8));
    OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
    const auto* counts = host_counts_.as<int64_t>();
    return PrepareCounts{.outliers = counts[0],
                         .not_finite = counts[1],
                         .floored = counts[2],
                         .cut = counts[3],
                         .unlit = counts[4]};
  }

 private:
  /// The shape before stitching.
  PreparedShape FullTurn() const {
    return {.slices = plan_.rows, .angles = plan_.angles, .detectors = plan_.columns};
  }
  static bool Packed(math::Packing packing) { return packing != math::Packing::kNone; }
  bool Cleans() const { return config_.outliers.window > 0; }
  bool Air() const { return config_.air_left + config_.air_right > 0; }
  bool Turns() const { return config_.roll.degrees != 0 || !config_.shifts.rows.empty(); }
  bool Stages() const {
    return Air() || config_.phase.enabled || Turns();
  }  // transmissions are inspected before they are finished
  int64_t Padded() const { return plan_.padded_rows * plan_.padded_columns; }
  FftSpec RowFft(int64_t frames) const {
    return {.n = plan_.padded_columns, .rows = frames * plan_.padded_rows};
  }
  FftSpec ColumnFft(int64_t frames) const {
    return {.n = plan_.padded_rows, .rows = frames * plan_.padded_columns};
  }

  absl::Status Take(int64_t bytes, DeviceBuffer& buffer) {
    bytes = std::max<int64_t>(bytes, 256);
    bytes_ += bytes;
    if (only_count_) return absl::OkStatus();
    OCTAVO_ASSIGN_OR_RETURN(buffer, device_.Allocate(bytes));
    return absl::OkStatus();
  }

  // Packed counts as numbers: fields of a kind all together, projections some at a time. Transforms
  // are planned for whole batches, which do not depend on packing, for their rounding might.
  absl::Status TakeUnpacked() {
    const PrepareConfig& c = config_;
    const int64_t frame = c.rows * c.columns * kCount, angle = c.bin_angles * frame;
    step_ = batch_;
    int64_t bytes = Packed(c.field_packing) ? std::max(c.flats, c.darks) * frame : 0;
    if (Packed(c.packing)) {
      if (!c.phase.enabled) step_ = std::clamp<int64_t>(kUnpackedBytes / angle, 1, batch_);
      bytes = std::max(bytes, step_ * angle);
    }
    return bytes == 0 ? absl::OkStatus() : Take(bytes, unpacked_);
  }

  // What is added to the mean flat field of each projection.
  absl::Status TakeFlatComponents() {
    const FlatComponents& parts = config_.flat_components;
    if (parts.components == 0) return absl::OkStatus();
    const int64_t mixture = std::ssize(parts.mixture) * static_cast<int64_t>(sizeof(double)),
                  weights = std::ssize(parts.weights) * kFloat;
    OCTAVO_RETURN_IF_ERROR(
        Take(parts.components * config_.rows * config_.columns * kFloat, flat_parts_));
    OCTAVO_RETURN_IF_ERROR(Take(mixture, mixture_));
    OCTAVO_RETURN_IF_ERROR(Take(weights, flat_weights_));
    if (only_count_) return absl::OkStatus();
    OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer table, device_.AllocatePinned(mixture + weights));
    std::copy(parts.mixture.begin(), parts.mixture.end(), table.as<double>());
    auto* const of_projections = reinterpret_cast<float*>(table.as<char>() + mixture);
    std::transform(parts.weights.begin(), parts.weights.end(), of_projections,
                   [](double weight) { return static_cast<float>(weight); });
    OCTAVO_ASSIGN_OR_RETURN(Stream stream, device_.NewStream(StreamPriority::kNormal));
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyToDevice(stream.ref(), mixture_.data(), table.data(), mixture));
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyToDevice(stream.ref(), flat_weights_.data(), of_projections, weights));
    return stream.ref().Synchronize();
  }

  absl::Status TakeShifts() {
    const std::vector<double>& shifts = config_.shifts.rows;
    if (shifts.empty()) return absl::OkStatus();
    const int64_t bytes = std::ssize(shifts) * static_cast<int64_t>(sizeof(double));
    OCTAVO_RETURN_IF_ERROR(Take(bytes, shifts_));
    if (only_count_) return absl::OkStatus();
    OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer table, device_.AllocatePinned(bytes));
    std::copy(shifts.begin(), shifts.end(), table.as<double>());
    OCTAVO_ASSIGN_OR_RETURN(Stream stream, device_.NewStream(StreamPriority::kNormal));
    OCTAVO_RETURN_IF_ERROR(device_.CopyToDevice(stream.ref(), shifts_.data(), table.data(), bytes));
    return stream.ref().Synchronize();
  }

  // The two series of flat fields between which each projection lies.
  absl::Status TakeFlatTable(int64_t series) {
    if (!only_count_) {
      OCTAVO_ASSIGN_OR_RETURN(host_counts_, device_.AllocatePinned(math::kPrepareFlags * 8));
    }
    if (config_.flats == 0 || series == 1) return absl::OkStatus();
    const int64_t bytes = config_.angles * static_cast<int64_t>(sizeof(FlatAt));
    OCTAVO_RETURN_IF_ERROR(Take(bytes, flat_at_));
    if (only_count_) return absl::OkStatus();
    OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer table, device_.AllocatePinned(bytes));
    const std::vector<double>& times = config_.flat_times;
    for (int64_t a = 0; a < config_.angles; ++a) {
      const double t = config_.angle_times.empty() ? static_cast<double>(a)
                                                   : config_.angle_times[static_cast<size_t>(a)];
      const auto after =
          static_cast<int64_t>(std::upper_bound(times.begin(), times.end(), t) - times.begin());
      const int64_t before = std::clamp<int64_t>(after - 1, 0, series - 2);
      const double from = times[static_cast<size_t>(before)],
                   to = times[static_cast<size_t>(before + 1)];
      table.as<FlatAt>()[a] = {
          .series = static_cast<int32_t>(before),
          .weight = static_cast<float>(std::clamp((t - from) / (to - from), 0.0, 1.0))};
    }
    OCTAVO_ASSIGN_OR_RETURN(Stream stream, device_.NewStream(StreamPriority::kNormal));
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyToDevice(stream.ref(), flat_at_.data(), table.data(), bytes));
    return stream.ref().Synchronize();
  }

  FrameSpec FieldFrames(int64_t frames) const {
    const int64_t frame = config_.rows * config_.columns;
    return {.dtype = config_.field_dtype,
            .frames = frames,
            .rows = config_.rows,
            .columns = config_.columns,
            .frame_stride = frame,
            .row_stride = config_.columns};
  }

  absl::Status Fields(StreamRef stream, const PrepareInput& input) {
    const int64_t frame = config_.rows * config_.columns;
    if (config_.darks > 0) {
      FrameSpec frames = FieldFrames(config_.darks);
      const void* data = input.darks;
      OCTAVO_RETURN_IF_ERROR(Unpack(stream, config_.field_packing, frames, data));
      OCTAVO_RETURN_IF_ERROR(CleanField(stream, frames, data));
      OCTAVO_RETURN_IF_ERROR(ops_.Field(stream, frames,
                                        config_.dark_average == FieldAverage::kMedian, data,
                                        dark_.span<float>()));
    }
    if (config_.flats == 0) return absl::OkStatus();
    FrameSpec frames = FieldFrames(config_.flats);
    const void* data = input.flats;
    OCTAVO_RETURN_IF_ERROR(Unpack(stream, config_.field_packing, frames, data));
    OCTAVO_RETURN_IF_ERROR(CleanField(stream, frames, data));
    std::vector<int64_t> series = config_.flat_series;
    if (series.empty()) series.push_back(config_.flats);
    int64_t first = 0;
    for (size_t i = 0; i < series.size(); ++i) {
      frames.frames = series[i];
      const auto* start = static_cast<const char*>(data) + first * frame * SizeOf(frames.dtype);
      OCTAVO_RETURN_IF_ERROR(
          ops_.Field(stream, frames, config_.flat_average == FieldAverage::kMedian, start,
                     flats_.span<float>().From(static_cast<int64_t>(i) * frame)));
      first += series[i];
    }
    frames.frames = config_.flats;
    for (int64_t k = 0; k < config_.flat_components.components; ++k) {
      OCTAVO_RETURN_IF_ERROR(ops_.MixField(
          stream, frames, data, mixture_.as<double>() + k, config_.flat_components.components,
          flat_parts_.span<float>().From(k * config_.rows * config_.columns)));
    }
    return absl::OkStatus();
  }

  /// Unpacks the frames at `data`, whose strides count rows of pixels, if they are packed. `frames`
  /// and `data` become those of the pixels, which stay until the next call.
  absl::Status Unpack(StreamRef stream, math::Packing packing, FrameSpec& frames,
                      const void*& data) {
    if (!Packed(packing)) return absl::OkStatus();
    const int64_t columns = frames.columns, row = math::PackedBytes(packing, columns, kCount);
    const UnpackSpec spec{.packing = packing,
                          .frames = frames.frames,
                          .rows = frames.rows,
                          .columns = columns,
                          .frame_stride = frames.frame_stride / columns * row,
                          .row_stride = frames.row_stride / columns * row};
    OCTAVO_RETURN_IF_ERROR(ops_.Unpack(stream, spec, data, unpacked_.span<uint16_t>()));
    data = unpacked_.data();
    frames.frame_stride = frames.rows * columns;
    frames.row_stride = columns;
    return absl::OkStatus();
  }
  absl::Status CleanField(StreamRef stream, FrameSpec& frames, const void*& data) {
    if (!Cleans()) return absl::OkStatus();
    OCTAVO_RETURN_IF_ERROR(ops_.Outliers(stream, Outlier(frames), data, clean_fields_.span<float>(),
                                         counts_.span<int64_t>()));
    data = clean_fields_.data();
    frames.dtype = DType::kF32;
    return absl::OkStatus();
  }
  OutlierSpec Outlier(const FrameSpec& frames) const {
    return {.in = frames,
            .window = config_.outliers.window,
            .difference = static_cast<float>(config_.outliers.difference),
            .dark_too = config_.outliers.dark_too};
  }

  /// Writes the prepared projections [first, first + count) to out [slice, angle, detector].
  absl::Status Projections(StreamRef stream, const void* projections, int64_t first, int64_t count,
                           DeviceSpan<float> out) {
    const PrepareConfig& c = config_;
    FrameSpec frames{.dtype = c.dtype,
                     .frames = count * c.bin_angles,
                     .rows = c.rows,
                     .columns = c.columns,
                     .frame_stride = c.row_first ? c.columns : c.rows * c.columns,
                     .row_stride = c.row_first ? c.angles * c.columns : c.columns};
    const void* data = static_cast<const char*>(projections) +
                       first * c.bin_angles * (frames.frame_stride / c.columns) *
                           math::PackedBytes(c.packing, c.columns, SizeOf(c.dtype));
    OCTAVO_RETURN_IF_ERROR(Unpack(stream, c.packing, frames, data));
    if (Cleans()) {
      OCTAVO_RETURN_IF_ERROR(ops_.Outliers(stream, Outlier(frames), data, clean_.span<float>(),
                                           counts_.span<int64_t>()));
      data = clean_.data();
      frames.dtype = DType::kF32;
      frames.frame_stride = c.rows * c.columns;
      frames.row_stride = c.columns;
    }
    const int64_t slice = plan_.angles * plan_.columns, work = plan_.work_rows * plan_.work_columns;
    const DeviceSpan<float> rows = out.From(first * plan_.columns);
    math::Finishing finishing{.minus_log = c.minus_log,
                              .log_floor = static_cast<float>(c.log_floor),
                              .not_finite = static_cast<float>(c.not_finite_value)};
    for (const double coefficient : c.beam_hardening)
      finishing.hardening[finishing.hardening_terms++] = static_cast<float>(coefficient);
    CorrectSpec correct{
        .in = frames,
        .first_row = plan_.first_row,
        .first_column = plan_.first_column,
        .bin_rows = c.bin_rows,
        .bin_columns = c.bin_columns,
        .bin_angles = c.bin_angles,
        .angles = count,
        .rows = plan_.work_rows,
        .columns = plan_.work_columns,
        .out_angle_stride = Stages() ? work : plan_.columns,
        .out_row_stride = Stages() ? plan_.work_columns : slice,
        .dark = dark_.as<float>(),
        .flats = flats_.as<float>(),
        .flat_at = flat_at_ ? flat_at_.as<FlatAt>() + first * c.bin_angles : nullptr,
        .components = c.flat_components.components,
        .flat_parts = flat_parts_.as<float>(),
        .flat_weights = !flat_weights_ ? nullptr
                                       : flat_weights_.as<float>() +
                                             first * c.bin_angles * c.flat_components.components,
        .denominator_floor = static_cast<float>(c.denominator_floor),
        .cutoff =
            c.has_cutoff ? static_cast<float>(c.cutoff) : std::numeric_limits<float>::infinity(),
        .finish = !Stages(),
        .finishing = finishing};
    if (Turns()) {
      // All pixels given are made transmissions first, because the turned ones lie between them.
      correct.first_row = correct.first_column = 0;
      correct.bin_rows = correct.bin_columns = 1;
      correct.rows = c.rows;
      correct.columns = correct.out_row_stride = c.columns;
      correct.out_angle_stride = c.rows * c.columns;
    }
    OCTAVO_RETURN_IF_ERROR(ops_.Correct(stream, correct, data,
                                        Turns()    ? leaning_.span<float>()
                                        : Stages() ? transmissions_.span<float>()
                                                   : rows,
                                        counts_.span<int64_t>()));
    if (Turns())
      OCTAVO_RETURN_IF_ERROR(ops_.Turn(stream, Turn(first, count), leaning_.span<float>(),
                                       transmissions_.span<float>()));
    if (!Stages()) return absl::OkStatus();
    if (c.phase.enabled) OCTAVO_RETURN_IF_ERROR(Phase(stream, count));
    const DeviceSpan<const float> kept = transmissions_.span<float>().From(
        plan_.skip_rows * plan_.work_columns + plan_.skip_columns);
    const RowsSpec in{.angles = count,
                      .rows = plan_.rows,
                      .columns = plan_.columns,
                      .angle_stride = work,
                      .row_stride = plan_.work_columns};
    RowsSpec to = in;
    to.angle_stride = plan_.columns;
    to.row_stride = slice;
    if (Air())
      OCTAVO_RETURN_IF_ERROR(
          ops_.AirLevels(stream, in, c.air_left, c.air_right, kept, air_.span<float>()));
    const FinishSpec finish{.in = in,
                            .out = to,
                            .air_left = c.air_left,
                            .air_right = c.air_right,
                            .air = air_.as<float>(),
                            .finishing = finishing};
    return ops_.Finish(stream, finish, kept, rows, counts_.span<int64_t>());
  }

  TurnSpec Turn(int64_t first, int64_t frames) const {
    const PrepareConfig& c = config_;
    const double angle = c.roll.degrees * std::numbers::pi / 180;
    const int64_t rows = c.roll.rows == 0 ? c.rows : c.roll.rows;
    return {.turn = {.sin = std::sin(angle),
                     .cos = std::cos(angle),
                     .middle_row = 0.5 * static_cast<double>(rows - 1),
                     .middle_column = 0.5 * static_cast<double>(c.columns - 1)},
            .frames = frames,
            .in_rows = c.rows,
            .in_columns = c.columns,
            .detector_row = c.roll.first_row,
            .rows = plan_.work_rows,
            .columns = plan_.work_columns,
            .first_row = plan_.first_row,
            .first_column = plan_.first_column,
            .bin_rows = c.bin_rows,
            .bin_columns = c.bin_columns,
            .shifts = shifts_ ? shifts_.as<double>() + first : nullptr};
  }

  absl::Status Phase(StreamRef stream, int64_t frames) {
    const PaddedSpec spec{.frames = frames,
                          .rows = plan_.work_rows,
                          .columns = plan_.work_columns,
                          .padded_rows = plan_.padded_rows,
                          .padded_columns = plan_.padded_columns,
                          .before_rows = (plan_.padded_rows - plan_.work_rows) / 2,
                          .before_columns = (plan_.padded_columns - plan_.work_columns) / 2};
    const DeviceSpan<ComplexF> complex = complex_.span<ComplexF>(),
                               turned = turned_.span<ComplexF>();
    FftSpec along_rows = RowFft(frames), along_columns = ColumnFft(frames);
    OCTAVO_RETURN_IF_ERROR(ops_.Pad(stream, spec, transmissions_.span<float>(), complex));
    OCTAVO_RETURN_IF_ERROR(arrays_.Fft(stream, along_rows, complex.data(), fft_work_.data()));
    OCTAVO_RETURN_IF_ERROR(sinograms_.Transpose(stream, frames, spec.padded_rows,
                                                spec.padded_columns, complex, turned));
    OCTAVO_RETURN_IF_ERROR(arrays_.Fft(stream, along_columns, turned.data(), fft_work_.data()));
    OCTAVO_RETURN_IF_ERROR(
        ops_.FilterPhase(stream, spec, plan_.phase, 1.0f / static_cast<float>(Padded()), turned));
    along_rows.inverse = along_columns.inverse = true;
    OCTAVO_RETURN_IF_ERROR(arrays_.Fft(stream, along_columns, turned.data(), fft_work_.data()));
    OCTAVO_RETURN_IF_ERROR(sinograms_.Transpose(stream, frames, spec.padded_columns,
                                                spec.padded_rows, turned, complex));
    OCTAVO_RETURN_IF_ERROR(arrays_.Fft(stream, along_rows, complex.data(), fft_work_.data()));
    return ops_.Unpad(stream, spec, complex, transmissions_.span<float>());
  }

  const PrepareConfig config_;
  const PreparePlan plan_;
  Device& device_;
  ArrayOps& arrays_;
  TomographyOps& tomography_;
  PrepareOps& ops_;
  SinogramOps& sinograms_;
  bool only_count_ = false;
  int64_t bytes_ = 0, batch_ = 0, step_ = 0;  // projections: of scratch memory, prepared at a time
  DeviceBuffer counts_, dark_, flats_, unpacked_, clean_fields_, clean_, leaning_, transmissions_,
      air_, complex_, turned_, fft_work_, full_turn_, flat_at_, flat_parts_, mixture_,
      flat_weights_, shifts_;
  PinnedBuffer host_counts_;
  std::unique_ptr<RingChain> rings_;
};

}  // namespace

absl::StatusOr<int64_t> Preparer::DeviceBytes(const PrepareConfig& config, Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckPrepare(config).status());
  OCTAVO_ASSIGN_OR_RETURN(const TomographyFamilies families, FindTomographyFamilies(device));
  DevicePreparer preparer(config, device, families);
  OCTAVO_RETURN_IF_ERROR(preparer.Init(true));
  return preparer.bytes();
}

absl::StatusOr<std::unique_ptr<Preparer>> Preparer::Create(const PrepareConfig& config,
                                                           Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckPrepare(config).status());
  OCTAVO_ASSIGN_OR_RETURN(const TomographyFamilies families, FindTomographyFamilies(device));
  auto preparer = std::make_unique<DevicePreparer>(config, device, families);
  OCTAVO_RETURN_IF_ERROR(preparer->Init(false));
  return preparer;
}

}  // namespace octavo::inline gpu
