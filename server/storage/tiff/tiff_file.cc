#include "server/storage/tiff/tiff_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/file_errors.h"

namespace octavo::storage {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr uint64_t kMostTags = 4096, kMostText = 64 << 20;
constexpr int64_t kMostPages = 1 << 22, kMostExtent = int64_t{1} << 31;

/// Bytes of a value of this type; 0 for types that do not exist.
uint64_t TypeBytes(uint16_t type) {
  switch (type) {
    case 1:
    case 2:
    case 6:
    case 7: return 1;  // byte, ASCII, signed byte, undefined
    case 3:
    case 8: return 2;  // short
    case 4:
    case 9:
    case 11:
    case 13: return 4;  // long, float, IFD
    case 5:
    case 10:
    case 12:
    case 16:
    case 17:
    case 18: return 8;  // rational, double, 64-bit
    default: return 0;
  }
}
bool IsWholeNumber(uint16_t type) {
  return type == 1 || type == 3 || type == 4 || type == 13 || type == 16 || type == 18;
}

struct TagName {
  uint16_t tag;
  const char* name;
};
constexpr TagName kTags[] = {
    {254, "NewSubfileType"},  {256, "ImageWidth"},       {257, "ImageLength"},
    {258, "BitsPerSample"},   {259, "Compression"},      {262, "PhotometricInterpretation"},
    {266, "FillOrder"},       {270, "ImageDescription"}, {273, "StripOffsets"},
    {274, "Orientation"},     {277, "SamplesPerPixel"},  {278, "RowsPerStrip"},
    {279, "StripByteCounts"}, {282, "XResolution"},      {283, "YResolution"},
    {296, "ResolutionUnit"},  {317, "Predictor"},        {322, "TileWidth"},
    {323, "TileLength"},      {324, "TileOffsets"},      {325, "TileByteCounts"},
    {330, "SubIFDs"},         {339, "SampleFormat"},     {347, "JPEGTables"}};

std::string NameOfTag(uint16_t tag) {
  for (const TagName& one : kTags) {
    if (one.tag == tag) return one.name;
  }
  return absl::StrCat("tag ", tag);
}

}  // namespace

std::string PageName(const TiffPage& page) { return absl::StrCat("page ", page.index + 1); }

int64_t TiffPage::BlockRows(int64_t down) const {
  return tiled ? block_height : std::min(block_height, height - down * block_height);
}

uint64_t TiffFile::Parse(const char* at, size_t bytes) const {
  char word[8] = {};
  std::memcpy(word, at, bytes);
  if (big_endian_) std::reverse(word, word + bytes);
  uint64_t value = 0;
  std::memcpy(&value, word, 8);
  return value;
}

absl::StatusOr<std::shared_ptr<const TiffFile>> TiffFile::Open(ByteSource& bytes) {
  std::shared_ptr<TiffFile> file(new TiffFile(bytes));
  uint64_t next = 0;
  OCTAVO_RETURN_IF_ERROR(file->ReadHead(bytes, &next));
  if (next == 0) return DamagedFile(file->name(), "the file", "has no page");
  std::map<uint64_t, uint64_t> taken;  // directories: begin, end
  for (int64_t index = 0; next != 0; ++index) {
    const std::string place = absl::StrCat("page ", index + 1);
    if (index >= kMostPages)
      return UnsupportedFile(file->name(), "the number of pages",
                             absl::StrCat("more than ", kMostPages),
                             absl::StrCat("up to ", kMostPages));
    const uint64_t begin = next;
    uint64_t end = 0;
    OCTAVO_ASSIGN_OR_RETURN(next, file->ReadDirectory(bytes, begin, index, &end));
    const auto after = taken.lower_bound(begin);
    if ((after != taken.end() && after->first < end) ||
        (after != taken.begin() && std::prev(after)->second > begin))
      return DamagedFile(file->name(), place,
                         absl::StrCat("has its directory at ", begin,
                                      ", where another page has its own: the pages go round, or "
                                      "overlap"));
    taken.emplace(begin, end);
  }
  return file;
}

