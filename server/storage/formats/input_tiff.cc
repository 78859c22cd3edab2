#include <algorithm>
#include <cmath>
#include <fcntl.h>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tbb/enumerable_thread_specific.h"
#include "tbb/parallel_for.h"
#include "tbb/task_arena.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/json.h"
#include "gpu/base/status.h"
#include "server/storage/formats/folder_files.h"
#include "server/storage/formats/format_inputs.h"
#include "server/storage/io/file_errors.h"
#include "server/storage/io/files.h"
#include "server/storage/io/open_beneath.h"
#include "server/storage/tiff/ome_xml.h"
#include "server/storage/tiff/tiff_block.h"
#include "server/storage/tiff/tiff_file.h"

namespace octavo::storage {
namespace {

constexpr size_t kMostFiles = 1 << 20;
constexpr char kAbout[] = "octavo.json";

/// A file with pages. A file of a folder is opened for each read, because there may be many.
struct TiffSource {
  std::shared_ptr<const TiffFile> file;
  std::shared_ptr<ByteSource> bytes;  // if it stays open
  std::shared_ptr<FolderFile> in_folder;

  absl::StatusOr<std::shared_ptr<ByteSource>> Bytes() const {
    if (bytes != nullptr) return bytes;
    return in_folder->Open();
  }
};

/// A plane of the volume: a page, or plain elements at an offset.
struct Plane {
  std::shared_ptr<const TiffSource> source;
  size_t page = 0;
  int64_t plain_offset = -1;

  const TiffPage& of() const { return source->file->pages()[page]; }
};

/// Pages along the axes before the last two, rows, columns.
class TiffInput final : public VolumeInput {
 public:
  TiffInput(VolumeInputInfo info, std::vector<Plane> planes)
      : VolumeInput(std::move(info)), planes_(std::move(planes)) {}

 private:
  absl::Status ReadInside(const base::ArrayBox& box, char* out) override {
    const size_t rank = box.count.size();
    const TiffBox part{.row = box.start[rank - 2],
                       .column = box.start[rank - 1],
                       .rows = box.count[rank - 2],
                       .columns = box.count[rank - 1]};
    const int64_t plane_bytes = part.rows * part.columns * info_.type.bytes;
    // The planes of the box, in C order of the leading axes.
    std::vector<size_t> planes{0};
    for (size_t d = 0; d + 2 < rank; ++d) {
      std::vector<size_t> deeper;
      for (const size_t before : planes) {
        for (int64_t i = 0; i < box.count[d]; ++i)
          deeper.push_back(before * static_cast<size_t>(info_.axes[d].extent) +
                           static_cast<size_t>(box.start[d] + i));
      }
      planes = std::move(deeper);
    }
    std::vector<absl::Status> results(planes.size());
    tbb::parallel_for(size_t{0}, planes.size(), [&](size_t i) {
      results[i] = CheckStop(stop_);
      if (!results[i].ok()) return;
      results[i] = ReadPlane(planes_[planes[i]], part, out + static_cast<int64_t>(i) * plane_bytes);
    });
    for (const absl::Status& result : results) OCTAVO_RETURN_IF_ERROR(result);
    return absl::OkStatus();
  }

  absl::Status ReadPlane(const Plane& plane, const TiffBox& box, char* out) {
    const TiffPage& page = plane.of();
    const TiffFile& file = *plane.source->file;
    OCTAVO_ASSIGN_OR_RETURN(const auto bytes, plane.source->Bytes());
    if (plane.plain_offset >= 0)
      return ReadPlainTiff(*bytes, file, page, plane.plain_offset, box, box.columns, out);
    const int64_t across = page.blocks_across(), first_down = box.row / page.block_height,
                  last_down = (box.row + box.rows - 1) / page.block_height,
                  first_across = box.column / page.block_width,
                  last_across = (box.column + box.columns - 1) / page.block_width,
                  wide = last_across - first_across + 1,
                  count = (last_down - first_down + 1) * wide;
    const auto read = [&](int64_t i) {
      return ReadTiffBlock(*bytes, file, page,
                           (first_down + i / wide) * across + first_across + i % wide, box,
                           box.columns, &scratch_.local(), out);
    };
    if (count == 1) return read(0);
    // In groups, so that a page of a million strips needs no list of their results.
    constexpr int64_t kTogether = 256;
    for (int64_t first = 0; first < count; first += kTogether) {
      OCTAVO_RETURN_IF_ERROR(CheckStop(stop_));
      std::vector<absl::Status> results(static_cast<size_t>(std::min(kTogether, count - first)));
      // Isolated: a thread that waits here must not begin another page, and so on.
      tbb::this_task_arena::isolate([&] {
        tbb::parallel_for(size_t{0}, results.size(),
                          [&](size_t i) { results[i] = read(first + static_cast<int64_t>(i)); });
      });
      for (const absl::Status& result : results) OCTAVO_RETURN_IF_ERROR(result);
    }
    return absl::OkStatus();
  }

