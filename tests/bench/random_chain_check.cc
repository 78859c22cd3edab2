#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tbb/parallel_for.h"

#include "gpu/math/half.h"
#include "tests/bench/bench_basics.h"
#include "tests/bench/random_chain.h"
#include "tests/gpu/spectral_model.h"

namespace octavo::bench {
namespace {

using Complexes = std::vector<std::complex<double>>;
using math::Value;

constexpr uint8_t kUntouched = 0xA5;
constexpr int64_t kGuard = 256;  // bytes behind each output

// -- the device's side

/// What a run left in the targets of all volumes, guards included.
struct Result {
  std::vector<std::vector<uint8_t>> volumes, mips, aips;
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

/// Ends a volume: older processors take its target, newer ones know it.
template <class Processor>
void EndVolume(Processor& processor, StreamRef stream, const SpectralTarget& target) {
  if constexpr (requires { processor.EndVolume(stream); }) {
    Ok(processor.EndVolume(stream));
  } else {
    Ok(processor.EndVolume(stream, target));
  }
}
template <class Processor>
void BeginBlock(Processor& processor, StreamRef stream, const void* raw, int64_t records) {
  if constexpr (requires { processor.BeginBlock(stream, raw, records); }) Ok(processor.BeginBlock(stream, raw, records));
}
template <class Placement>
void SetVolume(Placement& placement, int64_t volume) {
  if constexpr (requires { placement.volume; }) placement.volume = volume;
}

/// Fills a plan's memory with what a chain of bad records leaves there.
void RunJunk(const RandomChain& s, Device& device, StreamRef stream, SpectralProcessor& processor) {
  const SpectralConfig& c = s.config;
  // Repeats are summed in one place for each of some neighbouring A-scans.
  const int64_t across = s.raster.ascans_per_bscan,
                records = std::min({c.max_records_per_block, s.records, c.repeats > 1 ? c.repeat_ascans : s.records}),
                lines = (records + across - 1) / across;
  const DeviceBuffer raw = Take(device.Allocate(records * RecordBytes(c))),
                     volume = Take(device.Allocate(lines * across * c.depth * SizeOf(c.output)));
  Ok(device.Fill(stream, raw.data(), records * RecordBytes(c), 0xFFFFFFFFu));  // NaN, saturated, or -1
  const SpectralTarget target{.volume = volume.data(), .volume_ascans = lines * across};
  Ok(processor.BeginVolume(stream));
  Ok(processor.Process(stream, raw.data(), records,
                       {.raster = {.ascans_per_bscan = across, .bscans_per_volume = lines, .flyback_records = 0, .bidirectional = false}}, target));
  EndVolume(processor, stream, target);
  Ok(stream.Synchronize());
}

Result RunChain(const RandomChain& s, const std::vector<int64_t>& cuts, bool junk, Device& device) {
  auto plan = Take(SpectralProcessor::Create(s.config, device));
  SpectralProcessor& processor = *plan;
  const SpectralConfig& c = s.config;
  const int64_t record_bytes = RecordBytes(c), depth_bytes = c.depth * SizeOf(c.output);
  Stream owned = Take(device.NewStream(StreamPriority::kNormal));
  const StreamRef stream = owned.ref();
  if (junk && c.background != math::Background::kRolling) RunJunk(s, device, stream, processor);  // a rolling background would remember it
  const DeviceBuffer places = Take(device.Allocate(s.records * 4));
  Ok(device.CopyToDevice(stream, places.data(), s.places.data(), s.records * 4));
  Result result;
  std::vector<DeviceBuffer> volumes, mips, aips;
  for (int64_t v = 0; v < s.volumes; ++v) {
    volumes.push_back(Untouched(device, stream, s.ascans * depth_bytes));
    mips.push_back(Untouched(device, stream, s.ascans * SizeOf(ProjectionOf(c.output))));
    aips.push_back(Untouched(device, stream, s.ascans * 4));
  }
  const auto target_of = [&](int64_t v) {
    const auto i = static_cast<size_t>(v);
    return SpectralTarget{.volume = volumes[i].data(),
                          .volume_ascans = s.volume_ascans,
                          .mip = s.mip ? mips[i].data() : nullptr,
                          .aip = s.aip ? aips[i].as<float>() : nullptr};
  };
  int64_t begin = 0;
  for (const int64_t end : cuts) {
    const int64_t bytes = s.shift + (end - begin) * record_bytes;
    const DeviceBuffer block = Take(device.Allocate(bytes + 64));
    Ok(device.Fill(stream, block.data(), (bytes + 64) / 4 * 4, 0xFFFFFFFFu));
    uint8_t* const raw = block.as<uint8_t>() + s.shift;
    Ok(device.CopyToDevice(stream, raw, s.raw.data() + begin * record_bytes, (end - begin) * record_bytes));
    BeginBlock(processor, stream, raw, end - begin);
    for (int64_t at = begin; at < end;) {
      const int64_t volume = at / s.records, first = at - volume * s.records;
      if (first == 0) Ok(processor.BeginVolume(stream));
      int64_t stop = at;
      while (stop < end && stop < (volume + 1) * s.records && !s.missing[static_cast<size_t>(stop)]) ++stop;
      if (stop > at) {
        RecordPlacement placement{.raster = s.raster, .first_record = first};
        SetVolume(placement, volume + (junk ? 1 : 0));
        if (s.table) placement.table = places.as<int32_t>() + first;
        if (s.table) placement.spans = s.spans.data(), placement.span_count = static_cast<int64_t>(s.spans.size());
        Ok(processor.Process(stream, raw + (at - begin) * record_bytes, stop - at, placement, target_of(volume)));
      }
      at = std::max(stop, at + (stop == at ? 1 : 0));
      if (at == (volume + 1) * s.records) EndVolume(processor, stream, target_of(volume));
    }
    Ok(stream.Synchronize());
    begin = end;
  }
  for (int64_t v = 0; v < s.volumes; ++v) {
    result.volumes.push_back(Fetched(device, stream, volumes[static_cast<size_t>(v)]));
    result.mips.push_back(Fetched(device, stream, mips[static_cast<size_t>(v)]));
    result.aips.push_back(Fetched(device, stream, aips[static_cast<size_t>(v)]));
  }
  return result;
}

// -- the model's side

/// Complex depth samples of a record less its B-scan's pattern; where segments are about equally quiet, less either one's.
struct Modelled {
  std::vector<Complexes> forms;
  std::vector<double> size;  // [D]: |what was before| + |the pattern|: rounding is relative to that
};

class Model {
 public:
  Model(const RandomChain& chain, const std::vector<int64_t>& cuts) : s_(chain), c_(chain.config), cuts_(cuts) {
    // -140 dB of full scale; more of short transforms: sums of N rounded terms, 1/F.
    error_ = s_.full_scale * std::max(1e-7, 6e-7 * std::sqrt(static_cast<double>(c_.window.size())) / static_cast<double>(c_.fft_length));
    records_.resize(s_.missing.size());
    tbb::parallel_for(size_t{0}, records_.size(), [&](size_t r) {
      if (!s_.missing[r]) Transform(static_cast<int64_t>(r));
    });
    if (c_.fixed_pattern == math::FixedPattern::kNone) return;
    for (int64_t v = 0; v < s_.volumes; ++v) {
      for (const BscanSpan& span : s_.spans) LessPattern(v * s_.records + span.first_record, span.records);
    }
  }

