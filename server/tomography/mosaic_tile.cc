#include "server/tomography/mosaic_tile.h"

#include <algorithm>
#include <utility>

#include "gpu/base/status.h"
#include "gpu/math/prepare.h"
#include "server/base/exception_to_status.h"

namespace octavo::tomography {
namespace {

using storage::FrameKind;
using storage::ProjectionBox;

constexpr int64_t kFieldRows = 16;  // of a block
constexpr int64_t kReadBytes = 8 << 20;
constexpr int64_t kMedianBytes = 128 << 20;  // frames of a field that are in memory together

template <class F>
void Dispatch(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kU8: return f(uint8_t{});
    case DType::kU16: return f(uint16_t{});
    case DType::kI16: return f(int16_t{});
    default: return f(float{});
  }
}

}  // namespace

MosaicTile::MosaicTile(std::shared_ptr<storage::ProjectionInput> input, const TileFields& fields)
    : input_(std::move(input)),
      fields_(fields),
      divides_(fields.divide && input_->info().flats > 0),
      // Chunks of the file are read once.
      block_rows_(std::max(kFieldRows, (kFieldRows + input_->row_granularity() - 1) /
                                           input_->row_granularity() * input_->row_granularity())) {
  const auto blocks = static_cast<size_t>((info().rows + block_rows_ - 1) / block_rows_);
  MutexLock lock(mutex_);
  states_.assign(blocks, State::kMissing);
  blocks_.resize(blocks);
}

int64_t MosaicTile::FieldBytes(const storage::ProjectionInfo& info, const TileFields& fields) {
  constexpr int64_t kOfPixel = 2 * sizeof(float) + 1;
  return fields.divide && info.flats > 0 ? info.rows * info.columns * kOfPixel : 0;
}

int64_t MosaicTile::RowsOf(int64_t block) const {
  return std::min(block_rows_, info().rows - block * block_rows_);
}

absl::Status MosaicTile::Read(const ProjectionBox& box, float* out) {
  const DType dtype = info().dtype;
  if (!divides_ && dtype == DType::kF32) return input_->Read(box, out);
  std::vector<char> raw;
  const void* values = out;  // f32 is divided in place
  if (dtype != DType::kF32) {
    raw.resize(static_cast<size_t>(box.elements() * SizeOf(dtype)));
    values = raw.data();
    OCTAVO_RETURN_IF_ERROR(input_->Read(box, raw.data()));
  } else {
    OCTAVO_RETURN_IF_ERROR(input_->Read(box, out));
  }
  if (!divides_) {
    Dispatch(dtype, [&]<typename T>(T) {
      const T* from = static_cast<const T*>(values);
      for (int64_t i = 0; i < box.elements(); ++i) out[i] = static_cast<float>(from[i]);
    });
    return absl::OkStatus();
  }
  for (int64_t block = box.first_row / block_rows_; block * block_rows_ < box.first_row + box.rows;
       ++block)
    OCTAVO_RETURN_IF_ERROR(Load(block));
  for (int64_t row = 0; row < box.rows; ++row) {
    const int64_t of_tile = box.first_row + row, within = of_tile % block_rows_;
    const Block* block = nullptr;
    {
      MutexLock lock(mutex_);
      block = blocks_[static_cast<size_t>(of_tile / block_rows_)].get();
    }
    const float *dark = block->dark.data() + within * info().columns + box.first_column,
                *inverse = block->inverse.data() + within * info().columns + box.first_column;
    Dispatch(dtype, [&]<typename T>(T) {
      for (int64_t f = 0; f < box.frames; ++f) {
        const int64_t at = (f * box.rows + row) * box.columns;
        const T* from = static_cast<const T*>(values) + at;
        float* to = out + at;
        for (int64_t c = 0; c < box.columns; ++c)
          to[c] = (static_cast<float>(from[c]) - dark[c]) * inverse[c];
      }
    });
  }
  return absl::OkStatus();
}

const uint8_t* MosaicTile::Unlit(int64_t row) const {
  if (!divides_) return nullptr;
  MutexLock lock(mutex_);
  const Block* const block = blocks_[static_cast<size_t>(row / block_rows_)].get();
  const int64_t within = row % block_rows_;
  if (block == nullptr || !block->row_has_unlit[static_cast<size_t>(within)]) return nullptr;
  return block->unlit.data() + within * info().columns;
}

int64_t MosaicTile::unlit() const {
  MutexLock lock(mutex_);
  int64_t sum = 0;
  for (const auto& block : blocks_) sum += block == nullptr ? 0 : block->pixels_unlit;
  return sum;
}

