// Scans with faults that would give a wrong picture without an error, and sound ones of which
// nothing may be told.

#include "server/tomography/odd_values.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/tomography/projection_light.h"
#include "tests/support/rooms.h"
#include "tests/support/seed.h"

namespace octavo::engine {
namespace {

using storage::FrameKind;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kRows = 5, kColumns = 160;
constexpr double kPi = 3.14159265358979323846;

/// Counts [frame, row, column] of a disc with a metal pin, in memory.
class Scan final : public storage::ProjectionInput {
 public:
  struct Options {
    DType dtype = DType::kU16;
    int64_t projections = 60, flats = 10, darks = 10;
    double white = 20000, dark = 100, noise = 1, uneven = 0.1, metal = 0, radius = 55;
    double turn = kPi;
  };
  Scan(const Options& options, std::mt19937& random) : ProjectionInput(InfoOf(options)) {
    for (int64_t a = 0; a < options.projections; ++a)
      Add(options, FrameKind::kProjection, a, random);
    for (int64_t i = 0; i < options.flats; ++i) Add(options, FrameKind::kFlat, i, random);
    for (int64_t i = 0; i < options.darks; ++i) Add(options, FrameKind::kDark, i, random);
  }
  static storage::ProjectionInfo InfoOf(const Options& options) {
    storage::ProjectionInfo info;
    info.dtype = options.dtype;
    info.projections = options.projections;
    info.rows = kRows;
    info.columns = kColumns;
    info.flats = options.flats;
    info.darks = options.darks;
    for (int64_t a = 0; a < options.projections; ++a)
      info.angles_rad.push_back(options.turn * static_cast<double>(a) /
                                static_cast<double>(options.projections));
    return info;
  }
  using Change = std::function<double(int64_t frame, int64_t pixel, double value)>;
  Scan& Changed(FrameKind kind, const Change& change) {
    auto& frames = frames_[static_cast<size_t>(kind)];
    for (size_t f = 0; f < frames.size(); ++f) {
      for (size_t i = 0; i < frames[f].size(); ++i)
        frames[f][i] =
            Stored(change(static_cast<int64_t>(f), static_cast<int64_t>(i), frames[f][i]));
    }
    return *this;
  }
  std::vector<std::vector<double>>& frames(FrameKind kind) {
    return frames_[static_cast<size_t>(kind)];
  }

 private:
  double Stored(double value) const {
    switch (info_.dtype) {
      case DType::kU8: return std::clamp(std::round(value), 0.0, 255.0);
      case DType::kU16: return std::clamp(std::round(value), 0.0, 65535.0);
      case DType::kI16: return std::clamp(std::round(value), -32768.0, 32767.0);
      default: return value;
    }
  }
  void Add(const Options& o, FrameKind kind, int64_t index, std::mt19937& random) {
    std::vector<double> frame;
    std::normal_distribution<double> normal;
    const double angle =
        kind == FrameKind::kProjection ? info_.angles_rad[static_cast<size_t>(index)] : 0;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t column = 0; column < kColumns; ++column) {
        const auto x = static_cast<double>(column);
        double light = o.white * (1 + o.uneven * std::sin(x / 9) - o.uneven * x / kColumns);
        if (kind == FrameKind::kDark) light = 0;
        if (kind == FrameKind::kProjection) {
          const auto chord = [&](double radius, double at) {
            const double off = x - 80 - at * std::cos(angle + 0.3);
            return 2 * std::sqrt(std::max(0.0, radius * radius - off * off));
          };
          light *=
              std::exp(-0.012 * chord(o.radius, 0) - 0.03 * chord(8, 20) - o.metal * chord(4, -25));
        }
        const double deviation = o.noise * std::sqrt(light + o.noise * 9);
        frame.push_back(Stored(o.dark + light + deviation * normal(random)));
      }
    }
    frames_[static_cast<size_t>(kind)].push_back(std::move(frame));
  }
  absl::Status ReadInside(const storage::ProjectionBox& box, void* out) override {
    int64_t at = 0;
    for (int64_t f = box.first_frame; f < box.first_frame + box.frames; ++f) {
      for (int64_t row = box.first_row; row < box.first_row + box.rows; ++row) {
        for (int64_t column = box.first_column; column < box.first_column + box.columns; ++column) {
          const double value = frames_[static_cast<size_t>(box.kind)][static_cast<size_t>(f)]
                                      [static_cast<size_t>(row * kColumns + column)];
          const auto put = [&](auto type) {
            static_cast<decltype(type)*>(out)[at] = static_cast<decltype(type)>(value);
          };
          switch (info_.dtype) {
            case DType::kU8: put(uint8_t{}); break;
            case DType::kU16: put(uint16_t{}); break;
            case DType::kI16: put(int16_t{}); break;
            default: put(float{}); break;
          }
          ++at;
        }
      }
    }
    return absl::OkStatus();
  }

