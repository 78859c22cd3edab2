#include "server/tomography/overlap_check.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/status.h"
#include "server/tomography/tile_pairs.h"
#include "server/tomography/tile_pictures.h"

namespace octavo::tomography {
namespace {

using storage::ProjectionInput;

constexpr double kPi = 3.14159265358979323846;
constexpr size_t kMostPairs = 32, kMostWarnings = 8;
constexpr size_t kManyPairs = 12;                         // from which on fewer are read
constexpr int64_t kProjections = 9, kFewProjections = 5;  // that are compared
constexpr size_t kLeastProjections = 3;
constexpr int64_t kLeastShared = 2, kLeastPixels = 64;
// Beyond it the dark field and scattered light make what is seen.
constexpr float kMostIntegral = 4;
constexpr double kLeastDifference = 0.025;  // of line integrals, that fringes of a beam stay below
constexpr double kLeastMismatch = 0.08;     // 1 - correlation, of half a pixel at most
constexpr double kTimesNeighbours = 2;      // the mismatch of neighbouring projections of one tile
constexpr double kDeviations = 4.5;         // of Fisher's transform of both correlations
constexpr double kSmoothedPixels = 13;      // that share their noise after the smoothing
constexpr double kNearOne = 1 - 1e-9;
constexpr double kMostRatio = 1.25;  // of mean transmissions
constexpr double kLeastTransmission = 0.02;
constexpr size_t kTrimmed = 50;  // one in so many values is left out of a mean, at either end

/// How a pair agrees.
struct Agreement {
  std::optional<double> ratio;  // of the transmission of the second tile to that of the first one
  /// Of what changes from projection to projection; without it there was too little to compare.
  std::optional<double> correlation;
  double neighbours = 0;  // the lesser one of the correlations within the tiles
  double difference = 0;  // root of the mean square
  double deviation = 1;   // of Fisher's transform of a correlation, by chance

