#include "server/storage/hdf5/checked_read.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "zlib.h"

#include "server/storage/hdf5/chunk_index.h"
#include "server/storage/io/hdf5_library.h"

namespace octavo::storage {
namespace {

using Id = Hdf5Id;

constexpr hsize_t kMostRemembered = hsize_t{1} << 26;
// An index has 32 bytes for each chunk. The library takes the longer to find a chunk the more there
// are.
constexpr int64_t kMostIndexed = 1 << 22, kMostAsked = 4096;

std::string Named(const hsize_t* at, int rank, hsize_t bytes) {
  return absl::StrCat("the chunk at (", absl::StrJoin(at, at + rank, ", "), ") has ", bytes,
                      " bytes");
}

uint32_t WordAt(const std::vector<char>& bytes, size_t at) {
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

/// Inflates a zlib stream into at most `most` bytes; what it is then is in `bytes`. False: damaged.
bool Inflate(std::vector<char>* bytes, size_t most) {
  std::vector<char> out(most);
  auto length = static_cast<uLongf>(most), from = static_cast<uLong>(bytes->size());
  if (::uncompress2(reinterpret_cast<Bytef*>(out.data()), &length,
                    reinterpret_cast<const Bytef*>(bytes->data()), &from) != Z_OK)
    return false;
  out.resize(length);
  *bytes = std::move(out);
  return true;
}

}  // namespace

Hdf5ChunkCheck::Hdf5ChunkCheck(hid_t dataset, bool remembers) : dataset_(dataset) {
  const Id creation(H5Dget_create_plist(dataset), H5Pclose), type(H5Dget_type(dataset), H5Tclose),
      space(H5Dget_space(dataset), H5Sclose);
  unsigned options = 0;
  if (!creation || !type || H5Pget_layout(creation.get()) != H5D_CHUNKED) return;
  const int rank = H5Pget_chunk(creation.get(), H5S_MAX_RANK, extent_);
  if (rank < 1 || H5Sget_simple_extent_dims(space.get(), shape_, nullptr) != rank) return;
  plain_edges_ = H5Pget_chunk_opts(creation.get(), &options) >= 0 &&
                 (options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) != 0;
  rank_ = rank;
  bytes_ = H5Tget_size(type.get());
  double count = 1;
  for (int d = 0; d < rank_; ++d) {
    bytes_ *= extent_[d];
    chunks_[d] = (shape_[d] + extent_[d] - 1) / extent_[d];
    count *= static_cast<double>(chunks_[d]);
  }
  for (int i = 0; i < H5Pget_nfilters(creation.get()); ++i) {
    Filter filter{.count = std::size(filter.values)};
    unsigned flags = 0, config = 0;
    filter.id = H5Pget_filter2(creation.get(), static_cast<unsigned>(i), &flags, &filter.count,
                               filter.values, 0, nullptr, &config);
    filter.count = std::min(filter.count, std::size(filter.values));
    filters_.push_back(filter);
  }
  if (remembers && !filters_.empty() && count <= static_cast<double>(kMostRemembered))
    sound_.resize(static_cast<size_t>(count));
}

std::string Hdf5ChunkCheck::Wrong(hid_t space) {
  const Id all(space == H5S_ALL ? H5Dget_space(dataset_) : -1, H5Sclose);
  if (space == H5S_ALL) space = all.get();
  if (rank_ < 1 || H5Sget_select_npoints(space) <= 0) return "";
  hsize_t first[H5S_MAX_RANK], last[H5S_MAX_RANK], at[H5S_MAX_RANK];
  if (H5Sget_select_bounds(space, first, last) < 0) return "";
  for (int d = 0; d < rank_; ++d) at[d] = first[d] = first[d] / extent_[d] * extent_[d];
  for (;;) {
    if (std::string wrong = WrongAt(at); !wrong.empty()) return wrong;
    int d = rank_ - 1;
    for (; d >= 0; --d) {
      at[d] += extent_[d];
      if (at[d] <= last[d]) break;
      at[d] = first[d];
    }
    if (d < 0) return "";
  }
}

std::string Hdf5ChunkCheck::WrongAt(const hsize_t* at) {
  size_t index = 0;
  for (int d = 0; d < rank_; ++d) index = index * chunks_[d] + at[d] / extent_[d];
  if (index < sound_.size() && sound_[index]) return "";
  if (filters_.empty()) return WrongLength(at, index);
  hsize_t size = 0;
  // None: the chunk was never written, and the library fills it.
  if (H5Dget_chunk_storage_size(dataset_, at, &size) < 0 || size == 0) {
    H5Eclear2(H5E_DEFAULT);
    return "";
  }
  std::string wrong = size > MostStored() ? absl::StrCat("allowed are ", MostStored()) : "";
  if (wrong.empty()) {
    raw_.resize(size);
    uint32_t skipped = 0;
    if (H5Dread_chunk(dataset_, H5P_DEFAULT, at, &skipped, raw_.data()) < 0) return "";
    bool edge = false;
    for (int d = 0; d < rank_; ++d) edge = edge || at[d] + extent_[d] > shape_[d];
    if (plain_edges_ && edge) skipped = UINT32_MAX;
    wrong = Decode(skipped);
    raw_ = {};  // chunks are large, and most are looked at once
  }
  if (!wrong.empty()) return absl::StrCat(Named(at, rank_, size), ": ", wrong);
  if (index < sound_.size()) sound_[index] = true;
  return "";
}

void Hdf5ChunkCheck::FindLengths() {
  lengths_ = Lengths::kKnown;
  H5D_chunk_index_t kind = H5D_CHUNK_IDX_BTREE;
  // All other indexes have no lengths of chunks without a filter.
  if (H5Dget_chunk_index_type(dataset_, &kind) >= 0 && kind != H5D_CHUNK_IDX_BTREE) return;
  const Id file(H5Iget_file_id(dataset_), H5Fclose);
  const Id creation(file ? H5Fget_create_plist(file.get()) : -1, H5Pclose);
  size_t address = 0, length = 0;
  hsize_t base = 0;
  void* descriptor = nullptr;
  H5O_info_t info;
  if (creation && H5Pget_sizes(creation.get(), &address, &length) >= 0 && address == 8 &&
      length == 8 && H5Pget_userblock(creation.get(), &base) >= 0 &&
      H5Fget_vfd_handle(file.get(), H5P_DEFAULT, &descriptor) >= 0 && descriptor != nullptr &&
      H5Oget_info2(dataset_, &info, H5O_INFO_BASIC) >= 0 &&
      info.addr <= static_cast<haddr_t>(INT64_MAX)) {
    const auto index =
        ReadChunkIndex(*static_cast<const int*>(descriptor), static_cast<int64_t>(info.addr), rank_,
                       kMostIndexed, static_cast<int64_t>(base));
    if (index.ok()) {
      for (const ChunkPlace& place : *index) {
        if (place.bytes == static_cast<int64_t>(bytes_)) continue;
        size_t at = 0;
        for (int d = 0; d < rank_; ++d)
          at = at * chunks_[d] + static_cast<hsize_t>(place.offset[d]) / extent_[d];
        wrong_lengths_[at] = place.bytes;
      }
      return;
    }
    if (absl::IsDataLoss(index.status())) {
      no_lengths_ = std::string(index.status().message());
      return;
    }
  }
  lengths_ = Lengths::kAsked;
  double count = 1;
  for (int d = 0; d < rank_; ++d) count *= static_cast<double>(chunks_[d]);
  if (count > static_cast<double>(kMostAsked)) {
    no_lengths_ =
        absl::StrCat("the file has ", count, " chunks without a filter in an index of an ",
                     "unusual form; allowed are ", kMostAsked, " (h5repack makes the usual form)");
  } else {
    sound_.resize(static_cast<size_t>(count));
  }
}

std::string Hdf5ChunkCheck::WrongLength(const hsize_t* at, size_t index) {
  if (lengths_ == Lengths::kUnknown) FindLengths();
  if (!no_lengths_.empty()) return no_lengths_;
  if (lengths_ == Lengths::kAsked) {
    unsigned skipped = 0;
    haddr_t address = HADDR_UNDEF;
    hsize_t size = 0;
    if (H5Dget_chunk_info_by_coord(dataset_, at, &skipped, &address, &size) < 0) {
      H5Eclear2(H5E_DEFAULT);  // it was never written, and the library fills it
    } else if (address != HADDR_UNDEF && size != bytes_) {
      wrong_lengths_[index] = static_cast<int64_t>(size);
    }
  }
  const auto wrong = wrong_lengths_.find(index);
  if (wrong != wrong_lengths_.end())
    return absl::StrCat(Named(at, rank_, static_cast<hsize_t>(wrong->second)), "; it should have ",
                        bytes_);
  if (index < sound_.size()) sound_[index] = true;
  return "";
}

hsize_t Hdf5ChunkCheck::MostStored() const { return 2 * bytes_ + (hsize_t{1} << 16); }

std::string Hdf5ChunkCheck::Decode(uint32_t skipped) {
  hsize_t length = raw_.size();  // of what the filters so far have left
  bool known = true;             // its bytes are those of raw_
  for (size_t i = filters_.size(); i-- > 0;) {
    if ((skipped >> i & 1) != 0) continue;
    const Filter& filter = filters_[i];
    const auto short_of = [&](const char* what, hsize_t need) {
      return length < need ? absl::StrCat(what, " needs at least ", need) : std::string();
    };
    std::string wrong;
    switch (filter.id) {
      case H5Z_FILTER_SHUFFLE: known = false; break;
      case H5Z_FILTER_FLETCHER32:
        wrong = short_of("a checksum", 5);
        length -= std::min<hsize_t>(length, 4);
        if (known) raw_.resize(length);
        break;
      case H5Z_FILTER_DEFLATE:
        if (!known) return "it is compressed twice";
        // No filter makes more of the numbers than a few bytes.
        if (!Inflate(&raw_, bytes_ + (1 << 16)))
          return "it cannot be inflated to what it should hold";
        length = raw_.size();
        break;
      case H5Z_FILTER_NBIT:
        wrong = NBit(filter, &length);
        known = false;
        break;
      case H5Z_FILTER_SCALEOFFSET:
        wrong = known ? ScaleOffset(filter, &length) : "it is packed twice";
        known = false;
        break;
      case H5Z_FILTER_SZIP:
        if (!known) return "it is compressed twice";
        if (length < 5) return "szip needs at least 5";
        length = WordAt(raw_, 0);
        known = false;
        break;
      default: return "";  // of a plug-in
    }
    if (!wrong.empty()) return wrong;
  }
  return length == bytes_ ? "" : absl::StrCat("it holds ", length, ", and should hold ", bytes_);
}

// Parameters: their number, whether nothing is packed, elements, class (1: numbers), bytes of an
// element, order, bits, offset. Source: H5Znbit.c.
std::string Hdf5ChunkCheck::NBit(const Filter& filter, hsize_t* length) const {
  if (filter.count >= 2 && filter.values[1] != 0) return "";
  if (filter.count < 8 || filter.values[3] != 1) return "n-bit packs no plain numbers in it";
  const hsize_t elements = filter.values[2], size = filter.values[4], bits = filter.values[6];
  if (size < 1 || size > 16 || bits < 1 || bits + filter.values[7] > 8 * size)
    return absl::StrCat("n-bit packs ", bits, " bits of ", size, " bytes in it");
  const hsize_t need = (elements * bits + 7) / 8;
  if (*length < need) return absl::StrCat("n-bit needs at least ", need);
  *length = elements * size;
  return "";
}

// Parameters: kind, factor, elements, class, bytes of an element, ... A chunk: bits of an element
// (4 bytes), and so on up to 21 bytes, then the elements. Source: H5Zscaleoffset.c.
std::string Hdf5ChunkCheck::ScaleOffset(const Filter& filter, hsize_t* length) const {
  constexpr hsize_t kHead = 21;
  if (filter.count < 5) return "scale-offset lacks its parameters";
  const hsize_t elements = filter.values[2], size = filter.values[4];
  if (*length < kHead || raw_.size() < kHead)
    return absl::StrCat("scale-offset needs at least ", kHead);
  const hsize_t bits = WordAt(raw_, 0);
  if (size < 1 || size > 16 || bits > 8 * size)
    return absl::StrCat("scale-offset packs ", bits, " bits of ", size, " bytes in it");
  const hsize_t need = kHead + (elements * bits + 7) / 8;
  if (*length < need) return absl::StrCat("scale-offset needs at least ", need);
  *length = elements * size;
  return "";
}

bool CheckedHdf5Read(Hdf5ChunkCheck& check, hid_t dataset, hid_t type, hid_t memory, hid_t space,
                     void* out) {
  if (const std::string wrong = check.Wrong(space); !wrong.empty()) {
    H5Eclear2(H5E_DEFAULT);
    H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_DATASET, H5E_READERROR,
             "%s", wrong.c_str());
    return false;
  }
  return H5Dread(dataset, type, memory, space, H5P_DEFAULT, out) >= 0;
}

}  // namespace octavo::storage
