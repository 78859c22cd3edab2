#include "gpu/spectral/spectral.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numbers>
#include <span>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tbb/blocked_range.h"
#include "tbb/enumerable_thread_specific.h"
#include "tbb/parallel_for.h"
#include "tbb/parallel_reduce.h"

#include "gpu/base/status.h"
#include "gpu/device/host/host_stream.h"
#include "gpu/spectral/host/spectral_kernels.h"
#include "gpu/spectral/spectral_tables.h"

namespace octavo::inline gpu::host {
namespace {

struct Freer {
  void operator()(float* p) const { std::free(p); }
};
using Scratch = std::unique_ptr<float, Freer>;

Scratch AllocateFloats(int64_t count) {
  return Scratch(static_cast<float*>(
      std::aligned_alloc(4096, (static_cast<size_t>(count) * sizeof(float) + 4095) / 4096 * 4096)));
}

constexpr int64_t kSumColumns = 256, kSumRows = 64, kPatternDepths = 64;

// Raw records, and the channel of them that is used.
struct RawRows {
  const uint8_t* data;
  int64_t bytes;  // per raw record
  math::Packing packing;
  int64_t channels, channel;

  // Samples [first, first + columns) of a record: in place, or copied to `buffer`.
  template <typename T>
  const T* Row(int64_t row, int64_t first, int64_t columns, T* buffer) const {
    const uint8_t* record = data + row * bytes;
    const T* in = reinterpret_cast<const T*>(record);
    if (packing != math::Packing::kNone) {
      for (int64_t c = 0; c < columns; ++c)
        buffer[c] =
            static_cast<T>(math::ReadPacked12(packing, record, (first + c) * channels + channel));
    } else if (channels > 1) {
      for (int64_t c = 0; c < columns; ++c) buffer[c] = in[(first + c) * channels + channel];
    } else {
      return in + first;
    }
    return buffer;
  }
};

// sum[c] += Σ rows. Integers are first summed as integers: 64 of them with 16 bits fit 32 bits, and
// the loop vectorises.
template <typename T>
void AddRecords(const RawRows& raw, int64_t row, int64_t rows, int64_t first, int64_t columns,
                double* __restrict sum) {
  T buffer[kSumColumns];
  if constexpr (std::is_same_v<T, float>) {  // row by row, because the sum must not depend on where
                                             // a call begins
    for (int64_t r = 0; r < rows; ++r) {
      const T* __restrict in = raw.Row(row + r, first, columns, buffer);
      for (int64_t c = 0; c < columns; ++c) sum[c] += static_cast<double>(in[c]);
    }
  } else {
    int32_t partial[kSumColumns] = {};
    for (int64_t r = 0; r < rows; ++r) {
      const T* __restrict in = raw.Row(row + r, first, columns, buffer);
      for (int64_t c = 0; c < columns; ++c) partial[c] += static_cast<int32_t>(in[c]);
    }
    for (int64_t c = 0; c < columns; ++c) sum[c] += static_cast<double>(partial[c]);
  }
}

// Whether all samples of raw records [row, row + rows) are finite numbers.
bool AllFinite(const RawRows& raw, int64_t row, int64_t rows, int64_t samples) {
  float buffer[kSumColumns];
  bool finite = true;
  for (int64_t r = row; r < row + rows; ++r) {
    for (int64_t first = 0; first < samples; first += kSumColumns) {
      const int64_t columns = std::min(kSumColumns, samples - first);
      const float* in = raw.Row(r, first, columns, buffer);
      for (int64_t c = 0; c < columns; ++c) finite &= math::IsFinite(in[c]);
    }
  }
  return finite;
}

// Calls f(k, first, columns) in parallel for k = 0 … count - 1 and parts of the columns.
template <class F>
void ForColumns(size_t count, int64_t samples, F f) {
  const int64_t parts = (samples + kSumColumns - 1) / kSumColumns;
  tbb::parallel_for(int64_t{0}, static_cast<int64_t>(count) * parts, [&](int64_t i) {
    const int64_t first = i % parts * kSumColumns;
    f(static_cast<size_t>(i / parts), first, std::min(kSumColumns, samples - first));
  });
}
template <class F>
void ForColumns(int64_t samples, F f) {
  ForColumns(1, samples, [&](size_t, int64_t first, int64_t columns) { f(first, columns); });
}

TileTables MakeTables(const SpectralConfig& c) {
  TileTables t{.samples = c.samples_per_record,
               .raw_type = c.raw_type,
               .packing = c.packing,
               .channels = c.channels,
               .channel = c.channel,
               .average = c.record_average,
               .interpolation = c.interpolation,
               .n = static_cast<int64_t>(c.window.size())};
  SpectralTables tables = MakeSpectralTables(c);
  t.tap = std::move(tables.tap);
  t.weights = std::move(tables.weights);
  t.depth = c.depth;
  t.half = TransformsReal(c);
  t.fft = t.half ? MakeFftPlan(c.fft_length / 2, (t.n + 1) / 2, 0, c.fft_length / 2)
                 : MakeFftPlan(c.fft_length, t.n, c.first_bin, c.depth);
  t.first_row = t.fft.convolution && !t.half ? 0 : c.first_bin;
  const bool chirp = t.fft.convolution && !t.half;
  for (size_t j = 0; j < tables.window.size(); ++j) {
    // The transform of half the length gives twice the result.
    std::complex<double> h = t.half ? 0.5 * tables.window[j] : tables.window[j];
    if (chirp)
      h *= std::complex<double>(static_cast<double>(t.fft.chirp_in_re[j]),
                                static_cast<double>(t.fft.chirp_in_im[j]));
    t.h_re.push_back(static_cast<float>(h.real()));
    if (chirp || !c.phase_rad.empty()) t.h_im.push_back(static_cast<float>(h.imag()));
  }
  if (t.half) {
    for (int64_t z = 0; z < c.depth; ++z) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(c.first_bin + z) /
                           static_cast<double>(c.fft_length);
      t.turn_re.push_back(static_cast<float>(std::cos(angle)));
      t.turn_im.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  t.chirp_out = t.fft.convolution &&
                (t.half || c.value == math::Value::kReal || c.value == math::Value::kComplex);
  t.value = c.value;
  t.output = c.output;
  t.repeats = c.repeats > 1;
  t.bottom = LowestOf(c.output);
  t.top = HighestOf(c.output);
  t.scaled = c.has_levels;
  const auto [scale, offset] = MakeLevelScale<float>(c);
  t.scale = scale;
  t.offset = offset;
  t.slab_begin = c.slab_begin;
  t.slab_end = c.slab_end;
  return t;
}

// Backgrounds and sums.
int64_t RollingBytes(const SpectralConfig& c) {
  if (c.background != math::Background::kRolling) return 0;
  const int64_t sums =
      RollingShapeOf(c).LooksBack() ? 0 : kMostSumPieces * (c.samples_per_record + 1) * 8;
  return RollingRows(c) * c.samples_per_record * 4 + sums;
}
// A task has room for everything that is enqueued at once.
template <typename T>
struct Few {
  static constexpr size_t kMost = 16;
  T at[kMost];
  size_t count;
  explicit Few(std::span<const T> of) : count(of.size()) { std::copy(of.begin(), of.end(), at); }
};
// Depth samples of a B-scan, in whole tiles.
int64_t SpectraFloats(const SpectralConfig& c) {
  if (c.fixed_pattern == math::FixedPattern::kNone) return 0;
  const int64_t lanes = TileLanes();
  return (c.bscan_records + lanes - 1) / lanes * lanes * 2 * c.depth;
}

class HostSpectralPlan final : public SpectralPlan {
 public:
  explicit HostSpectralPlan(const SpectralConfig& config)
      : config_(config),
        record_bytes_(RecordBytes(config)),
        lanes_(TileLanes()),
        tables_(MakeTables(config)),
        scratch_([this] { return AllocateFloats(ScratchFloats()); }) {
    const auto samples = static_cast<size_t>(config.samples_per_record);
    if (config.background == math::Background::kStatic) background_ = config.background_spectrum;
    if (config.background == math::Background::kBscan) {
      background_.assign(samples, 0.0f);
      sums_.assign(samples, 0.0);
    }
    if (config.background == math::Background::kRolling) {
      background_.assign(static_cast<size_t>(RollingRows(config)) * samples, 0.0f);
      if (!RollingShapeOf(config).LooksBack())
        sums_.resize(static_cast<size_t>(kMostSumPieces) * (samples + 1));
    }
    if (config.raw_type == DType::kF32)
      finite_.resize(static_cast<size_t>(std::max(config.bscan_records, Step(config))));
    if (config.fixed_pattern != math::FixedPattern::kNone) {
      const auto depth = static_cast<size_t>(config.depth);
      spectra_ = AllocateFloats(SpectraFloats(config));
      pattern_re_.resize(depth);
      pattern_im_.resize(depth);
      for (auto* sums : {&mean_re_, &mean_im_, &square_re_, &square_im_})
        sums->resize(math::kFixedPatternSegments * depth);
    }
  }

  absl::Status SumRecords(StreamRef stream, const void* raw, std::span<const SumPiece> pieces,
                          const SumRing& ring) override {
    double* const sums = ring.sums != nullptr ? ring.sums : sums_.data();
    for (size_t i = 0; i < pieces.size(); i += Few<SumPiece>::kMost) {
      const Few few(pieces.subspan(i, std::min(pieces.size() - i, Few<SumPiece>::kMost)));
      OCTAVO_RETURN_IF_ERROR(Enqueue(stream, [this, raw, few, sums] {
        ForRaw([&](auto type) {
          Sum<decltype(type)>(static_cast<const uint8_t*>(raw), {few.at, few.count}, sums);
        });
      }));
    }
    return absl::OkStatus();
  }

  absl::Status MakeBackgrounds(StreamRef stream, std::span<const MeanOfSums> means,
                               const SumRing& ring) override {
    const double* const sums = ring.sums != nullptr ? ring.sums : sums_.data();
    const int64_t entries = ring.sums != nullptr ? ring.entries : kMostSumPieces;
    for (size_t i = 0; i < means.size(); i += Few<MeanOfSums>::kMost) {
      const Few few(means.subspan(i, std::min(means.size() - i, Few<MeanOfSums>::kMost)));
      OCTAVO_RETURN_IF_ERROR(Enqueue(stream, [this, few, sums, entries] {
        ForColumns(few.count, config_.samples_per_record,
                   [&](size_t k, int64_t first, int64_t columns) {
                     Mean(few.at[k], sums, entries, first, columns);
                   });
      }));
    }
    return absl::OkStatus();
  }

  absl::Status CountNonFinite(StreamRef stream, DeviceSpan<const float> raw,
                              DeviceSpan<uint64_t> count) override {
    return Enqueue(stream, [this, raw, count] {
      const RawRows rows = RowsOf(raw.As<const uint8_t>().data());
      const int64_t records = raw.bytes() / record_bytes_, average = config_.record_average;
      *count.data() += tbb::parallel_reduce(
          tbb::blocked_range<int64_t>(0, records, 16), uint64_t{0},
          [&](const tbb::blocked_range<int64_t>& range, uint64_t sum) {
            for (int64_t r = range.begin(); r != range.end(); ++r)
              sum += AllFinite(rows, r * average, average, config_.samples_per_record) ? 0 : 1;
            return sum;
          },
          std::plus<uint64_t>());
    });
  }

  absl::Status Process(StreamRef stream, const void* raw, const RecordRuns& runs,
                       const RecordPlacement& placement, const SpectralTarget& target,
                       const RepeatSums& sums) override {
    return Enqueue(stream, [this, raw, runs, placement, target, sums] {
      for (int64_t run = 0; run < runs.runs; ++run) {
        const int64_t first = run * runs.pitch;
        const auto* bytes = static_cast<const uint8_t*>(raw) + first * record_bytes_;
        if (config_.background == math::Background::kBscan)
          ForRaw([&](auto type) { MeanOfRun<decltype(type)>(bytes, runs.active); });
        const auto targets_of = [&](int64_t record, LaneTarget* targets, int64_t count) {
          for (int64_t lane = 0; lane < count; ++lane)
            targets[lane] = TargetOf(placement, target, sums, first + record + lane);
        };
        const auto background_of = [&](int64_t record, int64_t count, float* lanes) {
          return BackgroundOf(placement.first_record + first + record, count, lanes);
        };
        if (config_.fixed_pattern == math::FixedPattern::kNone) {
          ForTiles(runs.active, [&](int64_t tile, int64_t record, int64_t count, float* scratch) {
            (void)tile;
            LaneTarget targets[64];
            targets_of(record, targets, count);
            ProcessTile(tables_, bytes + record * record_bytes_, count,
                        background_of(record, count, LanesOf(scratch)), targets, scratch);
          });
          continue;
        }
        const int64_t tile_floats = 2 * config_.depth * lanes_;
        ForTiles(runs.active, [&](int64_t tile, int64_t record, int64_t count, float* scratch) {
          TransformTile(tables_, bytes + record * record_bytes_, count,
                        background_of(record, count, LanesOf(scratch)),
                        spectra_.get() + tile * tile_floats, scratch);
        });
        FindPattern(runs.active);
        ForTiles(runs.active, [&](int64_t tile, int64_t record, int64_t count, float*) {
          LaneTarget targets[64];
          targets_of(record, targets, count);
          FinishTile(tables_, spectra_.get() + tile * tile_floats, pattern_re_.data(),
                     pattern_im_.data(), count, targets);
        });
      }
    });
  }

  int64_t device_bytes() const override {
    return RollingBytes(config_) + SpectraFloats(config_) * 4;
  }
  std::string description() const override {
    const char* kind =
        tables_.half ? "real transform as a complex one of " : "complex transform of ";
    return absl::StrCat(
        "host, ", SimdTargetName(), ": tiles of ", lanes_, " records, one A-scan per lane, ", kind,
        tables_.fft.n,
        tables_.fft.convolution ? absl::StrCat(", Bluestein by convolutions of ", tables_.fft.rows)
                                : "",
        " in ", tables_.fft.passes.size(), tables_.fft.convolution ? " passes each" : " passes");
  }

 private:
  template <class F>
  void ForRaw(F f) const {
    switch (config_.raw_type) {
      case DType::kU8: f(uint8_t{}); break;
      case DType::kI16: f(int16_t{}); break;
      case DType::kF32: f(float{}); break;
      default: f(uint16_t{}); break;
    }
  }

  // Calls f(tile, first record, records, scratch) in parallel.
  template <class F>
  void ForTiles(int64_t records, F f) {
    const int64_t tiles = (records + lanes_ - 1) / lanes_;
    tbb::parallel_for(
        tbb::blocked_range<int64_t>(0, tiles, 4), [&](const tbb::blocked_range<int64_t>& range) {
          float* scratch = scratch_.local().get();
          for (int64_t tile = range.begin(); tile != range.end(); ++tile)
            f(tile, tile * lanes_, std::min(lanes_, records - tile * lanes_), scratch);
        });
  }

  LaneTarget TargetOf(const RecordPlacement& placement, const SpectralTarget& target,
                      const RepeatSums& sums, int64_t record) const {
    const int64_t ascan =
        placement.table != nullptr
            ? placement.table[record]
            : math::RasterAscan(placement.raster, placement.first_record + record);
    const int64_t size = SizeOf(config_.output);
    // The pointers of lane 0 also show whether projections are wanted, so they are set for dropped
    // records too.
    const bool placed = ascan >= 0 && ascan < target.volume_ascans;
    const int64_t at = placed ? ascan : 0;
    LaneTarget out{
        .volume = placed ? static_cast<char*>(target.volume) + at * config_.depth * size : nullptr,
        .mip = target.mip == nullptr
                   ? nullptr
                   : static_cast<char*>(target.mip) + at * SizeOf(ProjectionOf(config_.output)),
        .aip = target.aip == nullptr ? nullptr : target.aip + at,
        .clipped = target.clipped};
    if (placed && config_.repeats > 1) {
      const int64_t slot = ascan % config_.repeat_ascans;
      out.sum = sums.power + slot * config_.depth;
      out.before = sums.owner[slot] == ascan ? sums.count[slot] : 0;
      sums.owner[slot] = static_cast<int32_t>(ascan);
      sums.count[slot] = out.before + 1;
      out.clipped_before = sums.clipped + 2 * slot;
    }
    return out;
  }

  RawRows RowsOf(const uint8_t* raw) const {
    return {raw, record_bytes_ / config_.record_average, config_.packing, config_.channels,
            config_.channel};
  }

  static int64_t Step(const SpectralConfig& c) {
    return c.background == math::Background::kRolling ? RollingStepRecords(c) : 0;
  }

  // Which of `records` records count, valid until the next call. Null: all records count.
  const uint8_t* FiniteOf(const RawRows& in, int64_t records) {
    if (config_.raw_type != DType::kF32) return nullptr;
    const int64_t average = config_.record_average;
    tbb::parallel_for(
        tbb::blocked_range<int64_t>(0, records, 16), [&](const tbb::blocked_range<int64_t>& range) {
          for (int64_t r = range.begin(); r != range.end(); ++r) {
            finite_[static_cast<size_t>(r)] =
                AllFinite(in, r * average, average, config_.samples_per_record) ? 1 : 0;
          }
        });
    return finite_.data();
  }

  // sum[c] += Σ of the records [begin, end) that count.
  template <typename T>
  void AddFinite(const RawRows& in, const uint8_t* finite, int64_t begin, int64_t end,
                 int64_t first, int64_t columns, double* sum) const {
    const int64_t average = config_.record_average;
    if (finite == nullptr) {
      for (int64_t r = begin * average; r < end * average; r += kSumRows) {
        AddRecords<T>(in, r, std::min(kSumRows, end * average - r), first, columns, sum);
      }
      return;
    }
    for (int64_t r = begin; r < end; ++r) {
      if (finite[r] != 0) AddRecords<T>(in, r * average, average, first, columns, sum);
    }
  }

  template <typename T>
  void Sum(const uint8_t* raw, std::span<const SumPiece> pieces, double* sums) {
    const int64_t samples = config_.samples_per_record, begin = pieces.front().first,
                  end = pieces.back().first + pieces.back().records;
    const RawRows in = RowsOf(raw);
    const uint8_t* const finite = FiniteOf(RowsOf(raw + begin * record_bytes_), end - begin);
    ForColumns(pieces.size(), samples, [&](size_t k, int64_t first, int64_t columns) {
      const SumPiece& piece = pieces[k];
      double* const sum = sums + piece.entry * (samples + 1);
      std::fill(sum + first, sum + first + columns, 0.0);
      const uint8_t* const of_piece = finite == nullptr ? nullptr : finite - begin;
      AddFinite<T>(in, of_piece, piece.first, piece.first + piece.records, first, columns,
                   sum + first);
      if (first > 0) return;
      double count = static_cast<double>(piece.records);
      if (finite != nullptr)
        count = static_cast<double>(
            std::count(of_piece + piece.first, of_piece + piece.first + piece.records, 1));
      sum[samples] = count;
    });
  }

  void Mean(const MeanOfSums& mean, const double* sums, int64_t entries, int64_t first,
            int64_t columns) {
    const int64_t samples = config_.samples_per_record;
    double total[kSumColumns] = {}, count = 0;
    for (int64_t i = 0; i < mean.entries; ++i) {
      const double* const sum = sums + (mean.first + i) % entries * (samples + 1);
      for (int64_t c = 0; c < columns; ++c) total[c] += sum[first + c];
      count += sum[samples];
    }
    float* const background = background_.data() + mean.row * samples + first;
    for (int64_t c = 0; c < columns; ++c)
      background[c] = math::MeanOfRecords(total[c], count, config_.record_average);
  }

  // The background of the records from record `first` of the volume on: one [S] for all records, or
  // one per lane in `lanes`.
  TileBackground BackgroundOf(int64_t first, int64_t records, float* lanes) const {
    if (background_.empty()) return {};
    if (config_.background != math::Background::kRolling) return {.all = background_.data()};
    const int64_t samples = config_.samples_per_record, group = config_.background_group_records,
                  rows = RollingRows(config_);
    const auto row = [&](int64_t record) {
      return background_.data() + record / group % rows * samples;
    };
    if (first / group == (first + records - 1) / group) return {.all = row(first)};
    for (int64_t lane = 0; lane < lanes_; ++lane) {
      const float* const from = row(first + std::min(lane, records - 1));
      for (int64_t j = 0; j < samples; ++j) lanes[j * lanes_ + lane] = from[j];
    }
    return {.lanes = lanes};
  }
  // The scratch memory behind that of a tile.
  float* LanesOf(float* scratch) const { return scratch + TileScratchFloats(tables_); }
  int64_t ScratchFloats() const {
    return TileScratchFloats(tables_) + (config_.background == math::Background::kRolling
                                             ? config_.samples_per_record * lanes_
                                             : 0);
  }

  template <typename T>
  void MeanOfRun(const uint8_t* raw, int64_t records) {
    const RawRows in = RowsOf(raw);
    const uint8_t* const finite = FiniteOf(in, records);
    const auto count =
        static_cast<double>(finite == nullptr ? records : std::count(finite, finite + records, 1));
    ForColumns(config_.samples_per_record, [&](int64_t first, int64_t columns) {
      double* sum = sums_.data() + first;
      std::fill(sum, sum + columns, 0.0);
      AddFinite<T>(in, finite, 0, records, first, columns, sum);
      for (int64_t c = 0; c < columns; ++c) {
        background_[static_cast<size_t>(first + c)] =
            math::MeanOfRecords(sum[c], count, config_.record_average);
      }
    });
  }

  // Computes the fixed pattern of the `ascans` A-scans in spectra_: for each depth their complex
  // mean, or the mean of the segment that varies least.
  void FindPattern(int64_t ascans) {
    const int64_t depth = config_.depth,
                  segments = math::PatternSegments(config_.fixed_pattern, ascans);
    tbb::parallel_for(int64_t{0}, (depth + kPatternDepths - 1) / kPatternDepths, [&](int64_t part) {
      const int64_t first = part * kPatternDepths, last = std::min(first + kPatternDepths, depth);
      for (int64_t s = 0; s < segments; ++s) {
        const int64_t begin = math::SegmentBegin(ascans, segments, s),
                      end = math::SegmentBegin(ascans, segments, s + 1);
        float *re = mean_re_.data() + s * depth, *im = mean_im_.data() + s * depth;
        SumAscans(tables_, spectra_.get(), begin, end, first, last, nullptr, nullptr, re, im);
        const float share = 1.0f / static_cast<float>(end - begin);
        for (int64_t z = first; z < last; ++z) {
          re[z] *= share;
          im[z] *= share;
        }
        if (segments == 1) continue;
        float* square = square_re_.data() + s * depth;
        SumAscans(tables_, spectra_.get(), begin, end, first, last, re, im, square,
                  square_im_.data() + s * depth);
        for (int64_t z = first; z < last; ++z) square[z] *= share;
      }
      for (int64_t z = first; z < last; ++z) {
        int64_t quiet = 0;
        for (int64_t s = 1; s < segments; ++s) {
          if (square_re_[static_cast<size_t>(s * depth + z)] <
              square_re_[static_cast<size_t>(quiet * depth + z)])
            quiet = s;
        }
        pattern_re_[static_cast<size_t>(z)] = mean_re_[static_cast<size_t>(quiet * depth + z)];
        pattern_im_[static_cast<size_t>(z)] = mean_im_[static_cast<size_t>(quiet * depth + z)];
      }
    });
  }

  const SpectralConfig config_;
  const int64_t record_bytes_, lanes_;
  const TileTables tables_;
  // Only the stream's thread and the tasks that it waits for use the members below.
  std::vector<float> background_;  // [S], or [row, S] of a rolling one
  std::vector<double> sums_;
  std::vector<uint8_t> finite_;
  Scratch spectra_;
  std::vector<float> pattern_re_, pattern_im_;                    // [D]
  std::vector<float> mean_re_, mean_im_, square_re_, square_im_;  // [segment, D]
  tbb::enumerable_thread_specific<Scratch> scratch_;
};

class HostSpectralOps final : public SpectralOps {
 public:
  absl::StatusOr<std::unique_ptr<SpectralPlan>> CreatePlan(const SpectralConfig& config) override {
    return std::make_unique<HostSpectralPlan>(config);
  }
  int64_t PlanBytes(const SpectralConfig& config) override {
    return RollingBytes(config) + SpectraFloats(config) * 4;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<SpectralOps>> MakeSpectralOps(Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "host", SpectralOps::kFamily));
  return std::make_unique<HostSpectralOps>();
}

}  // namespace octavo::inline gpu::host
