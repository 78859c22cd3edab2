#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "server/tomography/tile_correlation.h"

// The part of a pixel by which pictures of the same thing lie to each other.
namespace octavo::tomography {

/// Pixel u of the first pictures shows what pixel u − (row, column) of the second ones does.
struct TileShift {
  double row = 0, column = 0;
};

/// Which axes of a shift are looked for; along the others it stays.
struct ShiftAxes {
  bool rows = true, columns = true;
};

/// Corrects a shift that is right to within a pixel, by least squares: the second pictures, moved
/// by a part of a pixel and times one factor, are to show what the first ones do. Against a
/// parabola through correlations at whole pixels it has no error of its own where the pictures show
/// narrow or oblique structures, and it looks at the same pixels of the first pictures all the
/// time, so that what comes in at the ends shifts nothing. All pictures of a kind are equally
/// large, and smooth enough for cubic interpolation. Nothing where fewer than `least_pixels` are
/// shared, or where it does not settle within a pixel of the whole one next to `near`. Source: B.
/// D. Lucas and T. Kanade, An iterative image registration technique with an application to stereo
/// vision, IJCAI 1981; cubic convolution: R. G. Keys, IEEE Trans. ASSP 29, 1981.
std::optional<TileShift> RefinedShift(const std::vector<Picture>& first,
                                      const std::vector<Picture>& second, const TileShift& near,
                                      const ShiftAxes& axes, double least_pixels);

}  // namespace octavo::tomography
