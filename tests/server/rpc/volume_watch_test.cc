#include "server/rpc/volume_watch.h"

#include <tuple>

#include "gtest/gtest.h"

namespace octavo::rpc {
namespace {

using Response = v1::WatchVolumesResponse;

// What a client that reads late hears of a volume instead of two messages.
TEST(VolumeWatchTest, MergedMessagesSayWhatIsNewToTheClient) {
  constexpr auto kNothing = Response::KIND_UNSPECIFIED;
  const std::tuple<Response::Kind, Response::Kind, Response::Kind> merges[] = {
      {Response::KIND_EXISTS, Response::KIND_CHANGED, Response::KIND_EXISTS},
      {Response::KIND_CREATED, Response::KIND_CHANGED, Response::KIND_CREATED},
      // It came and went.
      {Response::KIND_EXISTS, Response::KIND_GONE, kNothing},
      {Response::KIND_CREATED, Response::KIND_GONE, kNothing},
      {Response::KIND_EXISTS, Response::KIND_UNMATCHED, kNothing},
      {Response::KIND_CREATED, Response::KIND_UNMATCHED, kNothing},
      {Response::KIND_CHANGED, Response::KIND_CHANGED, Response::KIND_CHANGED},
      {Response::KIND_CHANGED, Response::KIND_GONE, Response::KIND_GONE},
      {Response::KIND_CHANGED, Response::KIND_UNMATCHED, Response::KIND_UNMATCHED},
      // It was away while nobody looked.
      {Response::KIND_UNMATCHED, Response::KIND_CREATED, Response::KIND_CHANGED},
      {Response::KIND_UNMATCHED, Response::KIND_GONE, Response::KIND_GONE}};
  for (const auto& [first, then, told] : merges) {
    Response waiting, news;
    waiting.set_kind(first);
    news.set_kind(then);
    news.mutable_volume()->set_name("volumes/new");
    const bool kept = MergeChanges(waiting, news);
    EXPECT_EQ(kept, told != kNothing) << Response::Kind_Name(first) << Response::Kind_Name(then);
    if (!kept) continue;
    EXPECT_EQ(Response::Kind_Name(waiting.kind()), Response::Kind_Name(told));
    EXPECT_EQ(waiting.volume().name(), "volumes/new");
  }
}

}  // namespace
}  // namespace octavo::rpc
