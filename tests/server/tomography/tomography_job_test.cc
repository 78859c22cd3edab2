// Tomography jobs on projections of discs with known ground truth: batches, axes, cancellation,
// memory, progress.

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <mutex>
#include <numeric>
#include <random>

#include "gpu/base/allocation_fault.h"
#include "gpu/device/scalar.h"
#include "gpu/math/array_ops.h"
#include "gpu/tomography/reconstruct.h"
#include "server/engine/job_kinds.h"
#include "server/job/job_queue.h"
#include "server/source/push_projections.h"
#include "tests/server/job/job_fixture.h"
#include "tests/support/rooms.h"
#include "tests/support/seed.h"
#include "tests/support/temp_folder.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::HasSubstr;

constexpr double kPi = 3.14159265358979323846;
constexpr int64_t kAngles = 60, kRows = 7, kColumns = 64;
constexpr double kAxis = 29.25;

class TomographyJobTest : public engine::testing::JobFixture {
 protected:
  TomographyJobTest() {
    for (int64_t i = 0; i < kAngles; ++i) angles_.push_back(kPi * static_cast<double>(i) / kAngles);
    // Discs that move from row to row: [angle, row, column], minus logarithm.
    for (int64_t a = 0; a < kAngles; ++a) {
      for (int64_t r = 0; r < kRows; ++r) {
        const double angle = angles_[static_cast<size_t>(a)], x = 8 - static_cast<double>(r),
                     y = 3 + 0.5 * static_cast<double>(r);
        for (int64_t c = 0; c < kColumns; ++c) {
          const double s = static_cast<double>(c) - kAxis;
          const auto disc = [&](double radius, double cx, double cy, double value) {
            const double d = s - cx * std::cos(angle) - cy * std::sin(angle);
            return 2 * value * std::sqrt(std::max(0.0, radius * radius - d * d));
          };
          sinograms_.push_back(static_cast<float>(disc(20, 1, 0, 0.01) + disc(5, x, y, 0.02)));
        }
      }
    }
    Write("scan.npy", "<f4", sinograms_.data(), sinograms_.size() * 4, {kAngles, kRows, kColumns});
  }

