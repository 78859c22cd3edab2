#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <numbers>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/spectral/spectral_design.h"
#include "tests/bench/random_chain.h"

namespace octavo::bench {
namespace {

using math::Background;
using math::FixedPattern;
using math::Interpolation;
using math::Value;

/// Draws one chain. Its parts are drawn in the order in which they depend on each other.
class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) { chain_.seed = seed; }

  RandomChain Run() {
    Lengths();
    Input();
    Scan();
    Steps();
    Output();
    Data();
    Levels();
    Blocks();
    return std::move(chain_);
  }

 private:
  int64_t Int(int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, std::max(lo, hi))(random_);
  }
  double Real(double lo, double hi) {
    return std::uniform_real_distribution<double>(lo, hi)(random_);
  }
  bool Chance(double p) { return Real(0, 1) < p; }
  template <class T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[Int(0, static_cast<int64_t>(values.size()) - 1)];
  }

  void Lengths() {
    SpectralConfig& c = chain_.config;
    const double kind = Real(0, 1);
    if (kind < 0.35) {  // the lengths that one launch supports
      c.fft_length = Pick<int64_t>({512, 512, 1024, 1024, 1024, 1536, 2048, 3072, 4096});
      usual_ = Chance(0.6);
    } else if (kind < 0.60) {
      c.fft_length = 2 * Int(8, 750) + 1;
    } else if (kind < 0.68) {
      c.fft_length = Pick<int64_t>({17, 31, 101, 257, 509, 1009, 2003, 4099});
    } else if (kind < 0.78) {
      c.fft_length = 2 * Int(8, 900);
    } else if (kind < 0.86) {
      c.fft_length = Pick<int64_t>({16, 32, 64, 128, 256, 8192, 960, 1000, 1125, 1215, 2500});
    } else if (kind < 0.92) {
      c.fft_length = Int(8000, 70000);
      points_ = Int(16, 200);
      many_ = true;
    } else {
      c.fft_length = Int(16, 60);
      many_ = true;
    }
    if (points_ == 0)
      points_ =
          Chance(0.6) ? c.fft_length : Int(std::max<int64_t>(16, c.fft_length / 2), c.fft_length);
    c.first_bin = 0;
    c.depth = std::max<int64_t>(1, c.fft_length / 2);
    if (!usual_ && Chance(0.15)) c.depth = c.fft_length;
    if (Chance(0.3)) {
      const int64_t bins = usual_ ? c.fft_length / 2 : c.fft_length;
      c.first_bin = Int(0, bins - 1);
      c.depth = Int(1, bins - c.first_bin);
    }
    if (c.fft_length > 5000) c.depth = std::min<int64_t>(c.depth, Int(1, 100));
    if (Chance(0.4)) {
      c.slab_begin = Int(0, c.depth - 1);
      c.slab_end = Int(c.slab_begin + 1, c.depth);
    }
  }

  void Input() {
    SpectralConfig& c = chain_.config;
    c.interpolation = usual_ ? Pick({Interpolation::kNone, Interpolation::kLinear,
                                     Interpolation::kCubic, Interpolation::kCubic})
                             : Pick({Interpolation::kNone, Interpolation::kLinear,
                                     Interpolation::kCubic, Interpolation::kLanczos});
    c.samples_per_record = points_;
    if (c.interpolation != Interpolation::kNone && Chance(0.4)) {
      c.samples_per_record = Int(std::max<int64_t>(16, points_ / 2),
                                 std::min<int64_t>(usual_ ? c.fft_length : 2 * points_, 65536));
    }
    const int64_t kind = Int(0, usual_ ? 4 : 6);
    c.raw_type = kind == 0   ? DType::kU8
                 : kind == 1 ? DType::kI16
                 : kind >= 5 ? DType::kF32
                             : DType::kU16;
    if (kind == 2) c.packing = math::Packing::kLowFirst12;
    if (kind == 3) c.packing = math::Packing::kHighFirst12;
    if (!usual_ && Chance(0.25)) {
      c.channels = Int(2, std::min<int64_t>(4, 65536 / c.samples_per_record));
      c.channel = Int(0, c.channels - 1);
    }
    if (!usual_ && Chance(0.2)) c.record_average = Int(2, 5);
    if (c.interpolation != Interpolation::kNone) KIndex();
  }

  // Positions 0 ... S-1 that do not decrease: bent, straight, or arbitrary, as a spectrometer's
  // wavelengths or a polynomial gives them.
  void KIndex() {
    SpectralConfig& c = chain_.config;
    const int64_t s = c.samples_per_record;
    const double top = static_cast<double>(s - 1);
    std::vector<double> r;
    const double kind = Real(0, 1), bend = Real(-0.3, 0.3);
    if (kind < 0.2) {
      for (int64_t j = 0; j < points_; ++j) r.push_back(Real(0, top));
      std::sort(r.begin(), r.end());
    } else if (kind < 0.4 && s == points_) {
      std::vector<double> wavelengths;
      const double first = Real(700, 1300), width = Real(20, 150);
      for (int64_t j = 0; j < s; ++j) {
        const double u = static_cast<double>(j) / top;
        wavelengths.push_back(first + width * (u + 0.5 * bend * u * u));
      }
      if (Chance(0.5)) std::reverse(wavelengths.begin(), wavelengths.end());
      const auto index = KIndexFromWavelength(wavelengths).value();
      r.assign(index.begin(), index.end());
    } else {
      for (int64_t j = 0; j < points_; ++j) {
        const double u =
            static_cast<double>(j) / static_cast<double>(std::max<int64_t>(1, points_ - 1));
        r.push_back(std::clamp((u + bend * u * (1 - u)) * top, 0.0, top));
      }
      if (kind < 0.5) {
        for (double& v : r) v = std::round(v);  // exactly on the samples
      }
    }
    c.k_index.assign(r.begin(), r.end());
    for (auto& v : c.k_index) v = std::min(v, static_cast<std::decay_t<decltype(v)>>(s - 1));
  }

  void Scan() {
    SpectralConfig& c = chain_.config;
    RandomChain& s = chain_;
    const bool quiet = !usual_ && Chance(0.08);
    if (quiet) c.fixed_pattern = FixedPattern::kQuietSegment;
    if (!usual_ && !quiet && Chance(0.1)) c.fixed_pattern = FixedPattern::kMean;
    c.background = usual_ ? Pick({Background::kNone, Background::kStatic, Background::kRolling})
                          : Pick({Background::kNone, Background::kStatic, Background::kRolling,
                                  Background::kBscan});
    const bool whole = c.fixed_pattern != FixedPattern::kNone || c.background == Background::kBscan;
    // Limits that the model can compute in reasonable time.
    const double cost = static_cast<double>(points_) * static_cast<double>(c.depth);
    const int64_t most = std::clamp(static_cast<int64_t>(3e7 / cost), int64_t{12},
                                    many_ ? int64_t{700} : int64_t{60});
    const int64_t across =
        quiet ? Int(18, 30)
              : Int(whole ? 2 : 1,
                    std::min<int64_t>(many_ ? 250 : 24, std::max<int64_t>(2, most / 2)));
    s.volumes = Int(1, 2);
    int64_t lines = Int(1, std::clamp<int64_t>(most / across / s.volumes, 1, 6));
    const bool repeated = !usual_ && !quiet && across <= 8 && Chance(0.3);
    int64_t period = 1;
    if (repeated) {
      c.repeats = Int(2, 4);
      period = Int(1, 2);
      c.repeat_ascans = period * across;
      lines = c.repeats * period * Int(1, 2);
    }
    const int64_t flyback = Chance(0.5) ? 0 : Int(1, 5), line = across + flyback;
    s.table = repeated || Chance(0.3);
    s.raster = {.ascans_per_bscan = across,
                .bscans_per_volume = lines / c.repeats,
                .flyback_records = flyback,
                .bidirectional = Chance(0.5)};
    s.ascans = across * s.raster.bscans_per_volume;
    // B-scans of any length, if a table places them.
    const bool any = s.table && !repeated && Chance(0.4);
    int64_t at = any ? Int(0, 3) : 0;
    for (int64_t y = 0; y < lines; ++y) {
      s.spans.push_back({.first_record = at,
                         .records = any ? Int(1, across) : across,
                         .repeat = repeated ? y / period : 0});
      at += any ? s.spans.back().records + Int(0, 4) : line;
    }
    s.records = any ? std::max<int64_t>(at, 1) : lines * line;
    s.places.assign(static_cast<size_t>(s.records), -1);
    if (repeated || !any) {
      for (int64_t r = 0; r < s.records; ++r) {
        const int64_t y = r / line, group = y / (period * c.repeats);
        s.places[static_cast<size_t>(r)] = static_cast<int32_t>(math::RasterAscan(
            s.raster, repeated ? (group * period + y % period) * line + r % line : r));
      }
    }
    if (s.table && !repeated) {
      std::vector<int32_t> order(static_cast<size_t>(s.ascans));
      std::iota(order.begin(), order.end(), 0);
      if (Chance(0.7)) std::shuffle(order.begin(), order.end(), random_);
      size_t next = 0;
      for (const BscanSpan& span : s.spans) {
        for (int64_t i = 0; i < span.records; ++i)
          s.places[static_cast<size_t>(span.first_record + i)] = order[next++];
      }
    }
    for (int32_t& place : s.places) {
      if (s.table && Chance(0.03)) place = -1;
    }
    s.volume_ascans = s.ascans - (Chance(0.1) ? Int(0, s.ascans / 2) : 0);
    s.missing.assign(static_cast<size_t>(s.volumes * s.records), false);
    if (!whole && Chance(0.2)) {
      for (int64_t gaps = Int(1, 3); gaps > 0; --gaps) {
        const int64_t first = Int(0, s.volumes * s.records - 1), count = Int(1, 6);
        for (int64_t r = first; r < std::min(first + count, s.volumes * s.records); ++r)
          s.missing[static_cast<size_t>(r)] = true;
      }
    }
    if (whole) c.bscan_records = std::max<int64_t>(across + (Chance(0.3) ? Int(0, 9) : 0), 2);
    c.volume_records = s.records;
    if (c.background == Background::kRolling) {
      c.background_group_records = std::min(s.records, Chance(0.5) ? line : Int(1, 2 * line));
      c.background_window_records = std::min(Int(0, Chance(0.5) ? 5 : 2 * s.volumes * s.records),
                                             4096 * c.background_group_records);
    }
  }

  void Steps() {
    SpectralConfig& c = chain_.config;
    const auto kind = Pick({WindowKind::kRect, WindowKind::kHann, WindowKind::kHamming,
                            WindowKind::kGauss, WindowKind::kBlackman, WindowKind::kFlatTop});
    c.window = MakeWindow(kind, points_);
    if (Chance(0.2)) {
      for (auto& w : c.window) w = static_cast<std::decay_t<decltype(w)>>(Real(0, 1));
    }
    if (Chance(0.4)) {
      const double n = static_cast<double>(points_);
      c.phase_rad =
          MakeDispersionPhase(Real(-60, 60) / (n * n), Real(-60, 60) / (n * n * n), points_);
      if (Chance(0.2)) {
        for (auto& phase : c.phase_rad)
          phase = static_cast<std::decay_t<decltype(phase)>>(Real(-10, 10));
      }
    }
  }

  void Output() {
    SpectralConfig& c = chain_.config;
    const bool repeated = c.repeats > 1;
    c.value = usual_ || repeated ? Pick({Value::kDb, Value::kDb, Value::kMagnitude, Value::kPower})
                                 : Pick({Value::kDb, Value::kDb, Value::kMagnitude, Value::kPower,
                                         Value::kReal, Value::kComplex});
    c.output =
        c.value == Value::kComplex ? DType::kC64
        : usual_
            ? Pick({DType::kU8, DType::kU16, DType::kF32})
            : Pick({DType::kU8, DType::kI8, DType::kU16, DType::kF16, DType::kF32, DType::kF32});
    c.has_levels = IsInteger(c.output) || (c.output != DType::kC64 && Chance(0.3));
    chain_.mip = Chance(0.6);
    chain_.aip = Chance(0.6);
  }

  // Levels over a plausible range of the data.
  void Levels() {
    SpectralConfig& c = chain_.config;
    const double full = chain_.full_scale;
    if (c.output == DType::kF16 && !c.has_levels) {  // the range of half precision
      const double top = c.value == Value::kPower ? full * full : full;
      c.has_levels = c.value != Value::kDb && (top > 30000 || top < 100);
    }
    if (!c.has_levels) return;
    double lo = 0, hi = 1;
    if (c.value == Value::kDb) {
      lo = 20 * std::log10(full) - Real(60, 170);
      hi = lo + Real(20, 200);
    } else {
      hi = c.value == Value::kPower ? full * full * std::pow(10, Real(-6, 0))
                                    : full * std::pow(10, Real(-3, 0));
      lo = c.value == Value::kReal ? -hi * Real(0.2, 1) : Chance(0.6) ? 0 : hi * Real(0, 0.5);
    }
    c.level_lo = static_cast<float>(lo);
    c.level_hi = static_cast<float>(hi);
  }

  // Records of noise or of fringes, dark or saturated.
  void Data() {
    RandomChain& s = chain_;
    SpectralConfig& c = s.config;
    const int64_t per_raw = c.samples_per_record * c.channels,
                  total = s.volumes * s.records * c.record_average;
    const int64_t raw_bytes = math::PackedBytes(c.packing, per_raw, SizeOf(c.raw_type));
    const bool narrow =
        c.packing != math::Packing::kNone || (c.raw_type == DType::kU16 && Chance(0.5));
    const double top = c.raw_type == DType::kU8    ? 255
                       : c.raw_type == DType::kI16 ? 32767
                       : c.raw_type == DType::kF32 ? std::pow(10, Real(-3, 5))
                       : narrow                    ? 4095
                                                   : 65535;
    const double bottom = c.raw_type == DType::kI16                  ? -32768
                          : c.raw_type == DType::kF32 && Chance(0.3) ? -top
                                                                     : 0;
    const bool mixed = Chance(0.3), noise = Chance(0.4);
    s.raw.assign(static_cast<size_t>(total * raw_bytes), 0);
    s.values.assign(static_cast<size_t>(s.volumes * s.records * c.samples_per_record), 0.0);
    for (int64_t r = 0; r < total; ++r) {
      const int64_t kind = mixed ? Int(0, 5) : noise ? 0 : 1;
      const double middle = 0.5 * (top + bottom), swing = 0.5 * (top - bottom) * Real(0.1, 1),
                   cycles = Real(0, 0.5 * static_cast<double>(points_)), phase = Real(0, 6.28),
                   more = Real(0, 30);
      for (int64_t i = 0; i < per_raw; ++i) {
        const double u =
            static_cast<double>(i / c.channels) / static_cast<double>(c.samples_per_record);
        double v = Real(bottom, top);
        if (kind == 1) {
          v = middle +
              swing * (0.7 * std::cos(2 * std::numbers::pi * cycles * u + phase) +
                       0.25 * std::cos(2 * std::numbers::pi * more * u)) +
              0.02 * (v - middle);
        } else if (kind == 2) {
          v = bottom + (v - bottom) / 1000;
        } else if (kind == 3) {
          v = top;
        }
        Put(s.raw.data() + r * raw_bytes, i, std::clamp(v, bottom, top), r / c.record_average);
      }
    }
    if (c.background == Background::kStatic) {
      const double level = Real(bottom, top);
      for (int64_t j = 0; j < c.samples_per_record; ++j) {
        c.background_spectrum.push_back(
            static_cast<float>(level + Real(-0.1, 0.1) * (top - bottom)));
      }
    }
    for (const auto b : c.background_spectrum)
      s.full_scale = std::max(s.full_scale, std::abs(static_cast<double>(b)));
    s.full_scale = std::max({s.full_scale, top * 1e-3, c.raw_type == DType::kF32 ? 0.0 : 1.0});
  }

  // Sample i of a raw record that belongs to `record`.
  void Put(uint8_t* row, int64_t i, double v, int64_t record) {
    RandomChain& s = chain_;
    const SpectralConfig& c = s.config;
    const auto store = [&](auto number) {
      std::memcpy(row + i * static_cast<int64_t>(sizeof number), &number, sizeof number);
      v = static_cast<double>(number);
    };
    if (c.packing != math::Packing::kNone) {
      v = std::floor(v);
      math::WritePacked12(c.packing, row, i, static_cast<uint32_t>(v));
    } else if (c.raw_type == DType::kU8) {
      store(static_cast<uint8_t>(v));
    } else if (c.raw_type == DType::kI16) {
      store(static_cast<int16_t>(std::floor(v)));
    } else if (c.raw_type == DType::kF32) {
      store(static_cast<float>(v));
    } else {
      store(static_cast<uint16_t>(v));
    }
    if (i % c.channels != c.channel) return;
    s.values[static_cast<size_t>(record * c.samples_per_record + i / c.channels)] +=
        v / static_cast<double>(c.record_average);
    s.full_scale = std::max(s.full_scale, std::abs(v));
  }

  void Blocks() {
    RandomChain& s = chain_;
    SpectralConfig& c = s.config;
    const int64_t total = s.volumes * s.records, most = Chance(0.3) ? total : Int(1, total);
    for (auto& cuts : s.cuts) {
      const bool even = Chance(0.4);
      for (int64_t at = 0; at < total;) {
        at = std::min(total, at + (even ? most : Int(1, most)));
        cuts.push_back(at);
      }
    }
    c.max_records_per_block =
        most *
        (Chance(0.5)
             ? 1
             : Int(1, std::clamp<int64_t>((int64_t{32} << 20) / (most * RecordBytes(c)), 1, 9)));
    // The memory of a block may begin at any address that suits an element.
    if (c.background != Background::kRolling && Chance(0.5))
      s.shift = Int(0, 9) * (c.packing != math::Packing::kNone ? 1 : SizeOf(c.raw_type));
  }

  std::mt19937_64 random_;
  RandomChain chain_;
  // A chain that one launch supports; many records of few points.
  bool usual_ = false, many_ = false;
  int64_t points_ = 0;
};

}  // namespace

