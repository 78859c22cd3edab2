#pragma once

#include <cstdint>
#include <cstdlib>
#include <gtest/gtest.h>
#include <iostream>
#include <random>

namespace octavo::testing {

/// Seeds of a test's random data: fresh for every run, so that unforeseen data are found in time. A
/// failing test prints the number that reproduces them: run the test alone with OCTAVO_TEST_SEED
/// set to that number.
class Seeds : public ::testing::EmptyTestEventListener {
 public:
  static Seeds& Get() {
    static Seeds* const seeds = [] {
      auto* made = new Seeds;
      ::testing::UnitTest::GetInstance()->listeners().Append(made);  // takes ownership
      made->Begin();
      return made;
    }();
    return *seeds;
  }
  /// The next seed of the running test; the same sequence for the same OCTAVO_TEST_SEED. Only one
  /// thread may call it at a time.
  uint32_t Next() {
    drawn_ = true;
    return static_cast<uint32_t>(sequence_());
  }

 private:
  void Begin() {
    const char* const given = std::getenv("OCTAVO_TEST_SEED");
    first_ = given != nullptr ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10))
                              : std::random_device{}();
    sequence_.seed(first_);
    drawn_ = false;
  }
  void OnTestStart(const ::testing::TestInfo& /*info*/) override { Begin(); }
  void OnTestEnd(const ::testing::TestInfo& info) override {
    if (drawn_ && info.result()->Failed())
      std::cout << "Random data of OCTAVO_TEST_SEED=" << first_ << "\n";
  }

  uint32_t first_ = 0;
  std::mt19937 sequence_;
  bool drawn_ = false;
};

inline uint32_t FreshSeed() { return Seeds::Get().Next(); }

}  // namespace octavo::testing
