#include "server/storage/tiff/tiff_block.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <turbojpeg.h>
#include <zlib.h>
#include <zstd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "gpu/base/status.h"
#include "server/storage/io/deflate.h"
#include "server/storage/io/file_errors.h"

namespace octavo::storage {
namespace {

enum Compression : int {
  kNone = 1,
  kLzw = 5,
  kJpeg = 7,
  kDeflate = 8,
  kPackBits = 32773,
  kOldDeflate = 32946,
  kZstd = 50000
};
constexpr char kCompressions[] =
    "1 (none), 5 (LZW), 7 (JPEG), 8 and 32946 (deflate), 32773 (PackBits), 50000 (zstd)";

std::string BlockName(const TiffPage& page, int64_t block) {
  return absl::StrCat(PageName(page), page.tiled ? ", tile " : ", strip ", block + 1);
}

std::string TagOf(const TiffPage& page, const char* tag) {
  return absl::StrCat(PageName(page), ", ", tag);
}

/// Whether a row of the file is a row of elements, but for byte order.
bool IsPlain(const TiffPage& page) {
  return page.compression == kNone && page.predictor == 1 && page.fill_order == 1 &&
         page.bits % 8 == 0;
}

// -- Decompression. Each decodes to exactly `out`; a block that holds more is cut off, because some
// writers fill the last strip. Returns a word for what is wrong, or nullptr.

const char* Inflate(absl::string_view packed, char* out, size_t bytes) {
  if (InflateBlock(DeflateWrap::kZlib, packed, out, bytes)) return nullptr;
  z_stream stream{};
  if (inflateInit(&stream) != Z_OK) return "cannot be decoded: no memory";
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(out);
  stream.avail_out = static_cast<uInt>(bytes);
  int result = inflate(&stream, Z_FINISH);
  if (result == Z_BUF_ERROR && stream.avail_out == 0) {
    // Full. Read on for the checksum, which follows unless the block holds more.
    Bytef more = 0;
    stream.next_out = &more;
    stream.avail_out = 1;
    const int after = inflate(&stream, Z_FINISH);
    result = after == Z_DATA_ERROR ? Z_DATA_ERROR : Z_STREAM_END;
    stream.avail_out = 0;
  }
  const bool whole = stream.avail_out == 0;
  inflateEnd(&stream);
  if (result == Z_STREAM_END) return whole ? nullptr : "holds too few bytes";
  return result == Z_DATA_ERROR ? "is damaged: no deflate data" : "holds too few bytes";
}

const char* DecodePackBits(absl::string_view packed, char* out, size_t bytes) {
  size_t at = 0, done = 0;
  while (done < bytes) {
    if (at >= packed.size()) return "holds too few bytes";
    const int code = static_cast<int8_t>(packed[at++]);
    if (code == -128) continue;
    const auto count = static_cast<size_t>(code >= 0 ? code + 1 : 1 - code);
    const size_t part = std::min(count, bytes - done);
    if (code >= 0) {
      if (packed.size() - at < part) return "holds too few bytes";
      std::memcpy(out + done, packed.data() + at, part);
      at += count;
    } else {
      if (at >= packed.size()) return "holds too few bytes";
      std::memset(out + done, packed[at++], part);
    }
    done += part;
  }
  return nullptr;
}

/// LZW as TIFF 6.0 has it: most significant bit first, codes get longer one code early.
const char* DecodeLzw(absl::string_view packed, char* out, size_t bytes) {
  constexpr uint32_t kClear = 256, kEnd = 257, kFirst = 258, kMost = 4096;
  struct Entry {
    uint16_t prefix;
    uint8_t last, first;
    uint16_t length;
  };
  if (packed.size() >= 2 && packed[0] == 0 && (packed[1] & 1) != 0)
    return "is LZW of TIFF 5, least significant bit first, which is not read";
  std::array<Entry, kMost> table{};
  for (uint32_t i = 0; i < 256; ++i)
    table[i] = {0, static_cast<uint8_t>(i), static_cast<uint8_t>(i), 1};
  table[kClear] = table[kEnd] = {};
  uint32_t next = kFirst, width = 9, before = kMost, bits = 0;
  uint64_t word = 0;
  size_t at = 0, done = 0;
  while (done < bytes) {
    while (bits < width) {
      if (at >= packed.size()) return "holds too few bytes";
      word = word << 8 | static_cast<uint8_t>(packed[at++]);
      bits += 8;
    }
    bits -= width;
    const auto code = static_cast<uint32_t>(word >> bits & ((1u << width) - 1));
    if (code == kEnd) return "holds too few bytes";
    if (code == kClear) {
      next = kFirst, width = 9, before = kMost;
      continue;
    }
    if (before == kMost) {
      if (code > 255) return "is damaged: no LZW data";
      out[done++] = static_cast<char>(code);
      before = code;
      continue;
    }
    if (code > next || (code == next && next == kMost)) return "is damaged: no LZW data";
    // The new string is the one before with the first byte of this one.
    const uint8_t first = code == next ? table[before].first : table[code].first;
    if (next < kMost)
      table[next] = {static_cast<uint16_t>(before), first, table[before].first,
                     static_cast<uint16_t>(table[before].length + 1)};
    const size_t length = table[code].length;
    uint32_t from = code;
    for (size_t i = length; i-- > 0; from = table[from].prefix) {
      if (done + i < bytes) out[done + i] = static_cast<char>(table[from].last);
    }
    done += std::min(length, bytes - done);
    before = code;
    if (next < kMost) ++next;
    if (next == (1u << width) - 1 && width < 12) ++width;
  }
  return nullptr;
}

// -- What comes after it.

template <class T>
void SumAlong(char* row, int64_t count) {
  T sum = 0;
  for (int64_t i = 0; i < count; ++i, row += sizeof(T)) {
    T value;
    std::memcpy(&value, row, sizeof(T));
    sum = static_cast<T>(sum + value);
    std::memcpy(row, &sum, sizeof(T));
  }
}

/// Predictor 2: each element is the difference from the one before.
void UndoDifferences(char* row, int64_t count, int bits) {
  switch (bits) {
    case 8: return SumAlong<uint8_t>(row, count);
    case 16: return SumAlong<uint16_t>(row, count);
    case 32: return SumAlong<uint32_t>(row, count);
    default: return SumAlong<uint64_t>(row, count);
  }
}

/// Predictor 3: bytes of equal weight lie together, the most significant first, and are
/// differences. Independent of the file's byte order. Source: Adobe Photoshop TIFF Technical Note 3
void UndoFloatDifferences(char* row, int64_t count, int64_t size, std::vector<char>* scratch) {
  SumAlong<uint8_t>(row, count * size);
  scratch->assign(row, row + count * size);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t b = 0; b < size; ++b)
      row[i * size + b] = (*scratch)[static_cast<size_t>((size - 1 - b) * count + i)];
  }
}

