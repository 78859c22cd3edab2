#include "gpu/tomography/ring_removal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/tomography/families.h"

namespace octavo::inline gpu {
namespace {

constexpr int64_t kFloat = sizeof(float), kWorkBytes = int64_t{512} << 20;
constexpr int64_t kSortSamples = 256;  // cost of a pixel, about, in interpolated values

// Daubechies 1988: scaling filters of 1 … 8 vanishing moments.
constexpr std::array<std::array<double, 16>, 8> kScaling = {{
    {0.7071067811865475, 0.7071067811865475},
    {0.4829629131445342, 0.8365163037378078, 0.2241438680420134, -0.1294095225512604},
    {0.3326705529500826, 0.8068915093110923, 0.4598775021184915, -0.1350110200102546,
     -0.08544127388202664, 0.03522629188570953},
    {0.2303778133088965, 0.7148465705529157, 0.6308807679298589, -0.02798376941685975,
     -0.187034811719093, 0.03084138183556066, 0.03288301166688518, -0.01059740178506902},
    {0.160102397974193, 0.60382926979719, 0.7243085284377732, 0.1384281459013207,
     -0.2422948870663824, -0.03224486958463849, 0.07757149384004573, -0.00624149021279828,
     -0.01258075199908201, 0.003335725285473773},
    {0.1115407433501092, 0.4946238903984522, 0.7511339080210943, 0.3152503517091979,
     -0.2262646939654382, -0.1297668675672612, 0.09750160558732279, 0.02752286553030565,
     -0.03158203931748588, 0.0005538422011614941, 0.004777257510945497, -0.001077301085308477},
    {0.07785205408500927, 0.3965393194819176, 0.7291320908462354, 0.4697822874051928,
     -0.143906003928566, -0.2240361849938751, 0.07130921926683108, 0.08061260915108322,
     -0.03802993693501451, -0.01657454163066685, 0.01255099855609989, 0.0004295779729213629,
     -0.001801640704047496, 0.0003537137999745212},
    {0.05441584224310407, 0.3128715909143003, 0.6756307362972903, 0.585354683654207,
     -0.01582910525634972, -0.2840155429615464, 0.0004724845739131254, 0.1287474266204786,
     -0.01736930100180779, -0.0440882539307953, 0.01398102791739819, 0.00874609404740577,
     -0.004870352993451595, -0.0003917403733769488, 0.0006754494064505706, -0.0001174767841247698},
}};

bool Sorts(RingMethod method) { return method != RingMethod::kFourierWavelet; }

absl::Status Odd(const std::string& field, int64_t value, bool zero_too) {
  if ((zero_too && value == 0) || (value % 2 == 1 && value >= 3 && value <= 511))
    return absl::OkStatus();
  return InvalidField(
      field, absl::StrCat("is ", value, "; allowed ", zero_too ? "0 or " : "", "odd, 3 to 511"));
}

int64_t SortingWindow(const RingRemoval& ring, int64_t detectors) {
  if (ring.sorting_window != 0) return ring.sorting_window;
  const int64_t part = detectors > 2000 ? 21 : std::max<int64_t>(5, detectors / 100);
  return part + (part % 2 == 0 ? 1 : 0);
}

class Chain final : public RingChain {
 public:
  Chain(const std::vector<RingRemoval>& rings, const PreparedShape& shape, Device& device,
        const TomographyFamilies& families)
      : rings_(rings),
        shape_(shape),
        device_(device),
        arrays_(families.arrays),
        tomography_(families.tomography),
        ops_(families.sinograms),
        batch_(shape.slices) {}

