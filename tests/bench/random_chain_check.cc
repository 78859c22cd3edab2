#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/math/half.h"
#include "tests/bench/bench_basics.h"
#include "tests/bench/random_chain.h"
#include "tests/bench/random_chain_model.h"

namespace octavo::bench {
namespace {

using math::Value;

constexpr uint8_t kUntouched = 0xA5;
constexpr int64_t kGuard = 256;  // bytes behind each output

// -- the device's side

/// The contents of the targets of all volumes after a run, including guards.
struct Result {
  std::vector<std::vector<uint8_t>> volumes, mips, aips;
  std::vector<std::array<uint64_t, 2>> clipped;
  bool operator==(const Result&) const = default;
};

DeviceBuffer Untouched(Device& device, StreamRef stream, int64_t bytes) {
  DeviceBuffer buffer = Take(device.Allocate(bytes + kGuard));
  Ok(device.Fill(stream, buffer.data(), bytes + kGuard, 0x01010101u * kUntouched));
  return buffer;
}
std::vector<uint8_t> Fetched(Device& device, StreamRef stream, const DeviceBuffer& buffer) {
  std::vector<uint8_t> bytes(static_cast<size_t>(buffer.bytes()));
  Ok(device.CopyToHost(stream, bytes.data(), buffer.data(), buffer.bytes()));
  Ok(stream.Synchronize());
  return bytes;
}

/// Runs a chain of bad records, whose leftovers fill the plan's memory.
void RunJunk(const RandomChain& s, Device& device, StreamRef stream, SpectralProcessor& processor) {
  const SpectralConfig& c = s.config;
  // Repeats are summed into the same place; some neighbouring A-scans have one place each.
  const int64_t across = s.raster.ascans_per_bscan,
                records = std::min({c.max_records_per_block, s.records,
                                    c.repeats > 1 ? c.repeat_ascans : s.records}),
                lines = (records + across - 1) / across;
  const DeviceBuffer raw = Take(device.Allocate(records * RecordBytes(c))),
                     volume = Take(device.Allocate(lines * across * c.depth * SizeOf(c.output)));
  Ok(device.Fill(stream, raw.data(), records * RecordBytes(c),
                 0xFFFFFFFFu));  // NaN, saturated, or -1
  const SpectralTarget target{.volume = volume.data(), .volume_ascans = lines * across};
  Ok(processor.BeginVolume(stream));
  Ok(processor.Process(stream, raw.data(), records,
                       {.raster = {.ascans_per_bscan = across,
                                   .bscans_per_volume = lines,
                                   .flyback_records = 0,
                                   .bidirectional = false}},
                       target));
  Ok(processor.EndVolume(stream));
  Ok(stream.Synchronize());
}

Result RunChain(const RandomChain& s, const std::vector<int64_t>& cuts, bool junk, Device& device) {
  auto plan = Take(SpectralProcessor::Create(s.config, device));
  SpectralProcessor& processor = *plan;
  const SpectralConfig& c = s.config;
  const int64_t record_bytes = RecordBytes(c), depth_bytes = c.depth * SizeOf(c.output);
  Stream owned = Take(device.NewStream(StreamPriority::kNormal));
  const StreamRef stream = owned.ref();
  if (junk) RunJunk(s, device, stream, processor);
  const DeviceBuffer places = Take(device.Allocate(s.records * 4));
  Ok(device.CopyToDevice(stream, places.data(), s.places.data(), s.records * 4));
  Result result;
  std::vector<DeviceBuffer> volumes, mips, aips, clipped;
  for (int64_t v = 0; v < s.volumes; ++v) {
    volumes.push_back(Untouched(device, stream, s.ascans * depth_bytes));
    mips.push_back(Untouched(device, stream, s.ascans * SizeOf(ProjectionOf(c.output))));
    aips.push_back(Untouched(device, stream, s.ascans * 4));
    clipped.push_back(Take(device.Allocate(16)));
    Ok(device.Fill(stream, clipped.back().data(), 16, 0));
  }
  const auto target_of = [&](int64_t v) {
    const auto i = static_cast<size_t>(v);
    return SpectralTarget{.volume = volumes[i].data(),
                          .volume_ascans = s.volume_ascans,
                          .mip = s.mip ? mips[i].data() : nullptr,
                          .aip = s.aip ? aips[i].as<float>() : nullptr,
                          .clipped = clipped[i].as<uint64_t>()};
  };
  int64_t begin = 0;
  for (const int64_t end : cuts) {
    const int64_t bytes = s.shift + (end - begin) * record_bytes;
    const DeviceBuffer block = Take(device.Allocate(bytes + 64));
    Ok(device.Fill(stream, block.data(), (bytes + 64) / 4 * 4, 0xFFFFFFFFu));
    uint8_t* const raw = block.as<uint8_t>() + s.shift;
    Ok(device.CopyToDevice(stream, raw, s.raw.data() + begin * record_bytes,
                           (end - begin) * record_bytes));
    for (int64_t at = begin; at < end;) {
      const int64_t volume = at / s.records, first = at - volume * s.records;
      if (first == 0) Ok(processor.BeginVolume(stream));
      int64_t stop = at;
      while (stop < end && stop < (volume + 1) * s.records && !s.missing[static_cast<size_t>(stop)])
        ++stop;
      if (stop > at) {
        RecordPlacement placement{
            .raster = s.raster, .volume = volume + (junk ? 1 : 0), .first_record = first};
        if (s.table) placement.table = places.as<int32_t>() + first;
        if (s.table)
          placement.spans = s.spans.data(),
          placement.span_count = static_cast<int64_t>(s.spans.size());
        Ok(processor.Process(stream, raw + (at - begin) * record_bytes, stop - at, placement,
                             target_of(volume)));
      }
      at = std::max(stop, at + (stop == at ? 1 : 0));
      if (at == (volume + 1) * s.records) Ok(processor.EndVolume(stream));
    }
    Ok(stream.Synchronize());
    begin = end;
  }
  for (int64_t v = 0; v < s.volumes; ++v) {
    result.volumes.push_back(Fetched(device, stream, volumes[static_cast<size_t>(v)]));
    result.mips.push_back(Fetched(device, stream, mips[static_cast<size_t>(v)]));
    result.aips.push_back(Fetched(device, stream, aips[static_cast<size_t>(v)]));
    std::memcpy(&result.clipped.emplace_back(),
                Fetched(device, stream, clipped[static_cast<size_t>(v)]).data(), 16);
  }
  return result;
}

// -- comparison

double NumberAt(DType dtype, const uint8_t* memory, int64_t i) {
  const auto read = [&](auto v) {
    std::memcpy(&v, memory + i * static_cast<int64_t>(sizeof v), sizeof v);
    return v;
  };
  switch (dtype) {
    case DType::kU8: return read(uint8_t{});
    case DType::kI8: return read(int8_t{});
    case DType::kU16: return read(uint16_t{});
    case DType::kF16: return static_cast<double>(math::HalfToFloat(read(uint16_t{})));
    default: return static_cast<double>(read(float{}));
  }
}

class Checker {
 public:
  Checker(const RandomChain& chain, const Result& result, ChainReport* report)
      : s_(chain), c_(chain.config), result_(result), model_(chain), report_(*report) {}