  void Write(const std::string& name, const std::string& type, const void* data, size_t bytes,
             const std::vector<int64_t>& shape) {
    std::string dict = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (";
    for (const int64_t extent : shape) dict += std::to_string(extent) + ", ";
    dict += "), }";
    dict.resize((dict.size() + 10 + 63) / 64 * 64 - 11, ' ');
    dict += '\n';
    std::ofstream file(folder_.path() + "/" + name, std::ios::binary);
    file.write("\x93NUMPY\x01\x00", 8);
    file.put(static_cast<char>(dict.size() & 255)).put(static_cast<char>(dict.size() >> 8));
    file << dict;
    file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  }

  /// many.npy: `rows` rows, which repeat those of the scan.
  void WriteMany(int64_t rows) {
    std::vector<float> many;
    for (int64_t a = 0; a < kAngles; ++a) {
      for (int64_t r = 0; r < rows; ++r) {
        const float* row = sinograms_.data() + (a * kRows + r % kRows) * kColumns;
        many.insert(many.end(), row, row + kColumns);
      }
    }
    Write("many.npy", "<f4", many.data(), many.size() * 4, {kAngles, rows, kColumns});
  }

  TomographySpec Spec(TomographyAlgorithm algorithm, int64_t iterations) const {
    TomographySpec spec;
    spec.input = ProjectionFileSpec{.path = "scan.npy", .options = {}};
    spec.angles_rad = angles_;
    spec.preparation.config.minus_log = false;
    spec.preparation.ignore_fields = true;
    spec.reconstruction.algorithm = algorithm;
    spec.reconstruction.iterations = iterations;
    spec.center.pixels = {kAxis};
    spec.json = "{}";
    return spec;
  }
  JobEnvironment Environment() {
    return {.volumes = &store_,
            .spiller = nullptr,
            .ledger = &ledger_,
            .buffers = nullptr,
            .file_roots = {folder_.path()},
            .projection_memory = &memory_,
            .clock = &clock_};
  }
  /// Pushes these projections of the sinograms, each as a frame of its number.
  void Push(ProjectionPort& port, int64_t connection, int64_t first, int64_t end) {
    for (int64_t a = first; a < end; ++a) {
      PushedFrame frame{.sequence = static_cast<uint64_t>(a),
                        .angle_rad = angles_[static_cast<size_t>(a)],
                        .rows = kRows,
                        .parts = {}};
      frame.parts.emplace_back(
          reinterpret_cast<const char*>(sinograms_.data() + a * kRows * kColumns),
          kRows * kColumns * 4);
      ASSERT_THAT(port.Progress(connection), IsOk());  // takes the credit
      ASSERT_THAT(port.Offer(connection, frame), IsOk());
    }
  }
  absl::StatusOr<JobStatus> Submit(const TomographySpec& work) {
    const auto spec = std::make_unique<JobSpec>();
    spec->work = work;
    return SubmitTo(*spec, Environment());
  }
  JobStatus Run(const TomographySpec& spec) { return WaitDone(Submit(spec)); }
  std::vector<float> VolumeOf(const JobStatus& job, size_t index = 0) {
    if (index >= job.volumes.size()) return {};
    const auto pinned = store_.Hold(job.volumes[index], HoldKind::kDevice);
    EXPECT_THAT(pinned, IsOk());
    std::vector<float> values(static_cast<size_t>(pinned->status.bytes / 4));
    const Stream stream = *device_.NewStream(StreamPriority::kNormal);
    EXPECT_THAT(device_.CopyToHost(stream.ref(), values.data(), pinned->slot->volume.data(),
                                   pinned->status.bytes),
                IsOk());
    EXPECT_THAT(stream.ref().Synchronize(), IsOk());
    return values;
  }
  /// The stored numbers of a volume of u8, u16 or f16.
  std::vector<double> NumbersOf(const JobStatus& job) {
    if (job.volumes.empty()) return {};
    const auto pinned = store_.Hold(job.volumes[0], HoldKind::kDevice);
    EXPECT_THAT(pinned, IsOk());
    std::vector<uint8_t> bytes(static_cast<size_t>(pinned->status.bytes));
    const Stream stream = *device_.NewStream(StreamPriority::kNormal);
    EXPECT_THAT(device_.CopyToHost(stream.ref(), bytes.data(), pinned->slot->volume.data(),
                                   pinned->status.bytes),
                IsOk());
    EXPECT_THAT(stream.ref().Synchronize(), IsOk());
    const DType type = pinned->status.dtype;
    std::vector<double> numbers;
    for (size_t i = 0; i < bytes.size(); i += static_cast<size_t>(SizeOf(type)))
      numbers.push_back(math::Load(ScalarOf(type), bytes.data() + i, 0).re);
    return numbers;
  }
  /// The reconstruction of all rows at once.
  std::vector<float> Direct(TomographyConfig config) {
    config.angles_rad = angles_;
    config.detectors = kColumns;
    config.slices = kRows;
    config.centers = {kAxis};
    const auto reconstructor = Reconstructor::Create(config, device_);
    EXPECT_THAT(reconstructor, IsOk());
    std::vector<float> images(static_cast<size_t>(kRows * kColumns * kColumns));
    const DeviceBuffer in = *device_.Allocate(std::ssize(sinograms_) * 4),
                       out = *device_.Allocate(std::ssize(images) * 4);
    const Stream stream = *device_.NewStream(StreamPriority::kNormal);
    EXPECT_THAT(device_.CopyToDevice(stream.ref(), in.data(), sinograms_.data(), in.bytes()),
                IsOk());
    EXPECT_THAT(
        (*reconstructor)
            ->Run(stream.ref(), {.data = in.span<float>(), .angle_first = true, .slices = kRows},
                  nullptr, out.span<float>(), nullptr),
        IsOk());
    EXPECT_THAT(device_.CopyToHost(stream.ref(), images.data(), out.data(), out.bytes()), IsOk());
    EXPECT_THAT(stream.ref().Synchronize(), IsOk());
    return images;
  }

  octavo::testing::TempFolder folder_;
  std::vector<double> angles_;
  std::vector<float> sinograms_;
  ProjectionMemory memory_{1 << 20};
};

TEST_P(TomographyJobTest, BatchesMakeWhatOneReconstructorMakes) {
  for (const auto algorithm : {TomographyAlgorithm::kFbp, TomographyAlgorithm::kSirt,
                               TomographyAlgorithm::kCgls, TomographyAlgorithm::kTv}) {
    TomographySpec spec = Spec(algorithm, 4);
    if (algorithm == TomographyAlgorithm::kTv) spec.reconstruction.tv_weight = 0.002;
    const std::vector<float> wanted = Direct(spec.reconstruction);
    for (const int64_t batch : {0, 1, 3}) {
      spec.slices_per_batch = batch;
      const JobStatus job = Run(spec);
      const std::vector<float> made = VolumeOf(job);
      ASSERT_EQ(made.size(), wanted.size());
      double largest = 0, off = 0;
      for (size_t i = 0; i < made.size(); ++i) {
        largest = std::max<double>(largest, std::abs(wanted[i]));
        off = std::max<double>(off, std::abs(made[i] - wanted[i]));
      }
      EXPECT_LE(off, 1e-5 * largest) << "batches of " << batch;
      const auto volume = store_.Get(job.volumes[0]);
      EXPECT_EQ(volume->shape[0], kRows);
      EXPECT_EQ(volume->axes[0], "z");
      EXPECT_LT(volume->display_lo, volume->display_hi);
      const auto& report = std::get<TomographyReport>(job.finding);
      EXPECT_EQ(report.batches, batch == 0 ? 1 : (kRows + batch - 1) / batch);
      EXPECT_EQ(report.centers, std::vector<double>{kAxis});
      EXPECT_EQ(std::isnan(report.residual_norm), algorithm == TomographyAlgorithm::kFbp);
      ASSERT_THAT(store_.Discard(volume->name, Reason::kDiscarded, "test"), IsOk());
    }
  }
  EXPECT_EQ(ledger_.UseOf(0).granted(), 0);
}

TEST_P(TomographyJobTest, AResultOfFewerBitsIsTheOneOfF32Converted) {
  for (const auto algorithm : {TomographyAlgorithm::kFbp, TomographyAlgorithm::kSirt}) {
    TomographySpec spec = Spec(algorithm, 4);
    spec.slices_per_batch = 3;
    const JobStatus whole = Run(spec);
    const std::vector<float> values = VolumeOf(whole);
    for (const DType type : {DType::kU8, DType::kU16, DType::kF16}) {
      for (const int64_t batch : {1, 3, 7}) {
        SCOPED_TRACE(::testing::Message() << Info(type).name << ", batches of " << batch);
        spec.slices_per_batch = batch;
        spec.samples = {.type = type};
        const double low = static_cast<double>(0.002f), high = static_cast<double>(0.025f),
                     top = type == DType::kU8 ? 255 : 65535;
        if (type != DType::kF16) spec.samples.low = low, spec.samples.high = high;
        const JobStatus job = Run(spec);
        const std::vector<double> numbers = NumbersOf(job);
        ASSERT_EQ(numbers.size(), values.size());
        int64_t below = 0, above = 0, off = 0;
        for (size_t i = 0; i < values.size(); ++i) {
          const auto value = static_cast<double>(values[i]);
          if (type == DType::kF16) {
            off += std::abs(numbers[i] - value) > 1e-3 * std::abs(value) + 1e-6 ? 1 : 0;
            continue;
          }
          const double v = (value - low) * top / (high - low);
          // Batches differ by the rounding of f32.
          off += std::abs(numbers[i] - std::clamp(v, 0.0, top)) > 0.51 + 1e-5 * top ? 1 : 0;
          below += v <= -0.5 ? 1 : 0;
          above += v >= top + 0.5 ? 1 : 0;
        }
        EXPECT_EQ(off, 0);
        const auto& report = std::get<TomographyReport>(job.finding);
        EXPECT_NEAR(static_cast<double>(report.clipped_below), static_cast<double>(below), 5);
        EXPECT_NEAR(static_cast<double>(report.clipped_above), static_cast<double>(above), 5);
        const auto volume = store_.Get(job.volumes[0]);
        EXPECT_EQ(volume->dtype, type);
        EXPECT_EQ(volume->bytes, std::ssize(values) * SizeOf(type));
        EXPECT_EQ(volume->has_levels, type != DType::kF16);
        EXPECT_EQ(volume->quantity, model::Quantity::kAttenuation);
        EXPECT_EQ(volume->clipped_below, report.clipped_below);
        if (type != DType::kF16) {
          EXPECT_GT(below, 0);
          EXPECT_EQ(volume->level_lo, 0.002f);
          EXPECT_EQ(volume->level_hi, 0.025f);
          EXPECT_GE(volume->display_lo, 0);
          EXPECT_LE(volume->display_hi, top);
          EXPECT_THAT(job.plan, HasSubstr("window"));
        }
        ASSERT_THAT(store_.Discard(volume->name, Reason::kDiscarded, "test"), IsOk());
      }
    }
    ASSERT_THAT(store_.Discard(whole.volumes[0], Reason::kDiscarded, "test"), IsOk());
  }
  EXPECT_EQ(ledger_.UseOf(0).granted(), 0);
}

TEST_P(TomographyJobTest, AWindowIsFoundAndAResultOfU8TakesAQuarterOfTheMemory) {
  for (const auto algorithm :
       {TomographyAlgorithm::kFbp, TomographyAlgorithm::kFourier, TomographyAlgorithm::kCgls}) {
    TomographySpec spec = Spec(algorithm, 4);
    const std::vector<float> values = VolumeOf(Run(spec));
    spec.samples = {.type = DType::kU8};
    const JobStatus job = Run(spec);
    const auto& report = std::get<TomographyReport>(job.finding);
    EXPECT_LT(report.low, report.high);
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    EXPECT_GT(report.low, static_cast<double>(*least) - 0.02);
    EXPECT_LT(report.high, static_cast<double>(*most) + 0.02);
    EXPECT_LT(static_cast<double>(report.clipped_below + report.clipped_above),
              0.02 * static_cast<double>(values.size()));
    const auto volume = store_.Get(job.volumes[0]);
    EXPECT_EQ(static_cast<double>(volume->level_lo), report.low);
    EXPECT_EQ(volume->bytes, std::ssize(values));
    // A reader comes back to the values.
    const std::vector<double> numbers = NumbersOf(job);
    const double step = (report.high - report.low) / 255;
    int64_t off = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double value = std::clamp(static_cast<double>(values[i]), report.low, report.high);
      off += std::abs(report.low + step * numbers[i] - value) > 0.51 * step ? 1 : 0;
    }
    EXPECT_EQ(off, 0);
    EXPECT_THAT(job.plan, HasSubstr("window is found"));
  }
  // Also of the axes that are tried.
  TomographySpec spec = Spec(TomographyAlgorithm::kFbp, 1);
  spec.center = {};
  spec.try_centers = TryCentersSpec{.begin = 27.25, .end = 31.25, .step = 0.5, .row = 3};
  spec.samples = {.type = DType::kU16};
  const JobStatus tried = Run(spec);
  EXPECT_EQ(store_.Get(tried.volumes[0])->bytes, 9 * kColumns * kColumns * 2);
  EXPECT_LT(std::get<TomographyReport>(tried.finding).low,
            std::get<TomographyReport>(tried.finding).high);
}

