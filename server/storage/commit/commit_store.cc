// Failpoints of a commit (gpu/base/failpoint.h), in order: journal_begin, tmp_created,
// chunk_written, files_synced, manifest_written, before_rename, names_checked, (single files:
// side_renamed,) after_rename, parent_synced, journal_end. Beside it: journal_cut (journal.cc),
// where a refused line cannot be taken back; block_written (write_queue.cc), where a part is in its
// file.
#include "server/storage/commit/commit_store.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <set>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tbb/parallel_invoke.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "server/storage/commit/journal.h"
#include "server/storage/commit/publish.h"
#include "server/storage/formats/format_writers.h"
#include "server/storage/formats/manifest.h"
#include "server/storage/io/checksum_stream.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"
#include "server/storage/io/json_members.h"
#include "server/storage/io/open_beneath.h"

namespace octavo::storage {
namespace {

// The journal is compacted, dropping ended entries, each time it has grown by this much.
constexpr int64_t kCompactBytes = 64 << 10;

class StoreImpl final : public CommitStore {
 public:
  StoreImpl(std::vector<std::string> roots, std::unique_ptr<Journal> journal,
            const std::vector<nlohmann::json>& unsettled)
      : roots_(std::move(roots)), journal_(std::move(journal)) {
    MutexLock lock(journal_mutex_);
    for (const auto& record : unsettled) open_[record["key"]].push_back(record);
  }

  const std::vector<std::string>& roots() const override { return roots_; }
  std::map<std::string, QuarantineUse> Quarantines() override {
    MutexLock lock(quarantine_mutex_);
    std::map<std::string, QuarantineUse> out;
    for (const std::string& root : roots_) {
      auto& [stamp, use] = quarantines_[root];
      // Scanned again only when an entry was added or removed, because it may hold many files.
      if (const int64_t now = StampOfQuarantine(root); std::exchange(stamp, now) != now)
        use = now == 0 ? QuarantineUse{} : UseOfQuarantine(root);
      out[root] = use;
    }
    return out;
  }
  absl::Status Check(const std::string& destination, const WriterOptions& options) override;
  absl::StatusOr<std::unique_ptr<CommitTransaction>> Begin(const std::string& commit_id,
                                                           const std::string& destination,
                                                           const VolumeMeta& meta,
                                                           const WriterOptions& options) override;

  absl::Status Claim(const std::string& path) {
    MutexLock lock(mutex_);
    if (!busy_.insert(path).second) return ErrnoStatus(EEXIST, "another commit is writing", path);
    return absl::OkStatus();
  }
  void Unclaim(const std::string& path) {
    MutexLock lock(mutex_);
    busy_.erase(path);
  }
  /// Appends a "begin", "abandon" or "end" to the journal.
  absl::Status Record(const nlohmann::json& record) {
    MutexLock lock(journal_mutex_);
    OCTAVO_RETURN_IF_ERROR(journal_->Append(record));
    if (record["op"] != "end") {
      open_[record["key"]].push_back(record);
      return absl::OkStatus();
    }
    open_.erase(record["key"]);
    if (const int64_t bytes = journal_->bytes(); bytes > compact_at_) {
      std::vector<nlohmann::json> rest;
      for (const auto& [key, records] : open_)
        rest.insert(rest.end(), records.begin(), records.end());
      compact_at_ = (journal_->Replace(rest).ok() ? journal_->bytes() : bytes) +
                    kCompactBytes;  // if it fails, it runs again later
    }
    return absl::OkStatus();
  }
  /// A commit that did not finish.
  struct Failed {
    CommitPaths paths;
    bool renaming = false;   // files may already have their final names
    bool said = false;       // the journal says so
    bool published = false;  // only its temporary folder remains
  };
  /// Removes the files of the unfinished commit. If that fails now (no descriptors, a disk that
  /// does not answer), the next commit tries again, because a leftover temporary name would block
  /// the folder for the volume.
  void GiveUp(Failed failed) {
    if (Remove(failed)) return;
    MutexLock lock(mutex_);
    left_.push_back(std::move(failed));
  }
  void RemoveWhatIsLeft() {
    spare_.SetAside();
    std::vector<Failed> left;
    {
      MutexLock lock(mutex_);
      left.swap(left_);
    }
    for (Failed& failed : left) {
      // A later commit may use the names by now: try again when that commit has ended.
      const bool mine = Claim(failed.paths.final).ok(),
                 both = mine && Claim(failed.paths.temporary).ok();
      const bool removed = both && Remove(failed);
      if (both) Unclaim(failed.paths.temporary);
      if (mine) Unclaim(failed.paths.final);
      if (removed) continue;
      MutexLock lock(mutex_);
      left_.push_back(std::move(failed));
    }
  }
  /// Held while directories are made or removed: a failing commit must not remove a parent that
  /// another commit has just found and is about to use.
  Mutex& tree_mutex() { return tree_mutex_; }

 private:
  /// False if any file is left.
  bool Remove(Failed& failed) {
    const SpareDescriptors::Loan loan(&spare_);
    // Journal the failure at once, even if the root is not mounted: the caller knows that the
    // commit failed, so a later start that finds it complete must not publish it.
    if (!failed.published && !failed.renaming)
      failed.said = failed.said || Record({{"op", "abandon"}, {"key", failed.paths.key}}).ok();
    // An unmounted root hides its files: they are still there when it is mounted again.
    if (!IsSameRoot(failed.paths)) return false;
    auto held = Hold(roots_, failed.paths);
    // If the folder is gone or replaced by a link, do not search for the commit's files.
    if (absl::IsNotFound(held.status())) return End(failed);
    if (!held.ok()) return false;
    const CommitPaths& paths = held->paths;
    if (failed.published) return RemoveTree(paths.temporary) && End(failed);
    // Withdraw a final name that could not be made durable. If even that fails, recovery decides.
    const bool ours_only =
        !paths.folder ? PathExists(paths.temporary) : !PathExists(paths.temporary);
    const bool in_folder = held->OpenTemporary().ok();
    if (failed.renaming && ours_only &&
        ((!paths.folder && !in_folder) || !WithdrawFiles(held->Moving()).ok()))
      return false;
    // Journal this before removing anything: recovery must not mistake a half removed directory for
    // a half published one.
    failed.said = failed.said || Record({{"op", "abandon"}, {"key", paths.key}}).ok();
    // The disk may have no room even for that line, filled by the very files to be removed. Before
    // any renaming the line is not needed: without a manifest, recovery publishes nothing.
    if (!failed.said && (failed.renaming || (in_folder && !RemoveManifest(held->temporary))))
      return false;
    return RemoveTree(paths.temporary) && End(failed);
  }
  /// Only folders that the commit made are left.
  bool End(const Failed& failed) {
    if (!IsSameRoot(failed.paths)) return false;
    if (!failed.published) {
      MutexLock lock(tree_mutex_);
      RemoveEmpty(roots_, failed.paths.made);
    }
    (void)Record({{"op", "end"},
                  {"key", failed.paths.key},
                  {"result", failed.published ? "published" : "abandoned"}});
    return true;
  }
  static bool RemoveManifest(const UniqueFd& temporary) {
    if (::unlinkat(temporary.get(), kManifestName, 0) != 0) return errno == ENOENT;
    return SyncDirectory(NameOfOpen(temporary)).ok();
  }

  const std::vector<std::string> roots_;
  const std::unique_ptr<Journal> journal_;
  SpareDescriptors spare_;
  Mutex journal_mutex_;
  std::map<std::string, std::vector<nlohmann::json>> open_
      ABSL_GUARDED_BY(journal_mutex_);  // entries without an end yet, by key
  int64_t compact_at_ ABSL_GUARDED_BY(journal_mutex_) = kCompactBytes;
  Mutex tree_mutex_, mutex_;
  std::set<std::string> busy_ ABSL_GUARDED_BY(mutex_);  // final and temporary names in use
  std::vector<Failed> left_ ABSL_GUARDED_BY(mutex_);    // files that could not be removed yet
  Mutex quarantine_mutex_;
  std::map<std::string, std::pair<int64_t, QuarantineUse>> quarantines_
      ABSL_GUARDED_BY(quarantine_mutex_);  // by root: the stamp of the last scan, and its result
};

class Transaction final : public CommitTransaction {
 public:
  Transaction(StoreImpl* store, CommitPaths paths, const VolumeMeta& meta)
      : store_(store),
        paths_(std::move(paths)),
        meta_(meta),
        begun_(std::chrono::steady_clock::now()) {}

  ~Transaction() override {
    writer_ = nullptr;
    if (!published_ && journalled_)
      store_->GiveUp({.paths = paths_, .renaming = renaming_, .said = false});
    store_->Unclaim(paths_.temporary);
    store_->Unclaim(paths_.final);
  }

  /// Journal, parent directories, temporary directory.
  absl::Status Start(const WriterOptions& options) {
    MutexLock lock(store_->tree_mutex());
    for (std::string parent = ParentOf(paths_.final); !PathExists(parent);
         parent = ParentOf(parent))
      paths_.made.insert(paths_.made.begin(), parent);
    OCTAVO_RETURN_IF_ERROR(store_->Record(paths_.ToJson("begin")));
    journalled_ = true;
    if (const int error = Failpoint("journal_begin"))
      return ErrnoStatus(error, "writing", "the journal");
    for (const std::string& directory : paths_.made)
      OCTAVO_RETURN_IF_ERROR(MakeBeneath(store_->roots(), directory));
    // From here on use only the open folders, because another process may replace any of them by a
    // link.
    OCTAVO_ASSIGN_OR_RETURN(held_, Hold(store_->roots(), paths_));
    if (::mkdirat(held_.folder.get(), BaseOf(paths_.temporary).c_str(), 0755) != 0)
      return ErrnoStatus(errno, "creating directory", paths_.temporary);
    OCTAVO_RETURN_IF_ERROR(held_.OpenTemporary());
    auto writer = MakeFileListWriter(NameOfOpen(held_.temporary), meta_, options);
    if (!writer.ok()) return held_.Named(writer.status());
    writer_ = *std::move(writer);
    if (const int failure = Failpoint("tmp_created"))
      return ErrnoStatus(failure, "creating", paths_.temporary);
    return absl::OkStatus();
  }

  int64_t SlabBscans() const override { return writer_->SlabBscans(); }
  int64_t LeastSlabBscans() const override { return writer_->LeastSlabBscans(); }
  int64_t DiskBytes() const override { return writer_->DiskBytes(); }

  absl::Status WriteSlab(int64_t y_begin, int64_t bscans, const void* data) override {
    OCTAVO_RETURN_IF_ERROR(status_);
    if (bscans < 1 || y_begin < 0 || bscans > meta_.shape[0] - y_begin) {
      return status_ = absl::InternalError(absl::StrCat("slab [", y_begin, ", ", y_begin + bscans,
                                                        ") of ", meta_.shape[0], " B-scans"));
    }
    absl::Status written;
    tbb::parallel_invoke(
        [&] { written = writer_->WriteSlab(y_begin, bscans, data); },
        [&] { sums_.Add(data, bscans * meta_.shape[1] * meta_.shape[2] * SizeOf(meta_.dtype)); });
    return status_ = held_.Named(written);
  }

  absl::Status Describe(const VolumeMeta& meta) override {
    OCTAVO_RETURN_IF_ERROR(status_);
    const bool same = meta.volume_name == meta_.volume_name && meta.dtype == meta_.dtype &&
                      std::equal(meta.shape, meta.shape + 3, meta_.shape) &&
                      std::equal(meta.axes, meta.axes + 3, meta_.axes) &&
                      std::equal(meta.spacing_um, meta.spacing_um + 3, meta_.spacing_um);
    if (!same) {
      return status_ = absl::InternalError(absl::StrCat(
                 meta_.volume_name, " became ", meta.volume_name, " of another geometry or type"));
    }
    OCTAVO_RETURN_IF_ERROR(status_ = writer_->Describe(meta));
    meta_ = meta;
    return absl::OkStatus();
  }

  absl::StatusOr<CommitOutcome> Publish() override {
    OCTAVO_RETURN_IF_ERROR(status_);
    auto outcome = WriteOut();
    if (!outcome.ok()) outcome = held_.Named(outcome.status());
    // Any failure ends the transaction here: files that could not be synced once must not be
    // trusted again.
    status_ =
        outcome.ok() ? absl::FailedPreconditionError("the commit is published") : outcome.status();
    return outcome;
  }

 private:
  absl::StatusOr<CommitOutcome> WriteOut() {
    const int64_t wanted = meta_.shape[0] * meta_.shape[1] * meta_.shape[2] * SizeOf(meta_.dtype);
    if (sums_.bytes() != wanted)
      return absl::InternalError(absl::StrCat("got ", sums_.bytes(), " of ", wanted, " bytes"));
    const std::string digest = absl::StrFormat("sum64:%016x", sums_.Sum());
    if (!meta_.digest.empty() && meta_.digest != digest) {
      return WithInfo(absl::DataLossError(absl::StrCat(
                          meta_.volume_name, " changed since it was sealed: its digest was ",
                          meta_.digest, " and is ", digest)),
                      {.reason = Reason::kDigest,
                       .field = "",
                       .numbers = {{"sealed", meta_.digest}, {"read", digest}}});
    }
    OCTAVO_RETURN_IF_ERROR(writer_->Finish());
    if (const int error = Failpoint("files_synced"))
      return ErrnoStatus(error, "syncing", paths_.temporary);
    const Manifest manifest{.commit = paths_.id,
                            .files = writer_->Files(),
                            .raw_bytes = wanted,
                            .checksum = absl::StrFormat("crc32c:%08x", sums_.Crc())};
    const std::string text = manifest.ToJson(),
                      path = absl::StrCat(NameOfOpen(held_.temporary), "/", kManifestName);
    OCTAVO_RETURN_IF_ERROR(WriteNewFile(path, text.data(), text.size()));
    OCTAVO_RETURN_IF_ERROR(SyncFile(path));
    OCTAVO_RETURN_IF_ERROR(SyncDirectory(NameOfOpen(held_.temporary)));
    if (const int error = Failpoint("manifest_written")) return ErrnoStatus(error, "writing", path);
    if (const int error = Failpoint("before_rename"))
      return ErrnoStatus(error, "renaming to", paths_.final);
    if (!IsSameRoot(paths_)) {
      return WithInfo(
          absl::UnavailableError(
              absl::StrCat("the storage root ", paths_.root,
                           " is away, or another one; is its disk still mounted?")),
          {.reason = Reason::kRootAway, .field = "", .numbers = {{"retryable", "true"}}});
    }
    const auto [published, elsewhere] = PublishHeld(store_->roots(), held_, &renaming_);
    if (elsewhere) (void)RemoveTree(held_.paths.temporary);  // by its name it would not be found
    OCTAVO_RETURN_IF_ERROR(published);
    published_ = true;
    // The data is safe even if the rest fails: recovery would find the final name and accept it.
    const bool clean = paths_.folder || (RemoveTree(held_.paths.temporary) && IsSameRoot(paths_));
    if (Failpoint("journal_end") == 0) {
      if (clean) {
        (void)store_->Record({{"op", "end"}, {"key", paths_.key}, {"result", "published"}});
      } else {
        store_->GiveUp({.paths = paths_, .published = true});
      }
    }
    return CommitOutcome{
        .path = paths_.final,
        .format = paths_.format,
        .raw_bytes = wanted,
        .disk_bytes = writer_->DiskBytes(),
        .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count(),
        .checksum = manifest.checksum};
  }

  StoreImpl* const store_;
  CommitPaths paths_;
  HeldPaths held_;
  VolumeMeta meta_;
  const std::chrono::steady_clock::time_point begun_;
  std::unique_ptr<FileListWriter> writer_;
  ChecksumStream sums_;
  absl::Status status_;
  bool journalled_ = false, renaming_ = false, published_ = false;
};

// The error of a destination where something is. A commit replaces nothing and follows no link,
// also none that leads to nothing.
absl::Status Taken(const std::string& path) {
  absl::Status taken = ErrnoStatus(EEXIST, "committing to", path);
  std::error_code no_link;
  const std::filesystem::path target = std::filesystem::read_symlink(path, no_link);
  if (no_link) return taken;
  return WithInfo(
      absl::Status(taken.code(), absl::StrCat(taken.message(), " (a link to '", target.string(),
                                              "', which is not followed)")),
      InfoOf(taken));
}

// Whether the server may make files in the folder, or in the first one above it that exists: told
// before anything is computed or written for it.
absl::Status CheckFolder(std::string folder) {
  while (!PathExists(folder)) folder = ParentOf(folder);
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) return absl::OkStatus();  // told by its use
  if (::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return absl::OkStatus();
  const absl::Status refused = ErrnoStatus(errno, "the server may not write into", folder);
  ErrorInfo info = InfoOf(refused);
  info.field = "options.destination";
  return WithInfo(refused, info);
}

absl::Status StoreImpl::Check(const std::string& destination, const WriterOptions& options) {
  OCTAVO_ASSIGN_OR_RETURN(std::string final, ResolveDestination(roots_, destination));
  final = WithExtension(final, options);
  if (PathExists(final)) return Taken(final);
  const std::string side = final + ".json";  // CommitPaths::Side
  if (IsSingleFile(options) && PathExists(side)) return Taken(side);
  return CheckFolder(ParentOf(final));
}

absl::StatusOr<std::unique_ptr<CommitTransaction>> StoreImpl::Begin(const std::string& commit_id,
                                                                    const std::string& destination,
                                                                    const VolumeMeta& meta,
                                                                    const WriterOptions& options) {
  if (commit_id.empty() || commit_id.size() > 64 ||
      commit_id.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != std::string::npos) {
    return InvalidField(
        "commit_id", absl::StrCat("is '", commit_id, "'; allowed 1 to 64 letters, digits and '-'"));
  }
  OCTAVO_ASSIGN_OR_RETURN(const WriterOptions resolved, ResolveOptions(options, meta));
  OCTAVO_ASSIGN_OR_RETURN(std::string final, ResolveDestination(roots_, destination));
  final = WithExtension(final, resolved);
  const std::string temporary = absl::StrCat(ParentOf(final), "/.octavo-", commit_id, ".tmp");
  RemoveWhatIsLeft();
  OCTAVO_RETURN_IF_ERROR(Claim(final));
  if (absl::Status claimed = Claim(temporary); !claimed.ok()) {
    Unclaim(final);
    return claimed;
  }
  static std::atomic<int> serial{0};  // unique across restarts, together with the time
  const int64_t now = std::chrono::system_clock::now().time_since_epoch().count();
  const std::string root = RootOf(roots_, final);
  const CommitPaths paths{.key = absl::StrCat(commit_id, ".", absl::Hex(now), ".", serial++),
                          .id = commit_id,
                          .volume = meta.volume_name,
                          .final = final,
                          .temporary = temporary,
                          .format = resolved.format,
                          .folder = !IsSingleFile(resolved),
                          .made = {},
                          .root = root,
                          .root_id = DirectoryId(root)};
  auto transaction = std::make_unique<Transaction>(this, paths, meta);  // releases both names
  if (PathExists(final)) return Taken(final);
  if (!paths.folder && PathExists(paths.Side())) return Taken(paths.Side());
  if (PathExists(temporary)) return ErrnoStatus(EEXIST, "an earlier commit left", temporary);
  OCTAVO_RETURN_IF_ERROR(CheckFolder(ParentOf(final)));
  OCTAVO_RETURN_IF_ERROR(transaction->Start(resolved));
  return transaction;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CommitStore>> CommitStore::Open(
    const std::string& state_dir, const std::vector<std::string>& roots,
    std::vector<std::string>* report, const QuarantineLimits& quarantine,
    std::vector<PublishedCommit>* published) {
  std::error_code error;
  for (const std::string& directory : roots) {
    if (std::filesystem::create_directories(directory, error); error)
      return ErrnoStatus(error.value(), "creating storage root", directory);
  }
  if (std::filesystem::create_directories(state_dir, error); error)
    return ErrnoStatus(error.value(), "creating state directory", state_dir);
  std::vector<nlohmann::json> records;
  const std::string journal_path = absl::StrCat(state_dir, "/commits.journal");
  OCTAVO_ASSIGN_OR_RETURN(auto journal, Journal::Open(journal_path, &records, report));
  // Replayed in order: a begin opens, an end closes; a volume may have been tried more than once.
  struct Entry {
    CommitPaths paths;
    bool abandoned = false;
  };
  std::map<std::string, Entry> open;
  std::vector<std::string> order;
  // A key begins with the commit's id, which has no point.
  const auto tell_published = [published](const CommitPaths& paths) {
    if (published == nullptr) return;
    published->push_back({.commit_id = paths.key.substr(0, paths.key.find('.')),
                          .path = paths.final,
                          .format = paths.format});
  };
  for (const auto& record : records) {
    const absl::Status replayed = [&]() -> absl::Status {
      std::string key, op;
      OCTAVO_RETURN_IF_ERROR(ReadMember(record, "key", &key));
      OCTAVO_RETURN_IF_ERROR(ReadMember(record, "op", &op));
      if (op == "end") {
        std::string result;  // journals of earlier versions have none
        if (record.contains("result"))
          OCTAVO_RETURN_IF_ERROR(ReadMember(record, "result", &result));
        if (const auto it = open.find(key); it != open.end() && result == "published")
          tell_published(it->second.paths);
        open.erase(key);
      }
      if (auto it = open.find(key); op == "abandon" && it != open.end())
        it->second.abandoned = true;
      if (op != "begin") return absl::OkStatus();
      OCTAVO_ASSIGN_OR_RETURN(const CommitPaths paths, CommitPaths::FromJson(record));
      if (!absl::StartsWith(BaseOf(paths.temporary), ".octavo-"))
        return BadValue("temporary", paths.temporary, "are paths to .octavo-...");
      open[key] = {.paths = paths};
      order.push_back(key);
      return absl::OkStatus();
    }();
    if (!replayed.ok() && report != nullptr)
      report->push_back(absl::StrCat(
          journal_path, ": a record is no commit's and is left out: ", replayed.message()));
  }
  std::vector<nlohmann::json> unsettled;
  for (const std::string& key : order) {
    const auto it = open.find(key);
    if (it == open.end()) continue;
    Recovered recovered = Recover(roots, it->second.paths, it->second.abandoned);
    if (report != nullptr) report->push_back(std::move(recovered.line));
    if (recovered.published) tell_published(it->second.paths);
    if (recovered.settled) continue;
    unsettled.push_back(it->second.paths.ToJson("begin"));
    if (it->second.abandoned) unsettled.push_back({{"op", "abandon"}, {"key", key}});
  }
  OCTAVO_RETURN_IF_ERROR(journal->Replace(unsettled));
  for (const std::string& root : roots) {
    for (std::string& line : PruneQuarantine(root, quarantine)) {
      if (report != nullptr) report->push_back(std::move(line));
    }
  }
  return std::make_unique<StoreImpl>(roots, std::move(journal), unsettled);
}

}  // namespace octavo::storage
