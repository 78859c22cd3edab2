// Principal components of flat fields, their weights behind each projection, and what a Preparer
// makes of them, against models in double precision and on a beam that moves.

#include "gpu/tomography/flat_components.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "tests/gpu/tomography/data.h"
#include "tests/gpu/tomography/preprocess_model.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::As;
using testing::Doubles;
using testing::IsError;
using testing::IsOk;
using testing::PrepareModel;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class FlatComponentsTest : public testing::BackendTest {
 protected:
  int64_t Pick(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }
  double Normal(double deviation) {
    return std::normal_distribution<double>(0, deviation)(random_);
  }
  double Uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  std::mt19937 random_{testing::FreshSeed()};
};

// A smooth pattern over [row, column] with a mean square of 1 and waves of its own.
Doubles Pattern(int64_t rows, int64_t columns, int number) {
  Doubles out;
  double squares = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const double y = static_cast<double>(r), x = static_cast<double>(c);
      out.push_back(std::sin((0.31 + 0.23 * number) * y + 0.11 * number * x + number) +
                    0.6 * std::cos((0.17 + 0.19 * number) * x - 0.4 * y));
      squares += out.back() * out.back();
    }
  }
  for (double& v : out) v /= std::sqrt(squares / static_cast<double>(out.size()));
  return out;
}

// The sum over gradients that the weights make least, in double precision: |∇(counts / open)|
// times the mean of the open beam. `frame` and the fields: [row, column] at half the resolution.
double TotalVariation(const Doubles& frame, const Doubles& mean, const std::vector<Doubles>& parts,
                      const Doubles& weights, int64_t rows, int64_t columns, int64_t group_rows) {
  Doubles open = mean;
  for (size_t k = 0; k < parts.size(); ++k) {
    for (size_t i = 0; i < open.size(); ++i) open[i] += weights[k] * parts[k][i];
  }
  double sum = 0, light = 0;
  const auto at = [&](int64_t r, int64_t c) {
    const auto i = static_cast<size_t>(r * columns + c);
    return frame[i] / open[i];
  };
  for (const double v : open) light += v / static_cast<double>(open.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const double x = c + 1 < columns ? at(r, c + 1) - at(r, c) : 0,
                   y = r + 1 < rows && (r + 1) % group_rows != 0 ? at(r + 1, c) - at(r, c) : 0;
      sum += std::hypot(x, y);
    }
  }
  return sum * light;
}

Doubles Binned(const Doubles& in, int64_t rows, int64_t columns, int64_t bin_rows) {
  Doubles out;
  for (int64_t r = 0; r + bin_rows <= rows; r += bin_rows) {
    for (int64_t c = 0; c + 2 <= columns; c += 2) {
      double sum = 0;
      for (int64_t i = 0; i < bin_rows; ++i)
        sum += in[static_cast<size_t>((r + i) * columns + c)] +
               in[static_cast<size_t>((r + i) * columns + c + 1)];
      out.push_back(sum / static_cast<double>(2 * bin_rows));
    }
  }
  return out;
}

// Flat fields of a beam with patterns that come and go, and the shadow of a disc before it.
struct Beam {
  int64_t rows, columns;
  Doubles mean;
  std::vector<Doubles> patterns;
  Doubles At(const Doubles& scores) const {
    Doubles out = mean;
    for (size_t k = 0; k < patterns.size(); ++k) {
      for (size_t i = 0; i < out.size(); ++i) out[i] += scores[k] * patterns[k][i];
    }
    return out;
  }
};
Beam MakeBeam(int64_t rows, int64_t columns, int patterns, double light) {
  Beam beam{.rows = rows, .columns = columns, .mean = {}, .patterns = {}};
  for (int64_t i = 0; i < rows * columns; ++i) {
    const double x = static_cast<double>(i % columns) / static_cast<double>(columns);
    beam.mean.push_back(light * (0.8 + 0.3 * std::sin(3 * x)));
  }
  for (int k = 0; k < patterns; ++k) {
    beam.patterns.push_back(Pattern(rows, columns, k + 1));
    for (double& v : beam.patterns.back()) v *= 0.05 * light / (k + 1);
  }
  return beam;
}
Doubles Shadow(int64_t rows, int64_t columns, double middle, double radius) {
  Doubles out;
  for (int64_t i = 0; i < rows * columns; ++i) {
    const double x = (static_cast<double>(i % columns) - middle) / radius;
    out.push_back(std::exp(-(std::abs(x) < 1 ? 1.2 * std::sqrt(1 - x * x) : 0)));
  }
  return out;
}

