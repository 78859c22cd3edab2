#include "gpu/mosaic/tile_positions.h"

#include <algorithm>
#include <cmath>

namespace octavo::inline gpu {
namespace {

constexpr double kFallbackWeight = 1e-3;
// Of the stage's own position of each tile: decides only where nothing else does.
constexpr double kStageWeight = 1e-9;
constexpr int kMostTurns = 60;
// With fewer of them nothing can be said of what is usual.
constexpr size_t kFewestJoints = 6;

double Norm(const Vector3& v) { return std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]); }

/// A joint as the fit sees it: corrections[second] - corrections[first] = wanted.
struct Spring {
  size_t first = 0, second = 0;
  Vector3 wanted;
  double base = 0;    // weight by the confidence
  double weight = 0;  // of this turn
};

/// One axis of Σ weight (c[second] - c[first] - wanted)² + Σ kStageWeight c² → least, by conjugate
/// gradients from `c` on.
void Relax(const std::vector<Spring>& springs, int axis, std::vector<double>* c) {
  const size_t n = c->size();
  std::vector<double> diagonal(n, kStageWeight), residual(n, 0), direction(n), product(n);
  for (const Spring& s : springs) {
    diagonal[s.first] += s.weight;
    diagonal[s.second] += s.weight;
    residual[s.first] -= s.weight * s.wanted[axis];
    residual[s.second] += s.weight * s.wanted[axis];
  }
  const auto multiply = [&](const std::vector<double>& x, std::vector<double>* y) {
    for (size_t i = 0; i < n; ++i) (*y)[i] = kStageWeight * x[i];
    for (const Spring& s : springs) {
      const double pull = s.weight * (x[s.second] - x[s.first]);
      (*y)[s.second] += pull;
      (*y)[s.first] -= pull;
    }
  };
  multiply(*c, &product);
  for (size_t i = 0; i < n; ++i) residual[i] -= product[i];
  double before = 0, start = 0;
  for (size_t turn = 0; turn < 20 * n + 100; ++turn) {
    double now = 0;
    for (size_t i = 0; i < n; ++i) now += residual[i] * residual[i] / diagonal[i];
    if (turn == 0) start = now;
    if (!(now > 1e-26 * start) || now < 1e-30) return;
    for (size_t i = 0; i < n; ++i) {
      direction[i] = residual[i] / diagonal[i] + (turn == 0 ? 0 : now / before * direction[i]);
    }
    before = now;
    multiply(direction, &product);
    double curvature = 0;
    for (size_t i = 0; i < n; ++i) curvature += direction[i] * product[i];
    if (!(curvature > 0)) return;
    const double step = now / curvature;
    for (size_t i = 0; i < n; ++i) {
      (*c)[i] += step * direction[i];
      residual[i] -= step * product[i];
    }
  }
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

/// The median that lies nearer to `own`, of an even number of values: a wrong one of two neighbours
/// then accuses nobody else.
double MedianNear(std::vector<double> values, double own) {
  std::sort(values.begin(), values.end());
  const double low = values[(values.size() - 1) / 2], high = values[values.size() / 2];
  return std::clamp(own, low, high);
}

/// For each tile, the smallest number of a tile that a chain of used joints leads to.
std::vector<size_t> GroupsOf(const TilePositions& positions) {
  std::vector<size_t> group(positions.tiles.size());
  for (size_t i = 0; i < group.size(); ++i) group[i] = i;
  const auto root = [&](size_t i) {
    while (group[i] != i) i = group[i] = group[group[i]];
    return i;
  };
  for (const TileJoint& joint : positions.joints) {
    if (joint.state != JointState::kUsed) continue;
    const size_t a = root(static_cast<size_t>(joint.first)),
                 b = root(static_cast<size_t>(joint.second));
    group[std::max(a, b)] = std::min(a, b);
  }
  for (size_t i = 0; i < group.size(); ++i) group[i] = root(i);
  return group;
}

/// The tiles outside the largest group lie beside it as the stage has them, however well they are
/// joined to each other.
void MarkDetached(TilePositions* out) {
  const std::vector<size_t> group = GroupsOf(*out);
  std::vector<int64_t> size(group.size(), 0);
  for (const size_t g : group) ++size[g];
  const auto largest =
      static_cast<size_t>(std::max_element(size.begin(), size.end()) - size.begin());
  for (size_t i = 0; i < group.size(); ++i) {
    RegisteredTile& tile = out->tiles[i];
    if (group[i] != largest && tile.used_joints > 0) tile.state = TileState::kDetached;
  }
}

/// Two pictures that have nothing in common agree a little by chance somewhere: a tile whose best
/// joint is far worse than usual may be a wrong one, though its joint counts.
void MarkDoubted(TilePositions* out) {
  std::vector<double> all, apart, best(out->tiles.size(), 0);
  for (const TileJoint& joint : out->joints) {
    if (joint.state != JointState::kUsed) continue;
    all.push_back(joint.confidence);
    for (const int64_t tile : {joint.first, joint.second}) {
      double& of_tile = best[static_cast<size_t>(tile)];
      of_tile = std::max(of_tile, joint.confidence);
    }
  }
  if (all.size() < kFewestJoints) return;
  const double usual = Median(all);
  for (const double confidence : all) apart.push_back(std::abs(confidence - usual));
  // 1.4826 times the median deviation is the standard deviation of what is normal.
  const double least = usual - std::max(0.2, 5 * 1.4826 * Median(std::move(apart)));
  for (size_t i = 0; i < best.size(); ++i) {
    RegisteredTile& tile = out->tiles[i];
    if (tile.state == TileState::kRegistered && best[i] < least) tile.state = TileState::kDoubted;
  }
}

void MarkTiles(double outlier_um, TilePositions* out) {
  std::vector<std::vector<size_t>> neighbours(out->tiles.size());
  for (const TileJoint& joint : out->joints) {
    const auto a = static_cast<size_t>(joint.first), b = static_cast<size_t>(joint.second);
    for (const size_t i : {a, b}) {
      ++out->tiles[i].joints;
      if (joint.state == JointState::kUsed) ++out->tiles[i].used_joints;
    }
    if (joint.state != JointState::kUsed) continue;
    neighbours[a].push_back(b);
    neighbours[b].push_back(a);
  }
  std::vector<double> off(out->tiles.size(), 0), spread;
  for (size_t i = 0; i < out->tiles.size(); ++i) {
    RegisteredTile& tile = out->tiles[i];
    if (tile.used_joints == 0) {
      tile.state = TileState::kUnmatched;
      continue;
    }
    Vector3 apart;
    for (int d = 0; d < 3; ++d) {
      std::vector<double> others;
      for (const size_t k : neighbours[i]) others.push_back(out->tiles[k].correction_um[d]);
      apart[d] = tile.correction_um[d] - MedianNear(std::move(others), tile.correction_um[d]);
    }
    off[i] = Norm(apart);
    spread.push_back(off[i]);
  }
  const double most = std::max(3 * outlier_um, 4 * Median(std::move(spread)));
  for (size_t i = 0; i < out->tiles.size(); ++i) {
    if (off[i] > most) out->tiles[i].state = TileState::kMoved;
  }
  MarkDetached(out);
  MarkDoubted(out);
}

}  // namespace

