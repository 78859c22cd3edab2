// Commits while descriptors run out. Each sweep runs in a separate process, because the limit
// applies to the process.
#include <cstdlib>
#include <fcntl.h>
#include <iostream>
#include <random>
#include <sys/resource.h>
#include <unistd.h>

#include "gmock/gmock.h"

#include "gpu/base/unique_fd.h"
#include "server/storage/formats/writer.h"
#include "tests/server/storage/storage_test_base.h"
#include "tests/support/seed.h"

namespace octavo::storage {
namespace {

using testing::StorageTest;

// Leaves this many descriptors free during its lifetime.
class FewDescriptors {
 public:
  explicit FewDescriptors(int free) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit small{.rlim_cur = 256, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &small);
    for (;;) {
      UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!fd) break;
      taken_.push_back(std::move(fd));
    }
    taken_.resize(taken_.size() - std::min(taken_.size(), static_cast<size_t>(free)));
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
  std::vector<UniqueFd> taken_;
};

class DescriptorsTest : public StorageTest, public ::testing::WithParamInterface<Format> {
 protected:
  // Tries from no descriptor to more than a commit needs, in random order, because files left by
  // one try would block a later one. Returns the exit code.
  int Sweep(uint32_t seed) {
    VolumeMeta meta;
    const auto data = MakeVolume(&meta, 20, 16, 64);
    const WriterOptions options{.format = GetParam()};
    auto store = Open();
    std::mt19937 random(seed);
    int refused = 0, wrong = 0;
    std::vector<int> free(24);
    for (size_t i = 0; i < free.size(); ++i) free[i] = static_cast<int>(i);
    std::shuffle(free.begin(), free.end(), random);
    for (const int n : free) {
      absl::StatusOr<CommitOutcome> outcome = absl::UnknownError("");
      {
        const FewDescriptors few(n);
        outcome = Commit(*store, "deep/er/x", meta, data, options);
      }
      if (outcome.ok()) {
        std::filesystem::remove_all(root() + "/deep");
        continue;
      }
      ++refused;
      if (absl::IsResourceExhausted(outcome.status()) && Files().empty()) continue;
      std::cerr << n << " free: " << outcome.status() << ", " << Files().size() << " left\n";
      ++wrong;
    }
    if (const auto last = Commit(*store, "deep/er/x", meta, data, options); !last.ok()) {
      std::cerr << "the last one: " << last.status() << "\n";
      ++wrong;
    }
    store = nullptr;
    store = Open();
    for (const auto& line : report_) {
      std::cerr << "to recover: " << line << "\n";
      ++wrong;
    }
    std::cerr << refused << " refused, " << wrong << " wrong, seed " << seed << "\n";
    return refused > 0 && wrong == 0 ? 0 : 1;
  }
};

TEST_P(DescriptorsTest, ACommitWithoutThemLeavesNothingAndCanBeTriedAgain) {
#ifdef OCTAVO_SANITIZED
  GTEST_SKIP() << "the sanitizer's look at an object needs descriptors of its own";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(Sweep(octavo::testing::FreshSeed())), ::testing::ExitedWithCode(0), "");
}
INSTANTIATE_TEST_SUITE_P(All, DescriptorsTest,
                         ::testing::Values(Format::kOmeZarr05, Format::kNpy, Format::kNrrd,
                                           Format::kNifti, Format::kOmeTiff, Format::kMatlab,
                                           Format::kHdf5, Format::kBin));

}  // namespace
}  // namespace octavo::storage