/// Elements of 1, 4 or 12 bits, most significant first, as whole u8 or u16.
void Unpack(const char* row, int64_t first, int64_t count, int bits, char* out) {
  const auto* in = reinterpret_cast<const uint8_t*>(row);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = (first + i) * bits;
    const uint8_t* const byte = in + at / 8;
    const int within = static_cast<int>(at % 8);
    if (bits == 12) {
      const auto value = static_cast<uint16_t>(within == 0 ? byte[0] << 4 | byte[1] >> 4
                                                           : (byte[0] & 15) << 8 | byte[1]);
      std::memcpy(out + 2 * i, &value, 2);
    } else {
      out[i] = static_cast<char>(byte[0] >> (8 - bits - within) & ((1 << bits) - 1));
    }
  }
}

void ReverseBits(char* p, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    auto b = static_cast<unsigned>(static_cast<uint8_t>(p[i]));
    b = (b & 0xF0u) >> 4 | (b & 0x0Fu) << 4;
    b = (b & 0xCCu) >> 2 | (b & 0x33u) << 2;
    b = (b & 0xAAu) >> 1 | (b & 0x55u) << 1;
    p[i] = static_cast<char>(b);
  }
}

/// The type by its tags alone. The kinds of SampleFormat: 1 unsigned, 2 signed, 3 float, 4
/// anything, 6 complex.
std::optional<ElementType> TypeOf(const TiffPage& page) {
  using Kind = ElementType::Kind;
  const int64_t bytes = page.bits / 8;
  const bool whole = page.bits % 8 == 0;
  switch (page.sample_format) {
    case 1:
    case 4:
      if (page.bits == 1 || page.bits == 4) return ElementType{Kind::kUnsigned, 1};
      if (page.bits == 12) return ElementType{Kind::kUnsigned, 2};
      return whole ? CheckedElementType(Kind::kUnsigned, bytes) : std::nullopt;
    case 2: return whole ? CheckedElementType(Kind::kSigned, bytes) : std::nullopt;
    case 3: return whole ? CheckedElementType(Kind::kFloat, bytes) : std::nullopt;
    case 6: return whole ? CheckedElementType(Kind::kComplex, bytes) : std::nullopt;
    default: return std::nullopt;
  }
}