  std::vector<std::vector<double>> frames_[3];
};

class OddValuesTest : public ::testing::Test {
 protected:
  OddValuesTest() {
    spec_.input = ProjectionFileSpec{.path = "scan.h5", .options = {}};
    spec_.preparation.config.minus_log = true;
    spec_.center.pixels = {80};
    spec_.json = "{}";
  }
  std::vector<std::string> Told(Scan& scan) { return FindOddValues(spec_, scan); }
  /// Lets `light` see the scan as a job does, in two batches.
  std::vector<std::string> Lit(Scan& scan) {
    const TomographyLayout layout = TomographyLayout::Make(spec_, scan.info(), 0).value();
    ProjectionLight light;
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 2}, {2, 3}}) {
      const BatchRows rows = layout.RowsOf(first, count);
      light.Begin(layout, rows);
      for (const FrameKind kind : {FrameKind::kFlat, FrameKind::kDark, FrameKind::kProjection}) {
        for (int64_t f = 0; f < scan.info().frames(kind); ++f) {
          std::vector<char> bytes(static_cast<size_t>(rows.count * kColumns * 4));
          EXPECT_TRUE(scan.Read({.kind = kind,
                                 .first_frame = f,
                                 .frames = 1,
                                 .first_row = rows.first,
                                 .rows = rows.count,
                                 .first_column = 0,
                                 .columns = kColumns},
                                bytes.data())
                          .ok());
          light.Add(kind, f, 1, bytes.data());
        }
      }
    }
    return light.Doubts();
  }
  TomographySpec spec_;
  std::mt19937 random_{::octavo::testing::FreshSeed()};
};

TEST_F(OddValuesTest, NothingIsToldOfSoundScans) {
  for (const DType dtype : {DType::kU8, DType::kU16, DType::kI16, DType::kF32}) {
    for (const int64_t projections : {20, 61, 400}) {
      for (const double noise : {0.0, 1.0, 3.0}) {
        for (const double uneven : {0.0, 0.2}) {
          for (const double metal : {0.0, 1.0}) {
            Scan::Options options = {.dtype = dtype,
                                     .projections = projections,
                                     .flats = dtype == DType::kI16 ? 1 : 10,
                                     .darks = dtype == DType::kF32 ? 1 : 10,
                                     .noise = noise,
                                     .uneven = uneven,
                                     .metal = metal,
                                     .radius = projections == 61 ? 90.0 : 55.0};
            if (dtype == DType::kU8) options.white = 150, options.dark = 4, options.noise *= 0.1;
            if (dtype == DType::kI16) options.white = 12000, options.dark = -300;
            Scan scan(options, random_);
            const std::string what =
                absl::StrCat(Info(dtype).name, ", ", projections, " projections, noise ", noise,
                             ", uneven ", uneven, ", metal ", metal);
            EXPECT_THAT(Told(scan), IsEmpty()) << what;
            EXPECT_THAT(Lit(scan), IsEmpty()) << what;
          }
        }
      }
    }
  }
}

TEST_F(OddValuesTest, SlitsAndDeadPixelsAndZingersAreSound) {
  for (const double white : {20000.0, 1500.0}) {
    Scan scan({.white = white}, random_);
    for (const FrameKind kind : {FrameKind::kProjection, FrameKind::kFlat, FrameKind::kDark}) {
      std::normal_distribution<double> normal;
      scan.Changed(kind, [&](int64_t frame, int64_t pixel, double value) {
        const int64_t column = pixel % kColumns;
        if (column == 70) return 0.0;      // dead
        if (column == 90) return 65535.0;  // hot
        if (kind == FrameKind::kProjection && (frame * 7919 + pixel) % 4001 == 0) return 3 * white;
        return column < 12 || column >= 148 ? 100 + 5 * normal(random_) : value;
      });
    }
    EXPECT_THAT(Told(scan), IsEmpty());
    EXPECT_THAT(Lit(scan), IsEmpty());
  }
}

