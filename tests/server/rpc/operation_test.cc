// Requests that wait, and the messages of operations.

#include "server/rpc/convert/operation.h"

#include <chrono>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

#include "octavo/v1/volume.pb.h"

#include "gpu/base/status.h"
#include "server/rpc/convert/status.h"
#include "tests/support/status_matchers.h"

namespace octavo::rpc {
namespace {

using google::protobuf::util::MessageDifferencer;
using octavo::testing::IsError;
using std::chrono::steady_clock;
using std::chrono::system_clock;

constexpr system_clock::time_point kNever = system_clock::time_point::max();

/// The time that a call waits, or nothing if it has no limit.
std::optional<double> Waits(std::optional<double> wait, std::optional<double> deadline) {
  google::protobuf::Duration duration;
  if (wait.has_value()) {
    duration.set_seconds(static_cast<int64_t>(*wait));
    duration.set_nanos(
        static_cast<int32_t>((*wait - static_cast<double>(duration.seconds())) * 1e9));
  }
  const auto before = steady_clock::now();
  const auto until =
      DecodeWait(wait.has_value() ? &duration : nullptr,
                 deadline.has_value()
                     ? system_clock::now() + std::chrono::duration_cast<system_clock::duration>(
                                                 std::chrono::duration<double>(*deadline))
                     : kNever);
  EXPECT_TRUE(until.ok()) << until.status();
  if (!until.ok() || !until->has_value()) return std::nullopt;
  return std::chrono::duration<double>(**until - before).count();
}

TEST(DecodeWait, TheEarlierOfWaitAndDeadline) {
  EXPECT_FALSE(Waits(std::nullopt, std::nullopt).has_value());
  EXPECT_NEAR(*Waits(0, std::nullopt), 0, 1);
  EXPECT_NEAR(*Waits(50, std::nullopt), 50, 1);
  EXPECT_NEAR(*Waits(50, 1000), 50, 1);
  EXPECT_FALSE(Waits(1e11, std::nullopt).has_value()) << "a time that nobody lives to see";
  EXPECT_NEAR(*Waits(1e11, 1000), 999.5, 1);
  // The answer has to reach the client before its deadline.
  EXPECT_LT(*Waits(std::nullopt, 1000), 999.6);
  EXPECT_NEAR(*Waits(std::nullopt, 1000), 999.5, 0.4);
  EXPECT_LT(*Waits(3000, 100), 99.6);
  EXPECT_LE(*Waits(std::nullopt, 1), 0.91);
  EXPECT_LE(*Waits(std::nullopt, -1), 0) << "it is over";
}

TEST(DecodeWait, NoTimeBeforeNow) {
  google::protobuf::Duration wait;
  wait.set_nanos(-1);
  EXPECT_THAT(DecodeWait(&wait, kNever),
              IsError(absl::StatusCode::kInvalidArgument, "allowed >= 0"));
  EXPECT_EQ(InfoOf(DecodeWait(&wait, kNever).status()).field, "wait");
  wait.set_seconds(1);
  EXPECT_THAT(DecodeWait(&wait, kNever),
              IsError(absl::StatusCode::kInvalidArgument, "no duration"));
}

TEST(DecodeRequestKey, IsTheBodyWithoutIdAndWait) {
  v1::CommitVolumeRequest request;
  request.set_name("volumes/a");
  request.set_request_id("one");
  const std::string body = DecodeRequestKey(request).body;
  EXPECT_EQ(DecodeRequestKey(request).id, "one");
  request.mutable_wait()->set_seconds(3);
  request.set_request_id("two");
  EXPECT_EQ(DecodeRequestKey(request).body, body);
  request.mutable_options()->set_destination("elsewhere");
  EXPECT_NE(DecodeRequestKey(request).body, body);
}

TEST(EncodeOperation, EveryField) {
  operation::OperationStatus in;
  in.name = "operations/a";
  in.kind = operation::OperationKind::kDerive;
  in.state = operation::OperationState::kSucceeded;
  in.target = "volumes/a";
  in.request_id = "one";
  in.created.unix_ns = 1'500'000'000;
  in.ended.unix_ns = 4'000'000'000;
  in.elapsed_seconds = 2.5;
  in.progress = {.stage = model::WorkStage::kSyncing,
                 .done_bytes = 3,
                 .total_bytes = 4,
                 .disk_bytes = 5,
                 .fraction = 0.75};
  in.commit = storage::CommitOutcome{.path = "/data/a", .raw_bytes = 4, .disk_bytes = 5};
  in.volumes = {"volumes/b"};
  v1::Operation out;
  EncodeOperation(in, &out);
  EXPECT_EQ(out.name(), "operations/a");
  EXPECT_EQ(out.kind(), v1::OPERATION_KIND_DERIVE);
  EXPECT_EQ(out.state(), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_TRUE(out.done());
  EXPECT_EQ(out.target(), "volumes/a");
  EXPECT_EQ(out.request_id(), "one");
  EXPECT_EQ(out.create_time().seconds(), 1);
  EXPECT_EQ(out.end_time().seconds(), 4);
  EXPECT_EQ(out.progress().stage(), v1::OPERATION_STAGE_SYNCING);
  EXPECT_EQ(out.progress().done_bytes(), 3);
  EXPECT_EQ(out.progress().total_bytes(), 4);
  EXPECT_EQ(out.progress().disk_bytes(), 5);
  EXPECT_EQ(out.progress().fraction(), 0.75);
  EXPECT_EQ(out.progress().elapsed().nanos(), 500'000'000);
  EXPECT_FALSE(out.has_error());
  EXPECT_EQ(out.commit().path(), "/data/a");
  ASSERT_EQ(out.volumes_size(), 1);
  EXPECT_EQ(out.volumes(0), "volumes/b");
  in.state = operation::OperationState::kCancelling;
  v1::Operation running;
  EncodeOperation(in, &running);
  EXPECT_FALSE(running.done());
  EXPECT_FALSE(running.has_end_time());
}

// A client finds in Operation.error what it finds in the trailers of a call that fails in the same
// way.
TEST(EncodeOperation, ItsErrorIsThatOfACall) {
  for (const absl::Status& error :
       {InvalidField("options.destination", "is empty"),
        WithInfo(absl::ResourceExhaustedError("the disk is full"),
                 {.reason = Reason::kDiskFull,
                 .field = "",
                 .numbers = {{"errno", "28"}, {"retryable", "true"}}}),
        WithInfo(absl::CancelledError("the commit was cancelled"),
                 {.reason = Reason::kCommitCancelled, .field = "", .numbers = {}}),
        absl::InternalError(std::string(100'000, 'x'))}) {
    operation::OperationStatus in;
    in.state = operation::OperationState::kFailed;
    in.error = error;
    v1::Operation out;
    EncodeOperation(in, &out);
    const grpc::Status call = ToGrpc(error);
    google::rpc::Status rich;
    ASSERT_TRUE(rich.ParseFromString(call.error_details()));
    EXPECT_EQ(out.error().code(), static_cast<int>(call.error_code()));
    EXPECT_EQ(out.error().message(), call.error_message());
    ASSERT_EQ(out.error().details_size(), rich.details_size());
    for (int i = 0; i < rich.details_size(); ++i) {
      EXPECT_EQ(out.error().details(i).type_url(), rich.details(i).type_url());
      google::rpc::ErrorInfo one, other;
      if (!rich.details(i).UnpackTo(&one)) continue;
      ASSERT_TRUE(out.error().details(i).UnpackTo(&other));
      EXPECT_TRUE(MessageDifferencer::Equals(one, other)) << one.DebugString();
    }
  }
}

}  // namespace
}  // namespace octavo::rpc