TEST_P(TomographyJobTest, ResidualsFallAndAreTold) {
  const JobStatus job = Run(Spec(TomographyAlgorithm::kSirt, 12));
  std::vector<double> norms;
  for (const JobStep& step : job.history) {
    if (step.stage == job::JobStage::kReconstruct && std::isfinite(step.residual_norm))
      norms.push_back(step.residual_norm);
  }
  ASSERT_GE(norms.size(), 12u);
  EXPECT_TRUE(std::is_sorted(norms.rbegin(), norms.rend()));
  EXPECT_LT(norms.back(), 0.5 * norms.front());
  EXPECT_EQ(job.fraction, 1);
}

// Total variation that ended far from its minimum is a warning, which says what to change.
TEST_P(TomographyJobTest, TotalVariationThatIsNotDoneIsTold) {
  TomographySpec spec = Spec(TomographyAlgorithm::kTv, 400);
  spec.reconstruction.tv_weight = 0.0005;
  const JobStatus done = Run(spec);
  const auto& near = std::get<TomographyReport>(done.finding);
  EXPECT_THAT(done.warnings, ::testing::IsEmpty());
  EXPECT_GE(near.variation_gap, 0);
  EXPECT_LT(near.variation_gap, 0.1);
  EXPECT_GT(near.relative_change, 0);
  for (const int64_t batch : {0, 2}) {
    spec.slices_per_batch = batch;
    spec.reconstruction.iterations = 2;
    const JobStatus few = Run(spec);
    ASSERT_EQ(few.warnings.size(), 1u);
    EXPECT_THAT(few.warnings[0],
                HasSubstr("TV ended far from its minimum in 7 of 7 slices, after 2 iterations"));
    EXPECT_THAT(few.warnings[0], HasSubstr("ive more iterations"));
    EXPECT_GT(std::get<TomographyReport>(few.finding).relative_change, near.relative_change);
  }
  // A crude limit of the change is no sign that it is done.
  spec.reconstruction.iterations = 400;
  spec.reconstruction.stop_change = 0.9;
  const JobStatus crude = Run(spec);
  ASSERT_EQ(crude.warnings.size(), 1u);
  EXPECT_THAT(crude.warnings[0], HasSubstr("a smaller stop_change"));
  spec.reconstruction.stop_change = 0;
  // A weight that is far too large for its iterations.
  spec.reconstruction.iterations = 50;
  spec.reconstruction.tv_weight = 5;
  const JobStatus large = Run(spec);
  ASSERT_EQ(large.warnings.size(), 1u);
  EXPECT_THAT(large.warnings[0], HasSubstr("Is tv_weight too large?"));
  EXPECT_GT(std::get<TomographyReport>(large.finding).variation_gap, 0.1);
  // Others have no gap, and no warning.
  const JobStatus sirt = Run(Spec(TomographyAlgorithm::kSirt, 2));
  EXPECT_THAT(sirt.warnings, ::testing::IsEmpty());
  EXPECT_TRUE(std::isnan(std::get<TomographyReport>(sirt.finding).variation_gap));
  EXPECT_GT(std::get<TomographyReport>(sirt.finding).relative_change, 0);
  const JobStatus fbp = Run(Spec(TomographyAlgorithm::kFbp, 1));
  EXPECT_TRUE(std::isnan(std::get<TomographyReport>(fbp.finding).relative_change));
}

TEST_P(TomographyJobTest, CountsBecomeSinograms) {
  // 16-bit counts with flat and dark fields give the same slices, within the error of rounding to
  // counts.
  constexpr double kWhite = 40000, kDark = 120;
  std::vector<uint16_t> counts,
      white(static_cast<size_t>(3 * kRows * kColumns), static_cast<uint16_t>(kWhite)),
      dark(static_cast<size_t>(2 * kRows * kColumns), static_cast<uint16_t>(kDark));
  for (const float value : sinograms_)
    counts.push_back(
        static_cast<uint16_t>(std::lround(kDark + (kWhite - kDark) * std::exp(-value))));
  Write("counts.npy", "<u2", counts.data(), counts.size() * 2, {kAngles, kRows, kColumns});
  Write("white.npy", "<u2", white.data(), white.size() * 2, {3, kRows, kColumns});
  Write("dark.npy", "<u2", dark.data(), dark.size() * 2, {2, kRows, kColumns});
  TomographySpec spec = Spec(TomographyAlgorithm::kFbp, 1);
  const std::vector<float> wanted = Direct(spec.reconstruction);
  ProjectionFileSpec counts_file{.path = "counts.npy", .options = {}};
  counts_file.options.flats = "white.npy";
  counts_file.options.darks = "dark.npy";
  spec.input = counts_file;
  spec.preparation = {};
  spec.rows = {.begin = 1, .end = 6, .step = 2};
  spec.slices_per_batch = 2;
  const std::vector<float> made = VolumeOf(Run(spec));
  ASSERT_EQ(std::ssize(made), 3 * kColumns * kColumns);
  double squares = 0, all = 0;
  for (int64_t i = 0; i < std::ssize(made); ++i) {
    const int64_t slice = 1 + 2 * (i / (kColumns * kColumns));
    const float there =
        wanted[static_cast<size_t>(slice * kColumns * kColumns + i % (kColumns * kColumns))];
    squares += std::pow(made[static_cast<size_t>(i)] - there, 2);
    all += there * there;
  }
  EXPECT_LT(std::sqrt(squares / all), 0.01);
}

// Also where each slice has an axis of its own, on which the padding depends.
TEST_P(TomographyJobTest, SlicesDoNotDependOnTheirBatch) {
  for (const auto algorithm : {TomographyAlgorithm::kSirt, TomographyAlgorithm::kTv}) {
    TomographySpec spec = Spec(algorithm, 12);
    if (algorithm == TomographyAlgorithm::kTv) spec.reconstruction.tv_weight = 0.002;
    spec.center.pixels.clear();
    for (int64_t row = 0; row < kRows; ++row)
      spec.center.pixels.push_back(kAxis - 3 + 1.5 * static_cast<double>(row));
    std::vector<float> whole;
    for (const int64_t batch : {kRows, int64_t{1}, int64_t{3}}) {
      spec.slices_per_batch = batch;
      const JobStatus job = Run(spec);
      const std::vector<float> made = VolumeOf(job);
      if (whole.empty()) whole = made;
      ASSERT_EQ(made.size(), whole.size());
      double off = 0, largest = 0;
      for (size_t i = 0; i < made.size(); ++i) {
        off = std::max<double>(off, std::abs(made[i] - whole[i]));
        largest = std::max<double>(largest, std::abs(whole[i]));
      }
      EXPECT_LE(off, 1e-5 * largest) << "batches of " << batch;
      ASSERT_THAT(store_.Discard(job.volumes[0], Reason::kDiscarded, "test"), IsOk());
    }
  }
}

