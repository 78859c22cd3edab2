#include "server/storage/projections/hdf5_chunks.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/storage/hdf5/chunk_index.h"
#include "server/storage/io/files.h"

namespace octavo::storage {
namespace {

using Id = Hdf5Id;
constexpr int64_t kMostBytes = 64 << 20, kMostOnlyBytes = 256 << 20;
// The library takes the longer to find a chunk the more there are (kMostLocated); an index has 32
// bytes for each; each has a bit where they are checked.
constexpr int64_t kMostLocated = 1024, kMostIndexed = 1 << 22, kMostChecked = 1 << 26;
constexpr int64_t kMostAtOnce = 512 << 20;

/// A reader's share of the memory that all readers of the program decode in. It waits for those
/// who came before, who never wait while they have theirs.
class Turn {
 public:
  explicit Turn(int64_t bytes) : bytes_(bytes) {
    Shares& all = TheShares();
    MutexLock lock(all.mutex);
    const uint64_t ticket = all.tickets++;
    while (ticket != all.next || (all.taken > 0 && all.taken + bytes_ > kMostAtOnce))
      all.cv.Wait(lock);
    ++all.next;
    all.taken += bytes_;
    all.cv.NotifyAll();
  }
  ~Turn() {
    Shares& all = TheShares();
    MutexLock lock(all.mutex);
    all.taken -= bytes_;
    all.cv.NotifyAll();
  }
  Turn(const Turn&) = delete;

 private:
  struct Shares {
    Mutex mutex;
    CondVar cv;
    int64_t taken ABSL_GUARDED_BY(mutex) = 0;
    uint64_t tickets ABSL_GUARDED_BY(mutex) = 0, next ABSL_GUARDED_BY(mutex) = 0;
  };
  static Shares& TheShares() {
    static Shares& shares = *new Shares;
    return shares;
  }
  const int64_t bytes_;
};

}  // namespace

bool IsUsualFormat(hid_t dataset, const StoredType& type) {
  const Id stored(H5Dget_type(dataset), H5Tclose);
  const auto is_one_of = [&](std::initializer_list<hid_t> usual) {
    return std::any_of(usual.begin(), usual.end(),
                       [&](hid_t one) { return H5Tequal(stored.get(), one) > 0; });
  };
  switch (type.kind) {
    case StoredType::Kind::kUnsigned:
      return is_one_of({H5T_STD_U8LE, H5T_STD_U8BE, H5T_STD_U16LE, H5T_STD_U16BE, H5T_STD_U32LE,
                        H5T_STD_U32BE, H5T_STD_U64LE, H5T_STD_U64BE});
    case StoredType::Kind::kSigned:
      return is_one_of({H5T_STD_I8LE, H5T_STD_I8BE, H5T_STD_I16LE, H5T_STD_I16BE, H5T_STD_I32LE,
                        H5T_STD_I32BE, H5T_STD_I64LE, H5T_STD_I64BE});
    case StoredType::Kind::kFloat:
      return is_one_of({H5T_IEEE_F32LE, H5T_IEEE_F32BE, H5T_IEEE_F64LE, H5T_IEEE_F64BE});
  }
  return false;
}

/// Looks whether chunks can be decoded here. With the library's lock held.
class Hdf5Chunks::Finder {
 public:
  explicit Finder(Hdf5Chunks& chunks) : chunks_(chunks) {}

  void Look(hid_t creation) {
    for (int i = 0; i < H5Pget_nfilters(creation); ++i) Add(creation, static_cast<unsigned>(i));
    if (!IsUsualFormat(chunks_.dataset_.id(), chunks_.type_))
      Refuse("holds numbers of an unusual format",
             "whole numbers of 8 to 64 bits and IEEE floats of 32 and 64 bits");
    unsigned options = 0;
    if (H5Pget_chunk_opts(creation, &options) < 0 ||
        (options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) != 0)
      Refuse("leaves the chunks at its edges as they are", "chunks that are all filtered");
    SetExtent(creation);
    if (wrong_.empty()) CountChunks();
    if (wrong_.empty() && chunks_.filters_.empty()) Locate();
  }
  /// Damage that was found; OK = none.
  const absl::Status& damage() const { return damage_; }