  const std::vector<Plane> planes_;
  tbb::enumerable_thread_specific<TiffScratch> scratch_;
};

/// What is found while a file is opened.
struct Found {
  VolumeInputInfo info;
  std::vector<Plane> planes;  // in C order of the leading axes
};

/// Checks that a page can be read and is like the first one.
absl::Status CheckAlike(const Plane& plane, const Plane& first, const VolumeInputOptions& options) {
  const TiffPage &page = plane.of(), &like = first.of();
  const std::string& name = plane.source->file->name();
  OCTAVO_ASSIGN_OR_RETURN(const ElementType type, TiffElementType(*plane.source->file, page));
  OCTAVO_RETURN_IF_ERROR(CheckTiffBlocks(*plane.source->file, page, options.most_chunk_bytes));
  OCTAVO_ASSIGN_OR_RETURN(const ElementType wanted, TiffElementType(*first.source->file, like));
  const std::string other = absl::StrCat(first.source->file->name(), ", ", PageName(like));
  if (page.width != like.width || page.height != like.height)
    return UnsupportedFile(
        name, absl::StrCat(PageName(page), ", its extent"),
        absl::StrCat(page.width, " x ", page.height),
        absl::StrCat(like.width, " x ", like.height, ", as of ", other, ": pages have one shape"));
  if (type != wanted)
    return UnsupportedFile(name, absl::StrCat(PageName(page), ", its type"), type.Name(),
                           absl::StrCat(wanted.Name(), ", as of ", other));
  return absl::OkStatus();
}

/// Spacing along rows and columns from the resolution of a page, in units of TIFF.
absl::Status SetResolution(const Plane& plane, VolumeInputInfo* info) {
  const TiffPage& page = plane.of();
  if (page.resolution_unit != 2 && page.resolution_unit != 3) return absl::OkStatus();
  const size_t rank = info->axes.size();
  OCTAVO_ASSIGN_OR_RETURN(const auto bytes, plane.source->Bytes());
  for (const bool x : {true, false}) {
    OCTAVO_ASSIGN_OR_RETURN(
        const auto per_unit,
        plane.source->file->Number(*bytes, x ? page.x_resolution : page.y_resolution));
    InputAxis& axis = info->axes[x ? rank - 1 : rank - 2];
    if (!per_unit.has_value() || *per_unit <= 0 || axis.spacing_um.has_value()) continue;
    SetSpacing(1 / *per_unit, page.resolution_unit == 2 ? "inch" : "cm",
               x ? "XResolution" : "YResolution", &axis, &info->notes);
  }
  return absl::OkStatus();
}

/// The pages that are no smaller copies of others.
std::vector<Plane> MainPages(const std::shared_ptr<const TiffSource>& source,
                             std::vector<std::string>* notes) {
  std::vector<Plane> planes;
  int64_t aside = 0, below = 0;
  const auto& pages = source->file->pages();
  for (size_t i = 0; i < pages.size(); ++i) {
    below += pages[i].subdirectories.count > 0 ? 1 : 0;
    if (pages[i].IsAside()) {
      ++aside;
    } else {
      planes.push_back({source, i});
    }
  }
  if (aside > 0)
    notes->push_back(absl::StrCat(
        aside, " pages are smaller copies or masks of others (NewSubfileType); left out"));
  if (below > 0)
    notes->push_back(absl::StrCat(below, " pages have pages below them (SubIFDs); left out"));
  return planes;
}

void AddAxis(const char* name, int64_t extent, VolumeInputInfo* info) {
  info->axes.push_back({.name = name, .extent = extent});
}

// -- ImageJ

/// The lines "key=value" of ImageJ's description.
std::map<std::string, std::string> ImageJLines(const std::string& text) {
  std::map<std::string, std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const size_t at = line.find('=');
    if (at != absl::string_view::npos && lines.size() < 1000)
      lines.emplace(line.substr(0, at), line.substr(at + 1));
  }
  return lines;
}

absl::Status OpenImageJ(const std::string& text, std::vector<Plane> pages,
                        const VolumeInputOptions& options, Found* found) {
  const Plane first = pages.front();
  const std::string& name = first.source->file->name();
  const auto lines = ImageJLines(text);
  const auto count = [&](const char* key, int64_t* out) -> absl::Status {
    const auto line = lines.find(key);
    *out = 1;
    if (line == lines.end()) return absl::OkStatus();
    if (absl::SimpleAtoi(line->second, out) && *out >= 1 && *out <= (int64_t{1} << 31))
      return absl::OkStatus();
    return DamagedFile(name, absl::StrCat("ImageJ's ", key),
                       absl::StrCat("is '", line->second.substr(0, 40), "'"));
  };
  int64_t images = 0, channels = 0, slices = 0, frames = 0;
  OCTAVO_RETURN_IF_ERROR(count("images", &images));
  OCTAVO_RETURN_IF_ERROR(count("channels", &channels));
  OCTAVO_RETURN_IF_ERROR(count("slices", &slices));
  OCTAVO_RETURN_IF_ERROR(count("frames", &frames));
  if (channels > images || slices > images / channels || frames > images / channels / slices ||
      channels * slices * frames != images) {
    if (channels * slices * frames != 1 || lines.count("slices") > 0)
      return DamagedFile(name, "ImageJ's images",
                         absl::StrCat("are ", images, "; channels x slices x frames are ", channels,
                                      " x ", slices, " x ", frames));
    slices = images;
  }
  VolumeInputInfo& info = found->info;
  info.kind += ", ImageJ";
  // ImageJ has a directory for the first image alone where more do not fit 4 GB: the others follow
  // it as plain numbers.
  if (images > 1 && std::ssize(pages) == 1) {
    const TiffPage& page = first.of();
    if (page.compression != 1 || page.tiled || page.predictor != 1 || page.fill_order != 1 ||
        page.bits % 8 != 0)
      return DamagedFile(name, "ImageJ's images",
                         absl::StrCat("are ", images, " in one page, which is no plain one"));
    OCTAVO_ASSIGN_OR_RETURN(const ElementType type, TiffElementType(*first.source->file, page));
    OCTAVO_ASSIGN_OR_RETURN(const uint64_t begin,
                            first.source->file->Value(*first.source->bytes, page.offsets, 0));
    const int64_t plane = page.width * page.height * type.bytes, size = first.source->file->size();
    if (begin > static_cast<uint64_t>(size) ||
        plane > (size - static_cast<int64_t>(begin)) / images)
      return DamagedFile(name, "ImageJ's images",
                         absl::StrCat("are ", images, " of ", plane, " bytes from ", begin,
                                      " on; the file has ", size));
    pages.clear();
    for (int64_t i = 0; i < images; ++i)
      pages.push_back({first.source, first.page, static_cast<int64_t>(begin) + i * plane});
  }
  if (std::ssize(pages) != images)
    return DamagedFile(name, "ImageJ's images",
                       absl::StrCat("are ", images, "; the file has ", pages.size(), " pages"));
  for (const Plane& page : pages) OCTAVO_RETURN_IF_ERROR(CheckAlike(page, first, options));
  // Channels are the fastest, then slices, then frames.
  if (frames > 1) AddAxis("t", frames, &info);
  AddAxis("z", slices, &info);
  if (channels > 1) AddAxis("c", channels, &info);
  AddAxis("y", first.of().height, &info);
  AddAxis("x", first.of().width, &info);
  found->planes = std::move(pages);
  const auto unit_line = lines.find("unit");
  const std::string unit = unit_line == lines.end() ? "" : unit_line->second;
  if (unit.empty() || unit == "pixel" || unit == "pixels") return absl::OkStatus();
  const size_t rank = info.axes.size();
  for (const bool x : {true, false}) {
    OCTAVO_ASSIGN_OR_RETURN(
        const auto per_unit,
        first.source->file->Number(*first.source->bytes,
                                   x ? first.of().x_resolution : first.of().y_resolution));
    if (per_unit.has_value() && *per_unit > 0)
      SetSpacing(1 / *per_unit, unit, x ? "XResolution" : "YResolution",
                 &info.axes[x ? rank - 1 : rank - 2], &info.notes);
  }
  double spacing = 0;
  if (const auto line = lines.find("spacing");
      line != lines.end() && absl::SimpleAtod(line->second, &spacing)) {
    for (InputAxis& axis : info.axes) {
      if (axis.name == "z") SetSpacing(spacing, unit, "ImageJ's spacing", &axis, &info.notes);
    }
  }
  return absl::OkStatus();
}

// -- OME-TIFF

/// The axes of pages, their rows and their columns that a commit wrote.
std::vector<std::string> PagesOf(const nlohmann::json& json) {
  std::vector<std::string> names;
  const auto pages = json.find("pages");
  if (pages != json.end() && pages->is_array()) {
    for (const auto& axis : *pages) {
      if (axis.is_string()) names.push_back(axis.get<std::string>());
    }
  }
  return names;
}

absl::StatusOr<std::shared_ptr<const TiffSource>> OpenOmeFile(const OpenedInput& input,
                                                              const std::string& file_name,
                                                              const VolumeInputOptions& options) {
  OCTAVO_ASSIGN_OR_RETURN(
      auto bytes, OpenReferred(input, file_name, "the OME-XML's TiffData.UUID.FileName", options));
  auto source = std::make_shared<TiffSource>();
  source->bytes = bytes;
  OCTAVO_ASSIGN_OR_RETURN(source->file, TiffFile::Open(*bytes));
  return source;
}

/// The axes Z, C, T of an image, slowest first, as indices into OmeXmlImage::size.
std::vector<size_t> SlowAxes(const OmeXmlImage& image) {
  std::vector<size_t> axes;
  for (size_t i = 5; i-- > 2;) axes.push_back(std::string("XYZCT").find(image.dimension_order[i]));
  return axes;
}

/// Finds the page of each plane of an image.
absl::Status PlaceOmePlanes(const OpenedInput& input, const OmeXmlImage& image,
                            const std::shared_ptr<const TiffSource>& own,
                            const VolumeInputOptions& options, std::vector<Plane>* planes) {
  const std::string& name = own->file->name();
  const std::vector<size_t> slow = SlowAxes(image);
  int64_t count = 1;
  for (const size_t d : slow) {
    if (image.size[d] > (int64_t{1} << 24) / count)
      return UnsupportedFile(name, "the OME-XML's number of planes", "more than 16777216",
                             "up to 16777216");
    count *= image.size[d];
  }
  // Position of a plane in C order of the slow axes.
  const auto at = [&](const OmeTiffData& data) -> int64_t {
    const int64_t first[5] = {0, 0, data.first_z, data.first_c, data.first_t};
    int64_t position = 0;
    for (const size_t d : slow) {
      if (first[d] >= image.size[d]) return -1;
      position = position * image.size[d] + first[d];
    }
    return position;
  };
  planes->assign(static_cast<size_t>(count), {});
  std::map<std::string, std::shared_ptr<const TiffSource>> files;
  std::vector<OmeTiffData> lists = image.tiff_data;
  if (lists.empty()) lists.emplace_back();
  for (const OmeTiffData& data : lists) {
    std::shared_ptr<const TiffSource> source = own;
    if (!data.file_name.empty() && data.file_name != input.name) {
      auto& known = files[data.file_name];
      if (known == nullptr) {
        if (files.size() > 4096)
          return UnsupportedFile(name, "the OME-XML", "spread over more than 4096 files",
                                 "up to 4096");
        OCTAVO_ASSIGN_OR_RETURN(known, OpenOmeFile(input, data.file_name, options));
      }
      source = known;
    }
    const int64_t first = at(data), ifd = data.ifd.value_or(0);
    const int64_t number = data.plane_count.value_or(data.ifd.has_value() ? 1 : count - first);
    const auto pages = std::ssize(source->file->pages());
    if (first < 0 || number > count - first || ifd >= pages || number > pages - ifd)
      return DamagedFile(
          name, "the OME-XML's TiffData",
          absl::StrCat("of IFD ", ifd, " with ", number, " planes does not fit ", pages,
                       " pages of ", source->file->name(), " and ", count, " planes"));
    for (int64_t i = 0; i < number; ++i)
      (*planes)[static_cast<size_t>(first + i)] = {source, static_cast<size_t>(ifd + i)};
  }
  for (size_t i = 0; i < planes->size(); ++i) {
    if ((*planes)[i].source == nullptr)
      return DamagedFile(name, "the OME-XML's TiffData",
                         absl::StrCat("have no page for plane ", i, " of ", count));
  }
  return absl::OkStatus();
}

absl::Status OpenOme(const OpenedInput& input, const std::string& text,
                     const std::shared_ptr<const TiffSource>& own,
                     const VolumeInputOptions& options, Found* found) {
  const std::string& name = own->file->name();
  auto parsed = ParseOmeXml(text);
  if (!parsed.ok()) return DamagedFile(name, "the OME-XML", parsed.status().message());
  if (!parsed->metadata_file.empty())
    return UnsupportedFile(name, "the OME-XML",
                           absl::StrCat("in another file, '", parsed->metadata_file, "'"),
                           "files that describe themselves");
  const auto images = std::ssize(parsed->images);
  if (images == 0) return DamagedFile(name, "the OME-XML", "has no image");
  if (images > 1 && !options.image.has_value()) {
    std::vector<std::string> names;
    for (const OmeXmlImage& image : parsed->images) {
      if (names.size() < 16) names.push_back(absl::StrCat("'", image.name, "'"));
    }
    return InvalidField(FieldOf(options, "image"),
                        absl::StrCat("is missing: ", name, " has ", images, " images (",
                                     absl::StrJoin(names, ", "), "); allowed 0 to ", images - 1));
  }
  if (options.image.has_value())
    OCTAVO_RETURN_IF_ERROR(
        InRange(FieldOf(options, "image"), static_cast<int64_t>(*options.image), 0, images - 1));
  const OmeXmlImage& image = parsed->images[static_cast<size_t>(options.image.value_or(0))];
  if (image.samples_per_pixel != 1)
    return UnsupportedFile(name, "the OME-XML's Channel.SamplesPerPixel", image.samples_per_pixel,
                           "1 (grey)");
  OCTAVO_RETURN_IF_ERROR(PlaceOmePlanes(input, image, own, options, &found->planes));
  VolumeInputInfo& info = found->info;
  info.kind += ", OME-XML";
  const TiffPage& page = found->planes.front().of();
  if (page.width != image.size[0] || page.height != image.size[1])
    return DamagedFile(name, PageName(page),
                       absl::StrCat("is ", page.width, " x ", page.height, "; the OME-XML says ",
                                    image.size[0], " x ", image.size[1]));
  for (const Plane& plane : found->planes)
    OCTAVO_RETURN_IF_ERROR(CheckAlike(plane, found->planes.front(), options));
  for (const size_t d : SlowAxes(image)) {
    if (d == 2 || image.size[d] > 1)
      AddAxis(d == 2 ? "z" : d == 3 ? "c" : "t", image.size[d], &info);
  }
  AddAxis("y", image.size[1], &info);
  AddAxis("x", image.size[0], &info);
  for (InputAxis& axis : info.axes) {
    const size_t d = std::string("xyz").find(axis.name);
    if (d == std::string::npos || !image.physical_size[d].has_value()) continue;
    SetSpacing(*image.physical_size[d], image.physical_unit[d],
               absl::StrCat("PhysicalSize", std::string(1, "XYZ"[d])), &axis, &info.notes);
  }
  if (!image.name.empty()) info.labels["name"] = image.name;
  for (size_t c = 0; c < std::min<size_t>(image.channels.size(), 32); ++c) {
    if (!image.channels[c].empty()) info.labels[absl::StrCat("channel ", c)] = image.channels[c];
  }
  if (images > 1)
    info.notes.push_back(
        absl::StrCat("of ", images, " images this is number ", options.image.value_or(0)));
  const auto own_meta = parsed->comments.find("octavo");
  if (own_meta == parsed->comments.end()) return absl::OkStatus();
  nlohmann::json json;
  OCTAVO_ASSIGN_OR_RETURN(VolumeMeta meta,
                          ParseOwnMeta(name, "the OME-XML's annotation", own_meta->second, &json));
  const auto order = OrderOfNames(meta, PagesOf(json));
  if (!order.has_value())
    return DamagedFile(name, "the OME-XML's annotation", "has no pages, the axes of the pages");
  return AdoptMeta(name, std::move(meta), *order, &info);
}

/// Pages, one after the other along z.
absl::Status StackPages(std::vector<Plane> pages, const VolumeInputOptions& options, Found* found) {
  for (const Plane& page : pages) OCTAVO_RETURN_IF_ERROR(CheckAlike(page, pages.front(), options));
  VolumeInputInfo& info = found->info;
  AddAxis("z", std::ssize(pages), &info);
  AddAxis("y", pages.front().of().height, &info);
  AddAxis("x", pages.front().of().width, &info);
  found->planes = std::move(pages);
  return SetResolution(found->planes.front(), &info);
}

/// Fills what all kinds have in common, from the pages.
OpenedVolume Complete(Found found, const VolumeInputOptions& options) {
  VolumeInputInfo& info = found.info;
  const Plane& first = found.planes.front();
  const TiffPage& page = first.of();
  OCTAVO_RETURN_IF_ERROR(CheckInputShape(first.source->file->name(), "the shape", info.shape()));
  info.file_order.clear();
  for (size_t d = 0; d < info.axes.size(); ++d) info.file_order.push_back(static_cast<int>(d));
  info.chunk.assign(info.axes.size(), 1);
  const bool plain = page.compression == 1 && !page.tiled && page.predictor == 1;
  if (!plain) {
    info.chunk[info.axes.size() - 2] = page.block_height;
    info.chunk[info.axes.size() - 1] = page.block_width;
  }
  // A decoder for each thread of the arena, with a block before and after it is decoded.
  info.read_memory_bytes = plain ? 0
                                 : std::min<int64_t>(3 * page.block_height * page.RowBytes(),
                                                     3 * options.most_chunk_bytes) *
                                       tbb::this_task_arena::max_concurrency();
  if (page.photometric == 0)
    info.notes.push_back("low values are white (PhotometricInterpretation 0); read as stored");
  if (page.photometric == 3) info.notes.push_back("the pages have a palette; its indices are read");
  if (page.orientation > 1)
    info.notes.push_back(
        absl::StrCat("Orientation is ", page.orientation, "; rows and columns are read as stored"));
  return std::make_unique<TiffInput>(std::move(info), std::move(found.planes));
}

/// The metadata in a folder that a commit wrote, or nothing.
absl::Status AdoptFolderMeta(const OpenedInput& input, Found* found) {
  const UniqueFd about = OpenWithin(input.fd, kAbout, O_RDONLY | O_NONBLOCK);
  if (!about) return absl::OkStatus();
  const std::string place = absl::StrCat(input.name, "/", kAbout);
  OCTAVO_ASSIGN_OR_RETURN(const std::string text,
                          ReadWholeFile(about.get(), place, JsonLimits().bytes));
  nlohmann::json json;
  OCTAVO_ASSIGN_OR_RETURN(VolumeMeta meta, ParseOwnMeta(place, "the file", text, &json));
  const auto order = OrderOfNames(meta, PagesOf(json));
  if (!order.has_value()) return DamagedFile(place, "pages", "are not the axes of the pages");
  return AdoptMeta(input.name, std::move(meta), *order, &found->info);
}

}  // namespace

