#include "server/engine/buffer_commits.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/engine/history_rows.h"
#include "server/engine/internal.h"
#include "server/security/rights.h"

namespace octavo::engine {
namespace {

constexpr int64_t kPiece = 8 << 20;  // of page-locked memory, twice
// Other clients' reads may use all page-locked memory for a while.
constexpr std::chrono::milliseconds kBetweenTries(20), kMostTries(30'000);

/// The type of the voxels, or what is wrong. Pairs of floats are complex numbers.
absl::StatusOr<DType> VoxelsOf(const std::string& name, const ArrayType& type) {
  if (type.lanes == 1 && IsDType(type.scalar)) return static_cast<DType>(type.scalar);
  if (type.lanes == 2 && type.scalar == Scalar::kF32) return DType::kC64;
  return InvalidField(
      "name", absl::StrCat("is ", name, ", which holds ", type.Text(),
                           "; allowed to commit are elements of u8, i8, u16, i16, f16, f32, f64, "
                           "c64, and two lanes of f32 (real and imaginary parts)"));
}

/// The shape with axes of extent 1 in front, the names of the axes, and the distances.
absl::Status SetAxes(const BufferCommitSpec& spec, const ArrayType& type,
                     storage::VolumeMeta* meta) {
  const auto rank = static_cast<size_t>(type.rank());
  std::string order;
  for (const std::string& axis : spec.axes) {
    const bool known = axis == "x" || axis == "y" || axis == "z";
    if (!known || order.find(axis) != std::string::npos)
      return FieldNotAllowed("axes", absl::StrCat("'", absl::StrJoin(spec.axes, "', '"), "'"),
                             "x, y and z, each once");
    order += axis;
  }
  if (order.size() != rank)
    return FieldNotAllowed(
        "axes", absl::StrCat("a list of ", order.size(), " names"),
        absl::StrCat(rank, " of x, y, z, for the dimensions of ", type.Text(), ", slowest first"));
  if (!spec.spacing_um.empty() && spec.spacing_um.size() != rank)
    return FieldNotAllowed("spacing_um", absl::StrCat("a list of ", spec.spacing_um.size()),
                           absl::StrCat("none, or ", rank, " distances, as `axes`"));
  for (const char axis : {'x', 'y', 'z'}) {
    if (order.find(axis) == std::string::npos) order.insert(0, 1, axis);
  }
  for (size_t d = 0; d < 3; ++d) {
    meta->axes[d] = std::string(1, order[d]);
    const bool added = d < 3 - rank;
    const size_t at = d + rank - 3;  // of the buffer
    meta->shape[d] = added ? 1 : type.dims[at];
    const double um = added || spec.spacing_um.empty() ? 0 : spec.spacing_um[at];
    if (um != 0)
      OCTAVO_RETURN_IF_ERROR(InRange(absl::StrCat("spacing_um[", at, "]"), um, 1e-6, 1e9));
    meta->spacing_assumed[d] = um == 0;
    meta->spacing_um[d] = um == 0 ? 1 : um;
  }
  return absl::OkStatus();
}

/// A buffer's bytes from the first to the last.
class Bytes {
 public:
  explicit Bytes(std::shared_ptr<buffer::BufferReader> reader) : reader_(std::move(reader)) {}

  absl::Status Read(int64_t bytes, void* to) {
    auto* out = static_cast<char*>(to);
    while (bytes > 0) {
      if (left_ == 0) OCTAVO_RETURN_IF_ERROR(Next());
      const int64_t part = std::min(bytes, left_);
      std::memcpy(out, static_cast<const char*>(piece_.data) + piece_.size - left_,
                  static_cast<size_t>(part));
      out += part, bytes -= part, left_ -= part;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Next() {
    piece_ = {};
    const auto last = std::chrono::steady_clock::now() + kMostTries;
    for (;;) {
      auto piece = reader_->Next(kPiece);
      if (absl::IsResourceExhausted(piece.status()) && std::chrono::steady_clock::now() < last) {
        std::this_thread::sleep_for(kBetweenTries);
        continue;
      }
      OCTAVO_RETURN_IF_ERROR(piece.status());
      piece_ = *std::move(piece);
      left_ = piece_.size;
      return left_ > 0 ? absl::OkStatus()
                       : absl::InternalError("the buffer has fewer bytes than its type says");
    }
  }

  const std::shared_ptr<buffer::BufferReader> reader_;
  model::Bytes piece_;
  int64_t left_ = 0;  // of the piece
};

}  // namespace

absl::StatusOr<std::string> BufferCommits::Commit(const BufferCommitSpec& spec,
                                                  const model::Caller& caller,
                                                  const operation::RequestKey& request) {
  OCTAVO_ASSIGN_OR_RETURN(std::string earlier, EarlierCommitOf(components_.earlier, request));
  if (!earlier.empty()) return earlier;
  OCTAVO_ASSIGN_OR_RETURN(
      const auto operation,
      components_.operations.Begin(operation::OperationKind::kCommit, spec.name, request));
  if (operation.run == nullptr) return operation.name;
  OCTAVO_ASSIGN_OR_RETURN(const model::BufferStatus buffer,
                          components_.buffers.Get(spec.name, caller));
  const uint32_t replica = spec.replica.value_or(0);
  const int device = replica < buffer.replicas.size() ? buffer.replicas[replica].device : 0;
  volume::Committer::Array array{.name = spec.name,
                                 .commit_id = operation.name.substr(operation.name.find('/') + 1),
                                 .meta = components_.annotations.OfDevice(device),
                                 .device = device};
  storage::VolumeMeta& meta = array.meta;
  OCTAVO_ASSIGN_OR_RETURN(meta.dtype, VoxelsOf(spec.name, buffer.type));
  OCTAVO_RETURN_IF_ERROR(SetAxes(spec, buffer.type, &meta));
  meta.volume_name = spec.name;
  meta.title = spec.title;
  meta.labels = buffer.labels;
  meta.value_kind = meta.dtype == DType::kC64 ? "complex" : "";
  storage::ShowWholeRange(&meta);
  meta.acquired_begin_unix_ns = meta.acquired_end_unix_ns = buffer.created.unix_ns;
  meta.acquisition = {{"source", "buffer"}, {"type", buffer.type.Text()}};
  if (!buffer.origin.empty()) meta.acquisition["origin"] = buffer.origin;

  model::CommitOptions options = spec.options;
  model::VolumeStatus fields;  // of the template
  fields.scan = spec.name.substr(spec.name.find('/') + 1);
  fields.title = spec.title;
  fields.acquired_begin = buffer.created;
  OCTAVO_ASSIGN_OR_RETURN(options.destination,
                          volume::ExpandDestination(spec.options.destination, fields));
  OCTAVO_RETURN_IF_ERROR(components_.CheckRoot(security::OwnerOf(caller.principal),
                                               options.destination, "options.destination"));
  using Which = model::BufferReadSpec::Which;
  OCTAVO_ASSIGN_OR_RETURN(auto reader, components_.buffers.OpenRead(
                                           {.name = spec.name,
                                            .which = spec.replica ? Which::kReplica : Which::kAny,
                                            .replica = replica,
                                            .if_version = spec.if_version,
                                            .lease_token = spec.lease_token,
                                            .lease_fence = spec.lease_fence,
                                            .by_server = true},
                                           caller));
  meta.acquisition["version"] = reader->versions().front();
  array.read = [bytes = std::make_shared<Bytes>(std::move(reader))](int64_t count, void* to) {
    return bytes->Read(count, to);
  };
  const auto done = [run = operation.run](const absl::StatusOr<storage::CommitOutcome>& outcome) {
    if (outcome.ok()) {
      run->Finish(absl::OkStatus(), *outcome);
    } else {
      run->Finish(outcome.status());
    }
  };
  OCTAVO_RETURN_IF_ERROR(
      components_.committer.CommitArray(std::move(array), options, operation.run->control(), done));
  operation.run->Started();
  return operation.name;
}

}  // namespace octavo::engine