  /// The filter that the library lacks: "bitshuffle (filter 32008)"; "" = none.
  const std::string& own() const { return own_; }
  /// What first stood in the way, and what does not; "" = nothing.
  const std::string& wrong() const { return wrong_; }
  const std::string& allowed() const { return allowed_; }

 private:
  void Refuse(std::string wrong, std::string allowed) {
    if (!wrong_.empty()) return;
    wrong_ = std::move(wrong);
    allowed_ = std::move(allowed);
  }

  void Own(const char* name, H5Z_filter_t filter) {
    own_ = absl::StrCat(name, " (filter ", filter, ")");
    chunks_.only_way_ = true;
  }

  void Add(hid_t creation, unsigned i) {
    unsigned flags = 0, config = 0, values[16] = {};
    size_t count = std::size(values);
    const H5Z_filter_t filter =
        H5Pget_filter2(creation, i, &flags, &count, values, 0, nullptr, &config);
    // What it is given has another length for each chunk.
    if (compressions_ > 0)
      Refuse(absl::StrCat("passes filter ", filter, " behind a compression"),
             "a compression as the last filter");
    switch (filter) {
      case H5Z_FILTER_DEFLATE:
        ++compressions_;
        chunks_.filters_.emplace_back(ByteCodec{.kind = ByteCodec::Kind::kZlib, .lax = true});
        break;
      case H5Z_FILTER_SHUFFLE:
        if (count < 1 || values[0] != static_cast<unsigned>(chunks_.type_.bytes))
          Refuse("shuffles elements of another size", absl::StrCat(chunks_.type_.bytes, " bytes"));
        chunks_.filters_.emplace_back(
            ByteCodec{.kind = ByteCodec::Kind::kShuffle, .element_bytes = chunks_.type_.bytes});
        break;
      case kHdf5Lz4:
        ++compressions_;
        Own("LZ4", filter);
        chunks_.filters_.emplace_back(Hdf5Lz4{});
        break;
      case kHdf5Bitshuffle:
        Own("bitshuffle", filter);
        AddBitshuffle(values, count);
        break;
      default:
        Refuse(absl::StrCat("passes filter ", filter, " too"), "deflate and shuffle beside it");
    }
  }

  // Its parameters: two of its version, bytes of an element, elements of a block (0 = the usual
  // number), the compression inside.
  void AddBitshuffle(const unsigned* values, size_t count) {
    using Inside = Hdf5Bitshuffle::Inside;
    Hdf5Bitshuffle out{.element_bytes = chunks_.type_.bytes};
    if (count < 3) {
      return Refuse(absl::StrCat("has ", count, " parameters of the filter"), "3 to 16");
    }
    if (values[2] != static_cast<unsigned>(out.element_bytes)) {
      return Refuse(absl::StrCat("says that its elements have ", values[2], " bytes"),
                    absl::StrCat(out.element_bytes, ", as its numbers have"));
    }
    if (values[3] % 8 != 0)
      return Refuse(absl::StrCat("has blocks of ", values[3], " elements"), "multiples of 8");
    out.block_elements = values[3];
    switch (values[4]) {
      case 0: break;
      case 2: out.inside = Inside::kLz4; break;
      case 3: out.inside = Inside::kZstd; break;
      default:
        return Refuse(absl::StrCat("with the compression ", values[4], " inside"),
                      "0 (none), 2 (LZ4), 3 (zstd)");
    }
    if (out.inside != Inside::kNothing) ++compressions_;
    chunks_.filters_.emplace_back(out);
  }

  void SetExtent(hid_t creation) {
    const int64_t most = chunks_.only_way_ ? kMostOnlyBytes : kMostBytes;
    hsize_t extent[3];
    if (H5Pget_chunk(creation, chunks_.rank_, extent) != chunks_.rank_)
      return Refuse("has chunks of another rank", absl::StrCat(chunks_.rank_));
    for (int d = 0; d < chunks_.rank_; ++d) {
      const bool fits = extent[d] >= 1 && extent[d] <= static_cast<hsize_t>(most);
      if (fits) chunks_.extent_[3 - chunks_.rank_ + d] = static_cast<int64_t>(extent[d]);
      if (!fits || chunks_.bytes() > most)
        return Refuse("has larger chunks than are decoded",
                      absl::StrCat("at most ", most, " bytes"));
    }
  }

