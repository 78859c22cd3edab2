#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "gpu/math/array_ops.h"
#include "gpu/math/element_value.h"
#include "gpu/math/host_device.h"
#include "gpu/mosaic/mosaic_ops.h"
#include "gpu/mosaic/pair_alignment.h"

// One voxel of stacked sections, and one of means along an axis.
namespace octavo::inline gpu {

/// Element `i` of the means; NaN if no number counts.
template <typename T>
OCTAVO_HOST_DEVICE float MeanAt(const MeanSpec& s, const void* in, int64_t i) {
  const int64_t x = i % s.columns, y = i / s.columns % s.rows, o = i / (s.columns * s.rows);
  const T* const from =
      static_cast<const T*>(in) + s.offset + o * s.outer_stride + y * s.row_stride + x;
  double sum = 0, count = 0;
  for (int64_t k = 0; k < s.depth; ++k) {
    const double v = math::ValueOf<double>(from[k * s.depth_stride]);
    if (!(v == v)) continue;
    sum += v;
    count += 1;
  }
  return static_cast<float>(sum / count);
}

/// What a section has at a voxel of the result, times its gain; NaN if nothing.
template <typename T>
OCTAVO_HOST_DEVICE double SectionAt(const StackSpec& s, const PlacedSection& section, int64_t z,
                                    int64_t y, int64_t x) {
  const double at[3] = {static_cast<double>(z - section.z + section.first),
                        static_cast<double>(y) - section.position[0],
                        static_cast<double>(x) - section.position[1]};
  if (z < section.z) return NAN;
  for (int d = 0; d < 3; ++d) {
    if (!(at[d] >= 0) || at[d] > static_cast<double>(section.extent[d] - 1)) return NAN;
  }
  TilePlace place;
  for (int d = 0; d < 3; ++d) place.extent[d] = section.extent[d];
  const TileArray array{.scalar = s.scalar,
                        .stride = {section.extent[1] * section.extent[2], section.extent[2], 1}};
  const double v = TileReader<T>(array, section.data, place).Sample(at);
  return section.gain == 1 ? v : v * section.gain;
}

/// What counts of plane k of the n planes that a section has in common with what lies there before.
OCTAVO_HOST_DEVICE inline double SectionWeight(int64_t k, int64_t n) {
  if (k >= n) return 1;
  if (n == 1) return 0;
  return 0.5 *
         (1 - cos(3.14159265358979323846 * static_cast<double>(k) / static_cast<double>(n - 1)));
}

/// What the sections from `begin` to `end` - 1 make of a voxel, one after the other; NaN if none of
/// them has it.
template <typename T>
OCTAVO_HOST_DEVICE double Composed(const StackSpec& s, const PlacedSection* sections, int64_t begin,
                                   int64_t end, int64_t z, int64_t y, int64_t x) {
  double now = NAN;
  bool valid = false;
  for (int64_t k = begin; k < end; ++k) {
    const double v = SectionAt<T>(s, sections[k], z, y, x);
    if (!(v == v)) continue;
    const bool counts = v > s.valid_above;
    if (valid && !counts) continue;
    if (!valid) {  // nothing, or no measurement: the last one's number stays
      now = v;
      valid = counts;
    } else if (s.blend == SectionBlend::kLater) {
      now = v;
    } else if (s.blend == SectionBlend::kHann) {
      now = Between(now, v, SectionWeight(z - sections[k].z, sections[k].overlap));
    }
  }
  return now;
}

/// Computes voxel `i` of the result.
template <typename T>
OCTAVO_HOST_DEVICE void StackVoxel(const StackSpec& s, const PlacedSection* sections,
                                   const SectionRange* planes, int64_t i, void* out) {
  const int64_t x = i % s.extent[2], y = i / s.extent[2] % s.extent[1],
                z = i / (s.extent[2] * s.extent[1]);
  const double v = Composed<T>(s, sections, planes[z].begin, planes[z].end, z, y, x);
  math::Store(s.out, out, i, {v == v ? v : s.gap});
}

/// The bits of what lies at voxel `i` of an overlap before a section, and of what the section has
/// there, as f32; false unless both are above 0.
template <typename T>
OCTAVO_HOST_DEVICE bool JointVoxel(const StackSpec& s, const JointDigits& d,
                                   const PlacedSection* sections, const SectionRange* planes,
                                   int64_t i, uint32_t (&bits)[2]) {
  const int64_t width = d.end[2] - d.begin[2], height = d.end[1] - d.begin[1];
  const int64_t x = d.begin[2] + i % width, y = d.begin[1] + i / width % height,
                z = d.begin[0] + i / (width * height);
  const auto moving = static_cast<float>(SectionAt<T>(s, sections[d.section], z, y, x));
  if (!(moving > 0) || !(moving - moving == 0)) return false;
  const auto before =
      static_cast<float>(Composed<T>(s, sections, planes[z].begin, d.section, z, y, x));
  if (!(before > 0) || !(before - before == 0)) return false;
  memcpy(&bits[0], &before, sizeof(float));
  memcpy(&bits[1], &moving, sizeof(float));
  return true;
}

/// Calls add(bin) for each rank whose histogram has the voxel.
template <typename Add>
OCTAVO_HOST_DEVICE void CountDigits(const JointDigits& d, const uint32_t (&bits)[2],
                                    const Add& add) {
  for (int rank = 0; rank < JointDigits::kRanks; ++rank) {
    const uint32_t of = bits[rank / 2];
    if (d.HasPrefix(of, rank)) add(rank * int64_t{JointDigits::kBins} + d.DigitOf(of));
  }
}

}  // namespace octavo::inline gpu
