#include "server/engine/device_benchmark.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/device/fft_length.h"
#include "gpu/spectral/spectral.h"
#include "gpu/spectral/spectral_design.h"
#include "server/engine/device_benchmark_reference.h"
#include "server/storage/commit/commit_store.h"

namespace octavo::engine {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint32_t kPoison = 0xA5A5A5A5u;
constexpr int64_t kCopies = 8, kLaunches = 256;
constexpr int kCheckedAscans = 6;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

absl::Status Wrong(const std::string& what) {
  return WithInfo(absl::DataLossError(absl::StrCat(what, "; no figure is told of a wrong output")),
                  {.reason = Reason::kMeasurementWrong, .field = "", .numbers = {}});
}

struct Rounds {
  double median = 0;  // seconds
  int64_t count = 0;
};

/// Runs `round`, which enqueues and waits, once to warm up, then for `seconds` and at least 5
/// times.
template <class F>
absl::StatusOr<Rounds> Measure(double seconds, const MayGoOn& may_go_on, F round) {
  OCTAVO_RETURN_IF_ERROR(round());
  std::vector<double> times;
  for (const auto begin = Clock::now(); times.size() < 5 || SecondsSince(begin) < seconds;) {
    OCTAVO_RETURN_IF_ERROR(may_go_on());
    const auto start = Clock::now();
    OCTAVO_RETURN_IF_ERROR(round());
    times.push_back(SecondsSince(start));
  }
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  return Rounds{.median = times[times.size() / 2], .count = std::ssize(times)};
}

SpectralConfig Chain(const MeasureSpec& spec, bool dispersion, math::Packing packing) {
  const int64_t samples = spec.samples;
  SpectralConfig c;
  c.samples_per_record = samples;
  c.packing = packing;
  c.max_records_per_block = spec.records;
  c.interpolation = math::Interpolation::kCubic;
  for (int64_t j = 0; j < samples; ++j) {
    const double u = static_cast<double>(j) / static_cast<double>(samples - 1);
    c.k_index.push_back(std::min(u + 0.05 * u * (1 - u), 1.0) * static_cast<double>(samples - 1));
  }
  c.window = MakeWindow(WindowKind::kHann, samples);
  if (dispersion) c.phase_rad = MakeDispersionPhase(2e-5, 0, samples);
  c.fft_length = NextFastLength(samples);
  c.depth = c.fft_length / 2;
  c.background = math::Background::kStatic;
  c.background_spectrum.assign(static_cast<size_t>(samples), 2000.0f);
  c.output = DType::kU8;
  c.has_levels = true;
  c.level_lo = -20;
  c.level_hi = 60;
  return c;
}

class Bench {
 public:
  Bench(Device& device, const MeasureSpec& spec, const MayGoOn& may_go_on, const TellMeasured& tell)
      : device_(device),
        spec_(spec),
        may_go_on_(may_go_on),
        tell_(tell),
        bytes_(spec.records * spec.samples * 2) {}

  absl::Status Run() {
    OCTAVO_RETURN_IF_ERROR(Prepare());
    OCTAVO_RETURN_IF_ERROR(Copies());
    OCTAVO_RETURN_IF_ERROR(Launch());
    for (const bool dispersion : {true, false}) OCTAVO_RETURN_IF_ERROR(Resident(dispersion));
    for (const auto packing : {math::Packing::kNone, math::Packing::kLowFirst12})
      OCTAVO_RETURN_IF_ERROR(Streamed(packing));
    return absl::OkStatus();
  }

