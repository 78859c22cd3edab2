#include "server/engine/streams.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/publish/plane_frame.h"

namespace octavo::engine {
namespace {

/// The state with which a scan or job of an earlier daemon ended; null: there was none.
const char* EndOf(const EarlierRuns& earlier, const std::string& parent) {
  if (const auto* const scan = earlier.FindScan(parent); scan != nullptr) return Name(scan->state);
  if (const auto* const job = earlier.FindJob(parent); job != nullptr) return Name(job->state);
  return nullptr;
}

}  // namespace

absl::StatusOr<std::shared_ptr<model::Subscription>> Streams::Subscribe(
    const model::SubscribeSpec& spec, std::function<void()> notify) {
  auto subscription = publisher_.Subscribe(spec, std::move(notify));
  const ErrorInfo error = InfoOf(subscription.status());
  if (error.reason != Reason::kNoScan && error.reason != Reason::kNoJob) return subscription;
  const char* const end = EndOf(earlier_, spec.parent);
  if (end == nullptr) return subscription;
  // Its topics went with its daemon; GetScan and GetJob still tell of it.
  return WithInfo(
      absl::NotFoundError(absl::StrCat(
          "parent: ", spec.parent, " has ended in an earlier run of the server (", end,
          "), and nothing of it is kept; ",
          absl::StartsWith(spec.parent, "jobs/") ? "GetJob" : "GetScan", " tells of it")),
      error);
}

absl::StatusOr<std::shared_ptr<model::Subscription>> Streams::SubscribeToLast(
    const model::SubscribeSpec& spec, const std::map<model::Product, int64_t>& shown,
    std::function<void()> notify) {
  const absl::Status none = absl::FailedPreconditionError("no picture is missing");
  model::SubscribeSpec last = spec;
  std::erase_if(last.products, [&](model::Product product) {
    return !publish::IsCut(product) || spec.DeliveryOf(product) != model::Delivery::kLatest;
  });
  if (spec.parent.empty() || spec.resume || last.products.empty()) return none;
  const std::vector<model::VolumeStatus> held = held_.HeldBy(spec.parent);
  if (held.empty()) return none;
  std::erase_if(last.products, [&](model::Product product) {
    const auto it = shown.find(product);
    return it != shown.end() && it->second >= held.back().index;
  });
  if (last.products.empty()) return none;
  return publisher_.Subscribe(last, std::move(notify));
}

}  // namespace octavo::engine
