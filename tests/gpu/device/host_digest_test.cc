#include "gpu/device/host_digest.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/highway.h"

#include "gpu/device/digest.h"
#include "tests/gpu/vector_targets.h"
#include "tests/support/seed.h"

namespace octavo::inline gpu {
namespace {

// Each kind of vectors that this processor has, and none, beside the definition.
TEST(HostDigestTest, IsTheDefinitionsSumOnEveryTarget) {
  std::mt19937_64 random(octavo::testing::FreshSeed());
  octavo::testing::OnEveryTarget([&](int64_t target) {
    for (int i = 0; i < 500; ++i) {
      const auto bytes = static_cast<int64_t>(random() % 700),
                 at = static_cast<int64_t>(random() % (i % 3 == 0 ? 1000 : uint64_t{1} << 59)) * 8;
      std::vector<char> data(static_cast<size_t>(bytes) + 8);
      for (char& c : data) c = static_cast<char>(random());
      const char* const from = data.data() + random() % 9;  // of any alignment
      ASSERT_EQ(HostDigest(from, bytes, at), DigestBytes(from, bytes, at))
          << hwy::TargetName(target) << ", " << bytes << " bytes at " << at;
    }
  });
}

}  // namespace
}  // namespace octavo::inline gpu