TilePositions SolveTilePositions(const std::vector<Vector3>& stage_um,
                                 std::vector<TileJoint> joints, double min_confidence,
                                 double outlier_um) {
  const size_t n = stage_um.size();
  TilePositions out;
  out.joints = std::move(joints);
  out.tiles.resize(n);
  std::vector<Spring> springs;
  for (TileJoint& joint : out.joints) {
    Spring spring{.first = static_cast<size_t>(joint.first),
                  .second = static_cast<size_t>(joint.second)};
    if (joint.confidence >= min_confidence) {
      joint.state = JointState::kUsed;
      spring.base = std::max(joint.confidence * joint.confidence, 10 * kFallbackWeight);
      for (int d = 0; d < 3; ++d) {
        spring.wanted[d] =
            joint.difference_um[d] - (stage_um[spring.second][d] - stage_um[spring.first][d]);
      }
    } else {
      joint.state = JointState::kFallback;
      spring.base = kFallbackWeight;
    }
    springs.push_back(spring);
  }
  // Where joints contradict each other and nothing decides, as at a corner, the one that is nearer
  // to the stage is right: it has the greater weight in the first turn.
  std::vector<double> wanted;
  for (const Spring& s : springs) {
    if (s.base > kFallbackWeight) wanted.push_back(Norm(s.wanted));
  }
  const double usual = std::max(3 * Median(std::move(wanted)), outlier_um);
  for (Spring& s : springs) {
    const double r = Norm(s.wanted) / usual;
    s.weight = s.base / (1 + r * r);
  }
  std::vector<double> corrections[3];
  for (auto& axis : corrections) axis.assign(n, 0);
  const auto residual = [&](const Spring& s) {
    Vector3 r;
    for (int d = 0; d < 3; ++d)
      r[d] = corrections[d][s.second] - corrections[d][s.first] - s.wanted[d];
    return Norm(r);
  };
  const double scale = outlier_um / 2;
  for (int turn = 0; turn < kMostTurns; ++turn) {
    double most = 0;
    for (int d = 0; d < 3; ++d) {
      const std::vector<double> before = corrections[d];
      Relax(springs, d, &corrections[d]);
      for (size_t i = 0; i < n; ++i) most = std::max(most, std::abs(corrections[d][i] - before[i]));
    }
    if (turn > 0 && most < 1e-6 * outlier_um) break;
    for (Spring& s : springs) {
      if (s.base <= kFallbackWeight) continue;
      const double r = residual(s) / scale;
      s.weight = s.base / (1 + r * r);
    }
  }
  double squares = 0;
  int used = 0;
  for (size_t k = 0; k < springs.size(); ++k) {
    TileJoint& joint = out.joints[k];
    Vector3 r;
    for (int d = 0; d < 3; ++d) {
      const auto a = springs[k].first, b = springs[k].second;
      r[d] = stage_um[b][d] + corrections[d][b] - stage_um[a][d] - corrections[d][a] -
             joint.difference_um[d];
    }
    joint.residual_um = Norm(r);
    if (joint.state != JointState::kUsed) continue;
    if (joint.residual_um > outlier_um) {
      joint.state = JointState::kOutlier;
      continue;
    }
    squares += joint.residual_um * joint.residual_um;
    ++used;
  }
  out.rms_residual_um = used > 0 ? std::sqrt(squares / used) : 0;
  for (int d = 0; d < 3; ++d) {
    const double middle = Median(corrections[d]);
    for (size_t i = 0; i < n; ++i) {
      out.tiles[i].correction_um[d] = corrections[d][i] - middle;
      out.tiles[i].position_um[d] = stage_um[i][d] + out.tiles[i].correction_um[d];
    }
  }
  MarkTiles(outlier_um, &out);
  return out;
}

}  // namespace octavo::inline gpu