 private:
  absl::Status Prepare() {
    OCTAVO_ASSIGN_OR_RETURN(upload_, device_.NewStream(StreamPriority::kNormal));
    OCTAVO_ASSIGN_OR_RETURN(compute_, device_.NewStream(StreamPriority::kHigh));
    for (int i = 0; i < 2; ++i) {
      OCTAVO_ASSIGN_OR_RETURN(pinned_[i], device_.AllocatePinned(bytes_));
      OCTAVO_ASSIGN_OR_RETURN(on_device_[i], device_.Allocate(bytes_));
      OCTAVO_ASSIGN_OR_RETURN(uploaded_[i], device_.NewEvent());
      OCTAVO_ASSIGN_OR_RETURN(used_[i], device_.NewEvent());
    }
    std::mt19937_64 random(std::random_device{}());
    auto* raw = pinned_[0].as<uint16_t>();
    for (int64_t i = 0; i < bytes_ / 2; ++i) raw[i] = static_cast<uint16_t>(random() & 4095);
    std::memcpy(pinned_[1].data(), raw, static_cast<size_t>(bytes_));
    records_.assign(raw, raw + bytes_ / 2);
    for (int i = 0; i < kCheckedAscans; ++i) {
      checked_.push_back(
          i == 0   ? 0
          : i == 1 ? spec_.records - 1
                   : static_cast<int64_t>(random() % static_cast<uint64_t>(spec_.records)));
    }
    OCTAVO_ASSIGN_OR_RETURN(volume_,
                            device_.Allocate(spec_.records * NextFastLength(spec_.samples) / 2));
    OCTAVO_ASSIGN_OR_RETURN(mip_, device_.Allocate(spec_.records));
    return absl::OkStatus();
  }

  // Ceilings: bytes over the link, each way, and within the device.
  absl::Status Copies() {
    const auto rate = [&](const Rounds& rounds, double per_copy) {
      return static_cast<double>(kCopies) * per_copy * static_cast<double>(bytes_) / rounds.median *
             1e-9;
    };
    const std::string pieces =
        absl::StrCat("copies of ", bytes_ >> 10, " KiB, page-locked memory, back to back");
    OCTAVO_ASSIGN_OR_RETURN(
        const Rounds up, Measure(spec_.seconds, may_go_on_, [&]() -> absl::Status {
          for (int64_t i = 0; i < kCopies; ++i) {
            OCTAVO_RETURN_IF_ERROR(device_.CopyToDevice(upload_.ref(), on_device_[i % 2].data(),
                                                        pinned_[i % 2].data(), bytes_));
          }
          return upload_.ref().Synchronize();
        }));
    std::memset(pinned_[1].data(), 0xA5, static_cast<size_t>(bytes_));
    OCTAVO_ASSIGN_OR_RETURN(
        const Rounds down, Measure(spec_.seconds, may_go_on_, [&]() -> absl::Status {
          for (int64_t i = 0; i < kCopies; ++i) {
            OCTAVO_RETURN_IF_ERROR(device_.CopyToHost(upload_.ref(), pinned_[1].data(),
                                                      on_device_[i % 2].data(), bytes_));
          }
          return upload_.ref().Synchronize();
        }));
    OCTAVO_RETURN_IF_ERROR(SameBytes("the copies to the device and back"));
    OCTAVO_RETURN_IF_ERROR(device_.Fill(upload_.ref(), on_device_[1].data(), bytes_, kPoison));
    OCTAVO_ASSIGN_OR_RETURN(
        const Rounds within, Measure(spec_.seconds, may_go_on_, [&]() -> absl::Status {
          for (int64_t i = 0; i < kCopies; ++i) {
            OCTAVO_RETURN_IF_ERROR(device_.CopyOnDevice(upload_.ref(), on_device_[1].data(),
                                                        on_device_[0].data(), bytes_));
          }
          return upload_.ref().Synchronize();
        }));
    std::memset(pinned_[1].data(), 0xA5, static_cast<size_t>(bytes_));
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyToHost(upload_.ref(), pinned_[1].data(), on_device_[1].data(), bytes_));
    OCTAVO_RETURN_IF_ERROR(upload_.ref().Synchronize());
    OCTAVO_RETURN_IF_ERROR(SameBytes("the copies within the device"));
    upload_rate_ = rate(up, 1);
    device_rate_ = rate(within, 2);
    const std::string same = "every byte compared";
    OCTAVO_RETURN_IF_ERROR(Tell({.figure = Figure::kUpload,
                                 .included = pieces,
                                 .unit = "GB/s",
                                 .verified = same,
                                 .value = upload_rate_},
                                up));
    OCTAVO_RETURN_IF_ERROR(Tell({.figure = Figure::kDownload,
                                 .included = pieces,
                                 .unit = "GB/s",
                                 .verified = same,
                                 .value = rate(down, 1)},
                                down));
    return Tell({.figure = Figure::kDeviceCopy,
                 .included = "memory of the device, reads and writes counted",
                 .unit = "GB/s",
                 .verified = same,
                 .value = device_rate_},
                within);
  }

