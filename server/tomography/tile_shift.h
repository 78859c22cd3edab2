#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "server/tomography/tile_correlation.h"

// The part of a pixel by which pictures of the same thing lie to each other.
namespace octavo::tomography {

/// Pixel u of the first pictures shows what pixel u − (row, column) of the second ones does.
/// In pixels.
struct TileShift {
  double row = 0, column = 0;
};

/// Which axes of a shift are looked for; along the others it is a whole number, and stays.
struct ShiftAxes {
  bool rows = true, columns = true;
};

/// Corrects a shift that is right to within a pixel, by least squares: the second pictures, moved
/// by a part of a pixel, times one factor and plus one value, are to show what the first ones do. A
/// parabola through correlations at whole pixels is off by a tenth of a pixel where structures are
/// narrow or oblique; this is by some thousandths, those of the interpolation. It also looks at the
/// same pixels of the first pictures all the time, so that what comes in at the ends shifts
/// nothing. In strong noise it is about as good as the parabola.
///
/// All pictures of a kind are equally large, and smooth enough for cubic interpolation. Nothing
/// where fewer than `least_pixels` are left without two pixels at each end of the second pictures,
/// along the axes that are looked for, or where it does not settle within a pixel of the whole
/// shift next to `near`.
///
/// Source: B. D. Lucas and T. Kanade, An iterative image registration technique with an application
/// to stereo vision, IJCAI 1981; cubic convolution: R. G. Keys, IEEE Trans. ASSP 29, 1981.
std::optional<TileShift> RefinedShift(const std::vector<Picture>& first,
                                      const std::vector<Picture>& second, const TileShift& near,
                                      const ShiftAxes& axes, double least_pixels);

}  // namespace octavo::tomography
