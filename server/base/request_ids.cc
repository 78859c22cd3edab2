#include "server/base/request_ids.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "server/base/sha256.h"

namespace octavo::base {
namespace {

constexpr size_t kNameBytes = 128;  // of the created resources; names are shorter

}  // namespace

absl::StatusOr<std::string> RequestIds::Begin(const std::string& id, const std::string& body) {
  if (id.empty()) return std::string();
  std::string digest = Sha256(body);
  const auto it = requests_.find(id);
  if (it == requests_.end()) {
    Request request{.digest = std::move(digest), .name = ""};
    request.name.reserve(kNameBytes);  // so that End needs no memory
    order_.push_back(id);
    absl::Cleanup neither = [&] { order_.pop_back(); };
    (void)Failpoint("request_id_taken");
    requests_.emplace(id, std::move(request));
    std::move(neither).Cancel();
    for (; order_.size() > kMost; order_.pop_front()) requests_.erase(order_.front());
    return std::string();
  }
  const Request& first = it->second;
  if (first.digest != digest) {
    ErrorInfo info{.reason = Reason::kIdempotencyMismatch, .field = "request_id", .numbers = {}};
    if (!made_.empty() && !first.name.empty()) info.numbers.emplace_back(made_, first.name);
    const std::string name = first.name.empty() ? "" : absl::StrCat(" (", first.name, ")");
    return WithInfo(
        absl::AlreadyExistsError(absl::StrCat(
            "request_id: is '", id, "', and an earlier call used it with another body", name)),
        info);
  }
  if (first.name.empty()) {
    return WithInfo(
        absl::UnavailableError(
            absl::StrCat("request_id: the server has not answered the first call with '", id,
                         "' yet; ask again")),
        {.reason = Reason::kInProgress, .field = "request_id", .numbers = {{"retryable", "true"}}});
  }
  return first.name;
}

void RequestIds::End(const std::string& id, const std::string& name) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return;
  if (!name.empty()) {
    it->second.name = name;
    return;
  }
  requests_.erase(it);
  order_.erase(std::find(order_.begin(), order_.end(), id));
}

}  // namespace octavo::base
