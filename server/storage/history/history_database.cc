#include "server/storage/history/history_database.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"
#include "server/storage/io/own_file.h"

namespace octavo::storage {
namespace {

constexpr int kApplication = 0x4F435456;  // "OCTV": a database of this program

// The newer schema is no damage, and another program's database is no older one of ours.
constexpr char kNewer[] = "newer", kDamaged[] = "damaged";

constexpr char kSchemaText[] =
    "CREATE TABLE work ("
    "kind INTEGER NOT NULL, name TEXT NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL,"
    "ended INTEGER NOT NULL, reason_code TEXT NOT NULL, reason TEXT NOT NULL,"
    "title TEXT NOT NULL, owner TEXT NOT NULL, project TEXT NOT NULL,"
    "request_id TEXT NOT NULL, request_digest TEXT NOT NULL,"
    "created_ns INTEGER NOT NULL, started_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL,"
    "details TEXT NOT NULL, PRIMARY KEY (kind, name)) WITHOUT ROWID;"
    "CREATE INDEX work_by_number ON work (kind, ended, number);";
constexpr char kWrite[] =
    "INSERT OR REPLACE INTO work (kind, name, number, state, ended, reason_code, reason, title,"
    "owner, project, request_id, request_digest, created_ns, started_ns, ended_ns, details)"
    "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
constexpr char kRead[] =
    "SELECT kind, name, number, state, ended, reason_code, reason, title, owner, project,"
    "request_id, request_digest, created_ns, started_ns, ended_ns, details FROM work "
    "WHERE kind BETWEEN 1 AND 4 ORDER BY kind, number";

constexpr int64_t kMostNumber = int64_t{1} << 62;

/// "scans/…": what a client can be told, and may ask for.
bool IsNamed(const std::string& name) {
  return name.size() <= 256 && name.find('/') != std::string::npos &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '/';
         });
}

using Statement = std::unique_ptr<sqlite3_stmt, decltype(&sqlite3_finalize)>;

void Bind(sqlite3_stmt* to, int at, const std::string& text) {
  sqlite3_bind_text64(to, at, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8);
}

std::string TextAt(sqlite3_stmt* row, int at) {
  const auto* found = reinterpret_cast<const char*>(sqlite3_column_text(row, at));
  if (found == nullptr) return "";
  std::string text(found, static_cast<size_t>(sqlite3_column_bytes(row, at)));
  // SQLite takes any bytes for text, and clients take no answer that is not UTF-8.
  try {
    (void)nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    return "?";
  }
  return text;
}

/// A name beside `path` that nothing has: "….damaged-20261127T193000Z".
std::string AsideName(const std::string& path, const char* why) {
  char time[32];
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  (void)std::strftime(time, sizeof time, "%Y%m%dT%H%M%SZ", &utc);
  std::string name = absl::StrCat(path, ".", why, "-", time);
  for (int n = 2; PathExists(name); ++n) name = absl::StrCat(path, ".", why, "-", time, "-", n);
  return name;
}

/// The log belongs to the database: beside another one it would be played into that.
absl::Status PutAside(const std::string& path, const std::string& to) {
  for (const char* part : {"", "-wal", "-shm"}) {
    const std::string from = absl::StrCat(path, part);
    if (::rename(from.c_str(), absl::StrCat(to, part).c_str()) != 0 && errno != ENOENT)
      return ErrnoStatus(errno, "renaming", from);
  }
  return absl::OkStatus();
}

}  // namespace

HistoryDatabase::HistoryDatabase(std::string path, UniqueFd lock)
    : path_(std::move(path)), lock_(std::move(lock)) {}

HistoryDatabase::~HistoryDatabase() { Close(); }

void HistoryDatabase::Close() {
  if (database_ != nullptr) sqlite3_close_v2(database_);
  database_ = nullptr;
}

absl::Status HistoryDatabase::Error(int code, const char* doing) const {
  const std::string text =
      absl::StrCat(doing, " ", path_, ": ",
                   database_ != nullptr ? sqlite3_errmsg(database_) : sqlite3_errstr(code));
  switch (code & 0xFF) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return absl::DataLossError(text);
    case SQLITE_FULL:
      return WithInfo(absl::ResourceExhaustedError(text),
                      {.reason = Reason::kDiskFull, .field = "", .numbers = {}});
    case SQLITE_NOMEM: return absl::ResourceExhaustedError(text);
    default: {
      const int error = database_ == nullptr ? 0 : sqlite3_system_errno(database_);
      return error == 0 ? absl::UnavailableError(text) : ErrnoStatus(error, doing, path_);
    }
  }
}