TEST(FlatPrincipalsTest, FindsThePatternsOfTheFlatFields) {
  std::mt19937 random{testing::FreshSeed()};
  int64_t of_noise = 0;
  for (int round = 0; round < 12; ++round) {
    const int64_t flats = 6 + static_cast<int64_t>(random() % 40), rows = 20, columns = 70;
    const int patterns = static_cast<int>(random() % 4);
    const Beam beam = MakeBeam(rows, columns, patterns, 10'000);
    std::normal_distribution<double> normal;
    std::vector<float> fields;
    std::vector<Doubles> clean;
    for (int64_t f = 0; f < flats; ++f) {
      Doubles scores;
      for (int k = 0; k < patterns; ++k) scores.push_back(normal(random));
      clean.push_back(beam.At(scores));
      for (const double v : clean.back())
        fields.push_back(static_cast<float>(v + std::sqrt(v) * 0.3 * normal(random)));
    }
    SCOPED_TRACE(::testing::Message() << flats << " flats, " << patterns << " patterns");
    ASSERT_OK_AND_ASSIGN(const FlatPrincipals found, FindFlatPrincipals(flats, fields, 0));
    // One of noise alone is taken now and then (some 1 %); none is missed.
    ASSERT_GE(found.components, patterns);
    of_noise += found.components - patterns;
    ASSERT_OK_AND_ASSIGN(const FlatPrincipals given,
                         FindFlatPrincipals(flats, fields, patterns + 1));
    EXPECT_EQ(given.components, patterns + 1);
    EXPECT_LE(std::accumulate(given.shares.begin(), given.shares.end(), 0.0), 1 + 1e-9);
    const int64_t k_count = given.components;
    ASSERT_EQ(std::ssize(given.mixture), flats * k_count);
    // The components are uncorrelated, and span the flat fields' differences but for noise: what
    // remains of each flat field after its projection on the components is noise.
    const size_t pixels = static_cast<size_t>(rows * columns);
    std::vector<Doubles> parts(static_cast<size_t>(k_count), Doubles(pixels, 0.0));
    Doubles mean(pixels, 0.0);
    for (int64_t f = 0; f < flats; ++f) {
      for (size_t i = 0; i < pixels; ++i) {
        const auto v = static_cast<double>(fields[static_cast<size_t>(f) * pixels + i]);
        mean[i] += v / static_cast<double>(flats);
        for (int64_t k = 0; k < k_count; ++k)
          parts[static_cast<size_t>(k)][i] +=
              given.mixture[static_cast<size_t>(f * k_count + k)] * v;
      }
    }
    for (size_t k = 0; k < parts.size(); ++k) {
      for (size_t l = 0; l < k; ++l) {
        const double both =
            std::inner_product(parts[k].begin(), parts[k].end(), parts[l].begin(), 0.0);
        const double own =
            std::inner_product(parts[k].begin(), parts[k].end(), parts[k].begin(), 0.0) *
            std::inner_product(parts[l].begin(), parts[l].end(), parts[l].begin(), 0.0);
        EXPECT_LE(std::abs(both), 1e-6 * std::sqrt(own));
      }
    }
    for (int64_t f = 0; f < flats; ++f) {
      double left = 0, noise = 0;
      for (size_t i = 0; i < pixels; ++i) {
        const auto at = static_cast<size_t>(f) * pixels + i;
        double value = mean[i];
        // A flat field's own weights are the mixture times flats - 1.
        for (size_t k = 0; k < parts.size(); ++k) {
          value += given.mixture[static_cast<size_t>(f * k_count) + k] *
                   static_cast<double>(flats - 1) * parts[k][i];
        }
        left += std::pow(static_cast<double>(fields[at]) - value, 2);
        noise += 0.09 * clean[static_cast<size_t>(f)][i];
      }
      EXPECT_LE(left, 1.25 * noise) << "flat " << f;
    }
  }
  EXPECT_LE(of_noise, 6);  // of 12 rounds
}

TEST(FlatPrincipalsTest, NoiseAloneHasNone) {
  std::mt19937 random{testing::FreshSeed()};
  std::normal_distribution<double> normal;
  int taken = 0;
  constexpr int kRounds = 120;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t flats = 2 + round % 30, pixels = 600;
    std::vector<float> fields;
    for (int64_t i = 0; i < flats * pixels; ++i) {
      const double light = 100 + 10 * static_cast<double>(i % pixels);
      fields.push_back(static_cast<float>(light + std::sqrt(light) * normal(random)));
    }
    taken += FindFlatPrincipals(flats, fields, 0)->components > 0 ? 1 : 0;
  }
  EXPECT_LE(taken, kRounds / 12);  // some 1 % is expected
  // Flat fields that are equal have none, whatever was asked for.
  const std::vector<float> equal(5 * 100, 1234.5f);
  EXPECT_EQ(FindFlatPrincipals(5, equal, 0)->components, 0);
  EXPECT_EQ(FindFlatPrincipals(5, equal, 3)->components, 0);
}

