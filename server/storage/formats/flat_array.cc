#include "server/storage/formats/flat_array.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "gpu/base/status.h"

namespace octavo::storage {
namespace {

/// Runs at least this long are read one by one; shorter ones with the gaps between them.
constexpr int64_t kLongRun = 32 << 10;

/// The axes of a box in the stream's order, neighbours that are contiguous in stream and output
/// alike merged into one.
struct Line {
  int64_t extent, start, count;
  int64_t out_stride;  // elements
};

std::vector<Line> LinesOf(const FlatLayout& layout, const base::ArrayBox& box) {
  const size_t rank = layout.shape.size();
  std::vector<int64_t> strides(rank, 1);
  for (size_t d = rank; d-- > 1;) strides[d - 1] = strides[d] * box.count[d];
  std::vector<Line> lines;
  for (const int axis : layout.file_order) {
    const auto d = static_cast<size_t>(axis);
    const Line line{layout.shape[d], box.start[d], box.count[d], strides[d]};
    // The axis is whole, and the one before it steps over exactly it.
    if (!lines.empty() && line.count == line.extent &&
        lines.back().out_stride == line.count * line.out_stride) {
      Line& before = lines.back();
      before.extent *= line.extent;
      before.start *= line.extent;
      before.count *= line.count;
      before.out_stride = line.out_stride;
    } else {
      lines.push_back(line);
    }
  }
  return lines;
}

/// Places a run of elements `stride` elements apart.
template <size_t n>
void Spread(const char* in, int64_t count, int64_t stride, char* out) {
  for (int64_t i = 0; i < count; ++i, in += n, out += stride * static_cast<int64_t>(n))
    std::memcpy(out, in, n);
}

void PlaceRun(const char* in, int64_t size, int64_t count, int64_t stride, char* out) {
  if (stride == 1) {
    std::memcpy(out, in, static_cast<size_t>(count * size));
    return;
  }
  switch (size) {
    case 1: return Spread<1>(in, count, stride, out);
    case 2: return Spread<2>(in, count, stride, out);
    case 4: return Spread<4>(in, count, stride, out);
    case 8: return Spread<8>(in, count, stride, out);
    default: return Spread<16>(in, count, stride, out);
  }
}

class Reader {
 public:
  Reader(ByteSource& bytes, const FlatLayout& layout, const base::ArrayBox& box, char* out,
         const std::stop_token& stop)
      : bytes_(bytes), layout_(layout), size_(layout.type.bytes), out_(out), stop_(stop) {
    lines_ = LinesOf(layout, box);
    if (lines_.size() == 1) lines_.insert(lines_.begin(), Line{1, 0, 1, 0});
  }

  absl::Status Read() { return ReadAxis(0, 0, 0); }

 private:
  const Line& run() const { return lines_[lines_.size() - 1]; }
  const Line& row() const { return lines_[lines_.size() - 2]; }

  /// The part of the box at one place of the axes before `axis`; `element` counts in the stream.
  absl::Status ReadAxis(size_t axis, int64_t element, int64_t out) {
    const Line& line = lines_[axis];
    if (axis + 2 == lines_.size())
      return ReadRows((element * line.extent + line.start) * run().extent + run().start, out);
    for (int64_t i = 0; i < line.count; ++i) {
      OCTAVO_RETURN_IF_ERROR(
          ReadAxis(axis + 1, element * line.extent + line.start + i, out + i * line.out_stride));
    }
    return absl::OkStatus();
  }

  /// row().count runs, run().extent elements from one to the next.
  absl::Status ReadRows(int64_t first, int64_t out) {
    const int64_t pitch = run().extent, length = run().count;
    if (length * size_ >= kLongRun || length == pitch || row().count == 1) {
      for (int64_t i = 0; i < row().count; ++i)
        OCTAVO_RETURN_IF_ERROR(ReadRun(first + i * pitch, out + i * row().out_stride));
      return absl::OkStatus();
    }
    const int64_t together =
        std::clamp<int64_t>((kFlatReadBytes / size_ - length) / pitch + 1, 1, row().count);
    for (int64_t i = 0; i < row().count; i += together) {
      const int64_t runs = std::min(together, row().count - i),
                    elements = (runs - 1) * pitch + length;
      OCTAVO_RETURN_IF_ERROR(Fetch(first + i * pitch, elements));
      for (int64_t k = 0; k < runs; ++k)
        PlaceRun(piece_.data() + k * pitch * size_, size_, length, run().out_stride,
                 out_ + (out + (i + k) * row().out_stride) * size_);
    }
    return absl::OkStatus();
  }