  const Modelled& of(int64_t record) const { return records_[static_cast<size_t>(record)]; }
  /// How far a depth sample of `size` may be from the model's.
  double ErrorOf(double size) const { return error_ + 1.5e-6 * size; }

 private:
  std::vector<double> Values(int64_t record) const {
    const auto begin = s_.values.begin() + record * c_.samples_per_record;
    return {begin, begin + c_.samples_per_record};
  }
  /// Mean of those records that came.
  std::vector<double> Mean(int64_t begin, int64_t end) const {
    std::vector<double> mean(static_cast<size_t>(c_.samples_per_record), 0.0);
    double count = 0;
    for (int64_t r = begin; r < end; ++r) {
      if (s_.missing[static_cast<size_t>(r)]) continue;
      ++count;
      for (size_t j = 0; j < mean.size(); ++j) mean[j] += s_.values[static_cast<size_t>(r * c_.samples_per_record) + j];
    }
    for (double& v : mean) v /= std::max(count, 1.0);
    return mean;
  }
  /// Of groups of records the mean of the last records up to the group's end; of a block where there are no groups.
  template <class Config>
  std::vector<double> RollingOf(const Config& c, int64_t record) const {
    int64_t begin = 0, end = 0;
    if constexpr (requires { c.background_group_records; }) {
      const int64_t volume = record / s_.records * s_.records, group = c.background_group_records;
      begin = volume + (record - volume) / group * group;
      end = std::min(begin + group, volume + s_.records);
    } else {
      end = *std::upper_bound(cuts_.begin(), cuts_.end(), record);
    }
    if (c.background_window_records > 0) begin = std::max<int64_t>(0, end - c.background_window_records);
    return Mean(begin, end);
  }
  std::vector<double> BackgroundOf(int64_t record) const {
    switch (c_.background) {
      case math::Background::kNone: return {};
      case math::Background::kStatic: return {c_.background_spectrum.begin(), c_.background_spectrum.end()};
      case math::Background::kRolling: return RollingOf(c_, record);
      case math::Background::kBscan: break;
    }
    const int64_t volume = record / s_.records * s_.records;
    for (const BscanSpan& span : s_.spans) {
      const int64_t first = volume + span.first_record;
      if (record >= first && record < first + span.records) return Mean(first, first + span.records);
    }
    return {};  // flyback
  }
  void Transform(int64_t record) {
    Modelled& out = records_[static_cast<size_t>(record)];
    out.forms.push_back(testing::ModelDepth(c_, Values(record), BackgroundOf(record)));
    for (const auto& z : out.forms[0]) out.size.push_back(std::abs(z));
  }
  void LessPattern(int64_t first, int64_t count) {
    const auto depth = static_cast<size_t>(c_.depth);
    const int64_t segments = c_.fixed_pattern == math::FixedPattern::kQuietSegment && count >= 18 ? 9 : 1;
    std::vector<std::vector<std::complex<double>>> patterns(depth);
    for (size_t z = 0; z < depth; ++z) {
      std::vector<std::pair<double, std::complex<double>>> found;  // variance, mean
      for (int64_t k = 0; k < segments; ++k) {
        const int64_t begin = first + count * k / segments, end = first + count * (k + 1) / segments;
        std::complex<double> mean = 0;
        double variance = 0;
        for (int64_t r = begin; r < end; ++r) mean += of(r).forms[0][z] / static_cast<double>(end - begin);
        for (int64_t r = begin; r < end; ++r) variance += std::norm(of(r).forms[0][z] - mean) / static_cast<double>(end - begin);
        found.emplace_back(variance, mean);
      }
      std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      const double least = found[0].first, slack = ErrorOf(std::abs(found[0].second)) * 4;
      for (const auto& [variance, mean] : found) {
        if (variance <= least * 1.001 + slack * (std::sqrt(least) + slack)) patterns[z].push_back(mean);
      }
    }
    for (int64_t r = first; r < first + count; ++r) {
      Modelled& record = records_[static_cast<size_t>(r)];
      const Complexes plain = record.forms[0];
      record.forms.clear();
      for (size_t z = 0; z < depth; ++z) {
        for (size_t k = 0; k < patterns[z].size(); ++k) {
          if (k >= record.forms.size()) record.forms.push_back(Less(plain, patterns));
          record.forms[k][z] = plain[z] - patterns[z][k];
        }
        record.size[z] += std::abs(patterns[z][0]);
      }
    }
  }
  static Complexes Less(const Complexes& plain, const std::vector<Complexes>& patterns) {
    Complexes out = plain;
    for (size_t z = 0; z < out.size(); ++z) out[z] -= patterns[z][0];
    return out;
  }

