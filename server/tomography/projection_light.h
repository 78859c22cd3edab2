#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/device/dtype.h"
#include "gpu/math/raw.h"
#include "server/storage/projections/projection_input.h"
#include "server/tomography/layout.h"

namespace octavo::tomography {

/// Looks at the raw rows that become slices, while they are in host memory on their way to the
/// device: for projections without light, of which a few pixels tell, and for values far above the
/// open beam, among all, or among those of some projections of a large batch. One thread at a time.
class ProjectionLight {
 public:
  /// Of all batches of a volume, or of several volumes of one input. `layout` is used during the
  /// call.
  void Begin(const TomographyLayout& layout, const BatchRows& rows);
  /// Frames [frame, row, column] of the rows of Begin, in the order of the loader: flats, darks,
  /// projections. `first`: the first one's index.
  void Add(storage::FrameKind kind, int64_t first, int64_t frames, const char* data);
  /// Warnings, when all batches have passed.
  std::vector<std::string> Doubts() const;

 private:
  struct Light {
    double sum = 0, samples = 0, lit = 0;  // transmissions at the sampled pixels
  };
  double ValueAt(const char* row, int64_t column) const;
  void UseFields();
  void Sample(int64_t projection, const char* frame);
  void CountBright(const char* frame);
  std::string WithoutLight() const;

  // Of the batch.
  BatchRows rows_;
  DType dtype_ = DType::kF32;
  math::Packing packing_ = math::Packing::kNone;
  int64_t columns_ = 0, row_bytes_ = 0, flats_ = 0, darks_ = 0;
  int64_t every_ = 1;  // so many projections are looked at for values that are too bright
  bool looks_ = false, counts_bright_ = false, fields_known_ = false;
  std::vector<int64_t> sampled_rows_, sampled_columns_;
  std::vector<double> flat_, dark_, light_;  // of the sampled pixels; light 0: not looked at
  std::vector<float> first_flat_;            // of all pixels; empty: none
  float bright_ = 0;                         // a value above it is too bright

  // Of all batches.
  std::vector<Light> projections_;  // by their indices in the input
  int64_t bright_values_ = 0, looked_at_ = 0;
  double brightest_ = 0;  // as a transmission
  bool fields_ = false;
};

}  // namespace octavo::tomography
