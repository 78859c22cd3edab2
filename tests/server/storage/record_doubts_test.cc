#include "server/storage/record_doubts.h"

#include <cmath>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/support/seed.h"

namespace octavo::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Spectra as a line camera gives them: an envelope, fringes that change from record to record, noise.
std::vector<double> Spectra(std::mt19937& random, int64_t records, int64_t samples, double full) {
  std::uniform_real_distribution<double> unit(0, 1);
  std::normal_distribution<double> noise(0, 0.004 * full);
  const double middle = 0.3 + 0.4 * unit(random), width = 0.15 + 0.15 * unit(random), bright = (0.4 + 0.4 * unit(random)) * full;
  std::vector<double> out;
  for (int64_t r = 0; r < records; ++r) {
    const double cycles = 5 + 20 * unit(random), phase = 6.3 * unit(random);
    for (int64_t j = 0; j < samples; ++j) {
      const double x = static_cast<double>(j) / static_cast<double>(samples), d = (x - middle) / width;
      out.push_back(0.02 * full + bright * std::exp(-d * d) * (1 + 0.15 * std::cos(6.283 * cycles * x + phase)) + noise(random));
    }
  }
  return out;
}

template <typename T>
std::string Bytes(const std::vector<double>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    T v{};
    if constexpr (std::is_integral_v<T>) {
      v = static_cast<T>(std::lround(std::max(0.0, values[i])));
    } else {
      v = static_cast<T>(values[i]);
    }
    std::memcpy(bytes.data() + i * sizeof(T), &v, sizeof(T));
  }
  return bytes;
}

class RecordDoubtsTest : public ::testing::Test {
 protected:
  std::mt19937 random_{::octavo::testing::FreshSeed()};
  int64_t Length() { return int64_t{24} * std::uniform_int_distribution<int64_t>(8, 90)(random_); }  // divides by 2, 3, 4, 8
};

TEST_F(RecordDoubtsTest, WhatIsRightIsNotDoubted) {
  for (int i = 0; i < 40; ++i) {
    const int64_t samples = Length();
    EXPECT_THAT(FindRecordDoubts(Bytes<uint16_t>(Spectra(random_, 40, samples, 4095)), {.raw_type = DType::kU16, .samples = samples}), IsEmpty());
    EXPECT_THAT(FindRecordDoubts(Bytes<uint16_t>(Spectra(random_, 40, samples, 65535)), {.raw_type = DType::kU16, .samples = samples}), IsEmpty());
    EXPECT_THAT(FindRecordDoubts(Bytes<int16_t>(Spectra(random_, 40, samples, 30000)), {.raw_type = DType::kI16, .samples = samples}), IsEmpty());
    EXPECT_THAT(FindRecordDoubts(Bytes<uint8_t>(Spectra(random_, 40, samples, 255)), {.raw_type = DType::kU8, .samples = samples}), IsEmpty());
    EXPECT_THAT(FindRecordDoubts(Bytes<float>(Spectra(random_, 40, samples, 1)), {.raw_type = DType::kF32, .samples = samples}), IsEmpty());
  }
}

TEST_F(RecordDoubtsTest, WhatHasNoShapeIsNotDoubted) {
  for (const double full : {0.0, 3.0, 255.0, 4095.0, 65535.0}) {
    std::vector<double> noise(100'000), flat(100'000, full / 2);
    for (double& v : noise) v = std::uniform_real_distribution<double>(0, full)(random_);
    for (const auto& values : {noise, flat}) {
      EXPECT_THAT(FindRecordDoubts(Bytes<uint16_t>(values), {.raw_type = DType::kU16, .samples = 1000}), IsEmpty()) << full;
      if (full < 256) EXPECT_THAT(FindRecordDoubts(Bytes<uint8_t>(values), {.raw_type = DType::kU8, .samples = 1000}), IsEmpty()) << full;
    }
  }
  EXPECT_THAT(FindRecordDoubts("", {.raw_type = DType::kU16, .samples = 1024}), IsEmpty());
  EXPECT_THAT(FindRecordDoubts(std::string(1000, '\0'), {.raw_type = DType::kF32, .samples = 65536}), IsEmpty());
}

TEST_F(RecordDoubtsTest, AnotherTypeIsNamed) {
  for (int i = 0; i < 20; ++i) {
    const int64_t samples = Length();
    const std::string words = Bytes<uint16_t>(Spectra(random_, 40, samples, i % 2 == 0 ? 4095 : 65535));
    EXPECT_THAT(FindRecordDoubts(words, {.raw_type = DType::kU8, .samples = samples}), ElementsAre(HasSubstr("raw_type is u8"))) << samples;
    const std::string bytes = Bytes<uint8_t>(Spectra(random_, 40, samples, 255));
    EXPECT_THAT(FindRecordDoubts(bytes, {.raw_type = DType::kU16, .samples = samples}), ElementsAre(HasSubstr("it looks like u8"))) << samples;
    std::string swapped = words;
    for (size_t at = 0; at < swapped.size(); at += 2) std::swap(swapped[at], swapped[at + 1]);
    if (i % 2 == 1) {
      EXPECT_THAT(FindRecordDoubts(swapped, {.raw_type = DType::kU16, .samples = samples}), ElementsAre(HasSubstr("looks big-endian"))) << samples;
    }
  }
}

TEST_F(RecordDoubtsTest, IntegersAreNoFloats) {
  const std::string words = Bytes<uint16_t>(Spectra(random_, 40, 1024, 4095));
  EXPECT_THAT(FindRecordDoubts(words, {.raw_type = DType::kF32, .samples = 512}), ElementsAre(HasSubstr("looks like another type")));
}

TEST_F(RecordDoubtsTest, ALengthThatDividesTheFileByChanceIsDoubted) {
  for (int i = 0; i < 20; ++i) {
    const int64_t samples = Length();
    const std::string words = Bytes<uint16_t>(Spectra(random_, 96, samples, 4095));
    for (const auto& [times, over] : {std::pair{2, 1}, {4, 1}, {1, 2}, {1, 4}, {3, 2}, {2, 3}}) {
      EXPECT_THAT(FindRecordDoubts(words, {.raw_type = DType::kU16, .samples = samples * times / over}),
                  ElementsAre(HasSubstr(absl::StrCat("repeats every ", samples, " samples"))))
          << samples << " x " << times << " / " << over;
    }
  }
}

}  // namespace
}  // namespace octavo::storage
