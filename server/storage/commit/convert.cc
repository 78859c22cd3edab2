#include "server/storage/commit/convert.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"
#include "server/storage/commit/publish.h"
#include "server/storage/formats/ending.h"
#include "server/storage/formats/format_writers.h"
#include "server/storage/formats/stored_volume.h"
#include "server/storage/io/checksum_stream.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"

namespace octavo::storage {
namespace {

/// Removes unpublished files.
struct Temporary {
  std::string path;
  ~Temporary() {
    if (!path.empty()) (void)RemoveTree(path);
  }
};

}  // namespace

absl::StatusOr<Format> FormatOfPath(const std::string& path) {
  const Ending ending = EndingOf(path);
  if (ending.format.has_value()) return *ending.format;
  if (!ending.foreign.empty()) return InvalidField("destination", WhyForeign(path, ending));
  return InvalidField("destination",
                      absl::StrCat("'", path, "' has no ending that tells a format; allowed are ",
                                   absl::StrJoin(FormatEndings(), ", "), ", or name the format"));
}

absl::StatusOr<ConvertOutcome> Convert(const std::string& source, const std::string& destination,
                                       const WriterOptions& options,
                                       const std::function<bool(double, int64_t)>& progress,
                                       const ConvertSource& from) {
  const auto begun = std::chrono::steady_clock::now();
  OCTAVO_ASSIGN_OR_RETURN(auto input, OpenVolumeInput(source, from.input));
  OCTAVO_ASSIGN_OR_RETURN(const std::unique_ptr<InputVolume> volume,
                          InputVolume::Make(std::move(input), from.volume));
  const VolumeMeta& meta = volume->meta();
  OCTAVO_ASSIGN_OR_RETURN(const WriterOptions resolved, ResolveOptions(options, meta));
  if (meta.digest.empty()) OCTAVO_RETURN_IF_ERROR(volume->Verify());
  CommitPaths paths{.key = "",
                    .id = "convert",
                    .volume = meta.volume_name,
                    .final = destination,
                    .temporary = "",
                    .format = resolved.format,
                    .folder = !IsSingleFile(resolved),
                    .made = {}};
  while (paths.final.size() > 1 && paths.final.back() == '/') paths.final.pop_back();
  paths.final = WithExtension(paths.final, resolved);
  const std::string parent = ParentOf(paths.final);
  if (!PathExists(parent)) return ErrnoStatus(ENOENT, "opening directory", parent);
  if (PathExists(paths.final)) return ErrnoStatus(EEXIST, "writing", paths.final);
  if (!paths.folder && PathExists(paths.Side()))
    return ErrnoStatus(EEXIST, "writing", paths.Side());
  paths.temporary =
      absl::StrCat(parent, "/.octavo-convert-", ::getpid(), "-",
                   absl::Hex(std::chrono::system_clock::now().time_since_epoch().count()), ".tmp");
  Temporary temporary{paths.temporary};
  OCTAVO_RETURN_IF_ERROR(MakeDirectory(paths.temporary));
  OCTAVO_ASSIGN_OR_RETURN(auto writer, MakeFileListWriter(paths.temporary, meta, resolved));

  const int64_t plane = meta.shape[1] * meta.shape[2] * SizeOf(meta.dtype),
                slab = std::min(writer->SlabBscans(), meta.shape[0]);
  std::vector<char> memory(static_cast<size_t>(slab * plane));
  ChecksumStream sums;
  for (int64_t y = 0; y < meta.shape[0]; y += slab) {
    const int64_t count = std::min(slab, meta.shape[0] - y);
    if (!progress(static_cast<double>(y) / static_cast<double>(meta.shape[0]), writer->DiskBytes()))
      return absl::CancelledError("the conversion was cancelled");
    OCTAVO_RETURN_IF_ERROR(volume->Read(y, count, memory.data()));
    sums.Add(memory.data(), count * plane);
    OCTAVO_RETURN_IF_ERROR(writer->WriteSlab(y, count, memory.data()));
  }
  const std::string digest = absl::StrFormat("sum64:%016x", sums.Sum());
  if (!meta.digest.empty() && meta.digest != digest) {
    return WithInfo(absl::DataLossError(absl::StrCat(source, " is damaged: its digest was ",
                                                     meta.digest, " and is ", digest)),
                    {.reason = Reason::kDigest,
                     .field = "",
                     .numbers = {{"sealed", meta.digest}, {"read", digest}}});
  }
  OCTAVO_RETURN_IF_ERROR(writer->Finish());
  const Manifest manifest{.commit = paths.id,
                          .files = writer->Files(),
                          .raw_bytes = sums.bytes(),
                          .checksum = absl::StrFormat("crc32c:%08x", sums.Crc())};
  const std::string text = manifest.ToJson(),
                    manifest_path = absl::StrCat(paths.temporary, "/", kManifestName);
  OCTAVO_RETURN_IF_ERROR(WriteNewFile(manifest_path, text.data(), text.size()));
  OCTAVO_RETURN_IF_ERROR(SyncFile(manifest_path));
  OCTAVO_RETURN_IF_ERROR(SyncDirectory(paths.temporary));
  if (absl::Status published = PublishFiles(paths); !published.ok()) {
    // Files that no longer have their temporary name are ours, so withdraw them; if even that
    // fails, they stay and the message says so.
    const absl::Status back = WithdrawFiles(paths);
    return back.ok() ? published : Annotate(published, back.message());
  }
  (void)progress(1, writer->DiskBytes());
  ConvertOutcome outcome{
      {.path = paths.final,
       .format = paths.format,
       .raw_bytes = sums.bytes(),
       .disk_bytes = writer->DiskBytes(),
       .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(),
       .checksum = manifest.checksum},
      volume->info().notes};
  for (const auto& more : {volume->doubts(), volume->Losses()})
    outcome.warnings.insert(outcome.warnings.end(), more.begin(), more.end());
  return outcome;
}

}  // namespace octavo::storage
