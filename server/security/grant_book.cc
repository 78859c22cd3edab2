#include "server/security/grant_book.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/resource_names.h"

namespace octavo::security {
namespace {

bool HasEnded(const Grant& grant, int64_t now_ns) { return grant.expires_unix_ns <= now_ns; }

absl::Status TooMany(const std::string& whose, size_t has, size_t allowed) {
  return WithInfo(absl::ResourceExhaustedError(
                      absl::StrCat(whose, " ", has, " grants; allowed ", allowed,
                                   "; take some back (octavo grant list, octavo grant revoke), or "
                                   "grant a whole scan, or everything, instead of each object")),
                  {.reason = Reason::kGrants,
                   .field = "",
                   .numbers = {{"used", absl::StrCat(has)}, {"allowed", absl::StrCat(allowed)}}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrantBook>> GrantBook::Open(const std::string& path,
                                                           const std::string& server_id,
                                                           const Clock* clock, std::string* aside,
                                                           Limits limits) {
  GrantFile file(path, server_id);
  OCTAVO_ASSIGN_OR_RETURN(Grants grants, file.Read(clock->Now().unix_ns, aside));
  return std::unique_ptr<GrantBook>(
      new GrantBook(std::move(file), server_id, clock, limits, std::move(grants)));
}

GrantBook::GrantBook(const std::string& server_id, const Clock* clock, Limits limits)
    : GrantBook(std::nullopt, server_id, clock, limits, {}) {}

GrantBook::GrantBook(std::optional<GrantFile> file, const std::string& server_id,
                     const Clock* clock, Limits limits, Grants grants)
    : file_(std::move(file)),
      server_id_(server_id),
      clock_(clock),
      limits_(limits),
      grants_(std::move(grants)) {
  for (Grant& grant : grants_) {
    grant.number = ++last_number_;
    of_grantee_.try_emplace(grant.grantee);
  }
  if (file_.has_value()) written_ = file_->TextOf(grants_);
}

GrantBook::Grants GrantBook::NotEnded() const {
  const int64_t now = NowNs();
  MutexLock lock(mutex_);
  Grants grants;
  grants.reserve(grants_.size());
  for (const Grant& grant : grants_) {
    if (!HasEnded(grant, now)) grants.push_back(grant);
  }
  return grants;
}

absl::Status GrantBook::CheckRoom(const Grants& grants, const Owner& owner) const {
  const auto of_owner = static_cast<size_t>(std::count_if(
      grants.begin(), grants.end(), [&](const Grant& grant) { return grant.owner == owner; }));
  if (of_owner >= limits_.of_owner)
    return TooMany(absl::StrCat(owner.name, " has"), of_owner, limits_.of_owner);
  if (grants.size() >= limits_.in_all)
    return TooMany("the server has", grants.size(), limits_.in_all);
  return absl::OkStatus();
}

absl::StatusOr<Grant> GrantBook::Put(const Owner& owner, const std::string& object,
                                     const std::string& grantee, int64_t ttl_ns) {
  MutexLock writing(writing_);
  const int64_t now = NowNs();
  Grant put{.name = absl::StrCat("grants/", base::NewId(server_id_)),
            .object = object,
            .grantee = grantee,
            .owner = {.name = owner.name, .project = owner.project},
            .created_unix_ns = now,
            .expires_unix_ns = now + ttl_ns,
            .number = last_number_ + 1};
  Grants grants = NotEnded();
  const auto same = std::find_if(grants.begin(), grants.end(),
                                 [&](const Grant& grant) { return grant.IsSameAs(put); });
  if (same != grants.end()) {
    put.name = same->name;
    grants.erase(same);
  } else {
    OCTAVO_RETURN_IF_ERROR(CheckRoom(grants, put.owner));
  }
  grants.push_back(put);
  OCTAVO_RETURN_IF_ERROR(TakeOver(std::move(grants)));
  ++last_number_;
  return put;
}

absl::StatusOr<Grant> GrantBook::Remove(const std::string& name,
                                        const std::function<absl::Status(const Grant&)>& may) {
  MutexLock writing(writing_);
  Grants grants = NotEnded();
  const auto found = std::find_if(grants.begin(), grants.end(),
                                  [&](const Grant& grant) { return grant.name == name; });
  if (found == grants.end()) {
    return WithInfo(absl::NotFoundError(absl::StrCat(
                        "name: there is no grant '", name,
                        "' (taken back, ended, or never granted); allowed are the names that "
                        "ListGrants tells (octavo grant list)")),
                    {.reason = Reason::kGrantEnded, .field = "name", .numbers = {}});
  }
  OCTAVO_RETURN_IF_ERROR(may(*found));
  Grant removed = std::move(*found);
  grants.erase(found);
  OCTAVO_RETURN_IF_ERROR(TakeOver(std::move(grants)));
  return removed;
}

absl::Status GrantBook::TakeOver(Grants grants) {
  Snapshots snapshots;
  for (const Grant& grant : grants) snapshots.try_emplace(grant.grantee);
  if (file_.has_value()) {
    std::string text = file_->TextOf(grants);
    if (text.size() > GrantFile::kMostBytes) {
      return WithInfo(absl::ResourceExhaustedError(absl::StrCat(
                          "the file of grants would have ", text.size(), " bytes; allowed ",
                          GrantFile::kMostBytes, "; take some back (octavo grant revoke)")),
                      {.reason = Reason::kGrants, .field = "", .numbers = {}});
    }
    if (absl::Status written = file_->Write(text); !written.ok()) {
      // The new file may be in its place although the disk failed to say so; then a start would
      // find what the caller was told had failed.
      if (const absl::Status back = file_->Write(written_); !back.ok())
        Log(LogLevel::kError, "the file of grants may not be as it was",
            {{"error", std::string(back.message())}});
      return written;
    }
    written_ = std::move(text);
  }
  MutexLock lock(mutex_);
  of_grantee_.swap(snapshots);
  grants_.swap(grants);
  return absl::OkStatus();
}

std::vector<Grant> GrantBook::List(uint64_t after, size_t most) const {
  const int64_t now = NowNs();
  MutexLock lock(mutex_);
  std::vector<Grant> list;
  const auto first =
      std::upper_bound(grants_.begin(), grants_.end(), after,
                       [](uint64_t number, const Grant& grant) { return number < grant.number; });
  for (auto it = first; it != grants_.end() && list.size() < most; ++it) {
    if (!HasEnded(*it, now)) list.push_back(*it);
  }
  return list;
}

int64_t GrantBook::Count() const {
  const int64_t now = NowNs();
  MutexLock lock(mutex_);
  return std::count_if(grants_.begin(), grants_.end(),
                       [&](const Grant& grant) { return !HasEnded(grant, now); });
}

std::shared_ptr<const GrantedObjects> GrantBook::Of(const Principal& caller) const {
  if (caller.proof == Proof::kNone || caller.name.empty()) return nullptr;
  const int64_t now = NowNs();
  MutexLock lock(mutex_);
  const auto it = of_grantee_.find(caller.name);
  if (it == of_grantee_.end()) return nullptr;
  Snapshot& snapshot = it->second;
  if (snapshot.from_ns <= now && now < snapshot.until_ns) return snapshot.granted;
  Snapshot fresh{
      .granted = nullptr, .from_ns = now, .until_ns = std::numeric_limits<int64_t>::max()};
  const auto granted = std::make_shared<GrantedObjects>();
  for (const Grant& grant : grants_) {
    if (grant.grantee != caller.name || HasEnded(grant, now)) continue;
    granted->Add(grant.owner, grant.object);
    fresh.granted = granted;
    fresh.until_ns = std::min(fresh.until_ns, grant.expires_unix_ns);
  }
  snapshot = fresh;
  return fresh.granted;
}

}  // namespace octavo::security
