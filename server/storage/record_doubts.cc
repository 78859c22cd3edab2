#include "server/storage/record_doubts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace octavo::storage {
namespace {

constexpr size_t kLeastBytes = 256;
constexpr double kClear = 1.8;  // real spectra of a mirror, with its moving fringes, reach 2.3

/// Mean distance of values `lag` apart; those from `first` on, every `stride`-th.
template <typename T>
double MeanStep(const std::vector<T>& values, size_t lag, size_t first = 0, size_t stride = 1) {
  double sum = 0;
  size_t count = 0;
  for (size_t i = first; i + lag < values.size(); i += stride) {
    sum += std::abs(static_cast<double>(values[i + lag]) - static_cast<double>(values[i]));
    ++count;
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

template <typename T>
std::vector<T> ValuesOf(absl::string_view bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

uint16_t Swapped(uint16_t v) { return static_cast<uint16_t>(v << 8 | v >> 8); }

// Low bytes of 16-bit samples jump, high bytes hardly move: so neighbouring bytes differ far more than high bytes do among themselves.
void DoubtBytes(absl::string_view bytes, DType type, std::vector<std::string>* doubts) {
  const std::vector<uint8_t> values = ValuesOf<uint8_t>(bytes);
  const double neighbours = MeanStep(values, 1);
  const double smoother = std::min(MeanStep(values, 2, 0, 2), MeanStep(values, 2, 1, 2));
  if (type == DType::kU8 && neighbours > 4 * smoother + 4) {
    doubts->push_back("acquisition.raw_type is u8, but every second byte of the file is much alike: it looks like u16.");
  }
  constexpr double kNoise = 20;  // where even equal places differ by so much, nothing can be told
  if (type != DType::kU8 && smoother < kNoise && neighbours > 0 && neighbours < 1.5 * smoother + 1) {
    doubts->push_back(
        absl::StrCat("acquisition.raw_type is ", Info(type).name, ", but low and high bytes of the file's samples are alike: it looks like u8."));
  }
}

void DoubtByteOrder(absl::string_view bytes, DType type, std::vector<std::string>* doubts) {
  std::vector<uint16_t> values = ValuesOf<uint16_t>(bytes);
  const double native = MeanStep(values, 1);
  std::transform(values.begin(), values.end(), values.begin(), Swapped);
  if (const double swapped = MeanStep(values, 1); native > 256 && swapped < native / 8) {
    doubts->push_back(absl::StrCat("acquisition.raw_type is ", Info(type).name,
                                   ", little-endian, but the file's samples are smooth only with their bytes swapped: it looks big-endian."));
  }
}

void DoubtFloats(const std::vector<float>& values, std::vector<std::string>* doubts) {
  const auto odd = std::count_if(values.begin(), values.end(), [](float v) {
    const float size = std::abs(v);
    return !std::isfinite(v) || size > 1e20f || (size > 0 && size < 1e-20f);
  });
  if (odd * 50 < std::ssize(values)) return;
  doubts->push_back(absl::StrCat("acquisition.raw_type is f32, but ", odd, " of the file's first ", values.size(),
                                 " samples are not finite, or beyond any instrument's range: it looks like another type."));
}

// Successive records resemble each other, so values one record apart are closer than values any other distance apart.
template <typename T>
void DoubtLength(const std::vector<T>& values, const RecordForm& form, std::vector<std::string>* doubts) {
  const auto lag = static_cast<size_t>(form.samples);
  const auto apart = [&](size_t distance) { return MeanStep(values, distance); };
  if (values.size() < 10 * lag) return;
  const double given = apart(lag);
  struct Ratio {
    size_t times, over;
  };
  // Parts first, the shortest of them first: what repeats after one record repeats after several.
  for (const Ratio r : {Ratio{1, 8}, {1, 4}, {1, 3}, {1, 2}, {2, 3}, {3, 4}, {5, 4}, {4, 3}, {3, 2}, {2, 1}, {3, 1}, {4, 1}, {8, 1}}) {
    if (lag * r.times % r.over != 0) continue;
    const size_t other = lag * r.times / r.over;
    if (other < 16 || other * 2 > values.size()) continue;
    const double there = apart(other);
    // A third of a record further on, similar lengths must differ, or the data have no shape that could tell.
    const double shape = apart(other + other / 3);
    const bool shorter = r.times == 1;  // a part of the given length: if it repeats, both do
    if (shape > kClear * there && (shorter ? there < 1.2 * given : kClear * there < given)) {
      doubts->push_back(absl::StrCat("acquisition.samples_per_record is ", form.samples / form.channels, ", but the file repeats every ",
                                     static_cast<int64_t>(other) / form.channels, " samples: its records look that long."));
      return;
    }
  }
}

}  // namespace

std::vector<std::string> FindRecordDoubts(absl::string_view bytes, const RecordForm& form) {
  std::vector<std::string> doubts;
  if (bytes.size() < kLeastBytes || form.samples < 1) return doubts;
  const bool words = form.raw_type == DType::kU16 || form.raw_type == DType::kI16;
  // Samples of different channels need not be alike.
  if (form.channels <= 1 && (form.raw_type == DType::kU8 || words)) DoubtBytes(bytes, form.raw_type, &doubts);
  if (form.channels <= 1 && words && doubts.empty()) DoubtByteOrder(bytes, form.raw_type, &doubts);
  if (form.raw_type == DType::kF32) DoubtFloats(ValuesOf<float>(bytes), &doubts);
  if (!doubts.empty()) return doubts;  // the length of what is read wrongly says nothing
  switch (form.raw_type) {
    case DType::kU8: DoubtLength(ValuesOf<uint8_t>(bytes), form, &doubts); break;
    case DType::kI16: DoubtLength(ValuesOf<int16_t>(bytes), form, &doubts); break;
    case DType::kF32: DoubtLength(ValuesOf<float>(bytes), form, &doubts); break;
    default: DoubtLength(ValuesOf<uint16_t>(bytes), form, &doubts); break;
  }
  return doubts;
}

}  // namespace octavo::storage
