#include "server/storage/formats/record_readings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

namespace octavo::storage {
namespace {

// Neighbouring samples of the right reading must lie this many times closer to each other than
// those of a wrong one. A smaller factor suffices where the bytes themselves show that they are
// packed. Chosen so that random scenes of the right type raise no doubt and those of a wrong type
// nearly always do (record_doubts_test.cc prints how many).
constexpr double kClearlySmoother = 4, kSmoother = 2;
// Fraction of full scale. Samples that change by less than this from one to the next are right,
// even where even and odd pixels differ.
constexpr double kRough = 0.03;
// Samples composed of other samples' bits change by more than this. Noise over the whole range
// changes by a third.
constexpr double kVeryRough = 0.1;

/// Mean distance of values `lag` apart; from `first` on, every `stride`-th.
template <typename T>
double MeanStep(const std::vector<T>& values, size_t lag, size_t first = 0, size_t stride = 1) {
  double sum = 0;
  size_t count = 0;
  for (size_t i = first; i + lag < values.size(); i += stride, ++count)
    sum += std::abs(static_cast<double>(values[i + lag]) - values[i]);
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

bool IsPacked(Reading reading) {
  return reading == Reading::kLowFirst12 || reading == Reading::kHighFirst12;
}
double FullScale(Reading reading) {
  return reading == Reading::kU8 ? 256 : IsPacked(reading) ? 4096 : 65536;
}

// Mean distance of neighbouring samples of the same channel, as a part of full scale.
double Roughness(absl::string_view bytes, Reading reading, int64_t channels) {
  return MeanStep(IntegersOf(bytes, reading), static_cast<size_t>(channels)) / FullScale(reading);
}

// Histogram of the upper half of every `period`-th byte from `first` on. A word equal to the one
// before is not counted again, because saturated or empty places carry no information.
std::array<double, 16> UpperHalves(absl::string_view bytes, size_t period, size_t first) {
  std::array<double, 16> parts{};
  double words = 0;
  absl::string_view before;
  for (size_t at = 0; at + period <= bytes.size(); at += period) {
    const absl::string_view word = bytes.substr(at, period);
    if (word == std::exchange(before, word)) continue;
    ++words;
    ++parts[static_cast<uint8_t>(word[first]) >> 4];
  }
  for (double& part : parts) part /= std::max(words, 1.0);
  return parts;
}

// 0: both bytes of a word have the same distribution; 1: their distributions are disjoint.
double Unlike(absl::string_view bytes, size_t period, size_t one, size_t other) {
  const auto a = UpperHalves(bytes, period, one), b = UpperHalves(bytes, period, other);
  double difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference += std::abs(a[i] - b[i]);
  return difference / 2;
}

struct Floats {
  size_t count = 0, zeros = 0, odd = 0;  // odd: not finite, or beyond any instrument's range
};

template <typename T>
Floats CountFloats(absl::string_view bytes, bool big) {
  constexpr double kLeast = 1e-12, kMost = 1e12;
  Floats floats{.count = bytes.size() / sizeof(T)};
  for (size_t i = 0; i < floats.count; ++i) {
    char word[sizeof(T)];
    std::memcpy(word, bytes.data() + i * sizeof(T), sizeof(T));
    if (big) std::reverse(word, word + sizeof(T));
    T value;
    std::memcpy(&value, word, sizeof(T));
    const double size = std::abs(static_cast<double>(value));
    if (size == 0) {
      ++floats.zeros;
    } else if (!(size >= kLeast && size <= kMost)) {
      ++floats.odd;
    }
  }
  return floats;
}

// More than a few of the values are no numbers that an instrument gives.
bool AreOdd(const Floats& floats) { return floats.odd * 50 >= floats.count && floats.odd > 0; }

// The three bytes of a pair of packed samples have different distributions. In whole bytes and
// words every place within three bytes takes each role in turn, so their distributions are alike.
bool GoesByThrees(absl::string_view bytes) {
  return std::max(Unlike(bytes, 3, 0, 1), Unlike(bytes, 3, 0, 2)) > 0.1;
}

// Words of floating-point numbers: nearly all have a magnitude that an instrument gives, and their
// upper half, with the exponent, has another distribution than the lower half. Two samples of a
// narrower type may make such numbers by chance, but their halves are alike.
bool AreFloats(absl::string_view bytes, Reading reading, Reading asked) {
  const bool big = reading == Reading::kF32Big || reading == Reading::kF64Big,
             wide = reading == Reading::kF64 || reading == Reading::kF64Big;
  const Floats floats = wide ? CountFloats<double>(bytes, big) : CountFloats<float>(bytes, big);
  if (floats.odd * 1000 > floats.count || floats.zeros * 2 > floats.count) return false;
  const size_t size = wide ? 8 : 4;
  return Unlike(bytes, size, big ? 0 : size - 1, big ? size / 2 : size / 2 - 1) > 0.5 &&
         (asked == Reading::kF32 || Roughness(bytes, asked, 1) > kVeryRough);
}

// Two samples of 16 bits in each word of 32: both have the same range of values and change equally
// much.
bool HalvesAlike(absl::string_view bytes) {
  if (Unlike(bytes, 4, 1, 3) >= 0.2) return false;
  const std::vector<int32_t> halves = IntegersOf(bytes, Reading::kU16);
  const double lower = MeanStep(halves, 2, 0, 2), upper = MeanStep(halves, 2, 1, 2);
  return std::max(lower, upper) <= 3 * std::min(lower, upper);
}

// Words of 32 bits whose upper half holds only a sign, and whose lower half exceeds the noise of a
// dark pixel.
bool AreLongIntegers(absl::string_view bytes, bool big) {
  size_t count = 0, sign = 0, zero = 0;
  int least = 65535, most = 0;
  for (size_t at = 0; at + 4 <= bytes.size(); at += 4, ++count) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[at + (big ? 3 - i : i)]); };
    const uint8_t expected = byte(1) >= 0x80 ? 0xFF : 0;
    const bool extended = byte(2) == byte(3) && (byte(3) == 0 || byte(3) == expected);
    sign += extended ? 1 : 0;
    zero += byte(0) == 0 && byte(1) == 0 ? 1 : 0;
    const int lower = byte(1) << 8 | byte(0);
    least = std::min(least, lower);
    most = std::max(most, lower);
  }
  return count > 0 && most - least > 255 && sign * 1000 >= count * 999 && zero * 2 < count;
}

