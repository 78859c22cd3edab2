#include "server/storage/commit_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/base/status.h"
#include "gpu/digest.h"
#include "server/storage/crc32c.h"
#include "server/storage/files.h"
#include "server/storage/format_writers.h"
#include "server/storage/journal.h"
#include "server/storage/manifest.h"
#include "tbb/parallel_invoke.h"

namespace octavo::storage {
namespace {

/// sum64 of a stream whose pieces need not be multiples of eight bytes.
class DigestStream {
 public:
  void Add(const char* data, int64_t bytes) {
    if (held_ > 0) {  // complete the word that the last piece left open
      const int64_t take = std::min<int64_t>(8 - held_, bytes);
      std::memcpy(word_ + held_, data, static_cast<size_t>(take));
      held_ += take;
      data += take;
      bytes -= take;
      if (held_ < 8) return;
      sum_ += DigestBytes(word_, 8, at_);
      at_ += 8;
      held_ = 0;
    }
    const int64_t whole = bytes / 8 * 8;
    sum_ += DigestBytes(data, whole, at_);
    at_ += whole;
    held_ = bytes - whole;
    std::memcpy(word_, data + whole, static_cast<size_t>(held_));
  }
  uint64_t Sum() const { return sum_ + (held_ > 0 ? DigestBytes(word_, held_, at_) : 0); }