absl::Status TiffFile::ReadHead(ByteSource& bytes, uint64_t* first) {
  char head[16] = {};
  if (size() < 8) return DamagedFile(name(), "the file", absl::StrCat("has ", size(), " bytes"));
  OCTAVO_RETURN_IF_ERROR(bytes.ReadAt(0, head, static_cast<size_t>(std::min<int64_t>(size(), 16))));
  big_endian_ = head[0] == 'M';
  if (head[0] != head[1] || (head[0] != 'I' && head[0] != 'M'))
    return DamagedFile(name(), "the file", "does not begin with II or MM");
  const uint64_t version = Parse(head + 2, 2);
  if (version != 42 && version != 43)
    return UnsupportedFile(name(), "the version of the TIFF", version, "42, and 43 (BigTIFF)");
  big_ = version == 43;
  if (big_ && (size() < 16 || Parse(head + 4, 2) != 8 || Parse(head + 6, 2) != 0))
    return DamagedFile(name(), "the head", "of a BigTIFF has offsets of another size than 8");
  *first = big_ ? Parse(head + 8, 8) : Parse(head + 4, 4);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> TiffFile::ReadDirectory(ByteSource& bytes, uint64_t offset, int64_t index,
                                                 uint64_t* end) {
  const uint64_t file_size = static_cast<uint64_t>(size()), count_bytes = big_ ? 8 : 2,
                 entry_bytes = big_ ? 20 : 12, next_bytes = big_ ? 8 : 4, room = big_ ? 8 : 4;
  const std::string place = absl::StrCat("page ", index + 1);
  if (offset >= file_size || file_size - offset < count_bytes)
    return DamagedFile(
        name(), place,
        absl::StrCat("has its directory at ", offset, "; the file has ", file_size, " bytes"));
  std::string text(static_cast<size_t>(std::min<uint64_t>(file_size - offset, 1024)), '\0');
  OCTAVO_RETURN_IF_ERROR(bytes.ReadAt(static_cast<int64_t>(offset), text.data(), text.size()));
  const uint64_t count = Parse(text.data(), count_bytes);
  if (count == 0 || count > kMostTags)
    return DamagedFile(name(), place,
                       absl::StrCat("has ", count, " tags; allowed 1 to ", kMostTags));
  const uint64_t length = count_bytes + count * entry_bytes + next_bytes;
  if (length > file_size - offset)
    return DamagedFile(name(), place,
                       absl::StrCat("has ", count, " tags, which the file is too short for"));
  if (length > text.size()) {
    text.resize(length);
    OCTAVO_RETURN_IF_ERROR(bytes.ReadAt(static_cast<int64_t>(offset), text.data(), text.size()));
  }
  TiffPage page{.index = index};
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t begin = count_bytes + i * entry_bytes;
    const char* const at = text.data() + begin;
    const auto tag = static_cast<uint16_t>(Parse(at, 2));
    TiffArray array{.type = static_cast<uint16_t>(Parse(at + 2, 2)),
                    .count = Parse(at + 4, big_ ? 8 : 4)};
    const uint64_t size = TypeBytes(array.type);
    if (size == 0 || array.count == 0) continue;  // types of the future: readers skip them
    const uint64_t value = big_ ? 12 : 8;
    const bool inside = array.count <= room / size;
    array.offset = inside ? offset + begin + value : Parse(at + value, big_ ? 8 : 4);
    if (array.count > file_size / size || array.offset > file_size - array.count * size) {
      const bool needed = NameOfTag(tag).compare(0, 3, "tag") != 0;
      if (!needed) continue;  // of other programs, not read
      return DamagedFile(name(), absl::StrCat(place, ", ", NameOfTag(tag)),
                         absl::StrCat("has ", array.count, " values at ", array.offset,
                                      "; the file has ", file_size, " bytes"));
    }
    OCTAVO_RETURN_IF_ERROR(SetTag(bytes, tag, array, &page));
  }
  OCTAVO_RETURN_IF_ERROR(Complete(&page));
  pages_.push_back(page);
  *end = offset + length;
  return Parse(text.data() + length - next_bytes, next_bytes);
}