  const RandomChain& s_;
  const SpectralConfig& c_;
  const std::vector<int64_t>& cuts_;
  double error_ = 0;
  std::vector<Modelled> records_;
};

// -- one against the other

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
  Checker(const RandomChain& chain, const Result& result, const std::vector<int64_t>& cuts, ChainReport* report)
      : s_(chain), c_(chain.config), result_(result), model_(chain, cuts), report_(*report) {}

  void Run() {
    for (int64_t v = 0; v < s_.volumes; ++v) {
      std::vector<std::vector<int64_t>> came(static_cast<size_t>(s_.ascans));
      for (int64_t r = 0; r < s_.records; ++r) {
        const int32_t place = s_.places[static_cast<size_t>(r)];
        if (place >= 0 && place < s_.volume_ascans && !s_.missing[static_cast<size_t>(v * s_.records + r)]) {
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
      Still(volume, s_.ascans * ascan_bytes, kGuard, "memory behind it was written");
      Still(result_.mips[static_cast<size_t>(v)], s_.mip ? s_.ascans * SizeOf(ProjectionOf(c_.output)) : 0, kGuard,
            "memory behind its MIP was written");
      Still(result_.aips[static_cast<size_t>(v)], s_.aip ? s_.ascans * 4 : 0, kGuard, "memory behind its AIP was written");
    }
  }

 private:
  void Wrong(const std::string& what) {
    if (report_.wrong.size() < 5) report_.wrong.push_back(absl::StrCat(where_, ": ", what));
  }
  void Still(const std::vector<uint8_t>& memory, int64_t begin, int64_t count, const char* what) {
    if (std::any_of(memory.begin() + begin, memory.begin() + begin + count, [](uint8_t b) { return b != kUntouched; })) Wrong(what);
  }

  /// Value of a depth sample of magnitude m, before levels.
  double ValueOf(double m) const {
    m = std::max(m, 0.0);
    return c_.value == Value::kDb ? 10 * std::log10(std::max(m * m, 1e-30)) : c_.value == Value::kPower ? m * m : m;
  }
  /// Whether `got` is what is stored of a value between lo and hi; the part of the way from the middle to either end that it took.
  double PartOf(double got, double lo, double hi) const {
    const double bottom = static_cast<double>(LowestOf(c_.output)), top = static_cast<double>(HighestOf(c_.output)),
                 range = IsInteger(c_.output) ? top - bottom : 1;
    double slack = 3e-7 * std::max(std::abs(lo), std::abs(hi)) + (c_.value == Value::kDb ? 1e-4 : 0);  // the value's own rounding
    if (c_.has_levels) {
      const double scale = range / (static_cast<double>(c_.level_hi) - static_cast<double>(c_.level_lo)), from = static_cast<double>(c_.level_lo);
      slack = slack * scale + 3e-7 * (std::abs(from) + std::max(std::abs(lo), std::abs(hi))) * scale;
      lo = bottom + (lo - from) * scale, hi = bottom + (hi - from) * scale;
    }
    lo -= slack, hi += slack;
    if (IsInteger(c_.output)) {  // a count to either side of what rounding gives
      lo = std::clamp(std::round(lo), bottom, top) - 1, hi = std::clamp(std::round(hi), bottom, top) + 1;
    } else if (c_.output == DType::kF16) {
      const auto widened = [](double x, double sign) {
        x += sign * (std::abs(x) / 2048 + 6e-8);
        return std::abs(x) > 65504 ? std::copysign(std::numeric_limits<double>::infinity(), x) : x;
      };
      lo = widened(lo, -1), hi = widened(hi, 1);
    }
    if (!(got >= lo && got <= hi)) return std::numeric_limits<double>::infinity();
    return IsInteger(c_.output) || c_.output == DType::kF16 || hi == lo ? 0 : std::abs(got - 0.5 * (lo + hi)) / (0.5 * (hi - lo));
  }

  double Part(const uint8_t* ascan, int64_t z, const std::vector<int64_t>& records, size_t form) const {
    const auto at = static_cast<size_t>(z);
    const auto sample = [&](int64_t r) {
      const auto& forms = model_.of(r).forms;
      return forms[std::min(form, forms.size() - 1)][at];
    };
    double power = 0, size = 0;
    for (const int64_t r : records) {
      power += std::norm(sample(r)) / static_cast<double>(records.size());
      size = std::max(size, model_.of(r).size[at]);
    }
    const double m = std::sqrt(power);
    double error = model_.ErrorOf(size);
    // 0.05 dB above -100 dB of full scale, of what no pattern was taken away from.
    if (c_.value == Value::kDb && m >= 1e-5 * s_.full_scale && c_.fixed_pattern == math::FixedPattern::kNone) error = std::min(error, 0.0057 * m);
    if (c_.output == DType::kC64) {
      const std::complex<double> got(NumberAt(DType::kF32, ascan, 2 * z), NumberAt(DType::kF32, ascan, 2 * z + 1));
      const double part = std::abs(got - sample(records[0])) / error;
      return part <= 1 ? part : std::numeric_limits<double>::infinity();
    }
    const double got = NumberAt(c_.output, ascan, z);
    if (c_.value == Value::kReal) return PartOf(got, sample(records[0]).real() - error, sample(records[0]).real() + error);
    return PartOf(got, ValueOf(m - error), ValueOf(m + error));
  }

  void Ascan(const uint8_t* ascan, const std::vector<int64_t>& records) {
    size_t forms = 1;
    for (const int64_t r : records) forms = std::max(forms, model_.of(r).forms.size());
    for (int64_t z = 0; z < c_.depth; ++z) {
      double least = std::numeric_limits<double>::infinity();
      for (size_t form = 0; form < forms; ++form) least = std::min(least, Part(ascan, z, records, form));
      if (std::isinf(least)) {
        const auto& wanted = model_.of(records[0]).forms[0][static_cast<size_t>(z)];
        const bool complex = c_.output == DType::kC64;
        const std::string got = complex ? absl::StrCat(NumberAt(DType::kF32, ascan, 2 * z), " + ", NumberAt(DType::kF32, ascan, 2 * z + 1), " i")
                                        : absl::StrCat(NumberAt(c_.output, ascan, z));
        Wrong(absl::StrCat("depth ", z, " is ", got, ", the model has ", wanted.real(), " + ", wanted.imag(), " i of record ", records[0], " (",
                           records.size(), " in all)"));
        return;
      }
      report_.worst = std::max(report_.worst, least);
    }
  }

  /// Of what is stored, not of the model: maximum and mean.
  void Projections(const uint8_t* ascan, int64_t volume, int64_t a) {
    double most = -std::numeric_limits<double>::infinity(), largest = 0, sum = 0;
    const int64_t begin = c_.slab_begin, end = c_.slab_end == 0 ? c_.depth : c_.slab_end;
    for (int64_t z = begin; z < end; ++z) {
      const double v = c_.output == DType::kC64 ? std::hypot(NumberAt(DType::kF32, ascan, 2 * z), NumberAt(DType::kF32, ascan, 2 * z + 1))
                                                : NumberAt(c_.output, ascan, z);
      most = std::max(most, v);
      largest = std::max(largest, std::abs(v));
      sum += v;
    }
    if (s_.mip) {
      const double got = NumberAt(ProjectionOf(c_.output), result_.mips[static_cast<size_t>(volume)].data(), a);
      const bool same = got == most || (c_.output == DType::kC64 && std::abs(got - most) <= 1e-6 * most);
      if (!same) Wrong(absl::StrCat("MIP is ", got, ", its voxels have ", most));
    }
    if (s_.aip) {
      const double got = NumberAt(DType::kF32, result_.aips[static_cast<size_t>(volume)].data(), a), mean = sum / static_cast<double>(end - begin);
      const bool same = got == mean || std::abs(got - mean) <= 1e-5 * largest;
      if (!same && std::isfinite(mean)) Wrong(absl::StrCat("AIP is ", got, ", its voxels have ", mean));
    }
  }

  const RandomChain& s_;
  const SpectralConfig& c_;
  const Result& result_;
  const Model model_;
  ChainReport& report_;
  std::string where_;
};

template <class Config>
constexpr bool Grouped(const Config& c) {
  return requires { c.background_group_records; };
}

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
  const auto has = [&](const char* words) { return report.description.find(words) != std::string::npos; };
  const bool host = device.info().backend == "host";
  report.form = host                        ? (has("Bluestein") ? "convolution" : "passes")
                : has("two A-scans as one") ? "fused pairs"
                : has("one launch")         ? "fused"
                : has("R2C")                ? "R2C"
                                            : "C2C";
  const Result result = RunChain(chain, chain.cuts[0], false, device);
  Checker(chain, result, chain.cuts[0], &report).Run();
  if (RunChain(chain, chain.cuts[0], true, device) != result) report.wrong.emplace_back("after junk it gave other bits");
  const Result other = RunChain(chain, chain.cuts[1], true, device);
  if (chain.config.background == math::Background::kRolling && !Grouped(chain.config)) {
    Checker(chain, other, chain.cuts[1], &report).Run();  // the rolling background is that of a block
    return report;
  }
  report.cuts_change_bits = other != result;
  if (!report.cuts_change_bits) return report;
  Checker(chain, other, chain.cuts[1], &report).Run();
  // A GPU's transforms may round otherwise in batches of another size.
  if (host) report.wrong.emplace_back("blocks that end otherwise gave other bits");
  return report;
}

}  // namespace octavo::bench