RandomChain DrawChain(uint64_t seed) { return Draw(seed).Run(); }

std::string Describe(const RandomChain& s) {
  const SpectralConfig& c = s.config;
  std::string text = DescribeChain(c);
  absl::StrAppend(&text, "  seed ", s.seed, ", packing ", static_cast<int>(c.packing),
                  ", blocks of at most ", c.max_records_per_block, ", B-scans of ", c.bscan_records,
                  ", slab ", c.slab_begin, " to ", c.slab_end, ", repeats ", c.repeats, " of ",
                  c.repeat_ascans, " A-scans\n");
  absl::StrAppend(&text, "  rolling groups of ", c.background_group_records, ", window ",
                  c.background_window_records, "\n");
  absl::StrAppend(&text, "  scan: ", s.volumes, " volumes of ", s.records, " records, ", s.ascans,
                  " A-scans, target ", s.volume_ascans, "; lines of ", s.raster.ascans_per_bscan,
                  " + ", s.raster.flyback_records, s.raster.bidirectional ? ", both ways" : "",
                  s.table ? ", placed by a table" : "", "; ",
                  std::count(s.missing.begin(), s.missing.end(), true), " records never come\n");
  absl::StrAppend(&text, "  blocks end at ", absl::StrJoin(s.cuts[0], " "), "\n  or at ",
                  absl::StrJoin(s.cuts[1], " "), "\n  ", s.shift,
                  " bytes before the records of a block", s.mip ? ", MIP" : "",
                  s.aip ? ", AIP" : "", ", full scale ", s.full_scale, "\n");
  return text;
}

}  // namespace octavo::bench