  void CountChunks() {
    const Id space(H5Dget_space(chunks_.dataset_.id()), H5Sclose);
    hsize_t shape[3] = {1, 1, 1};
    H5Sget_simple_extent_dims(space.get(), shape + 3 - chunks_.rank_, nullptr);
    double count = 1;
    for (int d = 0; d < 3; ++d) {
      const auto extent = static_cast<hsize_t>(chunks_.extent_[d]);
      chunks_.chunks_[d] = static_cast<int64_t>((shape[d] + extent - 1) / extent);
      count *= static_cast<double>(chunks_.chunks_[d]);
    }
    const int64_t most = chunks_.filters_.empty() ? kMostIndexed : kMostChecked;
    if (count > static_cast<double>(most))
      Refuse("has too many chunks", absl::StrCat("at most ", most));
  }

  // Where the chunks lie that pass no filter. The library tells the length that they should have
  // but reads the one that the file gives, whatever the room: here they have the right one, or the
  // file is damaged.
  void Locate() {
    if (!chunks_.file_) return Refuse("lies in another file, or behind other bytes", "");
    const int64_t count = chunks_.chunks_[0] * chunks_.chunks_[1] * chunks_.chunks_[2];
    const absl::StatusOr<std::vector<ChunkPlace>> index = Index(count);
    if (index.ok()) return TakeIndex(*index, count);
    if (absl::IsDataLoss(index.status())) {
      damage_ = index.status();
    } else if (count > kMostLocated) {
      Refuse("has too many chunks for the library to find",
             absl::StrCat("at most ", kMostLocated, ", or a version 1 B-tree of them"));
    } else {
      AskLibrary();
    }
  }

  absl::StatusOr<std::vector<ChunkPlace>> Index(int64_t count) {
    const hid_t id = chunks_.dataset_.id();
    const Id file(H5Iget_file_id(id), H5Fclose);
    const Id creation(file ? H5Fget_create_plist(file.get()) : -1, H5Pclose);
    size_t address = 0, length = 0;
    H5O_info_t info;
    if (!creation || H5Pget_sizes(creation.get(), &address, &length) < 0 || address != 8 ||
        length != 8 || H5Oget_info2(id, &info, H5O_INFO_BASIC) < 0 ||
        info.addr > static_cast<haddr_t>(INT64_MAX))
      return absl::UnimplementedError("no addresses of 8 bytes");
    return ReadChunkIndex(chunks_.file_.get(), static_cast<int64_t>(info.addr), chunks_.rank_,
                          count);
  }

  void TakeIndex(const std::vector<ChunkPlace>& index, int64_t count) {
    constexpr int64_t kNowhere = -1;
    chunks_.addresses_.assign(static_cast<size_t>(count), kNowhere);
    for (const ChunkPlace& place : index) {
      int64_t at[3] = {};
      bool fits = true;
      for (int d = 0; d < chunks_.rank_; ++d) {
        const int of = 3 - chunks_.rank_ + d;
        at[of] = place.offset[d] / chunks_.extent_[of];
        fits = fits && place.offset[d] >= 0 && place.offset[d] % chunks_.extent_[of] == 0 &&
               at[of] < chunks_.chunks_[of];
      }
      if (!fits) {
        damage_ = absl::DataLossError("has a chunk where there can be none");
        return;
      }
      if (place.bytes != chunks_.bytes() || place.address < 0 ||
          place.address > INT64_MAX - place.bytes)
        return Damage(at[0], place.bytes);
      chunks_.addresses_[static_cast<size_t>(chunks_.IndexOf(at))] = place.address;
    }
    for (int64_t i = 0; i < count; ++i) {
      if (chunks_.addresses_[static_cast<size_t>(i)] == kNowhere)
        return Damage(i / (chunks_.chunks_[1] * chunks_.chunks_[2]), 0);
    }
  }

