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

absl::StatusOr<std::string> RequestIds::Begin(const std::string& id, const std::string& body,
                                              const std::string& principal) {
  if (id.empty()) return std::string();
  std::string digest = Sha256(body);
  const auto it = requests_.find(id);
  if (it == requests_.end()) {
    Request request{.digest = std::move(digest), .name = "", .principal = principal};
    request.name.reserve(kNameBytes);  // so that End needs no memory
    order_.push_back(id);
    absl::Cleanup neither = [&] { order_.pop_back(); };
    (void)Failpoint("request_id_taken");
    size_t& of_principal = of_[principal];
    requests_.emplace(id, std::move(request));
    ++of_principal;
    std::move(neither).Cancel();
    while (order_.size() > kMost) MakeRoom();
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
  order_.erase(std::find(order_.begin(), order_.end(), id));
  Forget(it);
}

void RequestIds::MakeRoom() {
  const auto most = std::max_element(
      of_.begin(), of_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  for (auto at = order_.begin(); at != order_.end(); ++at) {
    const auto it = requests_.find(*at);
    if (it->second.principal != most->first) continue;
    order_.erase(at);
    return Forget(it);
  }
}

void RequestIds::Forget(std::map<std::string, Request>::iterator request) {
  const auto of = of_.find(request->second.principal);
  if (--of->second == 0) of_.erase(of);
  requests_.erase(request);
}

}  // namespace octavo::base
