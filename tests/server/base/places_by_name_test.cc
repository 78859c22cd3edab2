#include "server/base/places_by_name.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace octavo::base {
namespace {

TEST(PlacesByNameTest, EachNameHasItsOwn) {
  PlacesByName places(2);
  auto first = places.Take("ada");
  const auto second = places.Take("ada");
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(places.Take("ada"), nullptr) << "a refusal takes nothing";
  const auto of_bob = places.Take("bob");
  EXPECT_NE(of_bob, nullptr);
  const auto same = first;
  first = nullptr;
  EXPECT_EQ(places.Take("ada"), nullptr) << "a reference is left";
}

TEST(PlacesByNameTest, APlaceIsFreeWhenItsLastReferenceEnds) {
  PlacesByName places(1);
  for (int i = 0; i < 1000; ++i) ASSERT_NE(places.Take("ada"), nullptr) << i;
}

TEST(PlacesByNameTest, APlaceMayOutliveThem) {
  std::optional<PlacesByName> places(1);
  const auto place = places->Take("ada");
  places.reset();
  EXPECT_NE(place, nullptr);
}

TEST(PlacesByNameTest, ThreadsNeverHaveMoreTogether) {
  PlacesByName places(3);
  std::atomic<int> now{0}, most{0}, taken{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 2000; ++i) {
          auto place = places.Take("ada");
          if (place == nullptr) continue;
          ++taken;
          const int mine = ++now;
          for (int seen = most; mine > seen && !most.compare_exchange_weak(seen, mine);) {
          }
          --now;
        }
      });
    }
  }
  EXPECT_LE(most, 3);
  EXPECT_GT(taken, 0);
  std::vector<std::shared_ptr<void>> all;
  for (int i = 0; i < 3; ++i) all.push_back(places.Take("ada"));
  for (const auto& place : all) EXPECT_NE(place, nullptr) << "none is lost";
  EXPECT_EQ(places.Take("ada"), nullptr);
}

}  // namespace
}  // namespace octavo::base