  void Run() {
    for (int64_t v = 0; v < s_.volumes; ++v) {
      std::vector<std::vector<int64_t>> came(static_cast<size_t>(s_.ascans));
      for (int64_t r = 0; r < s_.records; ++r) {
        const int32_t place = s_.places[static_cast<size_t>(r)];
        if (place >= 0 && place < s_.volume_ascans &&
            !s_.missing[static_cast<size_t>(v * s_.records + r)]) {
          came[static_cast<size_t>(place)].push_back(v * s_.records + r);
        }
      }
      const auto& volume = result_.volumes[static_cast<size_t>(v)];
      const int64_t ascan_bytes = c_.depth * SizeOf(c_.output);
      for (int64_t a = 0; a < s_.ascans; ++a) {
        where_ = absl::StrCat("volume ", v, " A-scan ", a);
        if (came[static_cast<size_t>(a)].empty()) {
          Still(volume, a * ascan_bytes, ascan_bytes, "was not to be written");
          continue;
        }
        Ascan(volume.data() + a * ascan_bytes, came[static_cast<size_t>(a)]);
        Projections(volume.data() + a * ascan_bytes, v, a);
      }
      where_ = absl::StrCat("volume ", v);
      for (size_t end = 0; end < 2; ++end) {
        const uint64_t got = result_.clipped[static_cast<size_t>(v)][end];
        auto& wanted = clipped_[end];
        if (got < wanted.least || got > wanted.most) {
          Wrong(absl::StrCat(got, " voxels counted as clipped ", end == 0 ? "below" : "above",
                             ", the model has ", wanted.least, " to ", wanted.most));
        }
        wanted = {};
      }
      Still(volume, s_.ascans * ascan_bytes, kGuard, "memory behind it was written");
      Still(result_.mips[static_cast<size_t>(v)],
            s_.mip ? s_.ascans * SizeOf(ProjectionOf(c_.output)) : 0, kGuard,
            "memory behind its MIP was written");
      Still(result_.aips[static_cast<size_t>(v)], s_.aip ? s_.ascans * 4 : 0, kGuard,
            "memory behind its AIP was written");
    }
  }

