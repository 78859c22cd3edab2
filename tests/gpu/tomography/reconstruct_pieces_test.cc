// Large steps run in pieces; a run can be cancelled between two pieces.

#include <algorithm>

#include "tests/gpu/tomography/reconstruct_fixture.h"

namespace octavo {
namespace {

using testing::IsError;
using testing::IsOk;
using testing::Small;

class TomographyPiecesTest : public testing::TomographyFixture {
 protected:
  /// Angles and rows that make several pieces of the smallest size.
  TomographyConfig Config(TomographyAlgorithm algorithm, int64_t slices) {
    TomographyConfig c = Small(algorithm, slices);
    c.angles_rad = testing::HalfTurn(40);
    c.detectors = 101;
    c.centers = {49.3};
    c.image_size = 97;
    c.iterations = 3;
    return c;
  }
  std::vector<float> Sinograms(const TomographyConfig& c) {
    return Random(c.slices * 40 * c.detectors, 0.5f, 2.0f);
  }
};

TEST_P(TomographyPiecesTest, PiecesMakeWhatOneMakes) {
  for (const auto algorithm :
       {TomographyAlgorithm::kFbp, TomographyAlgorithm::kSirt, TomographyAlgorithm::kMlem,
        TomographyAlgorithm::kCgls, TomographyAlgorithm::kTv}) {
    for (const int64_t slices : {1, 18}) {
      TomographyConfig c = Config(algorithm, slices);
      const auto sinograms = Sinograms(c);
      ASSERT_OK_AND_ASSIGN(const auto whole, Reconstruct(c, sinograms));
      c.piece_samples = 1;
      int64_t pieces = 0, iterations = 0;
      const auto count = [&](const IterationReport& r) {
        (r.iteration == 0 ? pieces : iterations) += 1;
        EXPECT_EQ(r.residual_norms.empty(), r.iteration == 0);
        return true;
      };
      ASSERT_OK_AND_ASSIGN(const auto parts, Reconstruct(c, sinograms, {}, count));
      EXPECT_EQ(parts, whole) << static_cast<int>(algorithm) << ", " << slices << " slices";
      EXPECT_EQ(iterations, algorithm == TomographyAlgorithm::kFbp ? 0 : 3);
      // The back projection takes 32 rows a piece, the forward projection 8 angles, and the filter
      // two detector rows.
      EXPECT_GE(pieces, algorithm == TomographyAlgorithm::kFbp ? 40 / 2 + 3 : 3 * (40 / 8 + 3));
    }
  }
}

TEST_P(TomographyPiecesTest, GivenUpBetweenPieces) {
  for (const auto algorithm :
       {TomographyAlgorithm::kFbp, TomographyAlgorithm::kSirt, TomographyAlgorithm::kMlem,
        TomographyAlgorithm::kCgls, TomographyAlgorithm::kTv}) {
    TomographyConfig c = Config(algorithm, 3);
    const auto sinograms = Sinograms(c);
    c.piece_samples = 1;
    for (const int64_t last : {1, 2, 7}) {
      int64_t calls = 0;
      const auto give_up = [&](const IterationReport&) { return ++calls < last; };
      EXPECT_THAT(Reconstruct(c, sinograms, {}, give_up),
                  IsError(absl::StatusCode::kCancelled, "given up"));
      EXPECT_EQ(calls, last) << "nothing more is begun";
    }
  }
  // A backend's own size of a piece is larger: it does not divide work this small.
  int64_t calls = 0;
  TomographyConfig c = Config(TomographyAlgorithm::kFbp, 3);
  ASSERT_THAT(Reconstruct(c, Sinograms(c), {}, [&](const IterationReport&) { return ++calls < 0; }),
              IsOk());
  EXPECT_EQ(calls, 0);
  c.piece_samples = -1;
  EXPECT_THAT(Reconstructor::Create(c, device_),
              IsError(absl::StatusCode::kInvalidArgument, "piece_samples"));
}

TEST_P(TomographyPiecesTest, TheTomopyFormToo) {
  TomographyConfig c;
  c.form = TomographyForm::kTomopy;
  c.angles_rad = testing::HalfTurn(12);
  c.detectors = 24;
  c.slices = 2;
  c.iterations = 2;
  const auto sinograms = Random(2 * 12 * 24, 0.5f, 2.0f);
  ASSERT_OK_AND_ASSIGN(const auto whole, Reconstruct(c, sinograms));
  c.piece_samples = 1;
  int64_t pieces = 0;
  ASSERT_OK_AND_ASSIGN(const auto parts,
                       Reconstruct(c, sinograms, {}, [&](const IterationReport& r) {
                         pieces += r.iteration == 0;
                         return true;
                       }));
  EXPECT_EQ(parts, whole);
  EXPECT_GE(pieces, 2 * 12 - 1);
  EXPECT_THAT(Reconstruct(c, sinograms, {}, [](const IterationReport&) { return false; }),
              IsError(absl::StatusCode::kCancelled, "given up"));
}

INSTANTIATE_TEST_SUITE_P(Backends, TomographyPiecesTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo
