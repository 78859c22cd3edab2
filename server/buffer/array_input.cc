#include "server/buffer/array_input.h"

#include <cstring>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/model/buffer_types.h"

namespace octavo::buffer {
namespace {

constexpr int64_t kPiece = 4 << 20;

}  // namespace

absl::StatusOr<std::shared_ptr<const ArrayInput>> ArrayInput::Open(BufferStore& buffers,
                                                                   std::string field,
                                                                   std::string name) {
  auto input = absl::WrapUnique(new ArrayInput(buffers, std::move(field), std::move(name)));
  OCTAVO_ASSIGN_OR_RETURN(const auto all, input->OpenRead({}, {}));
  input->type_ = all->type();
  input->version_ = all->versions().front();
  return input;
}

absl::StatusOr<std::shared_ptr<const ArrayInput>> ArrayInput::OpenFloats(BufferStore& buffers,
                                                                         std::string field,
                                                                         std::string name) {
  OCTAVO_ASSIGN_OR_RETURN(auto input, Open(buffers, std::move(field), std::move(name)));
  const ArrayType& type = input->type_;
  if (type.scalar != Scalar::kF32 || type.lanes != 1 || type.rank() != 3)
    return FieldNotAllowed(input->field_, type.Text(), "f32 with three axes");
  return input;
}

absl::Status ArrayInput::Read(std::vector<int64_t> start, std::vector<int64_t> count,
                              const TakePiece& take) const {
  OCTAVO_ASSIGN_OR_RETURN(const auto reader, OpenRead(std::move(start), std::move(count)));
  const int64_t total = reader->total_bytes();
  for (int64_t at = 0; at < total;) {
    const auto piece = reader->Next(kPiece);
    if (!piece.ok()) return AtField(piece.status());
    if (piece->size == 0) {
      return AtField(
          absl::DataLossError(absl::StrCat(name_, " ended after ", at, " of ", total, " bytes")));
    }
    OCTAVO_RETURN_IF_ERROR(take(static_cast<const char*>(piece->data), piece->size));
    at += piece->size;
  }
  return absl::OkStatus();
}

absl::Status ArrayInput::ReadPlanes(int64_t first, int64_t count, void* out) const {
  return Read({first, 0, 0}, {count, type_.dims[1], type_.dims[2]},
              [to = static_cast<char*>(out)](const char* data, int64_t bytes) mutable {
                std::memcpy(to, data, static_cast<size_t>(bytes));
                to += bytes;
                return absl::OkStatus();
              });
}

absl::StatusOr<std::shared_ptr<BufferReader>> ArrayInput::OpenRead(
    std::vector<int64_t> start, std::vector<int64_t> count) const {
  model::BufferReadSpec spec;
  spec.name = name_;
  spec.start = std::move(start);
  spec.count = std::move(count);
  spec.if_version = version_;
  auto reader = buffers_.OpenRead(spec, model::Caller{});
  if (!reader.ok()) return AtField(reader.status());
  return reader;
}

absl::Status ArrayInput::AtField(const absl::Status& status) const {
  ErrorInfo info = InfoOf(status);
  info.field = field_;
  const std::string text =
      info.reason == Reason::kVersion
          ? absl::StrCat("was written while a job needed its earlier contents: ", status.message())
          : std::string(status.message());
  return WithInfo(absl::Status(status.code(), absl::StrCat(field_, ": ", text)), info);
}

}  // namespace octavo::buffer