absl::Status HistoryDatabase::Execute(const char* sql) {
  const int code = sqlite3_exec(database_, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code, "writing");
}

absl::StatusOr<int64_t> HistoryDatabase::Ask(const char* sql) {
  sqlite3_stmt* made = nullptr;
  int code = sqlite3_prepare_v2(database_, sql, -1, &made, nullptr);
  const Statement statement(made, sqlite3_finalize);
  if (code == SQLITE_OK) code = sqlite3_step(made);
  if (code != SQLITE_ROW) return Error(code, "reading");
  return sqlite3_column_int64(made, 0);
}

absl::StatusOr<std::unique_ptr<HistoryDatabase>> HistoryDatabase::Open(
    const std::string& folder, std::vector<std::string>* report) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return ErrnoStatus(errno, "creating directory", folder);
  // Whoever may write into the folder can tell the next daemon what it is to believe.
  struct stat made {};
  if (::stat(folder.c_str(), &made) != 0) return ErrnoStatus(errno, "opening", folder);
  if (const std::string why = WhyNotOwn(made, folder, "700"); S_ISDIR(made.st_mode) && !why.empty())
    return absl::FailedPreconditionError(why);
  const std::string lock_path = absl::StrCat(folder, "/history.lock");
  UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return ErrnoStatus(errno, "opening", lock_path);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return absl::FailedPreconditionError(
        absl::StrCat(folder, " is used by another process, which keeps its history there"));
  // SQLite follows no link anywhere in a path that must not be one.
  const std::string real = RealPath(folder);
  if (real.empty()) return ErrnoStatus(errno, "opening", folder);
  std::unique_ptr<HistoryDatabase> database(
      new HistoryDatabase(absl::StrCat(real, "/history.sqlite"), std::move(lock)));
  absl::Status opened = database->OpenFile();
  if (!absl::IsDataLoss(opened) && !absl::IsUnimplemented(opened)) {
    if (opened.ok()) return database;
    return opened;
  }
  database->Close();
  const bool newer = absl::IsUnimplemented(opened);
  const std::string aside = AsideName(database->path_, newer ? kNewer : kDamaged);
  OCTAVO_RETURN_IF_ERROR(PutAside(database->path_, aside));
  if (report != nullptr)
    report->push_back(absl::StrCat("the history of scans and jobs was put aside as ", aside,
                                   " and begins anew: ", opened.message()));
  OCTAVO_RETURN_IF_ERROR(database->OpenFile());
  return database;
}