 private:
  uint64_t sum_ = 0;
  int64_t at_ = 0, held_ = 0;
  char word_[8] = {};
};

void RemoveTree(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

struct Paths {
  std::string final, temporary;
  Format format;
};

/// Gives the finished files of `paths.temporary` their final names, without replacing, and makes that durable.
absl::Status PublishFiles(const Paths& paths) {
  if (paths.format == Format::kNpy) {
    const std::string side = absl::StrCat(paths.final, ".json");
    const std::string data = absl::StrCat(paths.temporary, "/", kNpyData), meta = absl::StrCat(paths.temporary, "/", kNpyMeta);
    if (PathExists(paths.final) && PathExists(data)) return ErrnoStatus(EEXIST, "renaming to", paths.final);
    if (PathExists(meta)) OCTAVO_RETURN_IF_ERROR(RenameNoReplace(meta, side));
    if (PathExists(data)) {
      if (absl::Status renamed = RenameNoReplace(data, paths.final); !renamed.ok()) {
        (void)RenameNoReplace(side, meta);
        return renamed;
      }
    }
  } else {
    OCTAVO_RETURN_IF_ERROR(RenameNoReplace(paths.temporary, paths.final));
  }
  if (const int error = Failpoint("after_rename")) return ErrnoStatus(error, "renaming to", paths.final);
  OCTAVO_RETURN_IF_ERROR(SyncDirectory(ParentOf(paths.final)));
  if (const int error = Failpoint("parent_synced")) return ErrnoStatus(error, "syncing", paths.final);
  if (paths.format == Format::kNpy) RemoveTree(paths.temporary);
  return absl::OkStatus();
}

class StoreImpl final : public CommitStore {
 public:
  StoreImpl(std::vector<std::string> roots, std::unique_ptr<Journal> journal) : roots_(std::move(roots)), journal_(std::move(journal)) {}

  const std::vector<std::string>& roots() const override { return roots_; }
  absl::StatusOr<std::unique_ptr<CommitTransaction>> Begin(const std::string& commit_id, const std::string& destination,
                                                           const VolumeMeta& meta, const WriterOptions& options) override;

  absl::Status Claim(const std::string& path) {
    MutexLock lock(mutex_);
    if (!busy_.insert(path).second) return ErrnoStatus(EEXIST, "another commit is writing", path);
    return absl::OkStatus();
  }
  void Unclaim(const std::string& path) {
    MutexLock lock(mutex_);
    busy_.erase(path);
  }
  Journal& journal() { return *journal_; }

 private:
  const std::vector<std::string> roots_;
  const std::unique_ptr<Journal> journal_;
  Mutex mutex_;
  std::set<std::string> busy_ ABSL_GUARDED_BY(mutex_);
};

class Transaction final : public CommitTransaction {
 public:
  Transaction(StoreImpl* store, std::string id, Paths paths, std::vector<std::string> made, const VolumeMeta& meta)
      : store_(store), id_(std::move(id)), paths_(std::move(paths)), made_(std::move(made)), meta_(meta),
        begun_(std::chrono::steady_clock::now()) {}

  ~Transaction() override {
    if (!published_) {
      writer_ = nullptr;
      RemoveTree(paths_.temporary);
      for (auto it = made_.rbegin(); it != made_.rend(); ++it) ::rmdir(it->c_str());  // only if empty
      (void)store_->journal().Append({{"op", "end"}, {"id", id_}, {"result", "abandoned"}});
    }
    store_->Unclaim(paths_.final);
  }

  absl::Status Start(const WriterOptions& options) {
    if (const int error = Failpoint("tmp_created")) return ErrnoStatus(error, "creating", paths_.temporary);
    OCTAVO_ASSIGN_OR_RETURN(writer_, MakeWriter(paths_.temporary, meta_, options));
    return absl::OkStatus();
  }

  int64_t SlabBscans() const override { return writer_->SlabBscans(); }
  int64_t DiskBytes() const override { return writer_->DiskBytes(); }

  absl::Status WriteSlab(int64_t y_begin, int64_t bscans, const void* data) override {
    const int64_t bytes = bscans * meta_.shape[1] * meta_.shape[2] * SizeOf(meta_.dtype);
    absl::Status written;
    tbb::parallel_invoke([&] { written = writer_->WriteSlab(y_begin, bscans, data); },
                         [&] {
                           crc_ = Crc32c(data, static_cast<size_t>(bytes), crc_);
                           digest_.Add(static_cast<const char*>(data), bytes);
                         });
    raw_bytes_ += bytes;
    return written;
  }

  absl::StatusOr<CommitOutcome> Publish() override {
    const int64_t wanted = meta_.shape[0] * meta_.shape[1] * meta_.shape[2] * SizeOf(meta_.dtype);
    if (raw_bytes_ != wanted) return absl::InternalError(absl::StrCat("got ", raw_bytes_, " of ", wanted, " bytes"));
    const std::string digest = absl::StrFormat("sum64:%016x", digest_.Sum());
    if (!meta_.digest.empty() && meta_.digest != digest) {
      return WithInfo(absl::DataLossError(absl::StrCat(meta_.volume_name, " changed since it was sealed: its digest was ", meta_.digest,
                                                       " and is ", digest)),
                      {.reason = "DIGEST", .field = "", .numbers = {{"sealed", meta_.digest}, {"read", digest}}});
    }
    OCTAVO_RETURN_IF_ERROR(writer_->Finish());
    if (const int error = Failpoint("files_synced")) return ErrnoStatus(error, "syncing", paths_.temporary);
    Manifest manifest{.files = static_cast<FileListWriter&>(*writer_).Files(), .raw_bytes = raw_bytes_,
                      .checksum = absl::StrFormat("crc32c:%08x", crc_)};
    const std::string text = manifest.ToJson(), path = absl::StrCat(paths_.temporary, "/", kManifestName);
    OCTAVO_RETURN_IF_ERROR(WriteNewFile(path, text.data(), text.size()));
    OCTAVO_RETURN_IF_ERROR(SyncFile(path));
    OCTAVO_RETURN_IF_ERROR(SyncDirectory(paths_.temporary));
    if (const int error = Failpoint("manifest_written")) return ErrnoStatus(error, "writing", path);
    if (const int error = Failpoint("before_rename")) return ErrnoStatus(error, "renaming to", paths_.final);
    const int64_t disk_bytes = writer_->DiskBytes();
    OCTAVO_RETURN_IF_ERROR(PublishFiles(paths_));
    published_ = true;
    if (const int error = Failpoint("journal_end")) return ErrnoStatus(error, "writing", "the journal");
    // The data is safe whether or not this line is: recovery would find the final name.
    (void)store_->journal().Append({{"op", "end"}, {"id", id_}, {"result", "published"}});
    return CommitOutcome{.path = paths_.final,
                         .format = paths_.format,
                         .raw_bytes = raw_bytes_,
                         .disk_bytes = disk_bytes,
                         .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count(),
                         .checksum = manifest.checksum};
  }

 private:
  StoreImpl* const store_;
  const std::string id_;
  const Paths paths_;
  const std::vector<std::string> made_;  // parent directories made for this commit
  const VolumeMeta meta_;
  const std::chrono::steady_clock::time_point begun_;
  std::unique_ptr<VolumeWriter> writer_;
  uint32_t crc_ = 0;
  DigestStream digest_;
  int64_t raw_bytes_ = 0;
  bool published_ = false;
};

absl::StatusOr<std::unique_ptr<CommitTransaction>> StoreImpl::Begin(const std::string& commit_id, const std::string& destination,
                                                                    const VolumeMeta& meta, const WriterOptions& options) {
  OCTAVO_ASSIGN_OR_RETURN(std::string final, ResolveDestination(roots_, destination));
  const char* extension = Extension(options.format);
  const bool named = absl::EndsWith(final, extension) || (options.format == Format::kOmeZarr05 && absl::EndsWith(final, ".zarr"));
  if (!named) final += extension;
  OCTAVO_RETURN_IF_ERROR(Claim(final));
  std::vector<std::string> made;
  const auto fail = [&](absl::Status status) {
    for (auto it = made.rbegin(); it != made.rend(); ++it) ::rmdir(it->c_str());
    Unclaim(final);
    return status;
  };
  if (PathExists(final)) return fail(ErrnoStatus(EEXIST, "committing to", final));
  std::vector<std::string> missing;
  for (std::string parent = ParentOf(final); !PathExists(parent); parent = ParentOf(parent)) missing.push_back(parent);
  for (auto it = missing.rbegin(); it != missing.rend(); ++it) {
    absl::Status status = MakeDirectory(*it);
    if (status.ok()) {
      made.push_back(*it);
      status = SyncDirectory(ParentOf(*it));
    } else if (absl::IsAlreadyExists(status)) {  // another commit made it meanwhile
      status = absl::OkStatus();
    }
    if (!status.ok()) return fail(status);
  }
  const Paths paths{.final = final, .temporary = absl::StrCat(ParentOf(final), "/.octavo-", commit_id, ".tmp"), .format = options.format};
  absl::Status begun = journal_->Append({{"op", "begin"}, {"id", commit_id}, {"final", final}, {"temporary", paths.temporary},
                                         {"format", static_cast<int>(options.format)}, {"volume", meta.volume_name}});
  if (const int error = Failpoint("journal_begin"); begun.ok() && error != 0) begun = ErrnoStatus(error, "writing", "the journal");
  if (!begun.ok()) return fail(begun);
  auto transaction = std::make_unique<Transaction>(this, commit_id, paths, std::move(made), meta);
  OCTAVO_RETURN_IF_ERROR(transaction->Start(options));
  return transaction;
}

/// The manifest of what a crashed commit left, if all of it is there and right, under temporary or final names.
absl::StatusOr<Manifest> VerifyLeft(const Paths& paths) {
  if (paths.format != Format::kNpy) return VerifyDirectory(PathExists(paths.temporary) ? paths.temporary : paths.final);
  OCTAVO_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(absl::StrCat(paths.temporary, "/", kManifestName)));
  OCTAVO_ASSIGN_OR_RETURN(Manifest manifest, Manifest::FromJson(text));
  for (const auto& file : manifest.files) {
    const std::string temporary = absl::StrCat(paths.temporary, "/", file.path);
    const std::string final = file.path == kNpyData ? paths.final : absl::StrCat(paths.final, ".json");
    OCTAVO_RETURN_IF_ERROR(VerifyFile(PathExists(temporary) ? temporary : final, file));
  }
  return manifest;
}

std::string Quarantine(const std::vector<std::string>& roots, const std::string& path) {
  for (const std::string& root : roots) {
    std::error_code ignored;
    const std::string real = std::filesystem::weakly_canonical(root, ignored).string();
    if (!absl::StartsWith(path, absl::StrCat(real, "/"))) continue;
    const std::string folder = absl::StrCat(real, "/.octavo-quarantine");
    (void)MakeDirectory(folder);
    std::string to = absl::StrCat(folder, "/", BaseOf(path));
    for (int i = 1; PathExists(to); ++i) to = absl::StrCat(folder, "/", BaseOf(path), ".", i);
    if (RenameNoReplace(path, to).ok()) return to;
  }
  return "";
}

std::string RecoverOne(const std::vector<std::string>& roots, const Paths& paths) {
  const bool temporary = PathExists(paths.temporary);
  if (!temporary && !PathExists(paths.final)) return absl::StrCat(paths.final, ": nothing was written; the destination is absent");
  if (!temporary && paths.format == Format::kNpy) return absl::StrCat(paths.final, ": was complete");  // its directory goes last
  const auto manifest = VerifyLeft(paths);
  if (!temporary) {
    if (manifest.ok()) return absl::StrCat(paths.final, ": was complete and verified");
    return absl::StrCat(paths.final, ": does not verify (", manifest.status().message(), "); left untouched, not ours to judge");
  }
  std::string why(manifest.status().message());
  if (manifest.ok()) {
    const absl::Status published = PublishFiles(paths);
    if (published.ok()) return absl::StrCat(paths.final, ": was written and is published now, verified");
    why = std::string(published.message());
  }
  const std::string to = Quarantine(roots, paths.temporary);
  return absl::StrCat(paths.final, ": incomplete (", why, "); ", to.empty() ? "could not be moved to quarantine" : absl::StrCat("moved to ", to));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CommitStore>> CommitStore::Open(const std::string& state_dir, const std::vector<std::string>& roots,
                                                               std::vector<std::string>* report) {
  std::error_code error;
  for (const std::string& directory : roots) {
    if (std::filesystem::create_directories(directory, error); error) return ErrnoStatus(error.value(), "creating storage root", directory);
  }
  if (std::filesystem::create_directories(state_dir, error); error) return ErrnoStatus(error.value(), "creating state directory", state_dir);
  std::vector<nlohmann::json> records;
  OCTAVO_ASSIGN_OR_RETURN(auto journal, Journal::Open(absl::StrCat(state_dir, "/commits.journal"), &records));
  // Replayed in order: a begin opens, an end closes; a volume may have been tried more than once.
  std::map<std::string, Paths> open;
  for (const auto& record : records) {
    const std::string id = record.value("id", ""), op = record.value("op", "");
    const Paths paths{.final = record.value("final", ""), .temporary = record.value("temporary", ""),
                      .format = static_cast<Format>(record.value("format", 1))};
    if (op == "end") open.erase(id);
    if (op == "begin" && absl::StartsWith(BaseOf(paths.temporary), ".octavo-")) open[id] = paths;
  }
  for (const auto& [id, paths] : open) {
    std::string line = RecoverOne(roots, paths);
    if (report != nullptr) report->push_back(std::move(line));
  }
  OCTAVO_RETURN_IF_ERROR(journal->Clear());
  return std::make_unique<StoreImpl>(roots, std::move(journal));
}

}  // namespace octavo::storage