  absl::Status SameBytes(const std::string& what) {
    if (std::memcmp(pinned_[1].data(), records_.data(), static_cast<size_t>(bytes_)) == 0)
      return absl::OkStatus();
    return Wrong(absl::StrCat(what, " changed bytes"));
  }

  // The smallest job there is.
  absl::Status Launch() {
    uint32_t word = 0, round = 0;
    OCTAVO_ASSIGN_OR_RETURN(
        const Rounds rounds, Measure(spec_.seconds / 2, may_go_on_, [&]() -> absl::Status {
          ++round;
          for (int64_t i = 0; i < kLaunches; ++i)
            OCTAVO_RETURN_IF_ERROR(device_.Fill(compute_.ref(), mip_.data(), 16, 0x10000u + round));
          return compute_.ref().Synchronize();
        }));
    OCTAVO_RETURN_IF_ERROR(device_.CopyToHost(compute_.ref(), pinned_[1].data(), mip_.data(), 4));
    OCTAVO_RETURN_IF_ERROR(compute_.ref().Synchronize());
    std::memcpy(&word, pinned_[1].data(), 4);
    if (word != 0x10000u + round) return Wrong("the smallest job wrote another word");
    return Tell({.figure = Figure::kLaunch,
                 .included = absl::StrCat("a job of 16 bytes, ", kLaunches,
                                          " enqueued back to back, waited for once"),
                 .unit = "us",
                 .verified = "the word written",
                 .value = rounds.median / static_cast<double>(kLaunches) * 1e6},
                rounds);
  }

  static RecordPlacement InARow(int64_t records) {
    return {.raster = {.ascans_per_bscan = records,
                       .bscans_per_volume = 1,
                       .flyback_records = 0,
                       .bidirectional = false}};
  }
  SpectralTarget Target() {
    return {.volume = volume_.data(), .volume_ascans = spec_.records, .mip = mip_.data()};
  }
  int64_t BlocksOfRound() const { return device_.info().backend == "host" ? 1 : 16; }

  absl::Status Resident(bool dispersion) {
    const SpectralConfig config = Chain(spec_, dispersion, math::Packing::kNone);
    OCTAVO_ASSIGN_OR_RETURN(auto processor, SpectralProcessor::Create(config, device_));
    for (auto* from : {&on_device_[0], &on_device_[1]}) {
      std::memcpy(pinned_[0].data(), records_.data(), static_cast<size_t>(bytes_));
      OCTAVO_RETURN_IF_ERROR(
          device_.CopyToDevice(compute_.ref(), from->data(), pinned_[0].data(), bytes_));
    }
    OCTAVO_RETURN_IF_ERROR(Poison(config));
    const int64_t blocks = BlocksOfRound();
    OCTAVO_ASSIGN_OR_RETURN(
        const Rounds rounds, Measure(spec_.seconds, may_go_on_, [&]() -> absl::Status {
          for (int64_t i = 0; i < blocks; ++i) {
            const void* raw = on_device_[i % 2].data();
            OCTAVO_RETURN_IF_ERROR(processor->Process(compute_.ref(), raw, spec_.records,
                                                      InARow(spec_.records), Target()));
          }
          return compute_.ref().Synchronize();
        }));
    OCTAVO_RETURN_IF_ERROR(Check(config));
    const auto traffic = static_cast<double>(spec_.samples * 2 + config.depth + 1);
    Measured figure{
        .figure = dispersion ? Figure::kResident : Figure::kResidentNoDispersion,
        .included = absl::StrCat("records on the device, u16 -> u8: background, cubic k, window",
                                 dispersion ? " x dispersion" : "",
                                 ", transform, dB, levels, placement, MIP"),
        .unit = "A-scans/s",
        .ceiling_name = "device copy, each byte once",
        .verified = Verified(),
        .value = static_cast<double>(blocks * spec_.records) / rounds.median,
        .ceiling = device_rate_ * 1e9 / traffic};
    return Tell(std::move(figure), rounds, true);
  }