 private:
  void Wrong(const std::string& what) {
    if (report_.wrong.size() < 5) report_.wrong.push_back(absl::StrCat(where_, ": ", what));
  }
  void Still(const std::vector<uint8_t>& memory, int64_t begin, int64_t count, const char* what) {
    if (std::any_of(memory.begin() + begin, memory.begin() + begin + count,
                    [](uint8_t b) { return b != kUntouched; }))
      Wrong(what);
  }

  /// Value of a depth sample of magnitude m, before levels.
  double ValueOf(double m) const {
    m = std::max(m, 0.0);
    return c_.value == Value::kDb      ? 10 * std::log10(std::max(m * m, 1e-30))
           : c_.value == Value::kPower ? m * m
                                       : m;
  }
  struct Range {
    double lo, hi;
  };
  /// The stored form of a value between lo and hi before rounding to the element type.
  Range Levelled(double lo, double hi) const {
    const double bottom = static_cast<double>(LowestOf(c_.output)),
                 top = static_cast<double>(HighestOf(c_.output)),
                 range = IsInteger(c_.output) ? top - bottom : 1;
    double slack = 3e-7 * std::max(std::abs(lo), std::abs(hi)) +
                   (c_.value == Value::kDb ? 1e-4 : 0);  // rounding of the value itself
    if (c_.has_levels) {
      const double from = static_cast<double>(c_.level_lo),
                   scale = range / (static_cast<double>(c_.level_hi) - from);
      slack =
          slack * scale + 3e-7 * (std::abs(from) + std::max(std::abs(lo), std::abs(hi))) * scale;
      lo = bottom + (lo - from) * scale, hi = bottom + (hi - from) * scale;
    }
    return {lo - slack, hi + slack};
  }
  bool Holds(double got, Range range) const {
    if (IsInteger(c_.output)) {  // one count on either side of the rounded value
      const double bottom = static_cast<double>(LowestOf(c_.output)),
                   top = static_cast<double>(HighestOf(c_.output));
      range = {std::clamp(std::round(range.lo), bottom, top) - 1,
               std::clamp(std::round(range.hi), bottom, top) + 1};
    } else if (c_.output == DType::kF16) {
      const auto widened = [](double x, double sign) {
        x += sign * (std::abs(x) / 2048 + 6e-8);
        return std::abs(x) > 65504 ? std::copysign(std::numeric_limits<double>::infinity(), x) : x;
      };
      range = {widened(range.lo, -1), widened(range.hi, 1)};
    }
    return got >= range.lo && got <= range.hi;
  }

  /// The sample of a record, with one of its possible patterns subtracted.
  std::complex<double> Sample(int64_t record, size_t form, int64_t z) const {
    const auto& forms = model_.of(record).forms;
    return forms[std::min(form, forms.size() - 1)][static_cast<size_t>(z)];
  }
  double ErrorOf(const std::vector<int64_t>& records, int64_t z) const {
    double size = 0;
    for (const int64_t r : records)
      size = std::max(size, model_.of(r).size[static_cast<size_t>(z)]);
    return model_.ErrorOf(size);
  }
  Range RangeOf(const std::vector<int64_t>& records, size_t form, int64_t z) const {
    double error = ErrorOf(records, z), power = 0;
    if (c_.value == Value::kReal) {
      const double re = Sample(records[0], form, z).real();
      return Levelled(re - error, re + error);
    }
    for (const int64_t r : records)
      power += std::norm(Sample(r, form, z)) / static_cast<double>(records.size());
    const double m = std::sqrt(power);
    // 0.05 dB above -100 dB of full scale, for values without a subtracted pattern.
    if (c_.value == Value::kDb && m >= 1e-5 * s_.full_scale &&
        c_.fixed_pattern == math::FixedPattern::kNone)
      error = std::min(error, 0.0057 * m);
    return Levelled(ValueOf(m - error), ValueOf(m + error));
  }

