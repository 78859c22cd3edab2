#include "server/rpc/convert/operation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/owner.h"
#include "server/rpc/convert/status.h"
#include "server/rpc/convert/time.h"
#include "server/rpc/convert/utf8.h"

namespace octavo::rpc {

absl::StatusOr<std::optional<std::chrono::steady_clock::time_point>> DecodeWait(
    const google::protobuf::Duration* wait, std::chrono::system_clock::time_point deadline) {
  using std::chrono::steady_clock;
  using std::chrono::system_clock;
  constexpr double kLongest = 1e8;                          // s, three years: no limit
  constexpr std::chrono::milliseconds kMostForAnswer(500);  // on its way to the client
  const auto now = steady_clock::now();
  std::optional<steady_clock::time_point> until;
  if (wait != nullptr) {
    OCTAVO_RETURN_IF_ERROR(CheckDuration("wait", *wait));
    const double seconds = ToSeconds(*wait);
    if (seconds < 0) return InvalidField("wait", absl::StrCat("is ", seconds, " s; allowed >= 0"));
    if (seconds < kLongest) {
      until = now + std::chrono::duration_cast<steady_clock::duration>(
                        std::chrono::duration<double>(seconds));
    }
  }
  if (deadline == system_clock::time_point::max()) return until;
  const std::chrono::duration<double> left = deadline - system_clock::now();
  if (left.count() > kLongest) return until;
  const auto margin = std::min<std::chrono::duration<double>>(left / 10, kMostForAnswer);
  const auto last = now + std::chrono::duration_cast<steady_clock::duration>(left - margin);
  return until.has_value() ? std::min(*until, last) : last;
}

void EncodeOperation(const operation::OperationStatus& in, v1::Operation* out) {
  out->set_name(in.name);
  out->set_kind(static_cast<v1::OperationKind>(in.kind));
  out->set_state(static_cast<v1::OperationState>(in.state));
  out->set_done(IsFinal(in.state));
  out->set_target(Utf8(in.target));
  out->set_request_id(Utf8(in.request_id));
  EncodeOwner(in.owner, out);
  *out->mutable_create_time() = WallTime(in.created);
  if (IsFinal(in.state)) *out->mutable_end_time() = WallTime(in.ended);
  auto* progress = out->mutable_progress();
  progress->set_stage(static_cast<v1::OperationStage>(in.progress.stage));
  progress->set_done_bytes(in.progress.done_bytes);
  progress->set_total_bytes(in.progress.total_bytes);
  progress->set_disk_bytes(in.progress.disk_bytes);
  progress->set_fraction(in.progress.fraction);
  *progress->mutable_elapsed() = ToDuration(in.elapsed_seconds);
  if (!in.error.ok()) *out->mutable_error() = ToRpcStatus(in.error);
  if (in.commit.has_value()) EncodeCommitResult(*in.commit, out->mutable_commit());
  for (const std::string& volume : in.volumes) out->add_volumes(volume);
  out->set_earlier_run(in.earlier_run);
}

}  // namespace octavo::rpc