  absl::Status Streamed(math::Packing packing) {
    const SpectralConfig config = Chain(spec_, /*dispersion=*/true, packing);
    OCTAVO_ASSIGN_OR_RETURN(auto processor, SpectralProcessor::Create(config, device_));
    const int64_t record_bytes = RecordBytes(config), block_bytes = spec_.records * record_bytes;
    for (auto& slot : pinned_) {
      if (packing == math::Packing::kNone) {
        std::memcpy(slot.data(), records_.data(), static_cast<size_t>(bytes_));
        continue;
      }
      std::memset(slot.data(), 0, static_cast<size_t>(block_bytes));
      for (int64_t r = 0; r < spec_.records; ++r) {
        for (int64_t j = 0; j < spec_.samples; ++j) {
          math::WritePacked12(packing, slot.as<uint8_t>() + r * record_bytes, j,
                              records_[static_cast<size_t>(r * spec_.samples + j)]);
        }
      }
    }
    OCTAVO_RETURN_IF_ERROR(Poison(config));
    const int64_t blocks = 2 * BlocksOfRound();
    OCTAVO_ASSIGN_OR_RETURN(
        const Rounds rounds, Measure(spec_.seconds, may_go_on_, [&]() -> absl::Status {
          for (int64_t i = 0; i < blocks; ++i) {
            const auto b = static_cast<size_t>(i % 2);
            OCTAVO_RETURN_IF_ERROR(used_[b].EnqueueWait(upload_.ref()));
            OCTAVO_RETURN_IF_ERROR(device_.CopyToDevice(upload_.ref(), on_device_[b].data(),
                                                        pinned_[b].data(), block_bytes));
            OCTAVO_RETURN_IF_ERROR(uploaded_[b].Record(upload_.ref()));
            OCTAVO_RETURN_IF_ERROR(uploaded_[b].EnqueueWait(compute_.ref()));
            OCTAVO_RETURN_IF_ERROR(processor->Process(compute_.ref(), on_device_[b].data(),
                                                      spec_.records, InARow(spec_.records),
                                                      Target()));
            OCTAVO_RETURN_IF_ERROR(used_[b].Record(compute_.ref()));
          }
          return compute_.ref().Synchronize();
        }));
    OCTAVO_RETURN_IF_ERROR(Check(config));
    const bool packed = packing != math::Packing::kNone;
    return Tell(
        {.figure = packed ? Figure::kStreamedPacked : Figure::kStreamed,
         .included = "upload of every block from page-locked memory beside the chain as resident",
         .unit = "A-scans/s",
         .ceiling_name = "upload",
         .verified = Verified(),
         .value = static_cast<double>(blocks * spec_.records) / rounds.median,
         .ceiling = upload_rate_ * 1e9 / static_cast<double>(record_bytes)},
        rounds, true);
  }

  absl::Status Poison(const SpectralConfig& config) {
    OCTAVO_RETURN_IF_ERROR(
        device_.Fill(compute_.ref(), volume_.data(), spec_.records * config.depth, kPoison));
    return device_.Fill(compute_.ref(), mip_.data(), spec_.records, kPoison);
  }

