#include "server/storage/hdf5/chunk_index.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "gpu/base/status.h"
#include "server/storage/io/files.h"

namespace octavo::storage {
namespace {

constexpr int64_t kMostHeader = 1 << 20, kMostDepth = 16, kMostContinuations = 64;
constexpr uint64_t kTree = 0x45455254;  // "TREE"
constexpr uint16_t kLayout = 0x0008, kContinuation = 0x0010;

absl::Status Other(absl::string_view what) {
  return absl::UnimplementedError(absl::StrCat("the dataset has ", what));
}
absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("the index of its chunks ", what));
}

/// A little endian number of a piece of the file; what lies behind the piece counts as 0.
uint64_t Number(const std::vector<char>& bytes, size_t at, size_t size) {
  uint64_t out = 0;
  for (size_t i = std::min(at + size, bytes.size()); i-- > at;)
    out = out << 8 | static_cast<uint8_t>(bytes[i]);
  return out;
}

class Walk {
 public:
  Walk(int fd, int rank, int64_t most, int64_t base)
      : fd_(fd), rank_(static_cast<size_t>(rank)), most_(most), base_(base) {}

  absl::StatusOr<std::vector<ChunkPlace>> From(int64_t header) {
    OCTAVO_ASSIGN_OR_RETURN(const std::vector<char> head, Read(header, 16));
    if (Number(head, 0, 1) != 1) return Other("an object header of a newer version");
    std::vector<std::pair<int64_t, int64_t>> blocks = {
        {header + 16, static_cast<int64_t>(Number(head, 8, 4))}};
    for (size_t b = 0; b < blocks.size(); ++b) {
      if (blocks.size() > kMostContinuations || blocks[b].second > kMostHeader)
        return Other("a very long object header");
      OCTAVO_ASSIGN_OR_RETURN(const std::vector<char> block,
                              Read(blocks[b].first, blocks[b].second));
      for (size_t at = 0; at + 8 <= block.size();) {
        const auto type = static_cast<uint16_t>(Number(block, at, 2));
        const size_t size = Number(block, at + 2, 2), data = at + 8;
        const bool shared = (Number(block, at + 4, 1) & 2) != 0;
        if (data + size > block.size()) return Damaged("lies behind a damaged header");
        if (type == kContinuation && size >= 16)
          blocks.emplace_back(static_cast<int64_t>(Number(block, data, 8)),
                              static_cast<int64_t>(Number(block, data + 8, 8)));
        if (type == kLayout) {
          const size_t dims = rank_ + 1;
          if (shared || size < 11 + 4 * dims || Number(block, data, 1) != 3 ||
              Number(block, data + 1, 1) != 2 || Number(block, data + 2, 1) != dims)
            return Other("chunks that are indexed in another way");
          const uint64_t root = Number(block, data + 3, 8);
          if (root == UINT64_MAX) return std::move(places_);  // nothing was written
          OCTAVO_RETURN_IF_ERROR(Node(static_cast<int64_t>(root), -1));
          return std::move(places_);
        }
        at = data + size;
      }
    }
    return Other("no layout in its header");
  }

 private:
  absl::StatusOr<std::vector<char>> Read(int64_t address, int64_t size) {
    if (address < 0 || address > INT64_MAX - base_ || size < 0)
      return Damaged("has an address that is too large");
    std::vector<char> out(static_cast<size_t>(size));
    if (!ReadAllAt(fd_, "the index of chunks", out.data(), out.size(), base_ + address).ok())
      return Damaged(absl::StrCat("is cut off at byte ", address));
    return out;
  }

  // level: of the node, as its parent tells; -1 = the root.
  absl::Status Node(int64_t address, int64_t level) {
    const size_t key = 8 + 8 * (rank_ + 1);
    OCTAVO_ASSIGN_OR_RETURN(const std::vector<char> head, Read(address, 24));
    const auto own = static_cast<int64_t>(Number(head, 5, 1));
    if (Number(head, 0, 4) != kTree || Number(head, 4, 1) != 1)
      return Damaged(absl::StrCat("has no node at byte ", address));
    if (own > kMostDepth || (level >= 0 && own != level))
      return Damaged(absl::StrCat("has a node of level ", own, " at byte ", address));
    const size_t entries = Number(head, 6, 2);
    // A tree has fewer nodes than chunks. A damaged one may not make the walk endless.
    entries_ += static_cast<int64_t>(entries);
    if (entries_ > 2 * most_ + kMostDepth) return absl::OutOfRangeError("has too many entries");
    OCTAVO_ASSIGN_OR_RETURN(const std::vector<char> body,
                            Read(address + 24, static_cast<int64_t>(entries * (key + 8))));
    for (size_t i = 0; i < entries; ++i) {
      const size_t at = i * (key + 8);
      const auto child = static_cast<int64_t>(Number(body, at + key, 8));
      if (own > 0) {
        OCTAVO_RETURN_IF_ERROR(Node(child, own - 1));
        continue;
      }
      if (std::ssize(places_) >= most_) return absl::OutOfRangeError("has too many chunks");
      // One that no file has stays below 0.
      const int64_t address_in_file = child > INT64_MAX - base_ ? -1 : base_ + child;
      ChunkPlace place{.address = child < 0 ? child : address_in_file,
                       .bytes = static_cast<int64_t>(Number(body, at, 4))};
      for (size_t d = 0; d < rank_; ++d)
        place.offset[d] = static_cast<int64_t>(Number(body, at + 8 + 8 * d, 8));
      places_.push_back(place);
    }
    return absl::OkStatus();
  }

  const int fd_;
  const size_t rank_;
  const int64_t most_, base_;
  int64_t entries_ = 0;  // of the nodes that were read
  std::vector<ChunkPlace> places_;
};

}  // namespace

absl::StatusOr<std::vector<ChunkPlace>> ReadChunkIndex(int fd, int64_t header, int rank,
                                                       int64_t most, int64_t base) {
  if (rank < 1 || rank > 3) return Other(absl::StrCat(rank, " dimensions"));
  return Walk(fd, rank, most, base).From(header);
}

}  // namespace octavo::storage