TEST_F(OddValuesTest, FlatFieldsWithoutLightAreTold) {
  for (const double level : {0.0, 100.0, 130.0}) {
    for (const int64_t bad : {4, 5, 7, 8, 9}) {
      Scan scan({}, random_);
      scan.Changed(FrameKind::kFlat, [&](int64_t frame, int64_t, double value) {
        return frame < bad ? level : value;
      });
      for (const bool in_time : {false, true}) {
        spec_.preparation.flats_in_time = in_time;
        EXPECT_THAT(Told(scan),
                    Contains(AllOf(HasSubstr(absl::StrCat(bad, " of the 10 flat fields")),
                                   HasSubstr("flat field 0 is"))))
            << level;
      }
      spec_.preparation.flats_in_time = false;
      spec_.preparation.config.flat_average = FieldAverage::kMedian;
      EXPECT_EQ(Told(scan).empty(), bad < 5) << "the median leaves few out";
      spec_.preparation.config.flat_average = FieldAverage::kMean;
    }
  }
}

TEST_F(OddValuesTest, FewOddFlatFieldsAreToldByTheirPlaces) {
  Scan scan({.flats = 40}, random_);
  scan.Changed(FrameKind::kFlat,
               [&](int64_t frame, int64_t, double value) { return frame == 20 ? 100 : value; });
  EXPECT_THAT(Told(scan), ElementsAre(HasSubstr("Flat field 20 of 40 is 100 in the mean")));
}

TEST_F(OddValuesTest, FlatFieldsOfDifferentBrightnessAreTold) {
  for (const int64_t flats : {2, 10}) {
    Scan scan({.flats = flats}, random_);
    scan.Changed(FrameKind::kFlat, [&](int64_t frame, int64_t, double value) {
      return frame < flats / 2 ? value : 0.6 * value;
    });
    EXPECT_THAT(Told(scan), Contains(HasSubstr("of different brightness"))) << flats;
    spec_.preparation.flats_in_time = true;
    EXPECT_THAT(Told(scan), IsEmpty()) << "which follows the beam";
    spec_.preparation.flats_in_time = false;
  }
}

TEST_F(OddValuesTest, DarkFieldsThatDifferAreTold) {
  for (const int64_t bad : {1, 5, 9}) {
    Scan scan({}, random_);
    scan.Changed(FrameKind::kDark, [&](int64_t frame, int64_t, double value) {
      return frame < bad ? 5000 + value : value;
    });
    EXPECT_THAT(Told(scan), Contains(HasSubstr("The dark fields differ: "))) << bad;
    spec_.preparation.config.dark_average = FieldAverage::kMedian;
    EXPECT_EQ(Told(scan).empty(), bad == 1);
    spec_.preparation.config.dark_average = FieldAverage::kMean;
  }
}

TEST_F(OddValuesTest, DarkFieldsBrighterThanProjectionsAreTold) {
  for (const DType dtype : {DType::kU16, DType::kF32}) {
    Scan scan({.dtype = dtype}, random_);
    scan.Changed(FrameKind::kDark, [](int64_t, int64_t, double value) { return value + 7000; });
    EXPECT_THAT(Told(scan), Contains(AllOf(HasSubstr("The dark fields are 71"),
                                           HasSubstr("of the projections that were looked at are "
                                                     "darker"))));
  }
}

TEST_F(OddValuesTest, SaturationIsTold) {
  const auto clipped = [&](const Scan::Options& options, double gain, double most) {
    Scan scan(options, random_);
    for (const FrameKind kind : {FrameKind::kProjection, FrameKind::kFlat})
      scan.Changed(kind,
                   [&](int64_t, int64_t, double value) { return std::min(gain * value, most); });
    return Told(scan);
  };
  EXPECT_THAT(clipped({}, 3.3, 65535), Contains(HasSubstr("are 65535, the largest value of u16")));
  EXPECT_THAT(clipped({}, 5, 65535), Contains(HasSubstr("are 65535, the largest value of u16")));
  EXPECT_THAT(clipped({.dtype = DType::kI16}, 1.6, 32767),
              Contains(HasSubstr("are 32767, the largest value of i16")));
  EXPECT_THAT(clipped({.dtype = DType::kU8, .white = 240, .dark = 4, .noise = 0.2}, 1.1, 255),
              Contains(HasSubstr("are 255, the largest value of u8")));
  for (const DType dtype : {DType::kU16, DType::kF32})
    EXPECT_THAT(clipped({.dtype = dtype}, 1, 18500),
                Contains(HasSubstr("are 18500, the largest of both")));
  // All flat fields are at the limit.
  EXPECT_THAT(clipped({}, 1, 12000), Contains(HasSubstr("are 12000, the largest of both")));
}