  /// Computes all sizes and allocates the memory, or only counts it.
  absl::Status Init(bool only_count) {
    int64_t per_slice = WorkFloats(1) * kFloat;
    const int64_t most = std::max<int64_t>(1, kWorkBytes / per_slice),
                  batches = (shape_.slices + most - 1) / most;
    batch_ = (shape_.slices + batches - 1) / batches;
    const int64_t lists = batch_ * shape_.detectors;
    int64_t fft_bytes = 0;
    for (const RingRemoval& ring : rings_) {
      if (Sorts(ring.method)) continue;
      for (const int64_t slices : {batch_, shape_.slices - (batches - 1) * batch_}) {
        for (const Level& level : Levels(ring)) {
          OCTAVO_ASSIGN_OR_RETURN(
              const int64_t bytes,
              arrays_.PrepareFft({.n = level.low_angles, .rows = slices * level.low_detectors}));
          fft_bytes = std::max(fft_bytes, bytes);
        }
      }
    }
    const std::pair<int64_t, DeviceBuffer*> wanted[] = {{WorkFloats(batch_) * kFloat, &work_},
                                                        {2 * lists * 8, &lists_},
                                                        {lists, &mask_},
                                                        {fft_bytes, &fft_work_}};
    for (const auto& [bytes, buffer] : wanted) {
      bytes_ += bytes;
      if (only_count) continue;
      OCTAVO_ASSIGN_OR_RETURN(*buffer, device_.Allocate(std::max<int64_t>(bytes, 256)));
    }
    return absl::OkStatus();
  }
  int64_t bytes() const { return bytes_; }

  absl::Status Run(StreamRef stream, DeviceSpan<float> sinograms,
                   const CancelCheck& goes_on) override {
    // Transforms are planned for whole batches. Operators that sort may check for cancellation more
    // often.
    int64_t step = batch_;
    if (goes_on && std::all_of(rings_.begin(), rings_.end(),
                               [](const RingRemoval& ring) { return Sorts(ring.method); })) {
      step = std::clamp<int64_t>(
          tomography_.PieceSamples() / (kSortSamples * shape_.angles * shape_.detectors), 1,
          batch_);
    }
    for (int64_t first = 0; first < shape_.slices; first += step) {
      const ColumnsSpec spec{.slices = std::min(step, shape_.slices - first),
                             .detectors = shape_.detectors,
                             .angles = shape_.angles};
      const DeviceSpan<float> data = sinograms.From(first * shape_.angles * shape_.detectors),
                              columns = work_.span<float>();
      OCTAVO_RETURN_IF_ERROR(
          ops_.Transpose(stream, spec.slices, spec.angles, spec.detectors, data, columns));
      for (const RingRemoval& ring : rings_) {
        OCTAVO_RETURN_IF_ERROR(Remove(stream, ring, spec, columns));
        OCTAVO_RETURN_IF_ERROR(CheckCancelled(stream, goes_on));
      }
      OCTAVO_RETURN_IF_ERROR(
          ops_.Transpose(stream, spec.slices, spec.detectors, spec.angles, columns, data));
    }
    return absl::OkStatus();
  }

 private:
  struct Level {
    int64_t detectors = 0, angles = 0, low_detectors = 0, low_angles = 0;
  };
  static int64_t Taps(const RingRemoval& ring) { return 2 * ring.wavelet_order; }
  int64_t PaddedAngles(const RingRemoval& ring) const {
    return shape_.angles + (ring.wavelet_padding ? shape_.angles / 8 : 0);
  }
  std::vector<Level> Levels(const RingRemoval& ring) const {
    int64_t count = ring.wavelet_levels;
    for (int64_t size = 1;
         ring.wavelet_levels == 0 && size < std::max(shape_.angles, shape_.detectors); size *= 2)
      ++count;
    std::vector<Level> levels;
    int64_t detectors = shape_.detectors, angles = PaddedAngles(ring);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t d = (detectors + Taps(ring) - 1) / 2, a = (angles + Taps(ring) - 1) / 2;
      levels.push_back(
          {.detectors = detectors, .angles = angles, .low_detectors = d, .low_angles = a});
      detectors = d;
      angles = a;
    }
    return levels;
  }
  /// The sinograms by columns, followed by the arrays of the method.
  int64_t WorkFloats(int64_t slices) const {
    const int64_t sinograms = slices * shape_.angles * shape_.detectors;
    int64_t most = 0;
    for (const RingRemoval& ring : rings_) {
      int64_t floats = 3 * sinograms;
      if (!Sorts(ring.method)) {
        floats = slices * shape_.detectors * PaddedAngles(ring);
        int64_t half = 0, transformed = 0;
        for (const Level& l : Levels(ring)) {
          floats += 2 * slices * l.low_detectors * l.low_angles;  // approximations and stripes
          half = std::max(half, slices * l.low_detectors * l.angles);
          transformed = std::max(transformed, slices * l.low_detectors * l.low_angles);
        }
        floats += 2 * half + 2 * transformed + 1;
      }
      most = std::max(most, floats);
    }
    return sinograms + most;
  }