/// Most bytes that a packed byte can become; 0 = not bounded by the code.
int64_t MostRatio(int compression) {
  switch (compression) {
    case kNone: return 1;
    case kPackBits: return 64;
    case kDeflate:
    case kOldDeflate: return 1040;
    case kLzw: return 4096;
    default: return 0;
  }
}

/// Where a block lies in the file. Checks it against the file's size.
absl::Status FindBlock(ByteSource& source, const TiffFile& file, const TiffPage& page,
                       int64_t block, int64_t raw_bytes, int64_t* offset, int64_t* bytes) {
  const auto i = static_cast<uint64_t>(block);
  OCTAVO_ASSIGN_OR_RETURN(const uint64_t at, file.Value(source, page.offsets, i));
  uint64_t count = static_cast<uint64_t>(raw_bytes);  // without sizes nothing is compressed
  if (page.sizes.count > 0) {
    OCTAVO_ASSIGN_OR_RETURN(count, file.Value(source, page.sizes, i));
  }
  const auto size = static_cast<uint64_t>(file.size());
  if (at > size || count > size - at)
    return DamagedFile(file.name(), BlockName(page, block),
                       absl::StrCat("has ", count, " bytes at ", at, "; the file has ", size));
  if (count == 0)
    return DamagedFile(
        file.name(), BlockName(page, block),
        absl::StrCat("is empty (", page.tiled ? "TileByteCounts" : "StripByteCounts", " is 0)"));
  *offset = static_cast<int64_t>(at);
  *bytes = static_cast<int64_t>(count);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ElementType> TiffElementType(const TiffFile& file, const TiffPage& page) {
  if (page.samples != 1)
    return UnsupportedFile(file.name(), TagOf(page, "SamplesPerPixel"), page.samples,
                           "1 (grey; colours and interleaved channels are not read)");
  if (page.photometric > 4)
    return UnsupportedFile(file.name(), TagOf(page, "PhotometricInterpretation"), page.photometric,
                           "0, 1 (grey), 3 (indices) and 4 (mask)");
  const auto type = TypeOf(page);
  if (!type.has_value())
    return UnsupportedFile(
        file.name(), TagOf(page, "BitsPerSample"),
        absl::StrCat(page.bits, " with SampleFormat ", page.sample_format),
        "1, 4, 8, 12, 16, 32, 64 unsigned (1), 8 to 64 signed (2), 16, 32, 64 float (3), 64 and "
        "128 complex (6)");
  const int c = page.compression;
  if (c != kNone && MostRatio(c) == 0 && c != kJpeg && c != kZstd)
    return UnknownFileCompression(file.name(), TagOf(page, "Compression"), c, kCompressions);
  if (c == kJpeg && (page.bits != 8 || page.sample_format != 1 || page.fill_order != 1))
    return UnsupportedFile(file.name(), TagOf(page, "BitsPerSample"),
                           absl::StrCat(page.bits, " with Compression 7"), "8 (JPEG)");
  const bool differences = c == kLzw || c == kDeflate || c == kOldDeflate || c == kZstd;
  const bool fits = page.predictor == 1 ||
                    (differences && page.predictor == 2 && page.sample_format != 6 &&
                     (page.bits == 8 || page.bits == 16 || page.bits == 32 || page.bits == 64)) ||
                    (differences && page.predictor == 3 && page.sample_format == 3);
  if (!fits)
    return UnsupportedFile(file.name(), TagOf(page, "Predictor"),
                           absl::StrCat(page.predictor, " with Compression ", c, ", SampleFormat ",
                                        page.sample_format, " and ", page.bits, " bits"),
                           "1; 2 for whole bytes and 3 for floats, with LZW, deflate and zstd");
  return *type;
}

absl::Status CheckTiffBlocks(const TiffFile& file, const TiffPage& page, int64_t most_block_bytes) {
  const int64_t wanted = page.blocks_across() * page.blocks_down();
  const char* const offsets = page.tiled ? "TileOffsets" : "StripOffsets";
  const char* const sizes = page.tiled ? "TileByteCounts" : "StripByteCounts";
  if (page.offsets.count < static_cast<uint64_t>(wanted))
    return DamagedFile(file.name(), TagOf(page, offsets),
                       absl::StrCat("has ", page.offsets.count, " values; the page has ", wanted,
                                    page.tiled ? " tiles" : " strips"));
  if (page.sizes.count < static_cast<uint64_t>(wanted) &&
      !(page.sizes.count == 0 && page.compression == kNone))
    return DamagedFile(file.name(), TagOf(page, sizes),
                       absl::StrCat("has ", page.sizes.count, " values; the page has ", wanted,
                                    page.tiled ? " tiles" : " strips"));
  // A row of blocks has at most 2^31 elements of 128 bits: no overflow.
  if (!IsPlain(page) && page.RowBytes() > most_block_bytes / page.block_height)
    return UnsupportedFile(
        file.name(), TagOf(page, page.tiled ? "TileLength" : "RowsPerStrip"),
        absl::StrCat(page.block_height, " of rows of ", page.RowBytes(), " bytes"),
        absl::StrCat("blocks that decode to up to ", most_block_bytes, " bytes"));
  return absl::OkStatus();
}

struct TiffScratch::Contexts {
  ZSTD_DCtx* zstd = nullptr;
  tjhandle jpeg = nullptr;
};

TiffScratch::TiffScratch() : contexts_(std::make_unique<Contexts>()) {}
TiffScratch::~TiffScratch() {
  if (contexts_->zstd != nullptr) ZSTD_freeDCtx(contexts_->zstd);
  if (contexts_->jpeg != nullptr) tjDestroy(contexts_->jpeg);
}

/// Decodes whole blocks into the scratch memory.
class TiffBlockDecoder {
 public:
  TiffBlockDecoder(ByteSource& bytes, const TiffFile& file, const TiffPage& page,
                   TiffScratch* scratch)
      : bytes_(bytes), file_(file), page_(page), scratch_(*scratch) {}

  /// Rows of elements as unpacked as their bits allow, in host byte order; page_.RowBytes() from
  /// one to the next.
  absl::StatusOr<const char*> Decode(int64_t block, int64_t rows) {
    const int64_t raw = rows * page_.RowBytes();
    int64_t offset = 0, packed = 0;
    OCTAVO_RETURN_IF_ERROR(FindBlock(bytes_, file_, page_, block, raw, &offset, &packed));
    const int64_t ratio = MostRatio(page_.compression);
    if (ratio > 0 && packed < (raw - 64) / ratio)
      return Damaged(block, absl::StrCat("has ", packed, " bytes; with Compression ",
                                         page_.compression, " they cannot hold ", raw));
    // No code makes data that much longer; a wrong size must not take the memory of a file.
    if (page_.compression != kNone && packed > 4 * raw + (1 << 20))
      return Damaged(block, absl::StrCat("has ", packed, " bytes, for ", raw, " once decoded"));
    // What lies behind the data of a plain block is not needed.
    if (page_.compression == kNone) packed = std::min(packed, raw);
    scratch_.packed_.resize(static_cast<size_t>(packed));
    OCTAVO_RETURN_IF_ERROR(bytes_.ReadAt(offset, scratch_.packed_.data(), scratch_.packed_.size()));
    if (page_.fill_order == 2) ReverseBits(scratch_.packed_.data(), scratch_.packed_.size());
    std::vector<char>* decoded = &scratch_.raw_;
    if (page_.compression == kNone) {
      if (packed < raw) return Damaged(block, Wants("holds too few bytes", raw));
      decoded = &scratch_.packed_;
    } else {
      if (page_.compression == kZstd) OCTAVO_RETURN_IF_ERROR(CheckZstd(block, raw));
      if (page_.compression != kJpeg) scratch_.raw_.resize(static_cast<size_t>(raw));
      OCTAVO_RETURN_IF_ERROR(Decompress(block, rows, raw));
    }
    Finish(rows, decoded->data());
    return decoded->data();
  }

 private:
  absl::Status Damaged(int64_t block, absl::string_view what) const {
    return DamagedFile(file_.name(), BlockName(page_, block), what);
  }
  std::string Wants(const char* what, int64_t raw) const {
    return absl::StrCat(what, "; the page asks for ", raw);
  }

  absl::Status CheckZstd(int64_t block, int64_t raw) const {
    const auto& packed = scratch_.packed_;
    const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
    if (size == ZSTD_CONTENTSIZE_ERROR) return Damaged(block, "is damaged: no zstd data");
    if (size != ZSTD_CONTENTSIZE_UNKNOWN && size != static_cast<unsigned long long>(raw))
      return Damaged(block, Wants(absl::StrCat("holds ", size, " bytes").c_str(), raw));
    return absl::OkStatus();
  }

  absl::Status Decompress(int64_t block, int64_t rows, int64_t raw) {
    const absl::string_view packed(scratch_.packed_.data(), scratch_.packed_.size());
    char* const out = scratch_.raw_.data();
    const auto bytes = static_cast<size_t>(raw);
    const char* wrong = nullptr;
    switch (page_.compression) {
      case kLzw: wrong = DecodeLzw(packed, out, bytes); break;
      case kPackBits: wrong = DecodePackBits(packed, out, bytes); break;
      case kZstd: wrong = DecodeZstd(packed, out, bytes); break;
      case kJpeg: return DecodeJpeg(block, rows);
      default: wrong = Inflate(packed, out, bytes); break;
    }
    return wrong == nullptr ? absl::OkStatus() : Damaged(block, Wants(wrong, raw));
  }

  const char* DecodeZstd(absl::string_view packed, char* out, size_t bytes) {
    ZSTD_DCtx*& context = scratch_.contexts_->zstd;
    if (context == nullptr) context = ZSTD_createDCtx();
    if (context == nullptr) return "cannot be decoded: no memory";
    const size_t done = ZSTD_decompressDCtx(context, out, bytes, packed.data(), packed.size());
    if (ZSTD_isError(done)) return "is damaged: no zstd data";
    return done == bytes ? nullptr : "holds too few bytes";
  }

  /// A block is a JPEG of its own, whose tables may be in the directory.
  absl::Status DecodeJpeg(int64_t block, int64_t rows) {
    constexpr absl::string_view kBegin("\xFF\xD8", 2), kEnd("\xFF\xD9", 2);
    absl::string_view data(scratch_.packed_.data(), scratch_.packed_.size());
    std::string joined;
    if (page_.jpeg_tables.count > 0) {
      OCTAVO_ASSIGN_OR_RETURN(std::string tables, file_.Text(bytes_, page_.jpeg_tables));
      if (tables.size() >= 4 && tables.substr(0, 2) == kBegin &&
          tables.substr(tables.size() - 2) == kEnd && data.substr(0, 2) == kBegin) {
        joined = tables.substr(0, tables.size() - 2) + std::string(data.substr(2));
        data = joined;
      }
    }
    tjhandle& jpeg = scratch_.contexts_->jpeg;
    if (jpeg == nullptr) jpeg = tjInitDecompress();
    if (jpeg == nullptr) return absl::ResourceExhaustedError("no memory for a JPEG decoder");
    const auto* in = reinterpret_cast<const unsigned char*>(data.data());
    int width = 0, height = 0, sampling = 0, colours = 0;
    if (tjDecompressHeader3(jpeg, in, data.size(), &width, &height, &sampling, &colours) != 0)
      return Damaged(block, absl::StrCat("is no JPEG: ", tjGetErrorStr2(jpeg)));
    if (width != page_.block_width || height < rows || height > page_.block_height ||
        colours != TJCS_GRAY)
      return Damaged(block,
                     absl::StrCat("is a JPEG of ", width, " x ", height,
                                  colours == TJCS_GRAY ? "" : " in colour",
                                  "; the page asks for grey of ", page_.block_width, " x ", rows));
    scratch_.raw_.resize(static_cast<size_t>(width) * static_cast<size_t>(height));
    if (tjDecompress2(jpeg, in, data.size(), reinterpret_cast<unsigned char*>(scratch_.raw_.data()),
                      width, width, height, TJPF_GRAY,
                      TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS) != 0)
      return Damaged(block, absl::StrCat("is a damaged JPEG: ", tjGetErrorStr2(jpeg)));
    return absl::OkStatus();
  }

  /// Byte order and predictor.
  void Finish(int64_t rows, char* data) {
    const int64_t row_bytes = page_.RowBytes(), count = page_.block_width;
    if (page_.predictor == 3) {
      for (int64_t row = 0; row < rows; ++row)
        UndoFloatDifferences(data + row * row_bytes, count, page_.bits / 8, &scratch_.jpeg_);
      return;
    }
    if (file_.big_endian() && page_.bits % 8 == 0) SwapBytes(*TypeOf(page_), rows * count, data);
    if (page_.predictor != 2) return;
    for (int64_t row = 0; row < rows; ++row)
      UndoDifferences(data + row * row_bytes, count, page_.bits);
  }

  ByteSource& bytes_;
  const TiffFile& file_;
  const TiffPage& page_;
  TiffScratch& scratch_;
};

absl::Status ReadPlainTiff(ByteSource& bytes, const TiffFile& file, const TiffPage& page,
                           int64_t offset, const TiffBox& box, int64_t pitch, char* out) {
  const ElementType type = *TypeOf(page);
  const int64_t row_bytes = page.width * type.bytes;
  const bool together = box.columns == page.width && pitch == box.columns;
  const int64_t rows = together ? 1 : box.rows,
                columns = together ? box.rows * box.columns : box.columns;
  for (int64_t row = 0; row < rows; ++row) {
    char* const to = out + row * pitch * type.bytes;
    OCTAVO_RETURN_IF_ERROR(
        bytes.ReadAt(offset + (box.row + row) * row_bytes + box.column * type.bytes, to,
                     static_cast<size_t>(columns * type.bytes)));
    if (file.big_endian()) SwapBytes(type, columns, to);
  }
  return absl::OkStatus();
}

absl::Status ReadTiffBlock(ByteSource& bytes, const TiffFile& file, const TiffPage& page,
                           int64_t block, const TiffBox& box, int64_t pitch, TiffScratch* scratch,
                           char* out) {
  const int64_t across = page.blocks_across(), down = block / across;
  const int64_t first_row = down * page.block_height,
                first_column = block % across * page.block_width, rows = page.BlockRows(down);
  const int64_t row_begin = std::max(box.row, first_row),
                row_end = std::min(box.row + box.rows, first_row + rows),
                column_begin = std::max(box.column, first_column),
                column_end = std::min(box.column + box.columns, first_column + page.block_width);
  if (row_begin >= row_end || column_begin >= column_end) return absl::OkStatus();
  const ElementType type = *TypeOf(page);
  char* to = out + ((row_begin - box.row) * pitch + column_begin - box.column) * type.bytes;
  if (IsPlain(page) && !page.tiled) {
    int64_t offset = 0, packed = 0;
    OCTAVO_RETURN_IF_ERROR(
        FindBlock(bytes, file, page, block, rows * page.RowBytes(), &offset, &packed));
    if (packed < rows * page.RowBytes())
      return DamagedFile(
          file.name(), BlockName(page, block),
          absl::StrCat("has ", packed, " bytes; the page asks for ", rows * page.RowBytes()));
    return ReadPlainTiff(bytes, file, page, offset,
                         {.row = row_begin - first_row,
                          .column = column_begin,
                          .rows = row_end - row_begin,
                          .columns = column_end - column_begin},
                         pitch, to);
  }
  TiffBlockDecoder decoder(bytes, file, page, scratch);
  OCTAVO_ASSIGN_OR_RETURN(const char* const decoded, decoder.Decode(block, rows));
  for (int64_t row = row_begin; row < row_end; ++row, to += pitch * type.bytes) {
    const char* const from = decoded + (row - first_row) * page.RowBytes();
    const int64_t column = column_begin - first_column, count = column_end - column_begin;
    if (page.bits % 8 != 0) {
      Unpack(from, column, count, page.bits, to);
    } else {
      std::memcpy(to, from + column * type.bytes, static_cast<size_t>(count * type.bytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace octavo::storage