// The result is what the preparation makes, row by row, whatever the batches and wherever it lies.
TEST_P(TomographyJobTest, SinogramsAreTheInputPreparedAndTurned) {
  TomographySpec spec = Spec(TomographyAlgorithm::kFbp, 1);
  spec.center = {};
  spec.output = model::TomographyOutput::kSinograms;
  spec.preparation.already_sinograms = true;
  spec.preparation.config.bin_angles = 2;
  spec.projections = {.begin = 3, .end = 33, .step = 0};
  spec.rows = {.begin = 1, .end = 6, .step = 2};
  spec.columns = {.begin = 5, .end = 50, .step = 0};
  constexpr int64_t kMade = 3, kPairs = 15, kUsed = 45;
  std::vector<float> wanted;
  for (int64_t slice = 0; slice < kMade; ++slice) {
    for (int64_t pair = 0; pair < kPairs; ++pair) {
      for (int64_t column = 5; column < 50; ++column) {
        const auto at = [&](int64_t angle) {
          return sinograms_[static_cast<size_t>((angle * kRows + 1 + 2 * slice) * kColumns +
                                                column)];
        };
        wanted.push_back(0.5f * (at(3 + 2 * pair) + at(4 + 2 * pair)));
      }
    }
  }
  for (const int64_t batch : {0, 1, 2}) {
    for (const bool log : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "batches of " << batch << (log ? ", logarithm" : ""));
      spec.slices_per_batch = batch;
      spec.preparation.config.minus_log = log;
      spec.preparation.already_sinograms = !log;
      const JobStatus job = Run(spec);
      const std::vector<float> made = VolumeOf(job);
      ASSERT_EQ(made.size(), wanted.size());
      for (size_t i = 0; i < made.size(); ++i) {
        const double expected = log ? -std::log(std::max(wanted[i], 1e-6f)) : wanted[i];
        ASSERT_NEAR(made[i], expected, 1e-5 * std::abs(expected) + 1e-7) << i;
      }
      const auto volume = store_.Get(job.volumes[0]);
      EXPECT_EQ(volume->shape[0], kMade);
      EXPECT_EQ(volume->shape[1], kPairs);
      EXPECT_EQ(volume->shape[2], kUsed);
      EXPECT_EQ(volume->quantity, model::Quantity::kLineIntegral);
      EXPECT_TRUE(volume->spacing_assumed[1]) << "angles have no distance";
      EXPECT_LT(volume->display_lo, volume->display_hi);
      EXPECT_THAT(job.plan, HasSubstr("3 sinograms of 15 angles x 45 columns"));
      EXPECT_EQ(job.history.back().stage, job::JobStage::kPrepare);
      EXPECT_FALSE(std::get<TomographyReport>(job.finding).algorithm.has_value());
      ASSERT_THAT(store_.Discard(volume->name, Reason::kDiscarded, "test"), IsOk());
    }
  }
  spec.preparation.config.minus_log = spec.preparation.already_sinograms = false;
  const JobStatus transmissions = Run(spec);
  EXPECT_EQ(store_.Get(transmissions.volumes[0])->quantity, model::Quantity::kTransmission);
  ASSERT_THAT(store_.Discard(transmissions.volumes[0], Reason::kDiscarded, "test"), IsOk());
  EXPECT_EQ(ledger_.UseOf(0).granted(), 0);
}

TEST_P(TomographyJobTest, SinogramsOfFewerBitsAndTheirAxis) {
  TomographySpec spec = Spec(TomographyAlgorithm::kFbp, 1);
  spec.center = {};
  spec.center.find = true;
  spec.center.automatic = true;
  spec.output = model::TomographyOutput::kSinograms;
  spec.samples = {.type = DType::kU16};
  spec.slices_per_batch = 2;
  const JobStatus job = Run(spec);
  const auto& report = std::get<TomographyReport>(job.finding);
  ASSERT_EQ(report.centers.size(), 1u);
  EXPECT_NEAR(report.centers[0], kAxis, 0.3);
  const std::vector<double> numbers = NumbersOf(job);
  ASSERT_EQ(std::ssize(numbers), kRows * kAngles * kColumns);
  const double step = (report.high - report.low) / 65535;
  for (int64_t i = 0; i < std::ssize(numbers); ++i) {
    const int64_t row = i / (kAngles * kColumns), angle = i / kColumns % kAngles;
    const auto value = static_cast<double>(
        sinograms_[static_cast<size_t>((angle * kRows + row) * kColumns + i % kColumns)]);
    ASSERT_NEAR(report.low + step * numbers[static_cast<size_t>(i)],
                std::clamp(value, report.low, report.high), 0.51 * step)
        << i;
  }
  EXPECT_EQ(store_.Get(job.volumes[0])->level_lo, static_cast<float>(report.low));
  // Their width follows from an overlap, which the plan must know.
  spec.samples = {};
  spec.center = {};
  spec.preparation.config.stitching = {.enabled = true};
  EXPECT_THAT(Submit(spec), IsError(absl::StatusCode::kInvalidArgument, "stitching.overlap"));
}

TEST_P(TomographyJobTest, SubscribersSeeASinogramAsSoonAsItIsMade) {
  TomographySpec spec = Spec(TomographyAlgorithm::kFbp, 1);
  spec.angles_rad.clear();
  spec.center = {};
  spec.output = model::TomographyOutput::kSinograms;
  spec.preparation.already_sinograms = true;
  spec.input = PushedProjectionsSpec{
      .rows = kRows, .columns = kColumns, .frames = kAngles, .dtype = DType::kF32};
  ASSERT_OK_AND_ASSIGN(const JobStatus pushed, Submit(spec));
  ASSERT_OK_AND_ASSIGN(const auto port, queue_->ProjectionPortOf(pushed.name));
  constexpr int64_t kRow = 4;
  SubscribeSpec look;
  look.parent = pushed.name;
  look.products = {Product::kBscan};
  look.axis = FrameAxis::kZ;
  look.plane_index = kRow;
  look.delivery = Delivery::kLossless;
  ASSERT_OK_AND_ASSIGN(const auto subscription, publisher_.Subscribe(look, [] {}));
  const int64_t connection = port->Connect();
  for (int64_t a = 0; a < kAngles; ++a) {
    PushedFrame frame{.sequence = static_cast<uint64_t>(a),
                      .angle_rad = angles_[static_cast<size_t>(a)],
                      .rows = kRows,
                      .parts = {}};
    frame.parts.emplace_back(
        reinterpret_cast<const char*>(sinograms_.data() + a * kRows * kColumns),
        kRows * kColumns * 4);
    ASSERT_THAT(port->Progress(connection), IsOk());
    ASSERT_THAT(port->Offer(connection, frame), IsOk());
  }
  const JobStatus end = Wait(pushed.name);
  ASSERT_EQ(end.state, JobState::kDone) << end.reason;
  port->Disconnect(connection);
  int seen = 0;
  for (Delivered delivered; subscription->Take(&delivered);) {
    ASSERT_EQ(delivered.frame->shape, (std::vector<int64_t>{kAngles, kColumns}));
    const auto* const values = static_cast<const float*>(delivered.frame->payload.data);
    for (int64_t i = 0; i < kAngles * kColumns; ++i) {
      const int64_t angle = i / kColumns, column = i % kColumns;
      ASSERT_EQ(values[i],
                sinograms_[static_cast<size_t>((angle * kRows + kRow) * kColumns + column)]);
    }
    ++seen;
  }
  EXPECT_GE(seen, 1);
}

TEST_P(TomographyJobTest, FindsTheAxisAndTriesOthers) {
  TomographySpec spec = Spec(TomographyAlgorithm::kFbp, 1);
  spec.center = {};
  spec.center.find = true;
  spec.center.search.method = CenterMethod::kEntropy;
  spec.center.search_begin = 20;
  spec.center.search_end = 40;
  const auto report = std::get<TomographyReport>(Run(spec).finding);
  ASSERT_EQ(report.centers.size(), 1u);
  EXPECT_NEAR(report.centers[0], kAxis, 0.5);
  EXPECT_EQ(report.center_source, model::CenterSource::kEntropy);
  EXPECT_EQ(report.scores.size(), report.tried_centers.size());
  EXPECT_EQ(report.center_check_method, CenterMethod::kPairs);
  EXPECT_NEAR(report.center_check, kAxis, 0.5);

  spec.center = {};
  spec.try_centers = TryCentersSpec{.begin = 27.25, .end = 31.25, .step = 0.5, .row = 3};
  spec.slices_per_batch = 4;
  const JobStatus tried = Run(spec);
  const auto volume = store_.Get(tried.volumes[0]);
  ASSERT_EQ(volume->shape[0], 9);
  EXPECT_EQ(volume->spacing_um[0], 0.5);
  EXPECT_EQ(std::get<TomographyReport>(tried.finding).centers.size(), 9u);
  // The middle slice is the slice of the right axis.
  const std::vector<float> slices = VolumeOf(tried), wanted = Direct(spec.reconstruction);
  double off = 0, largest = 0;
  for (int64_t i = 0; i < kColumns * kColumns; ++i) {
    off = std::max<double>(off, std::abs(slices[static_cast<size_t>(4 * kColumns * kColumns + i)] -
                                         wanted[static_cast<size_t>(3 * kColumns * kColumns + i)]));
    largest = std::max<double>(largest,
                               std::abs(wanted[static_cast<size_t>(3 * kColumns * kColumns + i)]));
  }
  EXPECT_LT(off, 1e-4 * largest);
}

