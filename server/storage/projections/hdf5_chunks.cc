#include "server/storage/projections/hdf5_chunks.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::storage {
namespace {

using Id = Hdf5Id;
constexpr int64_t kMostBytes = 64 << 20;

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

std::unique_ptr<Hdf5Chunks> Hdf5Chunks::Of(const Hdf5Dataset& dataset, const StoredType& type,
                                           int rank) {
  const Id creation(H5Dget_create_plist(dataset.id()), H5Pclose);
  hsize_t extent[3];
  if (!IsUsualFormat(dataset.id(), type) || !creation ||
      H5Pget_layout(creation.get()) != H5D_CHUNKED ||
      H5Pget_chunk(creation.get(), rank, extent) != rank)
    return nullptr;
  std::unique_ptr<Hdf5Chunks> chunks(new Hdf5Chunks(dataset, type, rank));
  for (int d = 0; d < rank; ++d) {
    if (extent[d] < 1 || extent[d] > static_cast<hsize_t>(kMostBytes)) return nullptr;
    chunks->extent_[3 - rank + d] = static_cast<int64_t>(extent[d]);
    if (chunks->bytes() > kMostBytes) return nullptr;
  }
  for (int i = 0; i < H5Pget_nfilters(creation.get()); ++i) {
    unsigned flags = 0, config = 0;
    size_t values = 0;
    switch (H5Pget_filter2(creation.get(), static_cast<unsigned>(i), &flags, &values, nullptr, 0,
                           nullptr, &config)) {
      case H5Z_FILTER_DEFLATE: chunks->codecs_.push_back({.kind = ByteCodec::Kind::kZlib}); break;
      case H5Z_FILTER_SHUFFLE:
        chunks->codecs_.push_back({.kind = ByteCodec::Kind::kShuffle, .element_bytes = type.bytes});
        break;
      default: return nullptr;
    }
  }
  return chunks;
}

absl::Status Hdf5Chunks::Read(const int64_t start[3], const int64_t count[3], DType dtype,
                              char* out) const {
  ByteDecoder decoder;
  std::vector<char> raw, other;
  int64_t begin[3], end[3];
  for (int d = 0; d < 3; ++d) {
    begin[d] = start[d] / extent_[d] * extent_[d];
    end[d] = start[d] + count[d];
  }
  int64_t at[3];
  for (at[0] = begin[0]; at[0] < end[0]; at[0] += extent_[0]) {
    for (at[1] = begin[1]; at[1] < end[1]; at[1] += extent_[1]) {
      for (at[2] = begin[2]; at[2] < end[2]; at[2] += extent_[2]) {
        uint32_t skipped = 0;
        OCTAVO_RETURN_IF_ERROR(ReadRaw(at, &raw, &skipped));
        OCTAVO_RETURN_IF_ERROR(Decode(decoder, skipped, &raw, &other));
        int64_t from[3], to[3];
        for (int d = 0; d < 3; ++d) {
          from[d] = std::max(at[d], start[d]);
          to[d] = std::min(at[d] + extent_[d], end[d]);
        }
        for (int64_t f = from[0]; f < to[0]; ++f) {
          for (int64_t r = from[1]; r < to[1]; ++r) {
            const int64_t in =
                ((f - at[0]) * extent_[1] + r - at[1]) * extent_[2] + from[2] - at[2];
            const int64_t place =
                ((f - start[0]) * count[1] + r - start[1]) * count[2] + from[2] - start[2];
            LoadNumbers(raw.data() + in * type_.bytes, type_, to[2] - from[2], dtype,
                        out + place * SizeOf(dtype));
          }
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Hdf5Chunks::ReadRaw(const int64_t first[3], std::vector<char>* raw,
                                 uint32_t* skipped) const {
  hsize_t offset[3], size = 0;
  for (int d = 0; d < rank_; ++d) offset[d] = static_cast<hsize_t>(first[3 - rank_ + d]);
  // What deflate makes of noise is hardly longer than the noise.
  const int64_t most = codecs_.empty() ? bytes() : bytes() + bytes() / 8 + (1 << 16);
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
absl::Status Hdf5Chunks::Decode(ByteDecoder& decoder, uint32_t skipped, std::vector<char>* raw,
                                std::vector<char>* other) const {
  for (size_t i = codecs_.size(); i-- > 0;) {
    if ((skipped >> i & 1) != 0) continue;
    other->resize(static_cast<size_t>(bytes()));
    OCTAVO_RETURN_IF_ERROR(
        decoder.Decode(codecs_[i], {raw->data(), raw->size()}, other->data(), bytes()));
    raw->swap(*other);
  }
  if (std::ssize(*raw) == bytes()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("a chunk has ", raw->size(), " bytes; it should have ", bytes()));
}

}  // namespace octavo::storage
