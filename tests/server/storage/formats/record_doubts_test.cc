#include "server/storage/formats/record_doubts.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/storage/formats/record_readings.h"
#include "tests/support/seed.h"

namespace octavo::storage {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The signal of a detector, as fractions of its full scale, 0 ... 1.
struct Scene {
  std::string name;
  int64_t samples = 0;
  std::vector<double> light;
};

/// Makes scenes and writes them as files of any kind.
class Scenes {
 public:
  explicit Scenes(uint32_t seed) : random_(seed) {}

  double Between(double lo, double hi) {
    return std::uniform_real_distribution<double>(lo, hi)(random_);
  }
  int64_t Whole(int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(random_);
  }

  /// Spectra as a line camera delivers them: an envelope, fringes that change from record to
  /// record, noise, and pixels that differ slightly. `gain` above 1 saturates.
  Scene Spectra(double gain = 1, int64_t samples = 0, int64_t records = 0) {
    if (samples == 0) samples = Whole(8, 1024) * 2;
    if (records == 0) records = std::max<int64_t>(12, Whole(12'000, 50'000) / samples);
    Scene scene{.name = gain > 1 ? "saturated" : "spectra", .samples = samples, .light = {}};
    const double middle = Between(0.3, 0.7), width = Between(0.15, 0.4),
                 bright = Between(0.3, 0.75) * gain, dark = Between(0.005, 0.05);
    const double noise = std::exp(Between(std::log(2e-4), std::log(0.01))),
                 pixels = Between(0, 0.01), contrast = Between(0.02, 0.3);
    std::vector<double> gains;
    std::normal_distribution<double> normal(0, 1);
    for (int64_t j = 0; j < samples; ++j) gains.push_back(1 + pixels * normal(random_));
    for (int64_t r = 0; r < records; ++r) {
      const double cycles = Between(2, static_cast<double>(samples) / 8), phase = Between(0, 6.3);
      for (int64_t j = 0; j < samples; ++j) {
        const double x = static_cast<double>(j) / static_cast<double>(samples),
                     d = (x - middle) / width;
        const double light =
            bright * std::exp(-d * d) * (1 + contrast * std::cos(6.283 * cycles * x + phase));
        scene.light.push_back(std::clamp(
            dark + light * gains[static_cast<size_t>(j)] + noise * normal(random_), 0.0, 1.0));
      }
    }
    return scene;
  }
  /// No light: an offset and noise. Even and odd pixels may have different offsets.
  Scene Dark() {
    Scene scene{.name = "dark", .samples = Whole(16, 2048), .light = {}};
    const double offset = Between(0, 0.3),
                 noise = std::exp(Between(std::log(1e-5), std::log(0.05))),
                 taps = Whole(0, 1) == 1 ? Between(0, 0.02) : 0;
    std::normal_distribution<double> normal(0, noise);
    for (int64_t i = 0; i < 30'000; ++i)
      scene.light.push_back(std::clamp(
          offset + static_cast<double>(i % scene.samples % 2) * taps + normal(random_), 0.0, 1.0));
    return scene;
  }
  /// Uniformly distributed values.
  Scene Noise() {
    Scene scene{.name = "noise", .samples = Whole(16, 2048), .light = {}};
    for (int64_t i = 0; i < 30'000; ++i) scene.light.push_back(Between(0, 1));
    return scene;
  }
  Scene Any() {
    switch (Whole(0, 4)) {
      case 0: return Dark();
      case 1: return Noise();
      case 2: return Spectra(Between(1.5, 6));
      default: return Spectra();
    }
  }

  std::mt19937& random() { return random_; }

 private:
  std::mt19937 random_;
};

template <typename T>
void Append(T value, bool big, std::string* bytes) {
  char word[sizeof(T)];
  std::memcpy(word, &value, sizeof(T));
  if (big) std::reverse(word, word + sizeof(T));
  bytes->append(word, sizeof(T));
}

/// Converts values to bytes.
struct Writer {
  Reading reading = Reading::kU16;
  int bits = 16;       // of the converter
  bool left = false;   // its bits are the upper bits of a word
  double offset = 0;   // of full scale: subtracted, so that values become negative
  double unit = 1;     // of floats: their full scale
  bool whole = false;  // floats hold whole counts

  std::string Bytes(const Scene& scene) const {
    std::string bytes;
    const double top = std::exp2(bits) - 1;
    std::vector<int32_t> pair;
    for (const double light : scene.light) {
      const double counts = std::round((light - offset) * top),
                   real = whole ? counts : (light - offset) * unit;
      const auto count = static_cast<int32_t>(counts) * (left ? 1 << (16 - bits) : 1);
      switch (reading) {
        case Reading::kU8: bytes += static_cast<char>(count); break;
        case Reading::kU16:
        case Reading::kI16: Append(static_cast<uint16_t>(count), false, &bytes); break;
        case Reading::kU16Big:
        case Reading::kI16Big: Append(static_cast<uint16_t>(count), true, &bytes); break;
        case Reading::kI32: Append(count, false, &bytes); break;
        case Reading::kI32Big: Append(count, true, &bytes); break;
        case Reading::kF32: Append(static_cast<float>(real), false, &bytes); break;
        case Reading::kF32Big: Append(static_cast<float>(real), true, &bytes); break;
        case Reading::kF64: Append(real, false, &bytes); break;
        case Reading::kF64Big: Append(real, true, &bytes); break;
        case Reading::kLowFirst12:
        case Reading::kHighFirst12: pair.push_back(count);
      }
    }
    if (pair.empty()) return bytes;
    const auto packing =
        reading == Reading::kLowFirst12 ? math::Packing::kLowFirst12 : math::Packing::kHighFirst12;
    const int64_t record = math::PackedBytes(packing, scene.samples, 2);
    for (size_t first = 0; first + static_cast<size_t>(scene.samples) <= pair.size();
         first += static_cast<size_t>(scene.samples)) {
      std::string line(static_cast<size_t>(record), '\0');
      for (int64_t j = 0; j < scene.samples; ++j) {
        math::WritePacked12(packing, reinterpret_cast<uint8_t*>(line.data()), j,
                            static_cast<uint32_t>(pair[first + static_cast<size_t>(j)]));
      }
      bytes += line;
    }
    return bytes;
  }
};

/// A converter that could have made a file of this kind.
Writer WriterOf(Reading reading, Scenes& scenes) {
  Writer writer{.reading = reading};
  switch (reading) {
    case Reading::kU8: writer.bits = 8; break;
    case Reading::kLowFirst12:
    case Reading::kHighFirst12: writer.bits = 12; break;
    case Reading::kI16:
    case Reading::kI16Big:
      writer.bits = static_cast<int>(scenes.Whole(9, 15));
      writer.offset = scenes.Whole(0, 1) == 1 ? scenes.Between(0, 0.5) : 0;
      break;
    case Reading::kF32:
    case Reading::kF32Big:
    case Reading::kF64:
    case Reading::kF64Big: {
      constexpr double kUnits[] = {1, 4095, 65535, 1e-3, 1e6};
      writer.bits = static_cast<int>(scenes.Whole(8, 16));
      writer.unit = kUnits[scenes.Whole(0, 4)];
      writer.whole = scenes.Whole(0, 2) == 0;
      writer.offset = scenes.Whole(0, 1) == 1 ? scenes.Between(0, 0.5) : 0;
      break;
    }
    default:
      writer.bits = static_cast<int>(scenes.Whole(9, 16));
      writer.left = writer.bits < 16 && scenes.Whole(0, 3) == 0;
  }
  return writer;
}

RecordForm FormOf(Reading reading, int64_t samples) {
  RecordForm form{.raw_type = DType::kU16, .packing = math::Packing::kNone, .samples = samples};
  switch (reading) {
    case Reading::kU8: form.raw_type = DType::kU8; break;
    case Reading::kI16: form.raw_type = DType::kI16; break;
    case Reading::kF32: form.raw_type = DType::kF32; break;
    case Reading::kLowFirst12: form.packing = math::Packing::kLowFirst12; break;
    case Reading::kHighFirst12: form.packing = math::Packing::kHighFirst12; break;
    default: break;
  }
  return form;
}

constexpr Reading kRawTypes[] = {Reading::kU8,  Reading::kU16,        Reading::kI16,
                                 Reading::kF32, Reading::kLowFirst12, Reading::kHighFirst12};
constexpr Reading kAll[] = {Reading::kU8,     Reading::kU16,        Reading::kI16,
                            Reading::kF32,    Reading::kLowFirst12, Reading::kHighFirst12,
                            Reading::kU16Big, Reading::kI16Big,     Reading::kF32Big,
                            Reading::kI32,    Reading::kI32Big,     Reading::kF64,
                            Reading::kF64Big};

/// Number of scenes of each kind; a manual run may ask for more.
int Rounds() {
  const char* const given = std::getenv("OCTAVO_DOUBT_ROUNDS");
  return given != nullptr ? std::atoi(given) : 30;
}

class RecordDoubtsTest : public ::testing::Test {
 protected:
  const uint32_t seed_ = ::octavo::testing::FreshSeed();
  Scenes scenes_{seed_};
  int64_t Length() { return int64_t{24} * scenes_.Whole(8, 90); }  // divides by 2, 3, 4, 8
  Scene Spectra(int64_t records, int64_t samples) { return scenes_.Spectra(1, samples, records); }
};

TEST_F(RecordDoubtsTest, WhatIsRightIsNotDoubted) {
  std::map<std::string, std::pair<int, int>> rates;  // (doubted, total)
  for (int round = 0; round < Rounds(); ++round) {
    for (const Reading reading : kRawTypes) {
      const Scene scene = scenes_.Any();
      const Writer writer = WriterOf(reading, scenes_);
      RecordForm form = FormOf(reading, scene.samples);
      if (!writer.left && scenes_.Whole(0, 1) == 1)
        form.adc_bits = reading == Reading::kF32 ? 32 : writer.bits;
      const std::string bytes = writer.Bytes(scene);
      const auto doubts = FindRecordDoubts(bytes, form);
      // A converter of few bits rounds a dark scene to nothing but zeros, which is rightly told.
      if (bytes.find_first_not_of('\0') == std::string::npos) {
        EXPECT_EQ(doubts.size(), 1u);
        continue;
      }
      auto& [doubted, all] = rates[absl::StrCat(NameOf(reading), ", ", scene.name)];
      ++all;
      if (doubts.empty()) continue;
      ++doubted;
      ADD_FAILURE() << "round " << round << ": " << scene.name << " as " << NameOf(reading) << ", "
                    << writer.bits << " bits" << (writer.left ? ", left" : "") << ", offset "
                    << writer.offset << ", unit " << writer.unit << ", " << scene.samples
                    << " samples: " << doubts[0];
    }
  }
  for (const auto& [kind, rate] : rates)
    std::cout << "false alarms: " << kind << ": " << rate.first << " of " << rate.second << "\n";
}

// For spectra, nearly every wrong type is detected, and the doubt names the right one.
TEST_F(RecordDoubtsTest, WrongTypesOfSpectraAreToldAndTheRightOnesNamed) {
  int told_of_all = 0, all_of_all = 0;
  for (const Reading asked : kRawTypes) {
    for (const Reading truth : kAll) {
      if (asked == truth) continue;
      const int all = std::max(Rounds() / 3, 5);
      int told = 0, named = 0;
      for (int round = 0; round < all; ++round) {
        const Scene scene =
            scenes_.Whole(0, 3) == 0 ? scenes_.Spectra(scenes_.Between(1.5, 6)) : scenes_.Spectra();
        Writer writer = WriterOf(truth, scenes_);
        // Data without negative values reads the same as i16 and u16, and so do data without large
        // values.
        if (truth == Reading::kI16 && asked == Reading::kU16)
          writer.offset = scenes_.Between(0.1, 0.3);
        if (truth == Reading::kU16 && asked == Reading::kI16) writer.bits = 16, writer.left = false;
        const auto doubts = FindRecordDoubts(writer.Bytes(scene), FormOf(asked, scene.samples));
        told += doubts.empty() ? 0 : 1;
        named += !doubts.empty() && doubts[0].find(absl::StrCat("look like ", NameOf(truth))) !=
                                        std::string::npos
                     ? 1
                     : 0;
      }
      std::cout << "told: " << NameOf(truth) << " read as " << NameOf(asked) << ": " << told
                << " of " << all << ", rightly named " << named << "\n";
      EXPECT_GE(told, all * 3 / 10) << NameOf(truth) << " as " << NameOf(asked);
      told_of_all += told;
      all_of_all += all;
    }
  }
  std::cout << "told in all: " << told_of_all << " of " << all_of_all << "\n";
  EXPECT_GE(told_of_all * 100, all_of_all * 95);
}

TEST_F(RecordDoubtsTest, WhatHasNoShapeIsNotDoubted) {
  for (const int bits : {2, 8, 12, 16}) {
    const Scene noise = scenes_.Noise();
    Scene flat = noise;
    for (double& light : flat.light) light = 0.5;
    for (const Scene& scene : {noise, flat}) {
      const Writer words{.reading = Reading::kU16, .bits = bits},
          bytes{.reading = Reading::kU8, .bits = std::min(bits, 8)};
      EXPECT_THAT(FindRecordDoubts(words.Bytes(scene), FormOf(Reading::kU16, 1000)), IsEmpty())
          << bits;
      EXPECT_THAT(FindRecordDoubts(bytes.Bytes(scene), FormOf(Reading::kU8, 1000)), IsEmpty())
          << bits;
    }
  }
  EXPECT_THAT(FindRecordDoubts("", FormOf(Reading::kU16, 1024)), IsEmpty());
  EXPECT_THAT(FindRecordDoubts(std::string(100, '\0'), FormOf(Reading::kF32, 65536)), IsEmpty())
      << "too little to say anything";
}

// Unusual but valid data of the right type must raise no doubt.
TEST_F(RecordDoubtsTest, OddDataOfTheRightTypeAreNotDoubted) {
  constexpr int64_t kSamples = 512, kRecords = 60;
  const auto file = [&](const std::function<int(int64_t record, int64_t sample, int light)>& word) {
    const Scene scene = scenes_.Spectra(1, kSamples, kRecords);
    std::string bytes;
    for (size_t i = 0; i < scene.light.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const int light = static_cast<int>(std::lround(scene.light[i] * 4095));
      Append(static_cast<uint16_t>(word(at / kSamples, at % kSamples, light)), false, &bytes);
    }
    return bytes;
  };
  const auto noise = [&](double most) { return static_cast<int>(scenes_.Between(0, most)); };
  const std::map<std::string, std::string> files = {
      {"two words of a header", file([](int64_t, int64_t j, int light) {
         return j == 0 ? 0xABCD : j == 1 ? 0xEF01 : light;
       })},
      {"a hot pixel",
       file([&](int64_t, int64_t j, int light) { return j == 77 ? 60000 + noise(300) : light; })},
      {"saturated", file([](int64_t, int64_t, int) { return 0xFFFF; })},
      {"dark, every other tap at 0",
       file([&](int64_t, int64_t j, int) { return j % 2 == 1 ? 0 : 40 + noise(9); })},
      {"8 bits, widened", file([](int64_t, int64_t, int light) { return (light >> 4) * 257; })},
      {"8 bits of noise above a fixed byte",
       file([&](int64_t, int64_t, int) { return noise(255) << 8 | 0x80; })},
  };
  for (const auto& [name, bytes] : files) {
    SCOPED_TRACE(name);
    EXPECT_THAT(FindRecordDoubts(bytes, {.raw_type = DType::kU16, .samples = kSamples}), IsEmpty());
  }
  // A mirror: one depth, another phase in each record, and whole periods within a part of the
  // record.
  for (int trial = 0; trial < 40; ++trial) {
    std::string bytes;
    const int64_t periods = 8 * scenes_.Whole(2, 16);
    for (int64_t r = 0; r < 40; ++r) {
      const double phase = scenes_.Between(0, 6.283);
      for (int64_t j = 0; j < 1024; ++j) {
        const double fringe =
            std::cos(6.283185307 * static_cast<double>(periods * j) / 1024 + phase);
        Append(
            static_cast<uint16_t>(static_cast<int16_t>(9000 * fringe + scenes_.Between(-200, 200))),
            false, &bytes);
      }
    }
    EXPECT_THAT(FindRecordDoubts(bytes, {.raw_type = DType::kI16, .samples = 1024}), IsEmpty())
        << periods;
  }
}

// One mirror at a depth whose fringe has whole periods within a part of the record, with the light
// source's spectrum around it.
TEST_F(RecordDoubtsTest, FringesOfWholePeriodsAreNoShorterRecords) {
  std::normal_distribution<double> noise(0, 3);
  for (int trial = 0; trial < 60; ++trial) {
    const int64_t samples = trial % 2 == 0 ? 1024 : 2048,
                  periods = samples / 64 * scenes_.Whole(2, 26);
    const double contrast = scenes_.Between(0.2, 0.95), width = scenes_.Between(0.15, 0.45);
    const bool locked = trial % 3 == 0,
               balanced = trial % 4 == 1;  // balanced detection records only the fringes
    std::string bytes;
    for (int64_t r = 0; r < 64; ++r) {
      const double phase = locked && !balanced ? 0 : scenes_.Between(0, 6.283);
      for (int64_t j = 0; j < samples; ++j) {
        const double x = static_cast<double>(j) / static_cast<double>(samples),
                     d = (x - 0.5) / width;
        const double fringe =
            contrast * std::cos(6.283185307 * static_cast<double>(periods) * x + phase);
        const double light = balanced ? 1500 * std::exp(-d * d) * fringe
                                      : 1500 * std::exp(-d * d) * (1 + fringe) + 100;
        Append(static_cast<uint16_t>(static_cast<int16_t>(
                   std::clamp(light + noise(scenes_.random()), balanced ? -4095.0 : 0.0, 4095.0))),
               false, &bytes);
      }
    }
    EXPECT_THAT(FindRecordDoubts(
                    bytes, {.raw_type = balanced ? DType::kI16 : DType::kU16, .samples = samples}),
                IsEmpty())
        << samples << (balanced ? " balanced samples, " : " samples, ") << periods
        << " periods, contrast " << contrast << ", width " << width;
  }
}

TEST_F(RecordDoubtsTest, SmallAndLargeFloatsAreNotDoubted) {
  for (const double unit : {1e-18, 1e-15, 1e-12, 1e-9, 1e6, 1e9, 1e11}) {
    const Scene scene = scenes_.Spectra(1, 512, 64);
    EXPECT_THAT(
        FindRecordDoubts(Writer{.reading = Reading::kF32, .bits = 16, .unit = unit}.Bytes(scene),
                         FormOf(Reading::kF32, 512)),
        IsEmpty())
        << unit;
  }
}

TEST_F(RecordDoubtsTest, NothingButZerosIsTold) {
  for (const Reading reading : kRawTypes) {
    EXPECT_THAT(FindRecordDoubts(std::string(100'000, '\0'), FormOf(reading, 1000)),
                ElementsAre(HasSubstr("first 100000 bytes are all 0")));
  }
}

TEST_F(RecordDoubtsTest, ValuesBeyondTheBitsOfTheConverterAreTold) {
  for (int round = 0; round < 10; ++round) {
    const Scene scene = scenes_.Spectra();
    const Writer writer{.reading = Reading::kU16, .bits = 12};
    const std::string bytes = writer.Bytes(scene);
    RecordForm form = FormOf(Reading::kU16, scene.samples);
    for (const int64_t bits : {0, 12, 14, 16}) {
      form.adc_bits = bits;
      EXPECT_THAT(FindRecordDoubts(bytes, form), IsEmpty()) << bits;
    }
    for (const int64_t bits : {1, 8, 9}) {
      form.adc_bits = bits;
      EXPECT_THAT(FindRecordDoubts(bytes, form),
                  ElementsAre(AllOf(HasSubstr(absl::StrCat("acquisition.adc_bits is ", bits)),
                                    HasSubstr(absl::StrCat("0 to ", (1 << bits) - 1)))));
    }
  }
}

TEST_F(RecordDoubtsTest, ALengthThatDividesTheFileByChanceIsDoubted) {
  for (int i = 0; i < 20; ++i) {
    const int64_t samples = Length();
    const Reading reading = kRawTypes[scenes_.Whole(0, 5)];
    Writer writer = WriterOf(reading, scenes_);
    writer.bits = std::max(writer.bits, 8);
    const std::string bytes = writer.Bytes(Spectra(96, samples));
    for (const auto& [times, over] : {std::pair{2, 1}, {4, 1}, {1, 2}, {1, 4}, {3, 2}, {2, 3}}) {
      EXPECT_THAT(FindRecordDoubts(bytes, FormOf(reading, samples * times / over)),
                  ElementsAre(HasSubstr(absl::StrCat("repeats every ", samples, " samples"))))
          << NameOf(reading) << ", " << samples << " x " << times << " / " << over;
    }
  }
}

// Camera records and processed B-scans must raise no doubt with their right type and length.
TEST_F(RecordDoubtsTest, RealDataOfTheRightTypeAreNotDoubted) {
  const char* const set = std::getenv("OCTAVO_TEST_DATA");
  const char* const source = std::getenv("OCTAVO_SOURCE_DIR");
  const std::string folder =
      (set != nullptr ? std::string(set)
                      : std::string(source != nullptr ? source : ".") + "/../shared/data") +
      "/oct";
  if (!std::filesystem::is_directory(folder))
    GTEST_SKIP() << "no test data in " << folder << " (OCTAVO_TEST_DATA)";
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".raw") continue;
    ++files;
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const bool spectra = entry.path().filename().string().find("u16le") != std::string::npos;
    const Reading right = spectra ? Reading::kU16 : Reading::kU8;
    constexpr size_t kPart = 1 << 20;
    for (size_t at = 0; at < bytes.size(); at += kPart) {
      const std::string part = bytes.substr(at, kPart);
      EXPECT_THAT(FindRecordDoubts(part, FormOf(right, 1024)), IsEmpty())
          << entry.path() << " at " << at;
      for (const Reading wrong : kRawTypes) {
        if (wrong == right || (spectra && wrong == Reading::kI16)) continue;
        if (at > 0) break;
        std::cout << entry.path().filename() << " at " << at << " read as " << NameOf(wrong)
                  << ": ";
        const auto doubts = FindRecordDoubts(part, FormOf(wrong, 1024));
        std::cout << (doubts.empty() ? "not told" : doubts[0]) << "\n";
        EXPECT_FALSE(doubts.empty())
            << entry.path() << " at " << at << " read as " << NameOf(wrong);
      }
    }
  }
  EXPECT_GT(files, 0);
}

}  // namespace
}  // namespace octavo::storage
