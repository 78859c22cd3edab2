#include "server/storage/formats/record_doubts.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "server/storage/formats/record_readings.h"

namespace octavo::storage {
namespace {

constexpr size_t kLeastBytes = 256;
constexpr double kClear = 1.8;  // real spectra of a mirror, with its moving fringes, reach 2.3

/// Mean distance of values `lag` apart.
template <typename T>
double MeanStep(const std::vector<T>& values, size_t lag) {
  double sum = 0;
  for (size_t i = 0; i + lag < values.size(); ++i)
    sum += std::abs(static_cast<double>(values[i + lag]) - static_cast<double>(values[i]));
  return values.size() <= lag ? 0 : sum / static_cast<double>(values.size() - lag);
}

/// Whether no instrument would write such a sample beside others of up to `largest`. Readings of a
/// detector in watts may be small, but those of one file are not a million times apart.
bool IsOdd(float v, float largest) {
  const float size = std::abs(v);
  return !std::isfinite(v) || size > 1e12f || (size > 0 && size < 1e-30f) ||
         (size > 0 && size < 1e-20f && size < 1e-6f * largest);
}

template <typename T>
std::vector<T> ValuesOf(absl::string_view bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

void DoubtType(absl::string_view bytes, const RecordForm& form, std::vector<std::string>* doubts) {
  const Reading asked = ReadingOf(form.raw_type, form.packing);
  if (const auto other = LooksLike(bytes, asked, form.channels, form.samples); other.has_value()) {
    doubts->push_back(absl::StrCat("acquisition.raw_type is ", NameOf(asked), ", but the ", form.of,
                                   " samples look like ", NameOf(*other),
                                   CanBeReplayed(*other) ? "." : ", which no raw_type reads."));
    return;
  }
  if (asked != Reading::kF32) return;
  const std::vector<float> values = ValuesOf<float>(bytes);
  float largest = 0;
  for (const float v : values)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  const auto odd =
      std::count_if(values.begin(), values.end(), [largest](float v) { return IsOdd(v, largest); });
  if (odd * 50 < std::ssize(values)) return;
  doubts->push_back(absl::StrCat(
      "acquisition.raw_type is f32, but ", odd, " of the ", form.of, " first ", values.size(),
      " samples are not finite, or beyond any instrument's range: they look like another type."));
}

template <typename T>
void DoubtBits(const std::vector<T>& values, const RecordForm& form,
               std::vector<std::string>* doubts) {
  if (form.adc_bits <= 0 || form.adc_bits > 32) return;
  const double top = std::exp2(static_cast<double>(form.adc_bits)) - 1,
               bottom = form.raw_type == DType::kU8 || form.raw_type == DType::kU16 ? 0 : -top - 1;
  double most = 0;
  int64_t beyond = 0;
  for (const T value : values) {
    const auto v = static_cast<double>(value);
    if (!(v < bottom || v > top)) continue;
    ++beyond;
    if (std::abs(v) > std::abs(most)) most = v;
  }
  // individual records may be broken
  if (beyond * 1000 < std::ssize(values) || beyond == 0) return;
  doubts->push_back(
      absl::StrCat("acquisition.adc_bits is ", form.adc_bits, ", which are samples of ", bottom,
                   " to ", top, ", but ", beyond, " of the ", form.of, " first ", values.size(),
                   " samples lie beyond, up to ", most,
                   ": give the bits that they have, or leave adc_bits out, which means all ",
                   form.packing == math::Packing::kNone ? 8 * SizeOf(form.raw_type) : 12, "."));
}

// Whether the parts (`part` values each) of a record (`record` values) are alike in the mean over
// the records, which averages out the fringes, and in the mean amplitude of the fringes. Fringes
// with whole periods also repeat within each record, but the light source's spectrum around them
// does not. `apart`: the mean distance of values `part` apart; means over many records keep little
// of it.
template <typename T>
bool PartsAreAlike(const std::vector<T>& values, size_t record, size_t part, double apart) {
  constexpr double kMeansAlike = 0.6, kSizesAlike = 1.3;
  const size_t records = values.size() / record;
  const double count = static_cast<double>(records);
  std::vector<double> mean(record, 0.0), size(record, 0.0);
  for (size_t i = 0; i < records * record; ++i)
    mean[i % record] += static_cast<double>(values[i]) / count;
  for (size_t i = 0; i < records * record; ++i)
    size[i % record] += std::abs(static_cast<double>(values[i]) - mean[i % record]) / count;
  return MeanStep(mean, part) <= kMeansAlike * apart &&
         MeanStep(size, part) <= kSizesAlike * apart / std::sqrt(count);
}

// Successive records resemble each other, so values one record apart are closer than values any
// other distance apart.
template <typename T>
void DoubtLength(const std::vector<T>& values, const RecordForm& form,
                 std::vector<std::string>* doubts) {
  const auto lag = static_cast<size_t>(form.samples);
  const auto apart = [&](size_t distance) { return MeanStep(values, distance); };
  if (values.size() < 10 * lag) return;
  const double given = apart(lag);
  struct Ratio {
    size_t times, over;
  };
  // Test parts first, the shortest first, because values that repeat after one record also repeat
  // after several.
  for (const Ratio r : {Ratio{1, 8},
                        {1, 4},
                        {1, 3},
                        {1, 2},
                        {2, 3},
                        {3, 4},
                        {5, 4},
                        {4, 3},
                        {3, 2},
                        {2, 1},
                        {3, 1},
                        {4, 1},
                        {8, 1}}) {
    if (lag * r.times % r.over != 0) continue;
    const size_t other = lag * r.times / r.over;
    if (other < 16 || other * 2 > values.size()) continue;
    const double there = apart(other);
    // A part of the given length: if the part repeats, so does the record, about equally well. A
    // part that repeats much better is a fringe with that many whole periods.
    const bool shorter = r.times == 1;
    if (shorter ? there >= 1.2 * given || kClear * there < given : kClear * there >= given)
      continue;
    if (shorter && !PartsAreAlike(values, lag, other, there)) continue;
    // Values a third of a record apart must differ, or the data have no shape to judge by. Even and
    // odd pixels of a camera may differ in the dark, which is no shape.
    const size_t further = other + other / 3;
    if (std::min(apart(further), apart(further + 1)) > kClear * there) {
      doubts->push_back(absl::StrCat(
          "acquisition.samples_per_record is ", form.samples / form.channels, ", but the ", form.of,
          " data repeats every ", static_cast<int64_t>(other) / form.channels,
          " samples: the records look that long."));
      return;
    }
  }
}

// Records with an odd number of packed samples begin at whole bytes, not at whole pairs: compare
// them without their last samples.
std::string WithoutTail(absl::string_view bytes, const RecordForm& form) {
  const auto record = static_cast<size_t>(math::PackedBytes(form.packing, form.samples, 2));
  std::string kept;
  for (size_t at = 0; at + record <= bytes.size(); at += record)
    absl::StrAppend(&kept, bytes.substr(at, record - 2));
  return kept;
}
RecordForm EvenForm(const RecordForm& form) {
  RecordForm even = form;
  --even.samples;
  return even;
}

}  // namespace

std::vector<std::string> FindRecordDoubts(absl::string_view bytes, const RecordForm& form) {
  if (form.packing != math::Packing::kNone && form.samples % 2 == 1)
    return FindRecordDoubts(WithoutTail(bytes, form), EvenForm(form));
  std::vector<std::string> doubts;
  if (bytes.size() < kLeastBytes || form.samples < 1) return doubts;
  if (bytes.find_first_not_of('\0') == absl::string_view::npos) {
    doubts.push_back(absl::StrCat("The ", form.of, " first ", bytes.size(),
                                  " bytes are all 0: there is nothing to see in them."));
    return doubts;
  }
  if (!form.described) DoubtType(bytes, form, &doubts);
  if (!doubts.empty()) return doubts;  // data read with the wrong type allow no other conclusion
  const auto look = [&](const auto& values) {
    DoubtBits(values, form, &doubts);
    if (!form.described) DoubtLength(values, form, &doubts);
  };
  if (form.raw_type == DType::kF32) {
    look(ValuesOf<float>(bytes));
  } else {
    look(IntegersOf(bytes, ReadingOf(form.raw_type, form.packing)));
  }
  return doubts;
}

}  // namespace octavo::storage