// With many flat fields the edge of the spectrum depends on their number as on that of the pixels.
TEST(FlatPrincipalsTest, NoiseOfManyFlatFieldsHasNone) {
  std::mt19937 random{testing::FreshSeed()};
  std::normal_distribution<float> normal;
  // One in 100 is expected at each number: more than 3 of 20 are by chance in less than 1 of 20
  // 000.
  for (const int64_t flats : {60, 150, 300}) {
    for (const bool uneven : {false, true}) {
      constexpr int kRounds = 20;
      int taken = 0;
      for (int round = 0; round < kRounds; ++round) {
        const int64_t pixels = 200 + static_cast<int64_t>(random() % 400);
        std::vector<float> fields;
        for (int64_t i = 0; i < flats * pixels; ++i) {
          const float light = uneven ? 100 + 10 * static_cast<float>(i % pixels) : 1000;
          fields.push_back(light + std::sqrt(light) * normal(random));
        }
        ASSERT_OK_AND_ASSIGN(const FlatPrincipals found, FindFlatPrincipals(flats, fields, 0));
        taken += found.components > 0 ? 1 : 0;
      }
      EXPECT_LE(taken, 4) << flats << " flat fields, uneven light " << uneven;
    }
  }
}

// The components are eigenvectors of the products of the fields, which are made here one by one.
TEST(FlatPrincipalsTest, ComponentsAreEigenvectors) {
  std::mt19937 random{testing::FreshSeed()};
  std::normal_distribution<double> normal;
  for (const int64_t flats : {2, 3, 5, 17, 64, 130}) {
    const auto number = static_cast<size_t>(flats);
    const size_t pixels = 300 + random() % 900;
    const int64_t most = std::min<int64_t>(flats - 1, 8);
    std::vector<float> fields;
    for (size_t f = 0; f < number; ++f) {
      const double drift = normal(random), wave = normal(random);
      for (size_t i = 0; i < pixels; ++i) {
        const double x = static_cast<double>(i) / static_cast<double>(pixels);
        fields.push_back(static_cast<float>(1000 + 50 * drift * x + 20 * wave * std::sin(9 * x) +
                                            5 * normal(random)));
      }
    }
    std::vector<Doubles> off(number, Doubles(pixels, 0.0));
    double whole = 0;
    for (size_t i = 0; i < pixels; ++i) {
      double mean = 0;
      for (size_t f = 0; f < number; ++f)
        mean += static_cast<double>(fields[f * pixels + i]) / static_cast<double>(flats);
      for (size_t f = 0; f < number; ++f) {
        off[f][i] = static_cast<double>(fields[f * pixels + i]) - mean;
        whole += off[f][i] * off[f][i];
      }
    }
    SCOPED_TRACE(::testing::Message() << flats << " flats, " << pixels << " pixels");
    ASSERT_OK_AND_ASSIGN(const FlatPrincipals found, FindFlatPrincipals(flats, fields, most));
    ASSERT_EQ(found.components, most);
    for (int64_t k = 0; k < most; ++k) {
      const auto entry = [&](size_t f, int64_t of) {
        return found.mixture[f * static_cast<size_t>(most) + static_cast<size_t>(of)] *
               std::sqrt(static_cast<double>(flats - 1));
      };
      Doubles image(pixels, 0.0);
      for (size_t f = 0; f < number; ++f) {
        for (size_t i = 0; i < pixels; ++i) image[i] += entry(f, k) * off[f][i];
      }
      const double share = found.shares[static_cast<size_t>(k)];
      for (size_t f = 0; f < number; ++f) {
        EXPECT_NEAR(std::inner_product(image.begin(), image.end(), off[f].begin(), 0.0),
                    share * whole * entry(f, k), 1e-10 * whole);
      }
      for (int64_t l = 0; l <= k; ++l) {
        double both = 0;
        for (size_t f = 0; f < number; ++f) both += entry(f, k) * entry(f, l);
        EXPECT_NEAR(both, k == l ? 1 : 0, 1e-10);
      }
      if (k > 0) EXPECT_LE(share, found.shares[static_cast<size_t>(k - 1)]);
    }
    // What the largest ones leave is no larger than the last of them at any field.
    for (size_t f = 0; f < number; ++f) {
      double left = std::inner_product(off[f].begin(), off[f].end(), off[f].begin(), 0.0);
      for (int64_t k = 0; k < most; ++k) {
        const double e = found.mixture[f * static_cast<size_t>(most) + static_cast<size_t>(k)];
        left -=
            found.shares[static_cast<size_t>(k)] * whole * e * e * static_cast<double>(flats - 1);
      }
      EXPECT_LE(left, found.shares.back() * whole * (1 + 1e-9));
    }
  }
}