  bool differs() const {
    const auto transformed = [](double of) {
      return std::atanh(std::clamp(of, -kNearOne, kNearOne));
    };
    return correlation.has_value() && difference >= kLeastDifference &&
           1 - *correlation >= std::max(kLeastMismatch, kTimesNeighbours * (1 - neighbours)) &&
           transformed(neighbours) - transformed(*correlation) >=
               kDeviations * std::sqrt(2.0) * deviation;
  }
  bool other_light() const {
    return ratio.has_value() && std::abs(std::log(*ratio)) > std::log(kMostRatio);
  }
};

/// Of each projection another one whose angle is the nearest.
std::vector<int64_t> NeighboursOf(const storage::ProjectionInfo& info,
                                  const std::vector<int64_t>& projections) {
  std::vector<int64_t> out;
  for (const int64_t of : projections) {
    int64_t best = of + 1 < info.projections ? of + 1 : of - 1;
    if (std::ssize(info.angles_rad) == info.projections) {
      const auto off = [&](int64_t other) {
        return std::abs(std::remainder(
            info.angles_rad[static_cast<size_t>(other)] - info.angles_rad[static_cast<size_t>(of)],
            2 * kPi));
      };
      for (int64_t other = 0; other < info.projections; ++other) {
        if (other != of && off(other) < off(best)) best = other;
      }
    }
    out.push_back(best);
  }
  return out;
}

bool IsNumber(float value) { return value - value == 0.0F; }

/// The mean without the smallest and the largest values; none if half of the pixels tell nothing.
std::optional<double> MeanOf(const Picture& picture) {
  std::vector<float> values;
  for (const float value : picture.pixels) {
    if (IsNumber(value)) values.push_back(value);
  }
  if (2 * values.size() < picture.pixels.size()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const size_t out = values.size() / kTrimmed;
  double sum = 0;
  for (size_t i = out; i < values.size() - out; ++i) sum += static_cast<double>(values[i]);
  return sum / static_cast<double>(values.size() - 2 * out);
}

/// Of the middle one of all projections, so that one flash counts for nothing.
std::optional<double> RatioOf(const std::vector<Picture>& first,
                              const std::vector<Picture>& second) {
  std::vector<double> ratios;
  for (size_t i = 0; i < first.size(); ++i) {
    const std::optional<double> a = MeanOf(first[i]), b = MeanOf(second[i]);
    if (a.has_value() && b.has_value() && *a > 0 && *b > 0 &&
        std::max(*a, *b) >= kLeastTransmission)
      ratios.push_back(*b / *a);
  }
  if (2 * ratios.size() <= first.size()) return std::nullopt;
  std::sort(ratios.begin(), ratios.end());
  return ratios[ratios.size() / 2];
}

/// Takes the value out that all pixels of a picture have in the mean: the beam varies.
void TakeMeanOut(Picture& picture) {
  double sum = 0;
  for (const float value : picture.pixels) sum += static_cast<double>(value);
  const auto mean = static_cast<float>(sum / static_cast<double>(picture.pixels.size()));
  for (float& value : picture.pixels) value -= mean;
}

/// Line integrals of which only what changes from picture to picture is left: neither patterns of
/// the detector and its flat fields nor the light of the beam.
std::vector<Picture> ChangesOf(std::vector<Picture> pictures) {
  for (Picture& picture : pictures) {
    TakeLogarithm(picture, kMostIntegral);
    TakeMeanOut(picture);
    Smooth(picture);
  }
  for (size_t p = 0; p < pictures.front().pixels.size(); ++p) {
    float sum = 0;
    for (const Picture& picture : pictures) sum += picture.pixels[p];
    for (Picture& picture : pictures)
      picture.pixels[p] -= sum / static_cast<float>(pictures.size());
  }
  return pictures;
}

/// The values at places by a part of a pixel further on; at the ends the outermost value goes on.
void Shift(Picture& picture, double rows, double columns) {
  const Picture in = picture;
  const auto between = [](double place, int64_t count, int64_t* first, int64_t* second) {
    place = std::clamp(place, 0.0, static_cast<double>(count - 1));
    *first = static_cast<int64_t>(place);
    *second = std::min(*first + 1, count - 1);
    return static_cast<float>(place - static_cast<double>(*first));
  };
  for (int64_t r = 0; r < in.rows; ++r) {
    int64_t above = 0, below = 0, left = 0, right = 0;
    const float down = between(static_cast<double>(r) + rows, in.rows, &above, &below);
    for (int64_t c = 0; c < in.columns; ++c) {
      const float across = between(static_cast<double>(c) + columns, in.columns, &left, &right);
      const float upper = in.row(above)[left] * (1 - across) + in.row(above)[right] * across,
                  lower = in.row(below)[left] * (1 - across) + in.row(below)[right] * across;
      picture.row(r)[c] = upper * (1 - down) + lower * down;
    }
  }
}

struct Products {
  double aa = 0, bb = 0, ab = 0, count = 0;
  double correlation() const {
    const double scale = std::sqrt(aa * bb);
    return scale > 0 && std::isfinite(scale) ? ab / scale : 0;
  }
  double difference() const { return std::sqrt(std::max(0.0, aa + bb - 2 * ab) / count); }
};

Products ProductsOf(const std::vector<Picture>& first, const std::vector<Picture>& second) {
  Products of;
  for (size_t i = 0; i < first.size(); ++i) {
    for (size_t p = 0; p < first[i].pixels.size(); ++p) {
      const auto a = static_cast<double>(first[i].pixels[p]),
                 b = static_cast<double>(second[i].pixels[p]);
      of.aa += a * a;
      of.bb += b * b;
      of.ab += a * b;
      of.count += 1;
    }
  }
  return of;
}

/// Compares what two tiles show.
class OverlapCheck {
 public:
  OverlapCheck(const std::vector<std::shared_ptr<ProjectionInput>>& tiles,
               const std::vector<TilePlace>& places, int64_t projections, bool divide)
      : tiles_(tiles), places_(places), divide_(divide) {
    const storage::ProjectionInfo& info = tiles.front()->info();
    frames_ = EvenlySpaced(info.projections, std::min(projections, info.projections / 2));
    if (frames_.empty()) frames_ = EvenlySpaced(info.projections, 1);
    count_ = frames_.size();
    if (count_ < kLeastProjections) return;
    const std::vector<int64_t> neighbours = NeighboursOf(info, frames_);
    frames_.insert(frames_.end(), neighbours.begin(), neighbours.end());
  }

  absl::StatusOr<Agreement> Compare(const TilePair& pair) const {
    const TilePart part = pair.Middle();
    OCTAVO_ASSIGN_OR_RETURN(Halves first, Read(pair.first, part));
    OCTAVO_ASSIGN_OR_RETURN(Halves second, Read(pair.second, pair.OfSecond(part)));
    Agreement agreement;
    agreement.ratio = RatioOf(first.pictures, second.pictures);
    if (first.neighbours.empty()) return agreement;
    for (Halves* half : {&first, &second}) {
      half->pictures = ChangesOf(std::move(half->pictures));
      half->neighbours = ChangesOf(std::move(half->neighbours));
    }
    agreement.neighbours = std::min(ProductsOf(first.pictures, first.neighbours).correlation(),
                                    ProductsOf(second.pictures, second.neighbours).correlation());
    const TilePlace &a = places_[pair.first], &b = places_[pair.second];
    const double rows = static_cast<double>(pair.row) - (b.first_row - a.first_row),
                 columns = static_cast<double>(pair.column) - (b.first_column - a.first_column);
    for (Picture& picture : second.pictures) Shift(picture, rows, columns);
    const Products together = ProductsOf(first.pictures, second.pictures);
    agreement.correlation = together.correlation();
    agreement.difference = together.difference();
    // Projections have much of their structure in common, so they do not count in full.
    agreement.deviation =
        1 /
        std::sqrt(std::max(1.0, static_cast<double>(part.rows * part.columns) *
                                        std::sqrt(static_cast<double>(count_)) / kSmoothedPixels -
                                    3));
    return agreement;
  }

 private:
  struct Halves {
    std::vector<Picture> pictures, neighbours;
  };
  absl::StatusOr<Halves> Read(size_t tile, const TilePart& part) const {
    Halves halves;
    OCTAVO_ASSIGN_OR_RETURN(halves.pictures,
                            TransmissionsOf(*tiles_[tile], part, frames_, divide_));
    const auto half = halves.pictures.begin() + static_cast<std::ptrdiff_t>(count_);
    halves.neighbours.assign(std::make_move_iterator(half),
                             std::make_move_iterator(halves.pictures.end()));
    halves.pictures.resize(count_);
    return halves;
  }

  const std::vector<std::shared_ptr<ProjectionInput>>& tiles_;
  const std::vector<TilePlace>& places_;
  const bool divide_;
  std::vector<int64_t> frames_;  // those that are compared, and a neighbour of each
  size_t count_ = 0;             // of those that are compared
};

/// Some of the pairs, evenly spaced, if there are many.
std::vector<TilePair> CheckedPairs(const std::vector<TilePlace>& places, size_t* all) {
  std::vector<TilePair> pairs = PairsOf(places, kLeastShared);
  std::erase_if(pairs,
                [](const TilePair& pair) { return pair.rows * pair.columns < kLeastPixels; });
  *all = pairs.size();
  std::vector<TilePair> some;
  const size_t count = std::min(pairs.size(), kMostPairs);
  for (size_t i = 0; i < count; ++i) some.push_back(pairs[i * pairs.size() / count]);
  return some;
}

std::string DiffersText(const TilePair& pair, const Agreement& agreement,
                        const std::vector<TilePlace>& places) {
  const TilePlace &a = places[pair.first], &b = places[pair.second];
  return absl::StrFormat(
      "Tiles %d and %d of the mosaic do not show the same where they overlap (%d rows, %d columns; "
      "tile %d lies %g columns and %g rows from tile %d): correlation %.2f, and %.2f between "
      "neighbouring projections of one tile. Look whether the tiles are in the order of their "
      "positions, whether tiles[].first_column and first_row (--tile-columns, --tile-rows) are in "
      "pixels, and whether each file is the right one; positions that are wrong by up to N pixels "
      "are found with search (--tile-search N).",
      pair.first, pair.second, pair.rows, pair.columns, pair.second,
      b.first_column - a.first_column, b.first_row - a.first_row, pair.first,
      *agreement.correlation, agreement.neighbours);
}

std::string OtherLightText(const TilePair& pair, double ratio) {
  const bool brighter = ratio > 1;
  return absl::StrFormat(
      "Tile %d of the mosaic has %.2f times the transmission of tile %d where they overlap: the "
      "flat fields of one were taken with another exposure, beam or dark field, and the joined "
      "projections have a step there. Give each tile the flat and dark fields of its own exposure.",
      brighter ? pair.second : pair.first, brighter ? ratio : 1 / ratio,
      brighter ? pair.first : pair.second);
}

}  // namespace

OverlapFindings CheckOverlaps(const std::vector<std::shared_ptr<ProjectionInput>>& tiles,
                              const std::vector<TilePlace>& places, bool divide) {
  OverlapFindings out;
  size_t all = 0;
  const std::vector<TilePair> pairs = CheckedPairs(places, &all);
  if (pairs.size() < all)
    out.log.push_back(
        absl::StrFormat("%d of %d overlaps of tiles are compared", pairs.size(), all));
  const OverlapCheck check(tiles, places,
                           pairs.size() > kManyPairs ? kFewProjections : kProjections, divide);
  std::vector<absl::StatusOr<Agreement>> found(pairs.size(),
                                               absl::UnknownError("it was not compared"));
  const absl::Status unread = ForPairs(pairs.size(), [&](size_t index) {
    found[index] = check.Compare(pairs[index]);
    return absl::OkStatus();
  });
  if (!unread.ok()) out.log.push_back(absl::StrCat("overlaps of tiles: ", unread.message()));
  for (size_t i = 0; i < pairs.size(); ++i) {
    const TilePair& pair = pairs[i];
    const std::string overlap =
        absl::StrFormat("overlap of tiles %d and %d, %d x %d pixels: ", pair.first, pair.second,
                        pair.rows, pair.columns);
    if (!found[i].ok()) {
      out.log.push_back(absl::StrCat(overlap, "not compared: ", found[i].status().message()));
      continue;
    }
    const Agreement& agreement = *found[i];
    std::string said;
    if (agreement.correlation.has_value())
      said = absl::StrFormat("correlation %.3f (%.3f of neighbouring projections), difference %.3f",
                             *agreement.correlation, agreement.neighbours, agreement.difference);
    if (agreement.ratio.has_value())
      absl::StrAppendFormat(&said, "%stransmission of tile %d %.3f times that of tile %d",
                            said.empty() ? "" : ", ", pair.second, *agreement.ratio, pair.first);
    if (!said.empty()) out.log.push_back(absl::StrCat(overlap, said));
    if (agreement.differs()) {
      out.warnings.push_back(DiffersText(pair, agreement, places));
    } else if (agreement.other_light()) {
      out.warnings.push_back(OtherLightText(pair, *agreement.ratio));
    }
  }
  if (out.warnings.size() > kMostWarnings) {
    const size_t more = out.warnings.size() - kMostWarnings;
    out.warnings.resize(kMostWarnings);
    out.warnings.push_back(absl::StrFormat(
        "%d more overlaps of the mosaic's tiles differ as well; the job's log tells all.", more));
  }
  return out;
}

}  // namespace octavo::tomography