  absl::Status Remove(StreamRef stream, const RingRemoval& ring, const ColumnsSpec& spec,
                      DeviceSpan<float> columns) {
    switch (ring.method) {
      case RingMethod::kSorting: return Sorting(stream, ring, spec, columns);
      case RingMethod::kLargeStripe: return Large(stream, ring, spec, columns);
      case RingMethod::kDeadStripe:
        OCTAVO_RETURN_IF_ERROR(Dead(stream, ring, spec, columns));
        return Large(stream, ring, spec, columns);
      case RingMethod::kAllStripe:
        OCTAVO_RETURN_IF_ERROR(Dead(stream, ring, spec, columns));
        OCTAVO_RETURN_IF_ERROR(Large(stream, ring, spec, columns));
        return Sorting(stream, ring, spec, columns);
      case RingMethod::kFourierWavelet: return FourierWavelet(stream, ring, spec, columns);
    }
    return absl::OkStatus();
  }

  absl::Status Sorting(StreamRef stream, const RingRemoval& ring, const ColumnsSpec& spec,
                       DeviceSpan<float> columns) {
    const DeviceSpan<float> sorted = columns.From(spec.elements()),
                            smooth = sorted.From(spec.elements());
    const DeviceSpan<int32_t> order = smooth.From(spec.elements()).As<int32_t>();
    OCTAVO_RETURN_IF_ERROR(ops_.SortColumns(stream, spec, columns, sorted, order));
    OCTAVO_RETURN_IF_ERROR(ops_.MedianOverDetectors(
        stream, spec, SortingWindow(ring, spec.detectors), sorted, smooth));
    return ops_.Unsort(stream, spec, smooth, order, nullptr, nullptr, columns);
  }

  absl::Status Large(StreamRef stream, const RingRemoval& ring, const ColumnsSpec& spec,
                     DeviceSpan<float> columns) {
    const DeviceSpan<float> sorted = columns.From(spec.elements()),
                            smooth = sorted.From(spec.elements());
    const DeviceSpan<int32_t> order = smooth.From(spec.elements()).As<int32_t>();
    const DeviceSpan<double> factors = lists_.span<double>();
    const DeviceSpan<uint8_t> mask = mask_.span<uint8_t>();
    const auto drop =
        static_cast<int64_t>(0.5 * ring.drop_ratio * static_cast<double>(spec.angles));
    OCTAVO_RETURN_IF_ERROR(ops_.SortColumns(stream, spec, columns, sorted, order));
    OCTAVO_RETURN_IF_ERROR(
        ops_.MedianOverDetectors(stream, spec, ring.stripe_window, sorted, smooth));
    OCTAVO_RETURN_IF_ERROR(ops_.MeanRatios(stream, spec, drop, sorted, smooth, factors));
    OCTAVO_RETURN_IF_ERROR(ops_.MarkStripes(stream, spec, ring.snr, false, factors, mask));
    return ops_.Unsort(stream, spec, smooth, order, mask,
                       ring.normalize ? factors : DeviceSpan<double>(), columns);
  }

  absl::Status Dead(StreamRef stream, const RingRemoval& ring, const ColumnsSpec& spec,
                    DeviceSpan<float> columns) {
    const DeviceSpan<double> factors = lists_.span<double>(), sums = factors.From(spec.columns());
    const DeviceSpan<uint8_t> mask = mask_.span<uint8_t>();
    OCTAVO_RETURN_IF_ERROR(
        ops_.RoughnessRatios(stream, spec, ring.stripe_window, columns, sums, factors));
    OCTAVO_RETURN_IF_ERROR(ops_.MarkStripes(stream, spec, ring.snr, true, factors, mask));
    return ops_.FillColumns(stream, spec, mask, columns);
  }