TEST_F(OddValuesTest, ABeamThatChangesIsTold) {
  const auto changed = [&](const Scan::Options& options, double last) {
    Scan scan(options, random_);
    scan.Changed(FrameKind::kProjection, [&](int64_t frame, int64_t, double value) {
      return 100 + (value - 100) * (1 + (last - 1) * static_cast<double>(frame) /
                                            static_cast<double>(options.projections - 1));
    });
    return Told(scan);
  };
  for (const double last : {0.5, 0.7, 1.5})
    EXPECT_THAT(changed({}, last), Contains(AllOf(HasSubstr("The transmission beside the object"),
                                                  HasSubstr("preparation.air_left"))))
        << last;
  EXPECT_THAT(changed({}, 0.95), IsEmpty());
  EXPECT_THAT(changed({.radius = 120}, 0.5), Not(Contains(HasSubstr("beside the object changes"))))
      << "no air";
  spec_.preparation.config.air_left = spec_.preparation.config.air_right = 5;
  EXPECT_THAT(changed({}, 0.5), IsEmpty());
}

TEST_F(OddValuesTest, AnObjectInTheColumnsOfAirIsTold) {
  auto& config = spec_.preparation.config;
  for (const DType dtype : {DType::kU16, DType::kF32}) {
    for (const double noise : {0.0, 1.0, 3.0}) {
      Scan scan({.dtype = dtype, .noise = noise}, random_);  // the disc covers columns 25 to 135
      const auto told = [&](int64_t left, int64_t right, int64_t bin = 1) {
        config.air_left = left, config.air_right = right, config.bin_columns = bin;
        return Told(scan);
      };
      for (const int64_t air : {1, 5, 20}) EXPECT_THAT(told(air, air), IsEmpty()) << air;
      EXPECT_THAT(told(60, 5),
                  ElementsAre(AllOf(HasSubstr("preparation.air_left is 60, and columns 0 to 59"),
                                    Not(HasSubstr("air_right is")),
                                    HasSubstr("in 16 of the 16 projections"))));
      EXPECT_THAT(told(5, 15, 4),
                  ElementsAre(HasSubstr("preparation.air_right is 15, and columns 100 to 159")));
      EXPECT_THAT(told(70, 70),
                  ElementsAre(AllOf(HasSubstr("air_left is 70"), HasSubstr("air_right is 70"))));
      // Of the columns that are chosen.
      spec_.columns = {.begin = 40, .end = 160, .step = 1};
      EXPECT_THAT(told(5, 0), ElementsAre(HasSubstr("columns 40 to 44")));
      spec_.columns = {};
    }
  }
  // Transmissions that stay so, as octavo.prep.normalize_bg makes them.
  Scan transmissions({.dtype = DType::kF32,
                      .flats = 0,
                      .darks = 0,
                      .white = 1,
                      .dark = 0,
                      .noise = 0,
                      .uneven = 0},
                     random_);
  spec_.preparation.ignore_fields = true;
  config.minus_log = false;
  config.bin_columns = 1;
  config.air_left = config.air_right = 10;
  EXPECT_THAT(Told(transmissions), IsEmpty());
  config.air_left = 50;
  EXPECT_THAT(Told(transmissions), ElementsAre(HasSubstr("air_left is 50")));
  spec_.preparation.already_sinograms = true;
  EXPECT_THAT(Told(transmissions), IsEmpty()) << "air of line integrals is 0";
}