/// How much the bytes at even places, and those at odd places, change from one to the next.
struct ByteSteps {
  double even = 0, odd = 0, neighbours = 0;
  bool odd_are_signs = true;  // all of them are the signs of small 16-bit numbers
  explicit ByteSteps(absl::string_view bytes) {
    const std::vector<int32_t> values = IntegersOf(bytes, Reading::kU8);
    for (size_t i = 1; i < values.size(); i += 2)
      odd_are_signs = odd_are_signs && (values[i] == 0 || values[i] == 255);
    const auto step = [&](size_t first) {
      return std::min(MeanStep(values, 2, first, 2), MeanStep(values, 4, first, 2));
    };  // even and odd pixels may differ
    even = step(0);
    odd = step(1);
    neighbours = MeanStep(values, 1);
  }
  double smoother() const { return std::min(even, odd); }
  double rougher() const { return std::max(even, odd); }
  // Low bytes of words jump while high bytes hardly change: neighbours therefore differ far more
  // than successive high bytes do, and by more than even and odd pixels differ in the dark.
  bool LookLikeWords() const {
    return neighbours > 4 * smoother() + 10 && rougher() > 4 * smoother() + 0.1;
  }
  // If bytes of one kind differ by this much, the data do not tell.
  bool LookLikeBytes() const {
    constexpr double kNoise = 20;
    return !odd_are_signs && rougher() < kNoise && smoother() > 0.5 * rougher() && neighbours > 0 &&
           neighbours < 1.5 * smoother() + 1;
  }
};

// Whether the first bytes of words carry information.
bool HasLowBytes(absl::string_view bytes) {
  for (size_t i = 2; i < bytes.size(); i += 2) {
    if (bytes[i] != bytes[0]) return true;
  }
  return false;
}

// Numbers of 8 bits that were widened by a factor of 257: both bytes of each word are equal.
bool AreDoubledBytes(absl::string_view bytes) {
  size_t equal = 0;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) equal += bytes[i] == bytes[i + 1] ? 1 : 0;
  return equal * 2 * 100 > bytes.size() * 95;
}

