#include "server/security/tls_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/sha256.h"
#include "server/security/token.h"

namespace octavo::security {
namespace {

constexpr int64_t kDay = 86'400;
constexpr int64_t kBetweenJudgements = 60;  // of a bad set, s
constexpr int64_t kSoon = 14 * kDay;

// Distinguishes contents of the files, without keeping the key.
std::string MarkOf(const absl::StatusOr<TlsTexts>& texts) {
  if (!texts.ok()) return absl::StrCat("?", texts.status().message());
  return absl::StrCat(base::Sha256(texts->certificate), base::Sha256(texts->key),
                      base::Sha256(texts->client_ca));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsStore>> TlsStore::Open(const TlsFiles& files, Now now) {
  std::unique_ptr<TlsStore> store(new TlsStore(files, std::move(now)));
  auto texts = ReadTlsFiles(files);
  store->judged_ = store->seen_ = MarkOf(texts);
  if (!texts.ok()) return texts.status();
  OCTAVO_ASSIGN_OR_RETURN(TlsSet set, CheckTlsTexts(files, *std::move(texts), store->now_()));
  {
    MutexLock lock(store->mutex_);
    store->current_ = {.set = std::make_shared<const TlsSet>(std::move(set)), .generation = 1};
  }
  store->WarnOfExpiry();
  return store;
}

TlsStore::Current TlsStore::Get() const {
  MutexLock lock(mutex_);
  return current_;
}

TlsStore::Change TlsStore::Look() {
  WarnOfExpiry();
  auto texts = ReadTlsFiles(files_);
  std::string mark = MarkOf(texts);
  if (mark != std::exchange(seen_, mark)) return Change::kNone;
  const bool again = !Refused().empty() && now_() - judged_at_ >= kBetweenJudgements;
  if (mark == judged_ && !again) return Change::kNone;
  judged_ = mark;
  judged_at_ = now_();
  auto set = texts.ok() ? CheckTlsTexts(files_, *std::move(texts), now_())
                        : absl::StatusOr<TlsSet>(texts.status());
  if (!set.ok()) {
    const std::string why(set.status().message());
    if (SetBad(why) == why && again) return Change::kNone;
    {
      MutexLock lock(mutex_);
      ++reload_errors_;
    }
    Log(LogLevel::kError, "the files of TLS cannot be used; the certificates before them stay",
        {{"error", why}});
    return Change::kNone;
  }
  const bool healed = !SetBad("").empty();
  const auto next = std::make_shared<const TlsSet>(*std::move(set));
  Current before;
  {
    MutexLock lock(mutex_);
    before = current_;
    // Back to what is in use, after a bad set.
    if (before.set->texts == next->texts) {
      if (healed) Log(LogLevel::kInfo, "the files of TLS are those in use again");
      return Change::kNone;
    }
    current_ = {.set = next, .generation = before.generation + 1};
    ++reloads_;
  }
  warned_ = 0;
  const bool withdrawn =
      !std::includes(next->client_cas.begin(), next->client_cas.end(),
                     before.set->client_cas.begin(), before.set->client_cas.end());
  Log(LogLevel::kInfo, "TLS certificates read again",
      {{"names", absl::StrJoin(next->names, " ")},
       {"not_after", TimeText(next->not_after)},
       {"client_ca_withdrawn", withdrawn}});
  return withdrawn ? Change::kCaWithdrawn : Change::kNewSet;
}

std::string TlsStore::Refused() const {
  MutexLock lock(mutex_);
  return bad_;
}

std::string TlsStore::SetBad(std::string why) {
  MutexLock lock(mutex_);
  return std::exchange(bad_, std::move(why));
}

void TlsStore::WarnOfExpiry() {
  const int64_t left = Get().set->not_after - now_();
  if (left > kSoon || (warned_ != 0 && now_() - warned_ < kDay)) return;
  warned_ = now_();
  Log(left > 0 ? LogLevel::kWarning : LogLevel::kError,
      left > 0 ? "a certificate of the server expires soon; clients will then refuse it"
               : "a certificate of the server has expired; clients refuse it",
      {{"file", files_.certificate}, {"not_after", TimeText(Get().set->not_after)}});
}

TlsStore::Counts TlsStore::Count() const {
  MutexLock lock(mutex_);
  return {
      .not_after = current_.set->not_after, .reloads = reloads_, .reload_errors = reload_errors_};
}

}  // namespace octavo::security