  void AskLibrary() {
    int64_t at[3];
    for (at[0] = 0; at[0] < chunks_.chunks_[0]; ++at[0]) {
      for (at[1] = 0; at[1] < chunks_.chunks_[1]; ++at[1]) {
        for (at[2] = 0; at[2] < chunks_.chunks_[2]; ++at[2]) {
          hsize_t offset[3];
          for (int d = 0; d < chunks_.rank_; ++d) {
            const int of = 3 - chunks_.rank_ + d;
            offset[d] = static_cast<hsize_t>(at[of] * chunks_.extent_[of]);
          }
          unsigned skipped = 0;
          haddr_t address = HADDR_UNDEF;
          hsize_t size = 0;
          const bool found = H5Dget_chunk_info_by_coord(chunks_.dataset_.id(), offset, &skipped,
                                                        &address, &size) >= 0;
          if (!found || address > static_cast<haddr_t>(INT64_MAX) - size ||
              size != static_cast<hsize_t>(chunks_.bytes()))
            return Damage(at[0], static_cast<int64_t>(size));
          chunks_.addresses_.push_back(static_cast<int64_t>(address));
        }
      }
    }
  }

  void Damage(int64_t chunk_of_frames, int64_t size) {
    damage_ = absl::DataLossError(absl::StrCat("has a chunk of ", size, " bytes at frame ",
                                               chunk_of_frames * chunks_.extent_[0],
                                               "; it should have ", chunks_.bytes()));
  }