// The smoothest reading as integers, if it is much smoother than the roughness `least`. Among equal
// ones the first.
std::optional<Reading> Smoothest(absl::string_view bytes, std::initializer_list<Reading> readings,
                                 int64_t channels, double least,
                                 double clearly = kClearlySmoother) {
  std::optional<Reading> best;
  for (const Reading reading : readings) {
    // An 8-bit value in the upper byte becomes a smaller value, not another type, when its bytes
    // are swapped.
    if ((reading == Reading::kU16Big || reading == Reading::kI16Big) && !HasLowBytes(bytes))
      continue;
    const double roughness = Roughness(bytes, reading, channels);
    if (roughness * (best.has_value() ? 1.001 : clearly) >= least) continue;
    best = reading;
    least = roughness;
  }
  return best;
}

// Data declared as f32 that are not f32.
std::optional<Reading> LikeIntegers(absl::string_view bytes) {
  if (const ByteSteps steps(bytes); steps.LookLikeBytes()) return Reading::kU8;
  const auto all = {Reading::kU16,    Reading::kI16,        Reading::kU8,         Reading::kU16Big,
                    Reading::kI16Big, Reading::kLowFirst12, Reading::kHighFirst12};
  const auto best = Smoothest(bytes, all, 1, 1e9);
  return best.has_value() && Roughness(bytes, *best, 1) < kVeryRough ? best : std::nullopt;
}

// If whole bytes are read as packed samples, two of three bytes are nearly right; the bytes of
// truly packed samples are far rougher.
bool AreSmootherBytes(absl::string_view bytes, double roughness) {
  const double of_bytes = Roughness(bytes, Reading::kU8, 1);
  return of_bytes > 0 && of_bytes <= roughness && of_bytes < 2 * kVeryRough;
}

/// How much words change from one to the next, read as signed or as unsigned.
struct Leaps {
  size_t count = 0;  // over more than half of the range
  // places in a record with such leaps: words of a header, or a hot pixel, leap at few places
  size_t columns = 0;
  bool at_the_top = false;  // values in the upper half are mostly the largest value: saturated
  Leaps(absl::string_view bytes, Reading reading, size_t channels, size_t samples) {
    const std::vector<int32_t> values = IntegersOf(bytes, reading);
    std::vector<bool> leap(samples);
    for (size_t i = 0; i + channels < values.size(); ++i) {
      if (std::abs(values[i + channels] - values[i]) <= 32768) continue;
      ++count;
      leap[i % samples] = true;
    }
    columns = static_cast<size_t>(std::count(leap.begin(), leap.end(), true));
    const int32_t middle = reading == Reading::kI16 ? 0 : 32768,
                  most = values.empty() ? 0 : *std::max_element(values.begin(), values.end());
    const auto upper =
        std::count_if(values.begin(), values.end(), [&](int32_t v) { return v >= middle; });
    at_the_top = 2 * std::count(values.begin(), values.end(), most) > upper;
  }
};

// If the sign is read wrongly, values that pass 0, or the middle of the range, leap from one end of
// the range to the other.
std::optional<Reading> OfOtherSign(absl::string_view bytes, Reading asked, int64_t channels,
                                   int64_t samples) {
  const Reading other = asked == Reading::kU16 ? Reading::kI16 : Reading::kU16;
  const auto of_record = static_cast<size_t>(std::max<int64_t>(samples, 1));
  const Leaps here(bytes, asked, static_cast<size_t>(channels), of_record);
  constexpr size_t kFew = 8;
  if (here.count < kFew || here.columns < std::min(kFew, of_record / 4) || here.at_the_top)
    return std::nullopt;
  return Leaps(bytes, other, static_cast<size_t>(channels), of_record).count * 100 < here.count
             ? std::optional(other)
             : std::nullopt;
}