absl::Status TiffFile::SetTag(ByteSource& bytes, uint16_t tag, const TiffArray& array,
                              TiffPage* page) const {
  const auto wrong = [&](const absl::AlphaNum& value, absl::string_view allowed) {
    return UnsupportedFile(name(), absl::StrCat(PageName(*page), ", ", NameOfTag(tag)), value,
                           allowed);
  };
  const auto whole = [&](auto* out, int64_t least, int64_t most) -> absl::Status {
    if (!IsWholeNumber(array.type))
      return wrong(absl::StrCat("of type ", array.type), "types of whole numbers");
    OCTAVO_ASSIGN_OR_RETURN(const uint64_t value, Value(bytes, array, 0));
    if (value < static_cast<uint64_t>(least) || value > static_cast<uint64_t>(most))
      return wrong(value, absl::StrCat(least, " to ", most));
    *out = static_cast<std::remove_pointer_t<decltype(out)>>(value);
    return absl::OkStatus();
  };
  // A list with a value for each sample, which must be alike.
  const auto each = [&](int* out) -> absl::Status {
    OCTAVO_RETURN_IF_ERROR(whole(out, 0, 65535));
    for (uint64_t i = 1; i < std::min<uint64_t>(array.count, 64); ++i) {
      OCTAVO_ASSIGN_OR_RETURN(const uint64_t value, Value(bytes, array, i));
      if (value != static_cast<uint64_t>(*out))
        return wrong(absl::StrCat(*out, " and ", value), "one value");
    }
    return absl::OkStatus();
  };
  switch (tag) {
    case 254: return whole(&page->subfile, 0, UINT32_MAX);
    case 256: return whole(&page->width, 1, kMostExtent);
    case 257: return whole(&page->height, 1, kMostExtent);
    case 258: return each(&page->bits);
    case 259: return whole(&page->compression, 0, 65535);
    case 262: return whole(&page->photometric, 0, 65535);
    case 266: return whole(&page->fill_order, 1, 2);
    case 270: page->description = array; break;
    case 273:
      if (!page->tiled) page->offsets = array;
      break;
    case 274: return whole(&page->orientation, 0, 65535);
    case 277: return whole(&page->samples, 1, 65535);
    case 278:
      if (!page->tiled) return whole(&page->block_height, 1, UINT32_MAX);
      break;
    case 279:
      if (!page->tiled) page->sizes = array;
      break;
    case 282: page->x_resolution = array; break;
    case 283: page->y_resolution = array; break;
    case 296: return whole(&page->resolution_unit, 0, 65535);
    case 317: return whole(&page->predictor, 0, 65535);
    case 322:
      if (!page->tiled) page->offsets = page->sizes = {}, page->block_height = 0;
      page->tiled = true;
      return whole(&page->block_width, 1, kMostExtent);
    case 323: return whole(&page->block_height, 1, kMostExtent);
    case 324: page->offsets = array; break;
    case 325: page->sizes = array; break;
    case 330: page->subdirectories = array; break;
    case 339: return each(&page->sample_format);
    case 347: page->jpeg_tables = array; break;
    default: break;
  }
  return absl::OkStatus();
}

absl::Status TiffFile::Complete(TiffPage* page) const {
  const auto missing = [&](uint16_t tag) {
    return DamagedFile(name(), absl::StrCat(PageName(*page), ", ", NameOfTag(tag)), "is missing");
  };
  if (page->width == 0) return missing(256);
  if (page->height == 0) return missing(257);
  if (page->tiled && page->block_height == 0) return missing(323);
  if (page->offsets.count == 0) return missing(page->tiled ? 324 : 273);
  if (!page->tiled) {
    page->block_width = page->width;
    if (page->block_height == 0 || page->block_height > page->height)
      page->block_height = page->height;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> TiffFile::Value(ByteSource& bytes, const TiffArray& array,
                                         uint64_t i) const {
  const uint64_t width = TypeBytes(array.type);
  if (!IsWholeNumber(array.type) || i >= array.count)
    return DamagedFile(name(), "a tag",
                       absl::StrCat("of type ", array.type, " has ", array.count,
                                    " values; number ", i, " is wanted"));
  char word[8];
  OCTAVO_RETURN_IF_ERROR(bytes.ReadAt(static_cast<int64_t>(array.offset + i * width), word, width));
  return Parse(word, width);
}

absl::StatusOr<std::string> TiffFile::Text(ByteSource& bytes, const TiffArray& array) const {
  if (array.count == 0) return std::string();
  if (array.count > kMostText || TypeBytes(array.type) != 1)
    return UnsupportedFile(name(), "a text of a page",
                           absl::StrCat(array.count, " values of type ", array.type, " long"),
                           absl::StrCat("up to ", kMostText, " bytes"));
  std::string text(array.count, '\0');
  OCTAVO_RETURN_IF_ERROR(
      bytes.ReadAt(static_cast<int64_t>(array.offset), text.data(), text.size()));
  if (array.type == 2) {
    while (!text.empty() && text.back() == '\0') text.pop_back();
  }
  return text;
}

absl::StatusOr<std::optional<double>> TiffFile::Number(ByteSource& bytes,
                                                       const TiffArray& array) const {
  if (array.count == 0) return std::nullopt;
  if (IsWholeNumber(array.type)) {
    OCTAVO_ASSIGN_OR_RETURN(const uint64_t value, Value(bytes, array, 0));
    return static_cast<double>(value);
  }
  if (array.type != 5) return std::nullopt;
  char words[8];
  OCTAVO_RETURN_IF_ERROR(bytes.ReadAt(static_cast<int64_t>(array.offset), words, 8));
  const uint64_t over = Parse(words, 4), under = Parse(words + 4, 4);
  if (under == 0) return std::nullopt;
  return static_cast<double>(over) / static_cast<double>(under);
}

}  // namespace octavo::storage