  // The transform is linear. So the inverse transform only takes the part of the vertical details
  // that the damping removes, and its result is subtracted from the image.
  absl::Status FourierWavelet(StreamRef stream, const RingRemoval& ring, const ColumnsSpec& spec,
                              DeviceSpan<float> columns) {
    const std::vector<Level> levels = Levels(ring);
    const int64_t padded = PaddedAngles(ring), before = (padded - spec.angles) / 2;
    DeviceSpan<float> next = columns.From(spec.elements());
    const auto take = [&](int64_t floats) {
      return std::exchange(next, next.From(floats)).First(floats);
    };
    std::vector<DeviceSpan<float>> approximations = {take(spec.columns() * padded)}, stripes;
    int64_t half = 0, transformed = 0;
    for (const Level& l : levels) {
      approximations.push_back(take(spec.slices * l.low_detectors * l.low_angles));
      stripes.push_back(take(spec.slices * l.low_detectors * l.low_angles));
      half = std::max(half, spec.slices * l.low_detectors * l.angles);
      transformed = std::max(transformed, spec.slices * l.low_detectors * l.low_angles);
    }
    const DeviceSpan<float> low = take(half), high = take(half);
    if ((next.data() - columns.data()) % 2 != 0) next = next.From(1);
    const DeviceSpan<ComplexF> complex = next.As<ComplexF>();
    const auto along = [&](const Level& l, bool detectors) {
      WaveletSpec w{.outer = detectors ? spec.slices : spec.slices * l.low_detectors,
                    .n = detectors ? l.detectors : l.angles,
                    .m = detectors ? l.low_detectors : l.low_angles,
                    .inner = detectors ? l.angles : 1,
                    .taps = static_cast<int>(Taps(ring))};
      for (size_t i = 0; i < 16; ++i)
        w.low[i] = static_cast<float>(kScaling[static_cast<size_t>(ring.wavelet_order - 1)][i]);
      return w;
    };
    OCTAVO_RETURN_IF_ERROR(ops_.PadRows(stream, spec.columns(), spec.angles, padded, before,
                                        columns, approximations[0]));
    for (size_t i = 0; i < levels.size(); ++i) {
      const Level& l = levels[i];
      const int64_t rows = spec.slices * l.low_detectors, count = rows * l.low_angles;
      OCTAVO_RETURN_IF_ERROR(ops_.Analyze(stream, along(l, true), false, approximations[i], low));
      OCTAVO_RETURN_IF_ERROR(ops_.Analyze(stream, along(l, true), true, approximations[i], high));
      OCTAVO_RETURN_IF_ERROR(
          ops_.Analyze(stream, along(l, false), false, low, approximations[i + 1]));
      OCTAVO_RETURN_IF_ERROR(ops_.Analyze(stream, along(l, false), false, high, stripes[i]));
      OCTAVO_RETURN_IF_ERROR(ops_.ToComplex(stream, count, stripes[i], complex));
      FftSpec fft{.n = l.low_angles, .rows = rows};
      OCTAVO_RETURN_IF_ERROR(arrays_.Fft(stream, fft, complex.data(), fft_work_.data()));
      OCTAVO_RETURN_IF_ERROR(ops_.KeepStripes(stream, rows, l.low_angles,
                                              static_cast<float>(ring.wavelet_sigma), complex));
      fft.inverse = true;
      OCTAVO_RETURN_IF_ERROR(arrays_.Fft(stream, fft, complex.data(), fft_work_.data()));
      OCTAVO_RETURN_IF_ERROR(ops_.RealPart(stream, count, complex, stripes[i]));
    }
    for (size_t i = levels.size(); i-- > 0;) {
      const Level& l = levels[i];
      const bool deepest = i + 1 == levels.size();
      if (!deepest)
        OCTAVO_RETURN_IF_ERROR(
            ops_.Synthesize(stream, along(l, false), approximations[i + 1], nullptr, low));
      OCTAVO_RETURN_IF_ERROR(ops_.Synthesize(stream, along(l, false), stripes[i], nullptr, high));
      OCTAVO_RETURN_IF_ERROR(ops_.Synthesize(
          stream, along(l, true), deepest ? DeviceSpan<float>() : low, high, approximations[i]));
    }
    return ops_.SubtractRows(stream, spec.columns(), spec.angles, padded, before, approximations[0],
                             columns);
  }