  Hdf5Chunks& chunks_;
  absl::Status damage_;
  std::string own_, wrong_, allowed_;
  int compressions_ = 0;
};

absl::StatusOr<std::unique_ptr<Hdf5Chunks>> Hdf5Chunks::Of(const std::string& path,
                                                           const std::string& name,
                                                           const Hdf5Dataset& dataset,
                                                           const StoredType& type, int rank,
                                                           UniqueFd file) {
  const Id creation(H5Dget_create_plist(dataset.id()), H5Pclose);
  if (!creation || H5Pget_layout(creation.get()) != H5D_CHUNKED)
    return std::unique_ptr<Hdf5Chunks>();
  std::unique_ptr<Hdf5Chunks> chunks(new Hdf5Chunks(dataset, type, rank, std::move(file)));
  Finder finder(*chunks);
  finder.Look(creation.get());
  if (!finder.damage().ok())
    return DamagedProjections(path, name, std::string(finder.damage().message()));
  if (finder.wrong().empty()) return chunks;
  if (finder.own().empty()) {
    Log(LogLevel::kInfo, "the HDF5 library reads these chunks, one at a time",
        {{"path", path}, {"dataset", name}, {"reason", finder.wrong()}});
    return std::unique_ptr<Hdf5Chunks>();
  }
  return BadProjections(path, name,
                        absl::StrCat("is compressed with ", finder.own(), " and ", finder.wrong()),
                        absl::StrCat(finder.allowed(), " with this filter"));
}

template <class Take>
absl::Status Hdf5Chunks::ForChunks(const int64_t start[3], const int64_t count[3],
                                   const Take& take) const {
  int64_t at[3];
  for (at[0] = start[0] / extent_[0]; at[0] * extent_[0] < start[0] + count[0]; ++at[0]) {
    for (at[1] = start[1] / extent_[1]; at[1] * extent_[1] < start[1] + count[1]; ++at[1]) {
      for (at[2] = start[2] / extent_[2]; at[2] * extent_[2] < start[2] + count[2]; ++at[2])
        OCTAVO_RETURN_IF_ERROR(take(at));
    }
  }
  return absl::OkStatus();
}

absl::Status Hdf5Chunks::Read(const int64_t start[3], const int64_t count[3], DType dtype,
                              char* out) const {
  const Turn turn(memory());
  Decoders decoders;
  std::vector<char> raw, other;
  return ForChunks(start, count, [&](const int64_t at[3]) -> absl::Status {
    OCTAVO_RETURN_IF_ERROR(ReadChunk(at, decoders, &raw, &other));
    int64_t first[3], from[3], to[3];
    for (int d = 0; d < 3; ++d) {
      first[d] = at[d] * extent_[d];
      from[d] = std::max(first[d], start[d]);
      to[d] = std::min(first[d] + extent_[d], start[d] + count[d]);
    }
    for (int64_t f = from[0]; f < to[0]; ++f) {
      for (int64_t r = from[1]; r < to[1]; ++r) {
        const int64_t in =
            ((f - first[0]) * extent_[1] + r - first[1]) * extent_[2] + from[2] - first[2];
        const int64_t place =
            ((f - start[0]) * count[1] + r - start[1]) * count[2] + from[2] - start[2];
        LoadNumbers(raw.data() + in * type_.bytes, type_, to[2] - from[2], dtype,
                    out + place * SizeOf(dtype));
      }
    }
    return absl::OkStatus();
  });
}

absl::Status Hdf5Chunks::Check(const int64_t start[3], const int64_t count[3]) const {
  if (filters_.empty()) return absl::OkStatus();  // Locate has checked them
  Decoders decoders;
  std::vector<char> raw, other;
  return ForChunks(start, count, [&](const int64_t at[3]) -> absl::Status {
    const auto index = static_cast<size_t>(IndexOf(at));
    {
      MutexLock lock(mutex_);
      if (checked_.empty())
        checked_.resize(static_cast<size_t>(chunks_[0] * chunks_[1] * chunks_[2]));
      if (checked_[index]) return absl::OkStatus();
    }
    {
      const Turn turn(memory());
      OCTAVO_RETURN_IF_ERROR(ReadChunk(at, decoders, &raw, &other));
    }
    MutexLock lock(mutex_);
    checked_[index] = true;
    return absl::OkStatus();
  });
}

absl::Status Hdf5Chunks::ReadChunk(const int64_t at[3], Decoders& decoders, std::vector<char>* raw,
                                   std::vector<char>* other) const {
  uint32_t skipped = 0;
  OCTAVO_RETURN_IF_ERROR(ReadRaw(at, raw, &skipped));
  return Decode(decoders, skipped, raw, other);
}

absl::Status Hdf5Chunks::ReadRaw(const int64_t at[3], std::vector<char>* raw,
                                 uint32_t* skipped) const {
  if (!addresses_.empty()) {
    raw->resize(static_cast<size_t>(bytes()));
    return ReadAllAt(file_.get(), "a chunk", raw->data(), raw->size(),
                     addresses_[static_cast<size_t>(IndexOf(at))]);
  }
  hsize_t offset[3], size = 0;
  for (int d = 0; d < rank_; ++d) {
    const int of = 3 - rank_ + d;
    offset[d] = static_cast<hsize_t>(at[of] * extent_[of]);
  }
  // What deflate makes of noise is hardly longer than the noise; each block of the other filters
  // has a head, and there may be many small ones.
  const int64_t most = only_way_ ? 2 * bytes() + (1 << 16) : bytes() + bytes() / 8 + (1 << 16);
  MutexLock lock(Hdf5Mutex());
  QuietHdf5();
  if (H5Dget_chunk_storage_size(dataset_.id(), offset, &size) < 0)
    return absl::DataLossError(Hdf5Reason());
  if (size < 1 || size > static_cast<hsize_t>(most))
    return absl::DataLossError(absl::StrCat("a chunk has ", size, " bytes; allowed 1 to ", most));
  raw->resize(static_cast<size_t>(size));
  if (H5Dread_chunk(dataset_.id(), H5P_DEFAULT, offset, skipped, raw->data()) < 0)
    return absl::DataLossError(Hdf5Reason());
  return absl::OkStatus();
}

// `raw` holds the numbers afterwards. `skipped`: bit i: filter i was not used for this chunk.
absl::Status Hdf5Chunks::Decode(Decoders& decoders, uint32_t skipped, std::vector<char>* raw,
                                std::vector<char>* other) const {
  for (size_t i = filters_.size(); i-- > 0;) {
    if ((skipped >> i & 1) != 0) continue;
    other->resize(static_cast<size_t>(bytes()));
    const absl::string_view encoded(raw->data(), raw->size());
    const auto decode = [&]<class T>(const T& filter) -> absl::Status {
      if constexpr (std::is_same_v<T, ByteCodec>)
        return decoders.bytes.Decode(filter, encoded, other->data(), bytes());
      else
        return decoders.filters.Decode(filter, encoded, other->data(), bytes());
    };
    OCTAVO_RETURN_IF_ERROR(std::visit(decode, filters_[i]));
    raw->swap(*other);
  }
  if (std::ssize(*raw) == bytes()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("a chunk has ", raw->size(), " bytes; it should have ", bytes()));
}

}  // namespace octavo::storage