// A disc 1.4 times as wide as the detector: without room for its outer part, that part piles up at
// the rim.
TEST_P(TomographyJobTest, ObjectsWiderThanTheDetectorGetAPlaceAndAreTold) {
  constexpr double kRadius = 1.4 * kAxis, kValue = 0.01;
  std::vector<float> wide;
  for (int64_t i = 0; i < kAngles * kRows * kColumns; ++i) {
    const double s = static_cast<double>(i % kColumns) - kAxis;
    wide.push_back(static_cast<float>(2 * kValue * std::sqrt(kRadius * kRadius - s * s)));
  }
  Write("wide.npy", "<f4", wide.data(), wide.size() * 4, {kAngles, kRows, kColumns});
  const auto rim_of = [&](const JobStatus& job) {
    const std::vector<float> values = VolumeOf(job);
    double sum = 0, count = 0;
    for (int64_t i = 0; i < std::min<int64_t>(kColumns * kColumns, std::ssize(values)); ++i) {
      const double middle = 0.5 * (kColumns - 1);
      const double r = std::hypot(static_cast<double>(i % kColumns) - middle,
                                  static_cast<double>(i / kColumns) - middle);
      if (r > 0.93 * kAxis && r < kAxis - 0.5)
        sum += values[static_cast<size_t>(i)] / kValue - 1, ++count;
    }
    return sum / count;
  };
  for (const auto algorithm :
       {TomographyAlgorithm::kSirt, TomographyAlgorithm::kMlem, TomographyAlgorithm::kCgls}) {
    TomographySpec spec = Spec(algorithm, algorithm == TomographyAlgorithm::kCgls ? 5 : 30);
    EXPECT_TRUE(Run(spec).warnings.empty()) << "it is seen as a whole";
    spec.input = ProjectionFileSpec{.path = "wide.npy", .options = {}};
    const JobStatus widened = Run(spec);
    ASSERT_EQ(widened.warnings.size(), 1u);
    EXPECT_THAT(
        widened.warnings[0],
        HasSubstr("100 % of the directions show it at the left end, 100 % at the right one"));
    EXPECT_THAT(widened.warnings[0], HasSubstr("1.40 times the usual width"));
    spec.slices_per_batch = 2;
    EXPECT_EQ(VolumeOf(Run(spec)), VolumeOf(widened)) << "in batches";
    spec.reconstruction.padding = 0;
    const JobStatus asked = Run(spec);
    EXPECT_TRUE(asked.warnings.empty()) << "the caller says where the iterations end";
    EXPECT_GT(rim_of(asked), 0.3);
    EXPECT_LT(std::abs(rim_of(widened)), 0.1) << static_cast<int>(algorithm);
  }
  // Filtered back projection has no iterations, and takes what lies outside for air.
  TomographySpec fbp = Spec(TomographyAlgorithm::kFbp, 1);
  EXPECT_THAT(Run(fbp).warnings, ::testing::IsEmpty());
  fbp.input = ProjectionFileSpec{.path = "wide.npy", .options = {}};
  EXPECT_THAT(Run(fbp).warnings,
              ::testing::ElementsAre(HasSubstr("reconstruction.extend_edges continues the rows")));
  fbp.reconstruction.extend_edges = true;
  EXPECT_THAT(Run(fbp).warnings, ::testing::IsEmpty());
}

TEST_P(TomographyJobTest, CancelGivesAllMemoryBack) {
  TomographySpec spec = Spec(TomographyAlgorithm::kSirt, 1'000'000);
  spec.slices_per_batch = 2;
  const auto job = Submit(spec);
  ASSERT_THAT(job, IsOk());
  Await([&] {
    const auto now = queue_->Get(job->name);
    return now->step_count > 3 || IsFinal(now->state);
  });
  ASSERT_EQ(queue_->Get(job->name)->state, JobState::kRunning) << queue_->Get(job->name)->reason;
  EXPECT_GT(ledger_.UseOf(0).granted(), 0);
  ASSERT_THAT(queue_->Cancel(job->name), IsOk());
  const JobStatus end = Wait(job->name);
  EXPECT_EQ(end.state, JobState::kCancelled);
  EXPECT_TRUE(end.volumes.empty());
  Await([&] { return ledger_.UseOf(0).granted() == 0; });
}

// The profiles of all projections count as host memory: 12 bytes for each row of each of them.
TEST_P(TomographyJobTest, ASearchOfADriftPlansItsHostMemory) {
  WriteMany(200);
  TomographySpec spec = Spec(TomographyAlgorithm::kFbp, 1);
  std::get<ProjectionFileSpec>(spec.input).path = "many.npy";
  spec.preparation.finds_drift = true;
  const int64_t bytes = kAngles * 200 * 12;
  {
    ProjectionMemory little(bytes - 1);
    JobEnvironment environment = Environment();
    environment.projection_memory = &little;
    JobSpec job;
    job.work = spec;
    EXPECT_THAT(SubmitTo(job, environment).status(),
                IsError(absl::StatusCode::kResourceExhausted,
                        absl::StrCat("tomography.preparation.row_drift: the profiles of all "
                                     "projections take ",
                                     bytes, " bytes of host memory")));
    EXPECT_EQ(little.used_bytes(), 0);
  }
  // While others have it, the job waits, and can be cancelled.
  std::shared_ptr<void> others = memory_.Reserve(memory_.limit_bytes() - bytes + 1);
  ASSERT_NE(others, nullptr);
  const auto waiting = Submit(spec);
  ASSERT_THAT(waiting, IsOk());
  Await([&] {
    const auto now = queue_->Get(waiting->name);
    return IsFinal(now->state) ||
           std::any_of(now->log.begin(), now->log.end(), [](const auto& line) {
             return line.text.find("of host memory") != std::string::npos;
           });
  });
  ASSERT_EQ(queue_->Get(waiting->name)->state, JobState::kRunning);
  ASSERT_THAT(queue_->Cancel(waiting->name), IsOk());
  EXPECT_EQ(Wait(waiting->name).state, JobState::kCancelled);
  others.reset();
  EXPECT_EQ(Run(spec).state, JobState::kDone);
  EXPECT_EQ(memory_.used_bytes(), 0);
}

// A scan may take hours: other jobs use the device until its projections have arrived.
TEST_P(TomographyJobTest, OthersRunWhileOneWaitsForProjections) {
  TomographySpec spec = Spec(TomographyAlgorithm::kFbp, 1);
  spec.angles_rad.clear();  // each projection brings its own angle
  spec.input = PushedProjectionsSpec{
      .rows = kRows, .columns = kColumns, .frames = kAngles, .dtype = DType::kF32};
  ASSERT_OK_AND_ASSIGN(const JobStatus pushed, Submit(spec));
  ASSERT_OK_AND_ASSIGN(const auto port, queue_->ProjectionPortOf(pushed.name));
  const int64_t connection = port->Connect();
  Push(*port, connection, 0, kAngles / 2);
  Await([&] { return queue_->Get(pushed.name)->step == kAngles / 2; });  // it waits
  const JobStatus file = Run(Spec(TomographyAlgorithm::kFbp, 1));
  EXPECT_EQ(queue_->Get(pushed.name)->state, JobState::kRunning);
  EXPECT_EQ(queue_->Get(pushed.name)->stage, job::JobStage::kProjections);
  // Another job waits beside it and is cancelled while waiting.
  ASSERT_OK_AND_ASSIGN(const JobStatus third, Submit(spec));
  Await([&] { return queue_->Get(third.name)->stage == job::JobStage::kProjections; });
  EXPECT_EQ(queue_->RunningOn(0), 2);
  ASSERT_THAT(queue_->Cancel(third.name), IsOk());
  EXPECT_EQ(Wait(third.name).state, JobState::kCancelled);
  Push(*port, connection, kAngles / 2, kAngles);
  const JobStatus end = Wait(pushed.name);
  EXPECT_EQ(end.state, JobState::kDone) << end.reason;
  EXPECT_EQ(VolumeOf(end), VolumeOf(file));
  port->Disconnect(connection);
}