OpenedVolume OpenTiffInput(OpenedInput input, const VolumeInputOptions& options) {
  auto source = std::make_shared<TiffSource>();
  source->bytes = input.bytes;
  OCTAVO_ASSIGN_OR_RETURN(source->file, TiffFile::Open(*input.bytes));
  const TiffFile& file = *source->file;
  Found found;
  found.info.format = InputFormat::kTiff;
  found.info.kind =
      absl::StrCat(file.big() ? "BigTIFF" : "TIFF", file.big_endian() ? ", big-endian" : "");
  std::vector<Plane> pages = MainPages(source, &found.info.notes);
  if (pages.empty())
    return UnsupportedFile(input.name, "every page", "a smaller copy or a mask (NewSubfileType)",
                           "at least one page that is not");
  OCTAVO_ASSIGN_OR_RETURN(const std::string description,
                          file.Text(*input.bytes, file.pages().front().description));
  OCTAVO_ASSIGN_OR_RETURN(found.info.type, TiffElementType(file, pages.front().of()));
  if (LooksLikeOmeXml(description)) {
    OCTAVO_RETURN_IF_ERROR(OpenOme(input, description, source, options, &found));
    OCTAVO_ASSIGN_OR_RETURN(found.info.type, TiffElementType(*found.planes.front().source->file,
                                                             found.planes.front().of()));
  } else if (options.image.has_value() && *options.image != 0) {
    return FieldNotAllowed(FieldOf(options, "image"), *options.image,
                           "0: the file is no OME-TIFF with several images");
  } else if (absl::StartsWith(description, "ImageJ=")) {
    OCTAVO_RETURN_IF_ERROR(OpenImageJ(description, std::move(pages), options, &found));
  } else {
    OCTAVO_RETURN_IF_ERROR(StackPages(std::move(pages), options, &found));
    if (!description.empty()) found.info.labels["description"] = description.substr(0, 1024);
  }
  return Complete(std::move(found), options);
}