std::optional<Reading> LikeOtherIntegers(absl::string_view bytes, Reading asked, int64_t channels,
                                         int64_t samples) {
  const bool words = asked == Reading::kU16 || asked == Reading::kI16;
  if (words && AreDoubledBytes(bytes)) return std::nullopt;
  if (channels > 1 && !words) return std::nullopt;  // bytes of different channels need not be alike
  const double roughness = Roughness(bytes, asked, channels);
  if (channels == 1) {
    const ByteSteps steps(bytes);
    const bool threes = GoesByThrees(bytes);
    if (words && !threes && steps.LookLikeBytes()) return Reading::kU8;
    if (IsPacked(asked) && !threes && AreSmootherBytes(bytes, roughness)) return Reading::kU8;
    if (roughness > kVeryRough) {
      const auto packed = Smoothest(bytes, {Reading::kLowFirst12, Reading::kHighFirst12}, 1,
                                    roughness, threes ? kSmoother : kClearlySmoother);
      if (packed.has_value() && packed != asked) return packed;
    }
    if (asked == Reading::kU8 && !steps.LookLikeWords()) return std::nullopt;
    if (asked == Reading::kU8 && roughness <= kRough) return Reading::kU16;
  }
  if (words) {
    if (const auto sign = OfOtherSign(bytes, asked, channels, samples); sign.has_value())
      return sign;
  }
  if (roughness <= kRough) return std::nullopt;
  const auto other =
      asked == Reading::kI16
          ? Smoothest(bytes, {Reading::kI16Big, Reading::kU16Big}, channels, roughness)
      : words ? Smoothest(bytes, {Reading::kU16Big, Reading::kI16Big}, channels, roughness)
              : Smoothest(bytes, {Reading::kU16, Reading::kI16, Reading::kU16Big, Reading::kI16Big},
                          1, roughness);
  return asked == Reading::kU8 && !other.has_value() ? std::optional(Reading::kU16) : other;
}

}  // namespace

Reading ReadingOf(DType raw_type, math::Packing packing) {
  if (packing == math::Packing::kLowFirst12) return Reading::kLowFirst12;
  if (packing == math::Packing::kHighFirst12) return Reading::kHighFirst12;
  return raw_type == DType::kU8    ? Reading::kU8
         : raw_type == DType::kI16 ? Reading::kI16
         : raw_type == DType::kF32 ? Reading::kF32
                                   : Reading::kU16;
}

const char* NameOf(Reading reading) {
  static constexpr const char* kNames[] = {"u8",
                                           "u16",
                                           "i16",
                                           "f32",
                                           "u12p",
                                           "u12-packed",
                                           "big-endian u16",
                                           "big-endian i16",
                                           "big-endian f32",
                                           "32-bit integers",
                                           "big-endian 32-bit integers",
                                           "f64",
                                           "big-endian f64"};
  return kNames[static_cast<int>(reading)];
}

bool CanBeReplayed(Reading reading) { return reading <= Reading::kHighFirst12; }

std::vector<int32_t> IntegersOf(absl::string_view bytes, Reading reading) {
  std::vector<int32_t> values;
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  if (IsPacked(reading)) {
    const auto packing =
        reading == Reading::kLowFirst12 ? math::Packing::kLowFirst12 : math::Packing::kHighFirst12;
    values.resize(bytes.size() / 3 * 2);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<int32_t>(math::ReadPacked12(packing, data, static_cast<int64_t>(i)));
    return values;
  }
  if (reading == Reading::kU8) return {data, data + bytes.size()};
  const bool big = reading == Reading::kU16Big || reading == Reading::kI16Big,
             is_signed = reading == Reading::kI16 || reading == Reading::kI16Big;
  values.resize(bytes.size() / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto word = static_cast<uint16_t>(big ? data[2 * i] << 8 | data[2 * i + 1]
                                                : data[2 * i + 1] << 8 | data[2 * i]);
    values[i] = is_signed ? static_cast<int16_t>(word) : word;
  }
  return values;
}

std::optional<Reading> LooksLike(absl::string_view bytes, Reading asked, int64_t channels,
                                 int64_t samples) {
  bool may_be_integers = true, may_be_f64 = true;
  if (asked == Reading::kF32) {
    const Floats floats = CountFloats<float>(bytes, false);
    may_be_integers = AreOdd(floats) || HalvesAlike(bytes);
    may_be_f64 = may_be_integers ||
                 floats.zeros * 3 > floats.count;  // of whole numbers in f64 every second word is 0
  }
  if (channels > 1)
    return asked == Reading::kF32 ? std::nullopt
                                  : LikeOtherIntegers(bytes, asked, channels, samples);
  for (const Reading reading : {Reading::kF64, Reading::kF64Big}) {
    if (may_be_f64 && AreFloats(bytes, reading, asked)) return reading;
  }
  if (!may_be_integers) return std::nullopt;
  for (const Reading reading : {Reading::kF32, Reading::kF32Big}) {
    if (reading != asked && AreFloats(bytes, reading, asked)) return reading;
  }
  for (const bool big : {false, true}) {
    if (AreLongIntegers(bytes, big)) return big ? Reading::kI32Big : Reading::kI32;
  }
  return asked == Reading::kF32 ? LikeIntegers(bytes)
                                : LikeOtherIntegers(bytes, asked, channels, samples);
}

}  // namespace octavo::storage
