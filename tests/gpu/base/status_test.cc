#include "gpu/base/status.h"

#include <utility>

#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

// Clients always get a reason: that of the error, or the name of its code.
TEST(StatusTest, AnErrorWithoutAReasonHasThatOfItsCode) {
  const std::pair<absl::StatusCode, Reason> codes[] = {
      {absl::StatusCode::kCancelled, Reason::kCancelled},
      {absl::StatusCode::kUnknown, Reason::kUnknown},
      {absl::StatusCode::kInvalidArgument, Reason::kInvalidArgument},
      {absl::StatusCode::kDeadlineExceeded, Reason::kDeadlineExceeded},
      {absl::StatusCode::kNotFound, Reason::kNotFound},
      {absl::StatusCode::kAlreadyExists, Reason::kAlreadyExists},
      {absl::StatusCode::kPermissionDenied, Reason::kPermissionDenied},
      {absl::StatusCode::kResourceExhausted, Reason::kResourceExhausted},
      {absl::StatusCode::kFailedPrecondition, Reason::kFailedPrecondition},
      {absl::StatusCode::kAborted, Reason::kAborted},
      {absl::StatusCode::kOutOfRange, Reason::kOutOfRange},
      {absl::StatusCode::kUnimplemented, Reason::kUnimplemented},
      {absl::StatusCode::kInternal, Reason::kInternal},
      {absl::StatusCode::kUnavailable, Reason::kUnavailable},
      {absl::StatusCode::kDataLoss, Reason::kDataLoss},
      // Nothing here asks who a caller is.
      {absl::StatusCode::kUnauthenticated, Reason::kUnknown}};
  for (const auto& [code, reason] : codes) {
    const absl::Status status(code, "because");
    EXPECT_EQ(ReasonOrCode(status), reason) << status;
    EXPECT_EQ(InfoOf(status).reason, Reason::kNone) << status;
    const absl::Status own = WithInfo(status, {.reason = Reason::kLeased, .field = "name"});
    EXPECT_EQ(ReasonOrCode(own), Reason::kLeased) << status;
    EXPECT_EQ(InfoOf(Annotate(own, "volumes/a")).field, "name") << status;
  }
  EXPECT_EQ(ReasonOrCode(absl::OkStatus()), Reason::kNone);
}

}  // namespace
}  // namespace octavo