TEST(FlatPrincipalsTest, ManyFlatFieldsAreGivenUpSoon) {
  std::mt19937 random{testing::FreshSeed()};
  std::normal_distribution<float> normal;
  const int64_t flats = 200, pixels = 3000;
  std::vector<float> fields;
  for (int64_t i = 0; i < flats * pixels; ++i) fields.push_back(1000 + normal(random));
  int64_t asked = 0;
  ASSERT_THAT(FindFlatPrincipals(flats, fields, 2, [&] { return ++asked > 0; }).status(), IsOk());
  // Pieces of the pixels, each row of the matrix, each eigenvalue.
  EXPECT_GE(asked, pixels / 1024 + 2 * (flats - 2));
  for (const int64_t last : {int64_t{0}, int64_t{3}, asked / 2, asked - 1}) {
    int64_t times = 0;
    EXPECT_EQ(FindFlatPrincipals(flats, fields, 2, [&] { return times++ < last; }).status().code(),
              absl::StatusCode::kCancelled)
        << last;
    EXPECT_EQ(times, last + 1);  // nothing is asked, nor done, after that
  }
}

TEST_P(FlatComponentsTest, WeightsMakeTheTotalVariationLeast) {
  const DType types[] = {DType::kU8, DType::kU16, DType::kI16, DType::kF32};
  for (int round = 0; round < 8; ++round) {
    const int patterns = static_cast<int>(Pick(1, 3));
    const int64_t groups = Pick(1, 3), group_rows = Pick(1, 9), rows = groups * group_rows,
                  columns = Pick(60, 110), flats = Pick(12, 24), darks = Pick(0, 2), frames = 3;
    const DType dtype = types[round % 4];
    const double light = dtype == DType::kU8 ? 180 : 9000, dark = darks > 0 ? 20 : 0;
    const Beam beam = MakeBeam(rows, columns, patterns, light);
    const auto shot = [&](const Doubles& scores, const Doubles* shadow) {
      Doubles out = beam.At(scores);
      for (size_t i = 0; i < out.size(); ++i) {
        if (shadow != nullptr) out[i] *= (*shadow)[i];
        out[i] += dark;
        if (dtype != DType::kF32)
          out[i] = std::round(std::min(out[i], dtype == DType::kU8 ? 255.0 : 32'000.0));
      }
      return out;
    };
    const auto scores = [&](double deviation) {
      Doubles out;
      for (int k = 0; k < patterns; ++k) out.push_back(Normal(deviation));
      return out;
    };
    Doubles raw_flats, raw_darks(static_cast<size_t>(darks * rows * columns), dark), raw;
    for (int64_t f = 0; f < flats; ++f) {
      const Doubles flat = shot(scores(1), nullptr);
      raw_flats.insert(raw_flats.end(), flat.begin(), flat.end());
    }
    for (int64_t a = 0; a < frames; ++a) {
      const Doubles shadow = Shadow(rows, columns, Uniform(0.3, 0.7) * static_cast<double>(columns),
                                    Uniform(0.1, 0.25) * static_cast<double>(columns));
      const Doubles frame = shot(scores(1), &shadow);
      raw.insert(raw.end(), frame.begin(), frame.end());
    }
    FlatComponentsConfig config{.dtype = dtype,
                                .flats = flats,
                                .darks = darks,
                                .columns = columns,
                                .groups = groups,
                                .group_rows = group_rows,
                                .frames_at_once = flats,
                                .components = patterns};
    ASSERT_OK_AND_ASSIGN(const auto finder, FlatComponentFinder::Create(config, device_));
    const auto give = [&](const Doubles& values, int64_t count) {
      for (int64_t g = 0; g < groups; ++g) {
        Doubles part;
        for (int64_t f = 0; f < count; ++f) {
          const auto from = values.begin() + (f * rows + g * group_rows) * columns;
          part.insert(part.end(), from, from + group_rows * columns);
        }
        const auto send = [&](const auto& typed) {
          const auto bytes = static_cast<int64_t>(typed.size() * sizeof typed[0]);
          PinnedBuffer host = device_.AllocatePinned(bytes).value();
          std::memcpy(host.data(), typed.data(), static_cast<size_t>(bytes));
          EXPECT_THAT(finder->Add(stream_.ref(), host.data(), 0, count, g), IsOk());
        };
        if (dtype == DType::kU8) send(As<uint8_t>(part));
        if (dtype == DType::kU16) send(As<uint16_t>(part));
        if (dtype == DType::kI16) send(As<int16_t>(part));
        if (dtype == DType::kF32) send(As<float>(part));
      }
    };
    using Kind = FlatComponentFinder::Kind;
    give(raw_flats, flats);
    ASSERT_THAT(finder->TakeFields(stream_.ref(), Kind::kFlat, flats), IsOk());
    if (darks > 0) {
      give(raw_darks, darks);
      ASSERT_THAT(finder->TakeFields(stream_.ref(), Kind::kDark, darks), IsOk());
    }
    ASSERT_OK_AND_ASSIGN(const FlatPrincipals found, finder->Learn(stream_.ref()));
    ASSERT_EQ(found.components, patterns);
    give(raw, frames);
    ASSERT_OK_AND_ASSIGN(const Doubles weights, finder->Weights(stream_.ref(), frames));
    ASSERT_EQ(std::ssize(weights), frames * patterns);

    // The model: fields at half the resolution, from the mixture.
    const int64_t bin_rows = group_rows >= 2 ? 2 : 1, half_rows = group_rows / bin_rows * groups,
                  half_columns = columns / 2;
    const auto halved = [&](const Doubles& all, int64_t frame) {
      Doubles out;
      for (int64_t g = 0; g < groups; ++g) {
        const auto from = all.begin() + (frame * rows + g * group_rows) * columns;
        const Doubles part =
            Binned(Doubles(from, from + group_rows * columns), group_rows, columns, bin_rows);
        out.insert(out.end(), part.begin(), part.end());
      }
      return out;
    };
    const size_t pixels = static_cast<size_t>(half_rows * half_columns);
    Doubles mean(pixels, -dark);
    std::vector<Doubles> parts(static_cast<size_t>(patterns), Doubles(pixels, 0.0));
    for (int64_t f = 0; f < flats; ++f) {
      const Doubles flat = halved(raw_flats, f);
      for (size_t i = 0; i < pixels; ++i) {
        mean[i] += flat[i] / static_cast<double>(flats);
        for (size_t k = 0; k < parts.size(); ++k)
          parts[k][i] += found.mixture[static_cast<size_t>(f * patterns) + k] * flat[i];
      }
    }
    for (int64_t a = 0; a < frames; ++a) {
      Doubles frame = halved(raw, a);
      for (double& v : frame) v -= dark;
      const auto cost = [&](const Doubles& w) {
        return TotalVariation(frame, mean, parts, w, half_rows, half_columns,
                              group_rows / bin_rows);
      };
      const Doubles mine(weights.begin() + a * patterns, weights.begin() + (a + 1) * patterns);
      // A search by ever smaller steps along all axes and diagonals, from the weights found and
      // from 0: nothing is better by more than 0.4 % of what the weights gained.
      const double at_found = cost(mine),
                   at_zero = cost(Doubles(static_cast<size_t>(patterns), 0.0));
      double least = at_found;
      for (Doubles w : {mine, Doubles(static_cast<size_t>(patterns), 0.0)}) {
        double best = cost(w);
        for (double step = 0.5; step > 1e-4; step *= 0.5) {
          for (bool better = true; better;) {
            better = false;
            for (int way = 0; way < static_cast<int>(std::pow(3, patterns)); ++way) {
              Doubles next = w;
              for (int k = 0, digits = way; k < patterns; ++k, digits /= 3)
                next[static_cast<size_t>(k)] += step * (digits % 3 - 1);
              if (const double tried = cost(next); tried < best - 1e-12) {
                best = tried;
                w = next;
                better = true;
              }
            }
          }
        }
        least = std::min(least, best);
      }
      SCOPED_TRACE(::testing::Message()
                   << "round " << round << " " << Info(dtype).name << " groups " << groups << " of "
                   << group_rows << ", " << patterns << " patterns, frame " << a);
      EXPECT_LE(at_found - least, 0.004 * (at_zero - least) + 5e-4 * least);
      EXPECT_LE(at_found, at_zero * (1 + 1e-6));
    }
  }
}

TEST_P(FlatComponentsTest, APreparerAddsThemToTheMean) {
  const DType types[] = {DType::kU16, DType::kI16, DType::kF32};
  for (int round = 0; round < 16; ++round) {
    const int64_t bins[] = {1, 2, 4};
    PrepareConfig c;
    c.angles = Pick(4, 12);
    c.rows = Pick(4, 20);
    c.columns = Pick(12, 90);
    c.dtype = c.field_dtype = types[Pick(0, 2)];
    c.flats = Pick(2, 9);
    c.darks = Pick(0, 3);
    c.bin_rows = bins[Pick(0, 2)];
    c.bin_columns = bins[Pick(0, 2)];
    c.bin_angles = bins[Pick(0, 2)];
    if (Pick(0, 1) != 0) c.air_left = 2;
    c.row_first = Pick(0, 1) != 0;
    c.flat_components.components = Pick(1, std::min<int64_t>(c.flats - 1, 8));
    const int64_t count = c.flat_components.components;
    for (int64_t i = 0; i < c.flats * count; ++i) c.flat_components.mixture.push_back(Normal(0.02));
    for (int64_t i = 0; i < c.angles * count; ++i) c.flat_components.weights.push_back(Normal(0.5));
    const auto counts = [&](int64_t frames, double low, double high) {
      Doubles out(static_cast<size_t>(frames * c.rows * c.columns));
      for (double& v : out) v = std::floor(Uniform(low, high));
      return out;
    };
    const Doubles raw = counts(c.angles, 500, 2000), flats = counts(c.flats, 1900, 2100),
                  darks = counts(c.darks, 3, 9);
    // The model has the open beam of each projection as a flat field of its own.
    PrepareConfig model = c;
    model.flat_components = {};
    model.flats = c.angles;
    Doubles open;
    const size_t pixels = static_cast<size_t>(c.rows * c.columns);
    for (int64_t a = 0; a < c.angles; ++a) {
      model.flat_series.push_back(1);
      model.flat_times.push_back(static_cast<double>(a));
      for (size_t i = 0; i < pixels; ++i) {
        double sum = 0;
        for (int64_t f = 0; f < c.flats; ++f) {
          double factor = 1 / static_cast<double>(c.flats);
          for (int64_t k = 0; k < count; ++k)
            factor += c.flat_components.weights[static_cast<size_t>(a * count + k)] *
                      c.flat_components.mixture[static_cast<size_t>(f * count + k)];
          sum += factor * flats[static_cast<size_t>(f) * pixels + i];
        }
        open.push_back(sum);
      }
    }
    PrepareCounts want_counts;
    const Doubles want = PrepareModel(model, raw, open, darks, &want_counts);
    ASSERT_OK_AND_ASSIGN(const auto preparer, Preparer::Create(c, device_));
    ASSERT_OK_AND_ASSIGN(const int64_t bytes, Preparer::DeviceBytes(c, device_));
    EXPECT_GT(bytes, 0);
    Doubles ordered = raw;
    if (c.row_first) {
      for (int64_t a = 0; a < c.angles; ++a) {
        for (int64_t r = 0; r < c.rows; ++r)
          std::copy_n(raw.begin() + (a * c.rows + r) * c.columns, c.columns,
                      ordered.begin() + (r * c.angles + a) * c.columns);
      }
    }
    const auto upload = [&](const Doubles& values) {
      return c.dtype == DType::kU16   ? Upload(As<uint16_t>(values))
             : c.dtype == DType::kI16 ? Upload(As<int16_t>(values))
                                      : Upload(As<float>(values));
    };
    const DeviceBuffer in = upload(ordered), flat = upload(flats), dark = upload(darks);
    const DeviceBuffer out = Poisoned(preparer->shape().elements() * 4);
    ASSERT_THAT(preparer->Run(stream_.ref(),
                              {.projections = in.data(),
                               .flats = flat.data(),
                               .darks = c.darks > 0 ? dark.data() : nullptr},
                              out.span<float>()),
                IsOk());
    const auto got = Download<float>(out, static_cast<size_t>(preparer->shape().elements()));
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(got[i]), want[i], 2e-4 * std::max(1.0, std::abs(want[i])))
          << "round " << round << " at " << i;
    }
  }
}

