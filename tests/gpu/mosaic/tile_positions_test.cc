// Positions that follow from joints whose truth is known.

#include "gpu/mosaic/tile_positions.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/support/seed.h"

namespace octavo {
namespace {

class TilePositionsTest : public ::testing::Test {
 protected:
  std::mt19937 random_{testing::FreshSeed()};
  std::vector<Vector3> stage_, truth_;
  std::vector<TileJoint> joints_;

  // A grid of tiles that lie off the stage, and exact joints of neighbours.
  void Grid(int rows, int columns, double error, double noise) {
    std::uniform_real_distribution<double> off(-error, error);
    std::normal_distribution<double> jitter(0, noise);
    for (int i = 0; i < rows * columns; ++i) {
      stage_.push_back({{0, 100.0 * (i / columns), 90.0 * (i % columns)}});
      truth_.push_back(stage_.back());
      for (int d = 0; d < 3; ++d) truth_.back()[d] += off(random_);
    }
    const auto join = [&](int a, int b) {
      TileJoint joint{.first = a, .second = b, .confidence = 0.9};
      for (int d = 0; d < 3; ++d) {
        joint.difference_um[d] =
            truth_[static_cast<size_t>(b)][d] - truth_[static_cast<size_t>(a)][d] + jitter(random_);
      }
      joints_.push_back(joint);
    };
    for (int i = 0; i < rows * columns; ++i) {
      if (i % columns + 1 < columns) join(i, i + 1);
      if (i / columns + 1 < rows) join(i, i + columns);
    }
  }
  // The largest difference of two tiles' positions from the truth.
  double Worst(const TilePositions& got) {
    double worst = 0;
    for (int d = 0; d < 3; ++d) {
      std::vector<double> off;
      for (size_t i = 0; i < truth_.size(); ++i)
        off.push_back(got.tiles[i].position_um[d] - truth_[i][d]);
      worst = std::max(worst, *std::max_element(off.begin(), off.end()) -
                                  *std::min_element(off.begin(), off.end()));
    }
    return worst;
  }
};

TEST_F(TilePositionsTest, ExactJointsGiveExactPositions) {
  Grid(7, 9, 4, 0);
  const TilePositions got = SolveTilePositions(stage_, joints_, 0.5, 1.5);
  EXPECT_LT(Worst(got), 1e-4);
  EXPECT_LT(got.rms_residual_um, 1e-4);
  for (int d = 0; d < 3; ++d) {
    std::vector<double> corrections;
    for (const RegisteredTile& tile : got.tiles) corrections.push_back(tile.correction_um[d]);
    std::nth_element(corrections.begin(), corrections.begin() + 31, corrections.end());
    EXPECT_NEAR(corrections[31], 0, 1e-9) << "the mosaic stays where the stage has it";
  }
}

TEST_F(TilePositionsTest, ConfidentJointsThatAreWrongAreOutliersAndBendNothing) {
  Grid(6, 6, 1, 0.1);
  std::set<size_t> wrong;
  std::set<int64_t> taken;  // one wrong joint to a tile: two of a corner's two nobody could tell
  while (wrong.size() < 6) {
    const size_t k = random_() % joints_.size();
    if (taken.count(joints_[k].first) + taken.count(joints_[k].second) > 0) continue;
    taken.insert({joints_[k].first, joints_[k].second});
    wrong.insert(k);
  }
  for (const size_t k : wrong) {
    joints_[k].difference_um[1] += random_() % 2 == 0 ? 25 : -25;
    joints_[k].confidence = 0.99;
  }
  const TilePositions got = SolveTilePositions(stage_, joints_, 0.5, 1.5);
  EXPECT_LT(Worst(got), 1.2);
  for (size_t k = 0; k < joints_.size(); ++k) {
    EXPECT_EQ(got.joints[k].state, wrong.count(k) > 0 ? JointState::kOutlier : JointState::kUsed)
        << k;
    if (wrong.count(k) > 0) EXPECT_NEAR(got.joints[k].residual_um, 25, 2);
  }
  EXPECT_LT(got.rms_residual_um, 0.4);
}

TEST_F(TilePositionsTest, WhatNothingElseKeepsTogetherTheStageDoes) {
  // A row whose joint in the middle shows nothing: each half is exact, and the halves are as far
  // from each other as the stage says. No tile lies so far off its neighbours that it counts as
  // moved.
  Grid(1, 8, 1, 0);
  joints_[3].confidence = 0.1;
  joints_[3].difference_um = {{50, -70, 3}};
  const TilePositions got = SolveTilePositions(stage_, joints_, 0.5, 1.5);
  EXPECT_EQ(got.joints[3].state, JointState::kFallback);
  for (int d = 0; d < 3; ++d) {
    const auto at = [&](size_t i) { return got.tiles[i].position_um[d]; };
    EXPECT_NEAR(at(4) - at(3), stage_[4][d] - stage_[3][d], 1e-3);
    EXPECT_NEAR(at(3) - at(0), truth_[3][d] - truth_[0][d], 1e-3);
    EXPECT_NEAR(at(7) - at(4), truth_[7][d] - truth_[4][d], 1e-3);
  }
  for (size_t i = 0; i < 8; ++i)
    EXPECT_EQ(got.tiles[i].state, i < 4 ? TileState::kRegistered : TileState::kDetached) << i;
  // Without any joint a tile is where the stage has it, beside the others.
  joints_.erase(joints_.begin() + 6);
  const TilePositions apart = SolveTilePositions(stage_, joints_, 0.5, 1.5);
  EXPECT_EQ(apart.tiles[7].state, TileState::kUnmatched);
  EXPECT_EQ(apart.tiles[7].joints, 0);
  for (int d = 0; d < 3; ++d) EXPECT_LT(std::abs(apart.tiles[7].correction_um[d]), 10);
  EXPECT_EQ(SolveTilePositions(stage_, {}, 0.5, 1.5).tiles[5].correction_um[1], 0);
}

// A wrong picture whose overlap agrees with one neighbour's by chance.
TEST_F(TilePositionsTest, ATileWhoseOnlyJointIsFarWorseThanUsualIsDoubted) {
  for (int turn = 0; turn < 20; ++turn) {
    stage_.clear(), truth_.clear(), joints_.clear();
    Grid(4, 4, 0.5, 0.05);
    std::uniform_real_distribution<double> good(0.93, 0.99), by_chance(0.5, 0.7);
    const auto wrong = static_cast<int64_t>(random_() % 16);
    bool first = true;
    for (TileJoint& joint : joints_) {
      joint.confidence = good(random_);
      if (joint.first != wrong && joint.second != wrong) continue;
      joint.confidence = std::exchange(first, false) ? by_chance(random_) : 0.2;
    }
    const TilePositions got = SolveTilePositions(stage_, joints_, 0.5, 1.5);
    for (int64_t i = 0; i < 16; ++i) {
      EXPECT_EQ(got.tiles[static_cast<size_t>(i)].state,
                i == wrong ? TileState::kDoubted : TileState::kRegistered)
          << i << ", wrong " << wrong;
    }
  }
}

TEST_F(TilePositionsTest, NobodyIsDoubtedWhereConfidencesDifferAnyhow) {
  for (int turn = 0; turn < 20; ++turn) {
    stage_.clear(), truth_.clear(), joints_.clear();
    Grid(4, 4, 0.5, 0.05);
    std::uniform_real_distribution<double> any(0.55, 0.99);
    for (TileJoint& joint : joints_) joint.confidence = any(random_);
    for (const RegisteredTile& tile : SolveTilePositions(stage_, joints_, 0.5, 1.5).tiles)
      EXPECT_EQ(tile.state, TileState::kRegistered);
  }
}

TEST_F(TilePositionsTest, ATileThatTheStageHasElsewhereIsMovedAndAccusesNobody) {
  for (int turn = 0; turn < 20; ++turn) {
    stage_.clear(), truth_.clear(), joints_.clear();
    const int rows = 2 + static_cast<int>(random_() % 3),
              columns = 2 + static_cast<int>(random_() % 3);
    Grid(rows, columns, 0.5, 0.05);
    const size_t moved = random_() % stage_.size();
    stage_[moved][1] += 20;
    const TilePositions got = SolveTilePositions(stage_, joints_, 0.5, 1.5);
    for (size_t i = 0; i < stage_.size(); ++i) {
      EXPECT_EQ(got.tiles[i].state, i == moved ? TileState::kMoved : TileState::kRegistered)
          << i << " of " << rows << " x " << columns << ", moved " << moved;
    }
    EXPECT_LT(Worst(got), 0.5);
  }
}

}  // namespace
}  // namespace octavo