  // The output of the last timed round: some A-scans against the model, every projection against
  // its A-scan.
  absl::Status Check(const SpectralConfig& config) {
    std::vector<uint8_t> volume(static_cast<size_t>(spec_.records * config.depth)),
        mip(static_cast<size_t>(spec_.records));
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyToHost(compute_.ref(), volume.data(), volume_.data(), std::ssize(volume)));
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyToHost(compute_.ref(), mip.data(), mip_.data(), std::ssize(mip)));
    OCTAVO_RETURN_IF_ERROR(compute_.ref().Synchronize());
    if (Failpoint("measured_output") != 0) volume[0] = static_cast<uint8_t>(volume[0] ^ 64);
    for (const int64_t r : checked_) {
      const auto model = ReferenceAscan(config, records_.data() + r * spec_.samples);
      for (int64_t z = 0; z < config.depth; ++z) {
        const double wanted = std::clamp(std::round(model[static_cast<size_t>(z)]), 0.0, 255.0);
        const double got = volume[static_cast<size_t>(r * config.depth + z)];
        if (std::abs(got - wanted) > 1) {
          return Wrong(absl::StrCat("A-scan ", r, " depth ", z, " is ", got,
                                    ", the model in double precision says ", wanted));
        }
      }
    }
    for (int64_t r = 0; r < spec_.records; ++r) {
      const auto* ascan = volume.data() + r * config.depth;
      if (mip[static_cast<size_t>(r)] != *std::max_element(ascan, ascan + config.depth))
        return Wrong(absl::StrCat("the projection of A-scan ", r, " is not its maximum"));
    }
    return absl::OkStatus();
  }
  std::string Verified() const {
    return absl::StrCat(checked_.size(),
                        " A-scans of the timed output within 1 count of the double-precision "
                        "model, all projections exact");
  }

  absl::Status Tell(Measured figure, const Rounds& rounds, bool chain = false) {
    figure.rounds = rounds.count;
    figure.seconds_per_round = rounds.median;
    if (chain) {
      figure.samples = spec_.samples;
      figure.records = spec_.records;
    }
    return tell_(figure);
  }

  Device& device_;
  const MeasureSpec spec_;
  const MayGoOn& may_go_on_;
  const TellMeasured& tell_;
  const int64_t bytes_;  // of a block of u16
  std::vector<uint16_t> records_;
  std::vector<int64_t> checked_;
  PinnedBuffer pinned_[2];
  DeviceBuffer on_device_[2], volume_, mip_;
  Event uploaded_[2], used_[2];
  Stream upload_, compute_;  // last: their destructors wait for work that uses the rest
  double upload_rate_ = 0, device_rate_ = 0;
};

}  // namespace

absl::Status ResolveMeasure(MeasureSpec* spec, const Device& device) {
  if (spec->samples == 0) spec->samples = 1024;
  if (spec->samples < 64 || spec->samples > 16384)
    return FieldNotAllowed("samples", spec->samples, "0 (1024) or 64 to 16384");
  if (spec->records == 0)
    spec->records = std::clamp<int64_t>(
        (device.info().backend == "host" ? 4096 : 16384) * 1024 / spec->samples, 64, 262144);
  if (spec->records < 16 || spec->records > 262144)
    return FieldNotAllowed("records_per_block", spec->records, "0 or 16 to 262144");
  if (spec->records * spec->samples * 2 > int64_t{512} << 20) {
    return InvalidField("records_per_block",
                        absl::StrCat("is ", spec->records, "; a block of records of ",
                                     spec->samples, " samples may have 512 MiB"));
  }
  if (spec->seconds == 0) spec->seconds = 0.5;
  if (!(spec->seconds >= 0.01 && spec->seconds <= 10))
    return FieldNotAllowed("duration", spec->seconds, "unset (0.5 s) or 0.01 to 10 s");
  return absl::OkStatus();
}

int64_t MeasureBytes(const MeasureSpec& spec, Device& device) {
  const int64_t chain =
      std::max(SpectralProcessor::DeviceBytes(Chain(spec, true, math::Packing::kNone), device),
               SpectralProcessor::DeviceBytes(Chain(spec, false, math::Packing::kNone), device));
  return 2 * spec.records * spec.samples * 2 +
         spec.records * (NextFastLength(spec.samples) / 2 + 1) + 4 * 4096 + chain;
}

absl::Status MeasureDevice(Device& device, const MeasureSpec& resolved, const MayGoOn& may_go_on,
                           const TellMeasured& tell) {
  return Bench(device, resolved, may_go_on, tell).Run();
}

}  // namespace octavo::engine