  void Ascan(const uint8_t* ascan, const std::vector<int64_t>& records) {
    const bool complex = c_.output == DType::kC64;
    size_t forms = 1;
    for (const int64_t r : records) forms = std::max(forms, model_.of(r).forms.size());
    for (int64_t z = 0; z < c_.depth; ++z) {
      bool right = false;
      Range all{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
      for (size_t form = 0; form < forms; ++form) {
        if (complex) {
          const std::complex<double> got(NumberAt(DType::kF32, ascan, 2 * z),
                                         NumberAt(DType::kF32, ascan, 2 * z + 1));
          const double part = std::abs(got - Sample(records[0], form, z)) / ErrorOf(records, z);
          right = right || part <= 1;
          if (forms == 1 && part <= 1) report_.worst = std::max(report_.worst, part);
        } else {
          const Range range = RangeOf(records, form, z);
          right = right || Holds(NumberAt(c_.output, ascan, z), range);
          all = {std::min(all.lo, range.lo), std::max(all.hi, range.hi)};
        }
      }
      if (IsInteger(c_.output)) CountClipped(all);
      if (right || told_) continue;
      told_ = true;  // reports one depth per A-scan
      const auto wanted = Sample(records[0], 0, z);
      const std::string got = complex ? absl::StrCat(NumberAt(DType::kF32, ascan, 2 * z), " + ",
                                                     NumberAt(DType::kF32, ascan, 2 * z + 1), " i")
                                      : absl::StrCat(NumberAt(c_.output, ascan, z));
      Wrong(absl::StrCat("depth ", z, " is ", got, ", the model has ", wanted.real(), " + ",
                         wanted.imag(), " i of record ", records[0], " (", records.size(),
                         " in all)"));
    }
    told_ = false;
  }

  /// Counts the voxels that are certainly clipped, and those that may be: the last steps before
  /// rounding may be off by some hundredths of a count.
  void CountClipped(Range range) {
    constexpr double kNear = 0.05;
    const double below = static_cast<double>(LowestOf(c_.output)) - 0.5,
                 above = static_cast<double>(HighestOf(c_.output)) + 0.5;
    clipped_[0].least += range.hi <= below - kNear ? 1 : 0;
    clipped_[0].most += range.lo <= below + kNear ? 1 : 0;
    clipped_[1].least += range.lo >= above + kNear ? 1 : 0;
    clipped_[1].most += range.hi >= above - kNear ? 1 : 0;
  }

  /// Maximum and mean of the stored values, not of the model.
  void Projections(const uint8_t* ascan, int64_t volume, int64_t a) {
    double most = -std::numeric_limits<double>::infinity(), largest = 0, sum = 0;
    const int64_t begin = c_.slab_begin, end = c_.slab_end == 0 ? c_.depth : c_.slab_end;
    for (int64_t z = begin; z < end; ++z) {
      const double v = c_.output == DType::kC64
                           ? std::hypot(NumberAt(DType::kF32, ascan, 2 * z),
                                        NumberAt(DType::kF32, ascan, 2 * z + 1))
                           : NumberAt(c_.output, ascan, z);
      most = std::max(most, v);
      largest = std::max(largest, std::abs(v));
      sum += v;
    }
    if (s_.mip) {
      const double got =
          NumberAt(ProjectionOf(c_.output), result_.mips[static_cast<size_t>(volume)].data(), a);
      const bool same =
          got == most || (c_.output == DType::kC64 && std::abs(got - most) <= 1e-6 * most);
      if (!same) Wrong(absl::StrCat("MIP is ", got, ", its voxels have ", most));
    }
    if (s_.aip) {
      const double got = NumberAt(DType::kF32, result_.aips[static_cast<size_t>(volume)].data(), a),
                   mean = sum / static_cast<double>(end - begin);
      const bool same = got == mean || std::abs(got - mean) <= 1e-5 * largest;
      if (!same && std::isfinite(mean))
        Wrong(absl::StrCat("AIP is ", got, ", its voxels have ", mean));
    }
  }

  const RandomChain& s_;
  const SpectralConfig& c_;
  const Result& result_;
  const Model model_;
  ChainReport& report_;
  std::string where_;
  bool told_ = false;
  struct {
    uint64_t least = 0, most = 0;
  } clipped_[2];  // below, above; in the volume
};

}  // namespace

ChainReport CheckChain(const RandomChain& chain, Device& device) {
  ChainReport report;
  {
    const auto processor = Take(SpectralProcessor::Create(chain.config, device));
    report.description = processor->Describe();
    if (processor->device_bytes() > SpectralProcessor::DeviceBytes(chain.config, device)) {
      report.wrong.emplace_back("the plan takes more memory than it said");
    }
  }
  const auto has = [&](const char* words) {
    return report.description.find(words) != std::string::npos;
  };
  const bool host = device.info().backend == "host";
  report.form = host                        ? (has("Bluestein") ? "convolution" : "passes")
                : has("two A-scans as one") ? "fused pairs"
                : has("one launch")         ? "fused"
                : has("R2C")                ? "R2C"
                                            : "C2C";
  const bool remembers =
      chain.config.background == math::Background::kRolling;  // its backgrounds would contain junk
  const Result result = RunChain(chain, chain.cuts[0], false, device);
  Checker(chain, result, &report).Run();
  if (RunChain(chain, chain.cuts[0], !remembers, device) != result)
    report.wrong.emplace_back("a second run gave other bits");
  if (RunChain(chain, chain.cuts[1], !remembers, device) != result)
    report.wrong.emplace_back("blocks that end otherwise gave other bits");
  return report;
}

}  // namespace octavo::bench