  const std::vector<RingRemoval> rings_;
  const PreparedShape shape_;
  Device& device_;
  ArrayOps& arrays_;
  TomographyOps& tomography_;
  SinogramOps& ops_;
  int64_t batch_ = 0, bytes_ = 0;
  DeviceBuffer work_, lists_, mask_, fft_work_;
};

}  // namespace

absl::Status CheckRings(const std::vector<RingRemoval>& rings, int64_t angles, int64_t detectors) {
  if (rings.size() > 8)
    return InvalidField("rings", absl::StrCat("has ", rings.size(), " removals; allowed up to 8"));
  for (size_t i = 0; i < rings.size(); ++i) {
    const RingRemoval& r = rings[i];
    const std::string name = absl::StrCat("rings[", i, "]");
    const bool stripes = r.method == RingMethod::kLargeStripe ||
                         r.method == RingMethod::kDeadStripe || r.method == RingMethod::kAllStripe;
    const bool sorting = r.method == RingMethod::kSorting || r.method == RingMethod::kAllStripe;
    if (!stripes && !sorting && r.method != RingMethod::kFourierWavelet) {
      return InvalidField(absl::StrCat(name, ".method"),
                          absl::StrCat("has the unknown value ", static_cast<int>(r.method)));
    }
    if (Sorts(r.method) && angles > kMostSorted) {
      return InvalidField(name,
                          absl::StrCat("sorts ", angles, " angles; allowed up to ", kMostSorted));
    }
    if (stripes && detectors > kMostSorted)
      return InvalidField(
          name, absl::StrCat("sorts ", detectors, " detectors; allowed up to ", kMostSorted));
    if (sorting)
      OCTAVO_RETURN_IF_ERROR(Odd(absl::StrCat(name, ".sorting_window"), r.sorting_window, true));
    if (stripes) {
      OCTAVO_RETURN_IF_ERROR(Odd(absl::StrCat(name, ".stripe_window"), r.stripe_window, false));
      if (!(std::isfinite(r.snr) && r.snr > 0))
        return FieldNotAllowed(absl::StrCat(name, ".snr"), r.snr, "above 0");
      if (!(r.drop_ratio >= 0 && r.drop_ratio <= 0.8)) {
        return FieldOutOfRange(absl::StrCat(name, ".drop_ratio"), r.drop_ratio, "0", "0.8");
      }
    }
    if (r.method != RingMethod::kFourierWavelet) continue;
    if (r.wavelet_order < 1 || r.wavelet_order > 8) {
      return FieldOutOfRange(absl::StrCat(name, ".wavelet_order"), r.wavelet_order, 1, 8);
    }
    if (r.wavelet_levels < 0 || r.wavelet_levels > 16) {
      return FieldNotAllowed(absl::StrCat(name, ".wavelet_levels"), r.wavelet_levels,
                             "0 (by size) to 16");
    }
    if (!(std::isfinite(r.wavelet_sigma) && r.wavelet_sigma > 0)) {
      return FieldNotAllowed(absl::StrCat(name, ".wavelet_sigma"), r.wavelet_sigma, "above 0");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RingChain>> RingChain::Create(const std::vector<RingRemoval>& rings,
                                                             const PreparedShape& shape,
                                                             Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(const TomographyFamilies families, FindTomographyFamilies(device));
  auto chain = std::make_unique<Chain>(rings, shape, device, families);
  OCTAVO_RETURN_IF_ERROR(chain->Init(false));
  return chain;
}

absl::StatusOr<int64_t> RingChain::DeviceBytes(const std::vector<RingRemoval>& rings,
                                               const PreparedShape& shape, Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(const TomographyFamilies families, FindTomographyFamilies(device));
  Chain chain(rings, shape, device, families);
  OCTAVO_RETURN_IF_ERROR(chain.Init(true));
  return chain.bytes();
}

}  // namespace octavo::inline gpu