// Whatever the sizes, the flat fields are there twice, and little else is.
TEST_P(FlatComponentsTest, HostMemoryIsMostlyTheFlatFieldsTwice) {
  for (int round = 0; round < 20; ++round) {
    const FlatComponentsConfig c{.flats = Pick(40, 512),
                                 .darks = Pick(0, 40),
                                 .columns = Pick(256, 2048),
                                 .groups = Pick(1, 4),
                                 .group_rows = Pick(16, 32),
                                 .frames_at_once = Pick(1, 8)};
    ASSERT_OK_AND_ASSIGN(const int64_t bytes, FlatComponentFinder::HostBytes(c));
    const int64_t pixels = c.groups * (c.group_rows / 2) * (c.columns / 2),
                  flats = 2 * c.flats * pixels * 4,
                  others = 24 * pixels * 8 + (3 * c.flats + 1024) * c.flats * 8;
    EXPECT_GT(bytes, flats + 6 * pixels * 8);
    EXPECT_LT(bytes, flats + others);
    FlatComponentsConfig more = c;
    more.flats = c.flats > 511 ? 512 : c.flats + 1;
    EXPECT_EQ(*FlatComponentFinder::HostBytes(more) > bytes, more.flats > c.flats);
  }
  EXPECT_THAT(FlatComponentFinder::HostBytes({.flats = 1, .columns = 10}),
              IsError(kInvalid, "flats"));
}