// Counts of 12 bits of an odd number of columns, pushed packed and as numbers: the same volumes,
// bit for bit, whatever is read of them.
TEST_P(TomographyJobTest, PackedFramesMakeTheVolumesOfNumbers) {
  constexpr int64_t kOdd = 61, kFields = 5;  // three flat and two dark fields
  std::mt19937 random(octavo::testing::FreshSeed());
  const int64_t frames = kFields + kAngles, pixels = kRows * kOdd;
  std::vector<uint16_t> counts;
  for (int64_t f = 0; f < frames; ++f) {
    for (int64_t i = 0; i < pixels; ++i) {
      const auto noise = static_cast<double>(random() % 40);
      const auto sum = f < kFields
                           ? 0.0
                           : static_cast<double>(sinograms_[static_cast<size_t>(
                                 ((f - kFields) * kRows + i / kOdd) * kColumns + i % kOdd)]);
      counts.push_back(
          static_cast<uint16_t>(f == 3 || f == 4 ? noise : 100 + noise + 3900 * std::exp(-sum)));
    }
  }
  const auto made = [&](TomographySpec spec, math::Packing packing) {
    const PushedProjectionsSpec push{
        .rows = kRows, .columns = kOdd, .frames = frames, .dtype = DType::kU16, .packing = packing};
    spec.input = push;
    spec.angles_rad.clear();
    spec.preparation.ignore_fields = false;
    spec.preparation.config.minus_log = true;
    const auto submitted = Submit(spec);
    EXPECT_THAT(submitted, IsOk());
    const auto port = queue_->ProjectionPortOf(submitted->name).value();
    // The job may have begun, and have taken some more for its fields.
    EXPECT_GE(memory_.used_bytes(), frames * push.frame_bytes());
    const int64_t connection = port->Connect();
    for (int64_t f = 0; f < frames; ++f) {
      std::vector<uint8_t> data(static_cast<size_t>(push.frame_bytes()));
      const uint16_t* const from = counts.data() + f * pixels;
      if (packing == math::Packing::kNone) std::memcpy(data.data(), from, data.size());
      for (int64_t i = 0; packing != math::Packing::kNone && i < pixels; ++i)
        math::WritePacked12(packing, data.data() + i / kOdd * push.row_bytes(), i % kOdd, from[i]);
      PushedFrame frame{.sequence = static_cast<uint64_t>(f),
                        .kind = f < 3         ? storage::FrameKind::kFlat
                                : f < kFields ? storage::FrameKind::kDark
                                              : storage::FrameKind::kProjection,
                        .angle_rad = f < kFields ? 0 : angles_[static_cast<size_t>(f - kFields)],
                        .rows = kRows,
                        .parts = {}};
      frame.parts.emplace_back(reinterpret_cast<const char*>(data.data()), data.size());
      EXPECT_THAT(port->Progress(connection), IsOk());  // takes the credit
      EXPECT_THAT(port->Offer(connection, frame), IsOk());
    }
    const JobStatus end = Wait(submitted->name);
    EXPECT_EQ(end.state, JobState::kDone) << end.reason;
    port->Disconnect(connection);
    std::vector<std::string> volumes;
    for (size_t i = 0; i < end.volumes.size(); ++i) {
      const std::vector<float> values = VolumeOf(end, i);
      volumes.emplace_back(reinterpret_cast<const char*>(values.data()), values.size() * 4);
      EXPECT_THAT(store_.Discard(end.volumes[i], Reason::kDiscarded, "test"), IsOk());
    }
    return volumes;
  };
  const std::vector<std::pair<const char*, std::function<void(TomographySpec&)>>> cases = {
      {"plain", [](TomographySpec&) {}},
      {"batches",
       [](TomographySpec& s) {
         s.slices_per_batch = 2;
         s.preparation.config.outliers = {.window = 3, .difference = 30};
         s.preparation.config.rings = {{.method = RingMethod::kSorting, .sorting_window = 5}};
       }},
      {"every second row and third projection",
       [](TomographySpec& s) {
         s.rows = {.begin = 1, .end = 7, .step = 2};
         s.projections = {.begin = 1, .end = 0, .step = 3};
         s.slices_per_batch = 1;
       }},
      {"columns and bins",
       [](TomographySpec& s) {
         s.columns = {.begin = 3, .end = 58, .step = 1};
         s.preparation.config.bin_rows = s.preparation.config.bin_columns = 2;
         s.center.pixels = {kAxis};
       }},
      {"dynamic flats", [](TomographySpec& s) { s.preparation.dynamic_flats = true; }},
      {"an axis that is searched",
       [](TomographySpec& s) {
         s.center = {};
         s.center.find = true;
         s.center.search.method = CenterMethod::kPairs;
       }},
      {"u16 with a window that is found",
       [](TomographySpec& s) { s.samples = {.type = DType::kU16}; }},
      {"a series", [](TomographySpec& s) {
         s.series = model::VolumeSeriesSpec{.projections = 30, .step = 15};
       }}};
  for (const auto& [name, change] : cases) {
    SCOPED_TRACE(name);
    TomographySpec spec = Spec(TomographyAlgorithm::kFbp, 1);
    change(spec);
    const auto wanted = made(spec, math::Packing::kNone);
    ASSERT_FALSE(wanted.empty());
    for (const math::Packing packing : {math::Packing::kLowFirst12, math::Packing::kHighFirst12})
      EXPECT_TRUE(made(spec, packing) == wanted) << static_cast<int>(packing);
  }
  EXPECT_EQ(memory_.used_bytes(), 0);
  EXPECT_EQ(ledger_.UseOf(0).granted(), 0);
}

TEST_P(TomographyJobTest, ASeriesHoldsAVolumeOfEachWindow) {
  TomographySpec spec = Spec(TomographyAlgorithm::kFbp, 1);
  spec.series = model::VolumeSeriesSpec{.projections = 30, .step = 10};
  ASSERT_OK_AND_ASSIGN(const JobStatus submitted, Submit(spec));
  EXPECT_THAT(submitted.plan, HasSubstr("series: 4 volumes of 30 projections each"));
  EXPECT_GE(submitted.memory_bytes, 4 * kRows * kColumns * kColumns * 4);
  const JobStatus job = Wait(submitted.name);
  ASSERT_EQ(job.state, JobState::kDone) << job.reason;
  ASSERT_EQ(job.volumes.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    TomographySpec one = Spec(TomographyAlgorithm::kFbp, 1);
    one.projections = {
        .begin = 10 * static_cast<int64_t>(i), .end = 10 * static_cast<int64_t>(i) + 30, .step = 1};
    const JobStatus alone = Run(one);
    EXPECT_EQ(VolumeOf(job, i), VolumeOf(alone)) << i;
    EXPECT_EQ(store_.Get(job.volumes[i])->index, static_cast<int64_t>(i));
    ASSERT_THAT(store_.Discard(job.volumes[i], Reason::kDiscarded, "test"), IsOk());
    ASSERT_THAT(store_.Discard(alone.volumes[0], Reason::kDiscarded, "test"), IsOk());
  }
  EXPECT_EQ(ledger_.UseOf(0).granted(), 0);
  const auto& report = std::get<TomographyReport>(job.finding);
  EXPECT_EQ(report.series_volumes, 4);
  EXPECT_EQ(report.series_planned, 4);
}