absl::Status HistoryDatabase::OpenFile() {
  {
    // SQLite would make it with the process' own mask, and gives the log the mode of the database.
    const UniqueFd file(
        ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    if (!file) return ErrnoStatus(errno, "opening", path_);
    struct stat found {};
    if (::fstat(file.get(), &found) != 0) return ErrnoStatus(errno, "opening", path_);
    if (!S_ISREG(found.st_mode))
      return absl::UnavailableError(absl::StrCat(path_, " is no regular file"));
    // Its mode is mended below: nobody else could reach it in the folder.
    struct stat owned = found;
    owned.st_mode &= ~static_cast<mode_t>(S_IWGRP | S_IWOTH);
    if (const std::string why = WhyNotOwn(owned, path_, "600"); !why.empty())
      return absl::FailedPreconditionError(why);
    device_ = found.st_dev;
    inode_ = found.st_ino;
    // Beside them SQLite would never begin, or wait for ever.
    for (const char* part : {"-wal", "-shm"}) {
      struct stat other {};
      const std::string beside = absl::StrCat(path_, part);
      if (::lstat(beside.c_str(), &other) == 0 && !S_ISREG(other.st_mode))
        return absl::DataLossError(absl::StrCat(beside, " is no regular file"));
    }
    if ((found.st_mode & 0777) != 0600 && ::fchmod(file.get(), 0600) != 0)
      return ErrnoStatus(errno, "changing the mode of", path_);
  }
  const int code = sqlite3_open_v2(
      path_.c_str(), &database_,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE,
      nullptr);
  if (code != SQLITE_OK) return Error(code, "opening");
  sqlite3_limit(database_, SQLITE_LIMIT_LENGTH, 16 << 20);
  (void)sqlite3_busy_timeout(database_, 1000);  // another program looks into it
  return Check();
}

absl::Status HistoryDatabase::Check() {
  // What triggers and views of a planted file may call; ours has none.
  OCTAVO_RETURN_IF_ERROR(Execute("PRAGMA trusted_schema=OFF"));
  OCTAVO_ASSIGN_OR_RETURN(const int64_t application, Ask("PRAGMA application_id"));
  OCTAVO_ASSIGN_OR_RETURN(const int64_t schema, Ask("PRAGMA user_version"));
  OCTAVO_ASSIGN_OR_RETURN(const int64_t tables, Ask("SELECT count(*) FROM sqlite_schema"));
  const bool empty = application == 0 && schema == 0 && tables == 0;
  // A table and its index. A view, which may never end, or a trigger, which may refuse each row, is
  // somebody else's.
  if (!empty && application == kApplication && schema <= kSchema) {
    OCTAVO_ASSIGN_OR_RETURN(
        const int64_t ours,
        Ask("SELECT count(*) FROM sqlite_schema WHERE (type = 'table' AND name = 'work') OR "
            "(type = 'index' AND tbl_name = 'work')"));
    if (ours != tables)
      return absl::DataLossError(absl::StrCat(path_, " holds what this program does not make"));
  }
  if (!empty && application != kApplication)
    return absl::DataLossError(absl::StrCat(path_, " is a database of another program"));
  if (schema > kSchema) {
    return absl::UnimplementedError(absl::StrCat(
        path_, " has schema ", schema, ", of a newer version; this one knows schema ", kSchema));
  }
  OCTAVO_RETURN_IF_ERROR(Ask("PRAGMA journal_mode=WAL").status());
  OCTAVO_RETURN_IF_ERROR(Execute("PRAGMA synchronous=FULL; PRAGMA journal_size_limit=4194304"));
  if (empty) {
    const std::string make =
        absl::StrCat("BEGIN IMMEDIATE; PRAGMA application_id=", kApplication,
                     "; PRAGMA user_version=", kSchema, "; ", kSchemaText, " COMMIT");
    const absl::Status made = Execute(make.c_str());
    if (!made.ok()) (void)sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
    return made;
  }
  // The pages first: a damaged one may fail anywhere later.
  sqlite3_stmt* check = nullptr;
  int code = sqlite3_prepare_v2(database_, "PRAGMA quick_check(1)", -1, &check, nullptr);
  const Statement statement(check, sqlite3_finalize);
  if (code == SQLITE_OK) code = sqlite3_step(check);
  if (code != SQLITE_ROW) return Error(code, "checking");
  if (const std::string found = TextAt(check, 0); found != "ok")
    return absl::DataLossError(absl::StrCat(path_, " is damaged: ", found));
  // The columns, too.
  sqlite3_stmt* read = nullptr;
  code = sqlite3_prepare_v2(database_, kRead, -1, &read, nullptr);
  const Statement readable(read, sqlite3_finalize);
  if (code == SQLITE_ERROR)
    return absl::DataLossError(absl::StrCat(path_, " is damaged: ", sqlite3_errmsg(database_)));
  return code == SQLITE_OK ? absl::OkStatus() : Error(code, "checking");
}

absl::StatusOr<std::vector<HistoryRow>> HistoryDatabase::Load() {
  sqlite3_stmt* made = nullptr;
  int code = sqlite3_prepare_v2(database_, kRead, -1, &made, nullptr);
  const Statement statement(made, sqlite3_finalize);
  if (code != SQLITE_OK) return Error(code, "reading");
  std::vector<HistoryRow> rows;
  while ((code = sqlite3_step(made)) == SQLITE_ROW) {
    const int64_t number = sqlite3_column_int64(made, 2);
    if (number < 1 || number > kMostNumber || !IsNamed(TextAt(made, 1))) continue;  // not ours
    rows.push_back({.kind = static_cast<HistoryKind>(sqlite3_column_int(made, 0)),
                    .name = TextAt(made, 1),
                    .number = static_cast<uint64_t>(number),
                    .state = TextAt(made, 3),
                    .ended = sqlite3_column_int(made, 4) != 0,
                    .reason_code = TextAt(made, 5),
                    .reason = TextAt(made, 6),
                    .title = TextAt(made, 7),
                    .owner = TextAt(made, 8),
                    .project = TextAt(made, 9),
                    .request_id = TextAt(made, 10),
                    .request_digest = TextAt(made, 11),
                    .created_unix_ns = sqlite3_column_int64(made, 12),
                    .started_unix_ns = sqlite3_column_int64(made, 13),
                    .ended_unix_ns = sqlite3_column_int64(made, 14),
                    .details = TextAt(made, 15)});
  }
  if (code != SQLITE_DONE) return Error(code, "reading");
  return rows;
}

absl::Status HistoryDatabase::Write(const std::vector<HistoryRow>& rows) {
  if (const int error = Failpoint("history_write"); error != 0)
    return ErrnoStatus(error, "writing", path_);
  // What is written into a file that was removed, no daemon will find.
  // (No descriptor is kept for that: closing one would end SQLite's locks.)
  struct stat named {};
  if (::stat(path_.c_str(), &named) != 0) return ErrnoStatus(errno, "looking for", path_);
  if (named.st_dev != device_ || named.st_ino != inode_)
    return absl::UnavailableError(
        absl::StrCat(path_, " is not the file that this daemon opened; the next start uses it"));
  OCTAVO_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
  absl::Cleanup undo = [&] {
    (void)sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
  };
  sqlite3_stmt* made = nullptr;
  int code = sqlite3_prepare_v2(database_, kWrite, -1, &made, nullptr);
  Statement statement(made, sqlite3_finalize);
  if (code != SQLITE_OK) return Error(code, "writing");
  for (const HistoryRow& row : rows) {
    sqlite3_bind_int(made, 1, static_cast<int>(row.kind));
    Bind(made, 2, row.name);
    sqlite3_bind_int64(made, 3, static_cast<int64_t>(row.number));
    Bind(made, 4, row.state);
    sqlite3_bind_int(made, 5, row.ended ? 1 : 0);
    int at = 6;
    for (const std::string* text : {&row.reason_code, &row.reason, &row.title, &row.owner,
                                    &row.project, &row.request_id, &row.request_digest})
      Bind(made, at++, *text);
    for (const int64_t time : {row.created_unix_ns, row.started_unix_ns, row.ended_unix_ns})
      sqlite3_bind_int64(made, at++, time);
    Bind(made, at, row.details);
    code = sqlite3_step(made);
    if (code != SQLITE_DONE) {
      const absl::Status failed = Error(code, "writing");
      statement.reset();  // before the rollback
      return failed;
    }
    (void)sqlite3_reset(made);
    (void)sqlite3_clear_bindings(made);
  }
  statement.reset();
  (void)Failpoint("history_commit");
  OCTAVO_RETURN_IF_ERROR(Execute("COMMIT"));
  std::move(undo).Cancel();
  (void)Failpoint("history_committed");
  return absl::OkStatus();
}

absl::StatusOr<int64_t> HistoryDatabase::Prune(const HistoryLimits& limits, int64_t now_unix_ns) {
  const int before = sqlite3_total_changes(database_);
  if (limits.days > 0) {
    const auto oldest = now_unix_ns - static_cast<int64_t>(limits.days * 86'400e9);
    OCTAVO_RETURN_IF_ERROR(
        Execute(absl::StrCat("DELETE FROM work WHERE ended = 1 AND ended_ns < ", oldest).c_str()));
  }
  for (const HistoryKind kind : kHistoryKinds) {
    // Of each owner: nobody pushes out what others may still ask for. Nor does a volume that was
    // discarded push out one that was lost.
    const char* const each = kind == HistoryKind::kVolume ? "owner, state" : "owner";
    OCTAVO_RETURN_IF_ERROR(
        Execute(absl::StrCat("DELETE FROM work WHERE kind = ", static_cast<int>(kind),
                             " AND name IN (SELECT name FROM (SELECT name, row_number() OVER ",
                             "(PARTITION BY ", each, " ORDER BY number DESC) AS place FROM work ",
                             "WHERE kind = ", static_cast<int>(kind),
                             " AND ended = 1) WHERE place > ", limits.kept, ")")
                    .c_str()));
  }
  return sqlite3_total_changes(database_) - before;
}

}  // namespace octavo::storage