// Another thread may be combining the block: it is waited for.
absl::Status MosaicTile::Load(int64_t block) {
  const auto at = static_cast<size_t>(block);
  {
    MutexLock lock(mutex_);
    while (states_[at] == State::kLoading) cv_.Wait(lock);
    if (states_[at] == State::kLoaded) return absl::OkStatus();
    states_[at] = State::kLoading;
  }
  std::unique_ptr<const Block> made;
  const absl::Status status = base::ExceptionToStatus([&]() -> absl::Status {
    OCTAVO_ASSIGN_OR_RETURN(Block combined, Combine(block));
    made = std::make_unique<const Block>(std::move(combined));
    return absl::OkStatus();
  });
  MutexLock lock(mutex_);
  states_[at] = status.ok() ? State::kLoaded : State::kMissing;
  if (status.ok()) blocks_[at] = std::move(made);
  cv_.NotifyAll();
  return status;
}

absl::StatusOr<MosaicTile::Block> MosaicTile::Combine(int64_t index) {
  const int64_t rows = RowsOf(index), columns = info().columns, first_row = index * block_rows_;
  const auto pixels = static_cast<size_t>(rows * columns);
  Block block;
  block.dark.assign(pixels, 0.0F);
  block.inverse.resize(pixels);
  if (info().darks > 0)
    OCTAVO_RETURN_IF_ERROR(
        Average(FrameKind::kDark, fields_.dark_average, first_row, rows, block.dark.data()));
  OCTAVO_RETURN_IF_ERROR(
      Average(FrameKind::kFlat, fields_.flat_average, first_row, rows, block.inverse.data()));
  block.unlit.assign(pixels, 0);
  block.row_has_unlit.assign(static_cast<size_t>(rows), false);
  for (size_t i = 0; i < pixels; ++i) {
    float light = block.inverse[i] - block.dark[i];
    if (light < fields_.floor) {  // NaN stays
      light = fields_.floor;
      block.unlit[i] = 1;
      ++block.pixels_unlit;
      block.row_has_unlit[i / static_cast<size_t>(columns)] = true;
    }
    block.inverse[i] = 1.0F / light;
  }
  return block;
}

absl::Status MosaicTile::Average(FrameKind kind, FieldAverage average, int64_t first_row,
                                 int64_t rows, float* out) {
  const int64_t frames = info().frames(kind), columns = info().columns,
                pixel = SizeOf(info().dtype);
  const bool median = average == FieldAverage::kMedian;
  std::vector<char> raw;
  const auto read = [&](int64_t frame, int64_t count, int64_t row, int64_t row_count) {
    raw.resize(static_cast<size_t>(count * row_count * columns * pixel));
    return input_->Read({.kind = kind,
                         .first_frame = frame,
                         .frames = count,
                         .first_row = row,
                         .rows = row_count,
                         .first_column = 0,
                         .columns = columns},
                        raw.data());
  };
  if (median) {  // of all frames together
    const int64_t most = std::clamp<int64_t>(kMedianBytes / (frames * columns * pixel), 1, rows);
    for (int64_t row = 0; row < rows; row += most) {
      const int64_t count = std::min(most, rows - row), of_frame = count * columns;
      OCTAVO_RETURN_IF_ERROR(read(0, frames, first_row + row, count));
      Dispatch(info().dtype, [&]<typename T>(T) {
        const T* values = reinterpret_cast<const T*>(raw.data());
        for (int64_t i = 0; i < of_frame; ++i) {
          out[row * columns + i] = math::FieldValue(frames, true, [&](int64_t frame) {
            return static_cast<float>(values[frame * of_frame + i]);
          });
        }
      });
    }
    return absl::OkStatus();
  }
  const int64_t of_frame = rows * columns,
                most = std::clamp<int64_t>(kReadBytes / (of_frame * pixel), 1, frames);
  std::vector<double> sums(static_cast<size_t>(of_frame), 0.0);
  for (int64_t frame = 0; frame < frames; frame += most) {
    const int64_t count = std::min(most, frames - frame);
    OCTAVO_RETURN_IF_ERROR(read(frame, count, first_row, rows));
    Dispatch(info().dtype, [&]<typename T>(T) {
      const T* values = reinterpret_cast<const T*>(raw.data());
      for (int64_t f = 0; f < count; ++f) {
        for (int64_t i = 0; i < of_frame; ++i)
          sums[static_cast<size_t>(i)] +=
              static_cast<double>(static_cast<float>(values[f * of_frame + i]));
      }
    });
  }
  for (int64_t i = 0; i < of_frame; ++i)
    out[i] = static_cast<float>(sums[static_cast<size_t>(i)] / static_cast<double>(frames));
  return absl::OkStatus();
}

}  // namespace octavo::tomography
