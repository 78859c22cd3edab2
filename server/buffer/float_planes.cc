#include "server/buffer/float_planes.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/model/buffer_types.h"

namespace octavo::buffer {
namespace {

constexpr int64_t kPiece = 4 << 20;

}  // namespace

absl::StatusOr<std::shared_ptr<BufferReader>> OpenBox(BufferStore& buffers, const std::string& name,
                                                      std::vector<int64_t> start,
                                                      std::vector<int64_t> count) {
  model::BufferReadSpec spec;
  spec.name = name;
  spec.start = std::move(start);
  spec.count = std::move(count);
  return buffers.OpenRead(spec, model::Caller{});
}

absl::StatusOr<ArrayType> TypeOf(BufferStore& buffers, const std::string& field,
                                 const std::string& name) {
  auto opened = OpenBox(buffers, name, {}, {});
  if (opened.ok()) return (*opened)->type();
  ErrorInfo info = InfoOf(opened.status());
  info.field = field;
  return WithInfo(
      absl::Status(opened.status().code(), absl::StrCat(field, ": ", opened.status().message())),
      info);
}

absl::StatusOr<std::vector<int64_t>> ShapeOfFloats(BufferStore& buffers, const std::string& field,
                                                   const std::string& name) {
  OCTAVO_ASSIGN_OR_RETURN(const ArrayType type, TypeOf(buffers, field, name));
  if (type.scalar != Scalar::kF32 || type.lanes != 1 || type.rank() != 3)
    return FieldNotAllowed(field, type.Text(), "f32 with three axes");
  return type.dims;
}

absl::Status ReadPlanes(BufferStore& buffers, const std::string& name, int64_t first, int64_t count,
                        const std::vector<int64_t>& shape, void* out) {
  OCTAVO_ASSIGN_OR_RETURN(const auto reader,
                          OpenBox(buffers, name, {first, 0, 0}, {count, shape[1], shape[2]}));
  const int64_t total = count * shape[1] * shape[2] * 4;
  for (int64_t at = 0; at < total;) {
    OCTAVO_ASSIGN_OR_RETURN(const model::Bytes piece, reader->Next(kPiece));
    if (piece.size == 0)
      return absl::DataLossError(absl::StrCat(name, ": ended after ", at, " of ", total, " bytes"));
    std::memcpy(static_cast<char*>(out) + at, piece.data, static_cast<size_t>(piece.size));
    at += piece.size;
  }
  return absl::OkStatus();
}

}  // namespace octavo::buffer
