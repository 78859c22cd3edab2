#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <map>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "server/storage/formats/meta_json.h"
#include "server/storage/formats/single_file.h"
#include "server/storage/formats/tiff_pages.h"
#include "server/storage/io/crc32c.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"

namespace octavo::storage {
namespace {

constexpr char kAbout[] = "octavo.json";

/// A folder with a TIFF file for each page, slice_00000.tif and so on, and octavo.json with all
/// metadata. The files are plain TIFF, not OME-TIFF, and BigTIFF only where a page needs it,
/// because users of this format have tools that read nothing else. The writer keeps no file open:
/// there may be more files than a process may have open.
class TiffStackWriter final : public SlabWriter {
 public:
  TiffStackWriter(std::string path, const VolumeMeta& meta, const WriterOptions& options)
      : SlabWriter(std::move(path), meta, options),
        big_(VolumeBytes() / TiffPages(meta, options, false).count() > int64_t{4'000'000'000}),
        pages_(meta_, options_, big_),
        files_(static_cast<size_t>(pages_.count()),
               {.position = TiffPages::HeadBytes(big_), .crc = 0}) {}

  absl::Status Start() { return absl::OkStatus(); }
  int64_t SlabBscans() const override { return pages_.SlabPlanes(); }

  absl::Status Finish() override {
    OCTAVO_RETURN_IF_ERROR(ForPages([&](int64_t page) { return Complete(page); }));
    nlohmann::json meta = MetaJson(meta_);
    meta["format"] = FormatName(options_.format);
    meta["pages"] = pages_.Axes();
    meta["files"] = {{"count", pages_.count()}, {"first", NameOf(0)}};
    const std::string text = meta.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
    OCTAVO_RETURN_IF_ERROR(WriteListed(kAbout, text.data(), text.size()));
    OCTAVO_RETURN_IF_ERROR(SyncListed());
    return SyncDirectory(path_);
  }

 private:
  struct File {
    int64_t position;  // the end of the page
    uint32_t crc;      // bytes after the head
  };

  std::string NameOf(int64_t page) const {
    const auto digits = static_cast<int>(absl::StrCat(pages_.count() - 1).size());
    return absl::StrFormat("slice_%0*d.tif", std::max(5, digits), page);
  }

  absl::Status ForPages(const std::function<absl::Status(int64_t)>& work) {
    std::vector<absl::Status> results(files_.size());
    arena_.execute([&] {
      tbb::parallel_for(size_t{0}, results.size(),
                        [&](size_t i) { results[i] = work(static_cast<int64_t>(i)); });
    });
    for (const absl::Status& result : results) OCTAVO_RETURN_IF_ERROR(result);
    return absl::OkStatus();
  }

  /// Writes `pieces` at the end of a file, and `head`, if there is one, at its beginning.
  absl::Status Write(int64_t page, const std::vector<std::string_view>& pieces,
                     const std::string& head) {
    File& file = files_[static_cast<size_t>(page)];
    const std::string path = absl::StrCat(path_, "/", NameOf(page));
    const bool is_new = file.position == TiffPages::HeadBytes(big_);
    UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | (is_new ? O_CREAT | O_EXCL : 0), 0644));
    if (!fd) return ErrnoStatus(errno, "opening", path);
    for (const std::string_view piece : pieces) {
      OCTAVO_RETURN_IF_ERROR(WriteAllAt(fd.get(), path, piece.data(), piece.size(), file.position));
      file.crc = Crc32c(piece.data(), piece.size(), file.crc);
      file.position += std::ssize(piece);
      disk_bytes_ += std::ssize(piece);
    }
    if (!head.empty())
      OCTAVO_RETURN_IF_ERROR(WriteAllAt(fd.get(), path, head.data(), head.size(), 0));
    if (::close(fd.release()) != 0) return ErrnoStatus(errno, "closing", path);
    return absl::OkStatus();
  }

  absl::Status Slab(int64_t y_begin, int64_t bscans, const char* data) override {
    if (y_begin % SlabBscans() != 0)
      return absl::InternalError(
          absl::StrCat("slab from ", y_begin, "; strips have ", SlabBscans(), " planes"));
    OCTAVO_ASSIGN_OR_RETURN(const auto blocks, pages_.Encode(bscans, data));
    std::map<int64_t, std::vector<std::string_view>> strips;
    for (const TiffPages::Block& block : blocks) {
      const char* at = block.bytes.data();
      for (const auto& strip : block.strips) {
        strips[strip.page].emplace_back(at, static_cast<size_t>(strip.bytes));
        at += strip.bytes;
      }
    }
    return ForPages([&](int64_t page) {
      const auto of = strips.find(page);
      if (of == strips.end()) return absl::OkStatus();
      int64_t offset = files_[static_cast<size_t>(page)].position;
      for (const std::string_view strip : of->second) {
        pages_.Wrote(page, offset, std::ssize(strip));
        offset += std::ssize(strip);
      }
      return Write(page, of->second, "");
    });
  }

  absl::Status Complete(int64_t page) {
    const File& file = files_[static_cast<size_t>(page)];
    const std::string pad(static_cast<size_t>((8 - file.position % 8) % 8), '\0');
    const int64_t directory = file.position + std::ssize(pad);
    const std::string about =
        absl::StrFormat("%s %d of %d; %s is beside it", pages_.Axes()[0].get<std::string>(),
                        page + 1, pages_.count(), kAbout);
    const std::string entries = pages_.Directory(page, about, directory, /*last=*/true),
                      head = pages_.Head(directory);
    OCTAVO_RETURN_IF_ERROR(Write(page, {pad, entries}, head));
    disk_bytes_ += std::ssize(head);
    List({.path = NameOf(page),
          .bytes = file.position,
          .crc32c = Crc32cCombine(Crc32c(head.data(), head.size()), file.crc,
                                  static_cast<uint64_t>(file.position - std::ssize(head)))});
    return absl::OkStatus();
  }

  const bool big_;
  TiffPages pages_;
  std::vector<File> files_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileListWriter>> MakeTiffStackWriter(const std::string& path,
                                                                    const VolumeMeta& meta,
                                                                    const WriterOptions& options) {
  return Started<TiffStackWriter>(path, meta, options);
}

}  // namespace octavo::storage
