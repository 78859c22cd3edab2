#include "server/tomography/projection_arrays.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/buffer/array_input.h"

namespace octavo::tomography {
namespace {

/// One of the arrays: three axes always.
struct Array {
  std::shared_ptr<const buffer::ArrayInput> contents;
  DType dtype = DType::kF32;
  int rank = 3;
  std::array<int64_t, 3> dims{};  // as stored
};

absl::StatusOr<Array> Look(buffer::BufferStore& buffers, const std::string& field,
                           const std::string& name) {
  OCTAVO_ASSIGN_OR_RETURN(
      auto contents,
      buffer::ArrayInput::Open(buffers, absl::StrCat("tomography.arrays.", field), name));
  const ArrayType type = contents->type();
  Array array{.contents = std::move(contents),
              .dtype = DType::kF32,
              .rank = type.rank(),
              .dims = {1, 1, 1}};
  switch (type.scalar) {
    case Scalar::kU8: array.dtype = DType::kU8; break;
    case Scalar::kU16: array.dtype = DType::kU16; break;
    case Scalar::kI16: array.dtype = DType::kI16; break;
    case Scalar::kF32: array.dtype = DType::kF32; break;
    default:
      return FieldNotAllowed(absl::StrCat("tomography.arrays.", field), type.Text(),
                             "are u8, u16, i16, f32");
  }
  if (type.lanes != 1 || type.rank() < 2) {
    return FieldNotAllowed(absl::StrCat("tomography.arrays.", field), type.Text(),
                           "are two or three axes, one lane");
  }
  if (array.rank == 3) {
    std::copy(type.dims.begin(), type.dims.end(), array.dims.begin());
  } else {  // one row: [angle, 1, column]
    array.dims = {type.dims[0], 1, type.dims[1]};
  }
  return array;
}

class ArraysInput final : public storage::ProjectionInput {
 public:
  ArraysInput(storage::ProjectionInfo info, std::array<Array, 3> arrays, bool sinogram_order)
      : ProjectionInput(std::move(info)),
        arrays_(std::move(arrays)),
        sinogram_order_(sinogram_order) {}

 private:
  absl::Status ReadInside(const storage::ProjectionBox& box, void* out) override {
    const Array& array = arrays_[static_cast<size_t>(box.kind)];
    const bool rows_first =
        sinogram_order_ && box.kind == storage::FrameKind::kProjection && array.rank == 3;
    std::vector<int64_t> start = {box.first_frame, box.first_row, box.first_column},
                         count = {box.frames, box.rows, box.columns};
    if (rows_first) {
      std::swap(start[0], start[1]);
      std::swap(count[0], count[1]);
    }
    if (array.rank == 2) {
      start.erase(start.begin() + 1);
      count.erase(count.begin() + 1);
    }
    const int64_t row_bytes = box.columns * SizeOf(info_.dtype);
    auto* to = static_cast<char*>(out);
    int64_t at = 0;
    return array.contents->Read(
        std::move(start), std::move(count), [&](const char* from, int64_t size) {
          for (int64_t done = 0; done < size;) {
            // Position in [frame, row, column] of the row that continues here.
            const int64_t row = at / row_bytes, within = at % row_bytes,
                          bytes = std::min(row_bytes - within, size - done);
            const int64_t placed =
                rows_first ? row % box.frames * box.rows + row / box.frames : row;
            std::memcpy(to + placed * row_bytes + within, from + done, static_cast<size_t>(bytes));
            done += bytes;
            at += bytes;
          }
          return absl::OkStatus();
        });
  }

  const std::array<Array, 3> arrays_;
  const bool sinogram_order_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<storage::ProjectionInput>> OpenProjectionArrays(
    buffer::BufferStore& buffers, const model::ProjectionArraysSpec& spec,
    const std::vector<double>& angles_rad, double pixel_um) {
  std::array<Array, 3> arrays;
  OCTAVO_ASSIGN_OR_RETURN(arrays[0], Look(buffers, "projections", spec.projections));
  auto dims = arrays[0].dims;
  if (spec.sinogram_order && arrays[0].rank == 3) std::swap(dims[0], dims[1]);
  storage::ProjectionInfo info;
  info.path = spec.projections;
  info.format = "arrays";
  info.pixel_size_um = pixel_um;
  info.dtype = arrays[0].dtype;
  info.projections = dims[0];
  info.rows = dims[1];
  info.columns = dims[2];
  const std::pair<const char*, const std::string*> fields[] = {{"flats", &spec.flats},
                                                               {"darks", &spec.darks}};
  for (size_t i = 0; i < 2; ++i) {
    const auto& [field, name] = fields[i];
    if (name->empty()) continue;
    Array& array = arrays[i + 1];
    OCTAVO_ASSIGN_OR_RETURN(array, Look(buffers, field, *name));
    if (array.dtype != info.dtype || array.dims[1] != info.rows || array.dims[2] != info.columns) {
      return InvalidField(
          absl::StrCat("tomography.arrays.", field),
          absl::StrCat("is ", Info(array.dtype).name, " [", array.dims[0], ", ", array.dims[1],
                       ", ", array.dims[2], "]; allowed ", Info(info.dtype).name, " [any, ",
                       info.rows, ", ", info.columns, "] as the projections"));
    }
    (i == 0 ? info.flats : info.darks) = array.dims[0];
  }
  if (std::ssize(angles_rad) != info.projections) {
    return InvalidField("tomography.angles_rad",
                        absl::StrCat("has ", angles_rad.size(), " values; allowed ",
                                     info.projections, ", one per projection"));
  }
  info.angles_rad = angles_rad;
  return std::make_shared<ArraysInput>(std::move(info), std::move(arrays), spec.sinogram_order);
}

}  // namespace octavo::tomography
