#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"

#include "gpu/base/mutex.h"
#include "gpu/tomography/preprocess.h"
#include "server/storage/projections/projection_input.h"

namespace octavo::tomography {

/// How tiles are divided by their fields.
struct TileFields {
  bool divide = true;  // false: their values are transmissions as they are
  FieldAverage flat_average = FieldAverage::kMean, dark_average = FieldAverage::kMean;
  float floor = 1e-6F;  // of the open beam (PrepareConfig::denominator_floor)
};

/// A tile of a mosaic, whose projections come as transmissions: divided by its own fields, as the
/// preparation divides those of one scan. Its fields are read and combined where they are needed,
/// once. Thread-safe.
class MosaicTile {
 public:
  MosaicTile(std::shared_ptr<storage::ProjectionInput> input, const TileFields& fields);

  const storage::ProjectionInfo& info() const { return input_->info(); }
  const std::shared_ptr<storage::ProjectionInput>& input() const { return input_; }
  /// Host memory that the combined fields of all rows take.
  static int64_t FieldBytes(const storage::ProjectionInfo& info, const TileFields& fields);

  /// Reads a box of projections as transmissions [frame, row, column] to `out`.
  absl::Status Read(const storage::ProjectionBox& box, float* out);
  /// Which pixels of a row, from column 0 on, tell nothing, because the flat field is not brighter
  /// than the dark field there; null: none. The row was read.
  const uint8_t* Unlit(int64_t row) const;
  /// Such pixels among all that were read.
  int64_t unlit() const;

 private:
  /// Some rows of the combined fields.
  struct Block {
    std::vector<float> dark, inverse;  // [row, column]; of the open beam above the dark field
    std::vector<uint8_t> unlit;        // [row, column]
    std::vector<bool> row_has_unlit;
    int64_t pixels_unlit = 0;
  };
  enum class State : uint8_t { kMissing, kLoading, kLoaded };

  int64_t RowsOf(int64_t block) const;
  absl::Status Load(int64_t block);
  absl::StatusOr<Block> Combine(int64_t block);
  absl::Status Average(storage::FrameKind kind, FieldAverage average, int64_t first_row,
                       int64_t rows, float* out);

  const std::shared_ptr<storage::ProjectionInput> input_;
  const TileFields fields_;
  const bool divides_;
  const int64_t block_rows_;
  mutable Mutex mutex_;
  CondVar cv_;
  std::vector<State> states_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<const Block>> blocks_ ABSL_GUARDED_BY(mutex_);  // never change
};

}  // namespace octavo::tomography