TEST_F(OddValuesTest, LineIntegralsWhosePhaseWouldBeRetrievedAreTold) {
  Scan::Options options = {
      .dtype = DType::kF32, .flats = 0, .darks = 0, .white = 1, .dark = 0, .noise = 0, .uneven = 0};
  spec_.preparation.ignore_fields = true;
  spec_.preparation.config.minus_log = false;
  Scan scan(options, random_);
  spec_.preparation.config.phase.enabled = true;
  EXPECT_THAT(Told(scan), IsEmpty()) << "transmissions";
  scan.Changed(FrameKind::kProjection,
               [](int64_t, int64_t, double value) { return -std::log(value); });
  EXPECT_THAT(Told(scan), ElementsAre(AllOf(HasSubstr("about 0 beside the object and up to 1.7"),
                                            HasSubstr("Phase retrieval (preparation.phase) takes "
                                                      "transmissions"))));
  spec_.preparation.config.phase.enabled = false;
  EXPECT_THAT(Told(scan), IsEmpty()) << "they are sinograms";
}

TEST_F(OddValuesTest, ValuesOfWhichNoneIsFiniteAreTold) {
  Scan scan({.dtype = DType::kF32}, random_);
  scan.Changed(FrameKind::kProjection, [](int64_t, int64_t, double) { return std::nan(""); });
  EXPECT_THAT(Told(scan), ElementsAre(AllOf(HasSubstr("None of the values of the 16 projections"),
                                            HasSubstr("preparation.not_finite_value"))));
}

TEST_F(OddValuesTest, FieldsThatAreTheProjectionsAreTold) {
  for (const FrameKind kind : {FrameKind::kFlat, FrameKind::kDark}) {
    Scan scan({.flats = 60, .darks = 60}, random_);
    scan.frames(kind) = scan.frames(FrameKind::kProjection);
    spec_.projections = {.begin = 10, .end = 50, .step = 3};
    EXPECT_THAT(Told(scan),
                ElementsAre(AllOf(HasSubstr("fields are the projections themselves"),
                                  HasSubstr(kind == FrameKind::kFlat ? "tomography.file.flats"
                                                                     : "tomography.file.darks"))));
    scan.frames(kind)[33][400] += 1;
    spec_.projections = {};
  }
}

TEST_F(OddValuesTest, ProjectionsWithoutLightAreTold) {
  for (const DType dtype : {DType::kU8, DType::kU16, DType::kF32}) {
    for (const bool shut : {false, true}) {
      Scan::Options options = {.dtype = dtype};
      if (dtype == DType::kU8) options.white = 150, options.dark = 4, options.noise = 0.1;
      Scan scan(options, random_);
      scan.Changed(FrameKind::kProjection, [&](int64_t frame, int64_t pixel, double value) {
        if (frame != 7 && frame != 30) return value;
        if (pixel % 97 == 0) return value;  // hot pixels stay
        return shut ? scan.frames(FrameKind::kDark)[0][static_cast<size_t>(pixel)] : 0.0;
      });
      EXPECT_THAT(
          Lit(scan),
          ElementsAre(HasSubstr("Projections 7, 30 of 60 have no light in nearly all pixels")));
    }
  }
  Scan scan({.projections = 100}, random_);
  scan.Changed(FrameKind::kProjection,
               [](int64_t frame, int64_t, double value) { return frame % 10 == 3 ? 0 : value; });
  EXPECT_THAT(Lit(scan), ElementsAre(HasSubstr("Projections 3, 13, 23, 33, 43 and 5 more of 100")));
}

TEST_F(OddValuesTest, TransmissionsFarAboveOneAreCounted) {
  Scan scan({.dtype = DType::kF32}, random_);
  scan.frames(FrameKind::kProjection)[5][4 * kColumns + 60] = 1e30;
  scan.frames(FrameKind::kProjection)[6][2] = std::numeric_limits<double>::infinity();  // is told
  EXPECT_THAT(Lit(scan),
              ElementsAre(HasSubstr("1 value of the projections has a transmission far")));
  Scan dim({.white = 800}, random_);
  for (const size_t frame : {3, 8, 9}) dim.frames(FrameKind::kProjection)[frame][77] = 60000;
  EXPECT_THAT(Lit(dim), ElementsAre(HasSubstr("3 values of the projections have a transmission")));
  spec_.preparation.config.outliers.window = 3;
  spec_.preparation.config.outliers.difference = 500;
  EXPECT_THAT(Lit(dim), IsEmpty()) << "they are replaced";
}

}  // namespace
}  // namespace octavo::engine
