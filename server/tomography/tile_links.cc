#include "server/tomography/tile_links.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace octavo::tomography {
namespace {

using Links = std::vector<std::pair<size_t, TileLink>>;  // with their indices

constexpr double kWeightAsGiven = 1e-6;  // beside 0.0025 at least of a pair that was found

double WeightOf(const TileLink& link) { return link.as_given ? kWeightAsGiven : link.weight; }

/// A number for each tile, the same for those that links connect.
std::vector<size_t> GroupsOf(size_t tiles, const Links& links) {
  std::vector<size_t> group(tiles);
  std::iota(group.begin(), group.end(), 0);
  for (const auto& [index, link] : links) {
    const size_t from = group[link.second], to = group[link.first];
    for (size_t& of_tile : group) of_tile = of_tile == from ? to : of_tile;
  }
  return group;
}

/// Solves the symmetric positive definite system by elimination; `matrix` [row, column] and
/// `values` are used up.
std::vector<double> Solve(std::vector<double> matrix, std::vector<double> values) {
  const size_t n = values.size();
  for (size_t p = 0; p < n; ++p) {
    for (size_t r = p + 1; r < n; ++r) {
      const double factor = matrix[r * n + p] / matrix[p * n + p];
      if (factor == 0) continue;
      for (size_t c = p; c < n; ++c) matrix[r * n + c] -= factor * matrix[p * n + c];
      values[r] -= factor * values[p];
    }
  }
  for (size_t p = n; p-- > 0;) {
    for (size_t c = p + 1; c < n; ++c) values[p] -= matrix[p * n + c] * values[c];
    values[p] /= matrix[p * n + p];
  }
  return values;
}

std::vector<double> Fit(size_t tiles, const Links& links) {
  const std::vector<size_t> group = GroupsOf(tiles, links);
  std::vector<double> matrix(tiles * tiles, 0.0), values(tiles, 0.0);
  for (const auto& [index, link] : links) {
    const size_t a = link.first, b = link.second;
    const double weight = WeightOf(link);
    matrix[a * tiles + a] += weight;
    matrix[b * tiles + b] += weight;
    matrix[a * tiles + b] -= weight;
    matrix[b * tiles + a] -= weight;
    values[a] -= weight * link.difference;
    values[b] += weight * link.difference;
  }
  // The mean of each group is 0.
  for (size_t a = 0; a < tiles; ++a) {
    for (size_t b = 0; b < tiles; ++b) {
      if (group[a] == group[b]) matrix[a * tiles + b] += 1;
    }
  }
  return Solve(std::move(matrix), std::move(values));
}

}  // namespace

LinkedTiles CorrectionsOf(size_t tiles, const std::vector<TileLink>& links, double most_residual) {
  Links used;
  for (size_t i = 0; i < links.size(); ++i) used.emplace_back(i, links[i]);
  LinkedTiles out;
  for (;;) {
    out.corrections = Fit(tiles, used);
    const auto residual = [&](const TileLink& link) {
      return std::abs(out.corrections[link.second] - out.corrections[link.first] - link.difference);
    };
    Links by_residual = used;
    std::stable_sort(by_residual.begin(), by_residual.end(), [&](const auto& a, const auto& b) {
      return residual(a.second) > residual(b.second);
    });
    bool changed = false;
    for (const auto& [index, link] : by_residual) {
      if (residual(link) <= most_residual) break;
      if (link.as_given) continue;
      Links others = used;
      std::erase_if(others, [&, at = index](const auto& other) { return other.first == at; });
      Links telling = others;
      std::erase_if(telling, [](const auto& other) { return other.second.as_given; });
      const std::vector<size_t> group = GroupsOf(tiles, telling);
      if (group[link.first] != group[link.second]) continue;
      used = std::move(others);
      out.left_out.push_back(index);
      changed = true;
      break;
    }
    if (!changed) break;
  }
  out.linked.assign(tiles, false);
  for (const auto& [index, link] : used) {
    if (!link.as_given) out.linked[link.first] = out.linked[link.second] = true;
  }
  return out;
}

}  // namespace octavo::tomography