TEST_P(FlatComponentsTest, RefusesWhatCannotBe) {
  PrepareConfig c;
  c.angles = 3;
  c.rows = 2;
  c.columns = 4;
  c.flats = 3;
  c.flat_components = {.components = 2, .mixture = Doubles(6, 0.1), .weights = Doubles(6, 0.1)};
  ASSERT_THAT(CheckPrepare(c).status(), IsOk());
  const auto refuses = [&](const char* text, auto change) {
    PrepareConfig wrong = c;
    change(wrong);
    EXPECT_THAT(CheckPrepare(wrong).status(), IsError(kInvalid, text));
  };
  refuses("flat_components.components", [](auto& w) { w.flat_components.components = 3; });
  refuses("flat_components.components", [](auto& w) { w.flat_components.components = -1; });
  refuses("flats", [](auto& w) { w.flats = 1; });
  refuses("flat_components.mixture", [](auto& w) { w.flat_components.mixture.pop_back(); });
  refuses("flat_components.weights", [](auto& w) { w.flat_components.weights.push_back(0); });
  refuses("flat_components.weights[1]",
          [](auto& w) { w.flat_components.weights[1] = std::nan(""); });
  refuses("flat_average", [](auto& w) { w.flat_average = FieldAverage::kMedian; });
  refuses("flat_components", [](auto& w) { w.flat_series = {3}, w.flat_times = {0}; });

  const FlatComponentsConfig good{.flats = 3, .columns = 10, .group_rows = 2};
  ASSERT_THAT(FlatComponentFinder::DeviceBytes(good, device_).status(), IsOk());
  const auto finder_refuses = [&](const char* text, auto change) {
    FlatComponentsConfig wrong = good;
    change(wrong);
    EXPECT_THAT(FlatComponentFinder::Create(wrong, device_).status(), IsError(kInvalid, text));
  };
  finder_refuses("flats", [](auto& w) { w.flats = 1; });
  finder_refuses("flats", [](auto& w) { w.flats = 513; });
  finder_refuses("components", [](auto& w) { w.components = 3; });
  finder_refuses("components", [](auto& w) { w.flats = 20, w.components = 9; });
  finder_refuses("group_rows", [](auto& w) { w.group_rows = 0; });
  finder_refuses("dtype", [](auto& w) { w.dtype = DType::kF16; });
  // Weights before the components are known, and components before all fields are.
  ASSERT_OK_AND_ASSIGN(const auto finder, FlatComponentFinder::Create(good, device_));
  EXPECT_EQ(finder->Weights(stream_.ref(), 1).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(finder->Learn(stream_.ref()).status().code(), absl::StatusCode::kFailedPrecondition);
}

INSTANTIATE_TEST_SUITE_P(Backends, FlatComponentsTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo
