#include "server/storage/formats/tiff_pages.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "server/storage/formats/single_file.h"

namespace octavo::storage {
namespace {

constexpr int64_t kStripBytes = 256 << 10, kBlockBytes = 1 << 20, kPlanes = 32;

uint16_t SampleFormat(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kU16: return 1;
    case DType::kI8:
    case DType::kI16: return 2;
    case DType::kC64: return 6;
    default: return 3;
  }
}

/// A directory of a TIFF or BigTIFF: entries in order of their tags; values that do not fit into an
/// entry follow it.
class Entries {
 public:
  explicit Entries(bool big) : big_(big) {}
  template <class T>
  void Add(uint16_t tag, uint16_t type, const std::vector<T>& values) {
    Entry entry{.tag = tag, .type = type, .count = values.size(), .value = {}};
    for (const T& value : values) Put(&entry.value, value);
    entries_.push_back(std::move(entry));
  }
  void Rational(uint16_t tag, uint32_t numerator, uint32_t denominator) {
    Add<uint32_t>(tag, 5, {numerator, denominator});
    entries_.back().count = 1;
  }
  void Short(uint16_t tag, uint16_t value) { Add<uint16_t>(tag, 3, {value}); }
  void Long(uint16_t tag, int64_t value) { Add<uint32_t>(tag, 4, {static_cast<uint32_t>(value)}); }
  /// Offsets and sizes, as wide as the file's.
  void Wide(uint16_t tag, const std::vector<uint64_t>& values) {
    if (big_) return Add(tag, 16, values);
    Add(tag, 4, std::vector<uint32_t>(values.begin(), values.end()));
  }
  void Text(uint16_t tag, const std::string& text) {
    entries_.push_back({.tag = tag, .type = 2, .count = text.size() + 1, .value = text + '\0'});
  }

  /// Its bytes at `offset`, a multiple of 8; another one follows unless `last`.
  std::string Bytes(int64_t offset, bool last) const {
    const int64_t entry_bytes = big_ ? 20 : 12;
    const size_t room = big_ ? 8 : 4;
    std::string extra, out;
    const int64_t entries_end =
                      offset + (big_ ? 8 : 2) + entry_bytes * std::ssize(entries_) + (big_ ? 8 : 4),
                  extra_at = (entries_end + 7) / 8 * 8;
    PutWide(&out, entries_.size(), /*short_form=*/true);
    for (const Entry& entry : entries_) {
      Put(&out, entry.tag);
      Put(&out, entry.type);
      PutWide(&out, entry.count);
      std::string value = entry.value;
      if (value.size() > room) {
        value.clear();
        PutWide(&value, static_cast<uint64_t>(extra_at + std::ssize(extra)));
        extra += entry.value;
        extra.append((8 - extra.size() % 8) % 8, '\0');
      }
      value.resize(room);
      out += value;
    }
    PutWide(&out, last ? 0 : static_cast<uint64_t>(extra_at + std::ssize(extra)));
    out.append(static_cast<size_t>(extra_at - entries_end), '\0');
    return out + extra;
  }

 private:
  void PutWide(std::string* out, uint64_t value, bool short_form = false) const {
    if (big_) return Put(out, value);
    if (short_form) return Put(out, static_cast<uint16_t>(value));
    Put(out, static_cast<uint32_t>(value));
  }

  struct Entry {
    uint16_t tag, type;
    size_t count;
    std::string value;
  };
  const bool big_;
  std::vector<Entry> entries_;
};

}  // namespace

TiffPages::TiffPages(const VolumeMeta& meta, const WriterOptions& options, bool big)
    : meta_(meta),
      options_(options),
      big_(big),
      order_(PlanesAcross(meta, options.tiff_plane == TiffPlane::kBscan    ? 'y'
                                : options.tiff_plane == TiffPlane::kEnFace ? 'z'
                                                                           : meta.axes[0][0])) {
  const int64_t plane_bytes = meta.shape[1] * meta.shape[2] * SizeOf(meta.dtype);
  slab_planes_ =
      std::clamp<int64_t>((order_[0] == 0 ? 8 << 20 : 32 << 20) / plane_bytes, 1, meta.shape[0]);
  strip_rows_ = order_[0] == 0
                    ? std::clamp<int64_t>(kStripBytes / (columns() * SizeOf(meta.dtype)), 1, rows())
                    : slab_planes_;
  offsets_.resize(static_cast<size_t>(count()));
  sizes_.resize(static_cast<size_t>(count()));
}

nlohmann::json TiffPages::Axes() const {
  nlohmann::json out = nlohmann::json::array();
  for (const int axis : order_) out.push_back(meta_.axes[axis]);
  return out;
}

absl::Status TiffPages::EncodeStrip(const char* data, int64_t bytes, Block* out) {
  if (!options_.compress) {
    out->bytes.append(data, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  return deflaters_.local().Append(DeflateWrap::kZlib, options_.level, data,
                                   static_cast<size_t>(bytes), &out->bytes);
}

absl::StatusOr<std::vector<TiffPages::Block>> TiffPages::Encode(int64_t planes, const char* slab) {
  const int64_t extents[3] = {planes, meta_.shape[1], meta_.shape[2]}, size = SizeOf(meta_.dtype),
                row_bytes = columns() * size;
  // If a slab has whole pages, a block is several strips of a page; else a block is one strip of
  // each of several pages.
  const bool whole = order_[0] == 0;
  const int64_t a_page = whole ? (rows() + strip_rows_ - 1) / strip_rows_ : 1,
                strips = (whole ? planes : count()) * a_page;
  const int64_t a_block =
      whole ? std::max<int64_t>(1, kBlockBytes / (strip_rows_ * row_bytes)) : kPlanes;
  std::vector<Block> blocks(static_cast<size_t>((strips + a_block - 1) / a_block));
  std::vector<absl::Status> results(blocks.size());
  const int64_t first_page = whole ? next_page_ : 0;
  tbb::parallel_for(size_t{0}, blocks.size(), [&](size_t i) {
    std::string& scratch = scratch_.local();
    const int64_t first = static_cast<int64_t>(i) * a_block,
                  last = std::min(first + a_block, strips);
    Block& out = blocks[i];
    if (!whole) {
      scratch.resize(static_cast<size_t>((last - first) * planes * row_bytes));
      CopyPlanes(slab, extents, size, order_, first, last - first, scratch.data());
    }
    for (int64_t strip = first; strip < last && results[i].ok(); ++strip) {
      const int64_t row = strip % a_page * strip_rows_,
                    count = whole ? std::min(strip_rows_, rows() - row) : planes;
      const size_t begin = out.bytes.size();
      if (whole) {
        scratch.resize(static_cast<size_t>(count * row_bytes));
        CopyRows(slab, extents, size, order_, strip / a_page * rows() + row, count, scratch.data());
      }
      results[i] = EncodeStrip(scratch.data() + (whole ? 0 : (strip - first) * planes * row_bytes),
                               count * row_bytes, &out);
      out.strips.push_back({.page = first_page + strip / a_page,
                            .bytes = static_cast<int64_t>(out.bytes.size() - begin)});
    }
  });
  for (const absl::Status& result : results) OCTAVO_RETURN_IF_ERROR(result);
  if (whole) next_page_ += planes;
  return blocks;
}

void TiffPages::Wrote(int64_t page, int64_t offset, int64_t bytes) {
  offsets_[static_cast<size_t>(page)].push_back(static_cast<uint64_t>(offset));
  sizes_[static_cast<size_t>(page)].push_back(static_cast<uint64_t>(bytes));
}

std::string TiffPages::Head(int64_t directory) const {
  std::string head = big_ ? std::string("II\x2b\0\x08\0\0\0", 8) : std::string("II\x2a\0", 4);
  if (big_) {
    Put(&head, static_cast<uint64_t>(directory));
  } else {
    Put(&head, static_cast<uint32_t>(directory));
  }
  return head;
}

std::string TiffPages::Directory(int64_t page, const std::string& description, int64_t offset,
                                 bool last) const {
  Entries out(big_);
  // Pixels per centimetre, as a fraction of 32-bit numbers. Readers may rely on the fields: an
  // unknown size is written as 1 without a unit.
  const bool known = !spacing_assumed(1) && !spacing_assumed(2);
  const auto resolution = [&](uint16_t tag, double spacing) {
    if (!known) return out.Rational(tag, 1, 1);
    const double per_cm = 1e4 / spacing,
                 scale = std::clamp(std::floor(4e9 / std::max(per_cm, 1.0)), 1.0, 1e6);
    out.Rational(tag, static_cast<uint32_t>(std::lround(std::min(per_cm * scale, 4e9))),
                 static_cast<uint32_t>(scale));
  };
  out.Long(254, 0);
  out.Long(256, columns());
  out.Long(257, rows());
  out.Short(258, static_cast<uint16_t>(8 * SizeOf(meta_.dtype)));
  out.Short(259, options_.compress ? 8 : 1);
  out.Short(262, 1);  // low is black
  if (!description.empty()) out.Text(270, description);
  out.Wide(273, offsets_[static_cast<size_t>(page)]);
  out.Short(277, 1);
  out.Long(278, strip_rows_);
  out.Wide(279, sizes_[static_cast<size_t>(page)]);
  resolution(282, spacing_um(2));
  resolution(283, spacing_um(1));
  out.Short(284, 1);
  out.Short(296, known ? 3 : 1);
  if (!meta_.software.empty()) out.Text(305, meta_.software);
  out.Short(339, SampleFormat(meta_.dtype));
  return out.Bytes(offset, last);
}

}  // namespace octavo::storage