TEST_P(TomographyJobTest, VolumesOfASeriesAreThereWhileTheScanGoesOnAndSurviveACancel) {
  TomographySpec spec = Spec(TomographyAlgorithm::kFbp, 1);
  const std::vector<float> wanted = [&] {
    TomographySpec first = spec;
    first.projections.end = kAngles / 3;
    const JobStatus job = Run(first);
    const std::vector<float> values = VolumeOf(job);
    EXPECT_THAT(store_.Discard(job.volumes[0], Reason::kDiscarded, "test"), IsOk());
    return values;
  }();
  spec.series = model::VolumeSeriesSpec{.projections = kAngles / 3, .step = kAngles / 3};
  spec.angles_rad.clear();
  spec.input = PushedProjectionsSpec{
      .rows = kRows, .columns = kColumns, .frames = kAngles, .dtype = DType::kF32};
  ASSERT_OK_AND_ASSIGN(const JobStatus pushed, Submit(spec));
  ASSERT_OK_AND_ASSIGN(const auto port, queue_->ProjectionPortOf(pushed.name));
  const int64_t connection = port->Connect();
  Push(*port, connection, 0, kAngles / 3);
  const auto held = [&](size_t count) {
    const auto now = queue_->Get(pushed.name);
    if (IsFinal(now->state)) return true;
    return now->volumes.size() == count &&
           store_.Get(now->volumes.back())->state == VolumeState::kHeld;
  };
  Await([&] { return held(1); });
  JobStatus now = *queue_->Get(pushed.name);
  ASSERT_EQ(now.state, JobState::kRunning) << now.reason;
  EXPECT_EQ(VolumeOf(now), wanted);
  // Discarded at once: the job goes on, and the memory is free.
  const int64_t granted = ledger_.UseOf(0).granted();
  ASSERT_THAT(store_.Discard(now.volumes[0], Reason::kDiscarded, "test"), IsOk());
  EXPECT_LE(ledger_.UseOf(0).granted(), granted - kRows * kColumns * kColumns * 4);
  Push(*port, connection, kAngles / 3, 2 * kAngles / 3);
  Await([&] { return held(2); });
  ASSERT_THAT(queue_->Cancel(pushed.name), IsOk());
  const JobStatus end = Wait(pushed.name);
  EXPECT_EQ(end.state, JobState::kCancelled);
  ASSERT_EQ(end.volumes.size(), 2u) << "also the one that is discarded: it was held";
  EXPECT_EQ(store_.Get(end.volumes[1])->state, VolumeState::kHeld);
  EXPECT_FALSE(VolumeOf(end, 1).empty());
  ASSERT_THAT(store_.Discard(end.volumes[1], Reason::kDiscarded, "test"), IsOk());
  Await([&] { return ledger_.UseOf(0).granted() == 0; });
  port->Disconnect(connection);
}

TEST_P(TomographyJobTest, ASeriesThatCannotBeIsRefused) {
  TomographySpec spec = Spec(TomographyAlgorithm::kFbp, 1);
  spec.series = model::VolumeSeriesSpec{.projections = kAngles + 1, .step = 1};
  EXPECT_THAT(Submit(spec), IsError(absl::StatusCode::kInvalidArgument,
                                    "tomography.series.projections: is 61, and the job uses 60"));
  // Also of pushed frames, all of which could be projections; a volume needs fewer than all.
  spec.angles_rad.clear();
  spec.input = PushedProjectionsSpec{.rows = 1, .columns = 8, .frames = 6000, .dtype = DType::kU8};
  spec.preparation.config.minus_log = false;
  spec.center = {};
  spec.series = model::VolumeSeriesSpec{.projections = 100, .step = 1};
  EXPECT_THAT(Submit(spec),
              IsError(absl::StatusCode::kInvalidArgument, "tomography.series.step: is 1"));
  // Between the windows projections are left out: a warning.
  TomographySpec gaps = Spec(TomographyAlgorithm::kFbp, 1);
  gaps.series = model::VolumeSeriesSpec{.projections = 20, .step = 40};
  const JobStatus job = Run(gaps);
  EXPECT_EQ(job.volumes.size(), 2u);
  EXPECT_TRUE(std::any_of(job.warnings.begin(), job.warnings.end(), [](const std::string& text) {
    return text.find("20 projections are left out") != std::string::npos;
  }));
}

// A subscriber views planes while the projections arrive, and one of the allocations for them
// fails: the job goes on without planes, and they leave nothing of its reservation behind.
TEST_P(TomographyJobTest, PreviewsThatFailLeaveTheWorkspaceAsItWas) {
  const std::vector<float> wanted = VolumeOf(Run(Spec(TomographyAlgorithm::kFbp, 1)));
  TomographySpec spec = Spec(TomographyAlgorithm::kFbp, 1);
  spec.angles_rad.clear();
  spec.input = PushedProjectionsSpec{
      .rows = kRows, .columns = kColumns, .frames = kAngles, .dtype = DType::kF32};
  int64_t failed = 0, told = 0;
  for (bool fails = true; fails; ++failed) {
    ASSERT_OK_AND_ASSIGN(const JobStatus pushed, Submit(spec));
    ASSERT_OK_AND_ASSIGN(const auto port, queue_->ProjectionPortOf(pushed.name));
    Await([&] { return queue_->Get(pushed.name)->stage == job::JobStage::kProjections; });
    const int64_t connection = port->Connect();
    AllocationFault::Arm(failed + 1);
    SubscribeSpec look;
    look.parent = pushed.name;
    look.products = {Product::kBscan};
    look.axis = FrameAxis::kY;
    ASSERT_OK_AND_ASSIGN(const auto subscription, publisher_.Subscribe(look, [] {}));
    Push(*port, connection, 0, kAngles / 2);
    bool seen = false;
    Await([&] {
      for (Delivered delivered; subscription->Take(&delivered);) seen |= !delivered.frame->complete;
      return seen || !AllocationFault::Pending();
    });
    fails = !AllocationFault::Pending();
    AllocationFault::Arm(0);
    Push(*port, connection, kAngles / 2, kAngles);
    const JobStatus end = Wait(pushed.name);
    EXPECT_EQ(end.state, JobState::kDone) << end.reason << ", allocation " << failed;
    EXPECT_EQ(VolumeOf(end), wanted);
    const bool ended = std::any_of(end.log.begin(), end.log.end(), [](const JobLogLine& line) {
      return line.text.find("no planes are shown before") != std::string::npos;
    });
    told += ended;
    EXPECT_TRUE(fails || !ended);
    EXPECT_FALSE(ended && seen) << "allocation " << failed;
    // Without the memory of one picture, the next one comes all the same.
    for (Delivered delivered; subscription->Take(&delivered);) seen = true;
    EXPECT_TRUE(seen) << "allocation " << failed;
    port->Disconnect(connection);
    ASSERT_THAT(store_.Discard(end.volumes[0], Reason::kDiscarded, "test"), IsOk());
  }
  EXPECT_GT(told, 10);
}

TEST_P(TomographyJobTest, SmallMemoryMeansSmallBatches) {
  // A volume of 24 slices; only a few of them fit beside the result.
  WriteMany(24);
  TomographySpec spec = Spec(TomographyAlgorithm::kSirt, 2);
  spec.input = ProjectionFileSpec{.path = "many.npy", .options = {}};
  const auto all = Run(spec);
  const std::vector<float> wanted = VolumeOf(all);
  const int64_t large = std::get<TomographyReport>(all.finding).slices_per_batch;
  ASSERT_THAT(store_.Discard(all.volumes[0], Reason::kDiscarded, "test"), IsOk());

  const int64_t leave =
      24 * kColumns * kColumns * 4 + (all.memory_bytes - 24 * kColumns * kColumns * 4) / 2;
  const auto taken = ledger_.Reserve(
      0, "somebody", "",
      {{.kind = model::NeedKind::kBuffer, .bytes = ledger_.UseOf(0).free() - leave, .count = 1}},
      nullptr);
  ASSERT_THAT(taken, IsOk());
  const auto small = Run(spec);
  EXPECT_LT(std::get<TomographyReport>(small.finding).slices_per_batch, large);
  const std::vector<float> made = VolumeOf(small);
  ASSERT_EQ(made.size(), wanted.size());
  for (size_t i = 0; i < made.size(); ++i) ASSERT_NEAR(made[i], wanted[i], 1e-6);
  ledger_.Release((*taken)[0]);
}

