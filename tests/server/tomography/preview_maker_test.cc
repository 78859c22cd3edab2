#include "server/tomography/preview_maker.h"

#include "gmock/gmock.h"

#include "tests/server/tomography/fake_run.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using testing::FakeRun;

publish::Wanted Slice(int64_t index, bool previews = true) {
  return {.key = {.product = Product::kBscan, .axis = FrameAxis::kZ, .plane_index = index},
          .previews = previews};
}

TEST(PreviewMakerTest, TheWantedSliceIsOneOfTheRangeThatAPreviewIsWantedOf) {
  FakeRun run;
  const PreviewMaker previews(run);
  const SliceRange range{.first = 4, .count = 3, .slices = 10};
  EXPECT_FALSE(previews.WantedOf(range).has_value()) << "nobody looks";
  run.wanted = {Slice(3),
                Slice(7),
                Slice(5, /*previews=*/false),
                {.key = {.product = Product::kBscan, .axis = FrameAxis::kY, .plane_index = 5},
                 .previews = true},
                {.key = {.product = Product::kMip}, .previews = true}};
  EXPECT_FALSE(previews.WantedOf(range).has_value());
  run.wanted.push_back(Slice(6));
  EXPECT_EQ(previews.WantedOf(range)->slice, 6);
  run.wanted = {Slice(-1)};
  EXPECT_EQ(previews.WantedOf(range)->slice, 5) << "the middle of the result";
}

TEST(PreviewMakerTest, NothingIsDueBeforeItsTime) {
  FakeRun run;
  run.wanted = {Slice(0)};
  const PreviewMaker previews(run);
  const SliceRange range{.first = 0, .count = 1, .slices = 1};
  EXPECT_FALSE(previews.DueOf(range).has_value());
  run.preview_due = true;
  EXPECT_TRUE(previews.DueOf(range).has_value());
}

TEST(PreviewMakerTest, AnImageIsPublishedWithItsSpacing) {
  FakeRun run(64);
  PreviewMaker previews(run);
  EXPECT_THAT(previews.Begin(65), IsError(absl::StatusCode::kInternal, "of 64"));
  ASSERT_THAT(previews.Begin(64), IsOk());
  const std::vector<float> image(16, 2.5f);
  ASSERT_THAT(run.device().CopyToDevice(run.stream(), previews.image(), image.data(), 64), IsOk());
  ASSERT_THAT(previews.Publish(Slice(0).key, {.data = previews.image(), .rows = 2, .columns = 8},
                               {.rows = {.um = 3, .assumed = true},
                                .columns = {.um = 1.5, .assumed = false}}),
              IsOk());
  EXPECT_EQ(run.published.at(0), image);
  EXPECT_EQ(run.spacings.at(0), 3) << "between rows";
}

}  // namespace
}  // namespace octavo::engine