OpenedVolume OpenTiffStackInput(OpenedInput input, const VolumeInputOptions& options) {
  OCTAVO_ASSIGN_OR_RETURN(auto files, FolderFiles(input.fd, input.name, kMostFiles));
  std::erase_if(files, [](const auto& file) {
    return !absl::EndsWithIgnoreCase(file->name(), ".tif") &&
           !absl::EndsWithIgnoreCase(file->name(), ".tiff");
  });
  if (files.empty())
    return UnsupportedFile(input.name, "the folder", "without files *.tif or *.tiff",
                           "folders of TIFF files, of linumpy (info.txt), and OME-Zarr");
  Found found;
  found.info.format = InputFormat::kTiffStack;
  found.info.kind = absl::StrCat("folder of ", files.size(), " TIFF files");
  std::vector<Plane> pages;
  for (const auto& file : files) {
    auto source = std::make_shared<TiffSource>();
    source->in_folder = file;
    OCTAVO_ASSIGN_OR_RETURN(auto bytes, file->Open());
    // The directories are kept, the open file is not.
    OCTAVO_ASSIGN_OR_RETURN(source->file, TiffFile::Open(*bytes));
    std::vector<std::string> notes;
    std::vector<Plane> of_file = MainPages(source, &notes);
    for (const std::string& note : notes) {
      if (found.info.notes.size() < 16)
        found.info.notes.push_back(absl::StrCat(file->name(), ": ", note));
    }
    if (of_file.size() != 1)
      return UnsupportedFile(input.name, file->name(),
                             absl::StrCat("a file of ", of_file.size(), " pages"),
                             "files of one page in a folder");
    pages.push_back(of_file.front());
  }
  OCTAVO_ASSIGN_OR_RETURN(found.info.type,
                          TiffElementType(*pages.front().source->file, pages.front().of()));
  OCTAVO_RETURN_IF_ERROR(StackPages(std::move(pages), options, &found));
  OCTAVO_RETURN_IF_ERROR(AdoptFolderMeta(input, &found));
  if (!found.info.octavo.has_value()) {
    std::vector<std::string> names;
    names.reserve(files.size());
    for (const auto& file : files) names.push_back(file->name());
    found.info.numbering = DoubtNumbers(names);
    if (!found.info.numbering.empty()) found.info.notes.push_back(found.info.numbering);
  }
  return Complete(std::move(found), options);
}

}  // namespace octavo::storage