// A range of rows at one edge of the detector: the batch that reads most rows is not the middle
// one.
TEST_P(TomographyJobTest, MarginsAtOneEdgeOfTheDetector) {
  WriteMany(24);
  TomographySpec spec = Spec(TomographyAlgorithm::kFbp, 1);
  spec.input = ProjectionFileSpec{.path = "many.npy", .options = {}};
  spec.preparation.config.outliers = {.window = 7, .difference = 1e6};
  for (const IndexRange rows : {IndexRange{.begin = 0, .end = 8, .step = 0},
                                IndexRange{.begin = 16, .end = 24, .step = 0}}) {
    spec.rows = rows;
    spec.slices_per_batch = 4;
    const JobStatus job = Run(spec);
    spec.slices_per_batch = 8;
    EXPECT_EQ(VolumeOf(job), VolumeOf(Run(spec)));
  }
}

TEST_P(TomographyJobTest, RefusesWhatCannotBe) {
  const auto refused = [&](auto change, const std::string& field) {
    TomographySpec spec = Spec(TomographyAlgorithm::kSirt, 2);
    change(spec);
    const auto job = Submit(spec);
    EXPECT_FALSE(job.ok()) << field;
    EXPECT_EQ(InfoOf(job.status()).field, field) << job.status();
  };
  refused([](TomographySpec& s) { s.rows = {.begin = 7, .end = 0, .step = 0}; },
          "tomography.rows.begin");
  refused([](TomographySpec& s) { s.rows = {.begin = 0, .end = 8, .step = 0}; },
          "tomography.rows.end");
  refused([](TomographySpec& s) { s.center.pixels = {1, 2}; }, "tomography.center.pixels");
  refused([](TomographySpec& s) { s.center.row = 99; }, "tomography.center.row");
  refused([](TomographySpec& s) { s.reconstruction.relaxation = 3; },
          "tomography.reconstruction.relaxation");
  refused(
      [](TomographySpec& s) {
        s.preparation.config.rings = {{.method = RingMethod::kLargeStripe, .snr = -1}};
      },
      "tomography.preparation.rings[0].snr");
  refused(
      [](TomographySpec& s) { s.input = ProjectionFileSpec{.path = "none.npy", .options = {}}; },
      "tomography.file.path");
  refused(
      [](TomographySpec& s) { s.input = ProjectionFileSpec{.path = "/etc/passwd", .options = {}}; },
      "tomography.file.path");
  refused([](TomographySpec& s) { s.reconstruction.form = TomographyForm::kTomopy; },
          "tomography.center");
  // What a push cannot become is refused before its first frame.
  const auto pushed = [&](int64_t columns, int64_t frames, IndexRange projections) {
    return [=](TomographySpec& s) {
      s.angles_rad.clear();
      s.center = {};
      s.rows = s.columns = {};
      s.projections = projections;
      s.input = PushedProjectionsSpec{
          .rows = 1, .columns = columns, .frames = frames, .dtype = DType::kU8};
    };
  };
  refused(pushed(16, 65'536, {}), "tomography.push.frames");
  refused(pushed(16, 1'000'000, {.begin = 0, .end = 0, .step = 15}), "tomography.push.frames");
  refused(pushed(16, 90'000, {.begin = 10, .end = 65'546, .step = 1}), "tomography.push.frames");
  refused(pushed(16, 90'000, {.begin = 90'000, .end = 0, .step = 2}),
          "tomography.projections.begin");
  EXPECT_EQ(ledger_.UseOf(0).granted(), 0);
}

// Projections in any order, from both sides, with some columns cut off: the axis counts in columns
// of the whole detector.
TEST_P(TomographyJobTest, TheAxisIsFoundWhateverTheOrder) {
  std::mt19937 random(octavo::testing::FreshSeed());
  std::vector<int64_t> order(kAngles);
  std::iota(order.begin(), order.end(), int64_t{0});
  std::shuffle(order.begin(), order.end(), random);
  std::vector<float> shuffled;
  TomographySpec spec = Spec(TomographyAlgorithm::kFbp, 1);
  spec.angles_rad.clear();
  for (const int64_t i : order) {
    const auto begin = sinograms_.begin() + i * kRows * kColumns;
    shuffled.insert(shuffled.end(), begin, begin + kRows * kColumns);
    spec.angles_rad.push_back(angles_[static_cast<size_t>(i)]);
  }
  Write("shuffled.npy", "<f4", shuffled.data(), shuffled.size() * 4, {kAngles, kRows, kColumns});
  spec.input = ProjectionFileSpec{.path = "shuffled.npy", .options = {}};
  spec.center = {.pixels = {}, .find = true, .automatic = true};
  spec.center.search.method = CenterMethod::kPairs;
  spec.columns = {.begin = 3, .end = 0, .step = 0};
  const JobStatus job = Run(spec);
  const auto report = std::get<TomographyReport>(job.finding);
  ASSERT_EQ(report.centers.size(), 1u);
  EXPECT_NEAR(report.centers[0], kAxis, 0.25);
  EXPECT_EQ(report.center_source, model::CenterSource::kPairs);
  EXPECT_NEAR(report.center_check, kAxis, 1);
  EXPECT_GT(report.center_uncertainty, 0);
  EXPECT_LT(report.center_uncertainty, 0.5);
  EXPECT_THAT(job.warnings, ::testing::IsEmpty());
}

// Each row has its own offset in each projection, so there is no axis.
TEST_P(TomographyJobTest, AnAxisInDoubtIsToldOrFailsTheJob) {
  std::mt19937 random(octavo::testing::FreshSeed());
  std::normal_distribution<float> normal(1, 0.2f);
  std::vector<float> noise(sinograms_.size());
  for (float& value : noise) value = normal(random);
  Write("noise.npy", "<f4", noise.data(), noise.size() * 4, {kAngles, kRows, kColumns});
  TomographySpec spec = Spec(TomographyAlgorithm::kFbp, 1);
  spec.input = ProjectionFileSpec{.path = "noise.npy", .options = {}};
  spec.center = {.pixels = {}, .find = true, .automatic = true};
  spec.center.search.method = CenterMethod::kPairs;
  const JobStatus warned = Run(spec);
  EXPECT_THAT(warned.warnings, ::testing::Not(::testing::IsEmpty()));
  EXPECT_THAT(warned.warnings[0], HasSubstr("The axis"));
  spec.center.fail_on_doubt = true;
  const auto job = Submit(spec);
  ASSERT_THAT(job, IsOk());
  const JobStatus failed = Wait(job->name);
  EXPECT_EQ(failed.state, JobState::kFailed);
  EXPECT_THAT(failed.reason, HasSubstr("tomography.center: The axis"));
  EXPECT_TRUE(failed.volumes.empty());
  EXPECT_EQ(std::get<TomographyReport>(failed.finding).centers.size(), 1u)
      << "what was found is told all the same";
}

TEST_P(TomographyJobTest, NegativeDataFailTheJobAndLeaveNothing) {
  std::vector<float> bad = sinograms_;
  bad[5] = -1;
  Write("bad.npy", "<f4", bad.data(), bad.size() * 4, {kAngles, kRows, kColumns});
  TomographySpec spec = Spec(TomographyAlgorithm::kMlem, 2);
  spec.input = ProjectionFileSpec{.path = "bad.npy", .options = {}};
  const auto job = Submit(spec);
  ASSERT_THAT(job, IsOk());
  const JobStatus end = Wait(job->name);
  EXPECT_EQ(end.state, JobState::kFailed);
  EXPECT_THAT(end.reason, HasSubstr("negative"));
  Await([&] { return ledger_.UseOf(0).granted() == 0; });
}

INSTANTIATE_TEST_SUITE_P(Backends, TomographyJobTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine
