#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "gpu/base/log.h"
#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/security/secret_file.h"

namespace octavo::security {

/// What a private file says that may change while the server runs: a map of lines. Thread-safe.
template <class Lines>
class WatchedFile {
 public:
  using Parse = absl::StatusOr<Lines> (*)(absl::string_view text);
  /// For the log.
  struct Words {
    const char* bad;      // "… cannot be used; …"
    const char* changed;  // "… read again"
    const char* lines;    // what is counted
  };
  WatchedFile(std::string path, Parse parse, Words words)
      : path_(std::move(path)), parse_(parse), words_(words) {}

  /// Reads the file, before anything else. Its errors are those of ReadSecretFile and of the
  /// parser, and name it.
  absl::Status Open() {
    OCTAVO_ASSIGN_OR_RETURN(std::string text, ReadSecretFile(path_));
    auto lines = parse_(text);
    if (!lines.ok()) return Annotate(lines.status(), path_);
    MutexLock lock(mutex_);
    lines_ = std::make_shared<const Lines>(*std::move(lines));
    last_seen_ = std::move(text);
    return absl::OkStatus();
  }

  /// Reads the file again, and takes it over if it has changed and is sound; a bad one keeps the
  /// old lines, is logged and counted, once. Call it now and then.
  void Look() {
    const auto text = ReadSecretFile(path_);
    std::string seen = text.ok() ? *text : absl::StrCat("?", text.status().message());
    {
      MutexLock lock(mutex_);
      if (seen == last_seen_) return;
      last_seen_ = std::move(seen);
    }
    auto lines = text.ok() ? parse_(*text) : absl::StatusOr<Lines>(text.status());
    if (!lines.ok()) {
      {
        MutexLock lock(mutex_);
        ++reload_errors_;
        refused_ = WithPath(lines.status());
      }
      Log(LogLevel::kError, words_.bad,
          {{"file", path_}, {"error", std::string(lines.status().message())}});
      return;
    }
    const size_t count = lines->size();
    auto taken = std::make_shared<const Lines>(*std::move(lines));
    {
      MutexLock lock(mutex_);
      lines_ = std::move(taken);
      refused_.clear();
      ++reloads_;
    }
    Log(LogLevel::kInfo, words_.changed, {{"file", path_}, {words_.lines, count}});
  }

  std::shared_ptr<const Lines> Now() const {
    MutexLock lock(mutex_);
    return lines_;
  }
  /// Why what the file holds now is not used, for people; empty = it is.
  std::string Refused() const {
    MutexLock lock(mutex_);
    return refused_;
  }
  struct Counts {
    int64_t lines = 0, reloads = 0, reload_errors = 0;
  };
  Counts Count() const {
    MutexLock lock(mutex_);
    return {.lines = static_cast<int64_t>(lines_->size()),
            .reloads = reloads_,
            .reload_errors = reload_errors_};
  }
  const std::string& path() const { return path_; }

 private:
  std::string WithPath(const absl::Status& error) const {
    const absl::string_view what = error.message();
    return absl::StrCat(absl::StrContains(what, path_) ? "" : absl::StrCat(path_, ": "), what,
                        "; the file is not used, and what it held before stays in force");
  }
  const std::string path_;
  const Parse parse_;
  const Words words_;
  mutable Mutex mutex_;
  std::shared_ptr<const Lines> lines_ ABSL_GUARDED_BY(mutex_);
  // The text of the file when it was read last, or why it could not be read.
  std::string last_seen_ ABSL_GUARDED_BY(mutex_);
  std::string refused_ ABSL_GUARDED_BY(mutex_);
  int64_t reloads_ ABSL_GUARDED_BY(mutex_) = 0, reload_errors_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace octavo::security