  absl::Status ReadRun(int64_t first, int64_t out) {
    const int64_t most = kFlatReadBytes / size_;
    if (run().out_stride == 1) {
      for (int64_t done = 0; done < run().count; done += most) {
        OCTAVO_RETURN_IF_ERROR(CheckStop(stop_));
        OCTAVO_RETURN_IF_ERROR(
            bytes_.ReadAt(layout_.offset + (first + done) * size_, out_ + (out + done) * size_,
                          static_cast<size_t>(std::min(most, run().count - done) * size_)));
      }
      return absl::OkStatus();
    }
    for (int64_t done = 0; done < run().count; done += most) {
      const int64_t part = std::min(most, run().count - done);
      OCTAVO_RETURN_IF_ERROR(Fetch(first + done, part));
      PlaceRun(piece_.data(), size_, part, run().out_stride,
               out_ + (out + done * run().out_stride) * size_);
    }
    return absl::OkStatus();
  }

  absl::Status Fetch(int64_t first, int64_t elements) {
    OCTAVO_RETURN_IF_ERROR(CheckStop(stop_));
    piece_.resize(std::max(piece_.size(), static_cast<size_t>(elements * size_)));
    return bytes_.ReadAt(layout_.offset + first * size_, piece_.data(),
                         static_cast<size_t>(elements * size_));
  }

  ByteSource& bytes_;
  const FlatLayout& layout_;
  const int64_t size_;
  char* const out_;
  const std::stop_token& stop_;
  std::vector<Line> lines_;
  std::vector<char> piece_;
};

VolumeInputInfo WithOrder(VolumeInputInfo info, const ByteSource& bytes, const FlatLayout& layout) {
  info.type = layout.type;
  info.file_order = layout.file_order;
  info.chunk.assign(layout.shape.size(), 1);
  info.sequential = bytes.sequential();
  info.read_memory_bytes = kFlatReadBytes + (bytes.sequential() ? 1 << 20 : 0);
  return info;
}

}  // namespace

std::vector<int> COrder(size_t rank) {
  std::vector<int> order(rank);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<int> FortranOrder(size_t rank) {
  std::vector<int> order = COrder(rank);
  std::reverse(order.begin(), order.end());
  return order;
}

absl::Status ReadFlat(ByteSource& bytes, const FlatLayout& layout, const base::ArrayBox& box,
                      char* out, const std::stop_token& stop) {
  OCTAVO_RETURN_IF_ERROR(Reader(bytes, layout, box, out, stop).Read());
  if (layout.big_endian)
    SwapBytes(layout.type,
              std::accumulate(box.count.begin(), box.count.end(), int64_t{1}, std::multiplies<>()),
              out);
  return absl::OkStatus();
}

FlatInput::FlatInput(VolumeInputInfo info, std::shared_ptr<ByteSource> bytes, FlatLayout layout)
    : VolumeInput(WithOrder(std::move(info), *bytes, layout)),
      bytes_(std::move(bytes)),
      layout_(std::move(layout)) {}

FlatPieces::FlatPieces(std::vector<Part> parts) : parts_(std::move(parts)) {
  const FlatLayout& layout = parts_.front().layout;
  element_bytes_ = layout.type.bytes;
  big_endian_ = layout.big_endian;
  units_ = std::ssize(parts_);
}

absl::Status FlatPieces::Open(int64_t unit, std::vector<StoredPiece>* out) const {
  const Part& part = parts_[static_cast<size_t>(unit)];
  const FlatLayout& layout = part.layout;
  OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<ByteSource> bytes, part.open());
  const auto plain = bytes->plain();
  if (!plain.has_value()) return absl::InternalError("the bytes lie in no file as they are");
  StoredPiece piece;
  OCTAVO_ASSIGN_OR_RETURN(piece.file, DataFile::OfCopy(plain->fd, bytes->name()));
  const size_t rank = layout.shape.size();
  piece.stride.resize(rank);
  int64_t stride = layout.type.bytes;
  for (size_t i = rank; i-- > 0;) {
    const auto d = static_cast<size_t>(layout.file_order[i]);
    piece.stride[d] = stride;
    stride *= layout.shape[d];
  }
  piece.offset = plain->offset + layout.offset;
  for (size_t d = 0; d < rank; ++d) piece.offset += part.box.start[d] * piece.stride[d];
  piece.count.assign(part.box.count.begin(), part.box.count.end());
  piece.to.assign(rank, 0);
  piece.to[0] = part.to;
  piece.bytes = SpanBytes(piece.count, piece.stride, layout.type.bytes);
  out->push_back(std::move(piece));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PieceSource>> FlatInput::PiecesInside(
    const base::ArrayBox& box) const {
  if (!bytes_->plain().has_value()) return std::unique_ptr<PieceSource>();
  std::vector<FlatPieces::Part> parts;
  parts.push_back(
      {.open = [bytes = bytes_] { return absl::StatusOr<std::shared_ptr<ByteSource>>(bytes); },
       .layout = layout_,
       .box = box,
       .to = 0});
  return std::make_unique<FlatPieces>(std::move(parts));
}

absl::Status FlatInput::ReadInside(const base::ArrayBox& box, char* out) {
  return ReadFlat(*bytes_, layout_, box, out, stop_);
}

}  // namespace octavo::storage
